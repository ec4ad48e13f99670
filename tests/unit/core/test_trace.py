"""Counters, targets and the user's line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from intaglio.core.site import user_site
from intaglio.core.target import Target
from intaglio.core.trace import GlobalCounters, MatchTable

if TYPE_CHECKING:
    import pytest


def test_reset_zeroes_the_counts_but_not_the_memory_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = ("kernel_count", "launch_count", "compile_count", "global_ops", "global_mem", "table_bytes")
    for name in (*counts, "compile_seconds", "run_seconds"):
        monkeypatch.setattr(GlobalCounters, name, 5)
    monkeypatch.setattr(GlobalCounters, "mem_used", 100)
    monkeypatch.setattr(GlobalCounters, "peak", 900)
    GlobalCounters.reset()
    assert [getattr(GlobalCounters, name) for name in counts] == [0] * 6
    assert (GlobalCounters.mem_used, GlobalCounters.peak) == (100, 100)
    assert GlobalCounters.compile_seconds == GlobalCounters.run_seconds == 0.0


def test_the_counters_show_their_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GlobalCounters, "kernel_count", 5)
    monkeypatch.setattr(GlobalCounters, "run_seconds", 0.25)
    shown = repr(GlobalCounters)
    assert shown.startswith("GlobalCounters(compile_count=")
    assert ", kernel_count=5, " in shown
    assert ", run_seconds=0.25, " in shown
    assert all(f"{name}=" in shown for name in GlobalCounters.__slots__)


def test_the_statistics_of_a_rule_are_made_once() -> None:
    table = MatchTable()
    table.of("integers", "merge").tries += 2
    table.of("integers", "merge").hits += 1
    assert [(k, s.tries, s.hits) for k, s in table.rules.items()] == [(("integers", "merge"), 2, 1)]


def test_the_site_is_the_callers_line() -> None:
    found, line = user_site(), sys._getframe().f_lineno
    assert found == (__file__, line)


def test_the_site_skips_frames_of_the_package() -> None:
    import intaglio

    package = str(intaglio.__file__).removesuffix("__init__.py")
    inside: dict[str, object] = {"user_site": user_site}
    exec(compile("def call():\n    return user_site()", f"{package}tensor/made_up.py", "exec"), inside)
    found = inside["call"]()  # type: ignore[operator]
    assert found is not None
    assert found[0] == __file__


def test_a_target_says_whether_it_fuses_multiply_and_add() -> None:
    assert not Target().has_fma
    assert Target(features=frozenset({"fma", "avx2"})).has_fma
    assert Target(vector_bytes=64).vector_registers == 32
    assert Target(vector_bytes=32).vector_registers == 16
    assert Target() == Target(name="generic")
    assert hash(Target()) == hash(Target())
