"""Exact counts of searches: once for each kernel, none without BEAM, none for what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from intaglio import Context, Tensor
from intaglio.core.trace import GlobalCounters
from intaglio.engine import tune
from tests.unit.engine.test_tune import Fake

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def program(x: Tensor) -> list[np.ndarray]:
    """Three kernels: one by itself, two of one structure."""
    return [(x @ x).numpy(), (x * 3 + 7).numpy(), (x * 5 + 9).numpy()]


def counts() -> tuple[int, int, int]:
    """(kernels, launches, searches)."""
    return GlobalCounters.kernel_count, GlobalCounters.launch_count, GlobalCounters.search_count


def test_each_kernel_is_searched_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tune, "_chosen", type(tune._chosen)())
    fake = Fake(lambda _: 0.9)
    monkeypatch.setattr(tune, "_process", fake)
    x = Tensor(np.ones((96, 96), np.float32)).realize()
    GlobalCounters.reset()
    expected = program(x)
    plain = counts()
    assert plain == (3, 3, 0)
    with Context(BEAM=1, cache_dir=str(tmp_path)):
        for searches in (2, 0):
            GlobalCounters.reset()
            assert all(np.array_equal(a, b) for a, b in zip(program(x), expected, strict=True))
            assert counts() == (*plain[:2], searches)
    assert fake.jobs == 2
    GlobalCounters.reset()
    program(x)
    assert (*counts(), GlobalCounters.compile_count, GlobalCounters.trial_count) == (*plain, 0, 0)
