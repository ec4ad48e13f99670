"""The native half of the pool: shares, and what a worker does with the jobs that it sees."""

from __future__ import annotations

import ctypes
import threading
import time

import numpy as np
import pytest

from intaglio.runtime.compiler import Compiler
from intaglio.runtime.taking import (
    AWAKE,
    CLOSED,
    ENDS,
    GATE,
    HELPERS,
    JOB,
    KERNEL,
    LOOKS,
    NUMBER,
    SHARE,
    SIGNATURE,
    SLOTS,
    YIELD,
    State,
    closed_gate,
    native,
    shares,
)

COMPILER = Compiler(lambda: None)
COUNT = """
define void @count_one(ptr %seen, i64 %begin, i64 %end) {
  %place = getelementptr i64, ptr %seen, i64 %begin
  %before = atomicrmw add ptr %place, i64 1 seq_cst
  ret void
}
"""


@pytest.mark.parametrize("threads", range(1, 20))
def test_shares_are_neighbours_of_which_none_is_much_larger(threads: int) -> None:
    for chunks in (0, 1, 7, 64):
        found = shares(chunks, threads)
        assert [chunk for share in found for chunk in share] == [*range(chunks)]
        sizes = [*map(len, found)]
        assert len(sizes) == threads
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] - sizes[-1] <= 1


class Worker:
    """Worker 2 of a state whose jobs the test posts, share by share."""

    def __init__(self, *, posts: bool = False) -> None:
        """Start it. `posts`: whether there are jobs for others as long as it looks for one."""
        self.state, self.code, self.seen = State(), native(COMPILER), np.zeros(8, np.int64)
        self.state.habits[LOOKS] = 1 << 14
        for thread in (1, 2):
            self.state.lines[thread][GATE] = closed_gate()
        job = self.state.lines[JOB]
        job[KERNEL], job[SLOTS] = COMPILER.load(COUNT, "count_one")[0], self.seen.ctypes.data
        self.give = ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: self.post(1, range(3), 0) or 0)
        if posts:
            self.state.habits[YIELD] = ctypes.cast(self.give, ctypes.c_void_p).value or 0
        self.thread = threading.Thread(target=self.code.serve, args=(self.state.address, 2), daemon=True)
        self.thread.start()

    def post(self, helpers: int, share: range, thread: int) -> None:
        """Post a job of which all chunks that are left are in one share."""
        job = self.state.lines[JOB]
        job[HELPERS] = helpers
        self.state.lines[thread][SHARE] = share.stop * ENDS + share.start
        job[NUMBER] += 1
        self.code.wake(self.state.address, helpers)

    def ran(self, *counts: int) -> bool:
        """Whether chunks have run so often, before long."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if self.seen.tolist() == [*counts, *[0] * (8 - len(counts))]:
                return True
            time.sleep(1e-4)
        return False

    def sleeps(self) -> bool:
        """Whether it falls asleep, before long."""
        deadline = time.monotonic() + 10
        while self.state.lines[2][AWAKE] and time.monotonic() < deadline:
            time.sleep(1e-4)
        return not self.state.lines[2][AWAKE]

    def leaves(self) -> bool:
        """Whether it ends."""
        self.state.habits[CLOSED] = 1
        self.code.wake(self.state.address, 2)
        self.thread.join(20)
        return not self.thread.is_alive()


def test_a_worker_that_looks_for_jobs_helps_where_its_own_share_is_taken() -> None:
    worker = Worker()
    worker.post(2, range(2), 2)
    assert worker.ran(1, 1)
    worker.post(2, range(1, 4), 0)
    assert worker.ran(1, 2, 1, 1)
    worker.post(2, range(5), 1)
    assert worker.ran(2, 3, 2, 2, 1)
    assert worker.leaves()


def test_a_worker_takes_no_chunk_of_jobs_for_fewer_threads_and_sleeps() -> None:
    worker = Worker(posts=True)
    worker.post(2, range(1), 2)
    assert worker.ran(1)
    assert worker.sleeps()
    assert worker.seen.tolist() == [1, *[0] * 7]
    worker.post(2, range(3), 0)
    assert worker.ran(2, 1, 1)
    assert worker.leaves()


def test_a_worker_that_ends_a_chunk_takes_none_of_a_job_for_fewer_threads() -> None:
    worker, ran = Worker(), list[int]()

    def work(_: int, begin: int, __: int, ___: int) -> None:
        ran.append(begin)
        if len(ran) == 1:
            worker.post(1, range(3), 1)

    kernel = SIGNATURE(work)
    worker.state.lines[JOB][KERNEL] = ctypes.cast(kernel, ctypes.c_void_p).value or 0
    worker.post(2, range(5, 6), 2)
    assert worker.sleeps()
    assert ran == [5]
    assert worker.leaves()
