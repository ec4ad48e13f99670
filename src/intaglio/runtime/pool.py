"""Threads that share the chunks of one kernel: they take chunks, and sleep, in native code.

A worker that finds no chunk looks for one for a while more, then sleeps at a gate of its own; so a kernel that soon
follows another finds it awake. Its gate is a lock of the interpreter's own C interface, which each system has and which
asks for no interpreter lock: a worker that had to take that on its way would wake twice. The thread that posts a kernel
takes chunks itself, and never waits for a worker that has taken none.

Workers are kept off the processor of the thread that posts. Left to the system, one that wakes may be put there and
wait for milliseconds, while another processor sleeps: so it was on virtual machines.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import threading
import time
from array import array
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from intaglio.runtime.pages import anonymous, lasting

if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap

    from intaglio.runtime.compiler import Compiler

SIGNATURE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
WORKERS: Final = 255  # at most
PAGES: Final = 1 << 16  # bytes of scratch are a multiple of
LINE: Final = 64  # bytes that processors exchange as one: words of different writers lie so far apart
THREADS: Final = 2  # the line of the first thread, which posts kernels
AWAKE: Final = 1  # words of a thread's line, after its share: whether it is awake,
GATE: Final = 2  # what it sleeps at,
SCRATCH: Final = 3  # and where its scratch is
ENDS: Final = 1 << 32  # what is added to a share for its end to be one further
INBOX: Final = THREADS + 1 + WORKERS  # the line in which Python says what to post (a call with arguments takes longer):
# kernel, jobs, how many they are, helpers, the number of the first; and which of them is the next
JOB: Final = 2  # words of a job: where its arguments lie, how many chunks it has
HABITS: Final = INBOX + 1  # the line that says how to pass and open gates, when to sleep, to leave, how to yield
WAIT: Final = 500  # looks at the state before a thread that waits for chunks lets another run
YIELD: Final = 64  # looks after which an idle worker lets another run: it may share a processor with who has the work
IDLE: Final = 2e-4  # seconds that a worker looks before it sleeps: longer than Python takes between two kernels
LEAVE: Final = 10.0  # seconds that the end waits for workers, who leave at once if the system lets them run
ANY: Final = -1  # no processor in particular
PAUSE: Final = "call void @llvm.x86.sse2.pause()" if platform.machine() in ("x86_64", "AMD64") else ""

# The state: line 0 holds the kernel (function, arguments, helpers, job), line 1 counts the chunks that are done, line
# 2 + t is of thread t, of which the first posts kernels and the others are workers: its share (the first of its chunks
# that nobody has taken, and 32 bits on where they end), whether it is awake, its gate, its scratch. What line 0 says
# changes only when no chunk is left or being run; whoever has taken a chunk may read it. Shares are changed last: that
# publishes it. Who turns a worker's word from asleep to awake opens its gate once, or is that worker itself, which then
# has no need to pass it: so a gate is passed as often as it is opened.
NATIVE: Final = f"""
declare void @llvm.x86.sse2.pause()
define internal void @take_all(ptr %state, i64 %thread) noinline {{
entry:
  %done = getelementptr i8, ptr %state, i64 {LINE}
  %slots.at = getelementptr i64, ptr %state, i64 1
  %helpers.at = getelementptr i64, ptr %state, i64 2
  %shares = getelementptr i8, ptr %state, i64 {THREADS * LINE}
  %own.offset = mul i64 %thread, {LINE}
  %own = getelementptr i8, ptr %shares, i64 %own.offset
  %scratch.at = getelementptr i64, ptr %own, i64 {SCRATCH}
  br label %look
look:
  %share = load atomic i64, ptr %own seq_cst, align 8
  %begin = and i64 %share, {ENDS - 1}
  %end = lshr i64 %share, 32
  %some = icmp ult i64 %begin, %end
  br i1 %some, label %take, label %others
take:
  %less = add i64 %share, 1
  %pair = cmpxchg ptr %own, i64 %share, i64 %less seq_cst seq_cst
  %taken = extractvalue {{i64, i1}} %pair, 1
  br i1 %taken, label %run, label %look
others:
  %helpers = load atomic i64, ptr %helpers.at monotonic, align 8
  br label %next
next:
  %step = phi i64 [1, %others], [%further, %empty]
  %all = icmp sgt i64 %step, %helpers
  br i1 %all, label %leave, label %visit
visit:
  %sum = add i64 %thread, %step
  %threads = add i64 %helpers, 1
  %victim = urem i64 %sum, %threads
  %offset = mul i64 %victim, {LINE}
  %there = getelementptr i8, ptr %shares, i64 %offset
  br label %peer
peer:
  %rest = load atomic i64, ptr %there seq_cst, align 8
  %first = and i64 %rest, {ENDS - 1}
  %last = lshr i64 %rest, 32
  %full = icmp ult i64 %first, %last
  br i1 %full, label %steal, label %empty
steal:
  %fewer = sub i64 %rest, {ENDS}
  %both = cmpxchg ptr %there, i64 %rest, i64 %fewer seq_cst seq_cst
  %stolen = extractvalue {{i64, i1}} %both, 1
  br i1 %stolen, label %run, label %peer
empty:
  %further = add i64 %step, 1
  br label %next
run:
  %after = phi i64 [%less, %take], [%last, %steal]
  %stop.low = and i64 %after, {ENDS - 1}
  %chunk = sub i64 %stop.low, 1
  %kernel = load ptr, ptr %state, align 8
  %slots = load ptr, ptr %slots.at, align 8
  %scratch = load ptr, ptr %scratch.at, align 8
  call void %kernel(ptr %slots, i64 %chunk, i64 %stop.low, ptr %scratch)
  %before = atomicrmw add ptr %done, i64 1 seq_cst
  br label %look
leave:
  ret void
}}
define internal void @post(ptr %state, i64 %job, i64 %kernel, i64 %slots, i64 %chunks, i64 %helpers) {{
entry:
  %job.at = getelementptr i64, ptr %state, i64 3
  %old = load i64, ptr %job.at, align 8
  %known = icmp eq i64 %old, %job
  br i1 %known, label %leave, label %write
write:
  %done = getelementptr i8, ptr %state, i64 {LINE}
  %slots.at = getelementptr i64, ptr %state, i64 1
  %helpers.at = getelementptr i64, ptr %state, i64 2
  %shares = getelementptr i8, ptr %state, i64 {THREADS * LINE}
  store atomic i64 0, ptr %done monotonic, align 8
  store i64 %kernel, ptr %state, align 8
  store i64 %slots, ptr %slots.at, align 8
  store atomic i64 %helpers, ptr %helpers.at monotonic, align 8
  store i64 %job, ptr %job.at, align 8
  %threads = add i64 %helpers, 1
  %each = udiv i64 %chunks, %threads
  %more = urem i64 %chunks, %threads
  br label %share
share:
  %thread = phi i64 [0, %write], [%next, %share]
  %begin = phi i64 [0, %write], [%end, %share]
  %large = icmp ult i64 %thread, %more
  %one = zext i1 %large to i64
  %count = add i64 %each, %one
  %end = add i64 %begin, %count
  %high = shl i64 %end, 32
  %word = or i64 %high, %begin
  %offset = mul i64 %thread, {LINE}
  %at = getelementptr i8, ptr %shares, i64 %offset
  %before = atomicrmw xchg ptr %at, i64 %word seq_cst
  %next = add i64 %thread, 1
  %all = icmp ugt i64 %next, %helpers
  br i1 %all, label %leave, label %share
leave:
  ret void
}}
define internal i64 @work(ptr %state, i64 %chunks) {{
entry:
  call void @take_all(ptr %state, i64 0)
  %done = getelementptr i8, ptr %state, i64 {LINE}
  br label %wait
wait:
  %turn = phi i64 [0, %entry], [%next, %again]
  %ran = load atomic i64, ptr %done seq_cst, align 8
  %rest = sub i64 %chunks, %ran
  %some = icmp sgt i64 %rest, 0
  %next = add i64 %turn, 1
  %early = icmp slt i64 %turn, {WAIT}
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
  %kernel = load ptr, ptr %inbox, align 8
  %word = ptrtoint ptr %kernel to i64
  %jobs.at = getelementptr i64, ptr %inbox, i64 1
  %jobs = load ptr, ptr %jobs.at, align 8
  %count.at = getelementptr i64, ptr %inbox, i64 2
  %count = load i64, ptr %count.at, align 8
  %most.at = getelementptr i64, ptr %inbox, i64 3
  %most = load i64, ptr %most.at, align 8
  %first.at = getelementptr i64, ptr %inbox, i64 4
  %first = load i64, ptr %first.at, align 8
  %next.at = getelementptr i64, ptr %inbox, i64 5
  %scratch.at = getelementptr i8, ptr %state, i64 {THREADS * LINE + 8 * SCRATCH}
  %scratch = load ptr, ptr %scratch.at, align 8
  br label %look
look:
  %job = load i64, ptr %next.at, align 8
  %more = icmp slt i64 %job, %count
  br i1 %more, label %begin, label %end
begin:
  %at = getelementptr [{JOB} x i64], ptr %jobs, i64 %job
  %slots = load i64, ptr %at, align 8
  %chunks.at = getelementptr i64, ptr %at, i64 1
  %chunks = load i64, ptr %chunks.at, align 8
  %others = sub i64 %chunks, 1
  %few = icmp slt i64 %others, %most
  %helpers = select i1 %few, i64 %others, i64 %most
  %shared = icmp sgt i64 %helpers, 0
  br i1 %shared, label %share, label %whole
whole:
  %slots.there = inttoptr i64 %slots to ptr
  call void %kernel(ptr %slots.there, i64 0, i64 %chunks, ptr %scratch)
  br label %done
share:
  %number = add i64 %first, %job
  call void @post(ptr %state, i64 %number, i64 %word, i64 %slots, i64 %chunks, i64 %helpers)
  call void @wake(ptr %state, i64 %helpers)
  %rest = call i64 @work(ptr %state, i64 %chunks)
  %waits = icmp ne i64 %rest, 0
  br i1 %waits, label %leave, label %done
done:
  %after = add i64 %job, 1
  store i64 %after, ptr %next.at, align 8
  br label %look
leave:
  ret i64 %rest
end:
  ret i64 0
}}
define internal void @wake(ptr %state, i64 %workers) {{
entry:
  %habits = getelementptr i8, ptr %state, i64 {HABITS * LINE}
  %open.at = getelementptr ptr, ptr %habits, i64 1
  %open = load ptr, ptr %open.at, align 8
  br label %each
each:
  %worker = phi i64 [0, %entry], [%next, %passed]
  %line = add i64 %worker, {THREADS + 1}
  %offset = mul i64 %line, {LINE}
  %own = getelementptr i8, ptr %state, i64 %offset
  %awake.at = getelementptr i64, ptr %own, i64 {AWAKE}
  %awake = load atomic i64, ptr %awake.at seq_cst, align 8
  %looks = icmp ne i64 %awake, 0
  br i1 %looks, label %passed, label %try
try:
  %pair = cmpxchg ptr %awake.at, i64 0, i64 1 seq_cst seq_cst
  %turned = extractvalue {{i64, i1}} %pair, 1
  br i1 %turned, label %rouse, label %passed
rouse:
  %gate.at = getelementptr i64, ptr %own, i64 {GATE}
  %gate = load ptr, ptr %gate.at, align 8
  call void %open(ptr %gate)
  br label %passed
passed:
  %next = add i64 %worker, 1
  %more = icmp slt i64 %next, %workers
  br i1 %more, label %each, label %leave
leave:
  ret void
}}
define internal void @serve(ptr %state, i64 %thread) {{
entry:
  %line = add i64 %thread, {THREADS}
  %offset = mul i64 %line, {LINE}
  %own = getelementptr i8, ptr %state, i64 %offset
  %awake = getelementptr i64, ptr %own, i64 {AWAKE}
  %gate.at = getelementptr i64, ptr %own, i64 {GATE}
  %gate = load ptr, ptr %gate.at, align 8
  %habits = getelementptr i8, ptr %state, i64 {HABITS * LINE}
  %pass = load ptr, ptr %habits, align 8
  %idle.at = getelementptr i64, ptr %habits, i64 2
  %idle.looks = load i64, ptr %idle.at, align 8
  %closed.at = getelementptr i64, ptr %habits, i64 3
  %yield.at = getelementptr ptr, ptr %habits, i64 4
  %yield = load ptr, ptr %yield.at, align 8
  %yields = icmp ne ptr %yield, null
  br label %asleep
asleep:
  %closed = load atomic i64, ptr %closed.at seq_cst, align 8
  %ends = icmp ne i64 %closed, 0
  br i1 %ends, label %leave, label %sleep
sleep:
  %status = call i32 %pass(ptr %gate, i32 1)
  %helpers.at = getelementptr i64, ptr %state, i64 2
  %helpers = load atomic i64, ptr %helpers.at seq_cst, align 8
  %wanted = icmp sle i64 %thread, %helpers
  br i1 %wanted, label %run, label %look
look:
  %turn = phi i64 [0, %sleep], [0, %run], [0, %missed], [%next, %stays], [%next, %give]
  %share = load atomic i64, ptr %own seq_cst, align 8
  %begin = and i64 %share, {ENDS - 1}
  %end = lshr i64 %share, 32
  %some = icmp ult i64 %begin, %end
  br i1 %some, label %run, label %idle
run:
  call void @take_all(ptr %state, i64 %thread)
  br label %look
idle:
  {PAUSE}
  %next = add i64 %turn, 1
  %rest = urem i64 %next, {YIELD}
  %whole = icmp eq i64 %rest, 0
  %gives = and i1 %whole, %yields
  %early = icmp slt i64 %turn, %idle.looks
  br i1 %early, label %stays, label %tired
stays:
  br i1 %gives, label %give, label %look
give:
  %given = call i32 %yield()
  br label %look
tired:
  %off = atomicrmw xchg ptr %awake, i64 0 seq_cst
  %last = load atomic i64, ptr %own seq_cst, align 8
  %last.begin = and i64 %last, {ENDS - 1}
  %last.end = lshr i64 %last, 32
  %late = icmp ult i64 %last.begin, %last.end
  br i1 %late, label %missed, label %asleep
missed:
  %pair = cmpxchg ptr %awake, i64 0, i64 1 seq_cst seq_cst
  %turned = extractvalue {{i64, i1}} %pair, 1
  br i1 %turned, label %look, label %asleep
leave:
  ret void
}}
define void @pool(ptr %out, i64 %begin, i64 %end) {{
  store ptr @start, ptr %out, align 8
  %second = getelementptr i8, ptr %out, i64 8
  store ptr @work, ptr %second, align 8
  %third = getelementptr i8, ptr %out, i64 16
  store ptr @serve, ptr %third, align 8
  %fourth = getelementptr i8, ptr %out, i64 24
  store ptr @wake, ptr %fourth, align 8
  ret void
}}
"""


class _Native:
    """The functions of the pool, compiled."""

    def __init__(self, compiler: Compiler) -> None:
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        out = (word * 4)()
        SIGNATURE(compiler.load(NATIVE, "pool")[0])(ctypes.addressof(out), 0, 0, None)
        self.start: Final = ctypes.CFUNCTYPE(word, pointer)(out[0])
        self.work: Final = ctypes.CFUNCTYPE(word, pointer, word)(out[1])
        self.serve: Final = ctypes.CFUNCTYPE(None, pointer, word)(out[2])
        self.wake: Final = ctypes.CFUNCTYPE(None, pointer, word)(out[3])


def _find_processor() -> Callable[[], int]:
    """The function that tells the processor of the thread that calls it: `ANY` where threads can be kept off none."""
    found = getattr(ctypes.PyDLL(None), "sched_getcpu", None) if hasattr(os, "sched_setaffinity") else None
    return found or (lambda: ANY)


_processor: Final = _find_processor()

# A sleep of no time takes the timer's slack, which is longer than most chunks.
_let_others_run: Final = getattr(os, "sched_yield", partial(time.sleep, 0))


@cache
def _native(compiler: Compiler) -> _Native:
    """The functions, once for each compiler."""
    return _Native(compiler)


@cache
def _locks() -> tuple[int, int]:
    """The functions that take and that release a lock, without the interpreter lock: their addresses."""
    functions = ctypes.pythonapi.PyThread_acquire_lock, ctypes.pythonapi.PyThread_release_lock
    take, release = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)
    return take, release


@cache
def _yield() -> int:
    """The function that lets another thread of this processor run: its address, 0 where the system has none."""
    function = getattr(ctypes.CDLL(None), "sched_yield", None) if os.name == "posix" else None
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


def _line(thread: int) -> int:
    """The first word of a thread's line."""
    return (THREADS + thread) * LINE // 8


def _gate() -> int:
    """A new lock that is taken: it lets one thread through for each release. It is there to the end."""
    new = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThread_allocate_lock", ctypes.pythonapi))
    take = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(("PyThread_acquire_lock", ctypes.pythonapi))
    gate = new()
    if gate is None:
        raise RuntimeError("can't allocate lock")
    take(gate, 1)
    return gate


def _seconds_of_look(native: _Native, state: int) -> float:
    """What a look at a state costs in which there is nothing to do: processors differ tenfold in how they pause."""
    times: list[float] = []
    for _ in range(3):
        started = time.perf_counter()
        native.work(state, 1)  # as if one chunk were being run
        times.append(time.perf_counter() - started)
    return min(times) / WAIT


class Pool:
    """Worker threads, started at the first kernel that needs them. A child after fork starts its own."""

    def __init__(self) -> None:
        self._room: int = 0  # bytes of scratch that each thread has
        self._own: mmap | None = None  # that of the threads that post kernels, one at a time
        self.scratch: int = 0  # its address
        self._reset()
        os.register_at_fork(after_in_child=self._reset)
        atexit.register(self._close)

    def _reset(self) -> None:
        """No workers (a parent's are not here), and a state that none knows of."""
        self._pages, self._state = lasting((HABITS + 1) * LINE)
        self._words: memoryview[int] = memoryview(self._pages).cast("q")
        self._inbox: memoryview[int] = self._words[INBOX * LINE // 8 :]
        self._habits: memoryview[int] = self._words[HABITS * LINE // 8 :]
        self._habits[0], self._habits[1] = _locks()
        self._habits[4] = _yield()
        self._words[_line(0) + SCRATCH] = self.scratch  # a child has a copy
        self._others: list[mmap] = []  # the scratch of workers
        self._native: _Native | None = None  # once there are workers
        self._workers: int = 0
        self._threads: list[int] = []  # the system's numbers of workers
        self._may: set[int] = set()  # the processors on which they may run,
        self._let: set[int] = set()  # those on which they are let, without
        self._kept_off: int = ANY  # that of the thread that posts
        self._inside: set[int] = set()  # workers that are in native code, or about to be
        self._job: int = 0
        self._busy: threading.Lock = threading.Lock()

    def run(self, compiler: Compiler, kernel: int, slots: int, chunks: int, threads: int) -> None:
        """Run a kernel's chunks on up to `threads` threads with this one; alone, where another kernel is being run."""
        self.run_all(compiler, kernel, array("Q", (slots, chunks)), min(threads, chunks))

    def run_all(self, compiler: Compiler, kernel: int, jobs: array[int], threads: int) -> None:
        """Run jobs of one kernel in order, by one native call if no thread has to be waited for.

        Args:
            jobs: For each its arguments' address, and how many chunks it has.
            threads: How many share the chunks of a job at most.
        """
        helpers = threads - 1
        if helpers < 1 or not self._busy.acquire(False):
            call = SIGNATURE(kernel)
            for place in range(0, len(jobs), JOB):
                call(jobs[place], 0, jobs[place + 1], self.scratch)
            return
        try:
            native = _native(compiler)
            if self._workers < helpers:
                helpers = self._start(native, min(helpers, WORKERS))
            self._keep_off()
            self._share(native, kernel, jobs, helpers)
        finally:
            self._busy.release()

    def provide(self, nbytes: int) -> None:
        """Have scratch of so many bytes for each thread from now on, while no kernel runs.

        Kernels that need scratch run one at a time: all threads that post kernels have one.
        """
        if nbytes <= self._room:
            return
        room = -(-nbytes // PAGES) * PAGES
        own, *others = [anonymous(room) for _ in range(1 + self._workers)]  # all, or none where the system has no more
        self._own, self.scratch = own
        for thread, (_, address) in enumerate((own, *others)):
            self._words[_line(thread) + SCRATCH] = address
        self._others = [pages for pages, _ in others]
        self._room = room

    def rouse(self, threads: int) -> None:
        """Wake workers for a kernel of so many threads that comes soon: one that sleeps takes as long to wake."""
        helpers = min(threads - 1, self._workers)
        if helpers > 0 and self._native is not None and not all(self.awake(helpers)):
            self._native.wake(self._state, helpers)

    def awake(self, workers: int) -> list[bool]:
        """Which of the first workers are awake."""
        return [self._words[_line(1 + worker) + AWAKE] != 0 for worker in range(workers)]

    def _keep_off(self) -> None:
        """Let workers run wherever they may, but for the processor that this thread runs on, if there is another."""
        here = _processor()
        if here == self._kept_off or not self._threads:
            return
        self._kept_off = ANY
        try:
            now = os.sched_getaffinity(self._threads[0])
            if now != self._let:  # somebody else has said since where they may
                self._may = now
            others = self._may - {here}
            for thread in self._threads if others else ():
                os.sched_setaffinity(thread, others)
        except OSError:  # the system does not let them be moved
            self._threads = []
            return
        if others:
            self._let, self._kept_off = others, here

    def _share(self, native: _Native, kernel: int, jobs: array[int], helpers: int) -> None:
        """For each job, post it, wake the workers that sleep, take chunks, and go on when the last one is done."""
        box = self._inbox
        first, count = self._job + 1, len(jobs) // JOB
        self._job += count
        interrupt: BaseException | None = None
        posted, rest = False, 1
        while rest:  # whatever is raised here (Ctrl-C), chunks may be running still: memory must outlive them
            try:
                if not posted:
                    box[0], box[1], box[2], box[3] = kernel, jobs.buffer_info()[0], count, helpers
                    box[4], box[5] = first, 0
                    posted = True
                rest = native.start(self._state)  # goes on where it was, and posts each job once
                while rest:
                    _let_others_run()
                    rest = native.start(self._state)
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _start(self, native: _Native, helpers: int) -> int:
        """Have as many workers as are wanted, or as can be had; gives how many."""
        if self._native is None:
            self._native = native
            self._habits[2] = int(IDLE / _seconds_of_look(native, self._state))
        try:
            while self._workers < helpers:
                line = _line(1 + self._workers)
                self._words[line + GATE] = _gate()
                pages, self._words[line + SCRATCH] = anonymous(max(self._room, PAGES))
                self._others.append(pages)
                arguments = native, self._state, 1 + self._workers, self._inside
                thread = threading.Thread(target=self._serve, args=arguments, name="intaglio", daemon=True)
                thread.start()
                self._threads += [] if thread.native_id is None else [thread.native_id]
                self._workers += 1
        except RuntimeError:  # the system, or an interpreter that ends, lets no thread start
            helpers = self._workers
        self._kept_off = ANY
        return helpers

    def _serve(self, native: _Native, state: int, thread: int, inside: set[int]) -> None:
        """One worker."""
        inside.add(thread)
        native.serve(state, thread)  # asks whether the pool is closed: `_close` waits for who is inside
        inside.discard(thread)

    def _close(self) -> None:
        """Let no worker be in native code when the interpreter ends; one without a processor finds its pages still."""
        self._busy.acquire(timeout=LEAVE)  # kept: what is run from now on is run alone
        self._habits[3] = 1
        self._threads = []  # their numbers may soon be those of others
        if self._native is not None and self._workers:
            self._native.wake(self._state, self._workers)
        deadline = time.monotonic() + LEAVE
        while self._inside and time.monotonic() < deadline:
            time.sleep(1e-4)


pool: Final = Pool()
