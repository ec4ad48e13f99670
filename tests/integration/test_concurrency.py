"""Threads that write, forget and collect at once, on devices of their own and across: right values, and an end."""

from __future__ import annotations

import gc
import queue
import random
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Context, Tensor, dtypes
from tests.property.alias_programs import Programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAMS = 60  # random programs of each thread
LIMIT = 120.0  # seconds: far more than it takes, far less than for ever


@pytest.fixture
def eager_collection() -> Iterator[None]:
    """The collector runs after every few objects that are made."""
    old = gc.get_threshold()
    gc.set_threshold(20, 2, 2)
    yield
    gc.set_threshold(*old)


def at_once(*works: Callable[[], None]) -> None:
    """Run each in a thread, started together; the first failure of any is this one's."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(works))

    def guarded(work: Callable[[], None]) -> None:
        start.wait()
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads), "deadlock"


def random_programs(device: str, seed: int) -> None:
    """Random programs of views, writes and `del`, equal to NumPy, on a device."""
    draw = random.Random(seed)
    with Context(device=device):
        for _ in range(PROGRAMS):
            Programs(draw).run()


@pytest.mark.usefixtures("eager_collection")
@pytest.mark.parametrize("devices", [("CPU", "CPU:1"), ("CPU", "PYTHON"), ("CPU", "CPU")])
def test_random_programs_on_two_devices_at_once(devices: tuple[str, str], seed: int) -> None:
    at_once(*[lambda d=d, k=k: random_programs(d, seed + k) for k, d in enumerate(devices)])


@pytest.mark.usefixtures("eager_collection")
def test_handles_made_in_one_thread_are_written_and_forgotten_in_others(seed: int) -> None:
    shared: queue.Queue[Tensor] = queue.Queue()
    rounds = 60

    def make() -> None:
        for k in range(rounds):
            with Context(device=("CPU", "CPU:1")[k % 2]):
                base = Tensor.zeros(32, dtype=dtypes.int64) + k
            base[:16] += 1
            shared.put(base[8:24])
            del base

    def use(own: int) -> None:
        draw = random.Random(own)
        for _ in range(rounds // 2):
            view = shared.get(timeout=LIMIT / 4)
            view[0] = -1
            moved = (view * 2).to(draw.choice(("CPU", "CPU:1")))
            if draw.random() < 0.5:
                del view
            got = moved.numpy()
            k = got[-1] // 2
            assert np.array_equal(got, [-2, *[2 * (k + 1)] * 7, *[2 * k] * 8])

    at_once(make, lambda: use(seed), lambda: use(seed + 1))


@pytest.mark.usefixtures("eager_collection")
def test_each_half_of_a_tensor_takes_the_writes_of_its_thread() -> None:
    whole, times = Tensor.zeros(64, dtype=dtypes.int64), 200

    def add(half: Tensor, amount: int) -> None:
        for k in range(times):
            half += amount
            if k % 50 == 0:
                assert (half.numpy() == (k + 1) * amount).all()

    at_once(lambda: add(whole[:32], 1), lambda: add(whole[32:], 3))
    assert whole.tolist() == [times] * 32 + [3 * times] * 32
