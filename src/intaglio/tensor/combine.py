"""Combining and rearranging: cat, stack, split, pad, triangles, gather, scatter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intaglio.core.dtypes import DType, dtypes, promote
from intaglio.core.errors import DTypeError, ShapeError, ValueRangeError
from intaglio.core.words import counted
from intaglio.ops import elementwise as ops
from intaglio.ops import movement
from intaglio.ops.layers import below_diagonal
from intaglio.ops.memory import const, iota, put
from intaglio.ops.memory import take as take_at
from intaglio.ops.movement import expand, reshape
from intaglio.ops.reduce import COMBINES
from intaglio.tensor.arguments import (
    axes,
    flag,
    integer,
    integers,
    is_listed,
    is_tensor,
    not_negative,
    number,
    shown,
    tensor,
    word,
)
from intaglio.tensor.base import TensorBase
from intaglio.tensor.elementwise import broadcast_shapes, copied
from intaglio.tensor.indexing import checked as checked_index
from intaglio.tensor.indexing import getitem, setitem
from intaglio.tensor.movement import axis_of, expanded, flat_ints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.ir.node import Node, Shape
    from intaglio.tensor.tensor import Tensor


def _listed(name: str, given: tuple[Any, ...], dim: int) -> tuple[list[Tensor], int]:
    """(the tensors of a call, the axis): they come one by one, or as a list with the axis after it."""
    listed = bool(given) and not isinstance(given[0], TensorBase)
    if listed:
        first, *rest = given
        if not is_listed(first) or len(rest) > 1:
            raise DTypeError(
                f"{name}: a list of tensors is wanted; got {shown(first)}. Write {name}([a, b]), or a.{name}(b)?"
            )
        given = tuple(first)
        dim = rest[0] if rest else dim
    for k, each in enumerate(given):
        if not isinstance(each, TensorBase):
            axis = isinstance(each, int) and not listed
            advice = f"Name the axis, dim={each}?" if axis else "Make one with Tensor(...)?"
            raise DTypeError(f"{name}: a list of tensors is wanted; operand {k} is {shown(each)}. {advice}")
    if not given:
        raise ShapeError(f"{name}: there must be at least one tensor; got none. Begin with an empty one, Tensor([])?")
    return list(given), dim


def cat(*given: Any, dim: int = 0) -> Tensor:
    """Tensors one after the other along an axis: `cat([a, b], dim)`, or `a.cat(b, dim=dim)`.

    Args:
        given: The tensors, one by one or as one list.
        dim: The axis; negative counts from the end.
    Raises: ShapeError unless shapes agree but on that axis; DTypeError if one is no tensor.
    Examples:
        >>> Tensor.cat([Tensor([1]), Tensor([2, 3])]).tolist()
        [1, 2, 3]
        >>> Tensor([[1]]).cat(Tensor([[2]]), dim=1).tolist()
        [[1, 2]]
    """
    tensors, dim = _listed("cat", given, dim)
    return _joined("cat", tensors, dim)


def _joined(name: str, tensors: list[Tensor], dim: int) -> Tensor:
    """Tensors one after the other along an axis, for a named op."""
    first = tensors[0]
    a = axis_of(name, dim, first.ndim)
    dtype = first.dtype
    for k, each in enumerate(tensors):
        if each.ndim != first.ndim or each.shape[:a] + each.shape[a + 1 :] != first.shape[:a] + first.shape[a + 1 :]:
            raise ShapeError(
                f"{name}: shapes must agree except on axis {a}; operand {k} is {each.shape}, "
                f"operand 0 is {first.shape}. {'Reshape or slice' if each.ndim == first.ndim else 'Unsqueeze'} one?"
            )
        dtype = promote(dtype, each.dtype)
    total = sum(t.shape[a] for t in tensors)
    out = first.__class__.empty(*first.shape[:a], total, *first.shape[a + 1 :], dtype=dtype, device=first._device)
    start = 0
    for each in tensors:
        stop = start + each.shape[a]
        out[(slice(None),) * a + (slice(start, stop),)] = each
        start = stop
    return out


def stack(*given: Any, dim: int = 0) -> Tensor:
    """Tensors of one shape along a new axis: `stack([a, b], dim)`, or `a.stack(b, dim=dim)`.

    Args:
        given: The tensors, one by one or as one list.
        dim: Where the new axis goes.
    Raises: ShapeError unless the shapes are equal; DTypeError if one is no tensor.
    Examples:
        >>> Tensor.stack([Tensor([1, 2]), Tensor([3, 4])], dim=1).tolist()
        [[1, 3], [2, 4]]
    """
    tensors, dim = _listed("stack", given, dim)
    for k, each in enumerate(tensors):
        if each.shape != tensors[0].shape:
            raise ShapeError(
                f"stack: shapes must be equal; operand {k} is {each.shape}, operand 0 is {tensors[0].shape}. "
                "Use cat, or pad or slice one?"
            )
    a = axis_of("stack", dim, tensors[0].ndim + 1, new=True)
    return _joined("stack", [t.unsqueeze(a) for t in tensors], a)


def hstack(*given: Any) -> Tensor:
    """Tensors side by side: along the second axis, or the first of vectors.

    Args:
        given: The tensors, one by one or as one list.
    Raises: ShapeError unless shapes agree but on that axis.
    Examples:
        >>> Tensor.hstack([Tensor([1]), Tensor([2, 3])]).tolist()
        [1, 2, 3]
    """
    tensors, _ = _listed("hstack", given, 0)
    wide = [t if t.ndim else t.unsqueeze(0) for t in tensors]
    return _joined("hstack", wide, min(1, wide[0].ndim - 1))


def vstack(*given: Any) -> Tensor:
    """Tensors one below the other: along the first axis, vectors as rows.

    Args:
        given: The tensors, one by one or as one list.
    Raises: ShapeError unless shapes agree but on that axis.
    Examples:
        >>> Tensor.vstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
        [[1, 2], [3, 4]]
    """
    tensors, _ = _listed("vstack", given, 0)
    return _joined("vstack", [t if t.ndim > 1 else t.reshape(1, -1) for t in tensors], 0)


def split(self: Tensor, sizes: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive pieces along an axis: of one size (the last may be smaller), or of the sizes listed.

    Args:
        sizes: The size of each piece, or all of them.
        dim: The axis; negative counts from the end.
    Raises: ShapeError if they do not sum to the axis, a size is not positive, or there is no such axis.
    Examples:
        >>> [piece.tolist() for piece in Tensor([1, 2, 3, 4, 5]).split(2)]
        [[1, 2], [3, 4], [5]]
    """
    a = axis_of("split", dim, self.ndim)
    n = self.shape[a]
    parts = list(integers("split", "sizes", sizes))
    if isinstance(sizes, int):
        if sizes <= 0:
            raise ShapeError(f"split: the size must be positive; got {sizes}. Use chunk for a number of pieces?")
        parts = [min(sizes, n - s) for s in range(0, n, sizes)] or [0]
    if sum(parts) != n or min(parts, default=0) < 0:
        raise _unlike_axis(parts, self.shape, a)
    out: list[Tensor] = []
    start = 0
    for size in parts:
        out.append(self[(slice(None),) * a + (slice(start, start + size),)])
        start += size
    return tuple(out)


def _unlike_axis(parts: list[int], shape: Shape, axis: int) -> ShapeError:
    """The error for sizes in which an axis cannot be split."""
    if min(parts, default=0) < 0:
        return ShapeError(f"split: sizes must not be negative; got {parts}. Use narrow for one piece?")
    other = next((k for k, n in enumerate(shape) if n == sum(parts)), None)
    advice = "Use narrow for one piece?" if other is None else f"Is dim={other} meant?"
    return ShapeError(
        f"split: sizes must sum to the axis; {parts} sum to {sum(parts)}, axis {axis} has {shape[axis]}. {advice}"
    )


def chunk(self: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most `chunks` pieces of equal size (the last may be smaller).

    Args:
        chunks: How many at most.
        dim: The axis; negative counts from the end.
    Raises: ShapeError if there is no such axis, or there are to be no pieces.
    Examples:
        >>> [piece.tolist() for piece in Tensor([1, 2, 3, 4, 5]).chunk(2)]
        [[1, 2, 3], [4, 5]]
    """
    n = self.shape[axis_of("chunk", dim, self.ndim)]
    if integer("chunk", "the number of chunks", chunks) < 1:
        raise ShapeError(f"chunk: there must be at least one chunk; got {chunks}. Use split for a size of pieces?")
    return split(self, max(1, -(-n // chunks)), dim)


def pad(self: Tensor, padding: Sequence[Any], mode: str = "constant", value: float = 0.0) -> Tensor:
    """The tensor with more elements around it.

    Args:
        padding: (before, after) for each axis, or PyTorch's flat list from the last axis backwards.
        mode: "constant", "reflect", "replicate" or "circular".
        value: What "constant" puts there.
    Raises: ShapeError if the amounts do not fit the axes or the mode; ValueRangeError if there is no such mode.
    Examples:
        >>> Tensor([1, 2]).pad((1, 2), value=9).tolist()
        [9, 1, 2, 9, 9]
    """
    pads = _pads(padding, self.ndim)
    if word("pad", "the mode", mode, ("constant", "reflect", "replicate", "circular")) == "constant":
        fill = number("pad", "the value", value)
        cut = self
        if any(a < 0 or b < 0 for a, b in pads):
            _check_cut(pads, self.shape)
            cut = self.shrink([(max(0, -a), n - max(0, -b)) for (a, b), n in zip(pads, self.shape, strict=True)])
        grow = tuple((max(a, 0), max(b, 0)) for a, b in pads)
        node = movement.pad(cut._value(), grow)
        if fill != 0:
            if not self.dtype.fits(fill):
                raise ValueRangeError(
                    f"pad: the value must fit the dtype; {fill} does not fit {self.dtype.name}. Cast the tensor first?"
                )
            inside = movement.pad(expand(const(dtypes.bool, True), cut.shape), grow)
            node = ops.where(inside, node, const(self.dtype, fill))
        return self._make(node, self)
    x = self
    for axis, (before, after) in enumerate(pads):
        if before or after:
            places = _pad_places(mode, x.shape[axis], before, after, axis)
            x = x[(slice(None),) * axis + (places,)]
    return copied(self) if x is self else x


def _pads(padding: Sequence[Any], rank: int) -> list[tuple[int, int]]:
    """(before, after) for each axis."""
    if not is_listed(padding):
        raise DTypeError(
            f"pad: (before, after) for each axis, or a flat list of numbers; got {shown(padding)}. "
            "Write (1, 1) for both ends of the last axis?"
        )
    if padding and not is_listed(padding[0]) and padding[0] is not None:
        if len(padding) % 2 or len(padding) // 2 > rank:
            raise ShapeError(
                f"pad: a flat list has two numbers for each of at most {axes(rank)}; got {list(padding)}. "
                "Write (before, after) of the last axis first?"
            )
        flat = integers("pad", "the padding", padding)
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]
    found = [(0, 0) if pair is None else integers("pad", "the padding", pair) for pair in padding]
    odd = next((pair for pair in found if len(pair) != 2), None)
    if odd is not None:
        raise ShapeError(f"pad: a pair is (before, after); got {odd}. Write (0, 0) for an axis that stays?")
    if len(found) != rank:
        raise ShapeError(
            f"pad: one pair for each axis; got {counted(len(found), 'pair')} for {axes(rank)}. "
            "Write None for an axis that stays?"
        )
    return [(before, after) for before, after in found]


def _check_cut(pads: list[tuple[int, int]], shape: Shape) -> None:
    """Raise where negative padding cuts more off an axis than it has."""
    for axis, ((before, after), n) in enumerate(zip(pads, shape, strict=True)):
        if max(0, -before) + max(0, -after) > n:
            raise ShapeError(
                f"pad: no more can be cut off an axis than it has; ({before}, {after}) for axis {axis} of size {n}. "
                "Cut less?"
            )


def _pad_places(mode: str, n: int, before: int, after: int, axis: int = 0) -> list[int]:
    """Which element each place of a padded axis shows.

    Raises: ShapeError if there are too few.
    """
    span = range(-before, n + after)
    if not n and span:
        raise ShapeError(
            f'pad: there must be an element to repeat with mode="{mode}"; axis {axis} has none. Use mode="constant"?'
        )
    match mode:
        case "replicate":
            return [min(max(i, 0), n - 1) for i in span]
        case "circular":
            return [i % n for i in span]
        case _:
            if before >= n or after >= n:
                raise ShapeError(
                    f"pad: reflection must be shorter than the axis; got {(before, after)} for axis {axis} of size "
                    f'{n}. Use mode="replicate" or "circular"?'
                )
            return [n - 1 - abs(n - 1 - abs(i)) for i in span]


def _below_diagonal(name: str, self: Tensor, diagonal: int) -> Node:
    """Where column - row <= diagonal, over the last two axes, for a named op."""
    if self.ndim < 2:
        raise ShapeError(f"{name}: there must be two axes; the tensor has shape {self.shape}. Reshape or expand it?")
    return below_diagonal(self.shape, diagonal)


def tril(self: Tensor, diagonal: int = 0) -> Tensor:
    """The elements on and below a diagonal; zeros above.

    Args:
        diagonal: Which one: 0 is the main one, positive ones lie above it.
    Raises: ShapeError if there are fewer than two axes.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).tril().tolist()
        [[1, 0], [3, 4]]
    """
    return self._make(
        ops.where(
            _below_diagonal("tril", self, integer("tril", "the diagonal", diagonal)),
            self._value(),
            const(self.dtype, 0),
        ),
        self,
    )


def triu(self: Tensor, diagonal: int = 0) -> Tensor:
    """The elements on and above a diagonal; zeros below.

    Args:
        diagonal: Which one: 0 is the main one, positive ones lie above it.
    Raises: ShapeError if there are fewer than two axes.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).triu(1).tolist()
        [[0, 2], [0, 0]]
    """
    last = integer("triu", "the diagonal", diagonal) - 1
    return self._make(ops.where(_below_diagonal("triu", self, last), const(self.dtype, 0), self._value()), self)


def diag(self: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix with a vector on a diagonal and zeros elsewhere; of a matrix, a view of that diagonal.

    Args:
        diagonal: Which one: 0 is the main one, positive ones lie above it.
    Raises: ShapeError if it is neither.
    Examples:
        >>> Tensor([1, 2]).diag().tolist(), Tensor([[1, 2], [3, 4]]).diag(1).tolist()
        ([[1, 0], [0, 2]], [2])
    """
    shift = integer("diag", "the diagonal", diagonal)
    if self.ndim not in (1, 2):
        raise ShapeError(f"diag: a vector or a matrix is wanted; the shape is {self.shape}. Use diagonal, or reshape?")
    if self.ndim == 2:
        return self.diagonal(shift)
    n = self.shape[0] + abs(shift)
    # Element (i, i + shift) is element i of the vector, or element i + shift where that is less.
    along = reshape(movement.pad(self._value(), ((0, abs(shift)),)), (n, 1) if shift >= 0 else (1, n))
    rows, columns = expand(reshape(iota(n), (n, 1)), (n, n)), expand(reshape(iota(n), (1, n)), (n, n))
    on = ops.eq(columns, ops.add(rows, const(dtypes.int64, shift)))
    return self._make(ops.where(on, expand(along, (n, n)), const(self.dtype, 0)), self)


def diff(self: Tensor, n: int = 1, dim: int = -1) -> Tensor:
    """Each element of an axis less the one before it, n times over; of bool, whether they differ.

    Args:
        n: How many times.
        dim: The axis; negative counts from the end.
    Raises: ShapeError if there is no such axis; ValueRangeError if n is negative.
    Examples:
        >>> Tensor([1, 4, 9, 16]).diff().tolist(), Tensor([1, 4, 9, 16]).diff(n=2).tolist()
        ([3, 5, 7], [2, 2])
    """
    a = axis_of("diff", dim, self.ndim)
    times = integer("diff", "n", n)
    if times < 0:
        raise ValueRangeError(f"diff: n must not be negative; got {times}. Use cumsum for sums?")
    x = self
    for _ in range(min(times, self.shape[a])):
        last = x.shape[a] - 1
        before, after = x.narrow(a, 0, last), x.narrow(a, 1, last)
        x = after != before if self.dtype.is_bool else after - before
    return copied(self) if x is self else x


def one_hot(self: Tensor, num_classes: int) -> Tensor:
    """1 at each element's number along a new last axis, 0 elsewhere: int64.

    Args:
        num_classes: The extent of the new axis.
    Raises: DTypeError unless the elements are integers; IndexRangeError if one is negative or no class (for computed
        ones, when they are computed).
    Examples:
        >>> Tensor([2, 0]).one_hot(3).tolist()
        [[0, 0, 1], [1, 0, 0]]
    """
    classes = integer("one_hot", "the number of classes", num_classes)
    if classes < 0:
        raise ShapeError(
            f"one_hot: the number of classes must not be negative; got {classes}. Give t.max().item() + 1?"
        )
    if not self.dtype.is_int:
        raise DTypeError(f"one_hot: the elements must be integers; they are {self.dtype.name}. Cast them first?")
    node = checked_index(self, classes, self.ndim, "one_hot", wraps=False)._value()
    shape = (*self.shape, classes)
    wide = expand(reshape(node, (*self.shape, 1)), shape)
    places = expand(reshape(iota(classes), (1,) * self.ndim + (classes,)), shape)
    return self._make(ops.cast(ops.eq(wide, places), dtypes.int64), self)


def _along(name: str, self: Tensor, axis: int, index: Tensor, *, wraps: bool = True) -> tuple[int, list[Node]]:
    """(axis, index nodes for every axis) of PyTorch's gather and scatter."""
    a = axis_of(name, axis, self.ndim)
    index = tensor(name, "the index", index)
    if index.ndim != self.ndim or any(
        i > n for k, (i, n) in enumerate(zip(index.shape, self.shape, strict=True)) if k != a
    ):
        raise ShapeError(
            f"{name}: the index must have {axes(self.ndim)}, none but {a} longer than the tensor's; "
            f"index {index.shape}, tensor {self.shape}. "
            + ("Slice the index?" if index.ndim == self.ndim else "Unsqueeze or reshape the index, or index with []?")
        )
    if not index.dtype.is_int:
        raise _no_positions(name, index)
    places: list[Node] = []
    for k, n in enumerate(index.shape):
        if k == a:
            places.append(ops.cast(checked_index(index, self.shape[a], a, name, wraps=wraps)._value(), dtypes.int64))
        else:
            places.append(expand(reshape(iota(n), tuple(n if j == k else 1 for j in range(index.ndim))), index.shape))
    return a, places


def _no_positions(name: str, index: Tensor) -> DTypeError:
    """The error for an index of a named op that is not of integers."""
    return DTypeError(f"{name}: positions must be integers; the index is {index.dtype.name}. Cast it first?")


def gather(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """out[i][j] = self[index[i][j]][j] for axis 0, and so on: PyTorch's gather.

    Args:
        dim: The axis; negative counts from the end.
        index: Positions along the axis: integers, of as many axes as this tensor.
    Shape: that of the index.
    Raises: ShapeError or IndexRangeError where the index does not fit.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[1], [0]])).tolist()
        [[2], [3]]
    """
    return gathered("gather", self, dim, index)


def gathered(name: str, self: Tensor, dim: int, index: Tensor, *, wraps: bool = True) -> Tensor:
    """As gather, for a named op; negative positions count from the end if they wrap."""
    _, places = _along(name, self, dim, index, wraps=wraps)
    return self._make(take_at(self._value(), *places), self, index)


def scatter(self: Tensor, dim: int, index: Tensor, src: Any, reduce: str | None = None) -> Tensor:
    """The tensor with src[i][j] put at [index[i][j]][j] for axis 0, and so on: PyTorch's scatter.

    The last of equal positions wins.

    Args:
        dim: The axis; negative counts from the end.
        index: Positions along the axis: integers, of as many axes as this tensor.
        src: A tensor at least as long as the index, or a number.
        reduce: "add" or "multiply" to do so with what is there.
    Raises: ShapeError or IndexRangeError where the index does not fit; ValueRangeError if there is no such reduction,
        or the dtype cannot hold a number.
    Examples:
        >>> Tensor([0, 0, 0]).scatter(0, Tensor([2, 0]), Tensor([5, 6])).tolist()
        [6, 0, 5]
    """
    return scattered("scatter", self, dim, index, src, reduce)


def scatter_add(self: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    """The tensor with src[i][j] added at [index[i][j]][j] for axis 0, and so on: PyTorch's scatter_add.

    Args:
        dim: The axis; negative counts from the end.
        index: Positions along the axis: integers, of as many axes as this tensor.
        src: A tensor at least as long as the index.
    Raises: ShapeError or IndexRangeError where the index does not fit.
    Examples:
        >>> Tensor([0, 0, 0]).scatter_add(0, Tensor([2, 0, 2]), Tensor([1, 2, 3])).tolist()
        [2, 0, 4]
    """
    return scattered("scatter_add", self, dim, index, src, "add")


def scattered(name: str, self: Tensor, dim: int, index: Tensor, src: Any, reduce: str | None) -> Tensor:
    """The tensor with values put, added or multiplied at positions, for a named op."""
    if reduce is not None:
        word(name, "reduce", reduce, ("add", "multiply"))
    kind = {None: "set", "add": "add", "multiply": "mul"}[reduce]
    _, places = _along(name, self, dim, index)
    return self._make(put(kind, self._value(), _source(name, self, src, index), *places), self, index, src)


def mask_at(name: str, self: Tensor, dim: int, index: Tensor) -> Node:
    """Which elements of a tensor a scatter of a named op changes."""
    _, places = _along(name, self, dim, index)
    none, all_of_them = (expand(const(dtypes.bool, truth), x.shape) for truth, x in ((False, self), (True, index)))
    return put("set", none, all_of_them, *places)


def _source(name: str, self: Tensor, source: Any, index: Tensor) -> Node:
    """The values of a scatter in the index's shape, for a named op."""
    if isinstance(source, TensorBase):
        node = ops.cast(source._value(), self.dtype)
        if node.rank != index.ndim or any(a < b for a, b in zip(node.shape, index.shape, strict=True)):
            raise ShapeError(
                f"{name}: the source must be at least as long as the index; source {node.shape}, index {index.shape}. "
                "Expand the source, or slice the index?"
            )
        return movement.shrink(node, tuple((0, n) for n in index.shape))
    return expand(fitting(name, self.dtype, source), index.shape)


def fitting(name: str, dtype: DType, value: Any) -> Node:
    """A number in a dtype, for a named op.

    Raises: ValueRangeError if the dtype cannot hold it.
    """
    each = number(name, "the value", value)
    if not dtype.fits(each):
        raise ValueRangeError(
            f"{name}: the number must fit the dtype; {each} does not fit {dtype.name}. Cast the tensor first?"
        )
    return const(dtype, each)


def scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """The tensor with the sum, prod, amax, amin or mean of what the index sends to each place, as PyTorch's.

    Args:
        dim: The axis; negative counts from the end.
        index: Positions along the axis: integers, of as many axes as this tensor.
        src: A tensor at least as long as the index.
        reduce: "sum", "prod", "amax", "amin" or "mean".
        include_self: Whether the old element takes part; places that nothing is sent to keep it either way.
    Raises: ShapeError or IndexRangeError where the index does not fit; ValueRangeError if there is no such reduction.
    Examples:
        >>> Tensor([1, 1]).scatter_reduce(0, Tensor([0, 0]), Tensor([5, 3]), "amax").tolist()
        [5, 1]
    """
    kinds = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}
    word("scatter_reduce", "reduce", reduce, tuple(kinds))
    flag("scatter_reduce", "include_self", include_self)
    _, places = _along("scatter_reduce", self, dim, index)
    values = _source("scatter_reduce", self, src, index)
    dtype = self.dtype
    base = self._value()
    ones = expand(const(dtypes.int64, 1), index.shape)
    counts = put("add", expand(const(dtypes.int64, 0), self.shape), ones, *places)
    hit = ops.lt(const(dtypes.int64, 0), counts)
    kind = kinds[reduce]
    first = base if include_self else ops.where(hit, expand(COMBINES[kind].identity(dtype), self.shape), base)
    out = put(kind, first, values, *places)
    if reduce == "mean":
        total = ops.add(counts, const(dtypes.int64, int(include_self)))
        total = ops.cast(ops.maximum(total, const(dtypes.int64, 1)), dtype)
        out = ops.div(out, total) if dtype.is_float else ops.floor_div(out, total)
        if not include_self:
            out = ops.where(hit, out, base)
    return self._make(out, self, index, src)


def index_add(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """The tensor with the slices of `source` added at the positions of an axis that the index names.

    Args:
        dim: The axis; negative counts from the end.
        index: Positions along the axis: integers, of which negative ones count from the end.
        source: As many slices as positions.
    Raises: ShapeError or IndexRangeError where the index or the source does not fit.
    Examples:
        >>> Tensor([0, 0, 0]).index_add(0, Tensor([2, 2]), Tensor([5, 6])).tolist()
        [0, 0, 11]
    """
    a = axis_of("index_add", dim, self.ndim)
    index, source = tensor("index_add", "the index", index), tensor("index_add", "the source", source)
    if not index.dtype.is_int:
        raise _no_positions("index_add", index)
    count = index.numel()
    wanted = tuple(count if k == a else n for k, n in enumerate(self.shape))
    if index.ndim > 1 or source.shape != wanted:
        raise ShapeError(
            f"index_add: the source must have {wanted} for an index of one axis; it has {source.shape}, "
            f"the index {index.shape}. Reshape one?"
        )
    order = (a, *(k for k in range(self.ndim) if k != a))
    place = ops.cast(checked_index(index, self.shape[a], a, "index_add")._value(), dtypes.int64)
    place = reshape(place, (count,))
    base = movement.permute(self._value(), order)
    values = movement.permute(ops.cast(source._value(), self.dtype), order)
    out = put("add", base, values, place)
    back = tuple(order.index(k) for k in range(self.ndim))
    return self._make(movement.permute(out, back), self, index, source)


def index_select(self: Tensor, dim: int, index: Any) -> Tensor:
    """The slices of an axis at the positions that the index names.

    Args:
        dim: The axis; negative counts from the end.
        index: Positions along the axis: integers, of which negative ones count from the end.
    Raises: ShapeError if there is no such axis; IndexRangeError if it has no such position.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).index_select(1, Tensor([1, 1])).tolist()
        [[2, 2], [4, 4]]
    """
    return getitem(self, (slice(None),) * axis_of("index_select", dim, self.ndim) + (index,), "index_select")


def index_fill(self: Tensor, dim: int, index: Any, value: float) -> Tensor:
    """The tensor with a number at the positions of an axis that the index names.

    Args:
        dim: The axis; negative counts from the end.
        index: Positions along the axis: integers, of which negative ones count from the end.
        value: The number.
    Raises: ShapeError or IndexRangeError where the index does not fit; ValueRangeError if the dtype cannot hold the
        number.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).index_fill(1, Tensor([0]), 9).tolist()
        [[9, 2], [9, 4]]
    """
    a = axis_of("index_fill", dim, self.ndim)
    places = tensor("index_fill", "the index", index)
    fitting("index_fill", self.dtype, value)
    out = self.clone()
    setitem(out, (slice(None),) * a + (places,), value, "index_fill")
    return out


def take(self: Tensor, index: Tensor) -> Tensor:
    """The elements at positions in row-major order, in the index's shape.

    Args:
        index: Positions in row-major order: integers.
    Raises: IndexRangeError where there is no such position.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).take(Tensor([3, 0])).tolist()
        [4, 1]
    """
    places = tensor("take", "the index", index)
    if not places.dtype.is_int:
        raise _no_positions("take", places)
    flat = reshape(self._value(), (self.numel(),))
    checked = ops.cast(checked_index(places, self.numel(), None, "take")._value(), dtypes.int64)
    return self._make(take_at(flat, checked), self, places)


def masked_fill(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """The tensor with a number where a mask holds.

    Args:
        mask: Where it is true, or other than 0; broadcasts with this tensor.
        value: The number.
    Raises: ShapeError if the mask does not broadcast; ValueRangeError if the dtype cannot hold the number.
    Examples:
        >>> t = Tensor([1, -2, 3])
        >>> t.masked_fill(t < 0, 0).tolist()
        [1, 0, 3]
    """
    return masked("masked_fill", self, mask, value)


def masked(name: str, self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """The tensor with a number (or a tensor of one) where a mask holds, for a named op."""
    chosen = tensor(name, "the mask", mask)
    if is_tensor(value):
        broadcast_shapes(name, self.shape, chosen.shape, value.shape)
        return chosen.where(value.cast(self.dtype), self)
    broadcast_shapes(name, self.shape, chosen.shape)
    fill = self.__class__._from_node(fitting(name, self.dtype, value), self._near)
    return chosen.where(fill, self)


def mask_over(self: Tensor, mask: Tensor) -> Node:
    """Which elements of a tensor a mask that broadcasts to it has."""
    return movement.broadcast(ops.cast(mask._value(), dtypes.bool), self.shape)


def masked_select(self: Tensor, mask: Tensor) -> Tensor:
    """The elements where a mask holds, in row-major order. Computes the mask.

    Args:
        mask: Where it is true, or other than 0; broadcasts with this tensor.
    Raises: ShapeError if it does not broadcast.
    Examples:
        >>> t = Tensor([1, -2, 3])
        >>> t.masked_select(t > 0).tolist()
        [1, 3]
    """
    chosen = tensor("masked_select", "the mask", mask).cast(dtypes.bool)
    return self[expanded("masked_select", chosen, self.shape)]


def repeat(self: Tensor, *counts: object) -> Tensor:
    """The tensor repeated along each axis: PyTorch's repeat.

    Args:
        counts: How often along each axis; more than there are axes give new ones in front.
    Raises: ShapeError if there are fewer counts than axes, or one is negative.
    Examples:
        >>> Tensor([1, 2]).repeat(2, 2).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    times = flat_ints("repeat", counts, "counts")
    if len(times) < self.ndim:
        raise ShapeError(
            f"repeat: one count for each axis; got {times} for shape {self.shape}. Use tile, which takes fewer?"
        )
    return _repeated("repeat", self, times)


def tile(self: Tensor, *counts: object) -> Tensor:
    """The tensor repeated along its last axes (or along new ones before them): NumPy's tile.

    Args:
        counts: How often along each axis, from the last backwards.
    Raises: ShapeError if a count is negative.
    Examples:
        >>> Tensor([[1], [2]]).tile(2).tolist(), Tensor([1, 2]).tile((2, 1)).tolist()
        ([[1, 1], [2, 2]], [[1, 2], [1, 2]])
    """
    times = flat_ints("tile", counts, "counts")
    return _repeated("tile", self, (1,) * (self.ndim - len(times)) + times)


def _repeated(name: str, self: Tensor, times: tuple[int, ...]) -> Tensor:
    """The tensor repeated along each axis, for a named op."""
    if any(n < 0 for n in times):
        raise ShapeError(f"{name}: counts must not be negative; got {times}. Give 0 or more?")
    own = (1,) * (len(times) - self.ndim) + self.shape
    node = reshape(self._value(), tuple(n for pair in zip((1,) * len(own), own, strict=True) for n in pair))
    node = expand(node, tuple(n for pair in zip(times, own, strict=True) for n in pair))
    return self._make(reshape(node, tuple(t * n for t, n in zip(times, own, strict=True))), self)


def repeat_interleave(self: Tensor, count: int, dim: int | None = None) -> Tensor:
    """Each element (or slice of an axis) `count` times in a row.

    Args:
        count: How often.
        dim: The axis; the flattened tensor when None.
    Raises: ShapeError if there is no such axis, or the count is negative.
    Examples:
        >>> Tensor([1, 2]).repeat_interleave(2).tolist()
        [1, 1, 2, 2]
    """
    count = not_negative("repeat_interleave", "the count", integer("repeat_interleave", "the count", count))
    x = self.ravel() if dim is None else self
    a = 0 if dim is None else axis_of("repeat_interleave", dim, x.ndim)
    before, n, after = x.shape[:a], x.shape[a], x.shape[a + 1 :]
    wide = expand(reshape(x._value(), (*before, n, 1, *after)), (*before, n, count, *after))
    return self._make(reshape(wide, (*before, n * count, *after)), self)


def roll(self: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Elements moved along axes, those that fall off coming back at the start.

    Args:
        shifts: How far, one for each axis; negative moves to the front.
        dims: The axes; the flattened tensor when None.
    Raises: ShapeError if there is no such axis, or there are not as many shifts.
    Examples:
        >>> Tensor([1, 2, 3, 4]).roll(1).tolist()
        [4, 1, 2, 3]
    """
    if dims is None:
        flat = roll(self.ravel(), shifts, 0)
        return flat.reshape(self.shape)
    moves, along = integers("roll", "shifts", shifts), integers("roll", "axes", dims)
    if len(moves) != len(along):
        raise ShapeError(
            f"roll: one shift for each axis; got {counted(len(moves), 'shift')} for {axes(len(along))}. "
            "Name as many of both?"
        )
    x = self
    for shift, axis in zip(moves, along, strict=True):
        a = axis_of("roll", axis, x.ndim)
        n = x.shape[a]
        if n and shift % n:
            lead = (slice(None),) * a
            cut = n - shift % n
            x = cat([x[(*lead, slice(cut, None))], x[(*lead, slice(None, cut))]], dim=a)
    return copied(self) if x is self else x


def meshgrid(*tensors: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of a grid, one tensor an axis.

    Args:
        tensors: One vector for each axis. (Tensors of other ranks are flattened.)
        indexing: "ij" gives the axes in order, "xy" the first two exchanged.
    Raises: ValueRangeError if there is no such indexing.
    Examples:
        >>> rows, columns = Tensor.meshgrid(Tensor([1, 2]), Tensor([3, 4]))
        >>> rows.tolist(), columns.tolist()
        ([[1, 1], [2, 2]], [[3, 4], [3, 4]])
    """
    word("meshgrid", "indexing", indexing, ("ij", "xy"))
    tensors = tuple(tensor("meshgrid", "every operand", each) for each in tensors)
    shape = tuple(t.numel() for t in tensors)
    out = [
        t.reshape(tuple(-1 if b == a else 1 for b in range(len(shape)))).expand(*shape) for a, t in enumerate(tensors)
    ]
    return tuple(t.transpose(0, 1) for t in out) if indexing == "xy" and len(out) > 1 else tuple(out)


def nonzero(self: Tensor) -> Tensor:
    """The positions of the elements that are not 0, one row each: int64. Computes the tensor.

    Shape: (..., ) -> (count, rank).
    Examples:
        >>> Tensor([[0, 5], [6, 0]]).nonzero().tolist()
        [[0, 1], [1, 0]]
    """
    import numpy as np

    return self.__class__(np.argwhere(self.cast(dtypes.bool).numpy()), device=self._device)
