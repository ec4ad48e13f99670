"""Linear code as LLVM IR text, with explicit vectors and no need of optimisation passes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import InternalError
from intaglio.ops.elementwise import Elementwise
from intaglio.ops.loop import Carried, Chunk, EndIf, EndLoop, If, Interleave, Linear, Loop, Prefetch, Shuffle, Store
from intaglio.ops.loop import Final as FinalValue
from intaglio.ops.memory import Load
from intaglio.ops.movement import Expand
from intaglio.ops.reduce import COMBINES, Across, Dot
from intaglio.ops.scratch import LINE, scratch_of
from intaglio.render.llvm.arithmetic import Arithmetic
from intaglio.render.llvm.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.core.target import Target
    from intaglio.ir.node import Node


def render(linear: Node, target: Target) -> str:
    """The LLVM IR of one kernel: `void name(ptr args, i64 begin, i64 end, ptr scratch)`."""
    return _Kernel(target).kernel(linear)


class _Kernel(Arithmetic, Memory):
    """The text of one kernel in the making."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.loops: Final[dict[Node, tuple[str, str, str, list[tuple[int, str, str, str]]]]] = {}
        self.branches: Final[dict[Node, tuple[str, str]]] = {}  # of an If, the block before it and the label after it

    def kernel(self, linear: Node) -> str:
        """The whole text."""
        assert isinstance(linear.op, Linear)
        name, series = linear.op.kernel_name, linear.op.series
        self.block = "launch" if series else "entry"
        self.places.update(scratch_of(linear)[0])
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
        once = [*self.entry, *self.lines]
        body = "\n".join([*self.scratch, *(self.each_launch(once, series) if series else once)])
        facts = (f"{name} = {text}" for name, text in self.metadata.items())
        arguments = "ptr %all" if series else "ptr %args"
        given = f"{arguments}, i64 %begin, i64 %end, ptr noalias align {LINE} %scratch"
        head = "\n".join([*self.declared.values(), *facts, f"define void @{name}({given}) {{"])
        return f"{head}\nentry:\n{body}\n  ret void\n}}\n"

    def each_launch(self, body: list[str], words: int) -> list[str]:
        """The loop over the launches of a series, each of which knows where the arguments of the next one are."""
        return [
            "  br label %launch",
            "launch:",
            f"  %launched = phi i64 [%begin, %entry], [%next, %{self.block}]",
            "  %next = add nsw i64 %launched, 1",
            "  %more = icmp slt i64 %next, %end",
            "  %upcoming = select i1 %more, i64 %next, i64 %launched",
            f"  %args = getelementptr [{words} x i64], ptr %all, i64 %launched",
            f"  %ahead = getelementptr [{words} x i64], ptr %all, i64 %upcoming",
            *body,
            "  br i1 %more, label %launch, label %done",
            "done:",
        ]

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


def _writes_past(target: Target) -> bool:
    """Whether a machine has stores past the caches, and the fence after them."""
    return "sse2" in target.features


def _places(places: Sequence[int]) -> str:
    """The mask of a shuffle."""
    return f"<{len(places)} x i32> <{', '.join(f'i32 {k}' for k in places)}>"
