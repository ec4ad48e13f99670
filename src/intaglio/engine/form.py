"""Forms: what running the programs of one structure takes, worked out once: all but their buffers and numbers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from sys import maxsize
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import InternalError
from intaglio.core.size import at, varies
from intaglio.engine.arena import Life, arranged
from intaglio.engine.devices import Launches, device_of, load, threads_now
from intaglio.engine.heirs import LEAST, heirs
from intaglio.engine.waves import estimated, waves
from intaglio.ops.memory import BufferRef
from intaglio.runtime.allocator import Order
from intaglio.schedule.kernels import Copy
from intaglio.schedule.program import Hole
from intaglio.schedule.sizes import view_at

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from intaglio.core.dtypes import DType
    from intaglio.engine.devices import Device, Executable
    from intaglio.engine.heirs import Heir
    from intaglio.engine.waves import Wave
    from intaglio.ir.view import View
    from intaglio.schedule.kernels import PlannedKernel, Slot


PATIENCE: Final = 3  # runs in a row on the same inputs, all of them alive, from which it is not asked whether one dies
Picker: TypeAlias = "Callable[[list[Any]], tuple[Any, ...]]"


@dataclass
class Template:
    """A plan over stand-ins: those of a structure's buffers, in order, and those of its own temporaries.

    Attributes:
        kernels: Kernels and copies, in order.
        renamed: For the buffers that the program keeps, the buffers where their contents end up.
        kept: The buffers whose bytes matter when all has run.
        lives: The first and the last kernel that uses each buffer without bytes yet, in order of the first.
        refs: The buffers of the structure.
        temporaries: Others without bytes yet.
        most: The size up to which it serves, if it is at the nominal one.
        loaded: The kernels compiled (None for copies), once they are.
    """

    kernels: list[PlannedKernel | Copy]
    renamed: dict[BufferRef, BufferRef]
    kept: set[BufferRef]
    lives: dict[BufferRef, tuple[int, int]]
    refs: list[BufferRef]
    temporaries: list[BufferRef]
    most: int = maxsize
    loaded: list[Executable | None] = field(default_factory=list)

    def load(self) -> list[Executable | None]:
        """The kernels compiled: all, or none."""
        if not self.loaded:
            self.loaded.extend([None if isinstance(k, Copy) else load(k) for k in self.kernels])
        return self.loaded

    @cached_property
    def heirs(self) -> list[Heir]:
        """The results that may take the memory of an input, whatever the size."""
        results = self.kept.intersection(self.lives)
        return heirs(self.kernels, results, {*self.refs}.difference(self.lives))

    @property
    def least(self) -> int:
        """The size from which on its kernels are right, if it is at the nominal one."""
        return max((executable.lowered.least for executable in self.load() if executable is not None), default=0)


@dataclass(slots=True)
class Move:
    """A copy between devices: the numbers of its buffers, and what it copies of the first."""

    source: int
    view: View
    target: int


@dataclass(slots=True)
class Stretch:
    """Kernels in a row on one device, which are one native call.

    Attributes:
        device: Where they run.
        first: The number of the first, among kernels and copies.
        count: How many there are.
        launches: They, compiled.
        shared: Whether threads share one of them, or all.
        pick: Takes the arguments of all from the words of a program: the addresses of the buffers with names that its
            kernels use, then of the others, its numbers and at last a zero.
        rests: What is added to some arguments, by their places.
        flops: Arithmetic operations of all.
        nbytes: Bytes that they move.
    """

    device: Device
    first: int
    count: int
    launches: Launches
    shared: bool
    pick: Picker
    rests: list[tuple[int, int]]
    flops: int
    nbytes: int


@dataclass(slots=True)
class Room:
    """The memory of one device for a form's fresh buffers.

    Attributes:
        device: Where it is.
        order: What is asked for: a block for each buffer that has memory of its own, and at last one for those that are
            needed between kernels only, as far as they do not lie where results will be.
        sizes: The bytes of each of those blocks.
        own: Those that have memory of their own.
        placed: Others that have names: (buffer, its bytes, the number of the block that it lies in, where it starts).
        hidden: Those that have none, in the order in which the form has them: (the block, where it starts).
    """

    device: Device
    order: Order
    sizes: list[int]
    own: list[int]
    placed: list[tuple[int, int, int, int]]
    hidden: list[tuple[int, int]]


class Form:
    """A template at one size, by numbers: of the structure's buffers, then of the temporaries that have names.

    Temporaries that nobody sees but its kernels have none: they are made by their addresses alone.

    Attributes:
        template: What is planned.
        size: Of the programs, if the template is at the nominal size; else 0.
        names: The stand-ins of buffers with names.
        used: The numbers of those that kernels use, in order of first use.
        pick: Takes what belongs to those from what belongs to all buffers.
        devices: Where buffers are made.
        rooms: The memory of those, device by device, once the kernels are compiled.
        heirs: Results that may take the memory of an input, as numbers of both; once the kernels are compiled, but for
            those whose kernel may run beside another that reads the input.
        clear: As `rooms`, where nothing lies in the memory of such a result before the kernel that writes it.
        renamed: The buffers that are kept whose contents end up in another, and which that is.
        temporaries: The bytes and the device of each that has a name.
        private: For the stand-in of each of the others, device by device.
        loaded: The kernels compiled as they run (None for copies), once they have.
        sharing: The devices on which threads share some of them.
        ready: The steps, once they are there, of kernels that are not searched for.
    """

    def __init__(self, template: Template, size: int) -> None:
        self.template: Final = template
        self.size: Final = size
        copied = {ref for kernel in template.kernels if isinstance(kernel, Copy) for ref in kernel.buffers}
        inner = {*template.temporaries} - template.kept - copied
        self.devices: Final = [*dict.fromkeys(ref.device for ref in template.lives)]
        private = [ref for device in self.devices for ref in template.lives if ref in inner and ref.device == device]
        named = [ref for ref in template.temporaries if ref not in inner]
        self.names: Final = [*template.refs, *named]
        numbers = {ref: number for number, ref in enumerate(self.names)}
        used = dict.fromkeys(ref for kernel in template.kernels for ref in kernel.buffers if ref in numbers)
        self._numbers: Final = numbers
        self.used: Final = [numbers[ref] for ref in used]
        self.pick: Final = picker(self.used)
        self._places: Final = {ref: place for place, ref in enumerate((*used, *private))}
        self.rooms: list[Room] = []
        self.clear: list[Room] = []
        self._heirs: list[Heir] = self._find_heirs()
        self.heirs: list[tuple[int, int]] = [(numbers[heir.result], numbers[heir.source]) for heir in self._heirs]
        self._living: list[int] = []  # the ids of inputs that were alive when it was last asked
        self._times: int = 0  # how often in a row they were
        self.renamed: Final = [(numbers[a], numbers[b]) for a, b in template.renamed.items() if a is not b]
        self.temporaries: Final = [(at(ref.nbytes, size), ref.device) for ref in named]
        self.private: Final = {ref: (at(ref.nbytes, size), ref.device) for ref in private}
        self.loaded: list[Executable | None] = []
        self.sharing: list[Device] = []
        self.ready: list[Stretch | Move] = []
        self._costs: list[int] = []  # of each kernel
        self._waves: list[Wave] = []
        self._steps: list[Stretch | Move] = []
        self._beam: tuple[int, int] | None = None  # how the steps were searched for

    def may_inherit(self, refs: Sequence[BufferRef]) -> bool:
        """Whether a result may take the memory of an input: not where the same inputs were alive the last few times.

        To ask takes some time, and most inputs that are used again and again live on.
        """
        return self._times < PATIENCE or self._living != [id(refs[source]) for _, source in self.heirs]

    def note_living(self, refs: Sequence[BufferRef]) -> None:
        """Note that no input of a run died."""
        living = [id(refs[source]) for _, source in self.heirs]
        self._times = self._times + 1 if living == self._living else 1
        self._living = living

    def _find_heirs(self) -> list[Heir]:
        """Those of the template's heirs that are large; it is asked only where some result is."""
        template, n = self.template, self.size
        large = {ref for ref in template.lives if ref in template.kept and at(ref.nbytes, n) >= LEAST}
        return [heir for heir in template.heirs if heir.result in large] if large else []

    def _share(self) -> None:
        """Find the waves of the kernels, as they were compiled at first, and give the fresh buffers their places."""
        template, n = self.template, self.size
        costs: list[int] = []
        for kernel, executable in zip(template.kernels, self.loaded, strict=True):
            moved = 0 if isinstance(kernel, Copy) else at(kernel.nbytes, n)
            costs.append(0 if executable is None else estimated(moved, at(executable.flops, n)))
        between = [Life(*life, at(ref.nbytes, n)) for ref, life in template.lives.items() if ref not in template.kept]
        shared = [e is not None and _is_shared(e, cost) for e, cost in zip(self.loaded, costs, strict=True)]
        found = waves(template.kernels, costs, shared, between)
        steps = [*range(len(template.kernels))]  # the number of each kernel's wave, or its own
        for wave in found:
            for number in itertools.chain.from_iterable(wave):
                steps[number] = wave[0][0]
        self.rooms = [self._room(device, steps) for device in self.devices]
        self._heirs = [heir for heir in self._heirs if heir.before < 0 or steps[heir.before] < steps[heir.kernel]]
        self.heirs = [(self._numbers[heir.result], self._numbers[heir.source]) for heir in self._heirs]
        if self._heirs:
            self.clear = [self._room(device, steps, {heir.result for heir in self._heirs}) for device in self.devices]
        self._waves = found
        self._costs = costs  # at last: where an interrupt comes before, all of it is done again

    def _room(self, device: str, steps: Sequence[int], clear: Collection[BufferRef] = ()) -> Room:
        """Give the fresh buffers of a device their places.

        Args:
            steps: When each kernel runs.
            clear: Results in whose memory nothing is to lie before.
        """
        template, numbers = self.template, self._numbers
        lives = {
            ref: Life(steps[first], steps[last], at(ref.nbytes, self.size))
            for ref, (first, last) in template.lives.items()
            if ref.device == device
        }
        results = [ref for ref in lives if ref in template.kept]
        others = [ref for ref in lives if ref not in template.kept]
        hosts = [number for number, ref in enumerate(results) if ref not in clear]
        places, nbytes = arranged([lives[ref] for ref in others], [lives[results[number]] for number in hosts])
        blocks = [(len(results) if r is None else hosts[r], start) for r, start in places]
        found = dict(zip(others, blocks, strict=True))
        placed = [(numbers[ref], lives[ref].nbytes, *found[ref]) for ref in others if ref in numbers]
        sizes = [lives[ref].nbytes for ref in results]
        sizes += [nbytes] if nbytes else []
        own = [numbers[ref] for ref in results]
        hidden = [found[ref] for ref in self.private if ref in found]
        return Room(device_of(device), Order(sizes), sizes, own, placed, hidden)

    def steps(self, beam: int, holes: int, bound: Callable[[], list[PlannedKernel | Copy]]) -> list[Stretch | Move]:
        """The kernels, compiled, and copies: what is done in order. Devices are prepared for them.

        Args:
            beam: How they are searched for; 0 leaves them as they are.
            holes: How many holes there are for numbers.
            bound: Gives the kernels with the buffers and numbers of one program, to be tried on where BEAM asks for it.
        """
        searched = (beam, threads_now()) if beam else None
        if not self._steps or searched != self._beam:
            self.loaded = self.template.load()
            if not self._costs:
                self._share()
            if searched is not None:
                from intaglio.engine.tune import tuned  # few programs are searched for

                self.loaded = [None if isinstance(k, Copy) else tuned(k) for k in bound()]
            words = len(self._places)
            steps = self._arranged(words, words + holes)
            stretches = [step for step in steps if isinstance(step, Stretch)]
            for stretch in stretches:
                stretch.device.prepare(stretch.launches)
            self._steps, self._beam = steps, searched
            self.sharing = [*dict.fromkeys(stretch.device for stretch in stretches if stretch.shared)]
            self.ready = self._steps if searched is None else []
        return self._steps

    def _arranged(self, holes: int, zero: int) -> list[Stretch | Move]:
        """The steps, with numbers from the place `holes` of a program's words on, and a zero at the place `zero`."""
        steps: list[Stretch | Move] = []
        run: list[tuple[PlannedKernel, Executable]] = []

        def close(number: int) -> None:
            if run:
                steps.append(self._stretch(number - len(run), run, holes, zero))
                run.clear()

        for number, (kernel, executable) in enumerate(zip(self.template.kernels, self.loaded, strict=True)):
            if isinstance(kernel, Copy):
                close(number)
                source, target = self._numbers[kernel.source], self._numbers[kernel.target]
                steps.append(Move(source, view_at(kernel.view, self.size), target))
                continue
            if executable is None:
                raise InternalError("engine: a kernel was not compiled")
            if run and device_of(run[0][0].device) is not device_of(kernel.device):
                close(number)
            run.append((kernel, executable))
        close(len(self.loaded))
        return steps

    def _stretch(self, first: int, run: list[tuple[PlannedKernel, Executable]], holes: int, zero: int) -> Stretch:
        """Kernels in a row."""
        slots: list[tuple[int, int]] = []
        starts: list[int] = []
        for kernel, _ in run:
            starts.append(len(slots))
            slots += [self._slot(slot, holes, zero) for slot in kernel.slots]
        last = first + len(run)
        own = [wave for wave in self._waves if first <= wave[0][0] < last]
        moved = [[[number - first for number in chain] for chain in wave] for wave in own]
        executables = [executable for _, executable in run]
        return Stretch(
            device_of(run[0][0].device),
            first,
            len(run),
            Launches(executables, [*starts, len(slots)], self._costs[first:last], moved),
            bool(moved) or any(map(_is_shared, executables, self._costs[first:last])),
            picker([place for place, _ in slots]),
            [(number, rest) for number, (_, rest) in enumerate(slots) if rest],
            sum(at(executable.flops, self.size) for _, executable in run),
            sum(at(kernel.nbytes, self.size) for kernel, _ in run),
        )

    def _slot(self, slot: Slot, holes: int, zero: int) -> tuple[int, int]:
        """Where an argument is found among a program's words, and what is added to it."""
        of, rest = slot
        if isinstance(of, BufferRef):
            return self._places[of], at(rest, self.size)
        return (holes + of.number, 0) if isinstance(of, Hole) else (zero, literal_at(of, rest, self.size))


def _is_shared(executable: Executable, cost: int) -> bool:
    """Whether threads share a kernel. `cost`: what it is estimated to take."""
    return executable.lowered.parallel and cost >= executable.lowered.worth


def picker(places: Sequence[int]) -> Picker:
    """What takes the elements at some places of a list, all by one call.

    Examples:
        >>> picker([2, 0, 2])([5, 6, 7])
        (7, 5, 7)
    """
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple([values[place] for place in places])


def literal_at(dtype: DType, bits: int, size: int) -> int:
    """The bits of a number at a size, of one at the nominal size."""
    if size and dtype is dtypes.int64 and varies(value := int(dtype.from_bits(bits))):
        return dtype.to_bits(at(value, size))
    return bits
