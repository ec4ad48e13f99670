"""What this machine can do at most, by kernels in LLVM IR: bytes a second of its caches and memory, multiply-adds."""

from __future__ import annotations

import ctypes
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from intaglio.runtime.compiler import Compiler, host_caches, host_features, host_target
from intaglio.runtime.pool import pool

if TYPE_CHECKING:
    from collections.abc import Mapping

CACHES: Final = {"level1": "first cache", "level2": "second cache", "level3": "third cache"}
ARRAY: Final = 1 << 28  # bytes of each array: many times the caches
PARTS: Final = 16  # of it for each thread
MOVED: Final = 1 << 30  # bytes that each thread moves of what lies in a cache
WIDE: Final = 8  # vectors of a turn
STEPS: Final = 1 << 20  # of each chain of multiply-adds

# A chunk makes its steps, each of one vector, `turn` at a time; they go through its part of the arrays over and over.
LOOP: Final = """
{declared}
define void @loop(ptr %slots, i64 %begin, i64 %end) {{
entry:
  %from = load ptr, ptr %slots
  %to.at = getelementptr i64, ptr %slots, i64 1
  %to = load ptr, ptr %to.at
  %first = mul i64 %begin, {part}
  %chunks = sub i64 %end, %begin
  %stop = mul i64 %chunks, {steps}
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  {body}
  %next = add i64 %i, {turn}
  %more = icmp slt i64 %next, %stop
  br i1 %more, label %loop, label %done
done:
  {last}
  fence seq_cst
  ret void
}}
!0 = !{{i32 1}}
"""


@dataclass(frozen=True)
class Level:
    """A cache, or memory: bytes that those of all threads hold; bytes a second read, and copied (both ways counted)."""

    name: str
    size: float
    read: float
    copy: float


@dataclass(frozen=True)
class Limits:
    """Levels, the nearest first, memory last; operations a second of each dtype that vectors multiply and add."""

    levels: list[Level]
    flops: dict[str, float]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Limits:
        """From what `dataclasses.asdict` made of them."""
        return cls([Level(**level) for level in answer["levels"]], answer["flops"])

    def seconds(self, traffic: float, flops: float, dtype: str = "float32") -> float:
        """The least time for work, all of which lies in the nearest level that holds it; 0 if no limit is known."""
        level = next(level for level in self.levels if traffic <= level.size)
        return max(traffic / max(level.read, level.copy), flops / self.flops.get(dtype, math.inf))


def measure(threads: int, tries: int = 5, seconds: float = 0.05) -> Limits:
    """The best of some tries, which take some time at least: a thread that wakes may share a processor at first."""
    target, compiler = host_target(threads), Compiler(lambda: None)
    vector, sums = target.vector_bytes, target.vector_registers * 3 // 4  # independent: more than their latency
    source, out = aligned(ARRAY), aligned(ARRAY)
    source[:] = 1e-3
    out[:] = 0
    slots = (ctypes.c_uint64 * 2)(source.ctypes.data, out.ctypes.data)

    def best(text: str, chunks: int) -> float:
        """Seconds."""
        address, _ = compiler.load(text, "loop")
        times: list[float] = []
        while len(times) < tries or sum(times) < seconds:
            started = time.perf_counter()
            pool.run(compiler, address, ctypes.addressof(slots), chunks, threads)
            times.append(time.perf_counter() - started)
        return min(times)

    levels: list[Level] = []
    for key, size in sorted(host_caches().items()):
        users = threads if key == "level3" else 1
        part = 1 << int(math.log2(min(size / 2, ARRAY) / users))  # a copy's source is half of that, as is its target
        read = MOVED * threads / best(stream(vector, part, MOVED), threads)
        copy = MOVED * threads / best(stream(vector, part // 2, MOVED // 2, copied=True), threads)
        levels.append(Level(CACHES[key], size * threads / users, read, copy))
    chunks = PARTS * threads
    part = ARRAY // chunks // (WIDE * vector) * (WIDE * vector)
    read = part * chunks / best(stream(vector, part, part), chunks)
    copy = 2 * part * chunks / best(stream(vector, part, part, copied=True, mark=", !nontemporal !0"), chunks)
    levels.append(Level("memory", math.inf, read, copy))
    flops = {
        dtype: 2 * vector // size * sums * STEPS * threads / best(multiply_adds(vector, dtype, sums), threads)
        for dtype, size in multiplied(vector).items()
    }
    return Limits(levels, flops)


def aligned(nbytes: int) -> np.ndarray:
    """Float32 zeros that start at a line of memory."""
    raw = np.zeros(nbytes // 4 + 64, np.float32)
    start = -raw.ctypes.data % 256 // 4
    return raw[start : start + nbytes // 4]


def stream(vector: int, part: int, moved: int, *, copied: bool = False, mark: str = "") -> str:
    """Sums of all that is read, or a copy.

    Args:
        vector: Bytes of one.
        part: Bytes that a chunk goes through; a power of two, where that is done again and again.
        moved: Bytes that it reads in all.
        copied: Whether they are stored.
        mark: Of the stores.
    """
    wide, mask = f"<{vector // 4} x float>", part // vector - 1 if moved > part else -1
    begun, kept = chains(wide, 0 if copied else WIDE)
    body = [*begun, f"%within = and i64 %i, {mask}", "%place = add i64 %first, %within"]
    for k in range(WIDE):
        body += [f"%place{k} = add i64 %place, {k}", f"%source{k} = getelementptr {wide}, ptr %from, i64 %place{k}",
                 f"%v{k} = load {wide}, ptr %source{k}, align {vector}",
                 f"%target{k} = getelementptr {wide}, ptr %to, i64 %place{k}",
                 f"store {wide} %v{k}, ptr %target{k}, align {vector}{mark}" if copied else
                 f"%t{k} = fadd {wide} %s{k}, %v{k}"]  # fmt: skip
    return LOOP.format(wide=wide, body="\n  ".join(body), last="\n  ".join(kept), declared="", turn=WIDE,
                       part=part // vector, steps=moved // vector)  # fmt: skip


def multiplied(vector: int) -> dict[str, int]:
    """The dtypes of which vectors of this machine multiply and add in one instruction, and the bytes of each."""
    needs = {"float32": (4, ""), "bfloat16": (2, "avx512bf16"), "int8": (1, "avx512vnni")}
    return {d: size for d, (size, need) in needs.items() if not need or (vector == 64 and need in host_features())}


def multiply_adds(vector: int, dtype: str, sums: int) -> str:
    """Chains of them, as many as `sums`."""
    lanes = vector // 4
    wide = f"<{lanes} x {'i32' if dtype == 'int8' else 'float'}>"
    factor = f"<{2 * lanes} x bfloat>" if dtype == "bfloat16" else wide
    name, form = {
        "float32": (f"llvm.fma.v{lanes}f32", "{f} %y, {f} %y, {w} {s}"),
        "bfloat16": ("llvm.x86.avx512bf16.dpbf16ps.512", "{w} {s}, {f} %y, {f} %y"),
        "int8": ("llvm.x86.avx512.vpdpbusd.512", "{w} {s}, {f} %y, {f} %y"),
    }[dtype]
    begun, kept = chains(wide, sums)
    calls = [f"%t{k} = call {wide} @{name}({form.format(w=wide, f=factor, s=f'%s{k}')})" for k in range(sums)]
    body = [*begun, f"%y = load {factor}, ptr %from", *calls]
    declared = f"declare {wide} @{name}({form.format(w=wide, f=factor, s='').replace(' %y', '')})"
    return LOOP.format(wide=wide, body="\n  ".join(body), last="\n  ".join(kept), declared=declared, turn=1,
                       part=1, steps=STEPS)  # fmt: skip


def chains(wide: str, count: int) -> tuple[list[str], list[str]]:
    """Values that a loop carries: what each begins with, and how it is stored, without which it is not computed."""
    begun = [f"%s{k} = phi {wide} [zeroinitializer, %entry], [%t{k}, %loop]" for k in range(count)]
    kept = [f"%before = mul i64 %begin, {count}"] if count else []
    for k in range(count):
        kept += [f"%o{k} = add i64 %before, {k}", f"%out{k} = getelementptr {wide}, ptr %to, i64 %o{k}",
                 f"store {wide} %t{k}, ptr %out{k}"]  # fmt: skip
    return begun, kept
