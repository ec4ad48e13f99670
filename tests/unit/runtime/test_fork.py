"""A child after fork has memory and code of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Context, Tensor
from intaglio.engine import realize
from intaglio.engine.devices import device_of
from intaglio.runtime import compiler

if TYPE_CHECKING:
    from collections.abc import Callable


def in_child(work: Callable[[], bool]) -> bool:
    """Whether some work in a child process gives true."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_childs_writes_and_kernels_are_its_own() -> None:
    t = Tensor(np.arange(100_000, dtype=np.float32)).realize()

    def work() -> bool:
        t[0] = 42
        return t[0].item() == 42 and (t * 3.5 - 7)[2].item() == 0.0

    assert in_child(work)
    assert t[0].item() == 0
    assert (t * 2.25 + 11)[4].item() == 20.0
    assert ((t - 3) * (t + 5))[5].item() == 20.0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_has_scratch_of_its_own() -> None:
    x = Tensor(np.arange(360_000, dtype=np.float32).reshape(600, 600) % 7).realize()
    with Context(threads=3):
        expected = (x @ x).numpy()
        assert in_child(lambda: np.array_equal((x @ x).numpy(), expected))
        assert np.array_equal((x @ x).numpy(), expected)


def alone(work: Callable[[], bool]) -> bool:
    """Whether some work in a child gives true, within a while."""

    def bounded() -> bool:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        return work()

    return in_child(bounded)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_a_process_whose_threads_run_kernels_does_not_hang() -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def compute() -> None:
        turn = 0
        try:
            while not stop.is_set():
                turn += 1
                t = Tensor.zeros(3 + turn % 50).realize()  # kernels that are new, and a large one in chunks
                t[1] = turn
                assert (t + 1).sum().item() == turn + 3 + turn % 50
                assert (Tensor.ones(300_000) * turn)[7].item() == turn
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(12):
            assert alone(lambda n=number: (Tensor.arange(n + 2) * 3).sum().item() == 3 * (n + 1) * (n + 2) // 2)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("name", ["engine", "device", "compiler", "allocator"])
def test_a_child_is_born_without_locks(name: str) -> None:
    Tensor([1.0]).realize()
    device = device_of("CPU")
    lock = {
        "engine": realize.lock,
        "device": device._lock,
        "compiler": compiler._lock,
        "allocator": device.allocator._lock,
    }[name]
    taken = threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            time.sleep(0.2)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    assert alone(lambda: (Tensor([1.0, 2.0]) * 3 + 0.125).tolist() == [3.125, 6.125])
    thread.join()
    assert (Tensor([1.0, 2.0]) * 5).tolist() == [5, 10]
