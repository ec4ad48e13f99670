"""Order: sort, argsort, topk, unique. NumPy sorts; what it sorts is words that kernels make of the elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import IndexRangeError
from intaglio.engine import realize as engine
from intaglio.ir.view import View
from intaglio.ops import elementwise as ops
from intaglio.ops.memory import BufferRef, const, iota
from intaglio.ops.movement import expand, permute, reshape
from intaglio.storage.flush import flush
from intaglio.storage.storage import Storage
from intaglio.tensor.arguments import flag, integer
from intaglio.tensor.combine import gather
from intaglio.tensor.convert import bytes_of, clone, on_memory
from intaglio.tensor.gradients import is_tracked
from intaglio.tensor.movement import axis_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intaglio.ir.node import Node
    from intaglio.tensor.tensor import Tensor

    Array = np.ndarray[Any, Any]
    Places = np.ndarray[Any, np.dtype[np.int64]]

PLACE: Final = 32  # bits of a word that hold a place
SAMPLE: Final = 1 << 10  # elements at least by which the few largest of many are told from the others
ROWS: Final = 32  # rows at most of which that is done one by one
MANY: Final = 16  # elements for each one sought, from which that is done


class Sorted(Sequence["Tensor"]):
    """A pair: elements in order, and where they were. Each is computed when it is first asked for.

    Values alone are sorted in a third of the time that it takes to know their places as well.
    """

    __slots__ = ("_axis", "_descending", "_order", "_source", "_values")

    def __init__(
        self, source: Tensor, axis: int, order: Tensor | None, values: Tensor | None, *, descending: bool
    ) -> None:
        self._source: Final = source
        self._axis: Final = axis
        self._descending: Final = descending
        self._order = order
        self._values = values

    @property
    def values(self) -> Tensor:
        """The elements."""
        if self._values is None and self._order is None:
            self._values = _in_order(self._source, self._axis, descending=self._descending)
        if self._values is None:
            self._values = gather(self._source, self._axis, self.indices)
        return self._values

    @property
    def indices(self) -> Tensor:
        """Where they were along the axis: int64."""
        if self._order is None:
            self._order = _order(self._source, self._axis, None, descending=self._descending)
        return self._order

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[Tensor]:
        places = self.indices
        return iter((self.values, places))

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Tensor, ...]: ...
    def __getitem__(self, index: int | slice) -> Tensor | tuple[Tensor, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        return self.indices if range(2)[index] else self.values

    def __repr__(self) -> str:
        return f"Sorted(values={self.values!r}, indices={self.indices!r})"


def sort(self: Tensor, dim: int = -1, *, descending: bool = False) -> Sorted:
    """(the elements of an axis in order, where they were): equal ones as they stand, NaN as the largest.

    Args:
        dim: The axis; negative counts from the end.
        descending: Whether the largest comes first.
    Raises: ShapeError if there is no such axis.
    Examples:
        >>> found = Tensor([3, 1, 2]).sort()
        >>> found.values.tolist(), found.indices.tolist()
        ([1, 2, 3], [1, 2, 0])
    """
    a = axis_of("sort", dim, max(self.ndim, 1))
    down = flag("sort", "descending", descending)
    if not self.ndim:
        return Sorted(self, a, None, clone(self), descending=down)
    if is_tracked(self):
        order = _order(self, a, None, descending=down)
        return Sorted(self, a, order, gather(self, dim, order), descending=down)
    return Sorted(self.__class__._from_node(self._value(), self._near), a, None, None, descending=down)


def argsort(self: Tensor, dim: int = -1, *, descending: bool = False) -> Tensor:
    """The positions that sort an axis, equal elements in order, NaN last: int64. Computes the tensor.

    Args:
        dim: The axis; negative counts from the end.
        descending: Whether the largest comes first.
    Raises: ShapeError if there is no such axis.
    Examples:
        >>> Tensor([30, 10, 20]).argsort().tolist()
        [1, 2, 0]
    """
    a = axis_of("argsort", dim, max(self.ndim, 1))
    return _order(self, a, None, descending=flag("argsort", "descending", descending))


def topk(self: Tensor, k: int, dim: int = -1, *, largest: bool = True) -> Sorted:
    """(the k largest or smallest elements of an axis in order, where they were). Computes the tensor.

    Args:
        k: How many.
        dim: The axis; negative counts from the end.
        largest: Whether the largest are wanted.
    Raises: IndexRangeError if the axis has fewer, or k is negative.
    Examples:
        >>> found = Tensor([3, 1, 4, 1, 5]).topk(2)
        >>> found.values.tolist(), found.indices.tolist()
        ([5, 4], [4, 2])
    """
    a = axis_of("topk", dim, self.ndim)
    down = flag("topk", "largest", largest)
    count = integer("topk", "k", k)
    if not 0 <= count <= self.shape[a]:
        raise IndexRangeError(
            f"topk: k must be in [0, {self.shape[a]}] on axis {a} of size {self.shape[a]}; got {count}. "
            f"Is k={min(max(count, 0), self.shape[a])} meant?"
        )
    order = _few(self, a, count, descending=down)
    if order is None:
        order = _order(self, a, count, descending=down)
    return Sorted(self, a, order, gather(self, a, order), descending=down)


def unique(self: Tensor, *, return_inverse: bool = False, return_counts: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The different elements in order; all NaN are one. Computes the tensor.

    Args:
        return_inverse: Whether to give also where each element is among them.
        return_counts: Whether to give also how often each occurs.
    Examples:
        >>> values, counts = Tensor([3, 1, 3]).unique(return_counts=True)
        >>> values.tolist(), counts.tolist()
        ([1, 3], [1, 2])
    """
    back, count = flag("unique", "return_inverse", return_inverse), flag("unique", "return_counts", return_counts)
    flat = self.reshape(self.numel())
    order = _order(flat, 0, None, descending=False)._host() if back else None
    ordered = _memory(_native(flat._value()), self._near)[1]
    if order is not None:
        ordered = ordered[order]
    else:
        ordered.sort()
    first = np.ones(ordered.shape, bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    if ordered.dtype.kind == "f" and ordered.size and np.isnan(ordered[-1]):
        first[np.searchsorted(ordered, ordered.dtype.type("nan")) + 1 :] = False
    found = _again(self.__class__(ordered[first], device=self._near), self)
    others: list[Array] = []
    if order is not None:
        inverse = np.empty(order.shape, np.int64)
        inverse[order] = np.cumsum(first) - 1
        others.append(inverse.reshape(self.shape))
    if count:
        others.append(np.diff(np.flatnonzero(first), append=ordered.size))
    return (found, *(self.__class__(array, device=self._near) for array in others)) if others else found


# -- places in order


def _order(self: Tensor, axis: int, count: int | None, *, descending: bool) -> Tensor:
    """Where the first elements in order are along an axis: so many, or all."""
    node = _axis_last(self._value(), axis)
    extent = node.shape[-1]
    keys = _keys(node)
    if descending:
        keys = ops.not_(keys)
    if node.dtype.itemsize <= 4 and extent < 1 << PLACE:
        words_node = ops.or_(ops.shl(keys, const(dtypes.int64, PLACE)), _places(node.shape))
        ref, words = _memory(words_node, self._near)
        first = _first_words(words, count)
        if first is not words:
            ref = engine.from_bytes(first.tobytes(), ref.device)
    else:
        ref, plain = _memory(keys, self._near)
        first = _stable_order(plain)[..., :count]
        ref = engine.from_bytes(first.tobytes(), ref.device)
    return _adopted(self, ref, View.contiguous(dtypes.int64, first.shape), axis, extent)


def _first_words(words: Places, count: int | None) -> Places:
    """The places in the first words of each row, so many or all, in order. Overwrites the words.

    Words without more to them are sorted some ten times as fast as numbers together with their places.
    """
    first = words
    if count is not None and count < words.shape[-1]:
        if count:
            words.partition(count - 1, axis=-1)
        first = np.ascontiguousarray(words[..., :count])
    first.sort(axis=-1)
    first &= (1 << PLACE) - 1
    return first


def _stable_order(keys: Places) -> Places:
    """The order of each row of keys of 64 bits, equal ones as they stand.

    NumPy's fastest sort leaves equal keys in any order: their places are then sorted, as words with a rank.
    """
    if not keys.size or keys.shape[-1] >= 1 << (PLACE - 1):
        return np.argsort(keys, axis=-1, kind="stable")
    order = np.argsort(keys, axis=-1)
    ordered = np.take_along_axis(keys, order, -1)
    rises = ordered[..., 1:] != ordered[..., :-1]
    if not rises.all():
        order[..., 1:] |= np.cumsum(rises, axis=-1) << PLACE
        order.sort(axis=-1)
        order &= (1 << PLACE) - 1
    return order


def _keys(node: Node) -> Node:
    """int64 in the order of numbers: -0.0 as 0.0, NaN last."""
    if node.dtype is dtypes.uint64:
        return ops.xor(ops.bitcast(node, dtypes.int64), const(dtypes.int64, dtypes.int64.min))
    if not node.dtype.is_float:
        lowest = const(dtypes.int64, 1 << 31 if node.dtype is dtypes.uint32 else 0)
        return ops.sub(ops.cast(node, dtypes.int64), lowest)
    real, whole = (dtypes.float64, dtypes.int64) if node.dtype.itemsize == 8 else (dtypes.float32, dtypes.int32)
    wide = ops.cast(node, real)
    wide = ops.where(ops.eq(wide, wide), ops.add(wide, const(real, 0)), const(real, math.nan))
    bits = ops.bitcast(wide, whole)
    sign = ops.shr(bits, const(whole, whole.bits - 1))
    return ops.cast(ops.xor(bits, ops.and_(sign, const(whole, whole.max))), dtypes.int64)


def _places(shape: tuple[int, ...]) -> Node:
    """Each element's place along the last axis."""
    return expand(reshape(iota(shape[-1]), (1,) * (len(shape) - 1) + shape[-1:]), shape)


def _few(self: Tensor, axis: int, count: int, *, descending: bool) -> Tensor | None:
    """Where the first elements in order are, if they are few of some long rows; else None."""
    n = self.shape[axis]
    if not count or self.numel() > ROWS * n or n < MANY * max(count, SAMPLE) or not self.dtype.struct_code:
        return None
    with engine.lock:
        array = np.moveaxis(on_memory(*bytes_of(self)), axis, -1)
        found: list[Places] = []
        for row in array.reshape(-1, n):
            first = _first_few(row, count, descending=descending)
            if first is None:
                return None
            found.append(first)
    order = np.array(found, np.int64).reshape(*array.shape[:-1], count)
    ref = engine.from_bytes(order.tobytes(), self._near)
    return _adopted(self, ref, View.contiguous(dtypes.int64, order.shape), axis, n)


def _first_few(row: Array, count: int, *, descending: bool) -> Places | None:
    """Where the first elements in order are of a row, if a sample tells about which they are.

    What does not come after an element of the sample is soon found, and there is not much of it.
    """
    sample = np.sort(row[:: len(row) // min(max(SAMPLE, len(row) // 256), 4 * SAMPLE)])
    share = count * len(sample) / len(row)
    rank = math.ceil(share + 4 * math.sqrt(share) + 4)
    if rank > len(sample) // 4:
        return None
    bound = sample[-rank] if descending else sample[rank - 1]
    if bound != bound:
        return None
    near = np.flatnonzero(~(row < bound) if descending else row <= bound)  # NaN is the largest
    if not count <= len(near) <= len(row) // 4:
        return None
    found = row[near]
    if descending:
        return near[len(near) - 1 - np.argsort(found[::-1], kind="stable")[::-1][:count]]
    return near[np.argsort(found, kind="stable")[:count]]


# -- values in order


def _in_order(self: Tensor, axis: int, *, descending: bool) -> Tensor | None:
    """The elements of an axis in order; None where it must be known which of equal ones is which."""
    ref, array = _memory(_native(_axis_last(self._value(), axis)), self._near)
    array.sort(axis=-1)
    if array.dtype.kind == "f" and array.size:
        if np.isnan(array[..., -1]).any():  # one NaN differs from another, and NumPy's sort forgets which is which
            return None
        zeros = array[array == 0] if array.shape[-1] != array.size else _between(array.reshape(-1))
        if np.signbit(zeros).any() and not np.signbit(zeros).all():
            return None
    made = _adopted(self, ref, View.contiguous(dtypes.from_numpy(array.dtype), array.shape), axis, None)
    if descending:
        made = made.flip(axis)
    return _again(made, self)


def _between(ordered: Array) -> Array:
    """The zeros among numbers in order."""
    zero = ordered.dtype.type(0)  # of another dtype, all of them would be converted
    return ordered[np.searchsorted(ordered, zero, "left") : np.searchsorted(ordered, zero, "right")]


# -- memory


def _native(node: Node) -> Node:
    """Elements of a dtype that NumPy sorts fast, in the same order, which are themselves again once they are cast."""
    narrow = node.dtype.is_float and node.dtype.itemsize < 4
    return ops.cast(node, dtypes.float32) if narrow else node


def _again(made: Tensor, source: Tensor) -> Tensor:
    """Elements in the dtype that they had."""
    return made if made.dtype is source.dtype else made.cast(source.dtype)


def _axis_last(node: Node, axis: int) -> Node:
    """A value with an axis (that of a scalar, which has none) moved to the end."""
    if not node.shape:
        return reshape(node, (1,))
    rest = [a for a in range(node.rank) if a != axis]
    return permute(node, (*rest, axis)) if axis != node.rank - 1 else node


def _memory(node: Node, device: str) -> tuple[BufferRef, Array]:
    """A value computed into bytes of a device that nobody else sees, and an array on them."""
    with engine.lock:
        (ref,) = flush((), (node,))
        if node.place is not None or ref.device != device:
            ref = engine.from_bytes(engine.buffer_of(ref).view(), device)
        return ref, on_memory(ref, View.contiguous(node.dtype, node.shape))


def _adopted(self: Tensor, ref: BufferRef, view: View, axis: int, extent: int | None) -> Tensor:
    """A tensor on bytes of its own, its last axis moved to where it was in the tensor that it was made of.

    Its numbers are known to be in [0, extent), if that is given.
    """
    storage = Storage(ref.nbytes, ref.device, ref=ref)
    if not self.ndim:
        view = View.contiguous(view.dtype, ())
    elif axis != self.ndim - 1:
        rest = list(range(self.ndim - 1))
        view = view.permute((*rest[:axis], self.ndim - 1, *rest[axis:]))
    if extent is not None:
        storage.extremes = storage.sequence, view, 0, extent - 1
    return self.__class__._from_view(storage, view)
