"""Plans: the kernels of a program in order, made once for all programs of one structure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from intaglio.core.errors import InternalError
from intaglio.core.trace import GlobalCounters
from intaglio.engine import debug
from intaglio.ops.memory import Buffer, BufferRef, Window
from intaglio.schedule.alias import order
from intaglio.schedule.fuse import split, together, used
from intaglio.schedule.kernels import Copy, PlannedKernel, build
from intaglio.schedule.program import CopyTo, Hole, Repeat
from intaglio.schedule.structure import Structure

if TYPE_CHECKING:
    from collections.abc import Hashable

    from intaglio.engine.devices import Executable
    from intaglio.schedule.kernels import Slot
    from intaglio.schedule.program import Program, Statement

REMEMBERED: Final = 1 << 17  # values of all programs whose plans are remembered


@dataclass(slots=True)
class Plan:
    """A program ready to run.

    Attributes:
        kernels: Kernels and copies, in order.
        renamed: For the buffers that the program keeps, the buffers where their contents end up.
        fresh: The buffers that have no bytes yet.
        buffers: All buffers, in order of first use.
        lent: For fresh buffers that take the bytes of one that is dead by then, which one.
        loaded: The kernels compiled (None for copies), once they are: shared by all plans of one structure.
    """

    kernels: list[PlannedKernel | Copy]
    renamed: dict[BufferRef, BufferRef]
    fresh: set[BufferRef]
    buffers: list[BufferRef]
    lent: dict[BufferRef, BufferRef]
    loaded: list[Executable | None]


@dataclass(slots=True)
class _Template:
    """A plan over stand-ins: those of the program's buffers, in order, and those of the temporaries that it adds."""

    plan: Plan
    refs: list[BufferRef]
    temporaries: list[BufferRef]
    size: int


class Plans:
    """The plans that are remembered, the oldest forgotten first. Used under the engine's lock."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self.limit: Final = limit
        self._known: Final[OrderedDict[Hashable, _Template]] = OrderedDict()
        self._size: int = 0

    def plan(self, program: Program) -> Plan:
        """The kernels of a program, in the order in which they run."""
        structure = Structure(program)
        template = self._known.get(structure.key)
        if template is None:
            template = self._add(structure)
        else:
            self._known.move_to_end(structure.key)
        made = _bound(template, structure, program)
        debug.schedule(made.kernels)
        return made

    def _add(self, structure: Structure) -> _Template:
        """A plan made, and remembered unless it alone is too large."""
        program, refs = structure.stand_in()
        made = _plan(program)
        GlobalCounters.plan_count += 1
        template = _Template(made, refs, [ref for ref in made.fresh if ref not in set(refs)], structure.size)
        if template.size <= self.limit // 8:
            self._known[structure.key] = template
            self._size += template.size
            while self._size > self.limit:
                self._size -= self._known.popitem(last=False)[1].size
        return template


def _plan(program: Program) -> Plan:
    """The kernels of a program, made."""
    ordered = order(program)
    renamed: dict[BufferRef, BufferRef] = {}
    for ref in program.keep:
        home = ref
        while home in ordered.renamed:
            home = ordered.renamed[home]
        renamed[ref] = home
    statements = split(used(ordered.statements, set(renamed.values())), ordered.fresh)
    kernels: list[PlannedKernel | Copy] = []
    for group in together(statements):
        copy = _copy(group[0])
        kernels.append(copy if copy is not None else build(group))
    buffers = list(dict.fromkeys(ref for kernel in kernels for ref in kernel.buffers))
    lent = _lent(kernels, ordered.fresh, set(renamed.values()))
    return Plan(kernels, renamed, ordered.fresh, buffers, lent, [])


def _lent(
    kernels: list[PlannedKernel | Copy], fresh: set[BufferRef], kept: set[BufferRef]
) -> dict[BufferRef, BufferRef]:
    """Which buffers take the bytes of others of their size, that no kernel needs any more."""
    last = {ref: number for number, kernel in enumerate(kernels) for ref in kernel.buffers}
    idle: dict[tuple[str, int], list[BufferRef]] = {}
    seen: set[BufferRef] = set()
    found: dict[BufferRef, BufferRef] = {}
    for number, kernel in enumerate(kernels):
        for ref in kernel.buffers:
            spare = idle.get((ref.device, ref.nbytes))
            if ref in fresh and ref not in seen and spare:
                found[ref] = spare.pop()
            seen.add(ref)
        for ref in kernel.buffers:
            if last[ref] == number and ref in fresh and ref not in kept:
                idle.setdefault((ref.device, ref.nbytes), []).append(ref)
    return found


def _bound(template: _Template, structure: Structure, program: Program) -> Plan:
    """A template's plan over the buffers and numbers of a program."""
    old = template.plan
    new = dict(zip(template.refs, structure.refs, strict=True))
    starts = dict(zip(template.refs, structure.starts, strict=True))
    for ref in template.temporaries:
        new[ref], starts[ref] = BufferRef(ref.nbytes, ref.device), 0
    numbers = structure.numbers
    kernels: list[PlannedKernel | Copy] = []
    for kernel in old.kernels:
        if isinstance(kernel, Copy):
            view = kernel.view._replace(offset=kernel.view.offset + starts[kernel.source])
            kernels.append(Copy(new[kernel.source], view, new[kernel.target]))
            continue
        slots: list[Slot] = []
        for slot in kernel.slots:
            of, rest = slot
            if isinstance(of, BufferRef):
                slot = new[of], starts[of] + rest
            elif isinstance(of, Hole):
                slot = of.of, numbers[of.number].bits
            slots.append(slot)
        kernels.append(PlannedKernel(kernel.ast, tuple(slots), kernel.device, kernel.metadata, kernel.nbytes))
    renamed = {ref: ref for ref in program.keep}
    renamed.update((new[a], new[b]) for a, b in old.renamed.items())
    lent = {new[a]: new[b] for a, b in old.lent.items()}
    return Plan(kernels, renamed, {new[r] for r in old.fresh}, [new[r] for r in old.buffers], lent, old.loaded)


def _copy(statement: Statement) -> Copy | None:
    """The move between devices that a statement is, if it is one."""
    if isinstance(statement, Repeat):
        return None
    value = statement.value
    if isinstance(value.op, CopyTo):
        value = value.src[0]
    elif (
        not (isinstance(value.op, Window) and isinstance(value.src[0].op, Buffer))
        or value.src[0].op.ref.device == statement.ref.device
    ):
        return None
    if not (isinstance(value.op, Window) and isinstance(value.src[0].op, Buffer)):
        raise InternalError("engine: a copy of a value that is not in memory")
    if not statement.view.is_contiguous or statement.view.offset or statement.indices:
        raise InternalError("engine: a copy into part of a buffer")
    return Copy(value.src[0].op.ref, value.op.view, statement.ref)
