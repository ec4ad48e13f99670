"""The text form of the IR: one line a node, which parses back to the same nodes.

%0 = param{slot=0, of=float32, group=0} float32[]
%1 = window{view=view(float32, (4,), (4,), 0)} float32[4] %0
%2 = add float32[4] %1 %1
return %2
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, cast

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import InternalError
from intaglio.ir.node import Node, Op, make, toposort
from intaglio.ir.view import View

MakeBuffer: TypeAlias = Callable[[int, int, str], object]  # (number, bytes, device) -> the name of a buffer

_NAMES: Final = {dtype.name: dtype for dtype in dtypes.all}
_TOKEN: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*"|-?\d+|[A-Za-z_][A-Za-z_0-9]*|[(),=@:{}])')
_LINE: Final = re.compile(r"%(\d+) = ([a-z_0-9]+)(\{.*\})? ([a-z_0-9]+)\[([0-9, ]*)\]((?: %\d+)*)$")


def print_text(roots: Iterable[Node]) -> str:
    """The roots and all they need, inputs before users."""
    roots = list(roots)
    numbers: dict[Node, int] = {}
    lines: list[str] = []
    for node in toposort(roots):
        numbers[node] = len(lines)
        lines.append(_line(node, f"%{len(lines)}", [f"%{numbers[s]}" for s in node.src]))
    lines.append("return" + "".join(f" %{numbers[root]}" for root in roots))
    return "\n".join(lines) + "\n"


def line(node: Node) -> str:
    """One node, its inputs by op and type only: for messages."""
    return _line(node, "", [f"{s.op.name}:{s.dtype.name}{list(s.shape)}" for s in node.src]).removeprefix(" = ")


def _line(node: Node, name: str, sources: Sequence[str]) -> str:
    """A node as text."""
    shape = ", ".join(map(str, node.shape))
    return f"{name} = {node.op.name}{_fields(node.op)} {node.dtype.name}[{shape}]{''.join(' ' + s for s in sources)}"


def _fields(op: Op) -> str:
    """An op's attributes; empty where it has none."""
    if not dataclasses.is_dataclass(op):
        return ""
    pairs = [f"{f.name}={_value(getattr(op, f.name))}" for f in dataclasses.fields(op)]
    return f"{{{', '.join(pairs)}}}" if pairs else ""


def _value(value: object) -> str:
    """An attribute: a number, text, dtype, view, buffer, op that has none itself, or a tuple of them."""
    if value is None or isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, DType):
        return value.name
    if isinstance(value, View):
        return f"view({', '.join(_value(part) for part in (value.dtype, value.shape, value.strides, value.offset))})"
    if isinstance(value, Op) and not dataclasses.is_dataclass(value):
        return f"op({value.name})"
    if isinstance(value, tuple):
        parts = [_value(part) for part in cast("tuple[object, ...]", value)]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    number, nbytes, device = (getattr(value, name, None) for name in ("id", "nbytes", "device"))
    if isinstance(number, int) and isinstance(nbytes, int) and isinstance(device, str):
        return f"@{number}:{nbytes}:{_value(device)}"
    return f"<{type(value).__name__}>"  # of this process only: it prints, and does not parse


def parse(text: str, buffer: MakeBuffer | None = None) -> list[Node]:
    """The roots of a text. `buffer` gives the buffer of a number, called once for each.

    Raises: InternalError naming the line that does not parse.
    """
    nodes: dict[int, Node] = {}
    buffers: dict[int, object] = {}
    for place, row in enumerate(text.splitlines(), 1):
        stripped = row.strip()
        if not stripped or stripped.startswith("#"):
            continue
        try:
            if stripped.split()[0] == "return":
                return [nodes[int(word[1:])] for word in stripped.split()[1:]]
            _parse_line(stripped, nodes, buffers, buffer)
        except (KeyError, ValueError, TypeError, IndexError, InternalError) as error:
            reason = error.args[0] if error.args else error
            raise InternalError(f"text: line {place} does not parse ({reason}): {stripped}") from None
    raise InternalError("text: there is no `return` line")


def _parse_line(row: str, nodes: dict[int, Node], buffers: dict[int, object], buffer: MakeBuffer | None) -> None:
    """One node."""
    found = _LINE.match(row)
    if found is None:
        raise ValueError("not `%n = op{attributes} dtype[shape] %inputs`")
    number, name, attributes, dtype, shape, sources = found.groups()
    if int(number) in nodes:
        raise ValueError(f"%{number} is defined twice")
    kind = Op.registry.get(name)
    if kind is None:
        raise ValueError(f"no op {name}")
    op = instance(kind, _Reader(attributes or "", buffers, buffer).attributes())
    node = make(op, *(nodes[int(word[1:])] for word in sources.split()))
    if node.dtype.name != dtype or node.shape != tuple(int(n) for n in shape.split(",") if n.strip()):
        raise ValueError(f"the type should be {node.dtype.name}{list(node.shape)}")
    nodes[int(number)] = node


def instance(kind: type[Op], attributes: dict[str, Any]) -> Op:
    """The op of a class with these attributes; ops without any exist once."""
    if dataclasses.is_dataclass(kind):
        return kind(**attributes)
    if attributes:
        raise ValueError(f"{kind.name} has no attributes")
    return Op.single(kind)


class _Reader:
    """A reader of attributes."""

    def __init__(self, text: str, buffers: dict[int, object], buffer: MakeBuffer | None) -> None:
        self.tokens: Final = self.split(text)
        self.place = 0
        self.buffers: Final = buffers
        self.buffer: Final = buffer

    @staticmethod
    def split(text: str) -> list[str]:
        """The tokens of a text."""
        found: list[str] = []
        place = 0
        while place < len(text):
            token = _TOKEN.match(text, place)
            if token is None:
                raise ValueError(f"unexpected {text[place:]!r}")
            found.append(token.group(1))
            place = token.end()
        return found

    def take(self, expected: str = "") -> str:
        """The next token."""
        token = self.tokens[self.place]
        if expected and token != expected:
            raise ValueError(f"{expected!r} expected, found {token!r}")
        self.place += 1
        return token

    def attributes(self) -> dict[str, object]:
        """`{name=value, ...}`, or nothing."""
        found: dict[str, object] = {}
        if not self.tokens:
            return found
        self.take("{")
        while True:
            name = self.take()
            self.take("=")
            found[name] = self.value()
            if self.take() == "}":
                return found

    def value(self) -> object:
        """One attribute (tuples nest a few levels, no deeper)."""
        token = self.take()
        if token == "(":
            return tuple(self.parts())
        if token == "@":
            return self.named()
        if token[0] == '"':
            return re.sub(r"\\(.)", lambda m: "\n" if m.group(1) == "n" else m.group(1), token[1:-1])
        if token == "view":
            self.take("(")
            return View(*cast("list[Any]", self.parts()))
        if token == "op":
            self.take("(")
            op = instance(Op.registry[self.take()], {})
            self.take(")")
            return op
        plain: dict[str, object] = {"None": None, "True": True, "False": False}
        if token in plain:
            return plain[token]
        return _NAMES[token] if token in _NAMES else int(token)

    def parts(self) -> list[object]:
        """Values up to a closing bracket."""
        found: list[object] = []
        while self.tokens[self.place] != ")":
            found.append(self.value())
            if self.tokens[self.place] == ",":
                self.take()
        self.take(")")
        return found

    def named(self) -> object:
        """A buffer: the same one wherever its number stands."""
        number = int(self.take())
        self.take(":")
        nbytes = int(self.take())
        self.take(":")
        device = self.value()
        if number not in self.buffers:
            if self.buffer is None:
                raise ValueError("a buffer is named, and none was given")
            self.buffers[number] = self.buffer(number, nbytes, str(device))
        return self.buffers[number]
