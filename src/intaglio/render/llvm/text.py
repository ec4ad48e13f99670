"""The names of values and the text of types and constants: what every instruction is written with."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import InternalError
from intaglio.ops.loop import Carried, Chunk
from intaglio.ops.loop import Final as FinalValue
from intaglio.ops.memory import Arg, Const, Iota, Local, NextParam, Param

if TYPE_CHECKING:
    from intaglio.core.target import Target
    from intaglio.ir.node import Node

TYPES: Final = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "i8", "uint16": "i16",
    "uint32": "i32", "uint64": "i64", "float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double",
    "float8_e4m3": "i8", "float8_e5m2": "i8",
}  # fmt: skip
# dtype: how far its bits lie below those of a float32, the power of two between the exponents, its first code that
# is no finite number
PLACES: Final = {
    dtypes.float8_e4m3: (20, 120, 0x7F),
    dtypes.float8_e5m2: (21, 112, 0x7C),
    dtypes.float16: (13, 112, 0x7C00),
    dtypes.bfloat16: (16, 0, 0x7F80),
}


class Text:
    """The text of one function in the making."""

    def __init__(self, target: Target) -> None:
        self.target: Final = target
        self.lines: Final[list[str]] = []
        self.scratch: Final[list[str]] = []
        self.entry: Final[list[str]] = []
        self.declared: Final[dict[str, str]] = {}
        self.metadata: Final[dict[str, str]] = {}
        self.names: dict[Node | tuple[Node, int], str] = {}
        self.scopes: Final[list[list[tuple[Node | tuple[Node, int], str | None]]]] = []
        self.count: int = 0
        self.pointers: Final[dict[Node, str]] = {}
        self.places: Final[dict[Node, int]] = {}  # of what lies in the thread's scratch
        self.carries: Final[dict[Node, list[str]]] = {}  # of a Loop, EndLoop or EndIf, the names of its values

    def type(self, dtype: DType, shape: tuple[int, ...] = ()) -> str:
        """The type of a value."""
        one = f"i{dtype.bits}" if self.is_coded(dtype) else TYPES[dtype.name]
        return f"<{shape[0]} x {one}>" if shape else one

    def is_coded(self, dtype: DType) -> bool:
        """Whether a float is held as an integer, its code: what no instruction converts, or none does exactly.

        LLVM would convert it by calling a function of the C compiler's runtime, which may not be there; and the
        instruction for bfloat16, where there is one, takes subnormal numbers for 0.
        """
        return dtype in PLACES and (dtype is not dtypes.float16 or not self.target.has_half)

    def fresh(self, text: str) -> str:
        """A new name for the result of an instruction."""
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def define(self, key: Node | tuple[Node, int], name: str) -> str:
        """Name a value in the current scope."""
        if self.scopes:
            self.scopes[-1].append((key, self.names.get(key)))
        self.names[key] = name
        return name

    def leave(self) -> None:
        """Forget the names of a scope."""
        for key, old in reversed(self.scopes.pop()):
            if old is None:
                self.names.pop(key, None)
            else:
                self.names[key] = old

    def literal(self, dtype: DType, value: int | float | bool) -> str:
        """A constant's text."""
        if dtype.is_bool:
            return "true" if value else "false"
        if self.is_coded(dtype):
            return str(dtype.to_bits(value))
        if dtype is dtypes.float16:
            return f"0xH{dtype.to_bits(value):04X}"
        if dtype.is_float:
            return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
        return str(int(value))

    def splat(self, dtype: DType, value: int | float | bool, shape: tuple[int, ...]) -> str:
        """A constant in a shape."""
        text = self.literal(dtype, value)
        return f"splat ({self.type(dtype)} {text})" if shape else text

    def value(self, node: Node, shape: tuple[int, ...] | None = None) -> str:
        """The name of a value, spread over lanes where `shape` asks for more than it has."""
        wide = shape if shape and not node.shape else ()
        op = node.op
        if isinstance(op, Const):
            return self.splat(op.of, op.value, wide or ())
        name = self.names.get(node)
        if name is None:
            name = self.leaf(node)
        if not wide:
            return name
        key = (node, wide[0])
        spread = self.names.get(key)
        if spread is None:
            spread = self.define(key, self.spread(name, node.dtype, wide[0]))
        return spread

    def spread(self, name: str, dtype: DType, lanes: int) -> str:
        """A scalar in every lane."""
        one, many = self.type(dtype), self.type(dtype, (lanes,))
        first = self.fresh(f"insertelement {many} poison, {one} {name}, i32 0")
        return self.fresh(f"shufflevector {many} {first}, {many} poison, <{lanes} x i32> zeroinitializer")

    def leaf(self, node: Node) -> str:
        """Arguments and lane numbers, named at first use (at the function's entry)."""
        op = node.op
        match op:
            case Arg(slot=slot, of=of):
                place = f"%p{slot}"
                memory = "i8" if of.is_bool else self.type(of)
                self.entry.append(f"  {place} = getelementptr i64, ptr %args, i64 {slot}")
                self.entry.append(f"  %a{slot} = load {memory}, ptr {place}, align 8{self.constant()}")
                if of.is_bool:
                    self.entry.append(f"  %b{slot} = trunc i8 %a{slot} to i1")
                self.names[node] = f"%b{slot}" if of.is_bool else f"%a{slot}"
            case Chunk(which=which):
                self.names[node] = f"%{which}"
            case Carried(k=k) | FinalValue(k=k):
                return self.carries[node.src[0]][k]
            case Iota(n=n):
                self.names[node] = "<" + ", ".join(f"i64 {k}" for k in range(n)) + ">"
            case _:
                raise InternalError(f"llvm: {op.name} is used before it is defined")
        return self.names[node]

    def constant(self) -> str:
        """Says that nothing writes what a load reads.

        Else LLVM asks of each argument, before its load becomes part of the instruction that uses it, whether what that
        needs depends on the load, and walks all that comes before.
        """
        self.metadata["!2"] = "!{!3, !3, i64 0, i64 1}"  # of this type, from its start, constant
        self.metadata["!3"] = '!{!"argument", !4}'
        self.metadata["!4"] = '!{!"memory"}'
        return ", !tbaa !2"

    def pointer(self, node: Node) -> str:
        """The address of a parameter or of scratch memory."""
        found = self.pointers.get(node)
        if found is None:
            op = node.op
            match op:
                case Param(slot=slot):
                    found = self.given(f"%q{slot}", "%args", slot)
                case NextParam(slot=slot):
                    found = self.given(f"%next{slot}", "%ahead", slot)
                case Local(uid=uid) if node in self.places:
                    found = f"%local{uid}"
                    self.entry.append(f"  {found} = getelementptr i8, ptr %scratch, i64 {self.places[node]}")
                case Local(uid=uid, of=of, size=size):
                    found = f"%local{uid}"
                    self.scratch.append(f"  {found} = alloca {self.memory(of)}, i64 {size}, align 64")
                case _:
                    raise InternalError(f"llvm: {op.name} is no pointer")
            self.pointers[node] = found
        return found

    def given(self, name: str, arguments: str, slot: int) -> str:
        """The name of a pointer argument, read where the kernel begins."""
        if name not in self.pointers.values():
            self.entry.append(f"  {name}.at = getelementptr ptr, ptr {arguments}, i64 {slot}")
            self.entry.append(f"  {name} = load ptr, ptr {name}.at, align 8")
        return name

    def memory(self, dtype: DType, shape: tuple[int, ...] = ()) -> str:
        """The type of a value in memory (a bool is a byte)."""
        return self.type(dtypes.uint8 if dtype.is_bool else dtype, shape)

    def intrinsic(self, name: str, result: str, *operands: tuple[str, str]) -> str:
        """A call of an intrinsic or library function."""
        types = ", ".join(t for t, _ in operands)
        self.declared[name] = f"declare {result} @{name}({types})"
        return f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in operands)})"

    def suffix(self, dtype: DType, shape: tuple[int, ...]) -> str:
        """An intrinsic's type suffix."""
        kind = self.type(dtype)
        one = {"half": "f16", "float": "f32", "double": "f64"}.get(kind, kind)
        return f"v{shape[0]}{one}" if shape else one
