"""What this machine can do at most, by kernels in LLVM IR: bytes a second of memory, multiply-adds a second."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from typing import Final

import numpy as np

from intaglio.runtime.compiler import Compiler, host_target
from intaglio.runtime.pool import pool

FLOATS: Final = 1 << 26  # of each array that is streamed: many times the caches
SUMS: Final = 12  # independent chains of multiply-adds: more than their latency
STEPS: Final = 1 << 21

# Each chunk is the part of the arrays from begin to end, in `per` vectors a chunk, or one run of multiply-adds.
STREAM: Final = """
define void @stream(ptr %slots, i64 %begin, i64 %end) {{
entry:
  %from = load ptr, ptr %slots
  %to.at = getelementptr i64, ptr %slots, i64 1
  %to = load ptr, ptr %to.at
  %first = mul i64 %begin, {per}
  %stop = mul i64 %end, {per}
  br label %loop
loop:
  %i = phi i64 [%first, %entry], [%next, %loop]
  %source = getelementptr <{lanes} x float>, ptr %from, i64 %i
  %value = load <{lanes} x float>, ptr %source, align {bytes}
  %target = getelementptr <{lanes} x float>, ptr %to, i64 %i
  store <{lanes} x float> %value, ptr %target, align {bytes}, !nontemporal !0
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %stop
  br i1 %more, label %loop, label %done
done:
  fence seq_cst
  ret void
}}
!0 = !{{i32 1}}
"""


def read_source(lanes: int, per: int) -> str:
    """A sum of all that is read, in eight vectors."""
    wide = f"<{lanes} x float>"
    lines = ["define void @read(ptr %slots, i64 %begin, i64 %end) {", "entry:", "  %from = load ptr, ptr %slots",
             "  %out.at = getelementptr i64, ptr %slots, i64 1", "  %out = load ptr, ptr %out.at",
             f"  %first = mul i64 %begin, {per}", f"  %stop = mul i64 %end, {per}", "  br label %loop", "loop:",
             "  %i = phi i64 [%first, %entry], [%next, %loop]"]  # fmt: skip
    lines += [f"  %s{k} = phi {wide} [zeroinitializer, %entry], [%t{k}, %loop]" for k in range(8)]
    for k in range(8):
        lines += [f"  %i{k} = add i64 %i, {k}", f"  %p{k} = getelementptr {wide}, ptr %from, i64 %i{k}",
                  f"  %v{k} = load {wide}, ptr %p{k}, align {4 * lanes}",
                  f"  %t{k} = fadd {wide} %s{k}, %v{k}"]  # fmt: skip
    lines += ["  %next = add i64 %i, 8", "  %more = icmp slt i64 %next, %stop",
              "  br i1 %more, label %loop, label %done", "done:", f"  %place = mul i64 %begin, {16 * lanes}",
              "  %mine = getelementptr float, ptr %out, i64 %place"]  # fmt: skip
    total = "%t0"
    for k in range(1, 8):
        lines.append(f"  %u{k} = fadd {wide} {total}, %t{k}")
        total = f"%u{k}"
    return "\n".join([*lines, f"  store {wide} {total}, ptr %mine, align 4", "  ret void", "}"])


def fma_source(lanes: int) -> str:
    """Chains of multiply-adds."""
    wide = f"<{lanes} x float>"
    lines = [f"declare {wide} @llvm.fma.v{lanes}f32({wide}, {wide}, {wide})",
             "define void @peak(ptr %slots, i64 %begin, i64 %end) {", "entry:", "  %from = load ptr, ptr %slots",
             f"  %x = load {wide}, ptr %from, align 4", "  %out.at = getelementptr i64, ptr %slots, i64 1",
             "  %out = load ptr, ptr %out.at", "  %count = sub i64 %end, %begin", f"  %stop = mul i64 %count, {STEPS}",
             "  br label %loop", "loop:", "  %i = phi i64 [0, %entry], [%next, %loop]"]  # fmt: skip
    lines += [f"  %s{k} = phi {wide} [%x, %entry], [%t{k}, %loop]" for k in range(SUMS)]
    lines += [f"  %t{k} = call {wide} @llvm.fma.v{lanes}f32({wide} %x, {wide} %x, {wide} %s{k})" for k in range(SUMS)]
    lines += ["  %next = add i64 %i, 1", "  %more = icmp slt i64 %next, %stop",
              "  br i1 %more, label %loop, label %done", "done:"]  # fmt: skip
    for k in range(SUMS):  # each must be used, or it is not computed
        lines += [f"  %place{k} = mul i64 %begin, {SUMS * lanes}", f"  %q{k} = add i64 %place{k}, {k * lanes}",
                  f"  %o{k} = getelementptr float, ptr %out, i64 %q{k}",
                  f"  store {wide} %t{k}, ptr %o{k}, align 4"]  # fmt: skip
    return "\n".join([*lines, "  ret void", "}"])


@dataclass(frozen=True)
class Limits:
    """Bytes a second read from memory, and copied (both ways counted); operations a second, of float32."""

    read: float
    copy: float
    flops: float

    def seconds(self, traffic: float, flops: float) -> float:
        """The least time for work."""
        return max(traffic / max(self.read, self.copy), flops / self.flops)


def measure(threads: int, tries: int = 5) -> Limits:
    """The best of some tries."""
    target = host_target(threads)
    lanes, compiler = target.vector_bytes // 4, Compiler(lambda: None)
    source, out = aligned(FLOATS), aligned(FLOATS)
    source[:] = 1e-3
    out[:] = 0
    slots = (ctypes.c_uint64 * 2)(source.ctypes.data, out.ctypes.data)
    chunks = 16 * threads
    per = FLOATS // lanes // chunks

    def best(text: str, symbol: str, pieces: int) -> float:
        address, _ = compiler.load(text, symbol)
        times: list[float] = []
        for _ in range(tries):
            started = time.perf_counter()
            pool.run(compiler, address, ctypes.addressof(slots), pieces, threads)
            times.append(time.perf_counter() - started)
        return min(times)

    read = 4 * FLOATS / best(read_source(lanes, per), "read", chunks)
    stream = STREAM.format(per=per, lanes=lanes, bytes=target.vector_bytes)
    copy = 8 * FLOATS / best(stream, "stream", chunks)
    flops = 2 * lanes * SUMS * STEPS * chunks / best(fma_source(lanes), "peak", chunks)
    return Limits(read, copy, flops)


def aligned(count: int) -> np.ndarray:
    """Zeros that start at a line of memory."""
    raw = np.zeros(count + 64, np.float32)
    start = -raw.ctypes.data % 256 // 4
    return raw[start : start + count]
