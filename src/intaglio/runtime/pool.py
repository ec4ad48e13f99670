"""Threads that share the chunks of one kernel, and the processors that they run on.

Workers are kept off the processor of the thread that posts. Left to the system, one that wakes may be put there and
wait for milliseconds, while another processor sleeps: so it was on virtual machines.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from array import array
from functools import partial
from typing import TYPE_CHECKING, Final

from intaglio.runtime.pages import anonymous
from intaglio.runtime.taking import (
    AWAKE,
    CLOSED,
    EACH,
    GATE,
    LOOKS,
    SCRATCH,
    SIGNATURE,
    WORKERS,
    Native,
    State,
    closed_gate,
    native,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap

    from intaglio.runtime.compiler import Compiler

PAGES: Final = 1 << 16  # bytes of scratch are a multiple of
IDLE: Final = 2e-4  # seconds that a worker looks before it sleeps: longer than Python takes between two kernels
LEAVE: Final = 10.0  # seconds that the end waits for workers, who leave at once if the system lets them run
ANY: Final = -1  # no processor in particular


def _find_processor() -> Callable[[], int]:
    """The function that tells the processor of the thread that calls it: `ANY` where threads can be kept off none."""
    found = getattr(ctypes.PyDLL(None), "sched_getcpu", None) if hasattr(os, "sched_setaffinity") else None
    return found or (lambda: ANY)


_processor: Final = _find_processor()

# A sleep of no time takes the timer's slack, which is longer than most chunks.
_let_others_run: Final = getattr(os, "sched_yield", partial(time.sleep, 0))


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
        self._state: State = State()
        self._state.lines[0][SCRATCH] = self.scratch  # a child has a copy
        self._others: list[mmap] = []  # the scratch of workers
        self._native: Native | None = None  # once there are workers
        self._workers: int = 0
        self._threads: list[int] = []  # the system's numbers of workers
        self._may: set[int] = set()  # the processors on which they may run,
        self._let: set[int] = set()  # those on which they are let, without
        self._kept_off: int = ANY  # that of the thread that posts
        self._inside: set[int] = set()  # workers that are in native code, or about to be
        self._job: int = 0
        self._poster: dict[int, object] = {}  # under 0, whoever posts: one call looks for another, and takes its place

    def run(self, compiler: Compiler, kernel: int, slots: int, chunks: int, threads: int) -> None:
        """Run a kernel's chunks on up to `threads` threads with this one; alone, where another kernel is being run."""
        self.run_all(compiler, kernel, array("Q", (slots, chunks)), min(threads, chunks))

    def run_all(self, compiler: Compiler, kernel: int, jobs: array[int], threads: int) -> None:
        """Run jobs of one kernel in order, by one native call if no thread has to be waited for.

        Args:
            jobs: For each its arguments' address, and how many chunks it has.
            threads: How many share the chunks of a job at most.
        """
        helpers, poster, me = threads - 1, self._poster, object()
        try:
            if helpers > 0 and poster.setdefault(0, me) is me:
                if self._workers < helpers:
                    helpers = self._start(compiler, min(helpers, WORKERS))
                self._keep_off()
                self._share(self._native or native(compiler), kernel, jobs, helpers)
                return
        finally:
            if 0 in poster and poster[0] is me:  # no call between, in which an interrupt might be raised
                del poster[0]
        call = SIGNATURE(kernel)
        for place in range(0, len(jobs), EACH):
            call(jobs[place], 0, jobs[place + 1], self.scratch)

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
            self._state.lines[thread][SCRATCH] = address
        self._others = [pages for pages, _ in others]
        self._room = room

    def rouse(self, compiler: Compiler, threads: int) -> None:
        """Get ready for a kernel of so many threads that comes soon: a worker that sleeps takes as long to wake."""
        code, helpers = native(compiler), min(threads - 1, self._workers)
        if helpers > 0 and not all(self.awake(helpers)):
            code.wake(self._state.address, helpers)

    def awake(self, workers: int) -> list[bool]:
        """Which of the first workers are awake."""
        return [line[AWAKE] != 0 for line in self._state.lines[1 : 1 + workers]]

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

    def _share(self, code: Native, kernel: int, jobs: array[int], helpers: int) -> None:
        """For each job, post it, wake the workers that sleep, take chunks, and go on when the last one is done."""
        state, box = self._state.address, self._state.inbox
        first, count = self._job + 1, len(jobs) // EACH
        self._job += count
        interrupt: BaseException | None = None
        posted, rest = False, 1
        while rest:  # whatever is raised here (Ctrl-C), chunks may be running still: memory must outlive them
            try:
                if not posted:
                    box[0], box[1], box[2], box[3] = kernel, jobs.buffer_info()[0], count, helpers
                    box[4], box[5] = first, 0
                    posted = True
                rest = code.start(state)  # goes on where it was, and posts each job once
                while rest:
                    _let_others_run()
                    rest = code.start(state)
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _start(self, compiler: Compiler, helpers: int) -> int:
        """Have as many workers as are wanted, or as can be had; gives how many.

        A worker is counted before it starts: an interrupt that comes meanwhile leaves no two of one line. If it never
        started, others take its share.
        """
        code, self._kept_off = native(compiler), ANY
        if self._native is None:
            self._state.habits[LOOKS] = int(IDLE / code.seconds_of_look(self._state))
            self._native = code
        try:
            while self._workers < helpers:
                number = 1 + self._workers
                line = self._state.lines[number]
                line[GATE] = closed_gate()
                pages, line[SCRATCH] = anonymous(max(self._room, PAGES))
                self._others.append(pages)
                arguments = code, self._state.address, number, self._inside
                thread = threading.Thread(target=_serve, args=arguments, name="intaglio", daemon=True)
                self._workers = number
                self._begin(thread)
        except (RuntimeError, OSError, MemoryError):  # the system, or an interpreter that ends, gives no more
            return self._workers
        return helpers

    def _begin(self, thread: threading.Thread) -> None:
        """Start the last worker, and note the system's number of it; without a thread for it, count it no more.

        Raises: RuntimeError, OSError or MemoryError if there is none.
        """
        try:
            thread.start()
        except (RuntimeError, OSError, MemoryError):
            self._workers -= 1
            raise
        self._threads += [] if thread.native_id is None else [thread.native_id]

    def _close(self) -> None:
        """Let no worker be in native code when the interpreter ends; one without a processor finds its pages still."""
        deadline = time.monotonic() + LEAVE
        while self._poster.setdefault(0, self) is not self and time.monotonic() < deadline:
            time.sleep(1e-4)  # what is run from now on is run alone
        self._state.habits[CLOSED] = 1
        self._threads = []  # their numbers may soon be those of others
        if self._native is not None and self._workers:
            self._native.wake(self._state.address, self._workers)
        deadline = time.monotonic() + LEAVE
        while self._inside and time.monotonic() < deadline:
            time.sleep(1e-4)


def _serve(code: Native, state: int, thread: int, inside: set[int]) -> None:
    """One worker. `inside`: those that are in native code."""
    inside.add(thread)
    code.serve(state, thread)  # asks whether the pool is closed: `Pool._close` waits for who is inside
    inside.discard(thread)


pool: Final = Pool()
