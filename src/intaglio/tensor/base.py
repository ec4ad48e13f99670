"""The handle: what a tensor holds, and the fast paths of elements read, computed and written in Python loops."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, TypeVar

from intaglio.core.config import config
from intaglio.core.dtypes import DType, dtypes, promote, promote_weak
from intaglio.core.errors import IndexRangeError, ValueRangeError
from intaglio.ir.node import living
from intaglio.ir.view import View
from intaglio.ops.elementwise import Cast
from intaglio.ops.memory import Buffer, buffer
from intaglio.storage.flush import (
    Pending,
    ScalarHandle,
    assign_of,
    flush,
    partition,
    realized,
    scalar_node,
    scalars,
    waits_for,
)
from intaglio.storage.history import track
from intaglio.storage.skeleton import Skeleton
from intaglio.storage.storage import Storage

if TYPE_CHECKING:
    from intaglio.ir.node import Node, Op
    from intaglio.ops.memory import BufferRef
    from intaglio.storage.journal import Pen
    from intaglio.storage.skeleton import Hole

T = TypeVar("T", bound="TensorBase")
NUMBERS: Final = {int: Skeleton(dtypes.int64), float: Skeleton(dtypes.float32)}  # weak: cast at the op that takes them
LONG: Final = 4096  # pending entries from which each write looks whether the bound is reached
CROOKED: Final = (-1,) * 64  # the shape noted for views off their item size's grid: no index of single elements fits it
SWEEP: Final = 4096  # scalar handles remembered before dead ones are dropped
LARGEST_HOLES: Final = 64


class TensorBase(ScalarHandle):
    """A handle in one of four states.

    Computed: `_node` alone. Stored: `_storage` and `_view`. An element of a storage: `_storage`, `_skeleton` and
    `_offset` (its view is made when somebody asks). A scalar expression: `_skeleton` and `_holes`.
    """

    # Class-level values stand for what a handle does not have: loops make many handles, and each assignment costs.
    _node: Node | None = None
    _storage: Storage | None = None
    _view: View | None = None
    _pen: Pen | None = None
    _skeleton: Skeleton | None = None
    _holes: tuple[Hole, ...] | None = None
    _offset: int = 0
    _element: tuple[Skeleton, int, tuple[int, ...], tuple[int, ...]] | None = None
    _device: str = "CPU"
    _grad_state: object = None

    # -- making handles

    @classmethod
    def _from_node(cls: type[T], node: Node, device: str) -> T:
        """A computed tensor."""
        made = cls.__new__(cls)
        made._node = node
        made._device = device
        return made

    @classmethod
    def _from_view(cls: type[T], storage: Storage, view: View) -> T:
        """A view of a storage."""
        made = cls.__new__(cls)
        made._storage = storage
        made._view = view
        made._device = storage.device
        return made

    # -- what it is

    @property
    def dtype(self) -> DType:
        """The element type."""
        if self._node is not None:
            return self._node.dtype
        if self._view is not None:
            return self._view.dtype
        assert self._skeleton is not None
        return self._skeleton.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent of each axis."""
        if self._node is not None:
            return self._node.shape
        return self._view.shape if self._view is not None else ()

    @property
    def device(self) -> str:
        """The name of the device that holds it."""
        return self._device

    def to_node(self) -> Node:
        """A scalar expression as a node; the handle is a computed tensor from then on."""
        if self._node is None and self._holes is not None:
            assert self._skeleton is not None
            self._node = scalar_node(self._skeleton.pattern(), self._holes, self._skeleton.dtype)
            self._skeleton = self._holes = None
        return self._node if self._node is not None else self._value()

    def _value(self) -> Node:
        """The value as of now, as a node."""
        if self._node is not None:
            return self._node
        if self._storage is not None:
            storage, view = self._place()
            return storage.read(view) if not storage.pinned else _taken(storage, view)
        return self.to_node()

    def _place(self) -> tuple[Storage, View]:
        """The storage and view; a computed tensor gets a storage whose version 0 is its node."""
        storage = self._storage
        if storage is not None:
            view = self._view
            if view is None:
                assert self._skeleton is not None
                view = self._view = View(self._skeleton.dtype, (), (), self._offset)
            return storage, view
        node = self._node if self._node is not None else self.to_node()
        self._storage = storage = Storage(node.nbytes, self._device, base=node)
        self._view = View.contiguous(node.dtype, node.shape)
        self._node = None
        return storage, self._view

    def realize(self: T, *others: TensorBase) -> T:
        """Compute this tensor (and others) now, by one schedule; gives the tensor itself."""
        flush_tensors((self, *others))
        return self

    # -- elements in loops

    def _elements(self) -> tuple[Skeleton, int, tuple[int, ...], tuple[int, ...]]:
        """(read skeleton, byte offset, strides, shape) for reads and writes of single elements."""
        found = self._element
        if found is None:
            storage, view = self._place()
            crooked = any(place % view.dtype.itemsize for place in (view.offset, *view.strides))
            shape = CROOKED if crooked or storage.pinned else view.shape
            found = self._element = (Skeleton(view.dtype, storage), view.offset, view.strides, shape)
        return found

    def __getitem__(self: T, index: Any) -> T:
        if index.__class__ is int:
            element = self._element or self._elements()
            skeleton, offset, strides, shape = element
            storage = self._storage
            if len(shape) == 1 and storage is not None and storage.history is None:
                n = shape[0]
                i: int = index
                if i < 0:
                    i += n
                if 0 <= i < n:
                    return self._at(skeleton, offset + i * strides[0])
                raise IndexRangeError(f"index: {index} is out of range for axis 0 of size {n}.")
        elif index.__class__ is tuple and len(index) == 2:
            i, j = index
            if i.__class__ is int and j.__class__ is int:
                element = self._element or self._elements()
                skeleton, offset, strides, shape = element
                storage = self._storage
                if len(shape) == 2 and storage is not None and storage.history is None:
                    if i < 0:
                        i += shape[0]
                    if j < 0:
                        j += shape[1]
                    if 0 <= i < shape[0] and 0 <= j < shape[1]:
                        return self._at(skeleton, offset + i * strides[0] + j * strides[1])
        return self._get(index)

    def _at(self: T, skeleton: Skeleton, offset: int) -> T:
        """The handle of one element."""
        made = self.__class__.__new__(self.__class__)
        made._storage = skeleton.storage
        made._skeleton = skeleton
        made._offset = offset
        made._device = self._device
        return made

    def __setitem__(self, index: Any, value: Any) -> None:
        pen = self._pen
        if pen is not None and type(index) is int:
            # A number into an open segment, in as few bytecodes as will do; `type(x)` is several times as fast as
            # `x.__class__`, and a pen that is out of use has no positions.
            i = index if index >= 0 else index + pen.length
            kind: type[Any] = type(value)
            if 0 <= i < pen.length and ((kind is int and pen.lowest <= value <= pen.highest) or kind is pen.real):
                pen.numbers[i] = value
                return
        storage = self._storage
        if storage is not None and index.__class__ is int:
            kind = value.__class__
            element = self._element
            if element is not None and kind is self.__class__ and storage.history is None and self._grad_state is None:
                holes = value._holes
                own, offset, strides, shape = element
                if holes is not None and len(shape) == 1 and not storage.read_only and strides[0]:
                    i = index
                    if i < 0:
                        i += shape[0]
                    if 0 <= i < shape[0]:
                        storage.write_element(own.dtype, offset + i * strides[0], value._skeleton, holes)
                        if len(storage.log) > LONG:
                            relieve(storage)
                        return
        self._write_slow(index, value)

    def _write_slow(self, index: Any, value: Any) -> None:
        """Everything but a number into an open segment."""
        kind = value.__class__
        number = kind is int or kind is float
        scalar = value if isinstance(value, TensorBase) and value._skeleton is not None else None
        if (number or scalar is not None) and self._grad_state is None:
            element = self._element or self._elements()
            place = _position(index, element[3])
            if place is not None and self._storage is not None and self._storage.history is None:
                if scalar is not None:
                    self._write_scalar(element, place, scalar)
                else:
                    self._write_number(place, value)  # pyright: ignore[reportArgumentType] -- a number, by its class
                return
        self._set(index, value)

    def _write_number(self, place: tuple[int, ...], value: float) -> None:
        """A number into one element: into the open segment of this view, or a new one."""
        storage, view = self._place()
        if not view.dtype.fits(value):
            raise ValueRangeError(
                f"setitem: the number must fit the dtype; {value} does not fit {view.dtype.name}. "
                "Cast the tensor first?"
            )
        pen = storage.open
        if pen is None or pen.view is not view:
            pen = storage.segment(view)
        self._pen = pen
        position = 0
        for i, n in zip(place, view.shape, strict=True):
            position = position * n + i
        if value.__class__ is float and not (view.dtype.is_float or view.dtype.is_bool):
            value = int(value)
        pen.numbers[position] = value

    def _write_scalar(
        self, element: tuple[Skeleton, int, tuple[int, ...], tuple[int, ...]], place: tuple[int, ...], value: TensorBase
    ) -> None:
        """A scalar expression into one element."""
        own, offset, strides, _ = element
        for i, stride in zip(place, strides, strict=True):
            offset += i * stride
        skeleton = value._skeleton
        storage = self._storage
        assert skeleton is not None
        assert storage is not None
        holes = value._holes
        if holes is None:
            source = value._storage
            assert source is not None
            if source is storage and value._offset == offset and skeleton.dtype is own.dtype:
                return  # what `t[k] += v` does last
            source.close()
            holes = (value._offset, source.sequence)
        if storage.read_only or not storage.log:
            storage.check_writable(self._place()[1])
        storage.write_element(own.dtype, offset, skeleton, holes)
        relieve(storage)

    def _get(self: T, index: object) -> T:
        """Indexing of every other kind."""
        raise NotImplementedError

    def _set(self, index: object, value: object) -> None:
        """Writing of every other kind."""
        raise NotImplementedError


class _Bound:
    """When pending work is to be done: how many nodes lived after the last flush, and calls until the next look."""

    def __init__(self) -> None:
        self.nodes: int = 0
        self.calls: int = 0


_bound: Final = _Bound()
EVERY: Final = 512  # computed tensors between two looks at the bound


def _taken(storage: Storage, view: View) -> Node:
    """The value of a view of memory that is shared with the outside, copied before the statement returns."""
    storage.touch()
    node = storage.read(view)
    (ref,) = flush((), (node,))
    realized[node] = ref, View.contiguous(view.dtype, view.shape)
    return node


def relieve(storage: Storage) -> None:
    """Flush a storage with more pending entries than the bound, or in a program with more pending nodes.

    Writes to memory that is shared with the outside are made before the statement returns.
    """
    if storage.pinned or len(storage.log) > config.journal_entries:
        flush([storage])
    elif is_over_bound():
        flush([storage])
        _bound.nodes = living()


def is_over_bound() -> bool:
    """Whether more nodes are pending than the bound allows (looked at every so often)."""
    _bound.calls += 1
    if _bound.calls < EVERY:
        return False
    _bound.calls = 0
    return living() - _bound.nodes > config.journal_nodes


def relieve_tensor(tensor: TensorBase) -> None:
    """Compute a tensor where more nodes are pending than the bound allows (what nobody prints must not grow)."""
    if is_over_bound():
        flush_tensors((tensor,))
        _bound.nodes = living()


def _position(index: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The position of one element that integers name, or None where they name more or are out of range."""
    parts: tuple[Any, ...] = index if index.__class__ is tuple else (index,)
    if len(parts) != len(shape):
        return None
    found: list[int] = []
    for part, n in zip(parts, shape, strict=True):
        if part.__class__ is not int:
            return None
        i = part + n if part < 0 else part
        if not 0 <= i < n:
            return None
        found.append(i)
    return tuple(found)


def holes_of(tensor: TensorBase) -> tuple[Hole, ...]:
    """The holes of a scalar expression, or of an element as of now."""
    if tensor._holes is not None:
        return tensor._holes
    storage = tensor._storage
    assert storage is not None
    storage.close()
    return tensor._offset, storage.sequence


def scalar_binary(op: Op, x: T, other: object, *, swapped: bool = False, floats: bool = False) -> T | None:
    """An op of a scalar expression with a number or another one, kept as skeleton and holes; None: take the long way.

    Args:
        floats: Whether integers are computed as the default float (true division).
    """
    left = x._skeleton
    assert left is not None
    kind = other.__class__
    if kind is int or kind is float:
        weak = NUMBERS[kind]
        key: tuple[object, ...] = (op, kind, swapped)
        found = left.children.get(key)
        if found is None:
            dtype = promote_weak(left.dtype, kind)
            if floats and not dtype.is_float:
                dtype = dtypes.default_float
            if dtype.is_bool or dtype in (dtypes.float8_e4m3, dtypes.float8_e5m2):
                return None
            source = _cast(left, dtype)
            typed = weak if weak.dtype is dtype else Skeleton(dtype)
            found = source.extend((op, kind, swapped), op, dtype, typed, swapped)
            left.children[key] = found
        if not found.dtype.is_float and not found.dtype.fits(other):  # pyright: ignore[reportArgumentType]
            return None
        own = holes_of(x)
        holes: tuple[Hole, ...] = (other, *own) if swapped else (*own, other)  # pyright: ignore[reportAssignmentType]
    elif isinstance(other, TensorBase) and other._skeleton is not None and other._grad_state is None:
        right = other._skeleton
        if other._device != x._device:
            return None
        key = (op, right)
        found = left.children.get(key)
        if found is None:
            dtype = promote(left.dtype, right.dtype)
            if floats and not dtype.is_float:
                dtype = dtypes.default_float
            if dtype.is_bool or dtype in (dtypes.float8_e4m3, dtypes.float8_e5m2):
                return None
            source = _cast(left, dtype)
            found = source.extend(key, op, dtype, _cast(right, dtype), False)
            left.children[key] = found
        holes = holes_of(x) + holes_of(other)
        if len(holes) > LARGEST_HOLES:
            return None
    else:
        return None
    return scalar(x, found, holes)


def scalar(like: T, skeleton: Skeleton, holes: tuple[Hole, ...]) -> T:
    """The handle of a scalar expression, registered for flushes."""
    made = like.__class__.__new__(like.__class__)
    made._skeleton = skeleton
    made._holes = holes
    made._device = like._device
    scalars.append(weakref.ref(made))
    if len(scalars) > SWEEP:
        alive = [r for r in scalars if r() is not None]
        scalars[:] = alive
    return made


def _cast(skeleton: Skeleton, dtype: DType) -> Skeleton:
    """A skeleton cast to a dtype."""
    if skeleton.dtype is dtype:
        return skeleton
    key = (Cast, dtype)
    return skeleton.children.get(key) or skeleton.extend(key, Cast(dtype), dtype, None, False)


def flush_tensors(tensors: tuple[TensorBase, ...]) -> None:
    """Compute tensors by one schedule: stored ones in their storages, computed ones into buffers of their own."""
    storages: list[Storage] = []
    computed: list[TensorBase] = []
    nodes: list[Node] = []
    for tensor in tensors:
        if tensor._storage is not None:
            storages.append(tensor._storage)
            continue
        node = tensor._node if tensor._node is not None else tensor.to_node()
        place = realized.get(node)
        if isinstance(node.op, Buffer) or (place is not None and not waits_for(place[0])):
            continue
        computed.append(tensor)
        nodes.append(node)
    for tensor, node, ref in zip(computed, nodes, flush(storages, nodes), strict=True):
        _settle(tensor, node, ref)


def partition_tensors(tensors: tuple[TensorBase, ...]) -> Pending | None:
    """Partition what tensors need into kernels that run later; None where nothing is needed."""
    storages: list[Storage] = []
    computed: list[tuple[TensorBase, Node]] = []
    for tensor in tensors:
        if tensor._storage is not None:
            if tensor._storage.log or tensor._storage.ref is None:
                storages.append(tensor._storage)
            continue
        node = tensor._node if tensor._node is not None else tensor.to_node()
        if node not in realized:
            computed.append((tensor, node))
    if not storages and not computed:
        return None
    held, refs = partition(storages, [node for _, node in computed])
    for (tensor, node), ref in zip(computed, refs, strict=True):
        _settle(tensor, node, ref)
    return held


def _settle(tensor: TensorBase, node: Node, ref: BufferRef) -> None:
    """A computed tensor whose value now lies (or will lie) in a buffer."""
    view = View.contiguous(node.dtype, node.shape)
    realized[node] = ref, view
    storage = Storage(ref.nbytes, tensor._device, ref=ref)
    storage.origin = weakref.ref(node)
    if tensor._grad_state is True:
        track(storage, node.dtype, base=node)
    tensor._storage, tensor._view, tensor._node = storage, view, None


def uop_of(tensor: TensorBase) -> Node:
    """The node that a tensor is: its buffer where it is in memory, else its value."""
    storage = tensor._storage
    if (
        storage is not None
        and storage.ref is not None
        and not storage.log
        and tensor._place()[1].covers_whole(storage.nbytes)
    ):
        return assign_of(storage.ref) or buffer(storage.ref)
    return tensor._value()
