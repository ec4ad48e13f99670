"""Pullbacks of single nodes: from the cotangent of a value to those of its inputs. Pure, graph to graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import GradError
from intaglio.ir.node import Node, toposort
from intaglio.ir.view import View
from intaglio.ops import elementwise as ops
from intaglio.ops.composite import Composite
from intaglio.ops.convolution import Convolution, KernelsOf
from intaglio.ops.elementwise import Elementwise
from intaglio.ops.memory import Put, Take, Window, const, iota, put, take, window
from intaglio.ops.movement import Movement, expand, flip, pad, permute, reshape, shrink
from intaglio.ops.reduce import Reduce, Scan, reduce

if TYPE_CHECKING:
    from collections.abc import Container

Cotangents = list[Node | None]


def pull(node: Node, ct: Node) -> Cotangents:
    """The cotangents of a node's inputs; None for inputs that have none.

    Raises: GradError if the op cannot be differentiated.
    """
    op = node.op
    match op:
        case Elementwise() | Movement() | Reduce() | Scan():
            given = op.vjp(ct, node, *node.src)
            return [None if g is None else _fit(g, s) for g, s in zip(given, node.src, strict=True)]
        case Take():
            x, *indices = node.src
            return [put("add", zeros_like(x), ct, *indices), *([None] * len(indices))]
        case Put(combine=combine):
            return _pull_put(node, combine, ct)
        case Convolution() | KernelsOf():
            return list(op.vjp(ct, node, *node.src))
        case Composite():
            own = op.pulled_back(ct, *node.src)
            if own is not None:
                return [None if g is None else _fit(g, s) for g, s in zip(own, node.src, strict=True)]
            inside = pull_back(op.differentiable(*node.src), ct, leaves=frozenset(node.src))
            return [inside.pop(s, None) for s in node.src]  # to each once, where one is given twice
        case Window(view=view):
            x = node.src[0]
            if view.dtype is not x.dtype:
                return [None] * len(node.src)
            return [reshape(spread(view, ct, x.size), x.shape)]
        case _:
            return [None] * len(node.src)


def pull_back(root: Node, ct: Node, leaves: Container[Node] = ()) -> dict[Node, Node]:
    """The cotangents of the leaves of a graph, given that of its root; leaves that get none are left out.

    Args:
        leaves: Nodes that are leaves whatever their inputs.
    Raises: GradError if some op cannot be differentiated.
    """
    cts = {root: ct}
    for node in reversed(toposort((root,), enter=lambda n: n not in leaves and not isinstance(n.op, ops.Detach))):
        if node not in cts or not node.src or node in leaves:
            continue
        given = cts.pop(node)
        if isinstance(node.op, ops.Detach):
            continue
        for source, part in zip(node.src, pull(node, given), strict=True):
            if part is not None and source.dtype.is_float:
                cts[source] = ops.add(cts[source], part) if source in cts else part
    return cts


def zeros_like(x: Node) -> Node:
    """Zeros of a node's shape."""
    return expand(const(x.dtype, 0), x.shape)


def _fit(ct: Node, x: Node) -> Node:
    """A cotangent in the shape of an operand that was repeated: summed over the repetitions."""
    if ct.shape == x.shape:
        return ct
    if x.shape == ():
        return reduce("sum", ct, tuple(range(ct.rank)))
    if ct.shape == ():
        return expand(ct, x.shape)
    axes = tuple(a for a, (m, n) in enumerate(zip(x.shape, ct.shape, strict=True)) if m != n)
    return reshape(reduce("sum", ct, axes), x.shape)


def winners(shape: tuple[int, ...], indices: tuple[Node, ...]) -> Node:
    """Which entries of a scatter are the last at their place: bool of the indices' shape."""
    count = indices[0].size
    places = reshape(iota(count), indices[0].shape)
    lead = shape[: len(indices)]
    last = put("set", expand(const(dtypes.int64, -1), lead), places, *indices)
    return ops.eq(take(last, *indices), places)


def _pull_put(node: Node, combine: str, ct: Node) -> Cotangents:
    """What is overwritten gets none; of equal places the last value gets it all."""
    base, values, *indices = node.src
    picked = take(ct, *indices)
    rest: Cotangents = [None] * len(indices)
    if combine == "add":
        return [ct, picked, *rest]
    if combine == "set":
        wins = winners(base.shape, tuple(indices))
        wide = expand(reshape(wins, wins.shape + (1,) * (values.rank - wins.rank)), values.shape)
        covered = put(
            "set",
            expand(const(dtypes.bool, False), base.shape),
            expand(const(dtypes.bool, True), values.shape),
            *indices,
        )
        none = const(ct.dtype, 0)
        return [ops.where(covered, none, ct), ops.where(wide, picked, none), *rest]
    if combine in ("max", "min"):
        out = take(node, *indices)
        hit_base = ops.cast(ops.eq(base, node), ct.dtype)
        hit = ops.cast(ops.eq(values, out), ct.dtype)
        count = put("add", hit_base, hit, *indices)
        safe = ops.maximum(count, const(ct.dtype, 1))
        shared = ops.div(ct, safe)
        return [ops.mul(shared, hit_base), ops.mul(take(shared, *indices), hit), *rest]
    if combine == "mul":
        return _pull_product(node, ct)
    raise GradError(f"scatter: by {combine} there is no gradient.")


def _pull_product(node: Node, ct: Node) -> Cotangents:
    """To each factor of a place the product of the others: of all by this one; if only this one is 0, of the rest."""
    base, values, *indices = node.src
    none, one = const(ct.dtype, 0), const(ct.dtype, 1)
    zeros = [ops.eq(x, none) for x in (base, values)]
    count = put("add", *(ops.cast(zero, ct.dtype) for zero in zeros), *indices)
    safe = [ops.where(zero, one, x) for zero, x in zip(zeros, (base, values), strict=True)]
    rest = put("mul", *safe, *indices)

    def part(x: Node, zero: Node, *at: Node) -> Node:
        slope, out, many, others = (take(n, *at) if at else n for n in (ct, node, count, rest))
        only = ops.where(ops.and_(zero, ops.eq(many, one)), others, none)
        return ops.mul(slope, ops.where(ops.eq(many, none), ops.div(out, x), only))

    return [part(safe[0], zeros[0]), part(safe[1], zeros[1], *indices), *([None] * len(indices))]


def spread(view: View, ct: Node, size: int) -> Node:
    """The transpose of reading a view: a flat array of `size` elements, the cotangent where the view reads."""
    if not view.size:
        return expand(const(ct.dtype, 0), (size,))
    item = view.dtype.itemsize
    repeated = tuple(a for a, (n, s) in enumerate(zip(view.shape, view.strides, strict=True)) if s == 0 or n == 1)
    ct = reduce("sum", ct, repeated)
    axes = [(n, s // item) for n, s in zip(view.shape, view.strides, strict=True) if s != 0 and n != 1]
    offset = view.offset // item
    ct = flip(ct, tuple(a for a, (_, s) in enumerate(axes) if s < 0))
    offset += sum((n - 1) * s for n, s in axes if s < 0)
    order = sorted(range(len(axes)), key=lambda a: -abs(axes[a][1]))
    ct = permute(ct, tuple(order))
    axes = [(axes[a][0], abs(axes[a][1])) for a in order]
    made = _blocks(ct, axes, offset, size)
    if made is not None:
        return made
    total: Node = const(dtypes.int64, offset)
    for a, (n, s) in enumerate(axes):
        steps = ops.mul(iota(n), const(dtypes.int64, s))
        place = expand(reshape(steps, tuple(n if b == a else 1 for b in range(len(axes)))), ct.shape)
        total = ops.add(place, total)
    return put("add", expand(const(ct.dtype, 0), (size,)), ct, total)


def _blocks(ct: Node, axes: list[tuple[int, int]], offset: int, size: int) -> Node | None:
    """A spread by padding, where each axis steps over whole blocks of the next."""
    lead = tuple(n for n, _ in axes)
    x = reshape(ct, (*lead, 1))
    inner = 1
    for k in range(len(axes) - 1, -1, -1):
        n, step = axes[k]
        if inner > step:
            return None
        x = pad(x, ((0, 0),) * (k + 1) + ((0, step - inner),))
        x = reshape(x, (*lead[:k], n * step))
        inner = n * step
    after = size - offset - inner
    if after < 0:
        x = shrink(x, ((0, size - offset),))
        after = 0
    return pad(x, ((offset, after),))


def read_flat(view: View, ct: Node) -> Node:
    """The part of a storage's flat cotangent that belongs to a view."""
    return window(view, ct)


def mask_of(view: View, size: int) -> Node:
    """Which elements of a storage a view covers: bool, flat."""
    ones = expand(const(view.dtype, 1), view.shape)
    return ops.ne(spread(view, ones, size), const(view.dtype, 0))


def touched(view: View, indices: tuple[Node, ...], mask: Node | None, ct: Node, rest: int) -> Node:
    """Which elements of a flat cotangent a write of other elements has bytes of.

    Args:
        indices: The positions that it is at, if they are computed.
        mask: The elements of the view that it writes; all when None.
        rest: The bytes before the first element of the cotangent.
    """
    inside = expand(const(dtypes.bool, True), view.shape) if mask is None else mask
    if indices:
        values = expand(const(dtypes.bool, True), indices[0].shape + view.shape[len(indices) :])
        inside = put("set", expand(const(dtypes.bool, False), view.shape), values, *indices)
    item, own = view.dtype.itemsize, ct.dtype.itemsize
    rows = View(dtypes.uint8, (*view.shape, item), (*view.strides, 1), view.offset)
    wide = expand(reshape(ops.cast(inside, dtypes.uint8), (*view.shape, 1)), rows.shape)
    end = rest + ct.size * own
    written = shrink(spread(rows, wide, max(end, rows.byte_bounds()[1])), ((rest, end),))
    found = reduce("max", reshape(written, (ct.size, own)), (1,))
    return ops.ne(found, const(dtypes.uint8, 0))
