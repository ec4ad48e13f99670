"""Indexing of every NumPy kind, for reading and for writing."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from functools import cache
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import DTypeError, IndexRangeError, ShapeError, ValueRangeError
from intaglio.core.site import user_site
from intaglio.core.words import counted
from intaglio.ir.view import View, view_from
from intaglio.ops import elementwise as ops
from intaglio.ops.bounds import bounds
from intaglio.ops.memory import Read, const, take
from intaglio.ops.movement import broadcast, expand, permute, reshape
from intaglio.storage.checks import out_of_range, remember_check
from intaglio.storage.scratch import SMALL, on_shelf, shelved
from intaglio.tensor.arguments import as_wanted, integer, is_array, is_listed, is_tensor, shown
from intaglio.tensor.base import flush_tensors, relieve
from intaglio.tensor.elementwise import (
    broadcast_shapes,
    is_number,
    plain,
    to_shape_full,
)
from intaglio.tensor.gradients import cuts

if TYPE_CHECKING:
    from intaglio.ir.node import Node
    from intaglio.storage.storage import Storage
    from intaglio.tensor.tensor import Tensor

SMALL_NODES: Final = 16  # of a value that is rather computed again than read back from where it was written
PLAIN: Final = frozenset((int, type(None)))  # what a plain slice has
NAMING: Final = frozenset((int, slice))  # parts that stand for an axis each
Part: TypeAlias = "int | slice[Any, Any, Any] | EllipsisType | Tensor | None"


@dataclass(slots=True)
class Parsed:
    """An index taken apart: the view by its basic parts, then index tensors for some of the view's axes."""

    view: View
    arrays: dict[int, Tensor] = field(default_factory=dict)  # axis of the view -> int64 positions, not negative
    first: int = 0  # where the index tensors' axes go among the others


def _parts(self: Tensor, index: object, name: str) -> list[Part]:
    """The index of a named op as a list of parts."""
    parts = index if is_listed(index) and not isinstance(index, list) else (index,)
    return [_normal(self, part, name) for part in parts]


def parse(self: Tensor, index: object, name: str = "getitem") -> Parsed:
    """An index over this tensor's axes, for a named op.

    Raises: IndexRangeError, ShapeError or DTypeError where it does not fit.
    """
    _, view = self._place()
    parts = _parts(self, index, name)
    used = sum(_consumed(p) for p in parts)
    if used > self.ndim:
        advice = "Leave some out?" if self.ndim else "Index it with '...'?"
        raise IndexRangeError(
            f"{name}: there must be an axis for each index; got {counted(used, 'index', 'indices')} for shape "
            f"{self.shape}. {advice}"
        )
    if (dots := sum(p is Ellipsis for p in parts)) > 1:
        raise IndexRangeError(f"{name}: '...' may appear once; it appears {dots} times. Write ':' for the others?")
    place = next((k for k, p in enumerate(parts) if p is Ellipsis), None)
    if place is not None:  # it stays as well: it parts index arrays even where it stands for no axis
        parts[place + 1 : place + 1] = [slice(None)] * (self.ndim - used)
    else:
        parts += [slice(None)] * (self.ndim - used)
    advanced = any(is_tensor(p) for p in parts)
    parsed = Parsed(view)
    axis = own = 0  # of the view, and of this tensor
    groups: list[int] = []  # places (axes of the view) of the advanced parts, in order
    runs = 0
    before = False
    for part in parts:
        now = is_tensor(part) or (advanced and isinstance(part, int))
        if now and not before:
            runs += 1
        before = now
        if isinstance(part, EllipsisType):
            continue
        if part is None:
            parsed.view = parsed.view.unsqueeze(axis)
            axis += 1
        elif isinstance(part, slice):
            parsed.view = _sliced(parsed.view, axis, part, name)
            axis += 1
            own += 1
        elif isinstance(part, int):
            n = parsed.view.shape[axis]
            if not -n <= part < n:
                raise out_of_range(name, part, n, own)
            own += 1
            if advanced:
                parsed.arrays[axis] = self.__class__(part % n, device=self._near)
                groups.append(axis)
                axis += 1
            else:
                parsed.view = parsed.view.select(axis, part % n)
        else:
            found = _positions(parsed, part, axis, own, name)
            own += _consumed(part)
            for positions in found:
                parsed.arrays[axis] = positions
                groups.append(axis)
                axis += 1
    if groups:
        parsed.first = groups[0] if runs == 1 else 0
    if groups and not parsed.view.size:  # nothing will be computed that has computed positions checked
        flush_tensors(tuple(parsed.arrays.values()))
    return parsed


def _basic(view: View, index: Any) -> View | None:
    """The view that integers, slices of such, None and '...' name; None where there is something else, or amiss."""
    parts: tuple[Any, ...] = index if index.__class__ is tuple else (index,)
    dtype, shape, strides, offset = view
    extents: list[int] = []
    steps: list[int] = []
    rank = len(shape)
    axis = 0  # the first that no part so far stands for
    whole = False  # whether there was a '...'
    for part in parts:
        kind = part.__class__
        if kind is slice:
            if axis == rank:
                return None
            start, stop, step = part.start, part.stop, part.step
            n, stride = shape[axis], strides[axis]
            if start is not None or stop is not None or step is not None:
                if start.__class__ not in PLAIN or stop.__class__ not in PLAIN:
                    return None
                if step is None:
                    start, stop, _ = part.indices(n)
                    n = stop - start if stop > start else 0
                elif step.__class__ is int and step:
                    start, stop, step = part.indices(n)
                    n = len(range(start, stop, step))
                    stride *= step
                else:
                    return None
                if n:
                    offset += start * strides[axis]
            extents.append(n)
            steps.append(stride)
            axis += 1
        elif kind is int:
            if axis == rank or not -shape[axis] <= part < shape[axis]:
                return None
            offset += part % shape[axis] * strides[axis]
            axis += 1
        elif part is None:
            extents.append(1)
            steps.append(0)
        elif part is Ellipsis and not whole:
            end = rank - sum([other.__class__ in NAMING for other in parts]) + axis
            if end < axis:
                return None
            extents += shape[axis:end]
            steps += strides[axis:end]
            axis, whole = end, True
        else:
            return None
    return view_from((dtype, (*extents, *shape[axis:]), (*steps, *strides[axis:]), offset))


def _positions(parsed: Parsed, part: Tensor, axis: int, own: int, name: str) -> list[Tensor]:
    """What a tensor in the index of a named op names: positions of an axis, or of as many as a mask has.

    Args:
        axis: The first of them in the view.
        own: The first of them in the tensor: errors call it so.
    """
    if not part.dtype.is_bool:
        return [checked(part, parsed.view.shape[axis], own, name)]
    extents = parsed.view.shape[axis : axis + part.ndim]
    if part.shape != extents:
        raise IndexRangeError(
            f"{name}: a mask must have the shape of the axes that it stands for; mask {part.shape}, axes {extents}. "
            "Compare the tensor itself, as in t[t > 0]?"
        )
    if not extents:  # one truth for everything: a new axis of size 1 or 0
        parsed.view = parsed.view.unsqueeze(axis)
    return nonzero_of(part)


def _normal(self: Tensor, part: Any, name: str) -> Part:
    """A part as an int, slice, None, Ellipsis or tensor, for a named op."""
    if isinstance(part, (bool, np.bool)):
        return self.__class__(np.array(part), device=self._near)
    if part is None or isinstance(part, (int, slice, EllipsisType)):
        return part  # pyright: ignore[reportUnknownVariableType] -- a slice of anything
    if is_tensor(part):
        if part.dtype.is_float:
            raise DTypeError(
                f"{name}: positions must be integers or bool; the tensor is {part.dtype.name}. Cast it first?"
            )
        return part if part._device == self._device else part.to(self._near)
    if isinstance(part, list) or is_array(part) or isinstance(part, range):
        try:
            array: np.ndarray[Any, Any] = np.asarray(_plain(part))
        except ValueError:
            raise IndexRangeError(
                f"{name}: nested lists of positions must have equal lengths; got {shown(part)}. Pad the shorter ones?"  # pyright: ignore[reportUnknownArgumentType] -- of anything
            ) from None
        if array.dtype.kind not in "iub":
            array = _as_positions(array, name)
        return self.__class__(array if array.dtype.kind == "b" else array.astype(np.int64), device=self._near)
    return _whole(part, name)


def _as_positions(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """An array of other than integers as positions, which an empty list is, for a named op."""
    if array.size or array.dtype.kind != "f":
        raise DTypeError(
            f"{name}: positions must be integers or bool; got {array.dtype}. Convert them with int(...) or .astype?"
        )
    return array.astype(np.int64)


def _whole(part: Any, name: str) -> int:
    """A part that is neither a plain integer nor an array, as an integer, for a named op."""
    try:
        return operator.index(part)
    except TypeError:
        advice = "Write a list?" if part.__class__ in (tuple, set, frozenset) else as_wanted("an integer", part)
        raise DTypeError(
            f"{name}: parts must be integers, slices, None, '...', or arrays; got {shown(part)}. {advice}"
        ) from None


def _plain(part: Any) -> Any:
    """A list with its tensors as numbers."""
    if is_listed(part) and not isinstance(part, tuple):
        return [_plain(p) for p in part]
    return part.numpy() if is_tensor(part) else part


def _consumed(part: Part) -> int:
    """How many axes a part stands for."""
    if part is None or isinstance(part, EllipsisType):
        return 0
    return part.ndim if is_tensor(part) and part.dtype.is_bool else 1


def _sliced(view: View, axis: int, part: slice, name: str) -> View:
    """A view with a slice of an axis, for a named op."""
    n = view.shape[axis]
    bounds = [None if s is None else integer(name, "a bound of a slice", s) for s in (part.start, part.stop, part.step)]
    if bounds[2] == 0:
        raise IndexRangeError(f"{name}: a slice's step must not be 0; got {shown(part.step)}. Leave it out?")
    start, stop, step = slice(*bounds).indices(n)
    return view.slice(axis, start, len(range(start, stop, step)), step)


def checked(index: Tensor, n: int, axis: int | None, name: str, *, wraps: bool = True) -> Tensor:
    """Positions in [0, n): those in memory are checked now, computed ones when they are known, if there is any doubt.

    Args:
        axis: None of all elements in a row.
        name: The op that takes them.
        wraps: Whether negative ones count from the end.
    """
    lowest = -n if wraps else 0
    known = index._extremes()
    if known is not None:
        low, high = known
        if low >= 0 and high < n:
            return index if index.dtype is dtypes.int64 else index.cast(dtypes.int64)
        array = index.numpy()
        if low < lowest or high >= n:
            bad = array[(array < lowest) | (array >= n)].reshape(-1)[0]
            raise out_of_range(name, int(bad), n, axis, wraps=wraps)
        whole = array.astype(np.int64)
        return index.__class__(np.where(whole < 0, whole + n, whole), device=index._near)
    value = index._value()
    low, high = bounds(value)
    if low >= 0 and high < n:
        return index if index.dtype is dtypes.int64 else index.cast(dtypes.int64)
    node = ops.cast(value, dtypes.int64)
    bad_node = ops.le(const(dtypes.int64, n), node)
    if value.dtype is dtypes.uint64:  # as int64, the upper half would be negative, and might be in range
        bad_node = ops.le(const(dtypes.uint64, n), value)
    bad_node = ops.or_(ops.lt(node, const(dtypes.int64, lowest)), bad_node)
    wrapped_node = ops.where(ops.lt(node, const(dtypes.int64, 0)), ops.add(node, const(dtypes.int64, n)), node)
    made = index.__class__._from_node(wrapped_node, index._device)
    remember_check(wrapped_node, bad_node, node, n, axis, user_site(), name, wraps=wraps)
    return made.realize() if n == 0 else made  # into an axis of size 0 nothing goes that would check them


def nonzero_of(mask: Tensor) -> list[Tensor]:
    """The positions of the true elements, one int64 tensor an axis (one for a scalar as well). Computes the mask."""
    found = np.nonzero(np.atleast_1d(mask.numpy()))
    return [mask.__class__(f.astype(np.int64), device=mask._device) for f in found]


# -- reading


def getitem(self: Tensor, index: object, name: str = "getitem") -> Tensor:
    """A view for integers, slices, None and '...'; a copy where arrays are involved: for a named op."""
    storage, view = self._place()
    found = _basic(view, index)
    if found is not None:
        return self._share(storage, found)
    parsed = parse(self, index, name)
    if not parsed.arrays:
        return self._share(storage, parsed.view)
    base = self._share(storage, parsed.view)._value()
    order, nodes, _ = _arranged(parsed, name)
    taken = take(permute(base, order), *nodes)
    rank = nodes[0].rank
    made = _placed(taken, rank, parsed.first)
    return self._make(made, self._share(storage, parsed.view), *parsed.arrays.values())


def _arranged(parsed: Parsed, name: str) -> tuple[tuple[int, ...], list[Node], tuple[int, ...]]:
    """(order with the indexed axes first, index nodes of one shape, that shape), for a named op."""
    axes = list(parsed.arrays)
    rest = [a for a in range(parsed.view.rank) if a not in parsed.arrays]
    nodes = [ops.cast(t._value(), dtypes.int64) for t in parsed.arrays.values()]
    try:
        shape = broadcast_shapes(name, *(n.shape for n in nodes))
    except ShapeError:
        shapes = " and ".join(str(n.shape) for n in nodes)
        raise IndexRangeError(
            f"{name}: the shapes of index arrays must broadcast; got {shapes}. Index by one after the other?"
        ) from None
    return tuple(axes + rest), [to_shape_full(n, shape) for n in nodes], shape


def _placed(taken: Node, rank: int, first: int) -> Node:
    """The axes of the index arrays moved from the front to where they belong."""
    if first == 0:
        return taken
    rest = list(range(rank, taken.rank))
    order = rest[:first] + list(range(rank)) + rest[first:]
    return permute(taken, tuple(order))


# -- writing


def converted(self: Tensor, value: Any, dtype: DType, name: str) -> Node:
    """A right-hand side as a node of the target's dtype.

    Raises: ValueRangeError if a Python number does not fit it; DTypeError if it is no number at all.
    """
    if is_tensor(value):
        moved = value if value._device == self._device else value.to(self._near)
        return ops.cast(moved._value(), dtype)
    value = plain(value)
    if is_number(value):
        if not dtype.fits(value):
            raise ValueRangeError(
                f"{name}: the number must fit the dtype; {value} does not fit {dtype.name}. Cast the tensor first?"
            )
        return const(dtype, value)
    if value.__class__ is np.ndarray and 0 < value.nbytes <= SMALL and value.dtype.isnative and self._near == "CPU":
        return ops.cast(on_shelf("CPU", _dtype_of(value.dtype), value.shape, value.tobytes()), dtype)
    listed = isinstance(value, (list, tuple, range))  # their numbers must fit; those of arrays wrap
    if not (listed or isinstance(value, (bytes, bytearray, memoryview)) or hasattr(value, "__array__")):
        raise DTypeError(
            f"{name}: the value must be a tensor, an array, a list or a number; got {shown(value)}. Convert it first?"
        )
    made = self.__class__(value, dtype=dtype if listed else None, device=self._near)
    return ops.cast(made._value(), dtype)


@cache
def _dtype_of(numpy_dtype: np.dtype[Any]) -> DType:
    """The dtype of a host array.

    Raises: DTypeError if there is none.
    """
    return dtypes.from_numpy(numpy_dtype, "Tensor")


def fit_shape(node: Node, shape: tuple[int, ...], name: str = "setitem") -> Node:
    """A right-hand side broadcast to the target's shape (leading axes of size 1 are dropped).

    Raises: ShapeError if it does not broadcast.
    """
    own = node.shape
    if own == shape:
        return node
    while len(own) > len(shape) and own[0] == 1:
        own = own[1:]
    if own != node.shape:
        node = reshape(node, own)
    if len(own) > len(shape) or any(a not in (1, b) for a, b in zip(reversed(own), reversed(shape), strict=False)):
        raise ShapeError(
            f"{name}: the value must broadcast to the target; value {node.shape}, target {shape}. "
            "Reshape the value, or slice the target?"
        )
    if not own:
        return expand(node, shape) if shape else node
    return broadcast(node, shape)


def setitem(self: Tensor, index: object, value: Any, name: str = "setitem") -> None:
    """Write through a view, through arrays of positions, or where a mask holds: for a named op."""
    storage, view = self._place()
    found = _basic(view, index)
    if found is not None:
        write_view(self, storage, found, value, name)
        return
    value = plain(value)
    mask = _mask_of(self, index)
    if mask is not None and (is_number(value) or (is_tensor(value) and value.numel() == 1)):
        _masked(self, mask, value, name)
        return
    parsed = parse(self, index, name)
    if not parsed.arrays:
        write_view(self, storage, parsed.view, value, name)
        return
    order, nodes, shape = _arranged(parsed, name)
    target = parsed.view.permute(order)
    rest = target.shape[len(nodes) :]
    first = parsed.first
    outer = rest[:first] + shape + rest[first:]
    node = fit_shape(converted(self, value, target.dtype, name), outer, name)
    if first:
        rank = len(shape)
        back = [*range(first, first + rank), *range(first), *range(first + rank, len(outer))]
        node = permute(node, tuple(back))
    self._check_write(storage, target, name, value)
    storage.write_at(target, tuple(nodes), node, site=user_site(), name=name)
    relieve(storage)
    self._written_at(storage, target, tuple(nodes), node, value)


def _mask_of(self: Tensor, index: Any) -> Tensor | None:
    """The mask that an index is, if it is one alone."""
    part: Any = index
    if is_listed(index) and not isinstance(index, list) and len(index) == 1:
        part = index[0]
    if (is_listed(part) and not isinstance(part, tuple)) or is_array(part):
        try:
            array: np.ndarray[Any, Any] = np.asarray(part)
        except ValueError:  # ragged lists
            return None
        if array.dtype.kind != "b":
            return None
        part = self.__class__(array, device=self._near)
    if is_tensor(part) and part.dtype.is_bool and part.shape and part.shape == self.shape[: part.ndim]:
        return part if part._device == self._device else part.to(self._near)
    return None


def _masked(self: Tensor, mask: Tensor, value: Any, name: str) -> None:
    """One number where a mask holds, for a named op: the old value elsewhere, all in one lazy write."""
    storage, view = self._place()
    node = converted(self, value, view.dtype, name)
    if node.shape:
        node = reshape(node, ())
    wide = reshape(mask._value(), mask.shape + (1,) * (self.ndim - mask.ndim))
    wide = broadcast(wide, view.shape)
    write_node(self, storage, view, ops.where(wide, node, storage.read(view)), name, wide, self, value, mask)


def write_view(self: Tensor, storage: Storage, view: View, value: Any, name: str, mask: Node | None = None) -> None:
    """Write a value to a view of this tensor's storage, for a named op.

    Args:
        mask: Which elements of the view it changes; all when None.
    """
    if not is_tensor(value):
        write_node(self, storage, view, _fitting(self, view, value, name), name, mask, value)
        return
    if value._storage is storage and value._place()[1] == view and not cuts(self, value):
        return  # what `t[k] += v` does last
    node = _fitting(self, view, value, name)
    write_node(self, storage, view, node, name, mask, value)
    if value._node is node and value._grad_state is None and storage.plain and _is_carried(node, storage):
        value._node = storage.read(view)


def _fitting(self: Tensor, view: View, value: Any, name: str) -> Node:
    """A right-hand side in the dtype and shape of a view of this tensor's storage."""
    node = converted(self, value, view.dtype, name)
    return shelved(node if node.shape == view.shape else fit_shape(node, view.shape, name))


def _is_carried(value: Node, storage: Storage) -> bool:
    """Whether a value just written to a storage is rather read back from there than computed again.

    Either it reads that storage, as what a loop carries from turn to turn, or it is large.
    """
    stack, seen = [value], 0
    while stack:
        node = stack.pop()
        seen += 1
        match node.op:
            case Read(storage=source) if source is storage:
                return True
            case _ if node.place is None:
                stack.extend(node.src)
            case _:
                pass
        if seen > SMALL_NODES:
            return True
    return False


def write_node(
    self: Tensor, storage: Storage, view: View, node: Node, name: str, mask: Node | None, *sources: Any
) -> None:
    """Append a named op's write to this tensor's storage, and its history where gradients need one.

    Args:
        mask: Which elements of the view it changes; all when None.
        sources: What the value is made from.
    """
    self._check_write(storage, view, name, *sources)
    storage.write(view, node, name=name)
    relieve(storage)
    self._written(storage, view, node, mask, *sources)
