"""Values set aside: what a few writes later is still read of bytes that are overwritten by then, as a swap does.

Such a read is of a copy that is made just before its bytes are overwritten, by a write like any other. So every read of
a loop's turn sees what is there when it is used, and the turn is the body of one loop. A value that is computed from
other elements of its own target, as a reversed row is, is made aside likewise, and copied. Copies whose lives do not
meet share their bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from intaglio.ir.view import View
from intaglio.storage import reroll
from intaglio.storage.journal import ROOM
from intaglio.storage.skeleton import Pattern, ReadStep, Step
from intaglio.storage.storage import Storage
from intaglio.storage.writes import Gathering, Item, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.core.dtypes import DType
    from intaglio.storage.readers import Numbered, Target

    MakeKind = Callable[[Storage, DType, tuple[int, ...], tuple[int, ...], Pattern], Kind]

NEAR: Final = reroll.LONGEST_PERIOD  # writes to look through for the one that overwrites what is read


@dataclass(slots=True)
class _Written:
    """The writes of one storage so far: their numbers, targets, and places among all writes."""

    numbers: list[int] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    def first(self, stamp: int, view: View) -> int | None:
        """Which of the few writes after a stamp is the first that overwrites bytes of a view, if one does."""
        start = bisect_right(self.numbers, stamp)
        nearest = range(start, min(start + NEAR, len(self.numbers)))
        return next((k for k in nearest if self.targets[k].overlaps(view)), None)


@dataclass(slots=True)
class _Old:
    """A read of overwritten bytes: of which write, at which hole; and the number of the write that overwrites them."""

    item: Item
    hole: int
    step: ReadStep
    over: int
    before: int  # the number of the last write of the storage before that

    @property
    def source(self) -> Storage:
        """The storage that is read."""
        return self.step.storage

    @property
    def seen(self) -> tuple[Storage, int]:
        """Which moment of which storage is read."""
        return self.source, int(self.item.holes[self.hole + 1])

    @property
    def view(self) -> View:
        """What is read."""
        step = self.step
        return View(step.dtype, step.shape, step.strides, int(self.item.holes[self.hole]))


def set_aside(writes: Sequence[Numbered], older: set[Storage], kind_of: MakeKind, gaps: dict[int, int]) -> list[Item]:
    """Let rolled writes of loops read copies of what is overwritten; gives the writes that make the copies.

    That is done for moments whose bytes are asked for no more than a few writes after they are overwritten, and only
    among writes that depend on one another: the others are whole-array writes, which read what was there at first. Nor
    is it done where each write is the only one of its kind, as in a step of training: no loop comes of those.

    Args:
        writes: In order, with renewed stamps.
        older: The storages of which some of them reads an older moment.
        gaps: For numbers of writes, how many numbers before them are taken.
    """
    items = [what for _, _, what in writes if isinstance(what, Item)]
    near = _near(writes, older) if older else []
    own = _onto_themselves(items)
    if not (near or own):
        return []
    flowing = reroll.flowing(Gathering(items).take())
    copies = _Copies(kind_of, gaps)
    for old in sorted((old for old in near if old.source in flowing), key=lambda old: (old.over, old.item.sequence)):
        copies.read(old)
    for item in own:
        if item.storage in flowing:
            copies.value(item)
    return copies.made


def _onto_themselves(items: list[Item]) -> list[Item]:
    """The writes, of kinds with more than one, whose values depend on other elements of what they write.

    Steps at one place with nothing between them are left as they are: each is a launch of one kernel, from one buffer
    to another.
    """
    found: dict[Kind, list[int]] = {}
    kinds: dict[Kind, bool] = {}
    for place, item in enumerate(items):
        kind = item.kind
        if kind not in kinds:
            small = 1 < kind.size < reroll.WIDE and not kind.pattern.is_in_parts
            kinds[kind] = small and any(step.storage is kind.storage for step, _ in kind.reads)
        if kinds[kind] and any(
            step.storage is kind.storage and reroll.meets(kind, step, int(item.holes[hole]) - item.offset)
            for step, hole in kind.reads
        ):
            found.setdefault(kind, []).append(place)
    chosen: list[Item] = []
    for places in found.values():
        own = [items[place] for place in places]
        steps = len({item.offset for item in own}) == 1 and places[-1] - places[0] == len(places) - 1
        if len(own) > 1 and not steps:
            chosen += own
    return chosen


def _near(writes: Sequence[Numbered], older: set[Storage]) -> list[_Old]:
    """The reads of overwritten bytes of moments that are read only a few writes after they are."""
    written = {storage: _Written() for storage in older}
    near: list[_Old] = []
    far: set[tuple[Storage, int]] = set()
    for place, (storage, number, what) in enumerate(writes):
        if isinstance(what, Item):
            for step, hole in what.kind.reads:
                known = written.get(step.storage)
                stamp = int(what.holes[hole + 1])
                if known is None or not known.numbers or known.numbers[-1] <= stamp:
                    continue
                old = _Old(what, hole, step, 0, 0)
                k = known.first(stamp, old.view)
                if k is not None and place - known.places[k] <= NEAR:
                    old.over, old.before = known.numbers[k], known.numbers[k - 1] if k else stamp
                    near.append(old)
                else:
                    far.add(old.seen)
        own = written.get(storage)
        if own is not None:
            own.numbers.append(number)
            own.targets.append(what.view if isinstance(what, Item) else what)
            own.places.append(place)
    return [old for old in near if old.seen not in far]


class _Copies:
    """Copies of bytes before they are overwritten, in as few storages as may be."""

    def __init__(self, kind_of: MakeKind, gaps: dict[int, int]) -> None:
        self._kind_of: Final = kind_of
        self.made: Final[list[Item]] = []
        self._known: Final[dict[tuple[Storage, View, int], tuple[Storage, int]]] = {}  # a read of a moment -> its copy
        self._gaps: Final = gaps
        self._rooms: Final[dict[tuple[object, ...], list[Storage]]] = {}
        self._ends: Final[dict[Storage, int]] = {}  # the number of the last write that reads what is there

    def read(self, old: _Old) -> None:
        """Let a write read a copy."""
        key = (old.source, old.view, old.over)
        found = self._known.get(key)
        if found is None:
            number = self._number_before(old.over)
            if number is None:
                return
            found = self._known[key] = self._copy(old, number)
        storage, number = found
        self._ends[storage] = max(self._ends[storage], old.item.sequence)
        _redirect(old, storage, number, self._kind_of)

    def value(self, item: Item) -> None:
        """Let a write copy its value, which is made just before it."""
        number = self._number_before(item.sequence)
        if number is None:
            return
        kind = item.kind
        view = View.contiguous(kind.dtype, kind.shape)
        storage = self._room(view.nbytes, kind.storage, number, "value")
        self._ends[storage] = item.sequence
        made = self._kind_of(storage, view.dtype, view.shape, view.strides, kind.pattern)
        self.made.append(Item(number, made, 0, item.holes, item.renewed))
        step = ReadStep(view.dtype, view.shape, view.strides, storage)
        item.kind = self._kind_of(kind.storage, kind.dtype, kind.shape, kind.strides, Pattern((step,)))
        item.holes, item.renewed = (0, number), None

    def _number_before(self, over: int) -> int | None:
        """The next number for a write just before the write of a number; None where all are taken."""
        before = self._gaps.get(over, 0) + 1
        if before >= ROOM or over % ROOM:
            return None
        self._gaps[over] = before
        return over - ROOM + before

    def _copy(self, old: _Old, number: int) -> tuple[Storage, int]:
        """A write that copies what is read."""
        view = View.contiguous(old.step.dtype, old.step.shape)
        storage = self._room(view.nbytes, old.source, number, "copy")
        self._ends[storage] = number
        kind = self._kind_of(storage, view.dtype, view.shape, view.strides, Pattern((old.step,)))
        self.made.append(Item(number, kind, 0, (old.view.offset, old.before)))
        return storage, number

    def _room(self, nbytes: int, source: Storage, number: int, use: str) -> Storage:
        """A storage on the device of another that nobody reads any more at the write of a number."""
        device = source.device if source.ref is None else source.ref.device
        rooms = self._rooms.setdefault((nbytes, device, use), [])
        storage = next((room for room in rooms if self._ends[room] < number), None)
        if storage is None:
            storage = Storage(nbytes, device)
            rooms.append(storage)
        return storage


def _redirect(old: _Old, storage: Storage, number: int, kind_of: MakeKind) -> None:
    """Let one read of a write be of a copy that was made by the write of a number."""
    item, hole, kind = old.item, old.hole, old.item.kind
    view = View.contiguous(old.step.dtype, old.step.shape)
    steps: list[Step] = []
    place = 0
    for step in kind.pattern.steps:
        mine = isinstance(step, ReadStep) and place == hole
        steps.append(replace(step, strides=view.strides, storage=storage) if mine else step)
        place += step.holes
    item.kind = kind_of(kind.storage, kind.dtype, kind.shape, kind.strides, Pattern(tuple(steps)))
    changed = (0, number)
    item.renewed = (*item.recorded[:hole], *changed, *item.recorded[hole + 2 :])
    item.holes = (*item.holes[:hole], *changed, *item.holes[hole + 2 :])
