"""What many reads of one storage give to its cotangent: those of one form together, as a whole array."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from intaglio.engine import realize as engine
from intaglio.grad.vjp import spread
from intaglio.ir.view import View
from intaglio.ops.elementwise import add
from intaglio.ops.memory import const, put
from intaglio.ops.movement import expand
from intaglio.storage.batch import supports
from intaglio.storage.build import whole_write
from intaglio.storage.reverse import is_there, read_of
from intaglio.storage.skeleton import Pattern, ReadStep, Step, of_node
from intaglio.storage.storage import Storage
from intaglio.storage.writes import Gathering, Item, Kind, is_on_grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.ir.node import Node
    from intaglio.storage.skeleton import Hole

    Share: TypeAlias = tuple[View, Node]  # a view that was read, and the cotangent of what was read
    Row: TypeAlias = tuple[int, tuple[Hole, ...]]  # the offset of a view, and the holes of its cotangent


def gathered(storage: Storage, shares: Sequence[Share]) -> Node:
    """The flat cotangent of a storage that shares add up to (at least one, all of one dtype)."""
    total: Node | None = None
    like: dict[tuple[tuple[int, ...], tuple[int, ...], Pattern], list[Row]] = {}
    for view, ct in shares:
        found = of_node(ct, again=True) if len(shares) > 1 else None
        if found is not None and supports(found[0]) and not found[0].is_in_parts and is_on_grid(view, *found):
            like.setdefault((view.shape, view.strides, found[0]), []).append((view.offset, found[1]))
        else:
            total = _plus(total, spread(view, ct, storage.nbytes // view.dtype.itemsize))
    dtype = shares[0][0].dtype
    for (shape, strides, pattern), rows in like.items():
        kind = Kind(storage, dtype, shape, strides, pattern, tuple(pattern.reads))
        total = _plus(total, _together(kind, rows))
    assert total is not None
    return total


def _plus(total: Node | None, part: Node) -> Node:
    """A sum that may be empty yet."""
    return part if total is None else add(total, part)


def _together(kind: Kind, rows: list[Row]) -> Node:
    """The flat cotangent from shares of one form."""
    storage = kind.storage
    kind, rows = _as_now(kind, rows)
    items = [Item(number, kind, offset, holes) for number, (offset, holes) in enumerate(rows)]
    ref = storage.ref if storage.ref is not None else engine.new_ref(storage.nbytes, storage.device)
    (run,) = Gathering(items).take().runs
    write = whole_write(run, Storage.read, ref)
    size = storage.nbytes // kind.dtype.itemsize
    if not write.indices:
        return spread(write.view, write.value, size)
    return put("add", expand(const(kind.dtype, 0), (size,)), write.value, *write.indices)


def _as_now(kind: Kind, rows: list[Row]) -> tuple[Kind, list[Row]]:
    """The same shares with reads that may be made now: what was overwritten is gathered in a storage of its own."""
    steps: list[Step] = []
    columns = [list(column) for column in zip(*(holes for _, holes in rows), strict=True)]
    hole = 0
    for step in kind.pattern.steps:
        moved = step
        if isinstance(step, ReadStep):
            seen = [(int(at), int(stamp)) for at, stamp in zip(columns[hole], columns[hole + 1], strict=True)]
            if not is_there(step, seen):
                each = View.contiguous(step.dtype, step.shape)
                kept = Storage(each.nbytes * len(seen), step.storage.device)
                whole = View.contiguous(step.dtype, (len(seen), *step.shape))
                kept.write_gathered(whole, [read_of(step, *place) for place in seen])
                moved = ReadStep(step.dtype, step.shape, each.strides, kept)
                columns[hole] = [each.nbytes * number for number in range(len(seen))]
        steps.append(moved)
        hole += step.holes
    pattern = Pattern(tuple(steps))
    made = Kind(kind.storage, kind.dtype, kind.shape, kind.strides, pattern, tuple(pattern.reads))
    holes = zip(*columns, strict=True) if columns else (() for _ in rows)
    return made, [(offset, own) for (offset, _), own in zip(rows, holes, strict=True)]
