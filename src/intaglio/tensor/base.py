"""The handle: what a tensor holds, and the fast paths of elements read, computed and written in Python loops."""

from __future__ import annotations

import sys
import weakref
from functools import cache
from math import gcd
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numpy as np

from intaglio.core.config import config, settings_now
from intaglio.core.dtypes import DType, dtypes, promote, promote_weak
from intaglio.core.errors import DeviceError, ValueRangeError
from intaglio.core.trace import GlobalCounters
from intaglio.engine import realize as engine
from intaglio.ir.node import living, make
from intaglio.ir.view import View, view_from
from intaglio.ops.elementwise import And, Binary, Cast, Comparison, Or, Shl, Shr, Xor, detach
from intaglio.ops.memory import Buffer, Const, Window, buffer, window
from intaglio.storage.counts import REFERENCES_OF_AN_ARGUMENT
from intaglio.storage.flush import flush, partition
from intaglio.storage.held import ENTRY, NUMBER, held, payloads
from intaglio.storage.history import track
from intaglio.storage.journal import INTEGERS, element_at
from intaglio.storage.postponed import Pending, assign_of, waits_for
from intaglio.storage.scalars import ScalarHandle, scalar_node, scalars
from intaglio.storage.scratch import spilled
from intaglio.storage.skeleton import Skeleton, number_skeleton
from intaglio.storage.slice import is_constant
from intaglio.storage.storage import Storage, pending

if TYPE_CHECKING:
    from intaglio.ir.node import Node, Op
    from intaglio.ops.memory import BufferRef
    from intaglio.storage.journal import Pen
    from intaglio.storage.skeleton import Hole
    from intaglio.storage.storage import Glance

T = TypeVar("T", bound="TensorBase")
Element: TypeAlias = "tuple[Skeleton, int, tuple[int, ...], tuple[int, ...]]"
"""How single elements are found: the skeleton that reads one, the byte offset of the first, strides, shape."""
Home: TypeAlias = "tuple[Skeleton, tuple[Hole, ...]]"
"""An element that holds the value of a scalar expression: the skeleton that reads it, its offset and stamp."""
new: Final = object.__new__
remember: Final = scalars.append
DETACHED: Final = object()  # the state of a handle that shares a tracked storage without gradients
NUMBERS: Final[dict[type[object], Skeleton]] = {
    int: Skeleton(dtypes.int64),
    float: Skeleton(dtypes.float32),
}  # weak: cast at the op that takes them
FIGURES: Final = frozenset(np.dtype(code).type for code in "?bBhHiIlLqQefd")  # numbers that arrays are made of
OF_BITS: Final = And, Or, Xor, Shl, Shr  # ops that floats have none of
VIEWING: Final = frozenset((slice, EllipsisType, type(None)))  # parts of an index that names more than one element
CROOKED: Final = (-1,) * 64  # the shape noted for views off their item size's grid: no index of single elements fits it
EVERY: Final = 512  # computed tensors, or elements written in a row, between two looks at the bound
SWEEP: Final = 4096  # scalar handles remembered before dead ones are dropped
LARGEST_HOLES: Final = 48  # of an expression of scalars; the operands of a larger one are put into memory first
SMALL_HOLES: Final = 8  # of an expression that is rather computed again than read back from where it was written


class TensorBase(ScalarHandle):
    """A handle in one of four states.

    Computed: `_node` alone. Stored: `_storage` and `_view`. An element of a storage: `_storage`, `_skeleton` and
    `_offset` (its view is made when somebody asks). A scalar expression: `_skeleton` and `_holes`.
    """

    # Class-level values stand for what a handle does not have. Handles of scalars, which loops make by the thousand,
    # have their own of what loops ask for: a class's attribute takes three times as long to find as an object's.
    _node: Node | None = None
    _storage: Storage | None = None
    _view: View | None = None
    _pen: Pen | None = None
    _skeleton: Skeleton | None = None
    _holes: tuple[Hole, ...] | None = None
    _offset: int = 0
    _element: Element | None = None
    _row: tuple[Skeleton, Storage, int, int, int] | None = None
    _whole: TensorBase | None = None  # what it is a row of, as long as nobody asks for single elements of it
    _glance: Glance | None = None  # at the value that it has in memory, kept from the second time on that it is asked
    _asked: bool = False  # whether it was: most views are used once
    _apart: bool = False  # whether its elements are known to have bytes of their own
    _device: str = "CPU"
    _grad_state: object = None
    _home: Home | None = None  # the element that it was written to, where that is rather read than computed again

    # -- making handles

    @classmethod
    def _from_node(cls: type[T], node: Node, device: str) -> T:
        """A computed tensor."""
        made = new(cls)
        made._node = node
        made._device = device
        return made

    @classmethod
    def _from_view(cls: type[T], storage: Storage, view: View) -> T:
        """A view of a storage."""
        made = new(cls)
        made._storage = storage
        made._view = view
        made._device = storage.device
        return made

    def _reset(self, device: str) -> None:
        """Hold nothing yet, on a device."""
        self._node = self._storage = self._view = self._skeleton = self._holes = None
        self._element = self._row = self._pen = self._glance = self._grad_state = self._whole = None
        self._offset = 0
        self._apart = False
        self._device = device

    # -- what it is

    @property
    def dtype(self) -> DType:
        """The element type.

        Examples:
            >>> Tensor([1, 2]).dtype
            dtypes.int64
        """
        kind = self._node or self._view or self._skeleton  # each is true where it is there
        assert kind is not None
        return kind.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent of each axis.

        Examples:
            >>> Tensor([[1, 2, 3]]).shape
            (1, 3)
        """
        if self._node is not None:
            return self._node.shape
        return self._view.shape if self._view is not None else ()

    @property
    def device(self) -> str:
        """The name of the device that holds it.

        Examples:
            >>> Tensor([1, 2]).device
            'CPU'
        """
        return self._device

    @property
    def _near(self) -> str:
        """The device of values that are made to be used with it: its own, or the CPU where it is a file."""
        return "CPU" if self._device == "DISK" else self._device

    def to_node(self) -> Node:
        """A scalar expression as a node; the handle is a computed tensor from then on.

        Examples:
            >>> (Tensor([1.0, 2.0])[0] * 2).to_node().op.name
            'mul'
        """
        if self._node is None and self._holes is not None:
            assert self._skeleton is not None
            self._node = scalar_node(self._skeleton.pattern(), self._holes, self._skeleton.dtype)
            self._skeleton = self._holes = None
        return self._node if self._node is not None else self._value()

    def _as_scalar(self) -> Skeleton | None:
        """What expressions of scalars are made of, if this is a scalar in memory or a number by itself."""
        view, node = self._view, self._node
        if (node is not None and node.shape) or (view is not None and view.shape):
            return None
        if self._skeleton is not None or self._grad_state is not None:
            return self._skeleton
        if node is not None and isinstance(node.op, Const):
            self._holes = (node.op.value,)
            self._skeleton = number_skeleton(node.dtype)
            self._node = None
        elif view is not None and not view.offset % view.dtype.itemsize:
            storage, _ = self._place()
            if storage.plain:
                self._offset = view.offset
                self._skeleton = Skeleton(view.dtype, storage)
        return self._skeleton

    def _value(self) -> Node:
        """The value as of now, as a node."""
        if (node := self._node) is not None:
            return node if node.place is None else self._stored(node)
        if (glance := self._glance) is not None and (node := glance.node) is not None:
            return node
        return self._look()

    def _stored(self, node: Node) -> Node:
        """A computed value that lies in memory by now: as its bytes, which do not hold what it was computed from."""
        if node.place is not None and node.src and not isinstance(node.op, Window) and self._grad_state is None:
            ref, view = node.place
            self._node = node = window(view, buffer(ref))
            node.place = ref, view
        return node

    def _look(self) -> Node:
        """The value as of now, which the handle does not have."""
        if self._storage is None:
            return self.to_node()
        storage, view = self._place()
        if storage.pinned or self._grad_state is DETACHED:  # whether that is tracked is asked each time
            node = _taken(storage, view) if storage.pinned else storage.read(view)
            return detach(node) if self._grad_state is DETACHED and storage.history is not None else node
        if not self._asked:
            self._asked = True
            return storage.read(view)
        glance = self._glance = storage.glance(view)
        return glance.node or storage.read(view)

    def _place(self) -> tuple[Storage, View]:
        """The storage and view; a computed tensor gets a storage whose version 0 is its node."""
        storage = self._storage
        if storage is not None:
            view = self._view
            if view is None:
                assert self._skeleton is not None
                view = self._view = view_from((self._skeleton.dtype, (), (), self._offset))
            return storage, view
        with engine.lock:  # two threads must not give it two storages
            if self._storage is not None:
                return self._place()
            node = self._node if self._node is not None else self.to_node()
            view = self._view = View.contiguous(node.dtype, node.shape)
            storage = self._storage = Storage(node.nbytes, self._device, base=node)
            self._node = self._home = None
        return storage, view

    # -- elements in loops

    def _elements(self) -> Element:
        """What reads and writes of single elements ask for."""
        found = self._element
        if found is None:
            storage, view = self._place()
            crooked = gcd(view.offset, *view.strides) % view.dtype.itemsize
            shape = CROOKED if crooked else view.shape
            whole, self._whole = self._whole, None
            if whole is not None and whole._storage is storage:
                skeleton = whole._elements()[0]
            else:
                skeleton = Skeleton(view.dtype, storage)
            found = skeleton, view.offset, view.strides, shape
            self._note_element(found, storage)
        return found

    def _note_element(self, element: Element, storage: Storage) -> None:
        """Keep what reads and writes of single elements ask for.

        Of a tensor of one axis `_row` has the same for the fast paths: skeleton, storage, offset, stride, extent.
        """
        skeleton, offset, strides, shape = self._element = element
        if len(shape) == 1:
            self._row = (skeleton, storage, offset, strides[0], shape[0])
        self._pen, self._grad_state = self._pen, self._grad_state  # the handle's own: see above

    def __getitem__(self: T, index: Any) -> T:
        if type(index) is int:
            row = self._row
            if row is None:
                first = self._first_row(index)
                if first is not None:
                    return first
                row = self._row
            if row is not None:
                skeleton, storage, offset, stride, n = row
                i = index if index >= 0 else index + n
                if 0 <= i < n:
                    if storage.plain:
                        return one_element(self, skeleton, storage, offset + i * stride)
                    if self._is_followed(storage):
                        return tracked_element(self, skeleton, storage, offset + i * stride)
        elif index.__class__ is tuple and len(index) == 2:
            i, j = index
            if type(i) is int and type(j) is int:
                skeleton, offset, strides, shape = self._element or self._elements()
                storage = self._storage
                if len(shape) == 2 and storage is not None:
                    i = i if i >= 0 else i + shape[0]
                    j = j if j >= 0 else j + shape[1]
                    if 0 <= i < shape[0] and 0 <= j < shape[1]:
                        place = offset + i * strides[0] + j * strides[1]
                        if storage.plain:
                            return one_element(self, skeleton, storage, place)
                        if self._is_followed(storage):
                            return tracked_element(self, skeleton, storage, place)
        return self._get_slow(index)

    def _get_slow(self: T, index: Any) -> T:
        """All but the single elements of one or two axes; those of more axes, and rows, are found at once as well."""
        kind = index.__class__
        if kind in INTEGERS or (kind is tuple and VIEWING.isdisjoint(map(type, index))):
            element = self._element or self._elements()
            storage = self._storage
            if storage is not None and storage.plain:
                skeleton, start, strides, shape = element
                offset = element_at(index, shape, strides, start)
                if offset is not None:
                    return one_element(self, skeleton, storage, offset)
                if kind is not tuple and self._grad_state is None:
                    row = self._row_at(element, storage, int(index))
                    if row is not None:
                        return row
        return self._get(index)

    def _first_row(self: T, i: int) -> T | None:
        """The view at one position of the first of several axes, of a tensor that nobody has asked for elements.

        None where there is none, or they are asked for.
        """
        if self._element is not None:
            return None
        storage, view = self._place()
        if len(view.shape) < 2 or not storage.plain or self._grad_state is not None:
            self._elements()
            return None
        n = view.shape[0]
        if not -n <= i < n:
            return None
        made = self._from_view(storage, view.at(i if i >= 0 else i + n))
        made._whole = self
        return made

    def _row_at(self: T, element: Element, storage: Storage, i: int) -> T | None:
        """The view at one position of the first of several axes, read by the same skeleton; None where it is none."""
        skeleton, offset, strides, shape = element
        if len(shape) < 2 or shape is CROOKED or not -shape[0] <= i < shape[0]:
            return None
        offset += (i if i >= 0 else i + shape[0]) * strides[0]
        made = self._from_view(storage, view_from((skeleton.dtype, shape[1:], strides[1:], offset)))
        made._note_element((skeleton, offset, strides[1:], shape[1:]), storage)
        return made

    def __setitem__(self, index: Any, value: Any) -> None:
        pen = self._pen
        if pen is not None and (
            (type(value) is int and pen.lowest <= value <= pen.highest)
            or (type(value) is float and pen.floating)
            or type(value) is bool
        ):
            # A number into an open segment, in as few bytecodes as will do. A pen that is out of use has no positions:
            # that is asked last, with nothing called before the store, so that no other thread closes it in between.
            kind = type(index)  # pyright: ignore[reportUnknownVariableType] -- of any object
            if kind is int:
                i = index if index >= 0 else index + pen.length
                if 0 <= i < pen.length:
                    pen.numbers[i if pen.direct else pen.start + i * pen.step] = value
                    return
            elif kind is tuple and len(index) == 2:
                i, j = index
                if type(i) is int and type(j) is int:
                    i, j = i if i >= 0 else i + pen.rows, j if j >= 0 else j + pen.columns
                    if 0 <= j < pen.columns and 0 <= i < pen.rows:
                        pen.numbers[i * pen.step + (j if pen.direct else pen.start + j * pen.inner)] = value
                        return
            place = element_at(index, pen.shape, pen.steps, pen.start)
            if place is not None and pen.shape:
                pen.numbers[place] = value
                return
        row = self._row
        if row is not None and type(index) is int and isinstance(value, TensorBase) and value._grad_state is None:
            own, storage, start, stride, n = row
            i = index if index >= 0 else index + n
            skeleton = value._skeleton
            holes = value._holes  # after the skeleton: a flush in another thread takes both away, the skeleton first
            if (
                0 <= i < n
                and skeleton is not None
                and holes is not None
                and storage.plain
                and not storage.read_only
                and stride
            ):
                storage.write_element(own.dtype, start + i * stride, skeleton, holes)
                if skeleton.op is not None and (skeleton.width > SMALL_HOLES or storage in skeleton.storages):
                    value._settle_in(own, storage, start + i * stride)
                if not storage.taped % EVERY:
                    relieve(storage)
                return
        self._write_slow(index, value)

    def _write_slow(self, index: Any, value: Any) -> None:
        """Everything but a number into an open segment."""
        if value.__class__ in FIGURES and self.dtype.fits(number := value.item()):
            self[index] = number
            return
        number = value.__class__ in NUMBERS or value.__class__ is bool
        scalar = isinstance(value, TensorBase) and value._grad_state is None
        skeleton: Skeleton | None = value._skeleton if scalar else None
        if number or skeleton is not None:
            own, start, strides, shape = self._element or self._elements()
            offset = element_at(index, shape, strides, start)
            if offset is not None and self._storage is not None and self._storage.plain:
                if skeleton is None:
                    self._write_number(offset, value)  # pyright: ignore[reportArgumentType] -- a number, by its class
                    return
                if self._write_scalar(self._storage, own.dtype, offset, value, skeleton):
                    return
        self._set(index, value)

    def _write_number(self, offset: int, number: float) -> None:
        """A number into one element, by the open segment or a new one."""
        storage, view = self._place()
        dtype = view.dtype
        if not dtype.fits(number):
            raise ValueRangeError(
                f"setitem: the number must fit the dtype; {number} does not fit {dtype.name}. Cast the tensor first?"
            )
        if number.__class__ is float and not (dtype.is_float or dtype.is_bool):
            number = int(number)
        place = offset // dtype.itemsize
        pen, segment = self._pen, storage.open
        if pen is not None and segment is not None and pen.numbers is segment.numbers:
            segment.numbers[place] = number
            return
        limit = max(1, config.journal_bytes // NUMBER)
        if storage.last is not None and storage.numbers + len(storage.last.numbers) >= limit:
            flush([storage])
        self._pen = storage.write_number(view, place, number, limit)

    def _settle_in(self, element: Skeleton, storage: Storage, offset: int) -> None:
        """Note that a scalar expression was just written to an element: what a loop carries is read back from there."""
        if self._skeleton is not None and element.dtype is self._skeleton.dtype:
            self._home = element, (offset, storage.sequence)

    def _write_scalar(self, storage: Storage, dtype: DType, offset: int, value: TensorBase, skeleton: Skeleton) -> bool:
        """A scalar expression into one element; False where it has become a node in the meantime."""
        if value._storage is storage and value._offset == offset and skeleton.dtype is dtype:
            return True  # what `t[k] += v` does last
        holes = value._holes or current_holes(value)
        if holes is None:
            return False
        if storage.read_only or not self._apart:
            storage.check_writable(self._place()[1], "setitem")
            self._apart = True
        storage.write_element(dtype, offset, skeleton, holes)
        if skeleton.op is not None and (skeleton.width > SMALL_HOLES or storage in skeleton.storages):
            value._settle_in((self._element or self._elements())[0], storage, offset)
        relieve(storage)
        return True

    def _element_at(self, index: object) -> tuple[Skeleton, int] | None:
        """The read skeleton and byte offset of one element that integers name; None where they do not."""
        skeleton, start, strides, shape = self._element or self._elements()
        offset = element_at(index, shape, strides, start)
        return (skeleton, offset) if offset is not None else None

    def _is_followed(self, storage: Storage) -> bool:
        """Whether gradients follow single elements of a storage that are read through this handle."""
        raise NotImplementedError

    def _get(self: T, index: object) -> T:
        """Indexing of every other kind."""
        raise NotImplementedError

    def _set(self, index: object, value: object) -> None:
        """Writing of every other kind."""
        raise NotImplementedError


class Bound:
    """When pending work is to be done: how many nodes lived after the last flush, and calls until the next look.

    `others` are the bytes in use, when they were last looked at, that pending work did not hold; `used` are all, when
    they were last found to be within the bound.
    """

    __slots__ = ("calls", "nodes", "others", "used")

    def __init__(self) -> None:
        self.nodes: int = 0
        self.calls: int = 0
        self.others: int = 0
        self.used: int = 0


bound: Final = Bound()


def _taken(storage: Storage, view: View) -> Node:
    """The value of a view of memory that is shared with the outside, copied before the statement returns."""
    storage.touch()
    node = storage.read(view)
    (ref,) = flush((), (node,))
    node.place = ref, View.contiguous(view.dtype, view.shape)
    return node


def relieve(storage: Storage) -> None:
    """Flush a storage with more pending entries than the bounds allow, or in a program that holds more nodes or bytes.

    Writes to memory that is shared with the outside are made before the statement returns.
    """
    bounds = settings_now()
    entries = len(storage.log) + storage.taped
    if storage.pinned or entries > bounds.journal_entries or entries * ENTRY > bounds.journal_bytes:
        flush([storage])
        return
    heavy = too_heavy((), bounds.journal_bytes)
    if heavy:
        flush(heavy)
    elif is_over_bound():
        flush([storage])
        bound.nodes = living()


def is_over_bound() -> bool:
    """Whether more nodes are pending than the bound allows (looked at every so often)."""
    bound.calls += 1
    if bound.calls < EVERY:
        return False
    bound.calls = 0
    return living() - bound.nodes > config.journal_nodes


def too_heavy(values: tuple[Node, ...], limit: int) -> list[Storage] | None:
    """The storages whose entries hold buffers, where they and some values hold more bytes than the bound; else None.

    What is held is counted only once the memory in use has grown by what the bound has left: so a look costs nothing,
    and the walk through what is pending is paid for by the bytes that were allocated since the last.
    """
    used = GlobalCounters.mem_used
    if used - bound.others <= limit:
        bound.others = min(bound.others, used)
        return None
    seen: set[Node] = set()
    total = held(values, seen)
    heavy: list[Storage] = []
    for storage in list(pending):
        own = held(payloads(storage), seen)
        total += own
        if own:
            heavy.append(storage)
    bound.others = used - total
    return heavy if total > limit else None


def relieve_tensor(tensor: TensorBase) -> None:
    """Compute a tensor where more is pending than the bounds allow (what nobody prints must not grow).

    Asked at every so many operations, and at those that find other memory in use than before: few do.
    """
    used = GlobalCounters.mem_used
    if bound.calls < EVERY and 0 <= used - bound.others <= settings_now().journal_bytes:
        bound.used = used
        return
    node = tensor._node
    if node is None or tensor._device == "DISK":
        return
    heavy = too_heavy((node,), settings_now().journal_bytes)
    if heavy is not None or is_over_bound():
        flush(heavy or ())
        flush_tensors((tensor,))
        bound.nodes = living()


def one_element(like: T, skeleton: Skeleton, storage: Storage, offset: int) -> T:
    """The handle of one element."""
    made = new(type(like))
    made._storage = storage
    made._skeleton = skeleton
    made._offset = offset
    made._device = like._device
    made._holes = made._home = None
    made._grad_state = like._grad_state  # none, or that the tensor is detached
    return made


def tracked_element(like: T, skeleton: Skeleton, storage: Storage, offset: int) -> T:
    """The handle of one element through which gradients flow."""
    made = one_element(like, skeleton, storage, offset)
    made._grad_state = True
    return made


class Way:
    """A way to apply a binary op to scalars: which operand comes first, and whether integers become floats.

    `keys` are what a skeleton's extensions by a Python number of each class are found under.
    """

    __slots__ = ("compares", "floats", "keys", "op", "swapped")

    def __init__(self, op: Binary, *, swapped: bool = False, floats: bool = False) -> None:
        self.op: Final = op
        self.compares: Final = isinstance(op, Comparison)
        self.swapped: Final = swapped
        self.floats: Final = floats
        self.keys: Final[dict[type[object], object]] = {int: object(), float: object()}


def scalar_binary(way: Way, x: T, left: Skeleton, other: object, *, tracked: bool = False) -> T | None:
    """A scalar with a number or another scalar, kept as skeleton and holes; None: take the long way.

    With `tracked`, one of them may be tracked, and the result is.

    `left` is the skeleton of x, read before its holes: a flush in another thread takes both away, the skeleton first.
    """
    home = x._home
    if home is not None:
        left, holes = home
    else:
        holes = x._holes or current_holes(x)
    key = way.keys.get(type(other))
    if key is not None:
        number: int | float = other  # pyright: ignore[reportAssignmentType] -- by its class
        if holes is not None and len(holes) >= LARGEST_HOLES and not tracked:
            left, holes = _spill(x._device, left, holes)
        found = left.children.get(key) or _with_number(way, key, left, number.__class__)
        if found is None or holes is None or not (found.floating or found.dtype.fits(number)):
            return None
        holes = (number, *holes) if way.swapped else (*holes, number)
    elif (
        isinstance(other, TensorBase)
        and (right := other._skeleton) is not None
        and ((state := other._grad_state) is None or tracked)
    ):
        if state is not None and state is not True:
            return None
        if other._device != x._device:
            return None
        home = other._home
        if home is not None:
            right, others = home
        else:
            others = other._holes or current_holes(other)
        if holes is None or others is None:
            return None
        if len(holes) + len(others) > LARGEST_HOLES and not tracked:
            (left, holes), (right, others) = _spill(x._device, left, holes), _spill(x._device, right, others)
        key = (way, right)
        found = left.children.get(key) or _with_scalar(way, key, left, right)
        if found is None:
            return None
        holes = others + holes if way.swapped else holes + others
    else:
        return None
    if tracked and len(holes) > LARGEST_HOLES:
        return None
    made = new(type(x))
    made._skeleton = found
    made._holes = holes
    made._device = x._device
    made._storage = made._home = None
    made._grad_state = tracked or None
    remember(weakref.ref(made))
    if len(scalars) > SWEEP:
        scalars[:] = [reference for reference in scalars if reference() is not None]
    return made


def scalar_unary(op: Op, x: T, left: Skeleton) -> T | None:
    """As scalar_binary, of one operand, which has the dtype that the op computes in."""
    home = x._home
    if home is not None:
        left, holes = home
    else:
        holes = x._holes or current_holes(x)
    if holes is None:
        return None
    if len(holes) >= LARGEST_HOLES:
        left, holes = _spill(x._device, left, holes)
    made = new(type(x))
    made._skeleton = left.children.get(op) or left.extend(op, op, result_of(op, left.dtype), None, False)
    made._holes = holes
    made._device = x._device
    made._storage = made._grad_state = made._home = None
    remember(weakref.ref(made))
    return made


@cache
def result_of(op: Op, *operands: DType) -> DType:
    """The dtype that an op gives."""
    return make(op, *(make(Const(dtype, 0)) for dtype in operands)).dtype


def _spill(device: str, skeleton: Skeleton, holes: tuple[Hole, ...]) -> Home:
    """A part of an expression, in memory if it is large."""
    return spilled(device, skeleton, holes) if len(holes) > SMALL_HOLES else (skeleton, holes)


def current_holes(element: TensorBase) -> tuple[Hole, ...] | None:
    """The holes of an element as of now; None where it is none, or must be read now."""
    storage = element._storage
    if storage is None or not (storage.plain or (element._grad_state is True and not storage.pinned)):
        return None
    if storage.open is not None:
        storage.close()
    return element._offset, storage.sequence


def _with_number(way: Way, key: object, left: Skeleton, kind: type[object]) -> Skeleton | None:
    """A skeleton extended by a number, remembered under a key; None where it is not computed by scalars."""
    dtype = _meet(way, promote_weak(left.dtype, kind))
    if dtype is None:
        return None
    weak = NUMBERS[kind]
    typed = weak if weak.dtype is dtype else Skeleton(dtype)
    given = result_of(way.op, dtype, dtype)
    return left.remember(key, _cast(left, dtype).extend(key, way.op, given, typed, way.swapped))


def _with_scalar(way: Way, key: object, left: Skeleton, right: Skeleton) -> Skeleton | None:
    """A skeleton extended by another, remembered under a key; None where it is not computed by scalars."""
    dtype = _meet(way, promote(left.dtype, right.dtype))
    if dtype is None:
        return None
    given = result_of(way.op, dtype, dtype)
    return left.remember(key, _cast(left, dtype).extend(key, way.op, given, _cast(right, dtype), way.swapped))


def _meet(way: Way, dtype: DType) -> DType | None:
    """The dtype that an op computes in, or None where it is not for scalars."""
    if way.floats and not dtype.is_float:
        dtype = dtypes.default_float
    if dtype.is_float and isinstance(way.op, OF_BITS):
        return None
    return None if dtype.is_bool or dtype in (dtypes.float8_e4m3, dtypes.float8_e5m2) else dtype


def _cast(skeleton: Skeleton, dtype: DType) -> Skeleton:
    """A skeleton cast to a dtype."""
    if skeleton.dtype is dtype:
        return skeleton
    key = (Cast, dtype)
    return skeleton.children.get(key) or skeleton.extend(key, Cast(dtype), dtype, None, False)


def check_computable(tensor: TensorBase) -> None:
    """Raise where a value would be put into a file that no path names."""
    if tensor._device == "DISK":
        raise DeviceError('disk: values cannot be computed on a file; move the tensor first, with .to("CPU").')


def flush_tensors(tensors: tuple[TensorBase, ...]) -> None:
    """Compute tensors by one schedule: stored ones in their storages, computed ones into buffers of their own."""
    with engine.lock:  # until computed ones have their storages: another thread may ask for the same
        storages, computed, nodes = _wanted(tensors)
        _settle(computed, nodes, flush(storages, nodes, computed))


def _wanted(tensors: tuple[TensorBase, ...]) -> tuple[list[Storage], list[TensorBase], list[Node]]:
    """What is to be computed of tensors: the storages of some, others, and the values of those."""
    storages: list[Storage] = []
    computed: list[TensorBase] = []
    nodes: list[Node] = []
    for tensor in tensors:
        node = tensor._node
        if node is None or node.place is not None or not node.src:
            if tensor._storage is not None:
                storages.append(tensor._storage)
                continue
            node = tensor.to_node()
            place = node.place
            if isinstance(node.op, Buffer) or (place is not None and not waits_for(place[0])):
                continue
        if tensor._device == "DISK":
            check_computable(tensor)
        computed.append(tensor)
        nodes.append(node)
    return storages, computed, nodes


def partition_tensors(tensors: tuple[TensorBase, ...]) -> Pending | None:
    """Partition what tensors need into kernels that run later; None where nothing is needed."""
    storages: list[Storage] = []
    computed: list[TensorBase] = []
    nodes: list[Node] = []
    for tensor in tensors:
        if tensor._storage is not None:
            if tensor._storage.log or tensor._storage.ref is None:
                storages.append(tensor._storage)
            continue
        node = tensor._node if tensor._node is not None else tensor.to_node()
        if node.place is None:
            check_computable(tensor)
            computed.append(tensor)
            nodes.append(node)
    if not storages and not computed:
        return None
    held, refs = partition(storages, nodes, computed)
    _settle(computed, nodes, refs)
    return held


def _settle(tensors: list[TensorBase], nodes: list[Node], refs: list[BufferRef]) -> None:
    """Computed tensors whose values now lie (or will lie) in buffers. The lists are used up: so nodes die in turn."""
    dtype, shape, view = None, None, None
    while tensors:
        tensor, node, ref = tensors.pop(), nodes.pop(), refs.pop()
        if view is None or node.shape != shape or node.dtype is not dtype:
            dtype, shape, view = node.dtype, node.shape, View.contiguous(node.dtype, node.shape)
        storage = Storage(ref.nbytes, tensor._device, None, ref)
        if tensor._grad_state is True:
            track(storage, view.dtype, base=node)
        tensor._view = view  # before the storage, which other threads look at first
        tensor._storage = storage
        tensor._node = None
        if sys.getrefcount(node) > REFERENCES_OF_AN_ARGUMENT and not is_constant(node):  # somebody will ask where it is
            node.place = ref, view
            storage.origin = weakref.ref(node)


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
