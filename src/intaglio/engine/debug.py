"""What a person sees of a run: kernels, sources, times, by the level of DEBUG."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from typing import TYPE_CHECKING

from intaglio.core.config import config
from intaglio.core.size import at
from intaglio.core.trace import GlobalCounters
from intaglio.engine import explain
from intaglio.engine.devices import device_of
from intaglio.engine.draw import draw, graph_lines, schedule_lines
from intaglio.ir.node import make, substitute, toposort
from intaglio.ir.text import print_text
from intaglio.lower.choice import MODEL, choice_of
from intaglio.ops.loop import Loop
from intaglio.ops.memory import Local, Read
from intaglio.ops.viewed import view_of
from intaglio.runtime.compiler import assembly
from intaglio.schedule.kernels import Copy, PlannedKernel
from intaglio.schedule.program import Write

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from intaglio.core.config import Config
    from intaglio.engine.devices import Executable
    from intaglio.engine.form import Stretch
    from intaglio.engine.plan import Plan
    from intaglio.ir.node import Node
    from intaglio.schedule.program import Program


def _say(text: str) -> None:
    """Text for the person who watches; a closed stream stops no run."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr)


def _picture(lines: Sequence[str], kind: str) -> None:
    """Write a picture, and say where it is. A folder that is gone or full stops no run."""
    try:
        _say(f"graph: {draw(lines, kind)}")
    except OSError as error:
        _say(f"graph: the picture of the {kind} is not written; {error.strerror or error}.")


def watches_schedules(settings: Config) -> bool:
    """Whether somebody wants to see schedules."""
    return settings.debug > 0 or settings.graph > 0


def watches_kernels(settings: Config) -> bool:
    """Whether somebody wants to see kernels, before they run or as they do."""
    return settings.debug > 1 or settings.graphuops > 0 or explain.is_asked()


def schedule(program: Program, kernels: Sequence[PlannedKernel | Copy]) -> None:
    """The devices and size of a schedule (1), its kernels (3), the tensor graph that it is made of (5)."""
    level = config.debug
    if not kernels:
        return
    if config.graph:
        _picture(graph_lines(_values(program)), "tensors")
        _picture(schedule_lines(kernels), "schedule")
    if level < 1:
        return
    devices = sorted({k.target.device if isinstance(k, Copy) else k.device for k in kernels})
    for device in map(device_of, devices):
        if not device.told:
            device.told = True
            _say(f"device: {device.name}, {device.about}")
    _say(f"schedule: {len(kernels)} kernel{'s' if len(kernels) > 1 else ''} on {', '.join(devices)}")
    if level >= 5:
        _say(f"graph before rewriting:\n{print_text(_values(program))}")
    if level >= 3:
        for kernel in kernels:
            if isinstance(kernel, Copy):
                _say(f"  copy {kernel.view.nbytes} bytes, {kernel.source.device} to {kernel.target.device}")
            else:
                _say(f"  {len(kernel.buffers)} buffers, {len(kernel.ast.src)} statements: {', '.join(kernel.metadata)}")


def _values(program: Program) -> list[Node]:
    """What the statements of a program write and where, with values that are only read as leaves."""
    writes = [
        write
        for statement in program.statements
        for write in ((statement,) if isinstance(statement, Write) else itertools.chain(*statement.arms))
    ]
    roots = dict.fromkeys(node for write in writes for node in (write.value, *write.indices))
    roots.update(dict.fromkeys(output.value for output in program.outputs))
    leaves = {value: make(read) for value, read in program.reads.items()}
    for node in program.order or ():
        if node in program.views:
            assert isinstance(node.op, Read)
            (base,) = substitute((program.views[node],), leaves)
            leaves[node] = view_of(node.op.view, base)
    return substitute(roots, leaves)


def prepare(made: Plan, settings: Config) -> None:
    """Make the texts and pictures of kernels that are new: before the first launch, since they may fail."""
    level = settings.debug
    if level < 3 and not settings.graphuops:
        return
    for kernel, executable in zip(made.kernels, made.form.loaded, strict=True):
        if isinstance(kernel, Copy) or executable is None:
            continue
        device = device_of(kernel.device)
        if executable not in device.ran and executable not in device.notes:
            device.notes[executable] = _note(kernel, executable, level)


def searched(name: str, seconds: float, ratio: float, choice: str, tried: int) -> None:
    """What a search for better code found (2)."""
    if config.debug >= 2:
        _say(f"search: {name} {seconds * 1e6:.2f}us, {1 / ratio:.2f} times as fast of {tried} candidates: {choice}")


def launch(made: Plan, step: Stretch, slots: array[int], threads: int, settings: Config) -> None:
    """Run kernels; one by one, with a line each, where DEBUG asks for it."""
    device, launches = step.device, step.launches
    if explain.is_asked():
        for kernel in _of_stretch(made, step):
            explain.note(kernel.ast, kernel.size_slot)
    if settings.debug < 2:
        device.run(launches, slots, 0, step.count, threads)
        if device.notes:
            device.ran.update(device.notes)
            device.notes.clear()
        return
    before = GlobalCounters.kernel_count - step.count
    for wave in launches.waves:
        first, count = before + 1 + wave[0][0], sum(map(len, wave))
        _say(f"wave: kernels {first} to {first + count - 1}, which threads share as {len(wave)} chains")
    for place, (kernel, executable) in enumerate(zip(_of_stretch(made, step), launches.executables, strict=True)):
        number = before + place + 1
        first = executable not in device.ran
        note = device.notes.pop(executable, "")
        if note:
            _say(note)
        started = time.perf_counter()
        device.run(launches, slots, place, place + 1, threads)
        seconds = max(time.perf_counter() - started, 1e-9)
        device.ran.add(executable)
        memory = GlobalCounters.mem_used / 1e9
        _say(
            f"*** {device.name:<6} {number:4d} {executable.name:<24} arg {len(kernel.slots):2d} mem {memory:5.2f} GB "
            f"tm {seconds * 1e6:9.2f}us {at(executable.flops, kernel.size) / seconds / 1e9:8.1f} GFLOPS "
            f"{kernel.nbytes / seconds / 1e9:6.1f} GB/s {list(kernel.metadata)}{' first run' if first else ' replay'}"
        )


def _of_stretch(made: Plan, step: Stretch) -> list[PlannedKernel]:
    """The kernels of a stretch, with their buffers."""
    found = made.kernels[step.first : step.first + step.count]
    return [kernel for kernel in found if isinstance(kernel, PlannedKernel)]


def _lowered(executable: Executable) -> str:
    """How a kernel was lowered: its loops, the lanes of its vectors, its scratch, the pieces that threads share."""
    lowered = executable.lowered
    nodes = toposort([lowered.linear])
    loops = sum(isinstance(node.op, Loop) for node in nodes)
    lanes = max((node.shape[-1] for node in nodes if node.shape), default=1)
    scratch = sum(node.op.size * node.op.of.itemsize for node in nodes if isinstance(node.op, Local))
    found = [f"{loops} loop{'s' if loops != 1 else ''}", f"vectors of {lanes}" if lanes > 1 else "no vectors"]
    if scratch:
        found.append(f"{scratch} bytes of scratch")
    if lowered.parallel:
        found.append(f"{lowered.chunks} pieces for threads")
    chosen = choice_of(lowered.decisions)
    if chosen != MODEL:
        found.append(f"tuned: {chosen}")
    return f"lowered: {executable.name}, {', '.join(found)}"


def _note(kernel: PlannedKernel, executable: Executable, level: int) -> str:
    """What a kernel is: how it was lowered (3), C (4), its graph before and after (5, 6), its machine code (7)."""
    parts: list[str] = []
    if level >= 3:
        parts.append(_lowered(executable))
    if level >= 4:
        parts.append(explain.c_source(kernel.ast, kernel.size_slot))
    if level >= 5:
        parts.append(f"graph after rewriting:\n{print_text([kernel.ast])}")
    if level >= 6:
        parts.append(print_text([executable.lowered.linear]))
    if level >= 7 and executable.source:
        parts.append(assembly(executable.source))
    if config.graphuops:
        _picture(graph_lines([executable.lowered.linear]), "kernel")
    return "\n".join(parts)
