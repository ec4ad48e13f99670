"""The journal in words: what is pending, the loops that it will become, and why some writes were not rolled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from intaglio.core.words import counted
from intaglio.storage import reroll
from intaglio.storage.grouping import Grouping
from intaglio.storage.journal import Elements, Segment
from intaglio.storage.nests import order_of, parts_of
from intaglio.storage.slice import Slice

if TYPE_CHECKING:
    from intaglio.storage.journal import AnyEntry
    from intaglio.storage.storage import Storage


@dataclass(frozen=True, slots=True)
class Report:
    """Lines of text, one for each group of pending writes."""

    entries: int
    lines: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(
            (counted(self.entries, "pending entry", "pending entries"), *(f"  {line}" for line in self.lines))
        )


def report(storage: Storage) -> Report:
    """What is pending on a storage (and on those that it reads): what a read of it would make of that."""
    part = Slice([storage], (), ())
    part.find_own()
    part.find_lost()
    entries = part.entries()
    homes: set[Storage] = set()
    lines: list[str] = []
    for step in Grouping(part, homes).steps(entries):
        if isinstance(step, tuple):
            owner, entry = step
            lines.append(_alone(entry))
            touched = {owner}
        else:
            lines.append(_line(step))
            touched = {step.item.storage} if isinstance(step, reroll.Single) else {*step.writes.ends}
        homes.update(touched)
    return Report(sum(len(e.ends()) if isinstance(e, Elements) else 1 for _, e in entries), tuple(lines))


def _alone(entry: AnyEntry) -> str:
    """One entry that is not rolled, in words."""
    if isinstance(entry, Segment):
        target = f"{entry.view.dtype.name}{list(entry.view.shape)}"
        return f"{counted(len(entry.numbers), 'number')} into {target}: one whole-array write"
    return "one write that is not rolled: a scatter, or too large to be the body of a loop"


def _line(group: reroll.Group) -> str:
    """One group in words."""
    match group:
        case reroll.Single(item=item, reason=reason):
            return f"one write of {item.kind.dtype.name}{list(item.kind.shape)}: {reason}"
        case reroll.Parallel(runs=runs):
            counts = ", ".join(f"{len(run.numbers)} of {run.kind.dtype.name}{list(run.kind.shape)}" for run in runs)
            return f"writes that depend on nothing in between ({counts}): {len(runs)} whole-array write(s)"
        case reroll.Sequential():
            return f"writes that depend on those before: {_turns(group)}"


def _turns(group: reroll.Sequential) -> str:
    """How a loop runs, in words."""
    parts = parts_of(group)
    orders = [order_of(part) for part in parts]
    if not any(orders):
        how = "a body of" if group.selector is None else "a switch over"
        return f"one loop of {group.count} turns with {how} {len(group.runs)} write(s)"
    found: list[str] = []
    for part, order in zip(parts, orders, strict=True):
        turns, each = (part.count, "") if order is None else (order.count, f" of {part.count // order.count} at once")
        found.append(f"one loop of {turns} turns{each} with a body of {len(part.runs)} write(s)")
    return ", then ".join(found)
