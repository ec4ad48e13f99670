"""Composite ops: one node where programs are built, that stands for a graph of other ops.

The graph is written out where a program is planned (once for all programs of one structure), pulled back, or made the
body of a loop. So it costs a tensor's program one node, and the stages after know nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from intaglio.ir.node import Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.ir.node import Node


class Composite(Op):
    """An op that stands for a graph."""

    # The graph over the op's inputs, without composite ops. Each op takes its own inputs.
    written_out: ClassVar[Callable[..., Node]]

    def differentiable(self, *src: Node) -> Node:
        """The graph that is pulled back: another of the same value where slopes of the one written out are not its."""
        return self.written_out(*src)

    def pulled_back(self, ct: Node, *src: Node) -> list[Node | None] | None:
        """The cotangents of the inputs, up to repetitions; None where a graph is to be pulled back."""
        return None
