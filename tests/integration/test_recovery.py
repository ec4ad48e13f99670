"""A failure in the middle leaves every value as it was, and the retry is right."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Context, Tensor
from intaglio.core.errors import DeviceError
from intaglio.engine import form
from intaglio.engine.devices import device_of

if TYPE_CHECKING:
    from intaglio.schedule.kernels import PlannedKernel


def test_a_refused_allocation_loses_nothing() -> None:
    t = Tensor(np.arange(1000, dtype=np.float32)).realize()
    t += 1
    other = t * 2
    allocator = device_of("CPU").allocator
    allocator.collect()
    with Context(memory_bytes=allocator.used + 100), pytest.raises(DeviceError):
        other.numpy()
    assert np.array_equal(t.numpy(), np.arange(1000) + 1)
    assert np.array_equal(other.numpy(), (np.arange(1000) + 1) * 2)


def test_a_failing_compiler_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Tensor(np.arange(37, dtype=np.int32)).realize()
    t *= 3
    t[::5] += 11
    with monkeypatch.context() as patch:

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("intaglio.engine.realize._provide", interrupt)
        with pytest.raises(KeyboardInterrupt):
            t.numpy()
    expected = np.arange(37, dtype=np.int32) * 3
    expected[::5] += 11
    assert np.array_equal(t.numpy(), expected)


def test_an_index_out_of_range_drops_that_write_alone() -> None:
    t = Tensor([1, 2, 3, 4])
    t[0] = 10
    t[Tensor([2, 5]) + 0] = 7
    t[1] = 20
    with pytest.raises(
        IndexError, match=r"setitem: 5 is out of range for axis 0 of size 4; indexed at .*test_recovery"
    ):
        t.tolist()
    assert t.tolist() == [10, 20, 3, 4]


def test_a_read_at_an_index_out_of_range_fails_every_time() -> None:
    y = Tensor(np.arange(5.0))[Tensor([1, 7]) + 0]
    for _ in range(2):
        with pytest.raises(IndexError, match="7 is out of range"):
            y.tolist()
    with pytest.raises(IndexError, match="7 is out of range"):
        (y + 1).sum().item()


def test_an_interrupt_between_two_compilations_leaves_the_plan_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def program() -> Tensor:
        t = Tensor(np.arange(1009.0)).realize()
        s = t.sum()
        t += 1
        return t.cumsum(0) + s

    load, calls = form.load, itertools.count()

    def interrupted(kernel: PlannedKernel) -> object:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return load(kernel)

    first = program()
    with monkeypatch.context() as patch:
        patch.setattr(form, "load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            first.numpy()
    expected = np.cumsum(np.arange(1009.0) + 1) + np.arange(1009.0).sum()
    assert np.array_equal(first.numpy(), expected)
    assert np.array_equal(program().numpy(), expected)
