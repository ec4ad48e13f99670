"""Storages of our own: scalars that loops carry from turn to turn, and small values from the host, lie side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.engine import realize as engine
from intaglio.ir.node import substitute
from intaglio.ir.view import View
from intaglio.ops.memory import Read
from intaglio.runtime.buffer import Buffer
from intaglio.storage.skeleton import Skeleton
from intaglio.storage.storage import Storage

if TYPE_CHECKING:
    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.storage.skeleton import Hole

ROOM: Final = 1 << 16  # scalars of one storage of scratch
SHELF: Final = 1 << 16  # bytes of one storage of values from the host
SMALL: Final = 1 << 10  # bytes of a value that is copied to the shelf where it is written
ALIGNMENT: Final = 16


class Scratch:
    """Where the scalars of one device and dtype are put, one after the other: in a loop, at a fixed distance.

    A storage of scratch lives as long as some expression reads it, and has bytes only once its values are needed.
    """

    def __init__(self, device: str, dtype: DType) -> None:
        self._dtype: Final = dtype
        self._device: Final = device
        self._storage: Storage | None = None
        self._element: Skeleton | None = None
        self._taken: int = 0

    def put(self, skeleton: Skeleton, holes: tuple[Hole, ...]) -> tuple[Skeleton, tuple[Hole, ...]]:
        """Write a scalar expression to the next place; gives that place's element as of now."""
        with engine.lock:
            if self._storage is None or self._element is None or self._taken == ROOM:
                self._storage = Storage(ROOM * self._dtype.itemsize, self._device)
                self._element = Skeleton(self._dtype, self._storage)
                self._taken = 0
            offset = self._taken * self._dtype.itemsize
            self._taken += 1
            self._storage.write_element(self._dtype, offset, skeleton, holes)
            return self._element, (offset, self._storage.sequence)


_known: Final[dict[tuple[str, DType], Scratch]] = {}


def spilled(device: str, skeleton: Skeleton, holes: tuple[Hole, ...]) -> tuple[Skeleton, tuple[Hole, ...]]:
    """A scalar expression as an element that holds its value: what a larger expression may be made of."""
    key = device, skeleton.dtype
    found = _known.get(key)
    if found is None:
        found = _known.setdefault(key, Scratch(*key))
    return found.put(skeleton, holes)


class Shelf:
    """Where small values from the host are put, one after the other: a loop reads its rows at one distance."""

    def __init__(self, device: str) -> None:
        self._device: Final = device
        self._storage: Storage | None = None
        self._taken: int = 0

    def put(self, dtype: DType, shape: tuple[int, ...], data: bytes) -> Node:
        """Copy bytes to the next place; gives that place's value."""
        with engine.lock:
            if self._storage is None or self._taken + len(data) > SHELF:
                ref = engine.from_bytes(bytes(SHELF), self._device)
                self._storage, self._taken = Storage(SHELF, self._device, ref=ref), 0
            assert self._storage.ref is not None
            place = self._taken
            self._taken += -(-len(data) // ALIGNMENT) * ALIGNMENT
            engine.buffer_of(self._storage.ref).write(place, data)
            return self._storage.read(View.contiguous(dtype, shape, place))


_shelves: Final[dict[str, Shelf]] = {}


def on_shelf(device: str, dtype: DType, shape: tuple[int, ...], data: bytes) -> Node:
    """A small value from the host."""
    shelf = _shelves.get(device) or _shelves.setdefault(device, Shelf(device))
    return shelf.put(dtype, shape, data)


def shelved(value: Node) -> Node:
    """A value that is a small tensor in memory, cast or moved, with the bytes on the shelf; any other as it is.

    They are those of this moment: nothing is pending on them.
    """
    leaf = value
    while len(leaf.src) == 1:
        leaf = leaf.src[0]
    if not isinstance(leaf.op, Read):
        return value
    source, view = leaf.op.storage, leaf.op.view
    if not isinstance(source, Storage) or source.ref is None or source.nbytes > SMALL:
        return value
    ref = source.ref
    if not source.plain or source.path is not None or source.log or not isinstance(ref.memory, Buffer):
        return value
    if not view.is_contiguous or not (nbytes := view.nbytes):
        return value
    data = engine.buffer_of(ref).read(view.offset, nbytes)
    copied = on_shelf(source.device, view.dtype, view.shape, data)
    return copied if leaf is value else substitute((value,), {leaf: copied})[0]
