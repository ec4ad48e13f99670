"""Statements and loops: what a kernel does, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import InternalError
from intaglio.ir.node import Node, Op, Result, make


class Statement(Op):
    """An effect. Its node has dtype bool and shape () and no value; the order of statements is the order in `src`."""

    def infer(self, *src: Node) -> Result:
        """No value."""
        return dtypes.bool, ()


@dataclass(frozen=True, slots=True)
class Range(Op):
    """The counter of a loop, 0 .. bound-1. src: (bound,), an int64 Const or Arg. `axis` tells ranges apart."""

    axis: int
    name: ClassVar[str] = "range"

    def infer(self, bound: Node) -> Result:
        """An int64 scalar."""
        if bound.dtype is not dtypes.int64 or bound.shape != ():
            raise InternalError("range: the bound must be an int64 scalar")
        return dtypes.int64, ()


class Sink(Statement):
    """A kernel: its statements, in order. KERNEL and LOOP level."""

    name: ClassVar[str] = "sink"


class Block(Statement):
    """Statements in order (an arm of a Switch)."""

    name: ClassVar[str] = "block"


@dataclass(frozen=True, slots=True)
class For(Statement):
    """A sequential loop. KERNEL level: src (range, statement, ...).

    With `free`, its statements are stores of one first axis, and what is done at one place along it depends on nothing
    that is done at another in any turn.
    """

    free: bool = False
    name: ClassVar[str] = "for"


@dataclass(frozen=True, slots=True)
class Rows(Statement):
    """Stores that share the loops over their first `lead` axes, run for some rows of the last of those at a time.

    With `sheets`, there are few rows after those axes, and all at one place along them run together: a sheet.

    KERNEL level: src (store, ...). Windows on a Local are of what only these stores read, at their own rows: no more
    of it is ever held than the rows at hand.
    """

    lead: int
    sheets: bool = False
    name: ClassVar[str] = "rows"


class Prologue(Statement):
    """Stores of which each chunk of the last one makes all others, into scratch of its own.

    KERNEL level: src (store, ...). What the others store to is a Local, which only these stores read.
    """

    name: ClassVar[str] = "prologue"


class Switch(Statement):
    """One of several blocks, by number. src: (selector int64 scalar, block, ...)."""

    name: ClassVar[str] = "switch"


class Assign(Statement):
    """A buffer that a kernel writes: what `uop` is between `kernelize` and `realize`. src: (buffer, kernel)."""

    name: ClassVar[str] = "assign"

    def infer(self, *src: Node) -> Result:
        """The buffer's dtype and shape."""
        return src[0].dtype, src[0].shape


@dataclass(frozen=True, slots=True)
class Kernel(Statement):
    """A kernel that has not run. src: (ast, buffer, ...): the AST names the buffers by Param slot."""

    metadata: tuple[str, ...]
    name: ClassVar[str] = "kernel"


class Store(Statement):
    """A write to memory.

    KERNEL: src (window, value): every element of the window takes the value at the same position.
    LINEAR: src (pointer, index, value[, mask]).
    """

    name: ClassVar[str] = "store"


@dataclass(frozen=True, slots=True)
class Prefetch(Statement):
    """A wish that a line of memory come nearer, as it is soon read. LINEAR level: src (pointer, index).

    No value depends on it, and the index may lie outside of the buffer.
    """

    name: ClassVar[str] = "prefetch"


@dataclass(frozen=True, slots=True)
class StoreAt(Statement):
    """Elements at computed positions: src (window, value, i0, ..., ik), as Put, into the window's memory."""

    combine: str
    name: ClassVar[str] = "store_at"


# LINEAR level. Instructions stand in the order of `Linear.src`.


@dataclass(frozen=True, slots=True)
class Linear(Statement):
    """The instructions of one native function `kernel_name(ptr args, i64 chunk_begin, i64 chunk_end)`.

    What goes into the params of the slots `past` is written past the caches, where the machine can: it is more than
    they hold, and nothing here reads it.

    If it is for a `series`, what it calls chunks are launches, one after the other, and the arguments of each lie so
    many words behind those of the one before.
    """

    kernel_name: str
    past: tuple[int, ...] = ()
    series: int = 0
    name: ClassVar[str] = "linear"


@dataclass(frozen=True, slots=True)
class Chunk(Op):
    """The bounds of the chunks that this call runs: which is "begin" or "end"."""

    which: str
    name: ClassVar[str] = "chunk"

    def infer(self) -> Result:
        """An int64 scalar."""
        return dtypes.int64, ()


@dataclass(frozen=True, slots=True)
class Loop(Op):
    """The start of a loop; the node is the counter's value. src: (start, stop, step, init of a carried value, ...)."""

    uid: int
    name: ClassVar[str] = "loop"

    def infer(self, start: Node, stop: Node, step: Node, *inits: Node) -> Result:
        """The counter, int64."""
        return dtypes.int64, ()


@dataclass(frozen=True, slots=True)
class Carried(Op):
    """The current value of the k-th carried value of a loop. src: (loop,)."""

    k: int
    name: ClassVar[str] = "carried"

    def infer(self, loop: Node) -> Result:
        """As the init."""
        init = loop.src[3 + self.k]
        return init.dtype, init.shape


class EndLoop(Statement):
    """The end of a loop's body. src: (loop, next value, ...)."""

    name: ClassVar[str] = "end_loop"


@dataclass(frozen=True, slots=True)
class Final(Op):
    """The k-th value after a loop (the init if it ran zero times), or after an If. src: (end_loop or end_if,)."""

    k: int
    name: ClassVar[str] = "final"

    def infer(self, end: Node) -> Result:
        """As the next value."""
        value = end.src[1 + self.k]
        return value.dtype, value.shape


@dataclass(frozen=True, slots=True)
class Interleave(Op):
    """Lanes of two vectors in turn: those of their first halves, or (`second`) of their second ones. src: (x, y)."""

    second: bool
    name: ClassVar[str] = "interleave"

    def infer(self, x: Node, y: Node) -> Result:
        """As either."""
        return x.dtype, x.shape


@dataclass(frozen=True, slots=True)
class Shuffle(Op):
    """Lanes of two vectors by number: those of the second follow those of the first. src: (x, y)."""

    places: tuple[int, ...]
    name: ClassVar[str] = "shuffle"

    def infer(self, x: Node, y: Node) -> Result:
        """As many as are named."""
        return x.dtype, (len(self.places),)


@dataclass(frozen=True, slots=True)
class If(Statement):
    """The start of instructions that run only where a scalar bool holds. src: (condition, value otherwise, ...)."""

    uid: int
    name: ClassVar[str] = "if"


class EndIf(Statement):
    """The end of an If. src: (if, value, ...): what `Final` names after it where the condition held."""

    name: ClassVar[str] = "end_if"


SINK, BLOCK, FOR, PROLOGUE, SWITCH, ASSIGN, STORE, PREFETCH, END_LOOP, END_IF = (
    Sink(),
    Block(),
    For(),
    Prologue(),
    Switch(),
    Assign(),
    Store(),
    Prefetch(),
    EndLoop(),
    EndIf(),
)


def store(*src: Node) -> Node:
    """A store."""
    return make(STORE, *src)


def sink(*statements: Node) -> Node:
    """A kernel of these statements."""
    return make(SINK, *statements)
