"""Running kernels written by hand: lowered, compiled, called chunk by chunk."""

from __future__ import annotations

import ctypes
from array import array
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from intaglio.core.dtypes import DType, dtypes
from intaglio.ir.interpret import run_linear
from intaglio.ir.node import Node, make
from intaglio.ir.view import View
from intaglio.lower.kernel import Lowered, lower
from intaglio.ops.loop import Loop, sink, store
from intaglio.ops.memory import Param, window
from intaglio.ops.scratch import scratch_of
from intaglio.render import llvm
from intaglio.runtime.compiler import Compiler, host_target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.core.target import Target

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
LINE = 64
TYPES: dict[str, DType] = {
    "float32": dtypes.float32,
    "float64": dtypes.float64,
    "int32": dtypes.int32,
    "int64": dtypes.int64,
    "uint8": dtypes.uint8,
    "bool": dtypes.bool,
}


@dataclass
class Operands:
    """The arrays of one kernel, each a parameter of its own group."""

    arrays: list[np.ndarray] = field(default_factory=list)

    def pointer(self, array: np.ndarray) -> Node:
        """The parameter for an array."""
        self.arrays.append(array)
        slot = len(self.arrays) - 1
        return make(Param(slot, TYPES[array.dtype.name], slot))

    def read(self, array: np.ndarray) -> Node:
        """All of an array (its own strides) as a value."""
        base = array
        while isinstance(base.base, np.ndarray):
            base = base.base
        offset = array.ctypes.data - base.ctypes.data
        return window(View(TYPES[array.dtype.name], array.shape, array.strides, offset), self.pointer(base))

    def write(self, array: np.ndarray, value: Node) -> Node:
        """A store of a value to all of an array."""
        return store(self.read(array), value)


@cache
def compiler() -> Compiler:
    """A compiler that keeps nothing on disk."""
    return Compiler(lambda: None)


def function(address: int, linear: Node) -> Callable[[int, int, int], None]:
    """A compiled kernel, with scratch of its own, as a function of its arguments and chunks."""
    kernel = SIGNATURE(address)
    scratch = np.full(scratch_of(linear)[1] + LINE, 0xA5, np.uint8)

    def called(slots: int, begin: int, end: int) -> None:
        kernel(slots, begin, end, -(-scratch.ctypes.data // LINE) * LINE)

    return called


def run(
    operands: Operands, *statements: Node, threads: int = 1, interpret: bool = False, target: Target | None = None
) -> Lowered:
    """Lower and run statements on the arrays, each chunk by a call of its own, the last one first.

    Args:
        threads: Of this machine, for which it is lowered where no target is given.
    """
    target = target or host_target(threads)
    lowered = lower(sink(*statements), target)
    slots = array("Q", (a.ctypes.data for a in operands.arrays))
    if interpret:
        run_linear(lowered.linear, list(slots), lowered.chunks)
        return lowered
    address, _ = compiler().load(llvm.render(lowered.linear, target), lowered.name)
    kernel = function(address, lowered.linear)
    for chunk in reversed(range(lowered.chunks)):
        kernel(slots.buffer_info()[0], chunk, chunk + 1)
    return lowered


def loops(lowered: Lowered) -> int:
    """How many loops a kernel has."""
    return sum(isinstance(n.op, Loop) for n in lowered.linear.src)


def numbers(shape: Sequence[int], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Small whole numbers, so that every order of a sum gives the same."""
    draw = np.random.default_rng(seed).integers(-8, 9, tuple(shape))
    return draw.astype(dtype)
