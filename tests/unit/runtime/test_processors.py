"""How many threads a process may keep busy: by its affinity, and by the limit of its control group."""

from __future__ import annotations

import builtins
import io
import os
from typing import Any

import pytest

from intaglio.runtime.pool import process_threads


@pytest.mark.parametrize(
    ("limit", "processors", "threads"),
    [
        ("max 100000", 4, 4),
        ("200000 100000", 4, 2),
        ("150000 100000", 4, 2),
        ("50000 100000", 4, 1),
        ("800000 100000", 4, 4),
        ("none of it", 4, 4),
        (None, 3, 3),
    ],
)
def test_threads_follow_from_affinity_and_the_limit(
    monkeypatch: pytest.MonkeyPatch, limit: str | None, processors: int, threads: int
) -> None:
    real = builtins.open

    def opened(path: Any, *rest: Any, **more: Any) -> Any:
        if path != "/sys/fs/cgroup/cpu.max":
            return real(path, *rest, **more)
        if limit is None:
            raise FileNotFoundError(path)
        return io.StringIO(limit)

    monkeypatch.setattr(builtins, "open", opened)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)), raising=False)
    assert process_threads.__wrapped__() == threads
