"""Nests of loops whose writes depend on one another: which axes must run in order, and along which all runs at once.

Two accesses of one byte, at least one of which writes it, keep their order. For affine places the distances between
such turns are known: of a nest over i and j, `t[i, j] = t[i - 1, j]` reads what was written at distance (-1, 0). Run in
order along i alone, with all j at once, nothing changes places.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.storage.columns import Nest, affine, common_nest, integers
from intaglio.storage.skeleton import NumberStep
from intaglio.storage.writes import bytes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.storage.columns import Affine, Integers
    from intaglio.storage.reroll import Sequential
    from intaglio.storage.skeleton import ReadStep
    from intaglio.storage.storage import Storage
    from intaglio.storage.writes import Kind, Run

FEW: Final = 256  # steps of one search for distances
PARTS: Final = 6  # loops of one kernel at most
AXES: Final = 6  # of a nest at most
LEAST: Final = 4  # neighbours along an axis from which it is worth a vector, and at which a row of turns is cut
APART: Final = 128  # lanes that lie apart and need their neighbours: as many lines as stay in the first cache

Distance: TypeAlias = tuple[int | None, ...]  # None: any


@dataclass(frozen=True, slots=True)
class Order:
    """How a nest runs: in order along some axes (outermost first), all at once along the others.

    With `free`, what runs along the first of the others depends on nothing at another place along it, in any turn.
    """

    nest: Nest
    turns: tuple[int, ...]
    lanes: tuple[int, ...]
    free: bool

    @property
    def count(self) -> int:
        """How many turns there are."""
        return math.prod(self.nest.extents[a] for a in self.turns)


@dataclass(frozen=True, slots=True)
class _Access:
    """The bytes that a statement of a nest writes, or one of its reads reads, by the digits of the nest."""

    form: Affine
    what: Kind | ReadStep
    statement: int
    writes: bool


def parts_of(group: Sequential) -> list[Sequential]:
    """A loop whose arms run one after the other, each in turns in a row, as a loop for each; else the loop."""
    if group.selector is None or len(group.arms) > PARTS:
        return [group]
    parts: list[Sequential] = []
    turns = 0
    for arm in sorted(group.arms, key=lambda arm: arm[0].numbers[0]):
        first, count = int(arm[0].numbers[0]), len(arm[0].numbers)
        if first != turns or int(arm[0].numbers[-1]) != first + count - 1:
            return [group]
        own = [replace(run, numbers=run.numbers - first) for run in arm]
        parts.append(replace(group, count=count, arms=[own], selector=None))
        turns += count
    return parts


def order_of(group: Sequential) -> Order | None:
    """How a loop of one arm is run as a nest, some axes of which run at once; None where it has none."""
    if group.selector is not None or group.count < 2 * LEAST:
        return None
    nest = common_nest(group.count, _columns(group))
    found = _order(group, nest)
    if found is not None or len(nest.extents) != 1:
        return found
    width = _width(group, nest)
    return _order(group, Nest((group.count // width, width))) if width is not None else None


def _columns(group: Sequential) -> list[Integers]:
    """The columns of a nest: what is written, then what is read, then numbers."""
    places = [run.offsets for run in group.runs]
    places += [run.whole(hole) for run in group.runs for _, hole in run.kind.reads]
    return [*places, *(column for run in group.runs for column in _numbers(run))]


def _numbers(run: Run) -> list[Integers]:
    """The columns of integers of a run."""
    found: list[Integers] = []
    hole = 0
    for step in run.kind.pattern.steps:
        if isinstance(step, NumberStep) and not step.dtype.is_bool:
            column = integers(run.column(hole))
            if column is not None:
                found.append(column)
        hole += step.holes
    return found


def _order(group: Sequential, nest: Nest) -> Order | None:
    """The best order of a nest, if some axes may run at once."""
    rank = len(nest.extents)
    distances = _distances(group, nest) if rank <= AXES else None
    if distances is None:
        return None
    best: tuple[tuple[bool, int], Order] | None = None
    steps = [_coefficients(run.offsets, nest) for run in group.runs]
    for size in range(rank):
        for turns in itertools.combinations(range(rank), size):
            if not all(_keeps(distance, apart, turns) for distance, apart in distances):
                continue
            together = [a for a in range(rank) if a not in turns]
            free = {a for a in together if all(distance[a] == 0 for distance, _ in distances)}
            lanes = tuple(sorted(together, key=lambda a: (a not in free, -abs(steps[0][a]))))
            near = any(_is_near(group, steps, a, nest) for a in together)
            count = math.prod(nest.extents[a] for a in lanes)
            if count == 1 or (not near and not free and count > APART):
                continue
            if best is None or (near, count) > best[0]:
                best = (near, count), Order(nest, turns, lanes, lanes[0] in free)
    return best[1] if best is not None else None


def _coefficients(column: Integers, nest: Nest) -> tuple[int, ...]:
    """The steps of an affine column."""
    form = affine(column, nest)
    assert form is not None
    return tuple(int(c) for c in form.coefficients)


def _is_near(group: Sequential, steps: Sequence[tuple[int, ...]], axis: int, nest: Nest) -> bool:
    """Whether what is written is of neighbours in memory along an axis, or in each turn."""
    return all(
        (own[axis] == run.kind.dtype.itemsize and nest.extents[axis] >= LEAST)
        or (bool(run.kind.shape) and run.kind.strides[-1] == run.kind.dtype.itemsize and run.kind.shape[-1] >= LEAST)
        for run, own in zip(group.runs, steps, strict=True)
    )


def _width(group: Sequential, nest: Nest) -> int | None:
    """How many turns in a row of a plain loop reach no further back than the first of them, as a part of all turns."""
    distances = _distances(group, nest)
    if not distances or any(distance[0] is None for distance, _ in distances):
        return None
    reach = min((abs(d) for (d,), _ in distances if d), default=group.count)
    whole = [w for k in range(1, math.isqrt(group.count) + 1) if group.count % k == 0 for w in (k, group.count // k)]
    return max((w for w in whole if LEAST <= w <= reach and w < group.count), default=None)


def _keeps(distance: Distance, apart: int, turns: tuple[int, ...]) -> bool:
    """Whether two accesses at a distance keep their order where only some axes run in order.

    Args:
        apart: The sign of how far the statement of one comes after that of the other, in the same turn.
    """
    signs = ((-1, 0, 1) if d is None else ((d > 0) - (d < 0),) for d in distance)
    for sign in itertools.product(*signs):
        before = next((s for s in sign if s), apart)
        after = next((sign[a] for a in turns if sign[a]), apart)
        if before != after:
            return False
    return True


# -- distances


def _distances(group: Sequential, nest: Nest) -> set[tuple[Distance, int]] | None:
    """How far apart turns are that touch common bytes, one of them writing: with the sign of how far statements are.

    None where places are not affine, or distances are too many.
    """
    accesses = _accesses(group, nest)
    if accesses is None:
        return None
    found: set[tuple[Distance, int]] = set()
    for own in accesses.values():
        for write in own:
            if not write.writes:
                continue
            for other in own:
                distances = _between(write, other, nest)
                if distances is None:
                    return None
                apart = (write.statement > other.statement) - (write.statement < other.statement)
                found.update((d, apart) for d in distances if apart or any(x != 0 for x in d))
    return found


def _accesses(group: Sequential, nest: Nest) -> dict[Storage, list[_Access]] | None:
    """What is read and written of each storage that is written; None where some place is not affine."""
    found: dict[Storage, list[_Access]] = {run.kind.storage: [] for run in group.runs}
    for number, run in enumerate(group.runs):
        places: list[tuple[Kind | ReadStep, Integers, bool]] = [(run.kind, run.offsets, True)]
        places += [(step, run.whole(hole), False) for step, hole in run.kind.reads]
        for what, column, writes in places:
            if what.storage not in found:
                continue
            form = affine(column, nest)
            if form is None:
                return None
            found[what.storage].append(_Access(form, what, number, writes))
    return found


def _between(first: _Access, second: _Access, nest: Nest) -> set[Distance] | None:
    """The distances from turns of one access to those of another that touch common bytes; None if there are many."""
    a, b = first.what, second.what
    terms: list[tuple[int, int, int | None]] = []  # (step, extent, axis) of what both do alike
    loose: set[int] = set()
    start = int(second.form.base) - int(first.form.base)
    if (a.shape, a.strides) == (b.shape, b.strides):
        (low, high), (left, right) = (0, a.dtype.itemsize), (0, b.dtype.itemsize)
        terms += [(step, extent, None) for step, extent in zip(a.strides, a.shape, strict=True) if step and extent > 1]
    else:
        (low, high), (left, right) = (bytes_of(w.dtype, w.shape, w.strides) for w in (a, b))
    low, high = start + left - high + 1, start + right - low - 1
    for axis, extent in enumerate(nest.extents):
        step, other = int(first.form.coefficients[axis]), int(second.form.coefficients[axis])
        if step == other != 0:
            terms.append((step, extent, axis))
            continue
        loose.add(axis)
        reach = extent - 1
        low -= max(0, step * reach) - min(0, other * reach)
        high -= min(0, step * reach) - max(0, other * reach)
    terms.sort(key=lambda term: -abs(term[0]))
    solved = _solve([term[:2] for term in terms], low, high)
    if solved is None:
        return None
    found: set[Distance] = set()
    for solution in solved:
        known = {axis: x for (_, _, axis), x in zip(terms, solution, strict=True)}
        found.add(tuple(None if a in loose and e > 1 else known.get(a, 0) for a, e in enumerate(nest.extents)))
    return found


def _solve(terms: Sequence[tuple[int, int]], low: int, high: int) -> list[tuple[int, ...]] | None:
    """All x, |x[k]| < extent[k], for which the sum of step[k] * x[k] is from low to high; None if there are many.

    Args:
        terms: Pairs of a step that is not 0 and an extent, the largest steps first.
    """
    left = [0]
    for step, extent in reversed(terms):
        left.append(left[-1] + abs(step) * (extent - 1))
    partial: list[tuple[tuple[int, ...], int]] = [((), 0)]
    looked = 0
    for (step, extent), rest in zip(terms, reversed(left[:-1]), strict=True):
        following: list[tuple[tuple[int, ...], int]] = []
        for xs, total in partial:
            least, most = low - rest - total, high + rest - total
            if step < 0:
                least, most = -most, -least
            first = max(1 - extent, -(-least // abs(step)))
            last = min(extent - 1, most // abs(step))
            looked += max(0, last - first + 1)
            if looked > FEW:
                return None
            following.extend(((*xs, x), total + step * x) for x in range(first, last + 1))
        partial = following
    return [xs for xs, total in partial if low <= total <= high]
