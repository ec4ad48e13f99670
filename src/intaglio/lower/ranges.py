"""Tensor graphs as scalar expressions over ranges: movement becomes index arithmetic, reductions become folds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import InternalError
from intaglio.ir.node import Node, make, toposort
from intaglio.lower.index import Index, number
from intaglio.ops.elementwise import Add, Elementwise, FloorDiv, Mod, Mul, Sub, and_, bitcast, cast, ge, lt, where
from intaglio.ops.loop import Range
from intaglio.ops.memory import Arg, Const, Iota, Local, Param, Take, Window, const, load
from intaglio.ops.movement import Expand, Flip, Pad, Permute, Reshape, Shrink
from intaglio.ops.reduce import COMBINES, Fold, Reduce

if TYPE_CHECKING:
    import itertools
    from collections.abc import Callable

Indices = tuple[Node, ...]
Key = tuple[Node, Indices, Node | None]
Finish: TypeAlias = "Callable[[list[Node]], Node]"  # a value from those of the keys it needs


class Scalarize:
    """Values at index tuples, for the statements of one kernel."""

    def __init__(self, index: Index, axes: itertools.count[int], epoch: Callable[[Node], int]) -> None:
        """Share index arithmetic and range numbers among statements.

        Args:
            epoch: The load epoch for a pointer: not 0 where the kernel also writes its bytes.
        """
        self.index: Final = index
        self.axes: Final = axes
        self.epoch: Final = epoch
        self.memo: Final[dict[Key, Node]] = {}
        self._chosen: Final[dict[Key, dict[int, Node]]] = {}  # the ranges of each reduction

    def range(self, extent: int) -> Node:
        """A new range."""
        return make(Range(next(self.axes)), number(extent))

    def at(self, root: Node, indices: Indices) -> Node:
        """The value of `root` at an index tuple, as a scalar expression."""
        memo = self.memo
        start: Key = (root, indices if root.shape else (), None)
        stack: list[Key] = [start]
        while stack:
            key = stack[-1]
            if key in memo:
                stack.pop()
                continue
            needed, finish = self._step(*key)
            missing = [k for k in needed if k not in memo]
            if missing:
                stack.extend(reversed(missing))
            else:
                memo[key] = finish([memo[k] for k in needed])
                stack.pop()
        return memo[start]

    def _step(self, node: Node, indices: Indices, gate: Node | None) -> tuple[list[Key], Finish]:
        """What must be known first, and how the value follows from it."""
        ix = self.index
        op = node.op
        match op:
            case Const() | Arg() | Range():
                return [], lambda _: node
            case Iota():
                return [], lambda _: indices[0]
            case Elementwise():
                needed: list[Key] = [(s, indices if s.shape else (), gate) for s in node.src]
                if node.dtype is dtypes.int64 and isinstance(op, (Add, Sub, Mul)):
                    return needed, lambda values: ix.build(*ix.affine(make(op, *values)))
                return needed, lambda values: make(op, *(ix.settled(v) for v in values))
            case Window():
                return self._window(node, op, indices, gate)
            case Reshape():
                (x,) = node.src
                return self._forward(x, ix.unflatten(ix.flatten(indices, node.shape), x.shape), gate)
            case Permute(order=order):
                moved: list[Node] = [number(0)] * len(order)
                for place, axis in enumerate(order):
                    moved[axis] = indices[place]
                return self._forward(node.src[0], tuple(moved), gate)
            case Expand():
                (x,) = node.src
                kept = (
                    tuple(number(0) if n == 1 else i for n, i in zip(x.shape, indices, strict=False)) if x.shape else ()
                )
                return self._forward(x, kept, gate)
            case Shrink(bounds=bounds):
                inner = tuple(ix.add(i, number(a)) for i, (a, _) in zip(indices, bounds, strict=True))
                return self._forward(node.src[0], inner, gate)
            case Flip(axes=axes):
                inner = tuple(
                    ix.sum([(i, -1)], n - 1) if a in axes else i
                    for a, (i, n) in enumerate(zip(indices, node.shape, strict=True))
                )
                return self._forward(node.src[0], inner, gate)
            case Pad(pads=pads):
                return self._pad(node, pads, indices, gate)
            case Take():
                return self._take(node, indices, gate)
            case Reduce(kind=kind, axes=axes):
                return self._reduce(node, kind, axes, indices, gate)
            case _:
                raise InternalError(f"lower: {op.name} must be computed in a kernel of its own")

    def _forward(self, x: Node, indices: Indices, gate: Node | None) -> tuple[list[Key], Finish]:
        """The value of the input at other indices."""
        return [(x, indices, gate)], lambda values: values[0]

    def _window(self, node: Node, op: Window, indices: Indices, gate: Node | None) -> tuple[list[Key], Finish]:
        """An element of memory, or an element of a computed value by its row-major position."""
        ix = self.index
        value = node.src[0]
        view = op.view
        item = view.dtype.itemsize
        place = ix.sum([(i, s // item) for i, s in zip(indices, view.strides, strict=True)], view.offset // item)
        if isinstance(value.op, (Param, Local)):
            epoch = self.epoch(value)
            if len(node.src) == 1:
                return [], lambda _: load(value, place, *(() if gate is None else (gate,)), epoch=epoch)
            offset = (node.src[1], (), None)
            return [offset], lambda values: load(
                value, ix.add(place, ix.div(values[0], item)), *(() if gate is None else (gate,)), epoch=epoch
            )
        if value.dtype.itemsize != item or len(node.src) > 1:
            raise InternalError("lower: a view of a computed value must keep its item size")
        inner = ix.unflatten(place, value.shape)
        return [(value, inner, gate)], lambda values: bitcast(values[0], view.dtype)

    def _pad(
        self, node: Node, pads: tuple[tuple[int, int], ...], indices: Indices, gate: Node | None
    ) -> tuple[list[Key], Finish]:
        """The input inside its bounds, zero outside (where no memory is touched)."""
        ix = self.index
        (x,) = node.src
        inside: Node | None = None
        inner: list[Node] = []
        for i, (before, after), n in zip(indices, pads, x.shape, strict=True):
            moved = ix.add(i, number(-before)) if before else i
            inner.append(moved)
            tests = ([ge(moved, number(0))] if before and not ix.at_least(moved, 0) else []) + (
                [lt(moved, number(n))] if after and not ix.below(moved, n) else []
            )
            for test in tests:
                inside = test if inside is None else and_(inside, test)
        if inside is None:
            return self._forward(x, tuple(inner), gate)
        both = inside if gate is None else and_(gate, inside)
        chosen = inside
        return [(x, tuple(inner), both)], lambda values: where(chosen, values[0], const(x.dtype, 0))

    def _take(self, node: Node, indices: Indices, gate: Node | None) -> tuple[list[Key], Finish]:
        """An element at positions that are computed; one out of range reads at 0."""
        x, *positions = node.src
        rank = len(positions[0].shape)
        needed: list[Key] = [(p, indices[:rank] if p.shape else (), gate) for p in positions]
        known = [self.memo.get(key) for key in needed]
        if any(k is None for k in known):
            return needed, lambda _: number(0)  # not called: the missing ones come first
        inner: list[Node] = []
        for place, n in zip(known, x.shape, strict=False):
            assert place is not None
            inner.append(
                place
                if self.index.at_least(place, 0) and self.index.below(place, n)
                else where(and_(ge(place, number(0)), lt(place, number(n))), place, number(0))
            )
        return [(x, (*inner, *indices[rank:]), gate)], lambda values: values[0]

    def _reduce(
        self, node: Node, kind: str, axes: tuple[int, ...], indices: Indices, gate: Node | None
    ) -> tuple[list[Key], Finish]:
        """A fold over new ranges."""
        (x,) = node.src
        own = self._chosen.get((node, indices, gate))  # a step is asked for twice
        if own is None:
            own = {a: self.range(x.shape[a]) for a in axes if x.shape[a] != 1}
            self._chosen[node, indices, gate] = own
        free = iter(indices)
        inner = tuple(own.get(a, number(0)) if a in axes else next(free) for a in range(x.rank))
        loops = tuple(own.values())
        wide = COMBINES[kind].carrier(x.dtype)
        return [(x, inner, gate)], lambda values: cast(make(Fold(kind), cast(values[0], wide), *loops), x.dtype)


def has_division(roots: list[Node], of: Node) -> bool:
    """Whether a division of an expression of `of` is left in what the roots compute."""
    depends: set[Node] = {of}
    for node in toposort(roots):
        if any(s in depends for s in node.src):
            if isinstance(node.op, (FloorDiv, Mod)) and node.dtype is dtypes.int64:
                return True
            depends.add(node)
    return False
