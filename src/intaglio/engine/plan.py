"""Plans: the kernels of a program in order, made once for all programs of one structure."""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from intaglio.core.config import settings_now
from intaglio.core.dtypes import dtypes
from intaglio.core.errors import IntaglioError, InternalError
from intaglio.core.size import UnsizedError, at, varies
from intaglio.core.trace import GlobalCounters
from intaglio.engine import debug
from intaglio.engine.devices import threads_now
from intaglio.engine.form import Form, Template, literal_at
from intaglio.ir.node import walk
from intaglio.ops.memory import Buffer, BufferRef, Const, Window
from intaglio.schedule.alias import order
from intaglio.schedule.chains import Chain, chained
from intaglio.schedule.fuse import is_product, split, together, used
from intaglio.schedule.kernels import Copy, PlannedKernel, build, sized
from intaglio.schedule.pieces import whole_up_to
from intaglio.schedule.program import CopyTo, Hole, Repeat, Write
from intaglio.schedule.prologues import with_prologues
from intaglio.schedule.sizes import apart, fits, is_uniform, put_together, take_apart, view_at
from intaglio.schedule.structure import Structure, stand_in

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from intaglio.core.config import Config
    from intaglio.engine.form import Move, Stretch
    from intaglio.schedule.kernels import Slot
    from intaglio.schedule.program import Program, Statement
    from intaglio.schedule.sizes import Fit, Skeleton
    from intaglio.schedule.structure import Key

REMEMBERED: Final = 1 << 17  # values of all programs whose plans are remembered
KEYS: Final = 1 << 24  # bytes of keys of numbers that are remembered
FORMS: Final = 64  # forms under one such key, by the literals that stay in kernels
FAMILIES: Final = 512  # skeletons that are remembered
SIZED: Final = 4096  # values of a program up to which it is planned for all sizes at once
SMALL: Final = 1 << 18  # elements up to which a program is better planned for all sizes than compiled for each
HOPELESS: Final = 32  # structures of a skeleton that no template served, after which none is looked for
FEW: Final = 3  # sizes of a small program for which it is compiled; those after are served by one plan
MANY: Final = 8  # and of a large one


class Plan:
    """A program ready to run: a form, over its buffers and numbers.

    Attributes:
        form: What all programs of its structure share.
        refs: The buffers of the program, then the temporaries that have names: as the form numbers them.
        starts: For each, the byte from which the form sees it.
        numbers: The literals that kernels take as arguments.
        renamed: For the buffers that the program keeps, the buffers where their contents end up.
    """

    def __init__(
        self,
        form: Form,
        refs: list[BufferRef],
        starts: list[int],
        numbers: list[Const],
        keep: Collection[BufferRef] = (),
    ) -> None:
        if form.temporaries:
            refs = refs + [BufferRef(nbytes, device) for nbytes, device in form.temporaries]
            starts = starts + [0] * len(form.temporaries)
        self.form: Final = form
        self.refs: Final = refs
        self.starts: Final = starts
        self.numbers: Final = numbers
        self.renamed: Final = {ref: ref for ref in keep} if keep else {}
        for a, b in form.renamed:
            self.renamed[self.refs[a]] = self.refs[b]

    @property
    def buffers(self) -> list[BufferRef]:
        """All buffers with names that kernels use, in order of first use."""
        return [self.refs[number] for number in self.form.used]

    def steps(self, beam: int) -> list[Stretch | Move]:
        """What is done in order: kernels, compiled (and searched for, as BEAM says), and copies."""
        return self.form.steps(beam, len(self.numbers), lambda: self.kernels)

    @cached_property
    def kernels(self) -> list[PlannedKernel | Copy]:
        """Kernels and copies, in order, with the buffers and numbers of the program."""
        template, names, n = self.form.template, self.form.names, self.form.size
        private = {ref: BufferRef(*of) for ref, of in self.form.private.items()}
        new = dict(zip(names, self.refs, strict=True)) | private
        starts = dict(zip(names, self.starts, strict=True)) | dict.fromkeys(private, 0)

        def bound(kernel: PlannedKernel | Copy) -> PlannedKernel | Copy:
            if isinstance(kernel, Copy):
                view = view_at(kernel.view, n)
                view = view._replace(offset=view.offset + starts[kernel.source])
                return Copy(new[kernel.source], view, new[kernel.target])
            slots: list[Slot] = []
            for of, rest in kernel.slots:
                if isinstance(of, BufferRef):
                    slots.append((new[of], starts[of] + at(rest, n)))
                elif isinstance(of, Hole):
                    slots.append((of.of, self.numbers[of.number].bits))
                else:
                    slots.append((of, literal_at(of, rest, n)))
            return replace(kernel, slots=tuple(slots), nbytes=at(kernel.nbytes, n), size=n)

        return [bound(kernel) for kernel in template.kernels]


@dataclass(slots=True)
class _Sized:
    """A template at the nominal size, for sizes from `least` to its most at which no more views meet than there."""

    template: Template
    fit: Fit
    apart: list[bool]
    least: int

    def size(self, key: Key, numbers: list[int]) -> int | None:
        """The size of a structure of this skeleton, if the template serves it."""
        n = self.fit.size(numbers)
        if n is None or not self.least <= n <= self.template.most:
            return None
        meets_anew = any(here and not now for here, now in zip(self.apart, apart(key), strict=True))
        return None if meets_anew else n


@dataclass(slots=True)
class _Family:
    """The structures of one skeleton: the templates for many sizes, and the integers of the last that none served."""

    sized: list[_Sized] = field(default_factory=list)
    samples: deque[list[int]] = field(default_factory=lambda: deque(maxlen=MANY + 1))
    unserved: int = 0

    def find(self, key: Key, numbers: list[int]) -> tuple[Template, int] | None:
        """A template that serves a structure, and its size."""
        for served in self.sized:
            n = served.size(key, numbers)
            if n is not None:
                return served.template, n
        return None


@dataclass(slots=True)
class _Keyed:
    """What is remembered under a key of numbers (`storage/still.py`).

    Attributes:
        buffers: For each buffer of the structure, which of the program's it is, and how far behind the start there it
            starts; None where they are the same.
        lifted: Which literals kernels take as arguments, in order.
        stay: Which are a part of the structure.
        forms: By the bits of those that stay.
    """

    buffers: list[tuple[int, int]] | None
    lifted: list[int]
    stay: list[int]
    forms: dict[tuple[int, ...], Form] = field(default_factory=dict)


class Plans:
    """The plans that are remembered, the oldest forgotten first. Used under the engine's lock."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self.limit: Final = limit
        self._known: Final[OrderedDict[Key, tuple[Key, Form, int]]] = OrderedDict()  # the key itself, and its values
        self._recalled: Final[OrderedDict[bytes, _Keyed]] = OrderedDict()
        self._families: Final[OrderedDict[Skeleton, _Family]] = OrderedDict()
        self._size: int = 0
        self._recalled_size: int = 0  # the bytes of keys of numbers

    def clear(self) -> None:
        """Forget all plans."""
        self._known.clear()
        self._recalled.clear()
        self._families.clear()
        self._size = self._recalled_size = 0

    def plan(self, program: Program) -> Plan:
        """The kernels of a program, in the order in which they run."""
        structure = Structure(program)
        return self._planned(program, structure, self._form(structure))

    def recall(
        self, key: bytes, refs: list[BufferRef], starts: list[int], literals: list[Const], settings: Config
    ) -> Plan | None:
        """The kernels of a program that is known by a key of numbers; None where none is, or somebody watches.

        Args:
            refs: Its buffers, in the order of its structure's.
            starts: For each, the byte from which the structure sees it.
            literals: The numbers that kernels may take as arguments.
            settings: Those in force, which say whether somebody watches.
        """
        found = self._recalled.get(key)
        if found is None or debug.watches_schedules(settings):
            return None
        form = found.forms.get(tuple([literals[k].bits for k in found.stay]) if found.stay else ())
        if form is None:
            return None
        if found.buffers is not None:
            starts = [starts[k] + rest for k, rest in found.buffers]
            refs = [refs[k] for k, _ in found.buffers]
        return Plan(form, refs, starts, [literals[k] for k in found.lifted] if found.lifted else [])

    def starts_at(self, key: bytes, rests: Sequence[int]) -> bool:
        """Whether the structure known by a key sees each buffer so far behind where the program starts there."""
        found = self._recalled.get(key)
        if found is None:
            return False
        if found.buffers is None:
            return not any(rests)
        return all(rests[k] == rest for k, rest in found.buffers)

    def adopt(
        self, key: bytes, like: bytes, template: Template, size: int, rests: Sequence[int], literals: list[Const]
    ) -> None:
        """Know a program by a key, that differs from the one known by another key in its size alone.

        Nothing is known where its numbers that stay in kernels are not those that the template serves, or are integers:
        those may follow from the size.

        Args:
            template: What serves that one at any size.
            rests: For each buffer, how far behind the program's start its structure sees it.
            literals: The numbers that kernels may take as arguments.
        """
        known = self._recalled.get(like)
        if known is None or any(literals[k].of is dtypes.int64 for k in known.stay):
            return
        stay = tuple([literals[k].bits for k in known.stay])
        form = known.forms.get(stay)
        if form is None or form.template is not template:
            return
        numbers = range(len(rests)) if known.buffers is None else [k for k, _ in known.buffers]
        made = _Keyed([(k, rests[k]) for k in numbers], known.lifted, known.stay)
        before = self._recalled.get(key)
        if before is not None and (before.buffers, before.lifted, before.stay) == (
            made.buffers,
            made.lifted,
            made.stay,
        ):
            made = before
        made.forms[stay] = Form(template, size)
        self._recall_by(key, made)

    def _recall_by(self, key: bytes, found: _Keyed) -> None:
        """Remember what is known by a key."""
        if key not in self._recalled:
            self._recalled_size += len(key)
        self._recalled[key] = found
        while self._recalled_size > KEYS:
            self._recalled_size -= len(self._recalled.popitem(last=False)[0])

    def learn(self, key: bytes, refs: list[BufferRef], starts: list[int], literals: list[Const], made: Program) -> Plan:
        """The kernels of a program, which is known by a key from now on. See `recall`."""
        found = self._recalled.get(key)
        structure = Structure(made)
        form = self._form(structure)
        if found is None:
            numbers = {ref: k for k, ref in reversed(list(enumerate(refs)))}
            exact: dict[
                tuple[BufferRef, int], deque[int]
            ] = {}  # of a part of a buffer that starts with it, two numbers
            for k, place in enumerate(zip(refs, starts, strict=True)):
                exact.setdefault(place, deque()).append(k)
            places = [*zip(structure.refs, structure.starts, strict=True)]
            found_at = [exact[at].popleft() if exact.get(at) else numbers[at[0]] for at in places]
            buffers = [(k, start - starts[k]) for k, (_, start) in zip(found_at, places, strict=True)]
            same = structure.refs == refs and structure.starts == starts
            rest = {literal: k for k, literal in enumerate(literals)}
            lifted = [rest.pop(number) for number in structure.numbers]
            found = _Keyed(None if same else buffers, lifted, list(rest.values()))
            self._recall_by(key, found)
        if len(found.forms) >= FORMS:
            found.forms.clear()
        found.forms[tuple([literals[k].bits for k in found.stay])] = form
        return self._planned(made, structure, form)

    def _planned(self, program: Program, structure: Structure, form: Form) -> Plan:
        """A form over the buffers and numbers of a program."""
        made = Plan(form, structure.refs, structure.starts, structure.numbers, program.keep)
        if debug.watches_schedules(settings_now()):
            debug.schedule(program, made.kernels)
        return made

    def _form(self, structure: Structure) -> Form:
        """The form of a structure."""
        known = self._known.get(structure.key)
        if known is not None:
            key, form, _ = known
            self._known.move_to_end(key)  # compared at once, since it is the one
        else:
            template, n = self._of_any_size(structure) or (_template(*stand_in(structure.key)), 0)
            form = Form(template, n)
            self._remember(structure, form)
        return form

    def _remember(self, structure: Structure, form: Form) -> None:
        """Keep which form serves a structure, unless that alone is too large."""
        if structure.size <= self.limit // 8:
            self._known[structure.key] = structure.key, form, structure.size
            self._size += structure.size
            while self._size > self.limit:
                self._size -= self._known.popitem(last=False)[1][2]

    def _of_any_size(self, structure: Structure) -> tuple[Template, int] | None:
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


def _template(program: Program, refs: list[BufferRef], *, nominal: bool = False, chains: bool = True) -> Template:
    """A program over stand-ins planned; `chains`: what products that follow from products leave may be in scratch.

    Raises: UnsizedError if it is at the nominal size and cannot be planned so.
    """
    made = _plan(program, refs, nominal=nominal, chains=chains)
    GlobalCounters.plan_count += 1
    return made


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
        except (IntaglioError, IndexError):
            # A value does not exist at that size: it reaches past what it is cut from, say. Or what varies is no size,
            # but which value another is computed from.
            continue
        template = _template(program, refs, nominal=True)
        if (found.size(samples[-1]) or 0) > template.most:  # than there is room for
            template = _template(program, refs, nominal=True, chains=False)
        return [_Sized(template, found, separate, template.least)]
    return []


def _plan(program: Program, refs: list[BufferRef], *, nominal: bool, chains: bool) -> Template:
    """The kernels of a program, made."""
    ordered = order(program)
    renamed: dict[BufferRef, BufferRef] = {}
    for ref in program.keep:
        home = ref
        while home in ordered.renamed:
            home = ordered.renamed[home]
        renamed[ref] = home
    kept = {*renamed.values(), *[output.ref for output in program.outputs]}
    statements = split(used(ordered.statements, kept), ordered.fresh)
    if nominal:
        _no_products(statements)
    kernels: list[PlannedKernel | Copy] = []
    private = ordered.fresh - set(renamed.values())
    parts = chained(statements, private, nominal=nominal, threads=threads_now()) if chains else [statements]
    groups = [*itertools.chain.from_iterable([p] if isinstance(p, Chain) else together(p) for p in parts)]
    for group in with_prologues(groups, private):
        copy = _copy(group[0]) if isinstance(group, list) else None
        if copy is not None:
            kernels.append(copy)
        else:
            kernels.append(sized(build(group)) if nominal else build(group))
    lives = _lives(kernels, ordered.fresh)
    values = [s.value for s in statements if isinstance(s, Write)] if nominal else []
    most = min([whole_up_to(values, is_product), *(part.most for part in parts if isinstance(part, Chain))])
    return Template(kernels, renamed, kept, lives, refs, list(ordered.fresh.difference(refs)), most)


def _no_products(statements: list[Statement]) -> None:
    """See that no product varies in size: its tiles are worth a kernel for each.

    Raises: UnsizedError if one does.
    """
    for node in walk(s.value for s in statements if isinstance(s, Write)):
        if is_product(node) and any(map(varies, node.src[0].shape)):
            raise UnsizedError("a product of two matrices")


def _lives(kernels: list[PlannedKernel | Copy], fresh: set[BufferRef]) -> dict[BufferRef, tuple[int, int]]:
    """The first and the last kernel that uses each fresh buffer, by the first."""
    found: dict[BufferRef, tuple[int, int]] = {}
    for number, kernel in enumerate(kernels):
        for ref in kernel.buffers:
            if ref in fresh:
                found[ref] = found[ref][0] if ref in found else number, number
    return found


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
