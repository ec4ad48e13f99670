"""The number of threads changes no bit; every chunk runs once, whatever happens around it."""

from __future__ import annotations

import ctypes
import dis
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from array import array
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Context, GlobalCounters, Tensor
from intaglio.runtime import pool as pool_module
from intaglio.runtime.compiler import Compiler
from intaglio.runtime.pool import IDLE, Pool
from intaglio.runtime.taking import LOOKS, SIGNATURE, shares

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Iterator
    from types import FrameType

    from _typeshed import TraceFunction

COUNT = """
define void @count(ptr %seen, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%j, %loop]
  %place = getelementptr i64, ptr %seen, i64 %i
  %before = atomicrmw add ptr %place, i64 1 monotonic
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
TURNS = 500_000
ROOM = 1 << 20  # bytes of scratch
SLOW = f"""
define void @slow(ptr %seen, i64 %begin, i64 %end) {{
entry:
  %place = getelementptr i64, ptr %seen, i64 %begin
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %before = atomicrmw add ptr %place, i64 1 monotonic
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, {TURNS}
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
OWN = f"""
define void @own(ptr %seen, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %place = getelementptr i64, ptr %seen, i64 %begin
  %last = getelementptr i64, ptr %scratch, i64 {ROOM // 8 - 1}
  store volatile i64 %begin, ptr %scratch
  store volatile i64 %begin, ptr %last
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %first.now = load volatile i64, ptr %scratch
  %last.now = load volatile i64, ptr %last
  %both = add i64 %first.now, %last.now
  %own = add i64 %begin, %begin
  %differ = icmp ne i64 %both, %own
  %wrong = zext i1 %differ to i64
  %before = atomicrmw add ptr %place, i64 %wrong monotonic
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, 20000
  br i1 %more, label %loop, label %done
done:
  %ran = atomicrmw add ptr %place, i64 1 monotonic
  ret void
}}
"""
COMPILER = Compiler(lambda: None)
MOST = 64


def counting() -> int:
    """A kernel that counts how often each of its chunks runs."""
    return COMPILER.load(COUNT, "count")[0]


def agrees(pool: Pool, kernel: int, jobs: int, seed: int) -> bool:
    """Whether each chunk of some jobs, of random sizes, ran once by the time that its job was done."""
    draw = np.random.default_rng(seed)
    seen, expected = np.zeros(MOST, np.int64), np.zeros(MOST, np.int64)
    for _ in range(jobs):
        chunks, threads = int(draw.integers(1, MOST)), int(draw.integers(1, 6))
        pool.run(COMPILER, kernel, seen.ctypes.data, chunks, threads)
        expected[:chunks] += 1
        if not np.array_equal(seen, expected):
            return False
    return True


def called(work: Callable[[int], None]) -> ctypes._CFunctionType:
    """A kernel that is a Python function of the chunk."""
    return SIGNATURE(lambda _, begin, end, __: [work(chunk) for chunk in range(begin, end)] and None)


def forever(work: Callable[[], None], delay: float) -> None:
    """Work until the alarm, which comes after a delay."""
    signal.setitimer(signal.ITIMER_REAL, delay)
    while True:
        work()


def results(x: Tensor, y: Tensor) -> list[np.ndarray]:
    """Kernels large enough to be run in chunks."""
    return [
        (x @ x).numpy(),
        (x @ x.T + x).tanh().numpy(),
        (y * 2 + 1).exp().numpy(),
        x.softmax(-1).numpy(),
        x.sum(0).numpy(),
        x.T.contiguous().numpy(),
    ]


def awake(pool: Pool, workers: int, *, wanted: bool) -> bool:
    """Whether so many workers are all awake, or all asleep, before long."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if pool.awake(workers) == [wanted] * workers:
            return True
        time.sleep(IDLE)
    return False


def test_workers_are_woken_before_there_is_a_kernel() -> None:
    pool, kernel = Pool(), counting()
    pool.rouse(COMPILER, 3)  # there are none yet
    assert agrees(pool, kernel, 20, 0)
    workers = pool._workers
    assert workers > 0
    assert awake(pool, workers, wanted=False)
    pool.rouse(COMPILER, workers + 1)
    assert pool.awake(workers) == [True] * workers or awake(pool, workers, wanted=False)
    assert agrees(pool, kernel, 20, 1)


PROCESSORS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def places(pool: Pool) -> list[set[int]]:
    """Where each of four workers may run once they have been asked to share a kernel."""
    seen = np.zeros(20, np.int64)
    pool.run(COMPILER, counting(), seen.ctypes.data, 20, 5)
    assert seen.tolist() == [1] * 20
    return [os.sched_getaffinity(thread) for thread in pool._threads]


@pytest.mark.skipif(len(PROCESSORS) < 2, reason="there is no other processor")
def test_workers_run_on_other_processors_than_who_posts(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, here, asked = Pool(), PROCESSORS[0], 0
    monkeypatch.setattr(pool_module, "_processor", lambda: here)
    move = os.sched_setaffinity

    def counted(thread: int, processors: set[int]) -> None:
        nonlocal asked
        asked += 1
        move(thread, processors)

    monkeypatch.setattr(os, "sched_setaffinity", counted)
    for here in PROCESSORS[:2]:
        assert [places(pool) for _ in range(3)] == [[set(PROCESSORS) - {here}] * 4] * 3
    assert asked == 2 * 4  # once for each place
    assert os.sched_getaffinity(0) == set(PROCESSORS)


@pytest.mark.skipif(len(PROCESSORS) < 2, reason="there is no other processor")
def test_workers_run_where_they_are_let(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, first, second = Pool(), *PROCESSORS[:2]
    here = first
    monkeypatch.setattr(pool_module, "_processor", lambda: here)
    places(pool)
    for thread in pool._threads:
        os.sched_setaffinity(thread, {first})  # as a tool does with all threads of a process
    here = second
    assert places(pool) == [{first}] * 4
    here = first
    assert places(pool) == [{first}] * 4  # they have no other
    for thread in pool._threads:
        os.sched_setaffinity(thread, set(PROCESSORS))
    assert places(pool) == [set(PROCESSORS) - {first}] * 4


@pytest.mark.skipif(not PROCESSORS, reason="threads cannot be moved")
@pytest.mark.parametrize("refused", ["sched_getaffinity", "sched_setaffinity"])
def test_workers_that_cannot_be_moved_stay(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    pool, asked, seen = Pool(), 0, np.zeros(20, np.int64)

    def refuse(*_: object) -> None:
        nonlocal asked
        asked += 1
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, refused, refuse)
    monkeypatch.setattr(pool_module, "_processor", lambda: PROCESSORS[0])
    for _ in range(3):
        pool.run(COMPILER, counting(), seen.ctypes.data, 20, 5)
    assert (seen.tolist(), asked) == ([3] * 20, 1)


def test_each_thread_has_scratch_of_its_own() -> None:
    pool = Pool()
    pool.provide(64)
    assert agrees(pool, counting(), 20, 0)  # there are workers
    first = pool.scratch
    pool.provide(32)
    assert pool.scratch == first
    pool.provide(ROOM)
    kernel = COMPILER.load(OWN, "own")[0]
    seen = np.zeros(40, np.int64)
    for _ in range(10):
        pool.run(COMPILER, kernel, seen.ctypes.data, len(seen), 4)
    assert seen.tolist() == [10] * len(seen)


def test_kernels_need_no_stack_for_scratch() -> None:
    rng = np.random.default_rng(0)
    x, y = (Tensor(rng.integers(-8, 8, (600, 600)).astype(np.float32)).realize() for _ in range(2))
    few = x[:30].clone().realize()
    expected = [(x @ y).numpy(), (few @ y).numpy(), x.softmax(0).numpy()]  # compiled on this thread's stack
    found: list[np.ndarray] = []
    before = threading.stack_size(1 << 18)
    try:
        thread = threading.Thread(
            target=lambda: found.extend([(x @ y).numpy(), (few @ y).numpy(), x.softmax(0).numpy()])
        )
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_one_thread_and_three_give_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    x = Tensor(rng.standard_normal((700, 700)).astype(np.float32))
    y = Tensor(rng.standard_normal(700_001).astype(np.float32))
    with Context(threads=1):
        one = results(x, y)
    with Context(threads=3):
        three = results(x, y)
    assert all(np.array_equal(a, b) for a, b in zip(one, three, strict=True))


def test_sums_and_scatters_are_in_one_order() -> None:
    rng = np.random.default_rng(1)
    tall, wide = (Tensor(rng.random(shape, np.float32)) for shape in ((1 << 18, 8), (3000, 1500)))
    places, rows = Tensor(rng.integers(0, 500, 9000)), Tensor(rng.random((9000, 64), np.float32))
    classes = Tensor(rng.integers(0, 1500, 3000))
    found: list[list[bytes]] = []
    for threads in (1, 2, 3):
        with Context(threads=threads):
            values = [tall.sum(), tall.sum(0), wide.sum(), wide.sum(0), wide.var(), wide.cross_entropy(classes)]
            values.append(Tensor.zeros(500, 64).index_add(0, places, rows))
            found.append([value.numpy().tobytes() for value in values])
    assert found[0] == found[1] == found[2]


def drawn(draw: random.Random, inputs: list[Tensor]) -> list[Tensor]:
    """Some values that are computed from one another, and writes on what they are computed from."""
    square = [*inputs]
    for _ in range(draw.randrange(4, 40)):
        x, y, z = (draw.choice(square) for _ in range(3))
        match draw.randrange(7):
            case 0 | 1:
                square.append(x @ y)
            case 2:
                square.append((x @ y + z).relu() @ z)
            case 3:
                square.append((x * 0.5 + y).tanh())
            case 4:
                square.append(x.softmax(-1) @ y)
            case 5:
                square.append(x.T.contiguous() + y.sum(0))
            case _:
                x[: draw.randrange(1, 64)] = y[0] * 0.25
    return draw.sample(square, draw.randrange(1, len(square)))


def apart(inputs: list[Tensor]) -> list[Tensor]:
    """Values of which none needs another: threads compute them side by side."""
    return [(x @ y).relu() @ x for x, y in itertools.pairwise(inputs)]


def test_plans_of_independent_kernels_give_the_bits_of_one_thread(seed: int) -> None:
    arrays = np.random.default_rng(seed).standard_normal((6, 96, 96)).astype(np.float32) * 0.1
    shared = 0
    for case in range(12):
        found: list[list[bytes]] = []
        for threads in (1, 2, 3, 2):
            with Context(threads=threads):
                inputs = [Tensor(array).realize() for array in arrays]
                values = drawn(random.Random(seed + case), inputs) if case else apart(inputs)
                GlobalCounters.reset()
                values[0].realize(*values[1:], *inputs)
                shared += GlobalCounters.wave_count
                found.append([value.numpy().tobytes() for value in (*values, *inputs)])
        assert found[0] == found[1] == found[2] == found[3]
    assert shared


@pytest.mark.parametrize("columns", [1, 3, 5, 8, 15, 17, 31, 33])
def test_long_sums_down_few_columns_are_right(columns: int) -> None:
    array = np.random.default_rng(0).integers(-4, 5, (200_000, columns)).astype(np.float32)
    assert np.array_equal(Tensor(array).sum(0).numpy(), array.sum(0, dtype=np.float64))


def test_every_chunk_runs_once() -> None:
    assert agrees(Pool(), counting(), 3000, seed=0)


def test_no_work_is_missed_by_workers_that_fall_asleep() -> None:
    pool, kernel, draw = Pool(), counting(), np.random.default_rng(8)
    for pause in draw.uniform(0, 3 * IDLE, 1000):
        until = time.perf_counter() + float(pause)
        while time.perf_counter() < until:
            pass
        assert agrees(pool, kernel, 1, seed=int(pause * 1e9))


def test_a_closed_pool_has_no_worker_in_native_code() -> None:
    pool, kernel = Pool(), counting()
    assert agrees(pool, kernel, 100, seed=9)
    for pause in (0.0, 100 * IDLE):  # awake, then asleep
        time.sleep(pause)
        pool._close()
        assert not pool._inside
        pool = Pool()
        assert agrees(pool, kernel, 100, seed=10)


def test_threads_are_started_once_and_no_more_than_chunks_need() -> None:
    pool, kernel = Pool(), counting()
    seen = np.zeros(MOST, np.int64)
    for chunks, threads, workers in ((1, 4, 0), (3, 1, 0), (2, 4, 1), (64, 4, 3), (3, 2, 3), (64, 4, 3), (4, 64, 3)):
        for _ in range(3):
            pool.run(COMPILER, kernel, seen.ctypes.data, chunks, threads)
            assert pool._workers == workers


def test_kernels_of_several_python_threads_do_not_meet() -> None:
    pool, kernel = Pool(), counting()
    agreed: list[bool] = []
    threads = [threading.Thread(target=lambda k=k: agreed.append(agrees(pool, kernel, 500, k))) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert agreed == [True] * 4


def test_workers_share_a_long_kernel() -> None:
    ran: set[int] = set()
    both = threading.Barrier(2, timeout=30)

    def work(_: int) -> None:
        ran.add(threading.get_ident())
        both.wait()

    kernel = called(work)
    address = ctypes.cast(kernel, ctypes.c_void_p).value
    assert address is not None
    pool = Pool()
    for pause in (0.0, 0.05):  # awake, then asleep
        time.sleep(pause)
        ran.clear()
        pool.run(COMPILER, address, 0, 2, 2)
        assert len(ran) == 2


@pytest.mark.parametrize(("chunks", "threads"), [(64, 2), (7, 2), (8, 3), (5, 5)])
def test_each_thread_has_a_share_and_helps_others_at_their_ends(chunks: int, threads: int) -> None:
    taken: dict[int, list[int]] = {}
    draw = random.Random(chunks)
    delays = [draw.uniform(0, 2e-4) for _ in range(threads)]

    def work(chunk: int) -> None:
        own = taken.setdefault(threading.get_ident(), [])
        own.append(chunk)
        time.sleep(delays[[*taken.values()].index(own)])

    kernel = called(work)
    address = ctypes.cast(kernel, ctypes.c_void_p).value
    assert address is not None
    pool = Pool()
    for _ in range(20):
        taken.clear()
        pool.run(COMPILER, address, 0, chunks, threads)
        assert sorted(chunk for own in taken.values() for chunk in own) == [*range(chunks)]
        untaken = shares(chunks, threads)
        for own in taken.values():
            share = next((s for s in untaken if s and own[0] == s[0]), range(0))
            helped = [chunk for chunk in own if chunk not in share]
            assert own == [chunk for chunk in share if chunk in own] + helped  # its own first, in order
            ends = [[chunk for chunk in helped if chunk in other] for other in untaken]
            assert all(found == sorted(found, reverse=True) for found in ends)


def test_without_more_threads_a_kernel_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        pool = Pool()
        assert agrees(pool, counting(), 10, seed=6)
    assert agrees(pool, counting(), 10, seed=7)


@pytest.mark.parametrize("error", [OSError(12, "Cannot allocate memory"), MemoryError()])
def test_without_memory_for_more_threads_a_kernel_runs_with_fewer(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    left, give = 1, pool_module.anonymous

    def scarce(size: int) -> tuple[mmap.mmap, int]:
        nonlocal left
        if left == 0:
            raise error
        left -= 1
        return give(size)

    pool, seen = Pool(), np.zeros(20, np.int64)
    with monkeypatch.context() as patch:
        patch.setattr(pool_module, "anonymous", scarce)
        for workers in (1, 1):
            pool.run(COMPILER, counting(), seen.ctypes.data, 20, 5)
            assert pool._workers == workers
        left = 1
        pool.run(COMPILER, counting(), seen.ctypes.data, 20, 5)
        assert pool._workers == 2
    pool.run(COMPILER, counting(), seen.ctypes.data, 20, 5)
    assert (pool._workers, seen.tolist()) == (4, [4] * 20)


def test_an_interrupt_while_a_worker_starts_leaves_no_two_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, start, seen = Pool(), threading.Thread.start, np.zeros(40, np.int64)
    pool.provide(ROOM)
    before = threading.active_count()

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    kernel = COMPILER.load(OWN, "own")[0]
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        for started in (1, 2):
            with pytest.raises(KeyboardInterrupt):
                pool.run(COMPILER, kernel, seen.ctypes.data, len(seen), 4)
            assert threading.active_count() == before + started
    for _ in range(10):
        pool.run(COMPILER, kernel, seen.ctypes.data, len(seen), 4)
    assert threading.active_count() == before + 3
    assert seen.tolist() == [10] * len(seen)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_after_fork_starts_its_own_threads() -> None:
    pool, kernel = Pool(), counting()
    assert agrees(pool, kernel, 10, seed=1)
    child = os.fork()
    if child == 0:
        os._exit(0 if agrees(pool, kernel, 10, seed=2) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert agrees(pool, kernel, 10, seed=3)


@pytest.fixture
def alarms() -> Iterator[None]:
    """Alarms that interrupt, as Ctrl-C does."""
    if not hasattr(signal, "setitimer"):
        pytest.skip("there are no timers here")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.signal(signal.SIGALRM, old)


@pytest.mark.usefixtures("alarms")
def test_an_interrupt_waits_for_the_chunks() -> None:
    pool, kernel = Pool(), COMPILER.load(SLOW, "slow")[0]
    assert agrees(pool, counting(), 10, seed=4)
    for delay in (0.0001, 0.001, 0.01, 0.03):
        seen = np.zeros(MOST, np.int64)
        with pytest.raises(KeyboardInterrupt):
            forever(partial(pool.run, COMPILER, kernel, seen.ctypes.data, 4, 2), delay)
        assert (seen[:4] % TURNS == 0).all()
        assert len(set(seen[:4].tolist())) == 1
        assert agrees(pool, counting(), 10, seed=5)


def test_an_interrupt_after_any_call_leaves_the_pool_to_others() -> None:
    pool, seen, code = Pool(), np.zeros(4, np.int64), Pool.run_all.__code__
    after = {b.offset for a, b in itertools.pairwise(dis.get_instructions(code)) if a.opname.startswith("CALL")}
    left = 0  # calls until the interrupt: the interpreter asks for signals after calls

    def watch(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        nonlocal left
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in after:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return watch

    old, interrupts = sys.gettrace(), 0
    for number in range(1, len(after)):
        left = number
        sys.settrace(watch)
        try:
            pool.run(COMPILER, counting(), seen.ctypes.data, 4, 2)
        except KeyboardInterrupt:
            interrupts += 1
        finally:
            sys.settrace(old)
        assert not pool._poster
    assert interrupts > 3
    assert agrees(pool, counting(), 10, seed=13)


@pytest.mark.usefixtures("alarms")
def test_an_interrupt_waits_for_all_jobs_and_repeats_none() -> None:
    pool, kernel = Pool(), COMPILER.load(SLOW, "slow")[0]
    assert agrees(pool, counting(), 10, seed=12)
    counts = 4, 1, 7, 2  # the job of one chunk runs on the thread that posts
    begins = [0, *itertools.accumulate(counts)]
    for delay in (0.0001, 0.001, 0.005, 0.01):
        seen = np.zeros(MOST, np.int64)
        words = [word for begin, n in zip(begins, counts, strict=False) for word in (seen[begin:].ctypes.data, n)]
        with pytest.raises(KeyboardInterrupt):
            forever(partial(pool.run_all, COMPILER, kernel, array("Q", words), 3), delay)
        ran = seen[: sum(counts)]
        assert (ran % TURNS == 0).all()
        assert len(set(ran.tolist())) == 1


def test_each_job_begins_once_the_one_before_is_done() -> None:
    order: list[int] = []
    kernel = SIGNATURE(lambda slots, begin, end, _: order.extend([slots] * (end - begin)) and None)
    address = ctypes.cast(kernel, ctypes.c_void_p).value
    assert address is not None
    pool, counts = Pool(), [1, 5, 3, 1, 64, 2]
    for threads in (1, 2, 5):
        order.clear()
        pool.run_all(
            COMPILER, address, array("Q", [word for job, n in enumerate(counts, 1) for word in (job, n)]), threads
        )
        assert order == [job for job, n in enumerate(counts, 1) for _ in range(n)]


def ends_well(program: str) -> bool:
    """Whether a process of its own that runs a program ends without fault, each of three times."""
    command = [sys.executable, "-c", program]
    return all(subprocess.run(command, timeout=60, check=False).returncode == 0 for _ in range(3))


def test_the_interpreter_ends_while_workers_are_awake() -> None:
    program = (
        "from intaglio import Context, GlobalCounters, Tensor\n"
        "with Context(threads=3):\n"
        "    x = Tensor.ones(1 << 20).realize()\n"
        "    (x * 2 + 1).realize()\n"
    )
    assert ends_well(program)


def test_the_interpreter_ends_while_a_worker_gets_no_processor() -> None:
    program = (
        "from intaglio import Context, Tensor\n"
        "from intaglio.runtime import pool\n"
        "with Context(threads=3):\n"
        "    x = Tensor.ones(1 << 20).realize()\n"
        "    (x * 2 + 1).realize()\n"
        "    pool.LEAVE = 0.0\n"
        f"    pool.pool._state.habits[{LOOKS}] = 1 << 40  # as if it were kept in native code\n"
        "    (x * 3 + 1).realize()\n"
        "    assert any(pool.pool.awake(2))\n"
    )
    assert ends_well(program)
