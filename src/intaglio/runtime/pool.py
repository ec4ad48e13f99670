"""Threads that share the chunks of one kernel: they take chunks in native code, and sleep in the interpreter.

A worker that finds no chunk looks for one for some microseconds more, then leaves the native code and sleeps on a
queue of its own; so a kernel that follows another finds it awake. The thread that posts a kernel takes chunks itself,
and never waits for a worker that has taken none.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import threading
import time
from functools import cache
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from intaglio.runtime.pages import anonymous

if TYPE_CHECKING:
    from intaglio.runtime.compiler import Compiler

SIGNATURE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
WORKERS: Final = 255  # at most
LINE: Final = 64  # bytes that processors exchange as one: words of different writers lie so far apart
INBOX: Final = 3 + WORKERS  # the line in which Python says what to post: a call with arguments takes longer
SPIN: Final = 500  # looks at the state before a thread goes to sleep or lets another run: some 20 microseconds
PAUSE: Final = "call void @llvm.x86.sse2.pause()" if platform.machine() in ("x86_64", "AMD64") else ""

# The state: line 0 counts the chunks that nobody has taken, line 1 those that are done, line 2 holds the kernel
# (function, arguments, chunks, helpers, job), line 3 + i says whether worker i is awake. What line 2 says changes only
# when no chunk is left or being run; whoever has taken a chunk may read it. Line 0 is changed last: that publishes it.
NATIVE: Final = f"""
declare void @llvm.x86.sse2.pause()
define internal void @take_all(ptr %state) noinline {{
entry:
  %done = getelementptr i8, ptr %state, i64 {LINE}
  %kernel.at = getelementptr i8, ptr %state, i64 {2 * LINE}
  %slots.at = getelementptr i8, ptr %state, i64 {2 * LINE + 8}
  %chunks.at = getelementptr i8, ptr %state, i64 {2 * LINE + 16}
  br label %look
look:
  %left = load atomic i64, ptr %state seq_cst, align 8
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %try, label %none
try:
  %less = sub i64 %left, 1
  %pair = cmpxchg ptr %state, i64 %left, i64 %less seq_cst seq_cst
  %taken = extractvalue {{i64, i1}} %pair, 1
  br i1 %taken, label %run, label %look
run:
  %kernel = load ptr, ptr %kernel.at, align 8
  %slots = load ptr, ptr %slots.at, align 8
  %chunks = load i64, ptr %chunks.at, align 8
  %begin = sub i64 %chunks, %left
  %end = add i64 %begin, 1
  call void %kernel(ptr %slots, i64 %begin, i64 %end)
  %before = atomicrmw add ptr %done, i64 1 seq_cst
  br label %look
none:
  ret void
}}
define internal void @post(ptr %state, i64 %job, i64 %kernel, i64 %slots, i64 %chunks, i64 %helpers) {{
entry:
  %job.at = getelementptr i8, ptr %state, i64 {2 * LINE + 32}
  %old = load i64, ptr %job.at, align 8
  %known = icmp eq i64 %old, %job
  br i1 %known, label %leave, label %write
write:
  %done = getelementptr i8, ptr %state, i64 {LINE}
  %kernel.at = getelementptr i8, ptr %state, i64 {2 * LINE}
  %slots.at = getelementptr i8, ptr %state, i64 {2 * LINE + 8}
  %chunks.at = getelementptr i8, ptr %state, i64 {2 * LINE + 16}
  %helpers.at = getelementptr i8, ptr %state, i64 {2 * LINE + 24}
  store atomic i64 0, ptr %done monotonic, align 8
  store i64 %kernel, ptr %kernel.at, align 8
  store i64 %slots, ptr %slots.at, align 8
  store i64 %chunks, ptr %chunks.at, align 8
  store atomic i64 %helpers, ptr %helpers.at monotonic, align 8
  store i64 %job, ptr %job.at, align 8
  %before = atomicrmw xchg ptr %state, i64 %chunks seq_cst
  br label %leave
leave:
  ret void
}}
define internal i64 @work(ptr %state, i64 %chunks) {{
entry:
  call void @take_all(ptr %state)
  %done = getelementptr i8, ptr %state, i64 {LINE}
  br label %wait
wait:
  %turn = phi i64 [0, %entry], [%next, %again]
  %ran = load atomic i64, ptr %done seq_cst, align 8
  %rest = sub i64 %chunks, %ran
  %some = icmp sgt i64 %rest, 0
  %next = add i64 %turn, 1
  %early = icmp slt i64 %turn, {SPIN}
  %both = and i1 %some, %early
  br i1 %both, label %again, label %leave
again:
  {PAUSE}
  br label %wait
leave:
  ret i64 %rest
}}
define internal i64 @start(ptr %state) {{
entry:
  %inbox = getelementptr i8, ptr %state, i64 {INBOX * LINE}
  %kernel = load i64, ptr %inbox, align 8
  %slots.at = getelementptr i64, ptr %inbox, i64 1
  %slots = load i64, ptr %slots.at, align 8
  %chunks.at = getelementptr i64, ptr %inbox, i64 2
  %chunks = load i64, ptr %chunks.at, align 8
  %helpers.at = getelementptr i64, ptr %inbox, i64 3
  %helpers = load i64, ptr %helpers.at, align 8
  %job.at = getelementptr i64, ptr %inbox, i64 4
  %job = load i64, ptr %job.at, align 8
  call void @post(ptr %state, i64 %job, i64 %kernel, i64 %slots, i64 %chunks, i64 %helpers)
  br label %ask
ask:
  %worker = phi i64 [0, %entry], [%next, %ask]
  %line = add i64 %worker, 3
  %offset = mul i64 %line, {LINE}
  %awake.at = getelementptr i8, ptr %state, i64 %offset
  %awake = load atomic i64, ptr %awake.at seq_cst, align 8
  %next = add i64 %worker, 1
  %more = icmp slt i64 %next, %helpers
  %looks = icmp ne i64 %awake, 0
  %both = and i1 %looks, %more
  br i1 %both, label %ask, label %asked
asked:
  br i1 %looks, label %work, label %asleep
work:
  %rest = call i64 @work(ptr %state, i64 %chunks)
  ret i64 %rest
asleep:
  ret i64 -1
}}
define internal void @serve(ptr %state, i64 %worker) {{
entry:
  %helpers.at = getelementptr i8, ptr %state, i64 {2 * LINE + 24}
  %line = add i64 %worker, 3
  %offset = mul i64 %line, {LINE}
  %awake = getelementptr i8, ptr %state, i64 %offset
  br label %enter
enter:
  %on = atomicrmw xchg ptr %awake, i64 1 seq_cst
  br label %look
look:
  %turn = phi i64 [0, %enter], [0, %run], [%next, %idle]
  %left = load atomic i64, ptr %state seq_cst, align 8
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %ask, label %idle
ask:
  %helpers = load atomic i64, ptr %helpers.at seq_cst, align 8
  %wanted = icmp slt i64 %worker, %helpers
  br i1 %wanted, label %run, label %idle
run:
  call void @take_all(ptr %state)
  br label %look
idle:
  {PAUSE}
  %next = add i64 %turn, 1
  %early = icmp slt i64 %turn, {SPIN}
  br i1 %early, label %look, label %leave
leave:
  %off = atomicrmw xchg ptr %awake, i64 0 seq_cst
  %last = load atomic i64, ptr %state seq_cst, align 8
  %missed = icmp sgt i64 %last, 0
  %helpers.last = load atomic i64, ptr %helpers.at seq_cst, align 8
  %wanted.last = icmp slt i64 %worker, %helpers.last
  %stay = and i1 %missed, %wanted.last
  br i1 %stay, label %enter, label %asleep
asleep:
  ret void
}}
define void @pool(ptr %out, i64 %begin, i64 %end) {{
  store ptr @start, ptr %out, align 8
  %second = getelementptr i8, ptr %out, i64 8
  store ptr @work, ptr %second, align 8
  %third = getelementptr i8, ptr %out, i64 16
  store ptr @serve, ptr %third, align 8
  ret void
}}
"""


class _Native:
    """The functions of the pool, compiled."""

    def __init__(self, compiler: Compiler) -> None:
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        out = (word * 3)()
        SIGNATURE(compiler.load(NATIVE, "pool")[0])(ctypes.addressof(out), 0, 0)
        self.start: Final = ctypes.CFUNCTYPE(word, pointer)(out[0])
        self.work: Final = ctypes.CFUNCTYPE(word, pointer, word)(out[1])
        self.serve: Final = ctypes.CFUNCTYPE(None, pointer, word)(out[2])


@cache
def _native(compiler: Compiler) -> _Native:
    """The functions, once for each compiler."""
    return _Native(compiler)


class Pool:
    """Worker threads, started at the first kernel that needs them. A child after fork starts its own."""

    def __init__(self) -> None:
        self._closed: bool = False
        self._reset()
        os.register_at_fork(after_in_child=self._reset)
        atexit.register(self._close)

    def _reset(self) -> None:
        """No workers (a parent's are not here), and a state that none knows of."""
        self._pages, self._state = anonymous((INBOX + 1) * LINE)
        self._words: memoryview[int] = memoryview(self._pages).cast("q")
        self._inbox: memoryview[int] = self._words[INBOX * LINE // 8 :]
        self._gates: list[SimpleQueue[None]] = []
        self._inside: set[int] = set()  # workers that are in native code, or about to be
        self._job: int = 0
        self._busy: threading.Lock = threading.Lock()

    def run(self, compiler: Compiler, kernel: int, slots: int, chunks: int, threads: int) -> None:
        """Run a kernel's chunks on up to `threads` threads with this one; alone, where another kernel is being run."""
        helpers = (threads if threads < chunks else chunks) - 1
        if helpers < 1 or not self._busy.acquire(False):
            SIGNATURE(kernel)(slots, 0, chunks)
            return
        try:
            native = _native(compiler)
            if len(self._gates) < helpers:
                helpers = self._start(native, min(helpers, WORKERS))
            self._share(native, kernel, slots, chunks, helpers)
        finally:
            self._busy.release()

    def _share(self, native: _Native, kernel: int, slots: int, chunks: int, helpers: int) -> None:
        """Post a kernel, wake the workers that sleep, take chunks, and return when the last one is done."""
        self._job += 1
        box = self._inbox
        interrupt: BaseException | None = None
        rest = chunks
        while rest:  # whatever is raised here (Ctrl-C), chunks may be running still: memory must outlive them
            try:
                box[0], box[1], box[2], box[3], box[4] = kernel, slots, chunks, helpers, self._job
                rest = native.start(self._state)  # posts a job once
                if rest < 0:  # a worker sleeps, and nothing has been done here
                    rest = chunks
                    self._wake(helpers)
                    rest = native.work(self._state, chunks)
                while rest:
                    time.sleep(0)
                    rest = native.work(self._state, chunks)
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _wake(self, helpers: int) -> None:
        """A token for each worker that sleeps and has none."""
        for worker in range(helpers):
            gate = self._gates[worker]
            if not self._words[(3 + worker) * LINE // 8] and gate.empty():
                gate.put(None)

    def _start(self, native: _Native, helpers: int) -> int:
        """Have as many workers as are wanted, or as can be had; gives how many."""
        try:
            while len(self._gates) < helpers:
                gate: SimpleQueue[None] = SimpleQueue()
                arguments = native, self._state, len(self._gates), gate, self._inside
                threading.Thread(target=self._serve, args=arguments, name="intaglio", daemon=True).start()
                self._gates.append(gate)
        except RuntimeError:  # the system, or an interpreter that ends, lets no thread start
            return len(self._gates)
        return helpers

    def _serve(self, native: _Native, state: int, worker: int, gate: SimpleQueue[None], inside: set[int]) -> None:
        """One worker."""
        while True:
            gate.get()
            inside.add(worker)
            if not self._closed:  # asked after the line above: `_close` waits for who is inside
                native.serve(state, worker)
            inside.discard(worker)

    def _close(self) -> None:
        """Let no worker be in native code when the interpreter ends and its pages go."""
        self._busy.acquire(timeout=1)  # kept: what is run from now on is run alone
        self._closed = True
        deadline = time.monotonic() + 1
        while self._inside and time.monotonic() < deadline:
            time.sleep(1e-4)


pool: Final = Pool()


@cache
def process_threads() -> int:
    """How many threads this process may keep busy: by affinity and the control group's limit."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        if quota != "max":
            count = min(count, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass
    return count
