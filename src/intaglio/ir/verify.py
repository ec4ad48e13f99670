"""The verifier: what must hold of a graph at its level, so that no later stage meets what it cannot take."""

from __future__ import annotations

from typing import Final, NoReturn

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import IntaglioError, InternalError
from intaglio.ir.levels import Level, allowed
from intaglio.ir.node import Node, Shape, toposort
from intaglio.ir.text import line, print_text

# What needs no place among instructions.
IMPLICIT: Final = frozenset({"const", "arg", "param", "next_param", "local", "chunk", "iota"})
POINTERS: Final = frozenset({"param", "local"})
STATEMENTS: Final = frozenset({"store", "store_at", "for", "prologue", "rows", "switch", "block"})


def verify(root: Node, level: Level) -> None:
    """Check a graph at its level.

    Raises: InternalError naming the node that is wrong, with the IR.
    """
    try:
        if level is Level.LINEAR:
            _Code(root).check()
        else:
            _graph(root, level)
    except InternalError as error:
        if error.ir:
            raise
        raise InternalError(str(error.args[0]), print_text((root,))) from None


def _fail(node: Node, level: Level, fact: str) -> NoReturn:
    """Say which node breaks which rule."""
    raise InternalError(f"verify: {fact}; at {level.value} level, in `{line(node)}`.")


def _inferred(node: Node, level: Level) -> None:
    """The dtype and shape are those that the op gives for these inputs."""
    try:
        found = node.op.infer(*node.src)
    except (IntaglioError, TypeError, IndexError, AttributeError) as error:
        _fail(node, level, f"{node.op.name} does not take its inputs ({error.args[0] if error.args else error})")
    if found[0] is not node.dtype or found[1] != node.shape:
        _fail(node, level, f"{node.op.name} has {node.dtype.name}{list(node.shape)}, its inputs give another type")


def _graph(root: Node, level: Level) -> None:
    """Every node is of an op of this level, and typed; a kernel is made of statements."""
    for node in toposort((root,)):
        name = node.op.name
        if not allowed(node.op, level):
            _fail(node, level, f"{name} may not stand here")
        _inferred(node, level)
        if level is Level.LOOP and node.shape:
            _fail(node, level, "a value must be a scalar")
        if level is not Level.KERNEL:
            continue
        if name in ("sink", "block"):
            _statements(node, node.src, level)
        elif name == "for":
            if not node.src or node.src[0].op.name != "range":
                _fail(node, level, "a for must begin with its range")
            _statements(node, node.src[1:], level)
        elif name == "switch":
            if not node.src or node.src[0].dtype is not dtypes.int64 or node.src[0].shape:
                _fail(node, level, "a selector must be an int64 scalar")
            _statements(node, node.src[1:], level)
        elif name in ("prologue", "rows"):
            _statements(node, node.src, level)
        elif name in ("store", "store_at"):
            _store(node, level)
    if level is Level.KERNEL and root.op.name != "sink":
        _fail(root, level, "a kernel must be a sink")


def _statements(node: Node, parts: tuple[Node, ...], level: Level) -> None:
    """What stands in a block are statements."""
    for part in parts:
        if part.op.name not in STATEMENTS:
            _fail(node, level, f"{part.op.name} is no statement")


def _store(node: Node, level: Level) -> None:
    """A store at KERNEL level goes into a window on a pointer and fits it."""
    if len(node.src) < 2:
        _fail(node, level, "a store needs a window and a value")
    target, value = node.src[:2]
    if target.op.name != "window" or target.src[0].op.name not in POINTERS:
        _fail(node, level, "a store must go into a window on a param or on scratch")
    if value.dtype is not target.dtype:
        _fail(node, level, f"the value is {value.dtype.name}, the window {target.dtype.name}")
    if node.op.name == "store" and value.shape not in ((), target.shape):
        _fail(node, level, f"the value has shape {value.shape}, the window {target.shape}")


class _Code:
    """The check of linear code: one walk over the instructions, with the scopes that are open."""

    def __init__(self, root: Node) -> None:
        self.root: Final = root
        self.scopes: Final[list[set[Node]]] = [set()]
        self.open: Final[list[Node]] = []
        self.opened: Final[set[Node]] = set()  # loops and conditions that are open

    def check(self) -> None:
        """Every instruction, in order."""
        if self.root.op.name != "linear":
            self.fail(self.root, "code must be a linear")
        for node in self.root.src:
            self.instruction(node)
        if self.open:
            self.fail(self.open[-1], f"{self.open[-1].op.name} is never closed")

    def fail(self, node: Node, fact: str) -> NoReturn:
        """Say which instruction breaks which rule."""
        _fail(node, Level.LINEAR, fact)

    def instruction(self, node: Node) -> None:
        """One instruction: its op, its inputs, its type; then what it defines."""
        op = node.op
        name = op.name
        if not allowed(op, Level.LINEAR) or name == "linear":
            self.fail(node, f"{name} may not stand here")
        if name == "chunk" and getattr(self.root.op, "series", 0):
            self.fail(node, "the chunks of a series are launches")
        if not getattr(op, "primitive", True) and node.dtype is not dtypes.float64:
            self.fail(node, f"{name} of {node.dtype.name} must have been decomposed")
        if name not in ("end_loop", "end_if"):
            for source in node.src:
                self.defined(node, source)
        match name:
            case "loop":
                self.begin_loop(node)
            case "end_loop":
                self.close(node, "loop")
                self.same_types(node, node.src[0].src[3:])
            case "if":
                self.scalar(node, node.src, 1, dtypes.bool)
                self.begin(node)
            case "end_if":
                self.close(node, "if")
                self.same_types(node, node.src[0].src[1:])
            case "load":
                self.load(node)
            case "store":
                self.store(node)
            case "prefetch":
                self.prefetch(node)
            case "across":
                lanes = node.src[0].shape
                if len(lanes) != 1 or lanes[0] & (lanes[0] - 1):
                    self.fail(node, f"across takes a vector of 2 ** k lanes, not shape {lanes}")
                self.define(node)
            case "interleave":
                x, y = node.src
                if x.shape != y.shape or x.dtype is not y.dtype or len(x.shape) != 1 or x.shape[0] % 2:
                    self.fail(node, f"interleave takes two vectors of 2 * k lanes, not {x.shape} and {y.shape}")
                self.define(node)
            case "shuffle":
                x, y = node.src
                lanes = x.shape[0] if len(x.shape) == 1 and x.shape == y.shape and x.dtype is y.dtype else 0
                places: tuple[int, ...] = getattr(node.op, "places", ())
                if any(not 0 <= k < 2 * lanes for k in places):
                    self.fail(node, f"shuffle names lanes of two alike vectors, not of {x.shape} and {y.shape}")
                self.define(node)
            case _:
                self.define(node)

    def define(self, node: Node) -> None:
        """A value exists from here to the end of its scope."""
        _inferred(node, Level.LINEAR)
        if len(node.shape) > 1 or 0 in node.shape:
            self.fail(node, f"a value must be a scalar or a vector, not of shape {node.shape}")
        self.scopes[-1].add(node)

    def defined(self, user: Node, node: Node) -> None:
        """A source is a leaf, or a value of a scope that is open."""
        if node.op.name in IMPLICIT:
            return
        if node.op.name == "carried":
            self.carried(node)
        elif node.op.name == "final":
            self.final(user, node)
        elif not any(node in scope for scope in self.scopes):
            self.fail(user, f"`{line(node)}` is used before it is defined, or after its scope has ended")

    def carried(self, node: Node) -> None:
        """A carried value is named inside its loop."""
        loop = node.src[0]
        if loop.op.name != "loop" or loop not in self.opened:
            self.fail(node, "a carried value is used outside its loop")
        if not 0 <= int(getattr(node.op, "k", -1)) < len(loop.src) - 3:
            self.fail(node, "the loop carries no such value")

    def final(self, user: Node, node: Node) -> None:
        """A final value is named where its loop or condition has ended, in a scope around it."""
        end = node.src[0]
        if not any(end in scope for scope in self.scopes):
            self.fail(user, f"`{line(node)}` is used before its loop or condition has ended, or after its scope has")
        if not 0 <= int(getattr(node.op, "k", -1)) < len(end.src) - 1:
            self.fail(node, "the loop carries no such value")

    def scalar(self, node: Node, sources: tuple[Node, ...], count: int, dtype: DType) -> None:
        """The first `count` inputs are scalars of a dtype."""
        if len(sources) < count:
            self.fail(node, f"{node.op.name} takes {count} inputs, not {len(sources)}")
        for source in sources[:count]:
            if source.dtype is not dtype or source.shape:
                self.fail(node, f"an input must be a scalar {dtype.name}, not {source.dtype.name}{list(source.shape)}")

    def begin(self, node: Node) -> None:
        """Open a scope."""
        if node in self.opened:
            self.fail(node, f"{node.op.name} is open already")
        self.open.append(node)
        self.opened.add(node)
        self.scopes.append(set())

    def begin_loop(self, node: Node) -> None:
        """Open a loop; its counter is known inside."""
        self.scalar(node, node.src, 3, dtypes.int64)
        step = node.src[2]
        if step.op.name != "const" or int(getattr(step.op, "value", 0)) <= 0:
            self.fail(node, "a loop's step must be a positive constant")
        self.begin(node)
        self.scopes[-1].add(node)

    def close(self, node: Node, kind: str) -> None:
        """Close the innermost scope, which must be this one's."""
        if not node.src or node.src[0].op.name != kind:
            self.fail(node, f"{node.op.name} must name its {kind}")
        if not self.open or self.open[-1] is not node.src[0]:
            self.fail(node, f"{node.op.name} does not close the innermost {kind}")
        for source in node.src[1:]:
            self.defined(node, source)
        self.opened.discard(self.open.pop())
        self.scopes.pop()

    def same_types(self, node: Node, inits: tuple[Node, ...]) -> None:
        """An end gives as many values as its loop or condition began with, of their types; then finals may be named."""
        start, *following = node.src
        if len(inits) != len(following):
            self.fail(node, f"the {start.op.name} carries {len(inits)} values, its end gives {len(following)}")
        for init, value in zip(inits, following, strict=True):
            if init.dtype is not value.dtype or init.shape != value.shape:
                self.fail(
                    node,
                    f"a carried value begins as {init.dtype.name}{list(init.shape)} "
                    f"and goes on as {value.dtype.name}{list(value.shape)}",
                )
        self.scopes[-1].add(node)

    def place(self, node: Node, index: Node, shape: Shape) -> None:
        """An index is one int64, or one a lane."""
        pointer = node.src[0].op.name
        if pointer not in POINTERS and not (pointer == "next_param" and node.op.name == "prefetch"):
            self.fail(node, f"{node.op.name} must go through a param or local")
        if index.dtype is not dtypes.int64 or index.shape not in ((), shape):
            self.fail(node, f"the index is {index.dtype.name}{list(index.shape)}, the value has shape {list(shape)}")

    def mask(self, node: Node, mask: Node, shape: Shape) -> None:
        """A mask has a bool for each lane."""
        if mask.dtype is not dtypes.bool or mask.shape != shape or not shape:
            self.fail(node, f"the mask is {mask.dtype.name}{list(mask.shape)}, the value has shape {list(shape)}")

    def load(self, node: Node) -> None:
        """A load is through a pointer, its mask as wide as it."""
        self.place(node, node.src[1], node.shape)
        if len(node.src) > 2:
            self.mask(node, node.src[2], node.shape)
        self.define(node)

    def prefetch(self, node: Node) -> None:
        """A prefetch is of one place, through a pointer."""
        if len(node.src) != 2:
            self.fail(node, "a prefetch takes a pointer and an index")
        self.place(node, node.src[1], ())

    def store(self, node: Node) -> None:
        """A store fits its pointer, index and mask."""
        if len(node.src) not in (3, 4):
            self.fail(node, "a store takes a pointer, an index, a value and perhaps a mask")
        pointer, index, value = node.src[:3]
        self.place(node, index, value.shape)
        if value.dtype is not pointer.dtype:
            self.fail(node, f"the value is {value.dtype.name}, the pointer {pointer.dtype.name}")
        if len(node.src) > 3:
            self.mask(node, node.src[3], value.shape)
