"""Threads that share the chunks of one kernel: native code runs without the interpreter's lock."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue
from typing import Final

Work = Callable[[int], None]


class _Job:
    """The chunks of one kernel: each worker takes the next until none is left."""

    def __init__(self, work: Work, chunks: int, helpers: int) -> None:
        self._work: Final = work
        self._chunks: Final = chunks
        self._next: Final = itertools.count().__next__
        self._left: int = helpers
        self._lock: Final = threading.Lock()
        self._done: Final = threading.Lock()
        self._done.acquire()

    def take(self) -> None:
        """Run chunks until none is left."""
        while (chunk := self._next()) < self._chunks:
            self._work(chunk)

    def help(self) -> None:
        """Run chunks as a helper, then say so."""
        try:
            self.take()
        finally:
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._done.release()

    def wait(self) -> None:
        """Return when every helper has stopped."""
        self._done.acquire()


class Pool:
    """Worker threads, started at the first job. A child after fork starts its own."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Job] = SimpleQueue()
        self._workers: int = 0
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begin anew: the parent's threads are not here."""
        self._queue = SimpleQueue()
        self._workers = 0

    def run(self, work: Work, chunks: int, threads: int) -> None:
        """Run `work(chunk)` for every chunk, on up to `threads` threads with this one."""
        helpers = min(threads, chunks) - 1
        if helpers < 1:
            for chunk in range(chunks):
                work(chunk)
            return
        while self._workers < helpers:
            self._workers += 1
            threading.Thread(target=self._serve, args=(self._queue,), name="intaglio", daemon=True).start()
        job = _Job(work, chunks, helpers)
        for _ in range(helpers):
            self._queue.put(job)
        job.take()
        job.wait()

    @staticmethod
    def _serve(queue: SimpleQueue[_Job]) -> None:
        """One worker."""
        while True:
            queue.get().help()


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
