"""Scalar expressions that are no nodes yet: skeletons with holes, which tensors hold, and the nodes they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ir.view import View
from intaglio.ops.elementwise import Cast
from intaglio.ops.memory import const
from intaglio.storage.batch import batch
from intaglio.storage.skeleton import NumberStep, OpStep, Pattern

if TYPE_CHECKING:
    import weakref

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.storage.skeleton import Hole, Leaf

scalars: Final[list[weakref.ref[ScalarHandle]]] = []  # handles of scalar expressions not yet nodes


class ScalarHandle:
    """What a tensor must offer that may hold a scalar expression as skeleton and holes, or a value that is wanted."""

    __slots__ = ()
    _grad_state: object  # True where gradients follow it, so that what it is computed from is asked for later

    def to_node(self) -> Node:
        """The expression as a node (whose reads are registered with their storages)."""
        raise NotImplementedError


def register_scalars() -> None:
    """Make nodes of the scalar expressions that live, so that their storages know what they read."""
    for reference in list(scalars):
        handle = reference()
        if handle is not None:
            handle.to_node()
    scalars.clear()


def scalar_node(pattern: Pattern, holes: tuple[Hole, ...], dtype: DType) -> Node:
    """A scalar expression as a node, its reads as of their stamps."""

    def leaf(step: Leaf, hole: int) -> tuple[Node, bool]:
        if isinstance(step, NumberStep):
            return const(step.dtype, holes[hole]), False
        view = View(step.dtype, step.shape, step.strides, int(holes[hole]))
        return step.storage.read_past(view, int(holes[hole + 1])), False

    return batch(cast_pattern(pattern, dtype), (), leaf)


def cast_pattern(pattern: Pattern, dtype: DType) -> Pattern:
    """A pattern whose value has a dtype."""
    if pattern.steps[-1].dtype is dtype:
        return pattern
    last = OpStep(dtype, (), Cast(dtype), (len(pattern.steps) - 1,))
    return Pattern((*pattern.steps, last))
