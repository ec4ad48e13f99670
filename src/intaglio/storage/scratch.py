"""Scratch: storages of our own for scalars that loops carry from turn to turn, so that expressions stay small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.engine import realize as engine
from intaglio.storage.skeleton import Skeleton
from intaglio.storage.storage import Storage

if TYPE_CHECKING:
    from intaglio.core.dtypes import DType
    from intaglio.storage.skeleton import Hole

ROOM: Final = 1 << 16  # scalars of one storage of scratch


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
