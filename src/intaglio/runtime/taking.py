"""How threads take the chunks of a kernel, post kernels and sleep: native code, and the state that it works on.

Each thread has a share of the chunks: neighbours (`shares`), which it takes from the front. Then it takes those of
others, from the ends of their shares. So a thread that computes the same again finds what it touched before in its own
caches, as far as nobody had to help it: two processors may have no third cache in common.

A worker that finds no job looks for one for a while more, then sleeps at a gate of its own; so a kernel that soon
follows another finds it awake. Its gate is a lock of the interpreter's own C interface, which each system has and which
asks for no interpreter lock: a worker that had to take that on its way would wake twice. The thread that posts a kernel
takes chunks itself, and never waits for a worker that has taken none.

What is said of a job changes only when no chunk is left or being run; whoever has taken a chunk may read it. A job is
posted in this order: its function, arguments and helpers, the shares, its number. Who still looks at shares, from the
job before, may take chunks as soon as there are any, and finds the rest in its place. Idle workers look at the number
alone. One that sees another than the last time, and is among the helpers, takes chunks until all shares are empty: a
job that is posted meanwhile has another number, so it is not missed, whatever the worker saw of its shares.

A worker that is about to sleep says so, then looks at the number once more; who posts writes the number, then looks who
sleeps. All threads see these in one order (`seq_cst`), so one of the two sees the other. Who turns a worker's word from
asleep to awake opens its gate once, or is that worker itself, which then has no need to pass it: so a gate is passed as
often as it is opened.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from intaglio.runtime.pages import lasting

if TYPE_CHECKING:
    from intaglio.runtime.compiler import Compiler

SIGNATURE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
WORKERS: Final = 255  # at most
WORDS: Final = 8  # of a line, which processors exchange as one: words of different writers lie in different lines
# The lines of the state: those of threads by their numbers, of which 0 posts; then
JOB: Final = WORKERS + 1  # what is run now,
DONE: Final = JOB + 1  # how many chunks of it are done,
INBOX: Final = DONE + 1  # what to post (a call with arguments takes longer): kernel, jobs, how many they are, helpers,
# the number of the first; and which of them is the next,
HABITS: Final = INBOX + 1  # how to sleep and wake
# The words of a thread's line:
SHARE: Final = 0  # the first of its chunks that nobody has taken, and times `ENDS` where they end
AWAKE: Final = 1  # whether it is awake
GATE: Final = 2  # what it sleeps at
SCRATCH: Final = 3  # where its scratch is
# The words of what is run:
KERNEL: Final = 0  # its function
SLOTS: Final = 1  # where its arguments lie
HELPERS: Final = 2  # how many workers take chunks
NUMBER: Final = 3  # its number
# The words of habits:
PASS: Final = 0  # the function that passes a gate,
OPEN: Final = 1  # that which opens one,
YIELD: Final = 2  # that which lets another thread run, or 0
LOOKS: Final = 3  # how often a worker looks before it sleeps
CLOSED: Final = 4  # whether workers are to leave
ENDS: Final = 1 << 32
EACH: Final = 2  # words of a job in the inbox's list: where its arguments lie, how many chunks it has
WAIT: Final = 500  # looks at what is done before a thread that waits for chunks lets another run
TURNS: Final = 64  # looks after which an idle worker lets another run: it may share a processor with who has the work
PAUSE: Final = "call void @llvm.x86.sse2.pause()" if platform.machine() in ("x86_64", "AMD64") else ""


def shares(chunks: int, threads: int) -> list[range]:
    """The chunks of each thread: neighbours; where they cannot be as many for all, the first threads have one more.

    Examples:
        >>> shares(7, 3)
        [range(0, 3), range(3, 5), range(5, 7)]
    """
    each, more = divmod(chunks, threads)
    ends = [each * thread + min(thread, more) for thread in range(threads + 1)]
    return [range(*both) for both in pairwise(ends)]


NATIVE: Final = f"""
%line = type [{WORDS} x i64]
declare void @llvm.x86.sse2.pause()
define internal i64 @take(ptr %share.at, i1 %own) {{
entry:
  br label %look
look:
  %share = load atomic i64, ptr %share.at seq_cst, align 8
  %begin = and i64 %share, {ENDS - 1}
  %end = lshr i64 %share, 32
  %some = icmp ult i64 %begin, %end
  br i1 %some, label %try, label %empty
try:
  %change = select i1 %own, i64 1, i64 {-ENDS}
  %rest = add i64 %share, %change
  %pair = cmpxchg ptr %share.at, i64 %share, i64 %rest seq_cst seq_cst
  %taken = extractvalue {{i64, i1}} %pair, 1
  br i1 %taken, label %found, label %look
found:
  %last = sub i64 %end, 1
  %chunk = select i1 %own, i64 %begin, i64 %last
  ret i64 %chunk
empty:
  ret i64 -1
}}
define internal void @take_all(ptr %state, i64 %thread) {{
entry:
  %kernel.at = getelementptr %line, ptr %state, i64 {JOB}, i64 {KERNEL}
  %slots.at = getelementptr %line, ptr %state, i64 {JOB}, i64 {SLOTS}
  %helpers.at = getelementptr %line, ptr %state, i64 {JOB}, i64 {HELPERS}
  %done.at = getelementptr %line, ptr %state, i64 {DONE}, i64 0
  %own.at = getelementptr %line, ptr %state, i64 %thread, i64 {SHARE}
  %scratch.at = getelementptr %line, ptr %state, i64 %thread, i64 {SCRATCH}
  br label %look
look:
  %first = call i64 @take(ptr %own.at, i1 true)
  %has = icmp sge i64 %first, 0
  br i1 %has, label %run, label %others
others:
  %helpers = load atomic i64, ptr %helpers.at monotonic, align 8
  %threads = add i64 %helpers, 1
  %wanted = icmp sle i64 %thread, %helpers
  br i1 %wanted, label %next, label %leave
next:
  %step = phi i64 [1, %others], [%further, %empty]
  %all = icmp sgt i64 %step, %helpers
  br i1 %all, label %leave, label %visit
visit:
  %sum = add i64 %thread, %step
  %over = sub i64 %sum, %threads
  %round = icmp sge i64 %over, 0
  %other = select i1 %round, i64 %over, i64 %sum
  %share.at = getelementptr %line, ptr %state, i64 %other, i64 {SHARE}
  %last = call i64 @take(ptr %share.at, i1 false)
  %helps = icmp sge i64 %last, 0
  br i1 %helps, label %run, label %empty
empty:
  %further = add i64 %step, 1
  br label %next
run:
  %chunk = phi i64 [%first, %look], [%last, %visit]
  %stop = add i64 %chunk, 1
  %kernel = load ptr, ptr %kernel.at, align 8
  %slots = load ptr, ptr %slots.at, align 8
  %scratch = load ptr, ptr %scratch.at, align 8
  call void %kernel(ptr %slots, i64 %chunk, i64 %stop, ptr %scratch)
  %before = atomicrmw add ptr %done.at, i64 1 seq_cst
  br label %look
leave:
  ret void
}}
define internal void @post(ptr %state, i64 %number, ptr %kernel, i64 %slots, i64 %chunks, i64 %helpers) {{
entry:
  %number.at = getelementptr %line, ptr %state, i64 {JOB}, i64 {NUMBER}
  %old = load i64, ptr %number.at, align 8
  %known = icmp eq i64 %old, %number
  br i1 %known, label %leave, label %write
write:
  %kernel.at = getelementptr %line, ptr %state, i64 {JOB}, i64 {KERNEL}
  %slots.at = getelementptr %line, ptr %state, i64 {JOB}, i64 {SLOTS}
  %helpers.at = getelementptr %line, ptr %state, i64 {JOB}, i64 {HELPERS}
  %done.at = getelementptr %line, ptr %state, i64 {DONE}, i64 0
  store atomic i64 0, ptr %done.at monotonic, align 8
  store ptr %kernel, ptr %kernel.at, align 8
  store i64 %slots, ptr %slots.at, align 8
  store atomic i64 %helpers, ptr %helpers.at monotonic, align 8
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
  %high = mul i64 %end, {ENDS}
  %both = or i64 %high, %begin
  %share.at = getelementptr %line, ptr %state, i64 %thread, i64 {SHARE}
  store atomic i64 %both, ptr %share.at release, align 8
  %next = add i64 %thread, 1
  %all = icmp ugt i64 %next, %helpers
  br i1 %all, label %publish, label %share
publish:
  %before = atomicrmw xchg ptr %number.at, i64 %number seq_cst
  br label %leave
leave:
  ret void
}}
define internal i64 @work(ptr %state, i64 %chunks) {{
entry:
  call void @take_all(ptr %state, i64 0)
  %done.at = getelementptr %line, ptr %state, i64 {DONE}, i64 0
  br label %wait
wait:
  %turn = phi i64 [0, %entry], [%next, %again]
  %done = load atomic i64, ptr %done.at seq_cst, align 8
  %rest = sub i64 %chunks, %done
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
  %kernel.at = getelementptr %line, ptr %state, i64 {INBOX}, i64 0
  %kernel = load ptr, ptr %kernel.at, align 8
  %jobs.at = getelementptr %line, ptr %state, i64 {INBOX}, i64 1
  %jobs = load ptr, ptr %jobs.at, align 8
  %count.at = getelementptr %line, ptr %state, i64 {INBOX}, i64 2
  %count = load i64, ptr %count.at, align 8
  %most.at = getelementptr %line, ptr %state, i64 {INBOX}, i64 3
  %most = load i64, ptr %most.at, align 8
  %first.at = getelementptr %line, ptr %state, i64 {INBOX}, i64 4
  %first = load i64, ptr %first.at, align 8
  %next.at = getelementptr %line, ptr %state, i64 {INBOX}, i64 5
  %scratch.at = getelementptr %line, ptr %state, i64 0, i64 {SCRATCH}
  %scratch = load ptr, ptr %scratch.at, align 8
  br label %look
look:
  %job = load i64, ptr %next.at, align 8
  %more = icmp slt i64 %job, %count
  br i1 %more, label %begin, label %end
begin:
  %at = getelementptr [{EACH} x i64], ptr %jobs, i64 %job
  %slots = load i64, ptr %at, align 8
  %chunks.at = getelementptr i64, ptr %at, i64 1
  %chunks = load i64, ptr %chunks.at, align 8
  %others = sub i64 %chunks, 1
  %few = icmp slt i64 %others, %most
  %helpers = select i1 %few, i64 %others, i64 %most
  %several = icmp sgt i64 %helpers, 0
  br i1 %several, label %together, label %alone
alone:
  %slots.there = inttoptr i64 %slots to ptr
  call void %kernel(ptr %slots.there, i64 0, i64 %chunks, ptr %scratch)
  br label %done
together:
  %number = add i64 %first, %job
  call void @post(ptr %state, i64 %number, ptr %kernel, i64 %slots, i64 %chunks, i64 %helpers)
  call void @wake(ptr %state, i64 %helpers)
  %rest = call i64 @work(ptr %state, i64 %chunks)
  %waits = icmp ne i64 %rest, 0
  br i1 %waits, label %leave, label %done
done:
  %next = add i64 %job, 1
  store i64 %next, ptr %next.at, align 8
  br label %look
leave:
  ret i64 %rest
end:
  ret i64 0
}}
define internal void @wake(ptr %state, i64 %workers) {{
entry:
  %open.at = getelementptr %line, ptr %state, i64 {HABITS}, i64 {OPEN}
  %open = load ptr, ptr %open.at, align 8
  br label %each
each:
  %thread = phi i64 [1, %entry], [%next, %passed]
  %awake.at = getelementptr %line, ptr %state, i64 %thread, i64 {AWAKE}
  %awake = load atomic i64, ptr %awake.at seq_cst, align 8
  %asleep = icmp eq i64 %awake, 0
  br i1 %asleep, label %try, label %passed
try:
  %pair = cmpxchg ptr %awake.at, i64 0, i64 1 seq_cst seq_cst
  %turned = extractvalue {{i64, i1}} %pair, 1
  br i1 %turned, label %rouse, label %passed
rouse:
  %gate.at = getelementptr %line, ptr %state, i64 %thread, i64 {GATE}
  %gate = load ptr, ptr %gate.at, align 8
  call void %open(ptr %gate)
  br label %passed
passed:
  %next = add i64 %thread, 1
  %more = icmp sle i64 %next, %workers
  br i1 %more, label %each, label %leave
leave:
  ret void
}}
define internal void @serve(ptr %state, i64 %thread) {{
entry:
  %number.at = getelementptr %line, ptr %state, i64 {JOB}, i64 {NUMBER}
  %helpers.at = getelementptr %line, ptr %state, i64 {JOB}, i64 {HELPERS}
  %awake.at = getelementptr %line, ptr %state, i64 %thread, i64 {AWAKE}
  %gate.at = getelementptr %line, ptr %state, i64 %thread, i64 {GATE}
  %gate = load ptr, ptr %gate.at, align 8
  %pass.at = getelementptr %line, ptr %state, i64 {HABITS}, i64 {PASS}
  %pass = load ptr, ptr %pass.at, align 8
  %looks.at = getelementptr %line, ptr %state, i64 {HABITS}, i64 {LOOKS}
  %looks = load i64, ptr %looks.at, align 8
  %yield.at = getelementptr %line, ptr %state, i64 {HABITS}, i64 {YIELD}
  %yield = load ptr, ptr %yield.at, align 8
  %yields = icmp ne ptr %yield, null
  %closed.at = getelementptr %line, ptr %state, i64 {HABITS}, i64 {CLOSED}
  br label %asleep
asleep:
  %known = phi i64 [0, %entry], [%seen, %tired], [%seen, %missed]
  %closed = load atomic i64, ptr %closed.at seq_cst, align 8
  %ends = icmp ne i64 %closed, 0
  br i1 %ends, label %leave, label %sleep
sleep:
  %status = call i32 %pass(ptr %gate, i32 1)
  br label %look
look:
  %turn = phi i64 [0, %sleep], [0, %run], [%turn, %other], [%next, %missed], [%next, %stays], [%next, %give]
  %seen = phi i64 [%known, %sleep], [%now, %run], [%now, %other], [%seen, %missed], [%seen, %stays], [%seen, %give]
  %now = load atomic i64, ptr %number.at seq_cst, align 8
  %same = icmp eq i64 %now, %seen
  br i1 %same, label %idle, label %other
other:
  %helpers = load atomic i64, ptr %helpers.at monotonic, align 8
  %wanted = icmp sle i64 %thread, %helpers
  br i1 %wanted, label %run, label %look
run:
  call void @take_all(ptr %state, i64 %thread)
  br label %look
idle:
  {PAUSE}
  %next = add i64 %turn, 1
  %rest = urem i64 %next, {TURNS}
  %enough = icmp eq i64 %rest, 0
  %gives = and i1 %enough, %yields
  %early = icmp slt i64 %turn, %looks
  br i1 %early, label %stays, label %tired
stays:
  br i1 %gives, label %give, label %look
give:
  %given = call i32 %yield()
  br label %look
tired:
  %before = atomicrmw xchg ptr %awake.at, i64 0 seq_cst
  %last = load atomic i64, ptr %number.at seq_cst, align 8
  %late = icmp ne i64 %last, %seen
  br i1 %late, label %missed, label %asleep
missed:
  %pair = cmpxchg ptr %awake.at, i64 0, i64 1 seq_cst seq_cst
  %turned = extractvalue {{i64, i1}} %pair, 1
  br i1 %turned, label %look, label %asleep
leave:
  ret void
}}
define void @pool(ptr %out, i64 %begin, i64 %end) {{
  store ptr @start, ptr %out, align 8
  %second = getelementptr i64, ptr %out, i64 1
  store ptr @work, ptr %second, align 8
  %third = getelementptr i64, ptr %out, i64 2
  store ptr @serve, ptr %third, align 8
  %fourth = getelementptr i64, ptr %out, i64 3
  store ptr @wake, ptr %fourth, align 8
  ret void
}}
"""


class Native:
    """The functions, compiled.

    Attributes:
        start: Posts the jobs of the inbox, one after the other, and takes chunks with the workers; 0 when all are done,
            else it is to be called again: a thread is waited for.
        serve: What a worker does until the pool is closed.
        wake: Opens the gates of the first workers, of those that sleep.
    """

    def __init__(self, compiler: Compiler) -> None:
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        out = (word * 4)()
        SIGNATURE(compiler.load(NATIVE, "pool")[0])(ctypes.addressof(out), 0, 0, None)
        self.start: Final = ctypes.CFUNCTYPE(word, pointer)(out[0])
        self._work: Final = ctypes.CFUNCTYPE(word, pointer, word)(out[1])
        self.serve: Final = ctypes.CFUNCTYPE(None, pointer, word)(out[2])
        self.wake: Final = ctypes.CFUNCTYPE(None, pointer, word)(out[3])

    def seconds_of_look(self, state: State) -> float:
        """What a look at a state costs in which there is nothing to do: processors differ tenfold in how they pause."""
        times: list[float] = []
        for _ in range(3):
            started = time.perf_counter()
            self._work(state.address, 1)  # as if one chunk were being run
            times.append(time.perf_counter() - started)
        return min(times) / WAIT


@cache
def native(compiler: Compiler) -> Native:
    """The functions, once for each compiler."""
    return Native(compiler)


class State:
    """What the functions work on: there until the process ends, as threads may be that are in native code."""

    def __init__(self) -> None:
        pages, address = lasting(8 * WORDS * (HABITS + 1))
        words: memoryview[int] = memoryview(pages).cast("q")
        self.address: Final = address
        self.lines: Final = [words[WORDS * line : WORDS * (line + 1)] for line in range(HABITS + 1)]
        self.inbox: Final = self.lines[INBOX]
        self.habits: Final = self.lines[HABITS]
        self.habits[PASS], self.habits[OPEN] = _locks()
        self.habits[YIELD] = _yield()


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


def closed_gate() -> int:
    """A lock that is taken: it lets one thread through for each release. It is there to the end.

    Raises: RuntimeError if the system has no more.
    """
    new = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThread_allocate_lock", ctypes.pythonapi))
    take = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(("PyThread_acquire_lock", ctypes.pythonapi))
    made = new()
    if made is None:
        raise RuntimeError("can't allocate lock")
    take(made, 1)
    return made
