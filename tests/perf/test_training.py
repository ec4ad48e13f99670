"""Steps of training in place: known by their history after a few, in as few kernels as those before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor, no_grad
from intaglio.storage import flush as flushes
from intaglio.storage.flush import plans
from intaglio.storage.recomputed import recomputed
from tests.perf.test_overheads import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Update = Callable[[Any, Any, list[Any]], None]

N = 20
KNOWN = 4  # steps after which nothing is made any more


@pytest.fixture(autouse=True)
def _forgetting() -> Iterator[None]:
    """Nothing is stored since other tests computed it again, nor for what comes after."""
    recomputed.clear()
    yield
    recomputed.clear()


def descent(p: Any, grad: Any, state: list[Any]) -> None:
    """A step downhill."""
    p -= 0.125 * grad


def momentum(p: Any, grad: Any, state: list[Any]) -> None:
    """A step by the momentum."""
    v = state[0]
    v *= 0.875
    v += grad
    p -= 0.125 * v


def moments(p: Any, grad: Any, state: list[Any]) -> None:
    """A step by the first and the second moment."""
    m, v = state
    m *= 0.875
    m += 0.125 * grad
    v *= 0.75
    v += 0.25 * grad * grad
    p -= 0.125 * m / (v**0.5 + 1)


def scaled(p: Any, grad: Any, state: list[Any]) -> None:
    """A step downhill by half a gradient, which nobody sees as it was."""
    grad *= 0.5
    p -= 0.25 * grad


class Model:
    """Products by matrices and their mean square, with arrays of the same beside."""

    def __init__(self, count: int, update: Update, ask: str) -> None:
        draw = np.random.default_rng(0)
        self.arrays = [draw.standard_normal((N, N)).astype(np.float32) / N**0.5 for _ in range(count)]
        self.input = draw.standard_normal((N, N)).astype(np.float32)
        self.tensors = [Tensor(a, requires_grad=True) for a in self.arrays]
        self.x = Tensor(self.input).realize()
        self.states = [[Tensor.zeros(N, N) for _ in range(2)] for _ in self.tensors]
        self.others = [[np.zeros((N, N), np.float32) for _ in range(2)] for _ in self.tensors]
        self.update = update
        self.ask = ask

    def step(self, turns: int = 1) -> None:
        """Steps of the tensors; what is asked for is brought up to date after the last of them."""
        for _ in range(turns - 1):
            self._turn()
        loss = self._turn()
        first, *rest = self.tensors
        if self.ask == "item":
            loss.item()
        elif self.ask == "loss":
            loss.realize(first, *rest)
        else:
            first.realize(*rest)

    def _turn(self) -> Tensor:
        """One step of the tensors; gives the loss."""
        y = self.x
        for p in self.tensors:
            y = y @ p
        loss = (y * y).mean().backward()
        with no_grad():
            for p, state in zip(self.tensors, self.states, strict=True):
                self.update(p, p.grad, state)
                p.grad = None
        return loss

    def step_of_arrays(self) -> None:
        """The same step of the arrays."""
        values = [self.input]
        for p in self.arrays:
            values.append(values[-1] @ p)
        ct = values[-1] * np.float32(2 / values[-1].size)
        grads: list[Any] = []
        for value, p in zip(values[-2::-1], self.arrays[::-1], strict=True):
            grads.insert(0, value.T @ ct)
            ct = ct @ p.T
        for p, grad, state in zip(self.arrays, grads, self.others, strict=True):
            self.update(p, grad, state)


@pytest.mark.parametrize("ask", ["parameters", "loss", "item"])
@pytest.mark.parametrize("update", [descent, scaled, momentum, moments])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_step_is_known_by_its_history(count: int, update: Update, ask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(count, update, ask)
    kernels: list[int] = []
    for _ in range(KNOWN):
        GlobalCounters.reset()
        model.step()
        kernels.append(GlobalCounters.kernel_count)
    monkeypatch.setattr(flushes, "Flush", None)  # no slice, no groups, no program
    monkeypatch.setattr(plans, "plan", None)
    monkeypatch.setattr(plans, "_form", None)  # no structure
    GlobalCounters.reset()
    model.step()
    assert (GlobalCounters.plan_count, GlobalCounters.compile_count) == (0, 0)
    assert GlobalCounters.kernel_count == kernels[-1]
    if ask != "item":  # by which the updates of the first step are not asked for
        assert kernels[-1] <= kernels[0]
    monkeypatch.undo()
    for _ in range(KNOWN + 1):
        model.step_of_arrays()
    for tensor, array in zip(model.tensors, model.arrays, strict=True):
        assert np.allclose(tensor.numpy(), array, atol=1e-5)


@pytest.mark.parametrize("turns", [2, 5])
@pytest.mark.parametrize("update", [descent, momentum, moments])
def test_a_few_steps_at_a_time_are_known_as_well(update: Update, turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, single = Model(2, update, "loss"), Model(2, update, "loss")
    for _ in range(KNOWN):
        model.step(turns)
        single.step()
    monkeypatch.setattr(flushes, "Flush", None)
    GlobalCounters.reset()
    model.step(turns)
    together = GlobalCounters.kernel_count
    GlobalCounters.reset()
    single.step()
    assert together <= turns * GlobalCounters.kernel_count + 1
    monkeypatch.undo()
    for _ in range((KNOWN + 1) * turns):
        model.step_of_arrays()
    for tensor, array in zip(model.tensors, model.arrays, strict=True):
        assert np.allclose(tensor.numpy(), array, atol=1e-4)


def test_hundreds_of_writes_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(54, moments, "loss")  # five for each parameter
    for _ in range(KNOWN):
        model.step()
    monkeypatch.setattr(flushes, "Flush", None)
    model.step()


@pytest.mark.parametrize(("turns", "kernels"), [(3, 6), (100, 1)])
def test_products_are_in_the_body_of_a_loop_of_many_turns_only(turns: int, kernels: int) -> None:
    draw = np.random.default_rng(0)
    arrays = [draw.standard_normal((N, N)).astype(np.float32) / N for _ in range(3)]
    x, y, w = [Tensor(a).realize() for a in arrays]
    a, b, c = arrays
    GlobalCounters.reset()
    for _ in range(turns):
        y[:] = x @ w
        x[:] = x * 0.5 + y
        b[:] = a @ c
        a[:] = a * np.float32(0.5) + b
    x.realize(y)
    assert GlobalCounters.kernel_count == kernels
    assert np.allclose(x.numpy(), a, atol=1e-6)
    assert np.allclose(y.numpy(), b, atol=1e-6)


@pytest.mark.parametrize(("update", "most"), [(descent, 3000), (momentum, 4300), (moments, 6000)])
def test_lines_of_a_step(update: Update, most: int) -> None:
    few, many = Model(1, update, "loss"), Model(4, update, "loss")
    for _ in range(KNOWN):
        few.step()
        many.step()
    assert (lines(many.step) - lines(few.step)) / 3 <= most


def test_what_both_gradients_need_is_computed_once() -> None:
    model = Model(2, momentum, "parameters")
    for _ in range(KNOWN):
        GlobalCounters.reset()
        model.step()
        # two products forward, one back, two gradients; what comes before, between and after them
        assert GlobalCounters.kernel_count <= 5 + 3
