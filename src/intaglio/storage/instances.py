"""Instances: the storages that a loop's turns make, write and let go of, as one storage that each turn uses again.

They are those that nobody outside the slice can reach. Version 0 of each is a write like any other, made just before
its first use, by a number in the room that numbers of writes leave. So a turn is the body of one loop, whatever it does
with a buffer of its own. Instances whose lives do not meet share their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.view import View
from intaglio.ops.memory import const
from intaglio.ops.movement import expand
from intaglio.storage.journal import ROOM
from intaglio.storage.reroll import WIDE
from intaglio.storage.skeleton import Pattern, ReadStep, Step, of_node
from intaglio.storage.storage import Storage
from intaglio.storage.writes import Item

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from intaglio.ir.node import Node
    from intaglio.storage.aside import MakeKind
    from intaglio.storage.skeleton import Hole

    Version = tuple[View, Pattern, tuple[Hole, ...]]

NESTED: Final = ROOM // 2  # versions 0 that may be made just before one write


def version(storage: Storage, base: Node | None) -> Version | None:
    """Version 0 as a write: the view, the pattern and its holes; None where it is too large to be in a loop's body."""
    value = base if base is not None else expand(const(dtypes.uint8, 0), (storage.nbytes,))
    found = of_node(value)
    if found is None or found[0].is_in_parts or not 0 < value.size < WIDE:
        return None
    return View.contiguous(value.dtype, value.shape), *found


def of_one_form(versions: dict[Storage, Version]) -> set[Storage]:
    """Those of some storages whose versions 0 are computed in the same way as others are."""
    forms: dict[object, list[Storage]] = {}
    for storage, (view, pattern, _) in versions.items():
        steps = tuple(
            (s.dtype, s.shape, s.strides) if isinstance(s, ReadStep) and s.storage in versions else s
            for s in pattern.steps
        )
        forms.setdefault((storage.nbytes, storage.device, view, steps), []).append(storage)
    return {storage for own in forms.values() if len(own) > 1 for storage in own}


class TooDeepError(Exception):
    """More versions 0 would be made just before one write than there are numbers for them."""


@dataclass(slots=True)
class _Life:
    """When an instance is used: the number of its version 0, and of the last write that reads or writes it."""

    first: int
    last: int
    filled: bool  # whether version 0 is made


class Instances:
    """Storages as instances of a few.

    Args:
        versions: The versions 0 of the storages.
        kind_of: Gives the one object for common properties of writes.
        gaps: For numbers of writes, how many numbers before them are taken, to which those of versions 0 are added.
    """

    def __init__(self, versions: dict[Storage, Version], kind_of: MakeKind, gaps: dict[int, int]) -> None:
        self._versions: Final = versions
        self._kind_of: Final = kind_of
        self._gaps: Final = gaps
        self._lives: Final[dict[Storage, _Life]] = {}
        self._shared: Final[dict[Storage, Storage]] = {}

    @property
    def shared(self) -> set[Storage]:
        """The storages that the instances share."""
        return set(self._shared.values())

    def rewrite(self, items: Iterable[Item]) -> list[Item]:
        """Writes that read or write the storages, in order, as those of what they share; with the versions 0.

        Raises: TooDeepError where there are no numbers for all versions 0.
        """
        items = list(items)
        for item in items:
            self._use(item)
        self._place()
        made = [self._version(storage) for storage, life in self._lives.items() if life.filled]
        return made + [self._moved(item) for item in items]

    def _use(self, item: Item) -> None:
        """Note which instances a write uses."""
        read = [step.storage for step, _ in item.kind.reads if step.storage in self._versions]
        for storage in read:
            self._begin(storage, item.sequence, filled=True)
        if item.storage in self._versions:
            whole = item.view.is_contiguous and item.view.nbytes == item.storage.nbytes
            self._begin(item.storage, item.sequence, filled=not whole)

    def _begin(self, storage: Storage, number: int, *, filled: bool) -> None:
        """An instance is used by the write of a number, and begins just before it if it has not yet.

        If it is filled, so do those that its version 0 reads, before it.
        """
        stack = [(storage, filled)]
        while stack:
            instance, full = stack[-1]
            life = self._lives.get(instance)
            if life is not None:
                life.last = max(life.last, number)
                stack.pop()
                continue
            reads = self._versions[instance][1].reads if full else ()
            below = [step.storage for step, _ in reads if step.storage in self._versions]
            missing = [(source, True) for source in below if source not in self._lives]
            if missing:
                stack.extend(missing)
                continue
            for source in below:
                self._lives[source].last = max(self._lives[source].last, number)
            taken = self._gaps.get(number, 0) + 1
            if taken > NESTED:
                raise TooDeepError
            self._gaps[number] = taken
            self._lives[instance] = _Life(number - ROOM + taken, number, full)
            stack.pop()

    def _place(self) -> None:
        """Give each instance a storage that no other uses while it lives."""
        rooms: dict[tuple[int, str], list[Storage]] = {}
        ends: dict[Storage, int] = {}
        for storage, life in sorted(self._lives.items(), key=lambda pair: pair[1].first):
            own = rooms.setdefault((storage.nbytes, storage.device), [])
            found = next((room for room in own if ends[room] < life.first), None)
            if found is None:
                found = Storage(storage.nbytes, storage.device)
                own.append(found)
            ends[found] = life.last
            self._shared[storage] = found

    def _version(self, storage: Storage) -> Item:
        """The write of version 0."""
        view, pattern, holes = self._versions[storage]
        pattern, holes = self._redirected(pattern, holes)
        kind = self._kind_of(self._shared[storage], view.dtype, view.shape, view.strides, pattern)
        return Item(self._lives[storage].first, kind, 0, holes)

    def _moved(self, item: Item) -> Item:
        """A write of what the instances share."""
        kind = item.kind
        pattern, holes = self._redirected(kind.pattern, item.holes)
        storage = self._shared.get(kind.storage, kind.storage)
        return Item(
            item.sequence,
            self._kind_of(storage, kind.dtype, kind.shape, kind.strides, pattern),
            item.offset,
            holes,
        )

    def _redirected(self, pattern: Pattern, holes: tuple[Hole, ...]) -> tuple[Pattern, tuple[Hole, ...]]:
        """A payload that reads what the instances share: version 0 of each as of the number that it was given."""
        steps: list[Step] = list(pattern.steps)
        moved = list(holes)
        hole = 0
        for place, step in enumerate(pattern.steps):
            if isinstance(step, ReadStep) and step.storage in self._shared:
                steps[place] = replace(step, storage=self._shared[step.storage])
                moved[hole + 1] = max(int(holes[hole + 1]), self._lives[step.storage].first)
            hole += step.holes
        return Pattern(tuple(steps)), tuple(moved)


def uses(item: Item, storages: Collection[Storage]) -> bool:
    """Whether a write writes or reads one of some storages."""
    return item.storage in storages or any(step.storage in storages for step, _ in item.kind.reads)


def reads_of(pattern: Pattern) -> Iterator[Storage]:
    """The storages that a payload reads."""
    return (step.storage for step, _ in pattern.reads)
