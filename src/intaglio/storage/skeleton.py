"""Skeletons: what entries of a loop have in common, with their numbers and positions left out as holes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, cast

from intaglio.ir.node import Node, Op, toposort
from intaglio.ops.composite import write_out
from intaglio.ops.elementwise import Elementwise
from intaglio.ops.memory import Const, Put, Read
from intaglio.ops.reduce import Scan

if TYPE_CHECKING:
    from intaglio.core.dtypes import DType
    from intaglio.storage.storage import Storage

Hole: TypeAlias = int | float | bool
LARGEST: Final = 96  # nodes of a payload that may become the body of a loop
NOTHING: Final[frozenset[Storage]] = frozenset()
CHILDREN: Final = 64  # remembered extensions of a skeleton: a bound, since each keeps its operands alive


class Skeleton:
    """A scalar expression with holes: a read of one element, a number, or an op over skeletons.

    A read has two holes, its byte offset and its stamp; a number has one. An op's holes are its operands' in order.
    """

    __slots__ = ("children", "dtype", "floating", "key", "left", "op", "right", "storage", "storages", "width")

    def __init__(
        self,
        dtype: DType,
        storage: Storage | None = None,
        op: Op | None = None,
        left: Skeleton | None = None,
        right: Skeleton | None = None,
    ) -> None:
        self.dtype: Final = dtype
        self.floating: Final = dtype.is_float
        self.storage: Final = storage
        self.op: Final = op
        self.left: Final = left
        self.right: Final = right
        self.children: dict[object, Skeleton] = {}
        self.key: Pattern | None = None
        found, width = (NOTHING, 1) if storage is None else (frozenset((storage,)), 2)
        if op is not None:
            operands = [operand for operand in (left, right) if operand is not None]
            found = found.union(*[operand.storages for operand in operands])
            width = sum([operand.width for operand in operands])
        self.storages: Final = found
        self.width: Final = width  # how many holes it has

    def extend(self, key: object, op: Op, dtype: DType, other: Skeleton | None, swapped: bool) -> Skeleton:
        """The skeleton of `op` over this one and another, then found under `key`."""
        left, right = (other, self) if swapped else (self, other)
        return self.remember(key, Skeleton(dtype, None, op, left, right))

    def remember(self, key: object, child: Skeleton) -> Skeleton:
        """An extension of this skeleton, from now on found under `key`."""
        if len(self.children) >= CHILDREN:
            self.children.clear()
        self.children[key] = child
        return child

    def pattern(self) -> Pattern:
        """The steps that compute this expression, which compare equal for equal expressions."""
        if self.key is None:
            self.key = _flatten(self)
        return self.key


@cache
def number_skeleton(dtype: DType) -> Skeleton:
    """The skeleton of a number by itself."""
    return Skeleton(dtype)


@dataclass(frozen=True, slots=True)
class ReadStep:
    """A step that reads a storage. Its holes are a byte offset and a stamp."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage: Storage  # in the pattern of a pullback: a `Place` that stands for one
    holes: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class NumberStep:
    """A step that is a number: its hole."""

    dtype: DType
    holes: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class OpStep:
    """A step that is an op over earlier steps, given by their places."""

    dtype: DType
    shape: tuple[int, ...]
    op: Op
    src: tuple[int, ...]
    holes: ClassVar[int] = 0


Leaf: TypeAlias = ReadStep | NumberStep
Step: TypeAlias = Leaf | OpStep


@dataclass(frozen=True, slots=True)
class Pattern:
    """The steps of a payload, inputs before users; the last is the value. Compared by content."""

    steps: tuple[Step, ...]

    @property
    def reads(self) -> list[tuple[ReadStep, int]]:
        """Each read with the index of its first hole (its byte offset; its stamp comes next)."""
        found: list[tuple[ReadStep, int]] = []
        hole = 0
        for step in self.steps:
            if isinstance(step, ReadStep):
                found.append((step, hole))
            hole += step.holes
        return found

    @property
    def work(self) -> int:
        """How many elements all its ops compute."""
        ops = [step for step in self.steps if isinstance(step, OpStep) and isinstance(step.op, Elementwise)]
        return sum([prod(step.shape) for step in ops])

    @property
    def is_in_parts(self) -> bool:
        """Whether it takes several kernels: a scatter is one, and so is a running reduction that others use."""
        ops = [step.op for step in self.steps if isinstance(step, OpStep)]
        return any(isinstance(op, Put) for op in ops) or any(isinstance(op, Scan) for op in ops[:-1])


def _flatten(root: Skeleton) -> Pattern:
    """The pattern of a skeleton: its steps in the order in which its holes stand."""
    steps: list[Step] = []
    values: list[int] = []
    stack: list[tuple[Skeleton, bool]] = [(root, False)]
    while stack:
        skeleton, done = stack.pop()
        if skeleton.op is None:
            dtype, storage = skeleton.dtype, skeleton.storage
            steps.append(NumberStep(dtype) if storage is None else ReadStep(dtype, (), (), storage))
            values.append(len(steps) - 1)
        elif not done:
            stack.append((skeleton, True))
            stack.extend((operand, False) for operand in (skeleton.right, skeleton.left) if operand is not None)
        else:
            count = (skeleton.left is not None) + (skeleton.right is not None)
            src = tuple(values[-count:])
            del values[-count:]
            steps.append(OpStep(skeleton.dtype, (), skeleton.op, src))
            values.append(len(steps) - 1)
    return Pattern(tuple(steps))


def of_node(root: Node, *, again: bool = False, largest: int = LARGEST) -> tuple[Pattern, tuple[Hole, ...]] | None:
    """The pattern and holes of a payload; None where it is too large to be a loop's body, or reads a kept value.

    With `again`, kept values are read as they were written: from their storages.
    """
    if not is_small(root, largest):
        return None
    steps: list[Step] = []
    holes: list[Hole] = []
    index: dict[Node, int] = {}
    for node in toposort(write_out((root,))):
        match node.op:
            case Const() as op:
                steps.append(NumberStep(node.dtype))
                holes.append(op.value)
            case Read() if node.place is not None and not again:
                return None
            case Read(storage=storage, view=view, stamp=stamp):
                steps.append(ReadStep(node.dtype, view.shape, view.strides, cast("Storage", storage)))
                holes += (view.offset, stamp)
            case op:
                steps.append(OpStep(node.dtype, node.shape, op, tuple(index[s] for s in node.src)))
        index[node] = len(steps) - 1
    return Pattern(tuple(steps)), tuple(holes)


def is_small(root: Node, largest: int = LARGEST) -> bool:
    """Whether a value has no more nodes than the body of a loop may have: no more than those are looked at."""
    stack, seen = [root], {root}
    while stack and len(seen) <= largest:
        fresh = [source for source in stack.pop().src if source not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return len(seen) <= largest
