"""Kernels that were partitioned and have not run: they run before anybody touches what they read or write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from intaglio.core.config import settings_now
from intaglio.engine import realize as engine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from intaglio.engine.plan import Plan
    from intaglio.ir.node import Node
    from intaglio.ops.memory import BufferRef


@dataclass(eq=False, slots=True)
class Pending:
    """Kernels that were partitioned and have not run."""

    plan: Plan
    nodes: dict[BufferRef, Node]  # a buffer that they write -> ASSIGN(BUFFER, KERNEL)
    done: bool = False

    @property
    def touched(self) -> set[BufferRef]:
        """The buffers that they read or write."""
        return set(self.plan.buffers)

    def run(self) -> None:
        """Run them, once."""
        if not self.done:
            engine.execute(self.plan, self._finish, settings_now())

    def _finish(self) -> None:
        """Note that they have run."""
        self.done = True


postponed: Final[list[Pending]] = []  # in the order in which they must run


def waits_for(ref: BufferRef) -> bool:
    """Whether kernels that have not run write (or read) a buffer."""
    return any(ref in held.touched for held in postponed)


def assign_of(ref: BufferRef) -> Node | None:
    """ASSIGN(BUFFER, KERNEL) of a buffer that a kernel which has not run writes."""
    for held in reversed(postponed):
        if ref in held.nodes:
            return held.nodes[ref]
    return None


def run_postponed(used: Iterable[BufferRef]) -> None:
    """Run the postponed kernels that touch some buffers, and those that these need, in order."""
    if not postponed:
        return
    touched = set(used)
    chosen: list[Pending] = []
    for held in reversed(postponed):
        mine = held.touched
        if mine & touched:
            touched = touched | mine
            chosen.append(held)
    for held in reversed(chosen):
        held.run()
        postponed.remove(held)
