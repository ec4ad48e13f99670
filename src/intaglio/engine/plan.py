"""Plans: the kernels of a program in order, made once for all programs of one structure."""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import IntaglioError, InternalError
from intaglio.core.size import UnsizedError, at, varies
from intaglio.core.trace import GlobalCounters
from intaglio.engine import debug
from intaglio.engine.devices import load
from intaglio.ir.node import walk
from intaglio.ops.memory import Buffer, BufferRef, Window
from intaglio.schedule.alias import order
from intaglio.schedule.chains import Chain, chained
from intaglio.schedule.fuse import is_product, split, together, used
from intaglio.schedule.kernels import Copy, PlannedKernel, build, sized
from intaglio.schedule.program import CopyTo, Hole, Repeat, Write
from intaglio.schedule.sizes import apart, fits, is_uniform, put_together, take_apart, view_at
from intaglio.schedule.structure import Structure, stand_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.engine.devices import Executable
    from intaglio.schedule.kernels import Slot
    from intaglio.schedule.program import Program, Statement
    from intaglio.schedule.sizes import Fit, Skeleton
    from intaglio.schedule.structure import Key

REMEMBERED: Final = 1 << 17  # values of all programs whose plans are remembered
FAMILIES: Final = 512  # skeletons that are remembered
SIZED: Final = 4096  # values of a program up to which it is planned for all sizes at once
SMALL: Final = 1 << 18  # elements up to which a program is better planned for all sizes than compiled for each
HOPELESS: Final = 32  # structures of a skeleton that no template served, after which none is looked for
FEW: Final = 3  # sizes of a small program for which it is compiled; those after are served by one plan
MANY: Final = 8  # and of a large one


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
    """A plan over stand-ins: those of the program's buffers, in order, and those of its own temporaries."""

    plan: Plan
    refs: list[BufferRef]
    temporaries: list[BufferRef]


@dataclass(slots=True)
class _Sized:
    """A template at the nominal size, for sizes from `least` on at which no more views meet than there."""

    template: _Template
    fit: Fit
    apart: list[bool]
    least: int

    def size(self, key: Key, numbers: list[int]) -> int | None:
        """The size of a structure of this skeleton, if the template serves it."""
        n = self.fit.size(numbers)
        if n is None or n < self.least:
            return None
        meets_anew = any(here and not now for here, now in zip(self.apart, apart(key), strict=True))
        return None if meets_anew else n


@dataclass(slots=True)
class _Family:
    """The structures of one skeleton: the templates for many sizes, and the integers of the last that none served."""

    sized: list[_Sized] = field(default_factory=list)
    samples: deque[list[int]] = field(default_factory=lambda: deque(maxlen=MANY + 1))
    unserved: int = 0

    def find(self, key: Key, numbers: list[int]) -> tuple[_Template, int] | None:
        """A template that serves a structure, and its size."""
        for served in self.sized:
            n = served.size(key, numbers)
            if n is not None:
                return served.template, n
        return None


class Plans:
    """The plans that are remembered, the oldest forgotten first. Used under the engine's lock."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self.limit: Final = limit
        self._known: Final[OrderedDict[Key, tuple[_Template, int, int]]] = OrderedDict()  # with size n, and values
        self._families: Final[OrderedDict[Skeleton, _Family]] = OrderedDict()
        self._size: int = 0

    def clear(self) -> None:
        """Forget all plans."""
        self._known.clear()
        self._families.clear()
        self._size = 0

    def plan(self, program: Program) -> Plan:
        """The kernels of a program, in the order in which they run."""
        structure = Structure(program)
        known = self._known.get(structure.key)
        if known is not None:
            self._known.move_to_end(structure.key)
            template, n, _ = known
        else:
            template, n = self._of_any_size(structure) or (_template(*stand_in(structure.key)), 0)
            self._remember(structure, template, n)
        made = _bound(template, structure, program, n)
        debug.schedule(program, made.kernels)
        return made

    def _remember(self, structure: Structure, template: _Template, n: int) -> None:
        """Keep which plan serves a structure, unless that alone is too large."""
        if structure.size <= self.limit // 8:
            self._known[structure.key] = template, n, structure.size
            self._size += structure.size
            while self._size > self.limit:
                self._size -= self._known.popitem(last=False)[1][2]

    def _of_any_size(self, structure: Structure) -> tuple[_Template, int] | None:
        """The plan at the nominal size that serves a structure, and its size, once there were enough of its kind."""
        if structure.size > SIZED:
            return None
        skeleton, numbers = take_apart(structure.key)
        family = self._families.setdefault(skeleton, _Family())
        self._families.move_to_end(skeleton)
        if len(self._families) > FAMILIES:
            self._families.popitem(last=False)
        found = family.find(structure.key, numbers)
        if found is None and family.unserved < HOPELESS:
            family.samples.append(numbers)
            family.unserved += 1
            if len(family.samples) > (FEW if structure.largest <= SMALL else MANY):
                try:
                    family.sized.extend(_of_sizes(structure.key, family.samples))
                except UnsizedError:
                    family.unserved = HOPELESS
                found = family.find(structure.key, numbers)
        return found


def _template(program: Program, refs: list[BufferRef], *, nominal: bool = False) -> _Template:
    """A program over stand-ins planned.

    Raises: UnsizedError if it is at the nominal size and cannot be planned so.
    """
    made = _plan(program, nominal=nominal)
    GlobalCounters.plan_count += 1
    return _Template(made, refs, list(made.fresh.difference(refs)))


def _of_sizes(key: Key, samples: Sequence[list[int]]) -> list[_Sized]:
    """The plan of a structure for all sizes, if its integers follow from one: planned and compiled at the nominal size.

    Raises: UnsizedError if that cannot be done.
    """
    for found in fits(samples):
        nominal = put_together(key, found.nominal)
        if not is_uniform(nominal):
            continue
        separate = apart(nominal)
        try:
            program, refs = stand_in(nominal)
        except IntaglioError:
            continue  # a value does not exist at that size: it reaches past what it is cut from, say
        template = _template(program, refs, nominal=True)
        loaded = template.plan.loaded
        loaded.extend([None if isinstance(k, Copy) else load(k) for k in template.plan.kernels])
        least = max((e.lowered.least for e in loaded if e is not None), default=0)
        return [_Sized(template, found, separate, least)]
    return []


def _plan(program: Program, *, nominal: bool) -> Plan:
    """The kernels of a program, made."""
    ordered = order(program)
    renamed: dict[BufferRef, BufferRef] = {}
    for ref in program.keep:
        home = ref
        while home in ordered.renamed:
            home = ordered.renamed[home]
        renamed[ref] = home
    statements = split(used(ordered.statements, set(renamed.values())), ordered.fresh)
    if nominal:
        _no_products(statements)
    kernels: list[PlannedKernel | Copy] = []
    private = ordered.fresh - set(renamed.values())
    parts: list[list[Statement] | Chain] = [statements] if nominal else chained(statements, private)
    for group in itertools.chain.from_iterable([p] if isinstance(p, Chain) else together(p) for p in parts):
        copy = None if isinstance(group, Chain) else _copy(group[0])
        if copy is not None:
            kernels.append(copy)
        else:
            kernels.append(sized(build(group)) if nominal else build(group))
    buffers = list(dict.fromkeys(ref for kernel in kernels for ref in kernel.buffers))
    lent = _lent(kernels, ordered.fresh, set(renamed.values()))
    return Plan(kernels, renamed, ordered.fresh, buffers, lent, [])


def _no_products(statements: list[Statement]) -> None:
    """See that no product varies in size: its tiles are worth a kernel for each.

    Raises: UnsizedError if one does.
    """
    for node in walk(s.value for s in statements if isinstance(s, Write)):
        if is_product(node) and any(map(varies, node.src[0].shape)):
            raise UnsizedError("a product of two matrices")


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


def _bound(template: _Template, structure: Structure, program: Program, n: int) -> Plan:
    """A template's plan over the buffers and numbers of a program; at size n if it is at the nominal size."""
    old = template.plan
    new = dict(zip(template.refs, structure.refs, strict=True))
    starts = dict(zip(template.refs, structure.starts, strict=True))
    for ref in template.temporaries:
        new[ref], starts[ref] = BufferRef(at(ref.nbytes, n), ref.device), 0
    numbers = structure.numbers
    kernels: list[PlannedKernel | Copy] = []
    for kernel in old.kernels:
        if isinstance(kernel, Copy):
            if starts[kernel.target]:
                raise InternalError("engine: a copy into part of a buffer")
            view = view_at(kernel.view, n)
            view = view._replace(offset=view.offset + starts[kernel.source])
            kernels.append(Copy(new[kernel.source], view, new[kernel.target]))
            continue
        slots: list[Slot] = []
        for slot in kernel.slots:
            of, rest = slot
            if isinstance(of, BufferRef):
                slot = new[of], starts[of] + at(rest, n)
            elif isinstance(of, Hole):
                slot = of.of, numbers[of.number].bits
            elif n and of is dtypes.int64 and varies(value := int(of.from_bits(rest))):
                slot = of, of.to_bits(at(value, n))
            slots.append(slot)
        kernels.append(replace(kernel, slots=tuple(slots), nbytes=at(kernel.nbytes, n), size=n))
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
