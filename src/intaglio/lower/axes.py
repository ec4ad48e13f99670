"""The axes of stores of one shape as loops: merged, or cut as they once were, so that few divisions are left."""

from __future__ import annotations

import itertools
import math
import operator
from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.ir.node import Node, walk
from intaglio.lower.loops import Place, has_fold
from intaglio.lower.ranges import has_division
from intaglio.ops.movement import Reshape

if TYPE_CHECKING:
    from intaglio.ir.node import Shape
    from intaglio.lower.values import Values

PANEL: Final = 32  # columns of a packed factor that lie together
Nest: TypeAlias = tuple[list[Place], list[Node]]  # stores, and the ranges of their loops


def in_loops(values: Values, group: list[Node], *, in_parts: bool) -> Nest:
    """Stores of one shape, and the ranges of their loops: as few as leave no division of them.

    Args:
        in_parts: Whether the first axis is cut in parts, and so stays what it is.
    """
    shape = group[0].src[0].shape
    index = values.index
    ways = [(shape[0], *m) for m in _mergings(shape[1:])] if in_parts else _mergings(shape)
    merged = [m for m in ways if all(index.fits(n) for n in m)]
    least = index.least
    best: Nest | None = None
    for extents in [*merged, *([] if index.sized or in_parts else _cut_as_they_were(group))]:
        index.least = least
        made = _by_extents(values, group, extents)
        whole = not _has_division(made, made[1])
        if whole or best is None or extents is merged[-1]:
            best = made
        if whole:
            break
    assert best is not None
    if not in_parts and shape and shape[-1] % PANEL == 0 and shape[-1] > PANEL:
        best = _in_panels(values, group, best)
    return best


def _by_extents(values: Values, group: list[Node], extents: tuple[int, ...]) -> Nest:
    """Stores of one shape in loops of other extents that have the same product."""
    scalar = values.scalarize()
    own = [scalar.range(n) for n in extents]
    position = values.index.flatten(tuple(own), extents)
    indices = values.index.unflatten(position, group[0].src[0].shape)
    return [values.place(node, indices, scalar) for node in group], own


def _in_panels(values: Values, group: list[Node], best: Nest) -> Nest:
    """The nest with its last axis split in panels, where a factor that was packed so leaves divisions otherwise."""
    places, own = best
    if not has_fold(places) or not _has_division(best, own[-1:]):
        return best
    shape = group[0].src[0].shape
    scalar = values.scalarize()
    *lead, panel, column = (scalar.range(n) for n in (*shape[:-1], shape[-1] // PANEL, PANEL))
    indices = (*lead, values.index.sum([(panel, PANEL), (column, 1)]))
    made = [values.place(node, indices, scalar) for node in group]
    rows = [*lead[:-1], panel, *lead[-1:], column]
    return best if _has_division((made, rows), [panel, column]) else (made, rows)


def _has_division(nest: Nest, ranges: list[Node]) -> bool:
    """Whether places or values divide what depends on one of some ranges."""
    places, _ = nest
    roots = [p.index for p in places] + [p.value for p in places]
    return any(has_division(roots, r) for r in ranges)


def _mergings(shape: Shape) -> list[Shape]:
    """The shape with adjacent axes merged into one, two or three, most merged first, and the shape itself last."""
    found: dict[Shape, None] = {}
    for count in range(min(3, len(shape) - 1)):
        for inner in itertools.combinations(range(1, len(shape)), count):
            cuts = (0, *inner, len(shape))
            extents = tuple(math.prod(shape[a:b]) for a, b in itertools.pairwise(cuts))
            if count == 0 or 1 not in extents:
                found[extents] = None
    found[shape] = None
    return list(found)


def _cut_as_they_were(group: list[Node]) -> list[Shape]:
    """The extents of a shape, cut where the axes that reshapes merged into it were: none where that gives no axes."""
    shape = group[0].src[0].shape
    size = math.prod(shape)
    ends = {*_ends(shape)}
    for node in walk(store.src[1] for store in group):
        if isinstance(node.op, Reshape) and node.size == size:
            ends.update(_ends(node.src[0].shape))
    if not size or len(ends) == len({*_ends(shape)}):
        return []
    order = sorted(ends)
    if any(b % a for a, b in itertools.pairwise(order)):
        return []
    return [tuple(b // a for a, b in reversed(list(itertools.pairwise(order))))]


def _ends(shape: Shape) -> list[int]:
    """How many elements the last axes of a shape have together: none of them, one, two, and so on."""
    return list(itertools.accumulate(reversed(shape), operator.mul, initial=1))
