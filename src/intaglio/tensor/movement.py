"""Movement: views where strides allow, copies where they do not."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import DTypeError, ShapeError
from intaglio.core.words import counted, counting
from intaglio.ir.view import View
from intaglio.ops import movement as ops
from intaglio.storage.checks import out_of_range
from intaglio.tensor.arguments import axes as axes_text
from intaglio.tensor.arguments import integer, integers, shown, tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.core.dtypes import DTypeLike
    from intaglio.tensor.tensor import Tensor


def one_or_more(args: Sequence[Any]) -> Any:
    """What is given one by one, or as one sequence (or number)."""
    return args[0] if len(args) == 1 else args


def flat_ints(name: str, args: Sequence[object], what: str = "extents") -> tuple[int, ...]:
    """Integers given to a named op one by one or as one sequence.

    Raises: DTypeError if one is none.
    """
    return integers(name, what, one_or_more(args))


def axis_of(name: str, axis: int, rank: int, *, new: bool = False) -> int:
    """An axis as a number from 0.

    Args:
        new: Whether the axes are those of a result that has one more.
    Raises: ShapeError if there is none.
    """
    axis = integer(name, "the axis", axis)
    if not -rank <= axis < rank:
        if not rank:
            raise ShapeError(f"{name}: the tensor must have an axis; got axis {axis} of a scalar. Reshape it to (1,)?")
        own = f"{axes_text(rank)}{' with the new one' if new else ''}"
        raise ShapeError(f"{name}: the axis must be in [{-rank}, {rank}); got {axis} for {own}. {counting(rank)}")
    return axis % rank


def axes_of(name: str, axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Axes as numbers from 0, all when None.

    Raises: ShapeError if one is out of range or given twice.
    """
    if axis is None:
        return tuple(range(rank))
    found = tuple(axis_of(name, a, rank) for a in integers(name, "axes", axis))
    if len(set(found)) != len(found):
        raise ShapeError(f"{name}: each axis may be given once; got {axis}. Is another axis meant?")
    return found


def resolve_shape(name: str, shape: tuple[int, ...], size: int, what: str = "the tensor") -> tuple[int, ...]:
    """A shape with its -1 filled in, for what has `size` elements.

    Raises: ShapeError if the sizes do not agree.
    """
    if min(shape, default=0) >= 0 and math.prod(shape) == size:
        return shape
    if shape.count(-1) > 1:
        raise ShapeError(f"{name}: at most one extent may be -1; got {shape}. Give the others?")
    if any(n < -1 for n in shape):
        raise ShapeError(
            f"{name}: extents must not be negative; got {shape}. Write -1 for one that follows from the others?"
        )
    full = shape
    if -1 in shape:
        known = math.prod(n for n in shape if n != -1)
        if known == 0 or size % known:
            raise ShapeError(
                f"{name}: sizes must agree; {what} has {counted(size, 'element')}, of which {shape} cannot be made. "
                f"{_reshapable(shape, size)}"
            )
        full = tuple(size // known if n == -1 else n for n in shape)
    if math.prod(full) != size:
        raise ShapeError(
            f"{name}: sizes must agree; {what} has {counted(size, 'element')}, {shape} has {math.prod(full)}. "
            f"{_reshapable(shape, size)}"
        )
    return full


def _reshapable(shape: tuple[int, ...], size: int) -> str:
    """What to try in place of a shape that so many elements do not have: one extent changed, if that is enough."""
    for k in reversed(range(len(shape)) if size and -1 not in shape else ()):
        rest = math.prod(shape[:k] + shape[k + 1 :])
        if rest and size % rest == 0:
            return f"Is {(*shape[:k], size // rest, *shape[k + 1 :])} meant?"
    return "Slice or pad it first?"


def _viewed(self: Tensor, view: View) -> Tensor:
    """A tensor that shares this one's storage."""
    storage, _ = self._place()
    return self._share(storage, view)


def reshape(self: Tensor, *shape: object) -> Tensor:
    """The same elements in row-major order under another shape: a view where strides allow, else a copy.

    Args:
        shape: Extents; one may be -1.
    Raises: ShapeError if the sizes do not agree.
    Examples:
        >>> Tensor.arange(6).reshape(2, 3).tolist()
        [[0, 1, 2], [3, 4, 5]]
    """
    storage, view = self._place()
    extents, moved = _reshaped("reshape", flat_ints("reshape", shape), view)
    if moved is None:
        return self._make(ops.reshape(self._value(), extents), self)
    return self._share(storage, moved)


@lru_cache(maxsize=4096)
def _reshaped(name: str, shape: tuple[int, ...], view: View) -> tuple[tuple[int, ...], View | None]:
    """A shape with its -1 filled in, and a view under it; None where the strides allow none.

    Raises: ShapeError if the sizes do not agree.
    """
    extents = resolve_shape(name, shape, view.size)
    return extents, view.reshape(extents)


def view(self: Tensor, *shape: object) -> Tensor:
    """A view under another shape; never a copy. A dtype in its place: the same bytes as that, as bitcast.

    Args:
        shape: Extents; one may be -1.
    Raises: ShapeError if the sizes do not agree, or strides allow no view.
    Examples:
        >>> t = Tensor.arange(4)
        >>> t.view(2, 2)[0, 1] = 9
        >>> t.tolist()
        [0, 9, 2, 3]
    """
    if len(shape) == 1 and isinstance(shape[0], (DType, np.dtype, type)):
        return bitcast(self, shape[0])  # pyright: ignore[reportUnknownArgumentType] -- any dtype of NumPy's
    return _view("view", self, flat_ints("view", shape))


def _view(name: str, self: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A view under another shape, for a named op."""
    storage, own = self._place()
    extents, moved = _reshaped(name, shape, own)
    if moved is None:
        raise ShapeError(
            f"{name}: the strides must allow a view; shape {own.shape} with strides {own.strides} (bytes) allows none "
            f"of shape {extents}. Use reshape, which copies then?"
        )
    return self._share(storage, moved)


def permute(self: Tensor, *order: object) -> Tensor:
    """A view with the axes in another order.

    Args:
        order: The axes in their new order, one by one or as one sequence.
    Raises: ShapeError unless each axis is named once.
    Examples:
        >>> Tensor.zeros(2, 3, 4).permute(2, 0, 1).shape
        (4, 2, 3)
    """
    storage, view = self._place()
    rank = len(view.shape)
    axes = axes_of("permute", flat_ints("permute", order, "axes"), rank)
    if len(axes) != rank:
        raise ShapeError(
            f"permute: every axis must be given once; got {axes} for shape {self.shape}. "
            f"Order {tuple(range(rank))}, or exchange two with transpose?"
        )
    return self._share(storage, view.permute(axes))


def transpose(self: Tensor, dim0: int = 1, dim1: int = 0) -> Tensor:
    """A view with two axes exchanged.

    Args:
        dim0: The axis; negative counts from the end.
        dim1: The other axis.
    Raises: ShapeError if there is no such axis.
    Examples:
        >>> Tensor.zeros(2, 3, 4).transpose(0, 2).shape, Tensor.zeros(2, 3).swapaxes(0, 1).shape
        ((4, 3, 2), (3, 2))
    """
    storage, view = self._place()
    rank = len(view.shape)
    order = list(range(rank))
    a, b = axis_of("transpose", dim0, rank), axis_of("transpose", dim1, rank)
    order[a], order[b] = order[b], order[a]
    return self._share(storage, view.permute(tuple(order)))


def t(self: Tensor) -> Tensor:
    """A view of a matrix with its axes exchanged (of a vector, itself).

    Raises: ShapeError if there are more than two axes.
    Examples:
        >>> Tensor([[1, 2]]).t().tolist()
        [[1], [2]]
    """
    if self.ndim > 2:
        raise ShapeError(f"t: the tensor must have at most two axes; the shape is {self.shape}. Use transpose or mT?")
    return transpose(self) if self.ndim == 2 else self


def unbind(self: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of all positions of an axis.

    Args:
        dim: The axis; negative counts from the end.
    Raises: ShapeError if there is no such axis.
    Examples:
        >>> [row.tolist() for row in Tensor([[1, 2], [3, 4]]).unbind()]
        [[1, 2], [3, 4]]
    """
    a = axis_of("unbind", dim, self.ndim)
    return tuple(self[(slice(None),) * a + (i,)] for i in range(self.shape[a]))


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """A view under another tensor's shape.

    Args:
        other: The tensor whose shape it is.
    Raises: ShapeError if the sizes do not agree, or strides allow no view.
    Examples:
        >>> Tensor([1, 2, 3, 4]).view_as(Tensor.zeros(2, 2)).tolist()
        [[1, 2], [3, 4]]
    """
    return _view("view_as", self, tensor("view_as", "the other", other).shape)


def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """An expand to another tensor's shape.

    Args:
        other: The tensor whose shape it is.
    Raises: ShapeError if an axis that is not of size 1 would change.
    Examples:
        >>> Tensor([1, 2]).expand_as(Tensor.zeros(2, 2)).tolist()
        [[1, 2], [1, 2]]
    """
    return expanded("expand_as", self, tensor("expand_as", "the other", other).shape)


def flip(self: Tensor, *axes: object) -> Tensor:
    """A view with some axes in reverse (all if none is named).

    Args:
        axes: The axes, one by one or as one sequence.
    Raises: ShapeError if an axis is out of range or given twice.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).flip(1).tolist()
        [[2, 1], [4, 3]]
    """
    chosen = axes_of("flip", flat_ints("flip", axes, "axes") if axes else None, self.ndim)
    return _viewed(self, self._place()[1].flip(chosen))


def expand(self: Tensor, *shape: object) -> Tensor:
    """A view with axes of size 1 repeated (-1 keeps an axis). It cannot be written to: its positions share bytes.

    Args:
        shape: Extents, one by one or as one sequence; more than there are axes give new ones in front.
    Raises: ShapeError if an axis that is not of size 1 would change.
    Examples:
        >>> Tensor([[1], [2]]).expand(2, 3).tolist()
        [[1, 1, 1], [2, 2, 2]]
    """
    return expanded("expand", self, flat_ints("expand", shape))


def broadcast_to(self: Tensor, *shape: object) -> Tensor:
    """As expand: NumPy's name.

    Args:
        shape: Extents, one by one or as one sequence.
    Raises: ShapeError if an axis that is not of size 1 would change.
    Examples:
        >>> Tensor([1, 2]).broadcast_to((2, 2)).tolist()
        [[1, 2], [1, 2]]
    """
    return expanded("broadcast_to", self, flat_ints("broadcast_to", shape))


def expanded(name: str, self: Tensor, extents: tuple[int, ...]) -> Tensor:
    """A view with axes of size 1 repeated, for a named op."""
    own = self.shape
    missing = len(extents) - len(own)
    if missing < 0:
        raise ShapeError(
            f"{name}: there must be at least {counted(len(own), 'extent')}; got {extents} for shape {own}. "
            "Write -1 for an axis that stays?"
        )
    old = (1,) * missing + own
    full = tuple(a if b == -1 else b for a, b in zip(old, extents, strict=True))
    if any(a not in (1, b) or b < 0 for a, b in zip(old, full, strict=True)):
        raise ShapeError(
            f"{name}: only axes of size 1 can be repeated; shape {own} to {extents}. Use repeat, or unsqueeze first?"
        )
    return _viewed(self, self._place()[1].expand(full))


def squeeze(self: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """A view without axes of size 1 (those named, or all).

    Args:
        dim: Axis or axes; all of size 1 when None. Those of another size stay.
    Raises: ShapeError if there is no such axis.
    Examples:
        >>> Tensor.zeros(1, 2, 1).squeeze().shape, Tensor.zeros(1, 2, 1).squeeze(0).shape
        ((2,), (2, 1))
    """
    if dim is None:
        axes = tuple(a for a, n in enumerate(self.shape) if n == 1)
    else:
        axes = tuple(a for a in axes_of("squeeze", dim, self.ndim) if self.shape[a] == 1)
    return _viewed(self, self._place()[1].squeeze(axes))


def unsqueeze(self: Tensor, dim: int) -> Tensor:
    """A view with a new axis of size 1.

    Args:
        dim: Where the new axis goes; negative counts from the end.
    Raises: ShapeError if there is no such axis.
    Examples:
        >>> Tensor([1, 2]).unsqueeze(-1).tolist()
        [[1], [2]]
    """
    return _viewed(self, self._place()[1].unsqueeze(axis_of("unsqueeze", dim, self.ndim + 1, new=True)))


def shrink(self: Tensor, bounds: Sequence[tuple[int, int] | None]) -> Tensor:
    """A view of a box: (first, end) for each axis, None for all of it.

    Args:
        bounds: (first, end) for each axis, or None.
    Raises: ShapeError unless there is one for each axis, within it.
    Examples:
        >>> Tensor([[1, 2, 3], [4, 5, 6]]).shrink((None, (1, 3))).tolist()
        [[2, 3], [5, 6]]
    """
    if not isinstance(bounds, (list, tuple)) or len(bounds) != self.ndim:
        raise ShapeError(
            f"shrink: one pair of bounds for each axis; got {shown(bounds)} for {axes_text(self.ndim)}. "
            "Write None for all of an axis?"
        )
    pairs = [(0, n) if b is None else integers("shrink", "bounds", b) for b, n in zip(bounds, self.shape, strict=True)]
    if any(len(pair) != 2 for pair in pairs):
        raise ShapeError(
            f"shrink: a pair of bounds is a first place and an end; got {shown(bounds)}. Write ((first, end), ...)?"
        )
    full = tuple((first, end) for first, end in pairs)
    if any(not 0 <= a <= b <= n for (a, b), n in zip(full, self.shape, strict=True)):
        raise ShapeError(
            f"shrink: bounds must lie within the shape; {full} of {self.shape}. Use a slice, which ends with the axis?"
        )
    return _viewed(self, self._place()[1].shrink(full))


def unfold(self: Tensor, dim: int, size: int, step: int) -> Tensor:
    """A view of sliding windows along an axis: shape (..., windows, ..., size).

    Args:
        dim: The axis; negative counts from the end.
        size: The length of a window.
        step: From the start of one to that of the next.
    Raises: ShapeError if no window fits, there is no such axis, or the step is not positive.
    Examples:
        >>> Tensor([1, 2, 3, 4, 5]).unfold(0, 3, 2).tolist()
        [[1, 2, 3], [3, 4, 5]]
    """
    a = axis_of("unfold", dim, self.ndim)
    if size.__class__ is not int or step.__class__ is not int or not 0 <= size <= self.shape[a] or step < 1:
        size, step = _window(size, step, a, self.shape[a])
    return _viewed(self, self._place()[1].unfold(a, size, step))


def _window(size: Any, step: Any, axis: int, n: int) -> tuple[int, int]:
    """The size and step of windows along an axis, as whole numbers.

    Raises: ShapeError if they do not fit; DTypeError if they are none.
    """
    size, step = integer("unfold", "the size", size), integer("unfold", "the step", step)
    if not 0 <= size <= n or step < 1:
        advice = "Pad the axis first, or take smaller ones?" if size > n else "Give positive numbers?"
        raise ShapeError(f"unfold: windows of {size} by steps of {step} do not fit axis {axis} of size {n}. {advice}")
    return size, step


def diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of the diagonal of two axes, as a last axis.

    Args:
        offset: Which one: 0 is the main one, positive ones lie above it.
        dim1: The axis of rows.
        dim2: The axis of columns.
    Shape: (n, m) -> (k,); other axes come first.
    Raises: ShapeError unless these are two axes.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).diagonal().tolist()
        [1, 4]
    """
    a, b = axis_of("diagonal", dim1, self.ndim), axis_of("diagonal", dim2, self.ndim)
    if a == b:
        raise ShapeError(f"diagonal: the axes must differ; got {dim1} and {dim2}. Is another axis meant?")
    return _viewed(self, self._place()[1].diagonal(integer("diagonal", "the offset", offset), a, b))


def flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Adjacent axes as one.

    Args:
        start_dim: The first of them.
        end_dim: The last of them.
    Raises: ShapeError if there is no such axis.
    Examples:
        >>> Tensor.zeros(2, 3, 4).flatten(1).shape
        (2, 12)
    """
    if self.ndim == 0:
        return reshape(self, 1)
    a, b = axis_of("flatten", start_dim, self.ndim), axis_of("flatten", end_dim, self.ndim)
    if a > b:
        raise ShapeError(f"flatten: the first axis must not be after the last; got {a} and {b}. Exchange them?")
    return reshape(self, (*self.shape[:a], math.prod(self.shape[a : b + 1]), *self.shape[b + 1 :]))


def unflatten(self: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One axis as several.

    Args:
        dim: The axis; negative counts from the end.
        sizes: Their extents; one may be -1.
    Raises: ShapeError if the sizes do not agree.
    Examples:
        >>> Tensor.zeros(2, 12).unflatten(1, (3, 4)).shape
        (2, 3, 4)
    """
    a = axis_of("unflatten", dim, self.ndim)
    inner = resolve_shape("unflatten", integers("unflatten", "sizes", sizes), self.shape[a], f"axis {a}")
    return reshape(self, (*self.shape[:a], *inner, *self.shape[a + 1 :]))


def as_strided(self: Tensor, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> Tensor:
    """A view of the storage with these strides and offset, in elements.

    Args:
        shape: Extents.
        strides: Elements from one position of an axis to the next.
        offset: Where the first element lies in the storage.
    Raises: ShapeError if it would reach outside the storage.
    Examples:
        >>> Tensor([1, 2, 3, 4]).as_strided((2, 2), (1, 2)).tolist()
        [[1, 3], [2, 4]]
    """
    storage, view = self._place()
    item = view.dtype.itemsize
    extents, steps = integers("as_strided", "extents", shape), integers("as_strided", "strides", strides)
    start = integer("as_strided", "the offset", offset)
    if len(extents) != len(steps) or any(n < 0 for n in extents):
        raise ShapeError(
            f"as_strided: one stride for each extent of at least 0; got {extents} and {steps}. Give as many of both?"
        )
    made = View(view.dtype, extents, tuple(s * item for s in steps), start * item)
    low, high = made.byte_bounds()
    if low < 0 or high > storage.nbytes:
        raise ShapeError(
            f"as_strided: the view must lie within the storage; bytes {low} to {high} of {storage.nbytes}. "
            "Give smaller extents or strides?"
        )
    return _viewed(self, made)


def bitcast(self: Tensor, dtype: DTypeLike) -> Tensor:
    """The same bytes as another dtype: a view. The last axis shrinks or grows where the item sizes differ.

    Args:
        dtype: A dtype, its name, or NumPy's.
    Raises: DTypeError if it cannot.
    Examples:
        >>> Tensor([1.0]).bitcast("int32").item() == 0x3F800000
        True
    """
    _, view = self._place()
    target = dtypes.of(dtype, None, "bitcast")
    moved = view.bitcast(target)
    if moved is None:
        whole = not view.shape or view.strides[-1] == view.dtype.itemsize
        raise DTypeError(
            f"bitcast: the last axis must be contiguous and divide evenly; {view.dtype.name}{list(view.shape)} "
            f"to {target.name}. {'Slice or pad the last axis' if whole else 'Call .contiguous()'} first?"
        )
    return _viewed(self, moved)


def T(self: Tensor) -> Tensor:  # noqa: N802 -- NumPy's name
    """A view with the axes in reverse order."""
    return permute(self, tuple(reversed(range(self.ndim))))


def mT(self: Tensor) -> Tensor:  # noqa: N802 -- NumPy's name
    """A view with the last two axes exchanged."""
    if self.ndim < 2:
        raise ShapeError(f"mT: there must be two axes; the shape is {self.shape}. Unsqueeze it first?")
    return transpose(self, -1, -2)


def movedim(self: Tensor, source: int | Sequence[int], target: int | Sequence[int]) -> Tensor:
    """A view with some axes at other places, the rest in order.

    Args:
        source: Axis or axes.
        target: Where they go.
    Raises: ShapeError if an axis is out of range or given twice, or there are not as many targets.
    Examples:
        >>> Tensor.zeros(2, 3, 4).movedim(0, -1).shape
        (3, 4, 2)
    """
    sources = axes_of("movedim", source, self.ndim)
    targets = axes_of("movedim", target, self.ndim)
    if len(sources) != len(targets):
        raise ShapeError(
            f"movedim: as many targets as sources are needed; got {source} and {target}. Give a place for each?"
        )
    order = [a for a in range(self.ndim) if a not in sources]
    for place, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(place, axis)
    return permute(self, order)


def narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor:
    """A view of `length` positions of an axis from `start` on.

    Args:
        dim: The axis; negative counts from the end.
        start: The first position; negative counts from the end.
        length: How many.
    Raises: ShapeError if there is no such axis, or the positions are not within it.
    Examples:
        >>> Tensor([1, 2, 3, 4]).narrow(0, 1, 2).tolist()
        [2, 3]
    """
    a = axis_of("narrow", dim, self.ndim)
    n = self.shape[a]
    if start.__class__ is not int or length.__class__ is not int:
        start, length = integer("narrow", "the start", start), integer("narrow", "the length", length)
    first = start + n if start < 0 else start
    if not 0 <= first <= first + length <= n:
        raise ShapeError(
            f"narrow: the piece must lie within the axis; {length} from {start} on axis {a} of size {n}. "
            "Use a slice, which ends with the axis?"
        )
    return _viewed(self, self._place()[1].slice(a, first, length, 1))


def ravel(self: Tensor) -> Tensor:
    """All axes as one: a view where strides allow, else a copy.

    Examples:
        >>> Tensor([[1, 2], [3, 4]]).ravel().tolist()
        [1, 2, 3, 4]
    """
    return reshape(self, -1)


def select(self: Tensor, dim: int, index: int) -> Tensor:
    """A view of one position of an axis, without the axis.

    Args:
        dim: The axis; negative counts from the end.
        index: The position; negative counts from the end.
    Raises: IndexRangeError if the axis has no such position.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).select(1, -1).tolist()
        [2, 4]
    """
    a = axis_of("select", dim, self.ndim)
    place, n = integer("select", "the index", index), self.shape[a]
    if not -n <= place < n:
        raise out_of_range("select", place, n, a)
    return _viewed(self, self._place()[1].select(a, place % n))


def rot90(self: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """A view turned by k quarters in the plane of two axes, from the first toward the second.

    Args:
        k: How many quarters; negative turns back.
        dims: The two axes.
    Raises: ShapeError unless these are two axes.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).rot90().tolist()
        [[2, 4], [1, 3]]
    """
    plane = axes_of("rot90", dims, self.ndim)
    if len(plane) != 2:
        raise ShapeError(f"rot90: two axes make a plane; got {shown(dims)}. Write dims=(0, 1)?")
    first, second = plane
    match integer("rot90", "the number of quarters", k) % 4:
        case 0:
            return self
        case 1:
            return transpose(flip(self, second), first, second)
        case 2:
            return flip(self, first, second)
        case _:
            return transpose(flip(self, first), first, second)
