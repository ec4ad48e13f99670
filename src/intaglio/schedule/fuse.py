"""Fusion: which values of a statement get a buffer, and which statements share a kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from intaglio.ir.node import Node, rebuild, toposort
from intaglio.ir.view import View
from intaglio.ops.elementwise import Cast, Elementwise, Mul
from intaglio.ops.memory import Buffer, BufferRef, Put, Take, Window, buffer, window
from intaglio.ops.movement import Expand, Flip, Pad, Permute, Reshape, Shrink
from intaglio.ops.reduce import Reduce, Scan
from intaglio.schedule.program import CopyTo, Repeat, Statement, Write

DEEPEST: Final = 160  # ops computed in one kernel before a value in between gets a buffer
TOGETHER: Final = 16  # statements of one kernel
LIGHT: Final = 1 << 16  # elements up to which statements of different shapes share a kernel
PACKED: Final = 16  # rows of a product from which a factor with far-apart columns is copied into order first

Axes = tuple[frozenset[int], ...]  # for each axis of a node, the loops of the kernel that its position depends on


def split(statements: list[Statement], fresh: set[BufferRef]) -> list[Statement]:
    """Statements with every value that needs a buffer computed by one of its own, before its first use."""
    done: dict[Node, Node] = {}
    out: list[Statement] = []
    shared = _shared(statements)
    for statement in statements:
        if isinstance(statement, Repeat):
            out.append(statement)
            _forget(done, {w.ref for arm in statement.arms for w in arm})
            continue
        maker = _Materialize(statement.ref.device, fresh, done, shared, out)
        value = maker.value(statement.value)
        indices = tuple(maker.value(i) for i in statement.indices)
        if isinstance(value.op, Put):
            base, values, *places = value.src
            out.append(replace(statement, value=base))
            out.append(replace(statement, value=values, indices=tuple(places), combine=value.op.combine))
        else:
            out.append(replace(statement, value=value, indices=indices))
        _forget(done, {statement.ref})
    return out


def _forget(done: dict[Node, Node], refs: set[BufferRef]) -> None:
    """Values that read what was just written are other values from now on."""
    for node in list(done):
        if any(isinstance(n.op, Buffer) and n.op.ref in refs for n in toposort((node,))):
            del done[node]


def _shared(statements: list[Statement]) -> set[Node]:
    """Values of some cost that more than one statement uses."""
    users: dict[Node, int] = {}
    for statement in statements:
        if isinstance(statement, Write):
            for node in toposort((statement.value,)):
                if isinstance(node.op, (Reduce, Elementwise)) and node.shape:
                    users[node] = users.get(node, 0) + 1
    return {node for node, count in users.items() if count > 1}


def is_product(node: Node) -> bool:
    """Whether a node is a sum of products of two values that are each repeated along an axis of the other."""
    if not (isinstance(node.op, Reduce) and node.op.kind == "sum" and isinstance(node.src[0].op, Mul)):
        return False
    left, right = (_repeated(s) for s in node.src[0].src)
    kept = set(range(node.src[0].rank)) - set(node.op.axes)
    return bool((left - right) & kept) and bool((right - left) & kept)


def _repeated(node: Node) -> frozenset[int]:
    """The axes along which a value is a repetition."""
    found: set[int] = set()
    while isinstance(node.op, (Expand, Cast)):
        if isinstance(node.op, Expand):
            (x,) = node.src
            if x.shape:
                found |= {a for a, (m, n) in enumerate(zip(x.shape, node.shape, strict=True)) if m == 1 and n != 1}
        node = node.src[0]
    if isinstance(node.op, Window) and isinstance(node.src[0].op, Buffer):
        found |= {a for a, (n, s) in enumerate(zip(node.shape, node.op.view.strides, strict=True)) if s == 0 and n != 1}
    return frozenset(found)


class _Materialize:
    """The choice of buffers for one statement."""

    def __init__(
        self, device: str, fresh: set[BufferRef], done: dict[Node, Node], shared: set[Node], out: list[Statement]
    ) -> None:
        self.device: Final = device
        self.fresh: Final = fresh
        self.done: Final = done
        self.shared: Final = shared
        self.out: Final = out

    def value(self, root: Node) -> Node:
        """The root with what needs one in a buffer (the root itself is stored by its statement)."""
        chosen = self._choose(root)
        made: dict[Node, Node] = {}
        for node in toposort((root,), enter=lambda n: n not in self.done or n is root):
            if node in self.done and node is not root:
                made[node] = self.done[node]
                continue
            body = _rebuilt(node, tuple(made[s] for s in node.src)) if node.src else node
            if node in chosen and node is not root:
                body = self._buffer(node, body)
            made[node] = body
        return made[root]

    def _buffer(self, node: Node, body: Node) -> Node:
        """A statement that computes a node into a buffer; gives its window."""
        ref = BufferRef(max(node.nbytes, 1), self.device)
        self.fresh.add(ref)
        whole = View.contiguous(node.dtype, node.shape)
        self.out.extend(split_root(Write(ref, whole, body)))
        made = window(whole, buffer(ref))
        self.done[node] = made
        return made

    def _choose(self, root: Node) -> set[Node]:
        """The nodes that get a buffer."""
        order = toposort((root,), enter=lambda n: n not in self.done or n is root)
        chosen: set[Node] = set()
        contexts = _contexts(root, order, self.done)
        depth: dict[Node, int] = {}
        packs = _packed(order)
        for node in order:
            op = node.op
            if not node.src or node in self.done:
                depth[node] = 0
                continue
            inner = 1 + sum(depth[s] for s in node.src)
            must = False
            match op:
                case Scan() | Put() | CopyTo():
                    must = True
                case Window(view=view):
                    source = node.src[0]
                    if not isinstance(source.op, Buffer) and source.dtype.itemsize != view.dtype.itemsize:
                        chosen.add(source)
                case Reduce():
                    must = len(contexts.get(node, ())) > 1 or not _outermost(node, contexts)
                    if is_product(node):
                        for factor in node.src[0].src:
                            self._factor(factor, chosen)
                        must = must or _has_product_below(node, order, chosen, self.done)
                    must = must or (node in self.shared)
                case Elementwise():
                    if (
                        (inner > DEEPEST and node.size > 1)
                        or inner > 4 * DEEPEST
                        or (node in self.shared and inner >= 8 and node.size >= 1024)
                        or (not op.primitive and node.shape and not _outermost(node, contexts))
                    ):
                        must = True
                case _:
                    pass
            if node in packs:
                must = True
            if must:
                chosen.add(node)
            depth[node] = 0 if must else inner
        return chosen

    def _factor(self, factor: Node, chosen: set[Node]) -> None:
        """A factor of a product is computed once, not once for each of the other's rows."""
        node = factor
        while isinstance(node.op, (Expand, Reshape, Permute)):
            node = node.src[0]
        if (
            (node.src and not isinstance(node.op, (Window, Cast)) and node not in self.done)
            or (isinstance(node.op, Window) and not isinstance(node.src[0].op, Buffer))
            or (
                isinstance(node.op, Cast)
                and not (isinstance(node.src[0].op, Window) and isinstance(node.src[0].src[0].op, Buffer))
            )
        ):
            chosen.add(node)


def _rebuilt(node: Node, src: tuple[Node, ...]) -> Node:
    """A node over new inputs; a view of what now is a whole buffer is a view of the buffer."""
    op = node.op
    if isinstance(op, Window) and len(src) == 1 and src[0] is not node.src[0]:
        inner = src[0]
        if (
            isinstance(inner.op, Window)
            and isinstance(inner.src[0].op, Buffer)
            and inner.op.view.is_contiguous
            and inner.op.view.offset == 0
        ):
            return window(op.view, inner.src[0])
    return rebuild(node, src)


def split_root(statement: Write) -> list[Statement]:
    """A write of a scatter as the write of its base, then of its values at their positions."""
    value = statement.value
    if not isinstance(value.op, Put):
        return [statement]
    base, values, *places = value.src
    return [
        replace(statement, value=base),
        replace(statement, value=values, indices=tuple(places), combine=value.op.combine),
    ]


def _has_product_below(node: Node, order: list[Node], chosen: set[Node], done: dict[Node, Node]) -> bool:
    """Whether another reduction is computed within this product."""
    stack = list(node.src)
    seen: set[Node] = set()
    while stack:
        n = stack.pop()
        if n in seen or n in chosen or n in done:
            continue
        seen.add(n)
        if isinstance(n.op, Reduce):
            return True
        stack.extend(n.src)
    return False


def _packed(order: list[Node]) -> set[Node]:
    """Permuted factors of products whose columns lie far apart, to be copied into order first."""
    found: set[Node] = set()
    for node in order:
        if not is_product(node):
            continue
        kept = [a for a in range(node.src[0].rank) if not (isinstance(node.op, Reduce) and a in node.op.axes)]
        body = node.src[0]
        if len(kept) < 2:
            continue
        last, row = kept[-1], kept[-2]
        if body.shape[row] < PACKED:
            continue
        for factor in body.src:
            if last in _repeated(factor):
                continue
            core = factor
            while isinstance(core.op, (Expand, Cast)) and core.src[0].shape:
                core = core.src[0]
            if isinstance(core.op, (Reshape, Permute, Window)) and _far(core, last):
                found.add(core)
    return found


def _far(core: Node, axis: int) -> bool:
    """Whether neighbours along an axis of a moved buffer lie apart in memory."""
    node = core
    axis_now: int | None = axis if axis < core.rank else None
    while axis_now is not None:
        match node.op:
            case Window(view=view) if isinstance(node.src[0].op, Buffer):
                stride = view.strides[axis_now]
                return view.shape[axis_now] > 1 and abs(stride) != view.dtype.itemsize and stride != 0
            case Permute(order=order):
                axis_now = order[axis_now]
            case Reshape():
                old = [a for a, n in enumerate(node.src[0].shape) if n != 1]
                new = [a for a, n in enumerate(node.shape) if n != 1]
                if [node.src[0].shape[a] for a in old] != [node.shape[a] for a in new] or axis_now not in new:
                    return False
                axis_now = old[new.index(axis_now)]
            case Expand() | Cast():
                pass
            case _:
                return False
        node = node.src[0]
    return False


def _contexts(
    root: Node, order: list[Node], done: dict[Node, Node]
) -> dict[Node, dict[tuple[Axes, tuple[int, ...]], None]]:
    """For each node, the ways in which its axes follow from the loops around it: (axes, the loops in order)."""
    found: dict[Node, dict[tuple[Axes, tuple[int, ...]], None]] = {n: {} for n in order}
    count = root.rank
    start: Axes = tuple(frozenset((a,)) if n != 1 else frozenset() for a, n in enumerate(root.shape))
    found[root][start, tuple(range(count))] = None
    folds: dict[tuple[Node, Axes, int], int] = {}
    for node in reversed(order):
        if node in done and node is not root:
            continue
        for axes, loops in list(found[node])[:4]:
            for source, given, around in _inputs(node, axes, loops, folds):
                ways = found.get(source)
                if ways is not None and len(ways) < 4:
                    ways[given, around] = None
    return found


def _inputs(
    node: Node, axes: Axes, loops: tuple[int, ...], folds: dict[tuple[Node, Axes, int], int]
) -> list[tuple[Node, Axes, tuple[int, ...]]]:
    """How the inputs' axes follow from the loops."""
    nothing: frozenset[int] = frozenset()
    match node.op:
        case Elementwise():
            return [(s, axes if s.shape else (), loops) for s in node.src]
        case Permute(order=order):
            moved = [nothing] * len(order)
            for place, axis in enumerate(order):
                moved[axis] = axes[place]
            return [(node.src[0], tuple(moved), loops)]
        case Expand():
            (x,) = node.src
            kept = tuple(nothing if n == 1 else a for n, a in zip(x.shape, axes, strict=True)) if x.shape else ()
            return [(x, kept, loops)]
        case Pad() | Shrink() | Flip():
            return [(node.src[0], axes, loops)]
        case Reshape():
            return [(node.src[0], _reshaped(node.src[0].shape, node.shape, axes), loops)]
        case Reduce(axes=along):
            (x,) = node.src
            inner: list[frozenset[int]] = []
            around = list(loops)
            free = iter(axes)
            for a, n in enumerate(x.shape):
                if a in along:
                    key = (node, axes, a)
                    own = folds.setdefault(key, 1000 + len(folds))
                    inner.append(frozenset((own,)) if n != 1 else nothing)
                    around.append(own)
                else:
                    inner.append(next(free))
            used = frozenset().union(*axes) if axes else nothing
            around = [loop for loop in loops if loop in used] + around[len(loops) :]
            return [(x, tuple(inner), tuple(around))]
        case Take():
            x, *indices = node.src
            rank = indices[0].rank
            lead = frozenset().union(*axes[:rank]) if rank else nothing
            given: list[tuple[Node, Axes, tuple[int, ...]]] = [(i, axes[:rank], loops) for i in indices]
            return [*given, (x, (lead,) * len(indices) + axes[rank:], loops)]
        case _:
            every = frozenset().union(*axes) if axes else nothing
            return [(s, (every,) * s.rank, loops) for s in node.src]


def _reshaped(old: tuple[int, ...], new: tuple[int, ...], axes: Axes) -> Axes:
    """The loops of each axis before a reshape, given those after: runs of axes of equal size depend on each other."""
    if 0 in old:
        every: frozenset[int] = frozenset().union(*axes) if axes else frozenset()
        return (every,) * len(old)
    result: list[frozenset[int]] = []
    j = 0
    i = 0
    while i < len(old):
        first = i
        size = old[i]
        i += 1
        group: set[int] = set()
        total = 1
        while j < len(new) and total < size:
            total *= new[j]
            group |= axes[j]
            j += 1
        while total != size and i < len(old):
            if size < total:
                size *= old[i]
                i += 1
            else:
                total *= new[j]
                group |= axes[j]
                j += 1
        result.extend(frozenset(group) if old[k] != 1 else frozenset() for k in range(first, i))
    return tuple(result)


def _outermost(node: Node, contexts: dict[Node, dict[tuple[Axes, tuple[int, ...]], None]]) -> bool:
    """Whether the loops that a node's position depends on are the outermost ones around it: it is computed once."""
    for axes, loops in contexts.get(node, ()):
        used = frozenset().union(*axes) if axes else frozenset()
        mine = [loop for loop in loops if loop in used]
        if tuple(mine) != loops[: len(mine)]:
            return False
    return True


def together(statements: list[Statement]) -> list[list[Statement]]:
    """Adjacent statements that share a kernel: none reads what another of them writes."""
    groups: list[list[Statement]] = []
    written: set[BufferRef] = set()
    for statement in statements:
        if groups and _joins(groups[-1], statement, written):
            groups[-1].append(statement)
        else:
            groups.append([statement])
            written = set()
        written |= {w.ref for arm in statement.arms for w in arm} if isinstance(statement, Repeat) else {statement.ref}
    return groups


def _joins(group: list[Statement], statement: Statement, written: set[BufferRef]) -> bool:
    """Whether a statement goes into a kernel that others are in."""
    if len(group) >= TOGETHER:
        return False
    first = group[0]
    if isinstance(statement, Repeat) or isinstance(first, Repeat):
        return False
    if isinstance(statement.value.op, (Scan, CopyTo)) or any(
        isinstance(s, Write) and isinstance(s.value.op, (Scan, CopyTo)) for s in group
    ):
        return False
    if first.ref.device != statement.ref.device or first.ref.device == "DISK":
        return False
    reads = {
        n.op.ref
        for value in (statement.value, *statement.indices)
        for n in toposort((value,))
        if isinstance(n.op, Buffer)
    }
    if reads & written:
        return False
    same = all(isinstance(s, Write) and s.view.shape == statement.view.shape and not s.indices for s in group)
    if same and not statement.indices and statement.ref not in written and not _heavy(first) and not _heavy(statement):
        return True
    sizes = sum(s.value.size for s in group if isinstance(s, Write)) + statement.value.size
    return sizes <= LIGHT and not _heavy(first) and not _heavy(statement)


def _heavy(statement: Statement) -> bool:
    """Whether a statement computes a product."""
    return isinstance(statement, Write) and any(
        isinstance(n.op, Reduce) and is_product(n) for n in toposort((statement.value,))
    )


def used(statements: list[Statement], keep: set[BufferRef]) -> list[Statement]:
    """The statements without those whose bytes nothing needs."""
    needed = set(keep)
    out: list[Statement] = []
    for statement in reversed(statements):
        writes = [w for arm in statement.arms for w in arm] if isinstance(statement, Repeat) else [statement]
        if not any(w.ref in needed for w in writes):
            continue
        out.append(statement)
        roots = [v for w in writes for v in (w.value, *w.indices, *((w.offset,) if w.offset is not None else ()))]
        if isinstance(statement, Repeat) and statement.selector is not None:
            roots.append(statement.selector)
        needed |= {n.op.ref for n in toposort(roots) if isinstance(n.op, Buffer)}
    return out[::-1]
