"""Levels: which ops may stand in a graph at each stage, with what they mean there.

TENSOR  Whole arrays, pure. Leaves are constants, counters, buffers and views of them. A node's value is fixed: reading
        a view gives what the bytes held at its moment.
KERNEL  One kernel: a Sink of statements in order. Store(window, value) computes all of `value` before any element is
        stored; a For runs its statements once for each value of its Range, each iteration after the one before. Rows,
        and a Prologue, are stores in order, of which what goes into a Local is scratch.
LOOP    Scalars over Ranges: every value has shape (), a Fold reduces over the ranges it names and no others, a Load
        whose gate is false gives 0 and touches no memory.
LINEAR  Instructions in order, the sources of one Linear. A value is defined before it is used, in a loop or condition
        that is still open there; loops and conditions are closed in the order opposite to that of opening. Values are
        scalars or vectors (rank 1). Constants, arguments, pointers, lane numbers, chunk bounds and the carried and
        final values of loops are named where they are used and need no place of their own.

At every level: integers wrap; x // 0 and x % 0 are 0 for integers; floor_div and mod round down; a shift by the width
or more gives 0 (-1 for shr below zero); maximum, minimum and their reductions keep NaN; 0.0 and -0.0 are equal. A
float op is rounded in its own dtype (half precision through float32), only Fma fuses. The order of a reduction is a
function of dtype, shape and axis. Effects (Store, StoreAt) happen in the order in which they stand; nothing else has
one.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from intaglio.ir.node import Op


class Level(Enum):
    """A stage of compilation, from arrays to instructions."""

    TENSOR = "TENSOR"
    KERNEL = "KERNEL"
    LOOP = "LOOP"
    LINEAR = "LINEAR"


_T, _K, _P, _I = Level.TENSOR, Level.KERNEL, Level.LOOP, Level.LINEAR

# Elementwise ops stand at every level, decomposed ones above LINEAR only.
_LEVELS: Final[dict[str, tuple[Level, ...]]] = {
    "const": (_T, _K, _P, _I),
    "iota": (_T, _K, _I),
    "buffer": (_T,),
    "read": (_T,),
    "read_at": (_T,),
    "hole": (_T,),
    "copy_to": (_T,),
    "param": (_T, _K, _P, _I),
    "next_param": (_I,),
    "arg": (_K, _P, _I),
    "local": (_K, _P, _I),
    "window": (_T, _K),
    "take": (_T, _K),
    "put": (_T, _K),
    "reshape": (_T, _K),
    "permute": (_T, _K),
    "expand": (_T, _K, _I),
    "pad": (_T, _K),
    "shrink": (_T, _K),
    "flip": (_T, _K),
    "reduce": (_T, _K),
    "scan": (_T, _K),
    "fold": (_P,),
    "across": (_I,),
    "dot": (_P, _I),
    "interleave": (_I,),
    "shuffle": (_I,),
    "range": (_T, _K, _P),
    "load": (_P, _I),
    "assign": (_T,),
    "kernel": (_T,),
    "sink": (_T, _K, _P),
    "block": (_K, _P),
    "for": (_K, _P),
    "prologue": (_K,),
    "rows": (_K,),
    "switch": (_K, _P),
    "store": (_T, _K, _P, _I),
    "store_at": (_T, _K, _P),
    "prefetch": (_I,),
    "linear": (_I,),
    "chunk": (_I,),
    "loop": (_I,),
    "carried": (_I,),
    "end_loop": (_I,),
    "final": (_I,),
    "if": (_I,),
    "end_if": (_I,),
}


def levels_of(kind: type[Op]) -> tuple[Level, ...]:
    """The levels at which an op may stand; none for what only rules are made of."""
    if hasattr(kind, "written_out") or hasattr(kind, "planned"):  # composite ops, and those that others stand for
        return (_T,)
    if hasattr(kind, "arity"):  # the trait of elementwise ops
        return tuple(Level)
    return _LEVELS.get(kind.name, ())


def allowed(op: Op, level: Level) -> bool:
    """Whether an op may stand at a level."""
    return level in levels_of(type(op))
