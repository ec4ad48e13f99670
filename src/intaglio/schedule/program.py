"""What storage hands to the engine: a slice of the journal as a small imperative program over buffers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeAlias

from intaglio.ir.node import Node, Op, Result, make
from intaglio.ops.memory import Const

if TYPE_CHECKING:
    from collections.abc import Iterable

    from intaglio.core.dtypes import DType
    from intaglio.ir.view import View
    from intaglio.ops.memory import BufferRef


@dataclass(unsafe_hash=True, slots=True)  # not frozen, since that makes each object by calls: a flush makes many
class ReadAt(Op):
    """A leaf of statement values: a view of a buffer as it is just before statement number `position` runs.

    `position` may be smaller than the number of the statement that uses the value (an expression keeps the value that
    its operands had when it was written); never larger.
    """

    ref: Final[BufferRef]
    view: Final[View]
    position: Final[int]
    name: ClassVar[str] = "read_at"

    def infer(self) -> Result:
        """The view's dtype and shape."""
        return self.view.dtype, self.view.shape


@dataclass(frozen=True, slots=True)
class CopyTo(Op):
    """The same values on another device. src: (value,)."""

    device: str
    name: ClassVar[str] = "copy_to"

    def infer(self, value: Node) -> Result:
        """Unchanged."""
        return value.dtype, value.shape


@dataclass(frozen=True, slots=True)
class Hole(Op):
    """A number that a kernel takes as an argument, known when the kernel runs. Shape ()."""

    number: int
    of: DType
    name: ClassVar[str] = "hole"

    def infer(self) -> Result:
        """A scalar of its dtype."""
        return self.of, ()


@dataclass(unsafe_hash=True, slots=True)
class Write:
    """One write: the elements of `view` of `ref` take `value`, all of it computed before any is stored.

    With `indices`, the view's leading axes are indexed: value has shape J + view.shape[k:], combined as `Put` says.
    `offset` (a byte offset node) is only used in a `Repeat`'s body.
    """

    ref: Final[BufferRef]
    view: Final[View]
    value: Final[Node]
    indices: Final[tuple[Node, ...]] = ()
    combine: Final[str] = "set"
    offset: Final[Node | None] = None
    site: Final[tuple[str, int] | None] = None


@dataclass(frozen=True, slots=True)
class Repeat:
    """A sequential loop: the body runs in order for each value of the counter (a Range node).

    Values in the body read memory as it is at that moment, by `Window(view)(Buffer(ref)[, byte offset])`; offsets are
    int64 scalar expressions of the counter (a Take of a constant buffer's window where positions are irregular).
    `selector`, if any, is an int64 scalar that picks which arm of `arms` runs; else there is one arm. With `free`, all
    writes have the first axis of their views in common, and what is done at one place along it depends on nothing that
    is done at another in any turn. With `joined`, it belongs to the kernel of the loop before it.
    """

    counter: Node
    arms: tuple[tuple[Write, ...], ...]
    selector: Node | None = None
    free: bool = False
    joined: bool = False


Statement: TypeAlias = Write | Repeat


class Output(NamedTuple):
    """A value that was asked for: the buffer that is made of it, and the row-major view that is all of that."""

    ref: BufferRef
    view: View
    value: Node


@dataclass(slots=True)
class Program:
    """Statements in program order. Buffers that no statement has written hold what they hold.

    `outputs` are the values that were asked for: each goes into a buffer of its own that this program creates and
    keeps, and that nothing else in the program reads, at any time at which what it reads is valid.
    `fresh` are the other buffers that this program creates (no bytes yet). `keep` are those whose final bytes matter;
    everything else is scratch. `pinned` are the buffers that may not move. `reads` says of values that they are to be
    read, not computed: they are leaves of the statements' values, as if a `ReadAt` stood there. `views` says of
    other reads which value they are a view of. `order` is all values, inputs before users, as a walk from the
    statements and then the outputs finds them, where whoever made the program knows (and always if there are `views`).
    """

    statements: list[Statement]
    reads: dict[Node, ReadAt] = field(default_factory=dict)
    views: dict[Node, Node] = field(default_factory=dict)
    fresh: set[BufferRef] = field(default_factory=set)
    keep: set[BufferRef] = field(default_factory=set)
    pinned: set[BufferRef] = field(default_factory=set)
    outputs: list[Output] = field(default_factory=list)
    order: list[Node] | None = None


def writes_of(statement: Statement) -> Iterable[Write]:
    """The writes of a statement."""
    return (statement,) if isinstance(statement, Write) else itertools.chain(*statement.arms)


def values_of(statement: Statement) -> list[Node]:
    """The values of a statement, in a fixed order."""
    if isinstance(statement, Write) and statement.offset is None:
        return [statement.value, *statement.indices]
    found: list[Node] = []
    for write in writes_of(statement):
        found += (write.value, *write.indices)
        if write.offset is not None:
            found.append(write.offset)
    if isinstance(statement, Repeat):
        found.append(statement.counter)
        if statement.selector is not None:
            found.append(statement.selector)
    return found


def turns_of(statement: Repeat) -> int:
    """How often a loop's body runs."""
    bound = statement.counter.src[0].op
    assert isinstance(bound, Const)
    return int(bound.value)


def read_at(ref: BufferRef, view: View, position: int) -> Node:
    """A view of a buffer just before a statement."""
    return make(ReadAt(ref, view, position))


def copy_to(value: Node, device: str) -> Node:
    """The same values on another device."""
    return make(CopyTo(device), value)
