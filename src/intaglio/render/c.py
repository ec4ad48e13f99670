"""Linear code as readable C: for people, and for compilers where there is no LLVM. Scalar code only."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import InternalError
from intaglio.ops.elementwise import Bitcast, Cast, Elementwise, Library
from intaglio.ops.loop import Carried, Chunk, EndIf, EndLoop, If, Linear, Loop, Prefetch, Store
from intaglio.ops.loop import Final as FinalValue
from intaglio.ops.memory import Arg, Const, Load, Local, NextParam, Param

if TYPE_CHECKING:
    from intaglio.ir.node import Node

TYPES: Final = {
    "bool": "bool", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t",
    "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t", "float16": "_Float16", "bfloat16": "__bf16",
    "float32": "float", "float64": "double",
}  # fmt: skip
INFIX: Final = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
}
CALLS: Final = {
    "sqrt": "sqrt",
    "abs": "fabs",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "rint",
    "fma": "fma",
    "copysign": "copysign",
}
HELPERS: Final = {
    "maximum": "#define maximum(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))",
    "minimum": "#define minimum(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))",
    "floor_div": (
        "static inline int64_t floor_div(int64_t a, int64_t b) {\n"
        "  if (b == 0) return 0;\n  if (b == -1) return (int64_t)(0 - (uint64_t)a);\n"
        "  return a / b - (a % b != 0 && (a < 0) != (b < 0));\n}"
    ),
    "mod": (
        "static inline int64_t mod(int64_t a, int64_t b) {\n"
        "  if (b == 0 || b == -1) return 0;\n  int64_t r = a % b;\n"
        "  return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n}"
    ),
    "float_mod": (
        "static inline double float_mod(double a, double b) {\n  double r = fmod(a, b);\n"
        "  if (r == 0) return copysign(0.0, b);\n  return (r < 0) != (b < 0) ? r + b : r;\n}"
    ),
    "float_floor_div": (
        "static inline double float_floor_div(double a, double b) {\n  if (b == 0) return a / b;\n"
        "  double r = fmod(a, b), q = (a - r) / b;\n  if (r != 0 && (r < 0) != (b < 0)) q -= 1;\n"
        "  double f = floor(q);\n  if (q - f > 0.5) f += 1;\n  return q != 0 ? f : copysign(0.0, a / b);\n}"
    ),
    "shl": (
        "static inline int64_t shl(int64_t a, uint64_t n, int width) {\n"
        "  return n < (uint64_t)width ? (int64_t)((uint64_t)a << n) : 0;\n}"
    ),
    "shr": (
        "static inline int64_t shr(int64_t a, uint64_t n, int width) {\n"
        "  return n < (uint64_t)width ? a >> n : a < 0 ? -1 : 0;\n}"
    ),
    "truncate": (
        "static inline int64_t truncate(double x, int bits) {\n"
        "  double limit = bits == 32 ? 2147483648.0 : 9223372036854775808.0;\n"
        "  double low = bits == 32 ? -limit - 1.0 : -limit;\n"
        "  int inside = (bits == 32 ? x > low : x >= low) && x < limit;\n"
        "  return inside ? (int64_t)x : bits == 32 ? INT32_MIN : INT64_MIN;\n}"
    ),
    "bits": "#define bits(to, from, x) ((union { from a; to b; }){.a = (x)}.b)",
}


def render(linear: Node) -> str:
    """The C source of one kernel of scalar linear code.

    Raises: InternalError if the code has vectors.
    """
    return _Writer().kernel(linear)


class _Writer:
    """The text of one function in the making."""

    def __init__(self) -> None:
        self.lines: Final[list[str]] = []
        self.depth: int = 1
        self.names: Final[dict[Node, str]] = {}
        self.uses: Final[dict[Node, int]] = {}
        self.params: Final[dict[int, tuple[str, DType]]] = {}
        self.written: Final[set[int]] = set()
        self.helpers: Final[dict[str, None]] = {}
        self.carried: Final[dict[Node, list[str]]] = {}
        self.count: int = 0

    def kernel(self, linear: Node) -> str:
        """The whole text."""
        assert isinstance(linear.op, Linear)
        for node in linear.src:
            for source in node.src:
                self.uses[source] = self.uses.get(source, 0) + 1
            if isinstance(node.op, Store) and isinstance(node.src[0].op, Param):
                self.written.add(node.src[0].op.slot)
        for node in linear.src:
            self.instruction(node)
        given = ", ".join(self.params[slot][0] for slot in sorted(self.params))
        if any("begin" in line or "end" in line for line in self.lines):
            given += ", int64_t begin, int64_t end"
        helpers = "\n".join(HELPERS[h] for h in self.helpers)
        body = "\n".join(self.lines)
        head = f"{helpers}\n\n" if helpers else ""
        return f"{head}void {linear.op.kernel_name}({given}) {{\n{body}\n}}\n"

    def say(self, text: str) -> None:
        """One line of the body."""
        self.lines.append("  " * self.depth + text)

    def fresh(self, prefix: str) -> str:
        """A new name."""
        self.count += 1
        return f"{prefix}{self.count}"

    def type(self, dtype: DType) -> str:
        """A dtype's C type."""
        found = TYPES.get(dtype.name)
        if found is None:
            raise InternalError(f"c: no type for {dtype.name}")
        return found

    def help(self, name: str) -> str:
        """A helper function, defined at the top."""
        self.helpers[name] = None
        return name

    def value(self, node: Node) -> str:
        """A value as an expression."""
        op = node.op
        match op:
            case Const(of=of, value=value):
                return self.literal(of, value)
            case Arg(slot=slot, of=of):
                self.params[slot] = (f"{self.type(of)} arg{slot}", of)
                return f"arg{slot}"
            case Param(slot=slot, of=of):
                const = "" if slot in self.written else "const "
                self.params[slot] = (f"{const}{self.type(of)} *data{slot}", of)
                return f"data{slot}"
            case Chunk(which=which):
                return which
            case Carried(k=k) | FinalValue(k=k):
                return self.carried[node.src[0]][k]
            case _:
                return self.names[node]

    def literal(self, dtype: DType, value: int | float | bool) -> str:
        """A number's text, exact."""
        if dtype.is_bool:
            return "true" if value else "false"
        if not dtype.is_float:
            if dtype.bits == 64 and not -(1 << 31) <= value < 1 << 31:
                return f"{int(value)}" + ("ULL" if dtype.is_unsigned else "LL")
            return str(int(value))
        number = float(value)
        suffix = "f" if dtype.bits <= 32 else ""
        if math.isnan(number):
            return "NAN"
        if math.isinf(number):
            return "INFINITY" if number > 0 else "-INFINITY"
        return (repr(number) if float(repr(number)) == number and len(repr(number)) < 12 else number.hex()) + suffix

    def instruction(self, node: Node) -> None:
        """One instruction."""
        op = node.op
        if node.shape:
            raise InternalError("c: vectors have no spelling here")
        match op:
            case Loop():
                names: list[str] = []
                for init in node.src[3:]:
                    name = self.fresh("acc")
                    self.say(f"{self.type(init.dtype)} {name} = {self.value(init)};")
                    names.append(name)
                self.carried[node] = names
                i = self.fresh("i")
                self.names[node] = i
                step = self.value(node.src[2])
                advance = f"{i}++" if step == "1" else f"{i} += {step}"
                self.say(
                    f"for (int64_t {i} = {self.value(node.src[0])}; {i} < {self.value(node.src[1])}; {advance}) {{"
                )
                self.depth += 1
            case EndLoop():
                loop = node.src[0]
                names = self.carried[loop]
                following = [self.value(s) for s in node.src[1:]]
                if len(names) > 1:
                    temporary = [self.fresh("next") for _ in names]
                    for t, s, text in zip(temporary, node.src[1:], following, strict=True):
                        self.say(f"{self.type(s.dtype)} {t} = {text};")
                    following = temporary
                for name, text in zip(names, following, strict=True):
                    if name != text:
                        self.say(f"{name} = {text};")
                self.carried[node] = names
                self.depth -= 1
                self.say("}")
            case If():
                self.carried[node] = []
                for otherwise in node.src[1:]:
                    name = self.fresh("v")
                    self.carried[node].append(name)
                    self.say(f"{self.type(otherwise.dtype)} {name} = {self.bare(otherwise)};")
                self.say(f"if ({self.bare(node.src[0])}) {{")
                self.depth += 1
            case EndIf():
                start, *values = node.src
                self.carried[node] = self.carried[start]
                for name, value in zip(self.carried[start], values, strict=True):
                    self.say(f"{name} = {self.bare(value)};")
                self.depth -= 1
                self.say("}")
            case Store():
                pointer, index, value = node.src[:3]
                self.say(f"{self.pointer(pointer)}[{self.bare(index)}] = {self.bare(value)};")
            case Load():
                self.define(node, f"{self.pointer(node.src[0])}[{self.bare(node.src[1])}]", keep=bool(op.epoch))
            case Chunk():
                pass
            case Prefetch() if isinstance(node.src[0].op, NextParam):
                pass  # the text is that of one launch
            case Prefetch():
                self.say(f"__builtin_prefetch(&{self.pointer(node.src[0])}[{self.bare(node.src[1])}], 0, 2);")
            case Elementwise():
                self.define(node, self.elementwise(node))
            case _:
                raise InternalError(f"c: {op.name} is no instruction")

    def bare(self, node: Node) -> str:
        """A value without outer parentheses."""
        text = self.value(node)
        if text.startswith("(") and text.endswith(")"):
            depth = 0
            for place, c in enumerate(text):
                depth += (c == "(") - (c == ")")
                if depth == 0 and place < len(text) - 1:
                    return text
            return text[1:-1]
        return text

    def pointer(self, node: Node) -> str:
        """A parameter, or scratch memory declared at first use."""
        op = node.op
        if isinstance(op, Local):
            if node not in self.names:
                self.names[node] = f"local{op.uid}"
                self.lines.insert(0, f"  {self.type(op.of)} local{op.uid}[{op.size}];")
            return self.names[node]
        return self.value(node)

    def define(self, node: Node, text: str, *, keep: bool = False) -> None:
        """Name a value: by its text where it is used once, else by a variable."""
        if self.uses.get(node, 0) <= 1 and not keep and len(text) < 100:
            self.names[node] = text
            return
        name = self.fresh("v")
        self.say(f"{self.type(node.dtype)} {name} = {text};")
        self.names[node] = name

    def elementwise(self, node: Node) -> str:
        """One elementwise op."""
        op = node.op
        x = [self.value(s) for s in node.src]
        source = node.src[0].dtype
        match op:
            case Cast(to=to):
                if source.is_float and to.is_int:
                    through = 32 if to.bits < 32 or to is dtypes.int32 else 64
                    return f"({self.type(to)}){self.help('truncate')}({x[0]}, {through})"
                if to.is_bool:
                    return f"({x[0]} != 0)"
                return f"({self.type(to)}){x[0]}"
            case Bitcast(to=to):
                return f"{self.help('bits')}({self.type(to)}, {self.type(source)}, {x[0]})"
            case Library(function=function):
                return f"{function}({', '.join(x)})"
            case _:
                pass
        name = op.name
        if name in ("maximum", "minimum"):
            return f"{self.help(name)}({x[0]}, {x[1]})"
        if name in ("floor_div", "mod") and not source.is_float:
            return f"({self.type(source)}){self.help(name)}({x[0]}, {x[1]})"
        if name in ("floor_div", "mod"):
            return f"({self.type(source)}){self.help('float_' + name)}({x[0]}, {x[1]})"
        if name in ("shl", "shr"):
            return f"({self.type(source)}){self.help(name)}({x[0]}, {x[1]}, {source.bits})"
        if name in INFIX:
            word = {"add": "|", "mul": "&", "sub": "^"}.get(name, INFIX[name]) if source.is_bool else INFIX[name]
            text = f"({x[0]} {word} {x[1]})"
            narrow = not node.dtype.is_bool and (
                node.dtype.bits < 32 or node.dtype in (dtypes.float16, dtypes.bfloat16)
            )
            return f"({self.type(node.dtype)}){text}" if narrow else text
        if name == "where":
            return f"({x[0]} ? {x[1]} : {x[2]})"
        if name == "neg":
            return f"(-{x[0]})"
        if name == "not":
            return f"(!{x[0]})" if source.is_bool else f"(~{x[0]})"
        if name == "abs" and not source.is_float:
            return f"({x[0]} < 0 ? -{x[0]} : {x[0]})"
        suffix = "f" if source is dtypes.float32 else ""
        if name == "mul_low":
            return f"fma({x[0]}, {x[1]}, -({x[0]} * {x[1]}))"
        if name == "ldexp":
            return f"ldexp{suffix}({x[0]}, (int){x[1]})"
        return f"{CALLS.get(name, name)}{suffix}({', '.join(x)})"
