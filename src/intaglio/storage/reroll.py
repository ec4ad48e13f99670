"""Re-rolling: runs of like entries become whole-array writes where nothing depends, sequential loops where it does."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from intaglio.ir.view import View

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from intaglio.core.dtypes import DType
    from intaglio.storage.columns import Integers
    from intaglio.storage.skeleton import Hole, Pattern, Step
    from intaglio.storage.storage import Storage

LONGEST_PERIOD: Final = 64  # how many writes the body of one rolled loop may have before it becomes a switch
WIDE: Final = 4096  # elements of one write from which a run at one fixed place is left as separate kernels


@dataclass(eq=False, frozen=True, slots=True)
class Kind:
    """What entries must share to be rolled together; interned by its maker, so compared by identity."""

    storage: Storage
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pattern: Pattern
    reads: tuple[tuple[Step, int], ...]  # the reads of the pattern, each with its first hole

    @property
    def region(self) -> tuple[int, int]:
        """The first and past-the-last byte of a target, relative to its offset."""
        return _bytes_of(self.dtype, self.shape, self.strides)


@dataclass(slots=True)
class Item:
    """One entry that may be rolled: what it has in common with others (`kind`), and its numbers and positions."""

    sequence: int
    kind: Kind
    offset: int
    holes: tuple[Hole, ...]
    renewed: tuple[Hole, ...] | None = None  # the holes as they were recorded, where a stamp is another by now

    @property
    def recorded(self) -> tuple[Hole, ...]:
        """The holes as they were recorded."""
        return self.renewed or self.holes

    @property
    def storage(self) -> Storage:
        """The storage that is written."""
        return self.kind.storage

    @property
    def view(self) -> View:
        """The view that is written."""
        return View(self.kind.dtype, self.kind.shape, self.kind.strides, self.offset)


@dataclass(slots=True)
class Run:
    """All entries of one kind in a group, in order: their numbers in the group, target offsets and holes by column."""

    kind: Kind
    numbers: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    places: Integers | None = None  # the offsets as an array, where they are at hand
    holes: list[tuple[Hole, ...]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)  # where it was made from items
    values: list[Hole] | None = None  # the column of the only hole, where it is at hand

    def add(self, number: int, item: Item) -> None:
        """Append an entry."""
        self.numbers.append(number)
        self.offsets.append(item.offset)
        self.holes.append(item.holes)
        self.items.append(item)

    def column(self, hole: int) -> list[Hole]:
        """The values of one hole, in order."""
        if self.values is not None:
            return self.values
        return [holes[hole] for holes in self.holes]

    def keep(self, places: Iterable[int]) -> Run:
        """The run with only the entries at these places of it."""
        places = list(places)
        return Run(
            self.kind,
            numbers=[self.numbers[p] for p in places],
            offsets=[self.offsets[p] for p in places],
            holes=[self.holes[p] for p in places],
            items=[self.items[p] for p in places],
        )


@dataclass(slots=True)
class Parallel:
    """Runs none of whose reads sees a write of the group: whole-array writes, in this order.

    `items` are all that the group stands for, in program order; the runs leave out those that later ones overwrite.
    """

    runs: list[Run]
    ends: dict[Storage, int]  # the number of the last write of each storage in the group
    items: list[Item]


@dataclass(slots=True)
class Sequential:
    """Items that depend on one another: a loop of `count` turns.

    With `selector` None there is one arm, and every turn runs its writes in order (one run a write: entry k of each in
    turn k). Otherwise turn k runs arm `selector[k]`, and the entries of an arm's runs stand at their own `numbers`.
    """

    count: int
    arms: list[list[Run]]
    selector: list[int] | None
    ends: dict[Storage, int]  # the number of the last write of each storage in the group
    items: list[Item]  # all of them, in program order

    @property
    def runs(self) -> list[Run]:
        """The runs of all arms."""
        return [run for arm in self.arms for run in arm]


@dataclass(slots=True)
class Single:
    """An item that was not rolled, and why."""

    item: Item
    reason: str


Group: TypeAlias = Parallel | Sequential | Single


def roll(items: Sequence[Item], prior: dict[Storage, int]) -> list[Group]:
    """The items, in program order, as groups that may run one after the other.

    Args:
        prior: The number of the last write of each storage before these items.
    """
    groups: list[Group] = []
    for component in _components(items):
        groups.extend(_roll_component(component, prior))
    groups.sort(key=_last)
    return groups


def _last(group: Group) -> int:
    """The number of the last write of a group."""
    return group.item.sequence if isinstance(group, Single) else max(group.ends.values())


def _components(items: Sequence[Item]) -> list[list[Item]]:
    """Items split by the storages that they write and share: no item reads or writes what another part writes."""
    written = {item.storage for item in items}
    parent: dict[Storage, Storage] = {storage: storage for storage in written}

    def find(storage: Storage) -> Storage:
        while parent[storage] is not storage:
            parent[storage] = parent[parent[storage]]
            storage = parent[storage]
        return storage

    seen: set[int] = set()
    for item in items:
        if id(item.kind) in seen:
            continue
        seen.add(id(item.kind))
        for step, _ in item.kind.reads:
            if step.storage in written:
                parent[find(step.storage)] = find(item.storage)  # pyright: ignore[reportArgumentType] -- it is in `written`
    parts: dict[Storage, list[Item]] = {}
    for item in items:
        parts.setdefault(find(item.storage), []).append(item)
    return list(parts.values())


def _roll_component(items: list[Item], prior: dict[Storage, int]) -> list[Group]:
    """One component, as few groups as its dependences allow."""
    groups: list[Group] = []
    for stretch in _stretches(items, prior):
        groups.extend(_roll_stretch(stretch))
    return groups


def _roll_stretch(stretch: list[Item]) -> list[Group]:
    """One stretch: whole-array writes, or a loop (around writes that are wide enough for kernels of their own)."""
    if len(stretch) == 1:
        return [Single(stretch[0], "one entry")]
    flows = _has_flow(stretch)
    if not flows and len({id(item.kind) for item in stretch}) == len(stretch):
        return [Single(item, "the only one of its kind") for item in stretch]
    if not flows:
        rolled = _parallel(stretch)
        if rolled is not None:
            return [rolled]
        if not is_current(stretch):
            return [Single(item, "it reads what others overwrite before it") for item in stretch]
    groups: list[Group] = []
    for wide, part in itertools.groupby(stretch, key=_stays_wide):  # all reads are current: it may be cut anywhere
        if wide:
            groups.extend(Single(item, "a wide write that depends on the one before") for item in part)
        else:
            rest = list(part)
            groups.extend(sequential(rest) if len(rest) == len(stretch) else _roll_stretch(rest))
    return groups


def is_current(items: Iterable[Item]) -> bool:
    """Whether each read of items in program order sees all writes of them before it: none is of an older moment."""
    last: dict[object, int] = {}
    for item in items:
        for step, hole in item.kind.reads:
            if last.get(step.storage, -1) > item.holes[hole + 1]:
                return False
        last[item.storage] = item.sequence
    return True


def _stretches(items: list[Item], prior: dict[Storage, int]) -> list[list[Item]]:
    """Items cut so that in each stretch either every read sees what was there at its start, or every read is current.

    A read older than a write before it observes the moment between: no stretch has writes on both sides of one that
    matters, so that the moment is the end of some stretch.
    """
    observed = _observed(items)
    stretches: list[list[Item]] = []
    current: list[Item] = []
    last: dict[object, int] = {}
    flows = stales = False
    earlier: dict[object, int] = {**prior}  # the last writes before the current stretch
    for item in items:
        flow = stale = outdated = False
        for step, hole in item.kind.reads:
            if earlier.get(step.storage, -1) > item.holes[hole + 1]:
                outdated = True
            newest = last.get(step.storage)
            if newest is not None:
                if newest <= item.holes[hole + 1]:
                    flow = True
                else:
                    stale = True
        before = last.get(item.storage)
        between = before is not None and any(before <= s < item.sequence for s in observed.get(item.storage, ()))
        if outdated or between or ((flow or flows) and (stale or stales)):
            if current:
                stretches.append(current)
            earlier.update(last)
            current, last, flows, stales = [], {}, False, False
            flow = stale = False
            if any(earlier.get(step.storage, -1) > item.holes[hole + 1] for step, hole in item.kind.reads):
                stretches.append([item])  # it reads what an earlier stretch has overwritten: alone, by its own stamps
                earlier[item.storage] = item.sequence
                continue
        current.append(item)
        flows, stales = flows or flow, stales or stale
        last[item.storage] = item.sequence
    if current:
        stretches.append(current)
    return stretches


def _observed(items: list[Item]) -> dict[object, list[int]]:
    """For each storage, the moments between two of its writes that a read after the second one still sees."""
    newest: dict[object, int] = {}
    found: dict[object, list[int]] = {}
    for item in items:
        for step, hole in item.kind.reads:
            stamp = int(item.holes[hole + 1])
            if newest.get(step.storage, -1) > stamp and stamp >= items[0].sequence:
                found.setdefault(step.storage, []).append(stamp)
        newest[item.storage] = item.sequence
    return found


def _bytes_of(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """The first and past-the-last byte of a region, relative to its offset."""
    low, high = 0, dtype.itemsize
    for extent, stride in zip(shape, strides, strict=True):
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    return low, high


def _has_flow(items: list[Item]) -> bool:
    """Whether some item reads bytes that an earlier one of them wrote (exact for equal elements, else by bounds)."""
    written: dict[Storage, list[Item]] = {}
    for item in items:
        written.setdefault(item.storage, []).append(item)
    for storage, writers in written.items():
        readers = [(item, step, hole) for item in items for step, hole in item.kind.reads if step.storage is storage]
        if not readers:
            continue
        regions = {w.kind.region for w in writers} | {
            _bytes_of(step.dtype, step.shape, step.strides) for _, step, _ in readers
        }
        size = next(iter(regions))[1]
        if (
            len(regions) == 1
            and all(w.offset % size == writers[0].offset % size for w in writers)
            and all(int(item.holes[hole]) % size == writers[0].offset % size for item, _, hole in readers)
        ):
            if _exact_flow(writers, readers):
                return True
        elif _bounded_flow(writers, readers):
            return True
    return False


def _exact_flow(writers: list[Item], readers: list[tuple[Item, Step, int]]) -> bool:
    """Whether a read sees a write of the very same region, made before its stamp."""
    first: dict[int, int] = {}
    for writer in writers:
        first.setdefault(writer.offset, writer.sequence)
    for item, _, hole in readers:
        written = first.get(int(item.holes[hole]))
        if written is not None and written <= item.holes[hole + 1]:
            return True
    return False


def _bounded_flow(writers: list[Item], readers: list[tuple[Item, Step, int]]) -> bool:
    """Whether a read's bounds overlap those of all writes so far: conservative."""
    lows = np.array([w.offset + w.kind.region[0] for w in writers])
    highs = np.array([w.offset + w.kind.region[1] for w in writers])
    sequences = np.array([w.sequence for w in writers])
    lowest, highest = np.minimum.accumulate(lows), np.maximum.accumulate(highs)
    for item, step, hole in readers:
        low, high = _bytes_of(step.dtype, step.shape, step.strides)
        offset, stamp = int(item.holes[hole]), int(item.holes[hole + 1])
        before = int(np.searchsorted(sequences, stamp, side="right")) - 1
        if before >= 0 and offset + low < highest[before] and offset + high > lowest[before]:
            return True
    return False


def _runs(items: list[Item]) -> list[Run]:
    """The items by kind, in order of first appearance."""
    found: dict[Kind, Run] = {}
    for number, item in enumerate(items):
        run = found.get(item.kind)
        if run is None:
            run = found[item.kind] = Run(item.kind)
        run.add(number, item)
    return list(found.values())


def _parallel(items: list[Item]) -> Parallel | None:
    """Whole-array writes with overwritten entries dropped, or None where the last writer of a place is not plain."""
    runs = _runs(items)
    by_storage: dict[Storage, list[Run]] = {}
    for run in runs:
        by_storage.setdefault(run.kind.storage, []).append(run)
    kept: list[Run] = []
    for own in by_storage.values():
        regions = {run.kind.region for run in own}
        aligned = len(regions) == 1 and _same_grid(own, next(iter(regions)))
        if aligned:
            kept.extend(_last_writers(own))
        elif len(own) == 1 and _disjoint(own[0]):
            kept.append(own[0])
        elif all(_disjoint(run) for run in own) and _in_turn(own):
            kept.extend(own)
        else:
            return None
    kept.sort(key=lambda run: run.numbers[0])
    return Parallel(kept, _ends(items), items)


def _ends(items: Sequence[Item]) -> dict[Storage, int]:
    """The number of the last write of each storage."""
    return {item.storage: item.sequence for item in items}


def _same_grid(runs: list[Run], region: tuple[int, int]) -> bool:
    """Whether all targets are equal or disjoint: one size, on one grid of that size, each one solid."""
    size = region[1] - region[0]
    for run in runs:
        count = run.kind.dtype.itemsize
        for extent in run.kind.shape:
            count *= extent
        if count != size:
            return False
    rest = runs[0].offsets[0] % size
    return all((np.array(run.offsets) % size == rest).all() for run in runs)


def _last_writers(runs: list[Run]) -> list[Run]:
    """The runs with only the last write of each place."""
    if len(runs) == 1 and len(set(runs[0].offsets)) == len(runs[0].offsets):
        return runs
    last: dict[int, int] = {}
    for run in runs:
        for number, offset in zip(run.numbers, run.offsets, strict=True):
            if number > last.get(offset, -1):
                last[offset] = number
    kept = [
        run.keep(p for p, (n, o) in enumerate(zip(run.numbers, run.offsets, strict=True)) if last[o] == n)
        for run in runs
    ]
    return [run for run in kept if run.numbers]


def _disjoint(run: Run) -> bool:
    """Whether the targets of a run cannot overlap, by their bounds."""
    low, high = run.kind.region
    offsets = sorted(run.offsets)
    return all(b - a >= high - low for a, b in itertools.pairwise(offsets))


def _in_turn(runs: list[Run]) -> bool:
    """Whether each run ends before the next begins."""
    ordered = sorted(runs, key=lambda run: run.numbers[0])
    return all(a.numbers[-1] < b.numbers[0] for a, b in itertools.pairwise(ordered))


def _stays_wide(item: Item) -> bool:
    """Whether one write is work enough for a kernel of its own."""
    size = 1
    for extent in item.kind.shape:
        size *= extent
    return size >= WIDE or _overlaps_itself(item)


def _overlaps_itself(item: Item) -> bool:
    """Whether an item of more than one element reads what it writes at another position."""
    kind = item.kind
    storage, dtype, shape, strides = kind.storage, kind.dtype, kind.shape, kind.strides
    size = 1
    for extent in shape:
        size *= extent
    if size == 1:
        return False
    target = View(dtype, shape, strides, item.offset)
    for step, hole in kind.reads:
        if step.storage is not storage:
            continue
        read = View(step.dtype, step.shape, step.strides, int(item.holes[hole]))
        if read != target and read.overlaps(target):
            return True
    return False


def sequential(items: list[Item]) -> list[Group]:
    """A loop over a repeating body, or over a switch where the kinds follow no period; what is left stays single."""
    runs = _runs(items)
    first, end = _common(items, {run.kind: len(run.numbers) for run in runs})
    kinds = {run.kind: k for k, run in enumerate(runs)}
    order = np.array([kinds[item.kind] for item in items])
    period = _period(order[first:end])
    if period is None and len(items) < 2 * len(runs):
        return [Single(item, "too few entries of its kind") for item in items]
    if period is None:
        return [Sequential(len(items), [[run] for run in runs], order.tolist(), _ends(items), items)]
    turns = (end - first) // period
    end = first + turns * period
    rolled = items[first:end]
    body = [Run(item.kind) for item in rolled[:period]]
    for number, item in enumerate(rolled):
        body[number % period].add(number // period, item)
    return [
        *(Single(item, "the only one of its kind") for item in items[:first]),
        Sequential(turns, [body], None, _ends(rolled), rolled),
        *(Single(item, "the rest of a rolled loop") for item in items[end:]),
    ]


def _common(items: list[Item], counts: dict[Kind, int]) -> tuple[int, int]:
    """(first, past the last) of the items, without those at both ends that are the only ones of their kind."""
    first, end = 0, len(items)
    while first < end and counts[items[first].kind] == 1:
        first += 1
    while end > first and counts[items[end - 1].kind] == 1:
        end -= 1
    return first, end


def _period(order: Integers) -> int | None:
    """The shortest period of the kinds that repeats at least twice, if it is short."""
    for period in range(1, min(LONGEST_PERIOD, len(order) // 2) + 1):
        if (order[period:] == order[:-period]).all():
            return period
    return None
