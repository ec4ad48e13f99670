"""Which results may take the memory of an input: found from kernels alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.config import settings_now
from intaglio.engine import form
from intaglio.engine.heirs import LEAST
from intaglio.storage.standing import plans, standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from intaglio.engine.plan import Plan


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Results of every size may take the memory of inputs."""
    monkeypatch.setattr(form, "LEAST", 1)
    plans.clear()
    yield
    plans.clear()


def planned(*wanted: Tensor) -> Plan:
    """What computes some values that nothing is pending of, its kernels compiled."""
    found = standing([], [value.to_node() for value in wanted], settings_now())
    assert found is not None
    plan = found[0]
    assert plan is not None
    plan.steps(0)
    return plan


def heirs(x: Tensor, y: Tensor, *wanted: Tensor) -> set[tuple[int, str]]:
    """The pairs: the number of a wanted value, and which input it may take."""
    plan = planned(*wanted)
    names = {tensor._place()[0].ref: name for name, tensor in (("x", x), ("y", y))}
    results = plan.refs[-len(wanted) :]
    return {(results.index(plan.refs[result]), names[plan.refs[source]]) for result, source in plan.form.heirs}


def matrix(seed: int, n: int = 8) -> Tensor:
    """A matrix in memory."""
    return Tensor(np.random.default_rng(seed).standard_normal((n, n), dtype=np.float32)).realize()


CASES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str]] = {
    "of one": (lambda x, y: x * 2 + 1, "x"),
    "of two": (lambda x, y: (x > 0).where(x, y).exp(), "xy"),
    "twice the same": (lambda x, y: x * x + y, "xy"),
    "of one size": (lambda x, y: x.bitcast("int32") + 1, "x"),
    "under another shape": (lambda x, y: x.reshape(64) * y.reshape(64), "xy"),
    "beside a row": (lambda x, y: x * y[0], "x"),
    "beside a turned one": (lambda x, y: x + y.T, "x"),
    "beside taken rows": (lambda x, y: x + y[Tensor([3, 1, 2, 0, 7, 6, 5, 4])], "x"),
    "in other places, too": (lambda x, y: x + x.T + y, "y"),
    "in two orders": (lambda x, y: x.flip(0) + x + y, "y"),
    "padded": (lambda x, y: x.pad(((0, 1), (0, 0)))[1:] + y, "y"),
    "wider": (lambda x, y: x.double() * 2, ""),
    "narrower": (lambda x, y: x.half() * 2, ""),
    "a part": (lambda x, y: x[1:] + y[1:], "xy"),  # of a program whose inputs are parts, which is seen as it runs
    "a sum": (lambda x, y: x.sum(0), ""),
    "what is reduced, too": (lambda x, y: x.softmax(1) + y, ""),
    "a product": (lambda x, y: x @ y + y, ""),
}


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("case", CASES)
def test_inputs_that_a_result_may_take(case: str) -> None:
    value, expected = CASES[case]
    x, y = matrix(0), matrix(1)
    assert heirs(x, y, value(x, y)) == {(0, name) for name in expected}


@pytest.mark.usefixtures("any_size")
def test_what_two_results_read_serves_none() -> None:
    x, y = matrix(0), matrix(1)
    assert heirs(x, y, x + 1, x + y) == {(1, "y")}


@pytest.mark.usefixtures("any_size")
def test_what_a_kernel_before_reads_serves_unless_threads_share_both() -> None:
    x, y = matrix(0, 64), matrix(1, 64)
    assert heirs(x, y, x @ y, x * 2) == {(1, "x")}
    assert heirs(x, y, x * 2, x @ y) == set()
    x, w = matrix(0, 128), [matrix(k, 128) for k in range(3)]
    plan = planned(*[x @ each for each in w], x * 2)
    assert plan.form._waves  # threads may run the last kernel while another still reads
    assert plan.form.heirs == []


def test_only_large_results_are_looked_at() -> None:
    small, large = (Tensor(np.ones(count, np.float32)).realize() for count in (LEAST // 4 - 1, LEAST // 4))
    assert planned(small * 2).form.heirs == []
    assert planned(large * 2).form.heirs == [(1, 0)]
