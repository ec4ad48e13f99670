"""Re-rolling: runs of like entries become whole-array writes where nothing depends, sequential loops where it does."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from intaglio.ir.view import View
from intaglio.ops.elementwise import Elementwise
from intaglio.storage.skeleton import OpStep
from intaglio.storage.writes import Item, Kind, Run, Writes, bytes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from intaglio.storage.columns import Integers
    from intaglio.storage.skeleton import Pattern, ReadStep
    from intaglio.storage.storage import Storage

LONGEST_PERIOD: Final = 64  # how many writes the body of one rolled loop may have before it becomes a switch
WIDE: Final = 4096  # elements of one write from which a run at one fixed place is left as separate kernels
TURN: Final = 2048  # elements that the ops of a write compute, for each turn of a loop of it, from which it is so, too
WORK: Final = 1 << 17  # and for any number of turns


@dataclass(slots=True)
class Parallel:
    """Runs none of whose reads sees a write of the group: whole-array writes, in this order."""

    runs: list[Run]
    writes: Writes  # all that the group stands for: the runs leave out those that later ones overwrite


@dataclass(slots=True)
class Sequential:
    """Writes that depend on one another: a loop of `count` turns.

    With `selector` None there is one arm, and every turn runs its writes in order (one run a write: write k of each in
    turn k). Otherwise turn k runs arm `selector[k]`, and the writes of an arm's runs stand at their own `numbers`.
    """

    count: int
    arms: list[list[Run]]
    selector: list[int] | None
    writes: Writes  # all that the group stands for

    @property
    def runs(self) -> list[Run]:
        """The runs of all arms."""
        return [run for arm in self.arms for run in arm]


@dataclass(slots=True)
class Single:
    """A write that was not rolled, and why."""

    item: Item
    reason: str


Group: TypeAlias = Parallel | Sequential | Single


def roll(writes: Writes, prior: dict[Storage, int]) -> list[Group]:
    """The writes as groups that may run one after the other.

    Args:
        prior: The number of the last write of each storage before these.
    """
    groups: list[Group] = []
    for component in _components(writes):
        groups.extend(_roll_component(component, prior))
    groups.sort(key=_last)
    return groups


def flowing(writes: Writes) -> set[Storage]:
    """The storages that writes which may be a loop, since they depend on one another, write or read.

    Directly or through others.
    """
    found: set[Storage] = set()
    for part in _components(writes):
        if _may_repeat(part) and _has_flow(part):
            found.update(run.kind.storage for run in part.runs)
            found.update(step.storage for run in part.runs for step, _ in run.kind.reads)
    return found


def _may_repeat(writes: Writes) -> bool:
    """Whether a loop may be made of writes between wide ones: two are of one kind, or all write single elements.

    What reads its target is made aside in a loop, and so may be in it.
    """
    wide = np.zeros(len(writes), np.bool_)
    for run in writes.runs:
        wide[run.numbers] = is_wide(run.kind, len(run.numbers))
    bounds = _changes(wide)
    parts = [part for start, part in zip(bounds, writes.cut(bounds), strict=False) if not wide[start]]
    return any(len(part.runs) < len(part) or (len(part) > 1 and _are_elements(part)) for part in parts)


def is_wide(kind: Kind, turns: int) -> bool:
    """Whether a write is better made by kernels of its own than in the body of a loop of so many turns."""
    return kind.size >= WIDE or kind.pattern.is_in_parts or is_much(kind.pattern, turns)


def is_much(pattern: Pattern, turns: int) -> bool:
    """Whether a value is too much for the body of a loop of so many turns.

    Products are much slower there, and a step of training would take minutes to compile.
    """
    return pattern.work >= min(turns * TURN, WORK)


def meets(kind: Kind, step: ReadStep, distance: int) -> bool:
    """Whether a read so many bytes from the target overlaps it, and not just each element its own."""
    start = bytes_of(step.dtype, step.shape, step.strides)[0] + distance
    base = -min(kind.region[0], start)
    target = View(kind.dtype, kind.shape, kind.strides, base)
    read = View(step.dtype, step.shape, step.strides, base + distance)
    apart = all(isinstance(other.op, Elementwise) for other in kind.pattern.steps if isinstance(other, OpStep))
    return read.overlaps(target) and not (read == target and apart)


def _last(group: Group) -> int:
    """The number of the last write of a group."""
    return group.item.sequence if isinstance(group, Single) else int(group.writes.sequences[-1])


def _components(writes: Writes) -> list[Writes]:
    """Writes split by the storages that they write and share: none reads or writes what another part writes."""
    parent: dict[Storage, Storage] = {run.kind.storage: run.kind.storage for run in writes.runs}

    def find(storage: Storage) -> Storage:
        while parent[storage] is not storage:
            parent[storage] = parent[parent[storage]]
            storage = parent[storage]
        return storage

    for run in writes.runs:
        for step, _ in run.kind.reads:
            if step.storage in parent:
                parent[find(step.storage)] = find(run.kind.storage)
    parts: dict[Storage, list[Run]] = {}
    for run in writes.runs:
        parts.setdefault(find(run.kind.storage), []).append(run)
    return [writes.of(runs) for runs in parts.values()]


def _roll_component(writes: Writes, prior: dict[Storage, int]) -> list[Group]:
    """One component, as few groups as its dependences allow."""
    groups: list[Group] = []
    for stretch in writes.cut(_bounds(writes, prior)):
        groups.extend(_roll_stretch(stretch))
    return groups


def _roll_stretch(writes: Writes) -> list[Group]:
    """One stretch: whole-array writes, or a loop (around writes that are wide enough for kernels of their own)."""
    if len(writes) == 1:
        return _singles(writes, "one entry")
    flows = _has_flow(writes)
    if not flows and len(writes.runs) == len(writes):
        return _singles(writes, "the only one of its kind")
    if not flows:
        rolled = _parallel(writes)
        if rolled is not None:
            return [rolled]
        if not is_current(writes):
            return _singles(writes, "it reads what others overwrite before it")
    wide = np.zeros(len(writes), np.bool_)
    for run in writes.runs:
        wide[run.numbers] = _stay_wide(run)
    if not wide.any():
        return sequential(writes)
    groups: list[Group] = []
    bounds = _changes(wide)
    for start, part in zip(bounds, writes.cut(bounds), strict=False):  # all reads are current: cut anywhere
        groups.extend(
            _singles(part, "a wide write that depends on the one before") if wide[start] else _roll_stretch(part)
        )
    return groups


def _changes(wide: NDArray[np.bool_]) -> list[int]:
    """Where wide writes and others follow one another, both ends among these places."""
    return [0, *(np.flatnonzero(np.diff(wide)) + 1).tolist(), len(wide)]


def _singles(writes: Writes, reason: str) -> list[Group]:
    """Writes one by one."""
    return [Single(item, reason) for item in writes.items()]


def is_current(writes: Writes) -> bool:
    """Whether each read of some writes sees all of them before it: none is of an older moment."""
    written = _sequences_by_storage(writes)
    for run in writes.runs:
        for step, hole in run.kind.reads:
            sequences = written.get(step.storage)
            if sequences is None:
                continue
            places = np.searchsorted(sequences, run.sequences) - 1
            if ((places >= 0) & (sequences[places] > run.whole(hole + 1))).any():
                return False
    return True


def _bounds(writes: Writes, prior: dict[Storage, int]) -> list[int]:
    """Where to cut so that in each stretch every read sees what was there at its start, or every read is current.

    A read older than a write before it observes the moment between: no stretch has writes on both sides of one that
    matters, so that the moment is the end of some stretch.
    """
    if len(writes) == 1 or _is_one_stretch(writes, prior):
        return [0, len(writes)]
    items = writes.items()
    observed = _observed(items)
    bounds = [0]
    last: dict[object, int] = {}
    flows = stales = False
    earlier: dict[object, int] = {**prior}  # the last writes before the current stretch
    for place, item in enumerate(items):
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
        between = False
        if before is not None:
            seen = observed.get(item.storage, ())
            found = bisect_left(seen, before)
            between = found < len(seen) and seen[found] < item.sequence
        if outdated or between or ((flow or flows) and (stale or stales)):
            if bounds[-1] < place:
                bounds.append(place)
            earlier.update(last)
            last, flows, stales = {}, False, False
            flow = stale = False
            if any(earlier.get(step.storage, -1) > item.holes[hole + 1] for step, hole in item.kind.reads):
                bounds.append(place + 1)  # it reads what an earlier stretch has overwritten: alone, by its own stamps
                earlier[item.storage] = item.sequence
                continue
        flows, stales = flows or flow, stales or stale
        last[item.storage] = item.sequence
    if bounds[-1] < len(writes):
        bounds.append(len(writes))
    return bounds


def _is_one_stretch(writes: Writes, prior: dict[Storage, int]) -> bool:
    """Whether nothing asks for a cut, by whole columns: where it is False, there may be none to make all the same."""
    written = _sequences_by_storage(writes)
    before: dict[object, int] = {**prior}
    flows = stales = False
    for run in writes.runs:
        for step, hole in run.kind.reads:
            stamps = run.whole(hole + 1)
            if (stamps < before.get(step.storage, -1)).any():
                return False
            sequences = written.get(step.storage)
            if sequences is None:
                continue
            places = np.searchsorted(sequences, run.sequences) - 1
            newest = sequences[places]
            stale = (places >= 0) & (newest > stamps)
            if (stale & (stamps >= writes.sequences[0])).any():
                return False
            stales = stales or bool(stale.any())
            flows = flows or bool(((places >= 0) & (newest <= stamps)).any())
    return not (flows and stales)


def _sequences_by_storage(writes: Writes) -> dict[object, Integers]:
    """The numbers of the writes of each storage, in order."""
    found: dict[object, list[Integers]] = {}
    for run in writes.runs:
        found.setdefault(run.kind.storage, []).append(run.sequences)
    return {storage: np.sort(np.concatenate(own)) for storage, own in found.items()}


def _observed(items: list[Item]) -> dict[object, list[int]]:
    """For each storage, the moments between two of its writes that a read after the second one still sees, in order."""
    newest: dict[object, int] = {}
    found: dict[object, set[int]] = {}
    for item in items:
        for step, hole in item.kind.reads:
            stamp = int(item.holes[hole + 1])
            if newest.get(step.storage, -1) > stamp and stamp >= items[0].sequence:
                found.setdefault(step.storage, set()).add(stamp)
        newest[item.storage] = item.sequence
    return {storage: sorted(stamps) for storage, stamps in found.items()}


def _has_flow(writes: Writes) -> bool:
    """Whether some write reads bytes that an earlier one wrote (exact for equal elements, else by bounds)."""
    for storage in {run.kind.storage: None for run in writes.runs}:
        writers = [run for run in writes.runs if run.kind.storage is storage]
        readers = [(run, step, hole) for run in writes.runs for step, hole in run.kind.reads if step.storage is storage]
        if readers and (_exact_flow if _is_exact(writers, readers) else _bounded_flow)(writers, readers):
            return True
    return False


Reader: TypeAlias = "tuple[Run, ReadStep, int]"


def _is_exact(writers: list[Run], readers: list[Reader]) -> bool:
    """Whether two regions that are read or written are equal or disjoint: one size, on one grid of that size."""
    regions = {run.kind.region for run in writers} | {
        bytes_of(step.dtype, step.shape, step.strides) for _, step, _ in readers
    }
    if len(regions) > 1:
        return False
    low, high = next(iter(regions))
    size = high - low
    rest = writers[0].offsets[0] % size
    columns = [run.offsets for run in writers] + [run.whole(hole) for run, _, hole in readers]
    return all((column % size == rest).all() for column in columns)


def _exact_flow(writers: list[Run], readers: list[Reader]) -> bool:
    """Whether a read sees a write of the very same region, made before its stamp."""
    sequences = np.concatenate([run.sequences for run in writers])
    offsets = np.concatenate([run.offsets for run in writers])
    order = np.argsort(sequences)
    places, first = np.unique(offsets[order], return_index=True)
    made = sequences[order][first]  # the first write of each of the places
    for run, _, hole in readers:
        found = np.minimum(np.searchsorted(places, run.whole(hole)), len(places) - 1)
        if ((places[found] == run.whole(hole)) & (made[found] <= run.whole(hole + 1))).any():
            return True
    return False


def _bounded_flow(writers: list[Run], readers: list[Reader]) -> bool:
    """Whether a read's bounds overlap those of all writes so far: conservative."""
    order = np.argsort(np.concatenate([run.numbers for run in writers]))
    sequences = np.concatenate([run.sequences for run in writers])[order]
    lowest = np.minimum.accumulate(np.concatenate([run.offsets + run.kind.region[0] for run in writers])[order])
    highest = np.maximum.accumulate(np.concatenate([run.offsets + run.kind.region[1] for run in writers])[order])
    for run, step, hole in readers:
        low, high = bytes_of(step.dtype, step.shape, step.strides)
        offsets = run.whole(hole)
        before = np.searchsorted(sequences, run.whole(hole + 1), side="right") - 1
        meets = (offsets + low < highest[before]) & (offsets + high > lowest[before])
        if (meets & (before >= 0)).any():
            return True
    return False


def _parallel(writes: Writes) -> Parallel | None:
    """Whole-array writes with overwritten ones dropped, or None where the last writer of a place is not plain."""
    by_storage: dict[Storage, list[Run]] = {}
    for run in writes.runs:
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
    return Parallel(kept, writes)


def _same_grid(runs: list[Run], region: tuple[int, int]) -> bool:
    """Whether all targets are equal or disjoint: one size, on one grid of that size, each one solid."""
    size = region[1] - region[0]
    if any(run.kind.size * run.kind.dtype.itemsize != size for run in runs):
        return False
    rest = runs[0].offsets[0] % size
    return all((run.offsets % size == rest).all() for run in runs)


def _last_writers(runs: list[Run]) -> list[Run]:
    """The runs with only the last write of each place."""
    numbers = np.concatenate([run.numbers for run in runs])
    offsets = np.concatenate([run.offsets for run in runs])
    order = np.argsort(-numbers)
    places, first = np.unique(offsets[order], return_index=True)
    if len(places) == len(offsets):
        return runs
    last = numbers[order][first]
    kept = [run.keep(np.flatnonzero(last[np.searchsorted(places, run.offsets)] == run.numbers)) for run in runs]
    return [run for run in kept if len(run.numbers)]


def _disjoint(run: Run) -> bool:
    """Whether the targets of a run cannot overlap, by their bounds."""
    low, high = run.kind.region
    return bool((np.diff(np.sort(run.offsets)) >= high - low).all())


def _in_turn(runs: list[Run]) -> bool:
    """Whether each run ends before the next begins."""
    ordered = sorted(runs, key=lambda run: run.numbers[0])
    return all(a.numbers[-1] < b.numbers[0] for a, b in itertools.pairwise(ordered))


def _stay_wide(run: Run) -> NDArray[np.bool_]:
    """For each write of a run, whether it gets kernels of its own: by its work or ops, or as it reads its target."""
    kind, count = run.kind, len(run.numbers)
    found = np.full(count, is_wide(kind, count))
    if kind.size == 1 or found.all():
        return found
    for step, hole in kind.reads:
        if step.storage is kind.storage:
            distances, places = np.unique(run.whole(hole) - run.offsets, return_inverse=True)
            found |= np.array([meets(kind, step, distance) for distance in distances.tolist()])[places]
    return found


def sequential(writes: Writes) -> list[Group]:
    """A loop over a repeating body, or over a switch where the kinds follow no period.

    What comes before the first turn of the body and after its last are turns of their own, unless it is long.
    """
    kinds = writes.kinds
    first, end = _common(writes, kinds)
    period = _period(kinds[first:end])
    if period is None and len(writes) < 2 * len(writes.runs):
        if len(writes) <= LONGEST_PERIOD and _are_elements(writes):
            return [Sequential(1, [_arm(writes, kinds, 0, len(writes), np.arange(1))], None, writes)]
        return _singles(writes, "too few entries of its kind")
    if period is None:
        return [Sequential(len(writes), [[run] for run in writes.runs], kinds.tolist(), writes)]
    count = (end - first) // period
    end = first + count * period
    before, after = [], []
    if first > LONGEST_PERIOD:
        before = _singles(writes.between(0, first), "the only one of its kind")
    if len(writes) - end > LONGEST_PERIOD:
        after = _singles(writes.between(end, len(writes)), "the rest of a rolled loop")
    if before or after:
        start, stop = (first if before else 0), (end if after else len(writes))
        writes, first, end = writes.between(start, stop), first - start, end - start
        kinds = writes.kinds
    arms: list[list[Run]] = []
    selector: list[int] = []
    for start, length, turns in ((0, first, 1), (first, period, count), (end, len(writes) - end, 1)):
        if length:
            selector += [len(arms)] * turns
            arms.append(_arm(writes, kinds, start, length, np.arange(len(selector) - turns, len(selector))))
    return [*before, Sequential(len(selector), arms, selector if len(arms) > 1 else None, writes), *after]


def _are_elements(writes: Writes) -> bool:
    """Whether all writes are of single elements."""
    return all(run.kind.size == 1 for run in writes.runs)


def _arm(writes: Writes, kinds: Integers, start: int, length: int, turns: Integers) -> list[Run]:
    """The runs of a body of some length that begins at a write and runs in some turns in a row."""
    body: list[Run] = []
    for place in range(start, start + length):
        run = writes.runs[int(kinds[place])]
        wanted: Integers = (turns - turns[0]) * length + place
        own = run.keep(np.searchsorted(run.numbers, wanted))
        body.append(replace(own, numbers=turns))
    return body


def _common(writes: Writes, kinds: Integers) -> tuple[int, int]:
    """(first, past the last) of the writes, without those at both ends that are the only ones of their kind."""
    counts = np.array([len(run.numbers) for run in writes.runs])
    places = np.flatnonzero(counts[kinds] > 1)
    return (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)


def _period(order: Integers) -> int | None:
    """The shortest period of the kinds that repeats at least twice, if it is short."""
    for period in range(1, min(LONGEST_PERIOD, len(order) // 2) + 1):
        if (order[period:] == order[:-period]).all():
            return period
    return None
