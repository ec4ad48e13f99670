"""Interned, immutable nodes: the one value type of every level of the IR."""

from __future__ import annotations

import weakref
from collections import deque
from math import prod
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeAlias

from intaglio.core.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from intaglio.core.dtypes import DType
    from intaglio.ir.view import View
    from intaglio.ops.memory import BufferRef

Shape: TypeAlias = tuple[int, ...]
Result: TypeAlias = "tuple[DType, Shape]"


class Op:
    """The meaning of a node: one class an operation, its fields the operation's attributes.

    A subclass with a `name` registers itself. Ops without fields are compared by identity and exist once.
    """

    name: ClassVar[str] = ""
    registry: ClassVar[dict[str, type[Op]]] = {}
    _singles: ClassVar[dict[type[Op], Op]] = {}

    def __init__(self) -> None:
        Op._singles.setdefault(type(self), self)  # only ops without fields come here: dataclasses write their own

    @staticmethod
    def single(kind: type[Op]) -> Op:
        """The one object of an op without fields."""
        found = Op._singles.get(kind)
        return kind() if found is None else found

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__ and cls.name:
            other = Op.registry.get(cls.name)
            if other is not None and other.__qualname__ != cls.__qualname__:
                raise InternalError(f"op: the name {cls.name!r} is taken by {other.__qualname__}")
            Op.registry[cls.name] = cls

    # The dtype and shape of the node with these inputs; raises when they do not fit. Each op takes its own inputs.
    infer: ClassVar[Callable[..., Result]]


class Interned(Op):
    """An op whose fields have few values: there is one object for equal fields, which is compared by identity.

    Nodes are found by their ops, and looking at an object's fields takes longer than all the rest of finding one.
    """

    _objects: ClassVar[dict[Hashable, Self]] = {}

    def __new__(cls, *fields: Hashable, **named: Hashable) -> Self:  # pyright: ignore[reportInconsistentConstructor] -- dataclasses write __init__
        key = (cls, *fields, *named.values())
        found = cls._objects.get(key)
        return cls._objects.setdefault(key, super().__new__(cls)) if found is None else found


class Node:
    """One value in a pure graph: an op applied to input nodes.

    Build nodes with `make` (or an op's builder), never directly: equal nodes are one object, so `is` compares them.
    `site` is the user's file and line where that matters, `place` the bytes that hold the value once it has
    been computed, `met` whether it was needed for others before (`storage/recomputed.py`). None of these takes part in
    equality.
    """

    __slots__ = ("__weakref__", "dtype", "met", "op", "place", "shape", "site", "src")

    op: Op
    src: tuple[Node, ...]
    dtype: DType
    shape: Shape
    site: tuple[str, int] | None
    place: tuple[BufferRef, View] | None
    met: bool | None

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes that the value takes in memory."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"<{self.op.name} {self.dtype.name}{list(self.shape)} of {len(self.src)}>"

    def __reduce__(self) -> str:
        raise TypeError("Node: a node belongs to one process; pickle the tensor instead")


class _Entry(weakref.ref[Node]):
    """A weak entry of the intern table that knows its key."""

    __slots__ = ("key",)
    key: Hashable


_new: Final = object.__new__
_table: Final[dict[Hashable, _Entry]] = {}
_dead: Final[deque[_Entry]] = deque()
_bury: Final[Callable[[_Entry], None]] = _dead.append  # a finalizer only pushes to a queue


def make(op: Op, *src: Node) -> Node:
    """The node of `op` over `src`: the living one if there is one, else a new one whose inputs are checked.

    Inputs are known by where they are: while a node lives its inputs do, and no others are at their places. So the
    table keeps nothing alive, and what only refers to itself can be collected.
    """
    if _dead:
        drain()
    key = (op, id(src[0]), id(src[1])) if len(src) == 2 else (op, *map(id, src))
    entry = _table.get(key)
    if entry is not None:
        found = entry()
        if found is not None:
            return found
    dtype, shape = op.infer(src[0], src[1]) if len(src) == 2 else op.infer(*src)
    return _add(key, op, src, dtype, shape)


def make_known(op: Op, src: tuple[Node, ...], dtype: DType, shape: Shape) -> Node:
    """As `make`, where the caller knows what the op infers from inputs of these dtypes and shapes."""
    if _dead:
        drain()
    key = (op, id(src[0]), id(src[1])) if len(src) == 2 else (op, *map(id, src))
    entry = _table.get(key)
    if entry is not None:
        found = entry()
        if found is not None:
            return found
    return _add(key, op, src, dtype, shape)


def make_under(key: Hashable, op: Op, dtype: DType, shape: Shape) -> Node:
    """The node of an op without inputs that is found by another key, since the op keeps alive what the table must not.

    The key is that of no other node for as long as this one lives. The caller knows what the op infers.
    """
    if _dead:
        drain()
    return _add(key, op, (), dtype, shape)


def _add(key: Hashable, op: Op, src: tuple[Node, ...], dtype: DType, shape: Shape) -> Node:
    """A new node, or one that another thread has made in the meantime."""
    node = _new(Node)
    node.op = op
    node.src = src
    node.dtype = dtype
    node.shape = shape
    node.site = node.place = node.met = None
    entry = _Entry(node, _bury)
    entry.key = key
    other = _table.setdefault(key, entry)
    if other is not entry:
        found = other()
        if found is not None:
            return found
        _table[key] = entry
    return node


def drain() -> None:
    """Forget dead nodes."""
    try:
        while _dead:
            entry = _dead.popleft()
            key = entry.key
            if _table.get(key) is entry and (found := _table.pop(key, None)) is not entry and found is not None:
                _table.setdefault(key, found)  # another thread has put it there in between
    except IndexError:  # another thread has taken the last
        return


def living() -> int:
    """How many nodes are alive in this process."""
    drain()
    return len(_table)


def toposort(roots: Iterable[Node], *, enter: Callable[[Node], bool] | None = None) -> list[Node]:
    """Every node that the roots need, inputs before users; `enter` says whether to go into a node's inputs."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[Node | None] = [*roots]
    stack.reverse()
    while stack:
        node = stack.pop()
        if node is None:  # below it lies a node whose inputs are all there
            done = stack.pop()
            assert done is not None
            order.append(done)
        elif node not in seen:
            seen.add(node)
            if node.src and (enter is None or enter(node)):
                stack += (node, None)
                stack += node.src[::-1]
            else:
                order.append(node)
    return order


def rebuild(node: Node, src: tuple[Node, ...]) -> Node:
    """The same op over other inputs, keeping the user's line."""
    if src == node.src:
        return node
    made = make(node.op, *src)
    if node.site is not None and made.site is None:
        made.site = node.site
    return made


def substitute(roots: Iterable[Node], mapping: dict[Node, Node]) -> list[Node]:
    """The roots with every key of `mapping` replaced by its value (replacements are not entered)."""
    roots = list(roots)
    done: dict[Node, Node] = dict(mapping)
    for node in toposort(roots, enter=lambda n: n not in mapping):
        if node not in done:
            done[node] = rebuild(node, tuple(done[source] for source in node.src)) if node.src else node
    return [done[root] for root in roots]


def walk(roots: Iterable[Node]) -> Iterator[Node]:
    """Every node that the roots need, in no stated order."""
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(node.src)
