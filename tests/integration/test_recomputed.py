"""Values that loops carry along, bound anew in each turn: stored on the way to what is read, once that pays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

N = 2000
STEPS = 12
FACTORS = np.linspace(0.5, 1.5, N, dtype=np.float32)


def _momentum(p: Any, state: list[Any], factors: Any) -> Any:
    """A step downhill in place."""
    state[0] = state[0] * 0.875 + (p * 0.125 + factors)
    p -= state[0] * 0.125
    return p


def _rebound(p: Any, state: list[Any], factors: Any) -> Any:
    """A step downhill, the parameters bound anew as well."""
    state[0] = state[0] * 0.875 + (p * 0.125 + factors)
    return p - state[0] * 0.125


def _moments(p: Any, state: list[Any], factors: Any) -> Any:
    """A step by the first and the second moment."""
    g = p * 0.125 + factors
    state[0], state[1] = state[0] * 0.875 + g * 0.125, state[1] * 0.75 + g * g * 0.25
    p -= state[0] * 0.125 / (state[1] + 1)
    return p


PROGRAMS: list[Callable[[Any, list[Any], Any], Any]] = [_momentum, _rebound, _moments]


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_turn_of_a_loop_that_reads_takes_as_much_as_the_one_before(
    program: Callable[[Any, list[Any], Any], Any],
) -> None:
    factors, p = Tensor(FACTORS).realize(), Tensor.ones(N).contiguous().realize()
    state: list[Any] = [Tensor.zeros(N), Tensor.zeros(N)]
    wanted, wanted_state = np.ones(N, np.float32), [np.zeros(N, np.float32), np.zeros(N, np.float32)]
    costs: list[tuple[int, int, int, int]] = []
    for _ in range(STEPS):
        p, wanted = program(p, state, factors), program(wanted, wanted_state, FACTORS)
        GlobalCounters.reset()
        read = p[3].item() if program is not _rebound else p.sum().item()
        assert np.isclose(read, wanted[3] if program is not _rebound else wanted.sum(), rtol=1e-5)
        counters = GlobalCounters
        costs.append((counters.kernel_count, counters.global_mem, counters.mem_used, counters.compile_count))
    assert {cost[:3] for cost in costs[-4:]} == {costs[-1][:3]}
    assert costs[-1][0] <= 2
    assert costs[-1][1] <= 8 * 4 * N
    assert np.allclose(p.numpy(), wanted, rtol=1e-5)
    assert np.allclose(state[0].numpy(), wanted_state[0], rtol=1e-5)


def test_a_value_is_not_stored_before_one_like_it_was_computed_again() -> None:
    x = Tensor(FACTORS).realize()
    y = x * 2
    GlobalCounters.reset()
    y.sum().item()
    assert GlobalCounters.global_mem <= 4 * N + 64
    y.sum().item()
    (y * 3).max().item()
    GlobalCounters.reset()
    (y * 5).min().item()  # y is in memory by now
    assert GlobalCounters.global_ops <= 2 * N + 64
    assert np.array_equal(y.numpy(), FACTORS * 2)


def test_what_is_larger_than_all_that_it_is_computed_from_is_not_stored() -> None:
    x = Tensor(FACTORS).realize()
    y = x[:, None] - x[None]
    for read in (lambda: y.sum(), lambda: (y * y).sum(), lambda: (y * 3).max(), lambda: (y * 5).min()):
        GlobalCounters.reset()
        read().item()
        assert GlobalCounters.global_mem < 4 * N * N
    assert GlobalCounters.mem_used < 4 * N * N


@pytest.mark.parametrize("wanted", [False, True])
def test_gradients_go_through_what_was_stored(wanted: bool) -> None:
    """`wanted`: whether the values are asked for; those of them that read what a write took are right as well."""
    array = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    x, w = Tensor(array, requires_grad=True), Tensor(array[0] + 2, requires_grad=True)

    def program(t: Any, u: Any, x: Any, w: Any) -> list[Any]:
        made: list[Any] = []
        for i in range(1, 3):
            t[i] = u[i - 1] * w + x[i]
            made.append(t[i] * 0.5 - u[i - 1] * u[i])
            u[i] = made[-1]
        return made

    t, u = Tensor.zeros(3, 4), x * 1
    made = program(t, u, x, w)
    loss = (t * u).sum()
    if wanted:
        loss.realize(*made)
    else:
        for _ in range(3):
            (loss * 1).item()
            (loss * 2).item()
            (made[0] * 3).sum().item()
    loss.backward()
    torch = pytest.importorskip("torch")
    a, b = torch.tensor(array, requires_grad=True), torch.tensor(array[0] + 2, requires_grad=True)
    other, written = torch.zeros(3, 4), a * 1

    class Copied:
        """A tensor of which each read is a copy: PyTorch wants what gradients need before a write takes it."""

        def __init__(self, of: Any) -> None:
            self.of = of

        def __getitem__(self, index: int) -> Any:
            return self.of[index].clone()

        def __setitem__(self, index: int, value: Any) -> None:
            self.of[index] = value

    program(Copied(other), Copied(written), a, b)
    (other * written).sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    assert np.allclose(x.grad.numpy(), a.grad.numpy(), rtol=1e-4, atol=1e-5)
    assert np.allclose(w.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-5)
