"""Running a plan: failures and interrupts leave every write applied once or not at all."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.trace import GlobalCounters
from intaglio.engine.devices import device_of


def test_an_interrupt_while_kernels_run_is_delivered_after_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Tensor([1.0, 2.0])
    t += 1
    run = device_of("CPU").run

    def interrupted(*arguments: Any) -> None:
        run(*arguments)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(device_of("CPU"), "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        t.realize()
    monkeypatch.undo()
    assert t.tolist() == [2.0, 3.0]


class LateError(Exception):
    """What a handler of a signal raises."""


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="there are no such signals here")
@pytest.mark.parametrize("names", [["SIGALRM"], ["SIGTERM"], ["SIGUSR1", "SIGINT"], ["SIGINT", "SIGALRM", "SIGHUP"]])
def test_so_is_what_handlers_of_other_signals_raise(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    t = Tensor([1.0, 2.0])
    t += 1
    called: list[int] = []

    def late(number: int, frame: object) -> None:
        called.append(number)
        raise LateError

    numbers = [getattr(signal, name) for name in names]
    before = {number: signal.signal(number, late) for number in numbers}
    run = device_of("CPU").run

    def interrupted(*arguments: Any) -> None:
        run(*arguments)
        for number in numbers:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(device_of("CPU"), "run", interrupted)
    try:
        with pytest.raises(LateError):
            t.realize()
        assert {number: signal.getsignal(number) for number in numbers} == dict.fromkeys(numbers, late)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    monkeypatch.undo()
    assert sorted(called) == sorted(numbers)
    assert t.tolist() == [2.0, 3.0]


def test_an_interrupt_while_postponed_kernels_run_does_not_run_them_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Tensor([1.0, 2.0])
    t += 1
    t.kernelize()
    run = device_of("CPU").run

    def interrupted(*arguments: Any) -> None:
        run(*arguments)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(device_of("CPU"), "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        t.realize()
    monkeypatch.undo()
    assert t.tolist() == [2.0, 3.0]


def test_a_refused_allocation_leaves_the_write_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Tensor([1.0, 2.0, 3.0])
    t[1:] = t[:-1] * 2 + t.sum()
    monkeypatch.setattr(
        device_of("CPU"), "allocate_all", lambda sizes, settings: (_ for _ in ()).throw(MemoryError(sizes))
    )
    with pytest.raises(MemoryError):
        t.realize()
    monkeypatch.undo()
    GlobalCounters.reset()
    assert t.tolist() == [1.0, 8.0, 10.0]
    assert GlobalCounters.launch_count == 1


def test_a_kernel_that_does_not_compile_leaves_the_write_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Tensor([1.0, 2.0, 3.0])
    t += 5

    def refuse(ast: object, size_slot: int | None) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(device_of("CPU"), "load", refuse)
    with pytest.raises(RuntimeError, match="no compiler"):
        t.realize()
    monkeypatch.undo()
    assert t.tolist() == [6.0, 7.0, 8.0]


def test_values_between_the_kernels_of_two_devices_come_and_go() -> None:
    numbers = np.arange(300 * 300, dtype=np.float32).reshape(300, 300) % 7
    x = Tensor(numbers).realize()
    total = numbers @ numbers.T
    expected = ((total / total.max(1, keepdims=True)).sum(0) * 2 + 1).astype(np.float32)
    before = GlobalCounters.mem_used
    for _ in range(3):
        y = x @ x.T
        z = ((y / y.max(1, keepdim=True)).sum(0) * 2).to("PYTHON") + 1
        np.testing.assert_allclose(z.to("CPU").numpy(), expected, rtol=1e-5)
        del y, z
    device_of("CPU").allocator.collect()
    device_of("PYTHON").allocator.collect()
    assert GlobalCounters.mem_used <= before  # what other tests left may go meanwhile


def test_one_value_of_two_tensors_may_be_postponed_by_one() -> None:
    x = Tensor(np.ones(3, np.float32)).realize()
    a, b = x + x, x + x
    b.kernelize()
    assert a.tolist() == [2.0, 2.0, 2.0]
    assert b.numpy().tolist() == [2.0, 2.0, 2.0]
