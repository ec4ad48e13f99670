"""Random programs of writes, with gradients, equal PyTorch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from intaglio import Tensor


def write(a: Any, w: Any, choice: int, place: int) -> None:
    """One statement that writes through a tensor of six numbers; `.clone()` is for PyTorch, which wants it."""
    match choice:
        case 0:
            a[place : place + 2] = w[0, place : place + 2] * 3
        case 1:
            a[1:] += w[1, 1:]
        case 2:
            a *= 2
        case 3:
            for i in range(1, 6):
                a[i] = a[i - 1].clone() * w[0, i] + 1
        case 4:
            for i in range(6):
                a[i] = w[1, i] * i
        case 5:
            a[::2] = 0
        case _:
            a[:] = a.clone().flip(0)


def check(number: int) -> None:
    """One program on both sides."""
    torch = pytest.importorskip("torch")
    choose = random.Random(number)
    weights = np.random.default_rng(number).integers(-3, 4, (2, 6)).astype(np.float32)
    ours, theirs = Tensor(weights, requires_grad=True), torch.tensor(weights, requires_grad=True)
    pairs = [(Tensor.zeros(6), torch.zeros(6)), (ours * 1, theirs * 1)]
    for _ in range(choose.randint(1, 8)):
        mine, other = choose.choice(pairs)
        what = choose.randrange(9)
        if what == 7:
            pairs.append((mine * 2 + 1, other.clone() * 2 + 1))
        elif what == 8:
            square, expected = mine * mine, other.clone() * other.clone()
            pairs.append((square.sum(0), expected.sum(0)) if other.ndim == 2 else (square, expected))
        else:
            place = choose.randrange(5)
            write(mine[1] if other.ndim == 2 else mine, ours, what, place)
            write(other[1] if other.ndim == 2 else other, theirs, what, place)
        if choose.random() < 0.2:
            mine.numpy()
    got, expected = Tensor([0.0]).sum(), torch.zeros(())
    for mine, other in pairs:
        got, expected = got + (mine * mine).sum(), expected + (other * other).sum()
    if abs(expected.item()) > 1e7:
        return  # too large for float32 to be compared
    assert np.isclose(got.item(), expected.item(), rtol=1e-4), number
    got.backward()
    expected.backward()
    assert ours.grad is not None
    assert np.allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-3, atol=1e-3), number


def test_random_programs_have_pytorchs_gradients(rng: random.Random) -> None:
    for _ in range(150):
        check(rng.randrange(1 << 48))


def test_a_read_between_two_rolled_writes_has_its_own_version() -> None:
    w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    t = Tensor.zeros(3)
    t[0:2] = w[0:2] * 3
    first = (t * t).sum()
    t[1:3] = w[1:3] * 3
    (first + (t * t).sum()).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [36.0, 72.0, 54.0]
