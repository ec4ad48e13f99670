"""The beam search, by a fake timer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio.core.target import Target
from intaglio.lower.choice import Choice, choice_of
from intaglio.lower.kernel import Lowered, lower
from intaglio.lower.search import search
from intaglio.ops.loop import sink
from tests.unit.lower.running import Operands
from tests.unit.lower.test_product import product

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.lower.choice import Value

K = Operands()
AST = sink(*product(K, *(np.zeros((300, 300), np.float32) for _ in range(3))).src)
MACHINE = Target("a server", 64, frozenset({"fma"}), 2, level2=2 << 20)  # another would be asked of other decisions
MODEL = lower(AST, MACHINE)


def lowered(choice: Choice) -> Lowered:
    return lower(AST, MACHINE, choice=choice)


def taken(code: Lowered) -> dict[str, Value]:
    """What a search chose."""
    return {name: value for _, name, value in choice_of(code.decisions).answers}


def found(
    measure: Callable[[Lowered], float | None],
    width: int = 1,
    over: Callable[[], bool] = lambda: False,
    make: Callable[[Choice], Lowered | None] = lowered,
) -> tuple[dict[str, Value], float]:
    """What a search finds by a timer."""
    code, ratio = search(MODEL, make, measure, width=width, over=over)
    return taken(code), ratio


def test_the_fastest_is_found_one_decision_after_the_other() -> None:
    def timer(code: Lowered) -> float:
        own = taken(code)
        return 1.0 - 0.2 * (own.get("tile") == (8, 3)) - 0.1 * (own.get("pack") == 1)

    assert found(timer) == ({"tile": (8, 3), "pack": 1}, pytest.approx(0.7))


def test_a_wider_beam_goes_through_what_is_slower_at_first() -> None:
    def timer(code: Lowered) -> float:
        own = taken(code)
        if own.get("tile") == (8, 3):
            return 0.5 if own.get("pack") == 1 else 0.95
        return 0.9 if own.get("tile") == (4, 4) else 2.0

    assert found(timer, width=1) == ({"tile": (4, 4)}, 0.9)
    assert found(timer, width=2) == ({"tile": (8, 3), "pack": 1}, 0.5)


def test_what_may_not_be_used_is_not() -> None:
    def timer(code: Lowered) -> float | None:
        own = taken(code)
        if own.get("tile") == (8, 3):
            return None  # it crashed
        return 0.8 if own.get("tile") == (4, 4) else 1.1

    assert found(timer) == ({"tile": (4, 4)}, 0.8)
    assert found(lambda _: None) == ({}, 1.0)


def test_what_cannot_be_lowered_is_passed_over() -> None:
    assert found(lambda _: 0.1, make=lambda _: None) == ({}, 1.0)


def test_a_gain_that_may_be_noise_is_none() -> None:
    assert found(lambda _: 0.98) == ({}, 1.0)


def test_a_winner_must_win_again() -> None:
    times: dict[str, int] = {}

    def timer(code: Lowered) -> float:
        key = str(choice_of(code.decisions))
        times[key] = times.get(key, 0) + 1
        lucky = key == "tile 8x3" and times[key] == 1
        return 0.5 if lucky else 1.05

    assert found(timer) == ({}, 1.0)
    assert times["tile 8x3"] == 2


def test_no_code_is_tried_twice_and_time_ends_a_search() -> None:
    tried: list[Lowered] = []

    def timer(code: Lowered) -> float:
        tried.append(code)
        return 1.2

    assert found(timer, width=3) == ({}, 1.0)
    assert len({code.linear for code in tried}) == len(tried) > 10
    tried.clear()
    assert found(timer, over=lambda: len(tried) >= 4) == ({}, 1.0)
    assert len(tried) == 4


def test_code_without_decisions_is_the_models() -> None:
    bare = replace(MODEL, decisions=())
    assert search(bare, lowered, lambda _: 0.1, width=2, over=lambda: False) == (bare, 1.0)
