"""The number of threads changes no bit."""

from __future__ import annotations

import os

import numpy as np

from intaglio import Context, Tensor
from intaglio.runtime.pool import Pool


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


def test_one_thread_and_three_give_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    x = Tensor(rng.standard_normal((700, 700)).astype(np.float32))
    y = Tensor(rng.standard_normal(700_001).astype(np.float32))
    with Context(threads=1):
        one = results(x, y)
    with Context(threads=3):
        three = results(x, y)
    assert all(np.array_equal(a, b) for a, b in zip(one, three, strict=True))


def test_every_chunk_runs_once() -> None:
    pool = Pool()
    for _ in range(200):
        seen: list[int] = []
        pool.run(seen.append, 37, 4)
        assert sorted(seen) == list(range(37))


def test_a_child_after_fork_starts_its_own_threads() -> None:
    pool = Pool()
    pool.run(lambda _: None, 8, 3)
    child = os.fork()
    if child == 0:
        seen: list[int] = []
        pool.run(seen.append, 8, 3)
        os._exit(0 if sorted(seen) == list(range(8)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
