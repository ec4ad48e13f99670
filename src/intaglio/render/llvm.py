"""Linear code as LLVM IR text, with explicit vectors and no need of optimisation passes."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import InternalError
from intaglio.ops.elementwise import Add, Bitcast, Cast, Elementwise, Library, Lt, Where
from intaglio.ops.loop import Carried, Chunk, EndIf, EndLoop, If, Interleave, Linear, Loop, Prefetch, Shuffle, Store
from intaglio.ops.loop import Final as FinalValue
from intaglio.ops.memory import Arg, Const, Iota, Load, Local, Param
from intaglio.ops.movement import Expand
from intaglio.ops.reduce import COMBINES, Across, Dot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.core.target import Target
    from intaglio.ir.node import Node

TYPES: Final = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "i8", "uint16": "i16",
    "uint32": "i32", "uint64": "i64", "float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double",
    "float8_e4m3": "i8", "float8_e5m2": "i8",
}  # fmt: skip
INTEGER: Final = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
FLOAT: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
INTRINSIC: Final = {
    "sqrt": "sqrt",
    "abs": "fabs",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "roundeven",
}
COMPARE: Final = {
    "lt": ("olt", "slt", "ult"),
    "le": ("ole", "sle", "ule"),
    "eq": ("oeq", "eq", "eq"),
    "ne": ("une", "ne", "ne"),
}
# dtype: how far its bits lie below those of a float32, the power of two between the exponents, its first code that
# is no finite number
PLACES: Final = {
    dtypes.float8_e4m3: (20, 120, 0x7F),
    dtypes.float8_e5m2: (21, 112, 0x7C),
    dtypes.float16: (13, 112, 0x7C00),
    dtypes.bfloat16: (16, 0, 0x7F80),
}


def render(linear: Node, target: Target) -> str:
    """The LLVM IR of one kernel: `void name(ptr args, i64 begin, i64 end)`."""
    return _Writer(target).kernel(linear)


class _Writer:
    """The text of one function in the making."""

    def __init__(self, target: Target) -> None:
        self.target: Final = target
        self.lines: Final[list[str]] = []
        self.entry: Final[list[str]] = []
        self.declared: Final[dict[str, str]] = {}
        self.metadata: Final[dict[str, str]] = {}
        self.names: dict[Node | tuple[Node, int], str] = {}
        self.scopes: Final[list[list[tuple[Node | tuple[Node, int], str | None]]]] = []
        self.block: str = "entry"
        self.count: int = 0
        self.loops: Final[dict[Node, tuple[str, str, str, list[tuple[int, str, str, str]]]]] = {}
        self.pointers: Final[dict[Node, str]] = {}
        self.carries: Final[dict[Node, list[str]]] = {}  # of a Loop, EndLoop or EndIf, the names of its values
        self.branches: Final[dict[Node, tuple[str, str]]] = {}  # of an If, the block before it and the label after it
        self.past: Final[set[int]] = set()  # the slots of what is written past the caches

    def kernel(self, linear: Node) -> str:
        """The whole text."""
        assert isinstance(linear.op, Linear)
        name = linear.op.kernel_name
        if _writes_past(self.target):
            self.past.update(linear.op.past)
        for past, run in itertools.groupby(linear.src, self.goes_past):
            if past:
                self.stores_past(list(run))
                continue
            for node in run:
                self.instruction(node)
        if self.past:  # such writes are in order with no others
            self.lines.append("  " + self.intrinsic("llvm.x86.sse.sfence", "void"))
        body = "\n".join([*self.entry, *self.lines])
        facts = (f"{name} = {text}" for name, text in self.metadata.items())
        head = "\n".join([*self.declared.values(), *facts, f"define void @{name}(ptr %args, i64 %begin, i64 %end) {{"])
        return f"{head}\nentry:\n{body}\n  ret void\n}}\n"

    # -- names and types

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
                    if f"%q{slot}" not in self.pointers.values():
                        self.entry.append(f"  %p{slot} = getelementptr ptr, ptr %args, i64 {slot}")
                        self.entry.append(f"  %q{slot} = load ptr, ptr %p{slot}, align 8")
                    found = f"%q{slot}"
                case Local(uid=uid, of=of, size=size):
                    found = f"%local{uid}"
                    self.entry.append(f"  {found} = alloca {self.memory(of)}, i64 {size}, align 64")
                case _:
                    raise InternalError(f"llvm: {op.name} is no pointer")
            self.pointers[node] = found
        return found

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

    # -- instructions

    def instruction(self, node: Node) -> None:
        """One instruction."""
        op = node.op
        match op:
            case Loop():
                self.loop(node)
            case EndLoop():
                self.end_loop(node)
            case If():
                self.begin_if(node)
            case EndIf():
                self.end_if(node)
            case Load():
                self.define(node, self.load(node))
            case Store():
                self.store(node)
            case Prefetch():
                self.prefetch(node)
            case Chunk():
                self.leaf(node)
            case Across(kind=kind):
                self.define(node, self.across(node, kind))
            case Dot(of=of):
                self.define(node, self.dot(node, of))
            case Interleave(second=second):
                self.define(node, self.interleave(node, second=second))
            case Shuffle(places=places):
                x, y = node.src
                self.define(node, self.shuffle(x, y, _places(places)))
            case Expand(to=to):
                self.define(node, self.value(node.src[0], to))
            case Elementwise():
                self.define(node, self.elementwise(node))
            case Carried() | FinalValue():
                pass
            case _:
                raise InternalError(f"llvm: {op.name} is no instruction")

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")
        self.block = name

    def loop(self, node: Node) -> None:
        """The head of a loop, entered only if it runs at all."""
        self.count += 1
        k = self.count
        start, stop = self.value(node.src[0]), self.value(node.src[1])
        inits = [(self.type(s.dtype, s.shape), self.value(s)) for s in node.src[3:]]
        runs = self.fresh(f"icmp slt i64 {start}, {stop}")
        before = self.block
        self.lines.append(f"  br i1 {runs}, label %loop{k}, label %after{k}")
        self.label(f"loop{k}")
        self.scopes.append([])
        phis: list[tuple[int, str, str, str]] = []
        self.lines.append(f"  %i{k} = phi i64 [{start}, %{before}], [%j{k}, %latch{k}]")
        for c, (kind, init) in enumerate(inits):
            phis.append((len(self.lines), f"%c{k}_{c}", kind, init))
            self.lines.append("")
        self.define(node, f"%i{k}")
        self.carries[node] = [name for _, name, _, _ in phis]
        self.loops[node] = (str(k), before, stop, phis)

    def end_loop(self, node: Node) -> None:
        """The latch of a loop, and the values after it."""
        loop = node.src[0]
        k, before, stop, phis = self.loops[loop]
        following = [self.value(s, loop.src[3 + c].shape) for c, s in enumerate(node.src[1:])]
        step = self.value(loop.src[2])
        self.lines.append(f"  br label %latch{k}")
        self.label(f"latch{k}")
        self.lines.append(f"  %j{k} = add nsw i64 %i{k}, {step}")
        self.lines.append(f"  %t{k} = icmp slt i64 %j{k}, {stop}")
        self.lines.append(f"  br i1 %t{k}, label %loop{k}, label %after{k}")
        self.leave()
        self.label(f"after{k}")
        finals = self.carries.setdefault(node, [])
        for c, (place, name, kind, init) in enumerate(phis):
            self.lines[place] = f"  {name} = phi {kind} [{init}, %{before}], [{following[c]}, %latch{k}]"
            final = f"%f{k}_{c}"
            self.lines.append(f"  {final} = phi {kind} [{init}, %{before}], [{following[c]}, %latch{k}]")
            finals.append(final)

    def begin_if(self, node: Node) -> None:
        """The branch of a condition; one that gives values is for what is rare, and its code is put out of the way."""
        self.count += 1
        then, done = f"then{self.count}", f"done{self.count}"
        condition, otherwise = node.src[0], node.src[1:]
        self.carries[node] = [self.value(s) for s in otherwise]
        rare = ""
        if otherwise:
            rare = ", !prof !0"
            self.metadata["!0"] = '!{!"branch_weights", i32 1, i32 2000}'
        self.lines.append(f"  br i1 {self.value(condition)}, label %{then}, label %{done}{rare}")
        self.branches[node] = self.block, done
        self.label(then)
        self.scopes.append([])

    def end_if(self, node: Node) -> None:
        """The end of what a condition guards, and the values after it."""
        start, values = node.src[0], node.src[1:]
        before, done = self.branches[start]
        names = [self.value(s) for s in values]
        after = self.block
        self.leave()
        self.lines.append(f"  br label %{done}")
        self.label(done)
        self.carries[node] = [
            self.fresh(f"phi {self.type(s.dtype, s.shape)} [{other}, %{before}], [{name}, %{after}]")
            for s, other, name in zip(values, self.carries[start], names, strict=True)
        ]

    def address(self, pointer: Node, index: Node) -> str:
        """The address of an element."""
        return self.fresh(
            f"getelementptr {self.memory(pointer.dtype)}, ptr {self.pointer(pointer)}, i64 {self.value(index)}"
        )

    def addresses(self, pointer: Node, index: Node) -> str:
        """The addresses of elements at a vector of places."""
        n = index.shape[0]
        kind = self.memory(pointer.dtype)
        return self.fresh(f"getelementptr {kind}, ptr {self.pointer(pointer)}, <{n} x i64> {self.value(index)}")

    def load(self, node: Node) -> str:
        """A load of one element, of neighbours, or of scattered places."""
        pointer, index = node.src[0], node.src[1]
        mask = node.src[2] if len(node.src) > 2 else None
        kind = self.memory(node.dtype, node.shape)
        if index.shape:
            n = index.shape[0]
            where = self.addresses(pointer, index)
            lanes = self.value(mask, (n,)) if mask is not None else "splat (i1 true)"
            suffix = self.suffix(dtypes.uint8 if node.dtype.is_bool else node.dtype, node.shape)
            raw = self.fresh(
                self.intrinsic(
                    f"llvm.masked.gather.{suffix}.v{n}p0",
                    kind,
                    (f"<{n} x ptr>", where),
                    ("i32", "1"),
                    (f"<{n} x i1>", lanes),
                    (kind, "zeroinitializer"),
                )
            )
        elif mask is not None and node.shape:
            n = node.shape[0]
            suffix = self.suffix(dtypes.uint8 if node.dtype.is_bool else node.dtype, node.shape)
            raw = self.fresh(
                self.intrinsic(
                    f"llvm.masked.load.{suffix}.p0",
                    kind,
                    ("ptr", self.address(pointer, index)),
                    ("i32", "1"),
                    (f"<{n} x i1>", self.value(mask, (n,))),
                    (kind, "zeroinitializer"),
                )
            )
        else:
            raw = self.fresh(f"load {kind}, ptr {self.address(pointer, index)}, align 1")
        if node.dtype.is_bool:
            zero = "zeroinitializer" if node.shape else "0"
            return self.fresh(f"icmp ne {kind} {raw}, {zero}")
        return raw

    def prefetch(self, node: Node) -> None:
        """A line of memory into the second cache: the first one may have to hold other things until it is read."""
        place = ("ptr", self.address(*node.src)), *(("i32", word) for word in ("0", "2", "1"))
        self.lines.append("  " + self.intrinsic("llvm.prefetch.p0", "void", *place))

    def store(self, node: Node) -> None:
        """A store of one element, of neighbours, or to scattered places."""
        pointer, index, value = node.src[:3]
        mask = node.src[3] if len(node.src) > 3 else None
        shape = value.shape
        kind = self.memory(pointer.dtype, shape)
        name = self.value(value)
        if pointer.dtype.is_bool:
            name = self.fresh(f"zext {self.type(dtypes.bool, shape)} {name} to {kind}")
        suffix = self.suffix(dtypes.uint8 if pointer.dtype.is_bool else pointer.dtype, shape)
        if index.shape:
            n = index.shape[0]
            lanes = self.value(mask, (n,)) if mask is not None else "splat (i1 true)"
            self.lines.append(
                "  "
                + self.intrinsic(
                    f"llvm.masked.scatter.{suffix}.v{n}p0",
                    "void",
                    (kind, name),
                    (f"<{n} x ptr>", self.addresses(pointer, index)),
                    ("i32", "1"),
                    (f"<{n} x i1>", lanes),
                )
            )
        elif mask is not None and _is_first_alone(mask):
            # LLVM makes a plain store of such a masked one, and forgets a truncation that it joined to it: as many
            # bytes as there were before it would be written.
            one = self.fresh(f"extractelement {kind} {name}, i32 0") if shape else name
            self.lines.append(
                f"  store {self.memory(pointer.dtype)} {one}, ptr {self.address(pointer, index)}, align 1"
            )
        elif mask is not None and shape:
            n = shape[0]
            self.lines.append(
                "  "
                + self.intrinsic(
                    f"llvm.masked.store.{suffix}.p0",
                    "void",
                    (kind, name),
                    ("ptr", self.address(pointer, index)),
                    ("i32", "1"),
                    (f"<{n} x i1>", self.value(mask, (n,))),
                )
            )
        else:
            self.lines.append(f"  store {kind} {name}, ptr {self.address(pointer, index)}, align 1")

    def goes_past(self, node: Node) -> bool:
        """Whether a node stores whole vectors past the caches."""
        if not isinstance(node.op, Store) or len(node.src) != 3:
            return False
        pointer, index, value = node.src
        return isinstance(pointer.op, Param) and pointer.op.slot in self.past and bool(value.shape) and not index.shape

    def stores_past(self, nodes: Sequence[Node]) -> None:
        """Stores of vectors past the caches where all begin at multiples of their sizes, else plain ones.

        One branch for all: LLVM moves what only one of them needs behind the branches before, where no other work is
        left to do while that waits.
        """
        stores: list[tuple[str, str, int]] = []
        rest = "0"
        for node in nodes:
            pointer, index, value = node.src[:3]
            kind = self.memory(pointer.dtype, value.shape)
            name = self.value(value)
            if pointer.dtype.is_bool:
                name = self.fresh(f"zext {self.type(dtypes.bool, value.shape)} {name} to {kind}")
            address, nbytes = self.address(pointer, index), value.shape[0] * pointer.dtype.itemsize
            odd = self.fresh(f"and i64 {self.fresh(f'ptrtoint ptr {address} to i64')}, {nbytes - 1}")
            rest = self.fresh(f"or i64 {rest}, {odd}")
            stores.append((f"{kind} {name}", address, nbytes))
        self.count += 1
        past, plain, done = (f"{word}{self.count}" for word in ("past", "plain", "stored"))
        self.lines.append(f"  br i1 {self.fresh(f'icmp eq i64 {rest}, 0')}, label %{past}, label %{plain}")
        self.metadata["!1"] = "!{i32 1}"
        for name, mark in ((past, ", !nontemporal !1"), (plain, "")):
            self.label(name)
            for value, address, nbytes in stores:
                self.lines.append(f"  store {value}, ptr {address}, align {nbytes if mark else 1}{mark}")
            self.lines.append(f"  br label %{done}")
        self.label(done)

    def across(self, node: Node, kind: str) -> str:
        """The lanes of a vector combined by halves, always in the same order."""
        (vector,) = node.src
        name, lanes = self.value(vector), vector.shape[0]
        if vector.dtype.is_bool and kind in ("max", "min"):
            word = self.fresh(f"bitcast <{lanes} x i1> {name} to i{lanes}")
            return self.fresh(f"icmp {'ne' if kind == 'max' else 'eq'} i{lanes} {word}, {0 if kind == 'max' else -1}")
        if vector.dtype.is_int and kind == "sum":
            # LLVM would take a sum of products of bytes of both signs for an instruction that leaves parts of sums
            name = self.fresh(f"freeze {self.type(vector.dtype, (lanes,))} {name}")
        while lanes > 1:
            half = lanes // 2
            full = self.type(vector.dtype, (lanes,))
            low = self.fresh(f"shufflevector {full} {name}, {full} poison, {_places(range(half))}")
            high = self.fresh(f"shufflevector {full} {name}, {full} poison, {_places(range(half, lanes))}")
            name = self.combine(kind, vector.dtype, (half,), low, high)
            lanes = half
        return self.fresh(f"extractelement {self.type(vector.dtype, (1,))} {name}, i32 0")

    def dot(self, node: Node, of: DType) -> str:
        """An accumulator plus the products of the parts of words."""
        x, y, total = (self.value(s, node.shape) for s in node.src)
        word, kind = self.type(dtypes.uint32, node.shape), self.type(node.dtype, node.shape)
        if of is dtypes.int8:
            name = "llvm.x86.avx512.vpdpbusd.512"
            return self.fresh(self.intrinsic(name, kind, (kind, total), (word, x), (word, y)))
        parts = f"<{2 * node.shape[0]} x bfloat>"
        x, y = (self.fresh(f"bitcast {word} {v} to {parts}") for v in (x, y))
        return self.fresh(
            self.intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", kind, (kind, total), (parts, x), (parts, y))
        )

    def interleave(self, node: Node, *, second: bool) -> str:
        """Lanes of halves of two vectors in turn."""
        x, y = node.src
        (lanes,) = node.shape
        first = lanes // 2 * second
        return self.shuffle(x, y, _places([first + k + side for k in range(lanes // 2) for side in (0, lanes)]))

    def shuffle(self, x: Node, y: Node, places: str) -> str:
        """Lanes of two vectors by number."""
        full = self.type(x.dtype, x.shape)
        return self.fresh(f"shufflevector {full} {self.value(x)}, {full} {self.value(y)}, {places}")

    def combine(self, kind: str, dtype: DType, shape: tuple[int, ...], a: str, b: str) -> str:
        """Two values of a reduction taken together."""
        return self.plain(COMBINES[kind].op.name, dtype, shape, [a, b])

    # -- arithmetic

    def elementwise(self, node: Node) -> str:
        """One elementwise op."""
        op = node.op
        shape = node.shape
        match op:
            case Cast(to=to):
                return self.cast(self.value(node.src[0]), node.src[0].dtype, to, shape)
            case Bitcast(to=to):
                (x,) = node.src
                a, b = self.type(x.dtype, shape), self.type(to, shape)
                if x.dtype.is_bool or to.is_bool:
                    return self.cast(self.value(x), x.dtype, to, shape)
                return self.value(x) if a == b else self.fresh(f"bitcast {a} {self.value(x)} to {b}")
            case Library(function=function):
                return self.library(function, shape, [self.value(s, shape) for s in node.src])
            case _:
                pass
        values = [self.value(s, shape) for s in node.src]
        if isinstance(op, Where):
            kind = self.type(node.dtype, shape)
            return self.fresh(
                f"select {self.type(dtypes.bool, shape)} {values[0]}, {kind} {values[1]}, {kind} {values[2]}"
            )
        return self.plain(op.name, node.src[0].dtype, shape, values)

    def plain(self, name: str, dtype: DType, shape: tuple[int, ...], values: list[str]) -> str:
        """An op on values of one dtype; narrow floats are computed in float32, each result rounded."""
        if dtype in PLACES:
            wide = [self.cast(v, dtype, dtypes.float32, shape) for v in values]
            result = self.plain(name, dtypes.float32, shape, wide)
            return result if name in COMPARE else self.cast(result, dtypes.float32, dtype, shape)
        kind = self.type(dtype, shape)
        if name in COMPARE:
            ordered, signed, unsigned = COMPARE[name]
            if dtype.is_float:
                return self.fresh(f"fcmp {ordered} {kind} {values[0]}, {values[1]}")
            return self.fresh(f"icmp {signed if dtype.kind == 'int' else unsigned} {kind} {values[0]}, {values[1]}")
        if name in ("maximum", "minimum"):
            return self.extreme(name == "maximum", dtype, shape, *values)
        if dtype.is_float:
            return self.floating(name, dtype, shape, values)
        return self.integral(name, dtype, shape, values)

    def extreme(self, largest: bool, dtype: DType, shape: tuple[int, ...], a: str, b: str) -> str:
        """The larger or smaller of two; NaN if either is."""
        kind, flag = self.type(dtype, shape), self.type(dtypes.bool, shape)
        if dtype.is_float:
            wins = self.fresh(f"fcmp {'ogt' if largest else 'olt'} {kind} {a}, {b}")
            best = self.fresh(f"select {flag} {wins}, {kind} {a}, {kind} {b}")
            odd = self.fresh(f"fcmp uno {kind} {a}, {a}")
            return self.fresh(f"select {flag} {odd}, {kind} {a}, {kind} {best}")
        sign = "s" if dtype.kind == "int" else "u"
        wins = self.fresh(f"icmp {sign}{'gt' if largest else 'lt'} {kind} {a}, {b}")
        return self.fresh(f"select {flag} {wins}, {kind} {a}, {kind} {b}")

    def floating(self, name: str, dtype: DType, shape: tuple[int, ...], values: list[str]) -> str:
        """An op on floats."""
        kind = self.type(dtype, shape)
        suffix = self.suffix(dtype, shape)
        if name in FLOAT:
            return self.fresh(f"{FLOAT[name]} {kind} {values[0]}, {values[1]}")
        if name == "neg":
            return self.fresh(f"fneg {kind} {values[0]}")
        if name in INTRINSIC:
            return self.fresh(self.intrinsic(f"llvm.{INTRINSIC[name]}.{suffix}", kind, (kind, values[0])))
        if name == "fma":
            if self.target.has_fma:
                return self.fresh(self.intrinsic(f"llvm.fma.{suffix}", kind, *((kind, v) for v in values)))
            product = self.fresh(f"fmul {kind} {values[0]}, {values[1]}")
            return self.fresh(f"fadd {kind} {product}, {values[2]}")
        if name == "copysign":
            return self.fresh(self.intrinsic(f"llvm.copysign.{suffix}", kind, (kind, values[0]), (kind, values[1])))
        if name == "ldexp":
            return self.ldexp(dtype, shape, *values)
        if name == "mul_low":
            return self.mul_low(shape, *values)
        if name == "mod":
            return self.float_mod(dtype, shape, values[0], values[1])[0]
        if name == "floor_div":
            return self.float_mod(dtype, shape, values[0], values[1])[1]
        raise InternalError(f"llvm: no spelling of {name} for {dtype.name}")

    def ldexp(self, dtype: DType, shape: tuple[int, ...], x: str, n: str) -> str:
        """A float by a power of two: one instruction of AVX-512, else in two steps, so that neither overflows."""
        lanes, places = 512 // dtype.bits, dtype.mantissa
        real, word = self.type(dtype, shape), dtypes.int32 if dtype.bits == 32 else dtypes.int64
        if "avx512f" in self.target.features and shape == (lanes,):
            name = f"llvm.x86.avx512.mask.scalef.{'ps' if dtype.bits == 32 else 'pd'}.512"
            given = ((real, x), (real, n), (real, "zeroinitializer"), (f"i{lanes}", "-1"), ("i32", "4"))
            return self.fresh(self.intrinsic(name, real, *given))

        def number(value: float) -> str:
            return self.splat(dtype, value, shape)

        flags, least = self.type(dtypes.bool, shape), number(-dtype.bias - places)
        gone, odd = (self.fresh(f"fcmp {test} {real} {n}, {least}") for test in ("olt", "ult"))  # or NaN, as x is then
        none = self.fresh(f"fmul {real} {x}, {number(0.0)}")
        x = self.fresh(f"select {flags} {gone}, {real} {none}, {real} {x}")  # denormals are slow
        n = self.fresh(f"select {flags} {odd}, {real} {number(0.0)}, {real} {n}")
        whole = number(1.5 * 2.0**places)  # a number added to it is whole in its last bits: two's complement
        half = self.fresh(f"fadd {real} {self.fresh(f'fmul {real} {n}, {number(0.5)}')}, {whole}")
        rest = self.fresh(f"fsub {real} {n}, {self.fresh(f'fsub {real} {half}, {whole}')}")
        for part in (half, self.fresh(f"fadd {real} {rest}, {whole}")):
            pattern = self.fresh(f"bitcast {real} {part} to {self.type(word, shape)}")
            field = self.fresh(f"add {self.type(word, shape)} {pattern}, {self.splat(word, dtype.bias, shape)}")
            field = self.fresh(f"shl {self.type(word, shape)} {field}, {self.splat(word, places, shape)}")
            x = self.fresh(f"fmul {real} {x}, {self.fresh(f'bitcast {self.type(word, shape)} {field} to {real}')}")
        return x

    def mul_low(self, shape: tuple[int, ...], x: str, y: str) -> str:
        """What a product of float64 loses by rounding: by a fused multiply-add, else from the products of halves.

        Source: Dekker, A floating-point technique for extending the available precision, 1971.
        """
        kind = self.type(dtypes.float64, shape)

        def do(op: str, a: str, b: str) -> str:
            return self.fresh(f"f{op} {kind} {a}, {b}")

        product = do("mul", x, y)
        if self.target.has_fma:
            return self.floating("fma", dtypes.float64, shape, [x, y, self.fresh(f"fneg {kind} {product}")])
        word = self.type(dtypes.int64, shape)
        upper = self.splat(dtypes.int64, -1 << 27, shape)  # half of the digits, rounded: products of halves are exact
        half = self.splat(dtypes.int64, 1 << 26, shape)

        def halves(value: str) -> tuple[str, str]:
            pattern = self.fresh(f"add {word} {self.fresh(f'bitcast {kind} {value} to {word}')}, {half}")
            pattern = self.fresh(f"and {word} {pattern}, {upper}")
            high = self.fresh(f"bitcast {word} {pattern} to {kind}")
            return high, do("sub", value, high)

        (a, b), (c, d) = halves(x), halves(y)
        lost = do("sub", do("mul", a, c), product)
        lost = do("add", do("add", lost, do("mul", a, d)), do("mul", b, c))
        return do("add", lost, do("mul", b, d))

    def float_mod(self, dtype: DType, shape: tuple[int, ...], x: str, y: str) -> tuple[str, str]:
        """The remainder with the divisor's sign, and the floored quotient, as NumPy computes them."""
        kind, flag = self.type(dtype, shape), self.type(dtypes.bool, shape)
        zero = "zeroinitializer" if shape else self.literal(dtype, 0.0)

        def choose(condition: str, a: str, b: str) -> str:
            return self.fresh(f"select {flag} {condition}, {kind} {a}, {kind} {b}")

        rest = self.fresh(f"frem {kind} {x}, {y}")
        some = self.fresh(f"fcmp une {kind} {rest}, {zero}")
        below = self.fresh(f"fcmp olt {kind} {rest}, {zero}")
        negative = self.fresh(f"fcmp olt {kind} {y}, {zero}")
        differ = self.fresh(f"and {flag} {self.fresh(f'xor {flag} {below}, {negative}')}, {some}")
        moved = choose(differ, self.fresh(f"fadd {kind} {rest}, {y}"), rest)
        suffix = self.suffix(dtype, shape)
        signed = self.fresh(self.intrinsic(f"llvm.copysign.{suffix}", kind, (kind, zero), (kind, y)))
        remainder = choose(some, moved, signed)
        plain = self.fresh(f"fdiv {kind} {x}, {y}")
        quotient = self.fresh(f"fdiv {kind} {self.fresh(f'fsub {kind} {x}, {rest}')}, {y}")
        one = self.splat(dtype, 1.0, shape)
        quotient = choose(differ, self.fresh(f"fsub {kind} {quotient}, {one}"), quotient)
        low = self.fresh(self.intrinsic(f"llvm.floor.{suffix}", kind, (kind, quotient)))
        far = self.fresh(
            f"fcmp ogt {kind} {self.fresh(f'fsub {kind} {quotient}, {low}')}, {self.splat(dtype, 0.5, shape)}"
        )
        low = choose(far, self.fresh(f"fadd {kind} {low}, {one}"), low)
        nothing = self.fresh(f"fcmp oeq {kind} {quotient}, {zero}")
        low = choose(
            nothing, self.fresh(self.intrinsic(f"llvm.copysign.{suffix}", kind, (kind, zero), (kind, plain))), low
        )
        by_zero = self.fresh(f"fcmp oeq {kind} {y}, {zero}")
        return remainder, choose(by_zero, plain, low)

    def library(self, name: str, shape: tuple[int, ...], values: list[str]) -> str:
        """A function of the C library, lane by lane."""
        if not shape:
            return self.fresh(self.intrinsic(name, "double", *(("double", v) for v in values)))
        kind = self.type(dtypes.float64, shape)
        result = "poison"
        for lane in range(shape[0]):
            one = [self.fresh(f"extractelement {kind} {v}, i32 {lane}") for v in values]
            done = self.fresh(self.intrinsic(name, "double", *(("double", v) for v in one)))
            result = self.fresh(f"insertelement {kind} {result}, double {done}, i32 {lane}")
        return result

    def integral(self, name: str, dtype: DType, shape: tuple[int, ...], values: list[str]) -> str:
        """An op on integers or bools."""
        kind, flag = self.type(dtype, shape), self.type(dtypes.bool, shape)
        x = values[0]
        if dtype.is_bool:
            name = {"add": "or", "mul": "and", "sub": "xor"}.get(name, name)
        if name in INTEGER:
            return self.fresh(f"{INTEGER[name]} {kind} {x}, {values[1]}")
        zero = self.splat(dtype, 0, shape)
        match name:
            case "neg":
                return self.fresh(f"sub {kind} {zero}, {x}")
            case "not":
                return self.fresh(f"xor {kind} {x}, {self.splat(dtype, True if dtype.is_bool else -1, shape)}")
            case "abs":
                if dtype.kind != "int":
                    return x
                below = self.fresh(f"icmp slt {kind} {x}, {zero}")
                return self.fresh(f"select {flag} {below}, {kind} {self.fresh(f'sub {kind} {zero}, {x}')}, {kind} {x}")
            case "floor" | "ceil" | "trunc" | "round":
                return x
            case "floor_div" | "mod":
                return self.divide(name, dtype, shape, x, values[1])
            case "shl" | "shr":
                return self.shift(name, dtype, shape, x, values[1])
            case _:
                raise InternalError(f"llvm: no spelling of {name} for {dtype.name}")

    def divide(self, name: str, dtype: DType, shape: tuple[int, ...], x: str, y: str) -> str:
        """A floored quotient or its remainder; by zero 0, and never a trap."""
        kind, flag = self.type(dtype, shape), self.type(dtypes.bool, shape)
        zero, one = self.splat(dtype, 0, shape), self.splat(dtype, 1, shape)
        known = int(y) if y.lstrip("-").isdigit() else None
        if known and known > 0 and known & (known - 1) == 0:
            if name == "mod":
                return self.fresh(f"and {kind} {x}, {known - 1}")
            return self.fresh(f"{'ashr' if dtype.kind == 'int' else 'lshr'} {kind} {x}, {known.bit_length() - 1}")
        by_zero = ""
        divisor = y
        if known is None or known <= 0:
            by_zero = self.fresh(f"icmp eq {kind} {y}, {zero}")
            unsafe = by_zero
            if dtype.kind == "int":
                minus = self.fresh(f"icmp eq {kind} {y}, {self.splat(dtype, -1, shape)}")
                unsafe = self.fresh(f"or {flag} {by_zero}, {minus}")
            divisor = self.fresh(f"select {flag} {unsafe}, {kind} {one}, {kind} {y}")
        if dtype.kind == "uint":
            result = self.fresh(f"{'udiv' if name == 'floor_div' else 'urem'} {kind} {x}, {divisor}")
        else:
            quotient = self.fresh(f"sdiv {kind} {x}, {divisor}")
            rest = self.fresh(f"sub {kind} {x}, {self.fresh(f'mul {kind} {quotient}, {divisor}')}")
            some = self.fresh(f"icmp ne {kind} {rest}, {zero}")
            differ = self.fresh(f"icmp slt {kind} {self.fresh(f'xor {kind} {rest}, {divisor}')}, {zero}")
            down = self.fresh(f"and {flag} {some}, {differ}")
            if name == "floor_div":
                result = self.fresh(
                    f"select {flag} {down}, {kind} {self.fresh(f'sub {kind} {quotient}, {one}')}, {kind} {quotient}"
                )
                if known is None or known < 0:
                    minus = self.fresh(f"icmp eq {kind} {y}, {self.splat(dtype, -1, shape)}")
                    result = self.fresh(
                        f"select {flag} {minus}, {kind} {self.fresh(f'sub {kind} {zero}, {x}')}, {kind} {result}"
                    )
            else:
                result = self.fresh(
                    f"select {flag} {down}, {kind} {self.fresh(f'add {kind} {rest}, {divisor}')}, {kind} {rest}"
                )
        if by_zero:
            result = self.fresh(f"select {flag} {by_zero}, {kind} {zero}, {kind} {result}")
        return result

    def shift(self, name: str, dtype: DType, shape: tuple[int, ...], x: str, y: str) -> str:
        """A shift; by the width or more (or less than 0) 0 is left, or -1 of negative numbers to the right."""
        kind, flag = self.type(dtype, shape), self.type(dtypes.bool, shape)
        zero = self.splat(dtype, 0, shape)
        fits = self.fresh(f"icmp ult {kind} {y}, {self.splat(dtype, dtype.bits, shape)}")
        count = self.fresh(f"select {flag} {fits}, {kind} {y}, {kind} {zero}")
        op = "shl" if name == "shl" else "ashr" if dtype.kind == "int" else "lshr"
        done = self.fresh(f"{op} {kind} {x}, {count}")
        rest = zero
        if op == "ashr":
            rest = self.fresh(f"ashr {kind} {x}, {self.splat(dtype, dtype.bits - 1, shape)}")
        return self.fresh(f"select {flag} {fits}, {kind} {done}, {kind} {rest}")

    # -- conversions

    def cast(self, x: str, source: DType, to: DType, shape: tuple[int, ...]) -> str:
        """A value as another dtype."""
        if source is to:
            return x
        a, b = self.type(source, shape), self.type(to, shape)
        if self.is_coded(source):
            wide = self.from_narrow(x, source, shape)
            return self.cast(wide, dtypes.float32, to, shape)
        if self.is_coded(to):
            odd = to is dtypes.float16 and source is dtypes.float64
            single = self.odd_single(x, shape) if odd else self.cast(x, source, dtypes.float32, shape)
            return self.to_narrow(single, to, shape)
        if to.is_bool:
            zero = "zeroinitializer" if shape else self.literal(source, 0)
            return self.fresh(f"{'fcmp une' if source.is_float else 'icmp ne'} {a} {x}, {zero}")
        if source.is_float and to.is_float:
            if to is dtypes.float16 and source is dtypes.float64:
                return self.cast(self.odd_single(x, shape), dtypes.float32, to, shape)
            return self.fresh(f"{'fpext' if to.bits > source.bits else 'fptrunc'} {a} {x} to {b}")
        if source.is_float:
            if source in PLACES:
                return self.cast(self.cast(x, source, dtypes.float32, shape), dtypes.float32, to, shape)
            return self.to_integer(x, source, to, shape)
        unsigned = source.kind != "int"
        if to.is_float:
            if to in PLACES:
                return self.cast(self.cast(x, source, dtypes.float32, shape), dtypes.float32, to, shape)
            return self.fresh(f"{'uitofp' if unsigned else 'sitofp'} {a} {x} to {b}")
        if self.bits(source) == to.bits:
            return x
        word = "trunc" if to.bits < self.bits(source) else "zext" if unsigned else "sext"
        return self.fresh(f"{word} {a} {x} to {b}")

    def bits(self, dtype: DType) -> int:
        """The width in a register."""
        return 1 if dtype.is_bool else dtype.bits

    def to_integer(self, x: str, source: DType, to: DType, shape: tuple[int, ...]) -> str:
        """A float truncated; out of range, the lowest integer of the width that it goes through."""
        through = dtypes.int32 if to.bits < 32 or to is dtypes.int32 else dtypes.int64
        kind, flag, whole = self.type(source, shape), self.type(dtypes.bool, shape), self.type(through, shape)
        zero = "zeroinitializer" if shape else self.literal(source, 0.0)
        limit = float(1 << (through.bits - 1))
        # float64 holds -2**31 - 0.5, which truncates into range; the narrower floats have nothing between there.
        low = -limit - 1.0 if source is dtypes.float64 and through is dtypes.int32 else -limit
        above = self.fresh(f"fcmp {'ogt' if low != -limit else 'oge'} {kind} {x}, {self.splat(source, low, shape)}")
        below = self.fresh(f"fcmp olt {kind} {x}, {self.splat(source, limit, shape)}")
        inside = self.fresh(f"and {flag} {above}, {below}")
        safe = self.fresh(f"select {flag} {inside}, {kind} {x}, {kind} {zero}")
        result = self.fresh(f"fptosi {kind} {safe} to {whole}")
        result = self.fresh(
            f"select {flag} {inside}, {whole} {result}, {whole} {self.splat(through, through.min, shape)}"
        )
        if to is dtypes.uint64:
            high = self.fresh(f"fcmp olt {kind} {x}, {self.splat(source, 2.0**64, shape)}")
            large = self.fresh(f"fcmp oge {kind} {x}, {self.splat(source, limit, shape)}")
            both = self.fresh(f"and {flag} {high}, {large}")
            fits = self.fresh(f"select {flag} {both}, {kind} {x}, {kind} {zero}")
            upper = self.fresh(f"fptoui {kind} {fits} to {whole}")
            return self.fresh(f"select {flag} {both}, {whole} {upper}, {whole} {result}")
        return self.cast(result, through, to, shape) if through.bits != to.bits else result

    def from_narrow(self, x: str, source: DType, shape: tuple[int, ...]) -> str:
        """A float of 8 or 16 bits as float32: its bits moved up, then scaled."""
        shift, scale, top = PLACES[source]
        word, real, flag = (
            self.type(dtypes.int32, shape),
            self.type(dtypes.float32, shape),
            self.type(dtypes.bool, shape),
        )

        def number(n: int) -> str:
            return self.splat(dtypes.int32, n, shape)

        wide = self.fresh(f"zext {self.type(source, shape)} {x} to {word}")
        if not scale:
            return self.fresh(f"bitcast {word} {self.fresh(f'shl {word} {wide}, {number(shift)}')} to {real}")
        magnitude = self.fresh(f"and {word} {wide}, {number((1 << (source.bits - 1)) - 1)}")
        bits = self.fresh(f"shl {word} {magnitude}, {number(shift)}")
        value = self.fresh(
            f"fmul {real} {self.fresh(f'bitcast {word} {bits} to {real}')}, "
            f"{self.splat(dtypes.float32, 2.0**scale, shape)}"
        )
        if source is not dtypes.float8_e4m3:  # which has no infinity
            endless = self.fresh(f"icmp eq {word} {magnitude}, {number(top)}")
            value = self.fresh(
                f"select {flag} {endless}, {real} {self.splat(dtypes.float32, float('inf'), shape)}, {real} {value}"
            )
        odd = self.fresh(f"icmp {'eq' if source is dtypes.float8_e4m3 else 'sgt'} {word} {magnitude}, {number(top)}")
        value = self.fresh(
            f"select {flag} {odd}, {real} {self.splat(dtypes.float32, float('nan'), shape)}, {real} {value}"
        )
        sign = self.fresh(f"shl {word} {wide}, {number(32 - source.bits)}")
        signed = self.fresh(f"bitcast {word} {sign} to {real}")
        return self.fresh(
            self.intrinsic(f"llvm.copysign.{self.suffix(dtypes.float32, shape)}", real, (real, value), (real, signed))
        )

    def to_narrow(self, x: str, to: DType, shape: tuple[int, ...]) -> str:
        """A float32 as a float of 8 or 16 bits, rounded once, halves to even: scaled down, then cut at its last bit."""
        shift, scale, top = PLACES[to]
        word, real, flag = (
            self.type(dtypes.int32, shape),
            self.type(dtypes.float32, shape),
            self.type(dtypes.bool, shape),
        )

        def number(n: int) -> str:
            return self.splat(dtypes.int32, n, shape)

        bits = self.fresh(f"bitcast {real} {x} to {word}")
        shifted = self.fresh(f"lshr {word} {bits}, {number(32 - to.bits)}")
        sign = self.fresh(f"and {word} {shifted}, {number(1 << (to.bits - 1))}")
        raw = self.fresh(f"and {word} {bits}, {number(0x7FFFFFFF)}")
        if scale:
            plain = self.fresh(f"bitcast {word} {raw} to {real}")
            scaled = self.fresh(f"fmul {real} {plain}, {self.splat(dtypes.float32, 2.0**-scale, shape)}")
            back = self.fresh(f"fmul {real} {scaled}, {self.splat(dtypes.float32, 2.0**scale, shape)}")
            raw = self.odd(scaled, dtypes.float32, back, plain, shape)
        odd_bit = self.fresh(f"and {word} {self.fresh(f'lshr {word} {raw}, {number(shift)}')}, {number(1)}")
        bumped = self.fresh(
            f"add {word} {self.fresh(f'add {word} {raw}, {number((1 << (shift - 1)) - 1)}')}, {odd_bit}"
        )
        kept = self.fresh(f"lshr {word} {bumped}, {number(shift)}")
        over = self.fresh(f"icmp sge {word} {kept}, {number(top)}")
        kept = self.fresh(f"select {flag} {over}, {word} {number(top)}, {word} {kept}")
        nan = self.fresh(f"fcmp uno {real} {x}, {x}")
        kept = self.fresh(f"select {flag} {nan}, {word} {number(top | 1 << (22 - shift))}, {word} {kept}")
        return self.fresh(f"trunc {word} {self.fresh(f'or {word} {kept}, {sign}')} to {self.type(to, shape)}")

    def odd_single(self, x: str, shape: tuple[int, ...]) -> str:
        """A float64 as a float32 that rounds on, to fewer bits, as the float64 itself would."""
        double, real = self.type(dtypes.float64, shape), self.type(dtypes.float32, shape)
        single = self.fresh(f"fptrunc {double} {x} to {real}")
        back = self.fresh(f"fpext {real} {single} to {double}")
        absolute = f"llvm.fabs.{self.suffix(dtypes.float64, shape)}"
        back, plain = (self.fresh(self.intrinsic(absolute, double, (double, v))) for v in (back, x))
        bits = self.odd(single, dtypes.float64, back, plain, shape)
        return self.fresh(f"bitcast {self.type(dtypes.int32, shape)} {bits} to {real}")

    def odd(self, rounded: str, dtype: DType, back: str, plain: str, shape: tuple[int, ...]) -> str:
        """The bits of a rounded float32, rounded to odd instead: cut, the last bit set if anything was lost.

        What is rounded to odd can be rounded again without a fault. `plain` is the magnitude before, and `back` that
        after, both in `dtype`. Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved
        algorithms using rounding to odd", IEEE Transactions on Computers 57(4), 2008.
        """
        kind, real, word = self.type(dtype, shape), self.type(dtypes.float32, shape), self.type(dtypes.int32, shape)
        flag = self.type(dtypes.bool, shape)
        bits = self.fresh(f"bitcast {real} {rounded} to {word}")
        up = self.fresh(f"zext {flag} {self.fresh(f'fcmp ogt {kind} {back}, {plain}')} to {word}")
        lost = self.fresh(f"zext {flag} {self.fresh(f'fcmp one {kind} {back}, {plain}')} to {word}")
        return self.fresh(f"or {word} {self.fresh(f'sub {word} {bits}, {up}')}, {lost}")


def _writes_past(target: Target) -> bool:
    """Whether a machine has stores past the caches, and the fence after them."""
    return "sse2" in target.features


def _is_first_alone(mask: Node) -> bool:
    """Whether a mask is known to hold for its first lane and no other."""
    if not isinstance(mask.op, Lt):
        return False
    lanes, stop = mask.src
    parts = lanes.src if isinstance(lanes.op, Add) else (lanes,)
    starts = [int(part.op.value) for part in parts if isinstance(part.op, Const)]
    counted = any(isinstance(part.op, Iota) for part in parts) and len(starts) == len(parts) - 1
    return counted and isinstance(stop.op, Const) and sum(starts) + 1 == int(stop.op.value)


def _places(places: Sequence[int]) -> str:
    """The mask of a shuffle."""
    return f"<{len(places)} x i32> <{', '.join(f'i32 {k}' for k in places)}>"
