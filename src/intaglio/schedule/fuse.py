"""Fusion: which values of a statement get a buffer, and which statements share a kernel."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import Node, rebuild, substitute, toposort
from intaglio.ir.view import View
from intaglio.ops.elementwise import Cast, Elementwise, Mul
from intaglio.ops.memory import Buffer, BufferRef, Put, Window, buffer, window
from intaglio.ops.movement import Expand, Flip, Pad, Permute, Reshape, Shrink, permute, reshape
from intaglio.ops.reduce import Reduce, Scan
from intaglio.schedule.contexts import Contexts, is_of_same_row, loops_of
from intaglio.schedule.costs import DEEPEST, Costs
from intaglio.schedule.epilogue import choose_folded, ends_product, products_below, raised, top_of, users_of
from intaglio.schedule.followers import Followers
from intaglio.schedule.pieces import FEW, in_pieces, pieces_of
from intaglio.schedule.program import CopyTo, Repeat, Statement, Write, turns_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.schedule.epilogue import Users

MOVED: Final = (Reshape, Permute, Shrink, Flip)  # what shows a value, or a part of it, once
LONGEST: Final = 2048  # ops computed in one kernel before a value in between gets a buffer
MOST_READS: Final = 160  # arrays that a kernel reads before a value in between gets a buffer
TOGETHER: Final = 16  # statements of one kernel
LIGHT: Final = 1 << 16  # elements up to which statements of different shapes share a kernel
SEPARATE: Final = 1 << 15  # elements that a statement takes up to which it shares one with what it shares nothing else
PART: Final = 8  # one such part of what a statement reads is worth sharing
AROUND: Final = 16  # elements a turn of a loop up to which what comes before or after it is in its kernel
MANY: Final = 8  # ops from which a value of some size that statements share is stored
ROW: Final = 1 << 18  # elements of a row that a cache holds
SUMS: Final = 4  # reductions of rows that need one another, in one kernel
BRIEF: Final = 8  # ops of a matrix that a product computes where it copies, or reads, its columns; each counts as one
VECTOR: Final = 16  # a vector has so many times fewer elements than the matrix that it is computed with
DEAR: Final = 4  # ops of a number that are not done again for each of many products that it is a factor of
ROUNDED: Final = 64  # products of each number of a factor from which it is rounded to fewer bytes in memory, once
PACKED: Final = 16  # rows of a product from which a factor whose columns lie apart is put in order: see `_turned`

COLUMNS: Final = 8  # of windows over an image from which a product copies its lines by itself
LINES: Final = 1 << 19  # bytes of scratch that one line of its results may need: see `lower/sliding.py`

NEAR: Final = 4  # steps of windows along memory up to which they are read in place

PANEL: Final = 32  # columns of a packed factor that lie together
DEEP: Final = 4096  # rows of a factor up to which a product copies its columns itself, into scratch


def split(statements: list[Statement], fresh: set[BufferRef]) -> list[Statement]:
    """Statements with every value that needs a buffer computed by one of its own, before its first use."""
    done: dict[Node, Node] = {}
    followers = Followers()
    out: list[Statement] = []
    statements = [replace(s, value=in_pieces(s.value, is_product)) if isinstance(s, Write) else s for s in statements]
    shared = _shared(statements)

    def overwrite(ref: BufferRef) -> None:
        """What was computed from a buffer is another value from now on."""
        for node in followers.forget(ref):
            done.pop(node, None)

    for statement in statements:
        if isinstance(statement, Repeat):
            out.append(statement)
            for write in itertools.chain(*statement.arms):
                overwrite(write.ref)
            continue
        statement = _unmoved(statement, shared)
        maker = _Materialize(statement.ref.device, fresh, done, shared, out, followers)
        value = maker.root(statement.value)
        indices = tuple(maker.value(i) for i in statement.indices)
        if isinstance(value.op, Put):
            base, values, *places = value.src
            out.append(replace(statement, value=base))
            out.append(replace(statement, value=values, indices=tuple(places), combine=value.op.combine))
        else:
            out.append(replace(statement, value=value, indices=indices))
        overwrite(statement.ref)
    return out


def _shared(statements: list[Statement]) -> set[Node]:
    """Values of some cost that more than one statement uses; not what only goes into one of those that is stored."""
    first: dict[Node, int] = {}  # the number of the first statement that uses a value
    shared: set[Node] = set()
    for number, statement in enumerate(statements):
        stack = [statement.value] if isinstance(statement, Write) else []
        while stack:
            node = stack.pop()
            if node not in first:
                first[node] = number
            elif first[node] < number and node not in shared:
                shared.add(node)
                if node.shape and (isinstance(node.op, Reduce) or ends_product(node, is_dot)):
                    continue
            else:
                continue
            stack.extend(node.src)
    return {node for node in shared if isinstance(node.op, (Reduce, Elementwise, Put)) and node.shape}


def _unmoved(statement: Write, shared: set[Node]) -> Write:
    """A write of a moved scatter as one of the scatter itself, to the view moved back: else it would be copied.

    It is, where only so whole rows of values come to whole rows.
    """
    view, value = statement.view, statement.value
    while value.src and not statement.indices and value.dtype is view.dtype:
        (x, *others) = value.src
        match value.op:
            case Put() if value not in shared:
                last = value.rank - 1
                rows = value.src[1].rank > value.src[2].rank and abs(_stride(value.src[1], value.src[1].rank - 1)) == 1
                apart = rows and view.shape[last] > 1 and view.strides[last] != view.dtype.itemsize
                return statement if apart else replace(statement, view=view, value=value)
            case Permute(order=order):
                moved: View | None = view.permute(tuple(order.index(a) for a in range(len(order))))
            case Reshape():
                moved = view.reshape(x.shape)
            case Window(view=View(dtype=dtype, offset=0) as whole) if whole.is_contiguous and dtype is x.dtype:
                moved = view.reshape(x.shape) if whole.size == x.size and not others else None
            case _:
                moved = None
        if moved is None:
            break
        view, value = moved, x
    return statement


def is_product(node: Node) -> bool:
    """Whether a node is a sum of products of two values that are each repeated along an axis of the other."""
    if not (isinstance(node.op, Reduce) and node.op.kind == "sum" and isinstance(node.src[0].op, Mul)):
        return False
    left, right = (repeated(s) for s in node.src[0].src)
    kept = set(range(node.src[0].rank)) - set(node.op.axes)
    return bool((left - right) & kept) and bool((right - left) & kept)


def is_dot(node: Node) -> bool:
    """Whether a node is a sum of products of which one factor is repeated: a matrix times a vector, or a product."""
    if not (isinstance(node.op, Reduce) and node.op.kind == "sum" and isinstance(node.src[0].op, Mul)):
        return False
    kept = set(range(node.src[0].rank)) - set(node.op.axes)
    return any(repeated(s) & kept for s in node.src[0].src)


def _are_of_rows(one: Node, other: Node) -> bool:
    """Whether two values are reductions of values of one shape along the same axes, the last among them."""
    if not isinstance(one.op, Reduce) or not isinstance(other.op, Reduce) or is_dot(one) or is_dot(other):
        return False
    (x,), (y,) = one.src, other.src
    along = one.op.axes == other.op.axes and x.rank - 1 in one.op.axes
    return along and x.shape == y.shape and x.size <= ROW * one.size


def repeated(node: Node) -> frozenset[int]:
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
        self,
        device: str,
        fresh: set[BufferRef],
        done: dict[Node, Node],
        shared: set[Node],
        out: list[Statement],
        followers: Followers,
    ) -> None:
        self.device: Final = device
        self.fresh: Final = fresh
        self.done: Final = done
        self.shared: Final = shared
        self.out: Final = out
        self.followers: Final = followers
        self.packs: Final[dict[Node, _Pack]] = {}
        self.seen_whole: set[Node] = set()
        self.factors: set[Node] = set()
        self.users: Users = {}
        self.fixed: set[Node] = set()  # the values that are stored as they are, or there already

    def root(self, root: Node) -> Node:
        """A statement's value; a scatter that others use as well has a buffer of its own, which each copies."""
        if not isinstance(root.op, Put) or root not in self.shared:
            return self.value(root)
        return self.done[root] if root in self.done else self._buffer(root, self.value(root))

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
        pack = self.packs.get(node)
        restore: Callable[[Node], Node] | None = None
        if pack is not None:
            body, restore = _in_order(body, pack)
        ref = BufferRef(max(node.nbytes, 1), self.device)
        self.fresh.add(ref)
        whole = View.contiguous(body.dtype, body.shape)
        if isinstance(body.op, Reduce):
            body = self._with_reductions(body)
        self.out.extend(split_root(Write(ref, whole, body)))
        made = window(whole, buffer(ref))
        if restore is not None:
            made = restore(made)
        self.done[node] = made
        return made

    def _with_reductions(self, body: Node) -> Node:
        """A reduction along memory with those in it that the statements before compute of the same rows.

        So these are one kernel: rows are read from memory once, and each reduction is computed once for a row.
        """
        before = itertools.takewhile(lambda s: isinstance(s, Write) and _are_of_rows(s.value, body), reversed(self.out))
        run = [s for s in before if isinstance(s, Write) and not s.indices]
        written = {s.ref for s in run}
        for write in run[: len(run) % SUMS]:  # those that will be in one kernel
            read = window(write.view, buffer(write.ref))
            reads = {n.op.ref for n in toposort((write.value,)) if isinstance(n.op, Buffer)}
            if written.isdisjoint(reads) and is_of_same_row(body, read):
                (body,) = substitute((body,), {read: write.value})
        return body

    def _choose(self, root: Node) -> set[Node]:
        """The nodes that get a buffer."""
        order = toposort((root,), enter=lambda n: n not in self.done or n is root)
        for node in order:
            self.followers.note(node)
        chosen = self._cut(root, order)
        Contexts(root, order, self.done, chosen).run()
        raised(order, self.users, chosen, self.fixed, is_dot)
        return chosen

    def _cut(self, root: Node, order: list[Node]) -> set[Node]:
        """The nodes that need a buffer wherever they are used: by kind, as factors of products, and by depth."""
        chosen: set[Node] = set()
        costs = Costs()
        moved = {s for n in order if not isinstance(n.op, Elementwise) for s in n.src}  # read at other positions
        self.packs.update(_packed(order))
        self.seen_whole = _seen_whole(order)
        self.factors = _factors(order)
        self.users = users_of(order)
        self.fixed = {root, *self.done, *self.shared, *self.packs}
        for product in _seen_again(order, self.done):
            chosen.add(top_of(product, self.users, chosen, self.fixed))
        bodies = {n.src[0] for n in order if isinstance(n.op, Reduce)}  # larger than what they are reduced to
        for node in order:  # before depths are counted: what has a buffer starts anew
            if node.src and node not in self.done and self._by_kind(node, order, chosen):
                chosen.add(node)
        choose_folded(order, self.users, chosen, self.fixed, is_dot)
        users: Counter[Node] | None = None  # counted once a reduction is deep: few are
        for node in order:
            if node in self.done:
                costs.read(node)
                continue
            inner, reads = costs.compute(node)
            if not node.src:
                continue
            must = node in chosen
            match node.op:
                case Reduce():
                    if inner > DEEPEST:
                        users = users or Counter(s for n in order for s in {*n.src})
                        inner = self._cut_below(node, users, chosen, costs)
                    pieces = pieces_of(node, lambda n: n in self.done or n in chosen) if node.size <= FEW else []
                    chosen.update(pieces)
                    must = must or inner > DEEPEST or (bool(pieces) and _feeds_many(node, order, chosen))
                case Elementwise():
                    bound = DEEPEST if node in moved and node.size > 1 and node not in bodies else LONGEST
                    must = must or inner > bound or reads > MOST_READS
                    if node in self.shared:
                        dear = inner >= MANY and node.size >= 1024 and self._ops_of_size(node, chosen) >= MANY
                        must = must or dear or ends_product(node, is_dot)
                case _:
                    pass
            if must:
                chosen.add(node)
                costs.read(node)
        return chosen

    def _cut_below(self, deep: Node, users: Counter[Node], chosen: set[Node], costs: Costs) -> int:
        """Store what a deep reduction and others are computed from; gives the ops that it takes then.

        Were only the reduction stored, what comes after it would compute all that again, and so would each reduction
        of that.
        """

        def is_alone(node: Node) -> bool:
            return node is deep or (users[node] == 1 and node not in self.done and node not in chosen)

        for node in toposort((deep,), enter=is_alone):
            if is_alone(node):
                costs.compute(node)
            elif isinstance(node.op, Elementwise) and node.shape and costs.of(node) > DEEPEST // 2:
                chosen.add(node)
                costs.read(node)
        return costs.of(deep)

    def _ops_of_size(self, node: Node, chosen: set[Node]) -> int:
        """How many ops of a value's own size it takes: those of its rows are done once for each row."""
        inner = toposort((node,), enter=lambda n: n is node or (n not in self.done and n not in chosen))
        return sum(isinstance(n.op, Elementwise) and n.size == node.size and n not in self.done for n in inner)

    def _by_kind(self, node: Node, order: list[Node], chosen: set[Node]) -> bool:
        """Whether a node is stored for what it is, or what it feeds; what it needs stored is chosen."""
        must = node in self.packs or isinstance(node.op, (Scan, Put, CopyTo))
        match node.op:
            case Window(view=view):
                source = node.src[0]
                if not isinstance(source.op, Buffer) and source.dtype.itemsize != view.dtype.itemsize:
                    chosen.add(source)
            case Reduce():
                if is_product(node):
                    column = max(a for a in range(node.src[0].rank) if a not in node.op.axes)
                    often = min(_products(factor, node.op.axes) for factor in node.src[0].src) >= ROUNDED
                    for factor in node.src[0].src:
                        self._factor(factor, column, node.op.axes, chosen, often=often)
                    must = must or _has_product_below(node, chosen, self.done)
                elif is_dot(node):
                    for factor in node.src[0].src:
                        if self._is_dear(factor, node):
                            self._factor(factor, -1, node.op.axes, chosen, often=False)
                else:
                    self._alone(node, chosen)
                must = must or node in self.shared
            case Pad() | Expand() | Scan() if node not in self.factors:
                self._alone(node, chosen)
            case _:
                pass
        return must

    def _alone(self, node: Node, chosen: set[Node]) -> None:
        """Choose what a value shows, or folds, if that is better stored by itself."""
        for product in _seen_apart(node, lambda n: n in self.done or n in chosen):
            chosen.add(top_of(product, self.users, chosen, self.fixed))

    def _is_dear(self, factor: Node, dot: Node) -> bool:
        """Whether a factor of a sum of products that are not many for each of its numbers takes some ops to compute."""
        body = dot.src[0]
        if body.size < max(LIGHT, PACKED * math.prod(n for a, n in enumerate(body.shape) if a not in repeated(factor))):
            return False
        inner = toposort((factor,), enter=lambda n: n not in self.done)
        return sum(isinstance(n.op, Elementwise) and n not in self.done for n in inner) >= DEAR

    def _factor(self, factor: Node, column: int, axes: tuple[int, ...], chosen: set[Node], *, often: bool) -> None:
        """A factor of a product is computed once, not once for each of the other's rows.

        Args:
            often: Whether each number of both factors is in so many products that it is rounded in memory.
        """
        if _core(factor) in self.packs:
            return
        node = factor
        while isinstance(node.op, (Expand, Reshape, Permute, Cast)):  # a cast to more bytes is as cheap in the product
            if often and node not in self.done and _is_rounded(node):
                chosen.add(node)
                return
            node = node.src[0]
        if isinstance(node.op, Window):
            source = node.src[0]
            if isinstance(source.op, Buffer) or _is_whole(source):
                return
            step = abs(_stride(factor, column))
            if source.size >= node.size or len(node.src) > 1 or step > NEAR:
                turned = source.size == node.size and len(node.src) == 1 and _turned(_core(factor), axes)
                chosen.add(source if turned or source in self.seen_whole else node)  # as it lies: the product turns it
            elif step != 1 or node.dtype is not factor.dtype or not _is_image(source, node, factor, axes, chosen):
                chosen.add(source)  # what windows slide over, and not what they see
        elif node.src and node not in self.done and not self._is_brief(node, factor, column, axes, chosen):
            chosen.add(node)

    def _is_brief(self, node: Node, factor: Node, column: int, axes: tuple[int, ...], chosen: set[Node]) -> bool:
        """Whether a factor with the columns of a product is one array after a few ops by vectors or numbers.

        The product computes it as it copies its columns, or reads them: no more often than it would read the array.

        Args:
            node: What is computed; the factor repeats it, and sees it reshaped, permuted or in more bytes.
            axes: Those of the sum.
        """
        rows = repeated(factor) - set(axes)
        if node in self.shared or column < 0 or column in rows or len(rows) != 1:
            return False

        def is_stored(n: Node) -> bool:
            return n in self.done or n in chosen or (isinstance(n.op, Window) and isinstance(n.src[0].op, Buffer))

        moved = (Elementwise, Expand, Reshape, Permute)
        inner = toposort((node,), enter=lambda n: isinstance(n.op, moved) and not is_stored(n))
        leaves = [n for n in inner if not isinstance(n.op, moved) or is_stored(n)]
        steps = [n.op for n in inner if isinstance(n.op, Elementwise) and not is_stored(n)]
        arrays = [n for n in leaves if n.size * VECTOR > node.size]
        if len(arrays) != 1 or len(steps) > BRIEF or not all(op.primitive for op in steps):
            return False
        if not all(is_stored(n) or (not n.src and not n.shape) for n in leaves):
            return False
        if _step(factor, column, arrays[0]) == 1:
            return True
        depth = math.prod(factor.shape[a] for a in axes)
        return node.dtype.itemsize >= 4 and depth <= DEEP and any(_step(factor, a, arrays[0]) == 1 for a in axes)


def _step(root: Node, axis: int, array: Node) -> int:
    """How many elements apart neighbours along an axis of a value are in an array that it is computed from.

    0 where there are none, or where they are not all as far apart.
    """
    holds = {array}
    for n in toposort((root,), enter=lambda n: n is not array):
        if not holds.isdisjoint(n.src):
            holds.add(n)
    node = root
    while node is not array:
        source = next(s for s in node.src if s in holds)
        match node.op:
            case Permute(order=order):
                axis = order[axis]
            case Reshape():
                count, below = node.shape[axis], math.prod(node.shape[axis + 1 :])
                alike = (a for a, n in enumerate(source.shape) if n == count)
                axis = next((a for a in alike if math.prod(source.shape[a + 1 :]) == below), -1)
            case Expand() if source.shape[axis] != node.shape[axis]:
                axis = -1
            case _:
                pass
        if axis < 0:
            return 0
        node = source
    if isinstance(array.op, Window) and isinstance(array.src[0].op, Buffer):
        return array.op.view.strides[axis] // array.dtype.itemsize
    return math.prod(array.shape[axis + 1 :])


def _seen_apart(node: Node, is_stored: Callable[[Node], bool]) -> list[Node]:
    """What a value shows with others around it, or often, or folds, if that is better stored: large reductions.

    By itself a product is computed in tiles, and rows are folded once for all that is computed of them; in the loops of
    what shows it, each element would be a sum of its own.
    """
    (source,) = node.src
    if source.size == node.size and isinstance(node.op, (Pad, Expand)):
        return []
    while isinstance(source.op, (*MOVED, Window, Cast)) and not isinstance(source.src[0].op, Buffer):
        if is_stored(source):
            return []
        source = source.src[0]
    if is_stored(source):
        return []
    products = _large_products(source, is_stored)
    if products or not isinstance(node.op, Pad):  # what else repeats a fold of rows does so for all computed of them
        return products
    inner = toposort((source,), enter=lambda n: not is_stored(n))
    large = any(isinstance(n.op, Reduce) and n.src[0].size >= LIGHT and not is_stored(n) for n in inner)
    return [source] if large and isinstance(source.op, (Elementwise, Reduce)) else []


def _large_products(value: Node, is_stored: Callable[[Node], bool]) -> list[Node]:
    """The products of more than a few numbers that a value is, or is computed of element by element."""

    def is_large(node: Node) -> bool:
        return is_product(node) and node.src[0].size >= LIGHT

    return [value] if is_large(value) else [*products_below(value, is_large, is_stored)]


def _seen_again(order: list[Node], done: dict[Node, Node]) -> list[Node]:
    """Large products of which most numbers are seen from two places: each would compute them."""
    views: dict[Node, dict[Node, None]] = {}
    for node in order:
        for source in node.src if isinstance(node.op, Elementwise) else ():
            inner = source
            while isinstance(inner.op, MOVED) and inner not in done:
                inner = inner.src[0]
            views.setdefault(inner, {})[source] = None
    often = [n for n, seen in views.items() if len(seen) > 1 and 2 * sum(v.size for v in seen) >= 3 * n.size]
    return [product for n in often if n not in done for product in _large_products(n, done.__contains__)]


def _factors(order: list[Node]) -> set[Node]:
    """The factors of products, and what those repeat: it is chosen by itself whether they are stored."""
    found: set[Node] = set()
    for node in order:
        for factor in node.src[0].src if is_dot(node) else ():
            inner = factor
            while isinstance(inner.op, (Expand, Reshape, Permute, Cast)):
                found.add(inner)
                inner = inner.src[0]
    return found


def _products(factor: Node, axes: tuple[int, ...]) -> int:
    """In how many products of a sum each number of a factor is, of which some axes are summed."""
    return math.prod(factor.shape[a] for a in repeated(factor) if a not in axes)


def _is_rounded(node: Node) -> bool:
    """Whether a node is a cast of values, none of them repeated, to fewer bytes: a few ops for each."""
    return isinstance(node.op, Cast) and node.dtype.itemsize < node.src[0].dtype.itemsize and not repeated(node)


def _is_image(image: Node, seen: Node, factor: Node, axes: tuple[int, ...], chosen: set[Node]) -> bool:
    """Whether a factor's windows slide over memory with zeros around it: the product then copies lines to scratch.

    See `lower/sliding.py`: a step of the windows is one column, there are some of them, and scratch has room for what
    one line of results needs.

    Args:
        chosen: The values that will be in memory.
    """
    inner = image
    while isinstance(inner.op, (Pad, Reshape, Permute)) and inner not in chosen:
        inner = inner.src[0]
    memory = inner in chosen or (isinstance(inner.op, Window) and isinstance(inner.src[0].op, Buffer))
    if not memory or not isinstance(image.op, Pad) or not isinstance(seen.op, Window) or image.rank < 4:
        return False
    item = image.dtype.itemsize
    line = image.shape[-1] * item
    plane = image.shape[-2] * line
    steps = [(n, step) for n, step in zip(seen.shape, seen.op.view.strides, strict=True) if n > 1]
    across = [(n - 1) * step // line for n, step in steps if line <= step < plane]
    channels = max((n for n, step in steps if step == plane), default=1)
    columns = max((n for n, step in steps if step == item), default=0)
    rows = math.prod(factor.shape[a] for a in repeated(factor) if a not in axes)
    needed = max(rows, channels * (1 + min(across, default=0))) * line
    near = abs(_stride(image.src[0], image.rank - 1)) == 1
    return near and columns >= COLUMNS and len(across) in (1, 2) and needed <= LINES


def _seen_whole(order: list[Node]) -> set[Node]:
    """Products that windows see the whole of together: one product is better than one for each."""
    seen: dict[Node, int] = {}
    for node in order:
        if isinstance(node.op, Window) and len(node.src) == 1 and not isinstance(node.src[0].op, Buffer):
            source = node.src[0]
            seen[source] = seen.get(source, 0) + node.size
    return {n for n, size in seen.items() if size >= n.size and ends_product(n, is_dot)}


def _feeds_many(node: Node, order: list[Node], chosen: set[Node]) -> bool:
    """Whether many values are computed from a value in a kernel: then each thread would compute it again."""
    reached = {node}
    for n in order:
        if any(s in reached and (s is node or s not in chosen) for s in n.src):
            reached.add(n)
            if n.size > LIGHT:
                return True
    return False


def _rebuilt(node: Node, src: tuple[Node, ...]) -> Node:
    """A node over new inputs; a view of what now is a whole buffer is a view of the buffer."""
    op = node.op
    if isinstance(op, Window) and len(src) == 1 and src[0] is not node.src[0] and _is_whole(src[0]):
        return window(op.view, src[0].src[0])
    return rebuild(node, src)


def _is_whole(node: Node) -> bool:
    """Whether a value is a whole buffer, as it lies: then a view of it is one of the buffer."""
    if not isinstance(node.op, Window) or not isinstance(node.src[0].op, Buffer) or len(node.src) > 1:
        return False
    return node.op.view.is_contiguous and node.op.view.offset == 0


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


def _has_product_below(node: Node, chosen: set[Node], done: dict[Node, Node]) -> bool:
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


@dataclass(frozen=True, slots=True)
class _Pack:
    """How a factor of a product is copied into order: which of its axes are summed, and which is the vector's."""

    summed: tuple[int, ...]
    column: int


def _packed(order: list[Node]) -> dict[Node, _Pack]:
    """Factors of products to be copied first, so that the columns of a tile are neighbours in memory."""
    found: dict[Node, _Pack] = {}
    for node in order:
        if not is_product(node) or not isinstance(node.op, Reduce):
            continue
        body = node.src[0]
        kept = [a for a in range(body.rank) if a not in node.op.axes]
        if len(kept) < 2 or body.shape[kept[-2]] < PACKED:
            continue
        column = kept[-1]
        for factor in body.src:
            if column in repeated(factor):
                continue
            core = _core(factor)
            alone = all(n == 1 for a, n in enumerate(core.shape) if a not in (column, *node.op.axes))
            panels = alone and len(node.op.axes) == 1 and body.shape[column] % PANEL == 0
            deep = panels and body.shape[node.op.axes[0]] > DEEP and body.shape[kept[-2]] >= 4 * PACKED
            deep = deep and core.dtype.itemsize < body.dtype.itemsize  # others are read in place: see `lower/slabs.py`
            deep = deep and not any(is_product(n) for s in body.src if s is not factor for n in toposort((s,)))
            far = _far(core, column) and not _turned(core, node.op.axes)
            far = far and not (_overlaps(core) and abs(_stride(core, column)) <= NEAR)
            if isinstance(core.op, (Reshape, Permute, Window)) and (deep or far):
                found[core] = _Pack(node.op.axes, column)
    return found


def _overlaps(core: Node) -> bool:
    """Whether a factor is windows that share elements: a copy of them would be larger than what they slide over."""
    if not isinstance(core.op, Window):
        return False
    low, high = core.op.view.byte_bounds()
    return core.op.view.nbytes > high - low


def _in_order(core: Node, pack: _Pack) -> tuple[Node, Callable[[Node], Node]]:
    """(a factor in panels of neighbouring columns, how its own form follows from those)."""
    others = [a for a in range(core.rank) if a not in (*pack.summed, pack.column)]
    order = (*others, *pack.summed, pack.column)
    moved = permute(core, order)
    back = tuple(order.index(a) for a in range(core.rank))
    lead, depth, columns = moved.shape[: len(others)], moved.shape[-2], moved.shape[-1]
    if columns % PANEL or len(pack.summed) > 1 or any(n != 1 for n in lead):
        return moved, lambda x: permute(x, back)
    k = len(lead)
    turn = (*range(k), k + 1, k, k + 2)
    panels = permute(reshape(moved, (*lead, depth, columns // PANEL, PANEL)), turn)
    return panels, lambda x: permute(reshape(permute(x, turn), moved.shape), back)


def _core(factor: Node) -> Node:
    """What a factor of a product repeats."""
    while isinstance(factor.op, (Expand, Cast)) and factor.src[0].shape:
        factor = factor.src[0]
    return factor


def _far(core: Node, axis: int) -> bool:
    """Whether neighbours along an axis of a moved value lie apart in memory, now or once the value is computed."""
    return abs(_stride(core, axis)) > 1


def _turned(core: Node, summed: tuple[int, ...]) -> bool:
    """Whether a product puts the columns in order by itself, in scratch: they lie together along what is summed."""
    depth = math.prod(core.shape[a] for a in summed if a < core.rank)
    return depth <= DEEP and any(a < core.rank and _stride(core, a) == 1 for a in summed)


def _stride(core: Node, axis: int) -> int:
    """How many elements apart neighbours along an axis of a moved value are; 0 where none are, or it is not known."""
    node = core
    axis_now: int | None = axis if axis < core.rank else None
    while axis_now is not None:
        match node.op:
            case Window(view=view):
                return view.strides[axis_now] // view.dtype.itemsize if view.shape[axis_now] > 1 else 0
            case Permute(order=order):
                axis_now = order[axis_now]
            case Reshape():
                old = [a for a, n in enumerate(node.src[0].shape) if n != 1]
                new = [a for a, n in enumerate(node.shape) if n != 1]
                if [node.src[0].shape[a] for a in old] != [node.shape[a] for a in new] or axis_now not in new:
                    return 0
                axis_now = old[new.index(axis_now)]
            case Expand() | Cast():
                pass
            case _:
                return math.prod(node.shape[axis_now + 1 :]) if node.src and node.shape[axis_now] > 1 else 0
        node = node.src[0]
    return 0


def together(statements: list[Statement]) -> list[list[Statement]]:
    """Adjacent statements that share a kernel: none reads what another writes, or one is a loop and all are in order.

    What a loop starts from is written, and what it leaves is copied out, by the loop's kernel, at any length.
    """
    groups: list[list[Statement]] = []
    written: set[BufferRef] = set()
    windows: dict[Node, dict[Node, View]] = {}
    loops: list[Repeat] = []  # those of the last group
    for place, statement in enumerate(statements):
        if isinstance(statement, Repeat):
            if statement.joined and groups and isinstance(groups[-1][-1], Repeat):
                groups[-1].append(statement)
                continue
            loops = _joined(statements, place)
            groups.append([*_setup(groups, loops), statement])
        elif loops and _follows(groups[-1], loops, statement):
            groups[-1].append(statement)
        elif not loops and groups and _joins(groups[-1], statement, written, windows):
            groups[-1].append(statement)
            written.add(statement.ref)
        else:
            groups.append([statement])
            written, loops = {statement.ref}, []
    return groups


def _joined(statements: list[Statement], place: int) -> list[Repeat]:
    """A loop, and those that belong to its kernel."""
    found = itertools.takewhile(lambda s: isinstance(s, Repeat) and s.joined, statements[place + 1 :])
    return [s for s in (statements[place], *found) if isinstance(s, Repeat)]


def _setup(groups: list[list[Statement]], loops: list[Repeat]) -> list[Statement]:
    """The last statements so far, if the kernel of loops has room for them; they leave their groups."""
    found: list[Statement] = []
    while groups and len(found) + len(groups[-1]) < TOGETHER:
        writes = [s for s in [*groups[-1], *found] if isinstance(s, Write) and _is_plain(s, loops[0])]
        if len(writes) < len(groups[-1]) + len(found) or sum(map(work_of, writes)) > _room(loops):
            break
        found = [*groups.pop(), *found]
    return found


def _follows(group: list[Statement], loops: list[Repeat], statement: Write) -> bool:
    """Whether a statement after loops is copied out in their kernel: elements that are not folded."""
    after = [s for s in group[group.index(loops[-1]) + 1 :] if isinstance(s, Write)]
    return (
        len(group) < TOGETHER
        and _is_plain(statement, loops[0])
        and not any(isinstance(n.op, Reduce) for n in toposort((statement.value,)))
        and sum(map(work_of, [*after, statement])) <= _room(loops)
    )


def _is_plain(statement: Write, loop: Repeat) -> bool:
    """Whether a statement may be in the kernel of a loop at all."""
    here = statement.ref.device == loop.arms[0][0].ref.device
    return here and not isinstance(statement.value.op, (Scan, CopyTo)) and not _heavy(statement)


def work_of(statement: Write) -> int:
    """How many elements a statement computes, or reduces."""
    return max(n.size for n in toposort((statement.value,)) if not isinstance(n.op, Buffer))


def _room(loops: list[Repeat]) -> int:
    """How many elements may be written before, or after, loops in their kernel: not many more than they write."""
    turns = sum(map(turns_of, loops))
    own = sum(turns_of(loop) * sum(w.value.size for arm in loop.arms for w in arm) // len(loop.arms) for loop in loops)
    return max(LIGHT, AROUND * turns, own)


def _joins(
    group: list[Statement], statement: Write, written: set[BufferRef], windows: dict[Node, dict[Node, View]]
) -> bool:
    """Whether a statement goes into a kernel that others are in. `windows`: what is known of values (`_windows`)."""
    if len(group) >= TOGETHER:
        return False
    first = group[0]
    if isinstance(first, Repeat):
        return False
    if isinstance(statement.value.op, (Scan, CopyTo)) or any(
        isinstance(s, Write) and isinstance(s.value.op, (Scan, CopyTo)) for s in group
    ):
        return False
    if first.ref.device != statement.ref.device:
        return False
    reads = {
        n.op.ref
        for value in (statement.value, *statement.indices)
        for n in toposort((value,))
        if isinstance(n.op, Buffer)
    }
    if reads & written:
        return False
    same = not statement.indices and all(
        isinstance(s, Write)
        and s.view.shape == statement.view.shape
        and not s.indices
        and (s.ref is not statement.ref or not s.view.overlaps(statement.view))
        for s in group
    )
    if not same or loops_of(first.value) != loops_of(statement.value):
        sizes = sum(s.value.size for s in group if isinstance(s, Write)) + statement.value.size
        if sizes > LIGHT:
            return False
    if _heavy(first) or _heavy(statement):
        return False
    return work_of(statement) <= SEPARATE or _shares(group, statement, windows)


def _shares(group: list[Statement], statement: Write, windows: dict[Node, dict[Node, View]]) -> bool:
    """Whether a statement reads much of what others read, which one kernel takes from memory once for all.

    Of large arrays that have nothing in common, a kernel would go through all at once, and each through the caches of
    the others: by a kernel for each, of one program, they take half of the time.
    """
    own = _windows(statement, windows)
    least = sum(map(_extent, own.values())) // PART
    return any(
        n.src[0] is m.src[0] and min(_extent(a), _extent(b)) >= least and a.overlaps(b)
        for other in group
        if isinstance(other, Write)
        for n, a in _windows(other, windows).items()
        for m, b in own.items()
    )


def _windows(statement: Write, known: dict[Node, dict[Node, View]]) -> dict[Node, View]:
    """What a statement's value reads, and the views; noted by the value."""
    found = known.get(statement.value)
    if found is None:
        found = known[statement.value] = {}
        for n in toposort((statement.value,)):
            if isinstance(n.op, Window) and isinstance(n.src[0].op, Buffer):
                found[n] = n.op.view
    return found


def _extent(view: View) -> int:
    """The bytes of a view, each once."""
    low, high = view.byte_bounds()
    return min(view.nbytes, high - low)


def _heavy(statement: Statement) -> bool:
    """Whether a statement computes a product."""
    return isinstance(statement, Write) and any(
        isinstance(n.op, Reduce) and is_product(n) for n in toposort((statement.value,))
    )


def used(statements: list[Statement], keep: set[BufferRef]) -> list[Statement]:
    """The statements without those whose bytes nothing needs."""
    needed = set(keep)
    seen: set[Node] = set()
    out: list[Statement] = []
    for statement in reversed(statements):
        writes = [w for arm in statement.arms for w in arm] if isinstance(statement, Repeat) else [statement]
        if not any(w.ref in needed for w in writes):
            continue
        out.append(statement)
        roots = [v for w in writes for v in (w.value, *w.indices, *((w.offset,) if w.offset is not None else ()))]
        if isinstance(statement, Repeat) and statement.selector is not None:
            roots.append(statement.selector)
        for node in toposort(roots, enter=lambda n: n not in seen):
            seen.add(node)
            if isinstance(node.op, Buffer):
                needed.add(node.op.ref)
    return out[::-1]
