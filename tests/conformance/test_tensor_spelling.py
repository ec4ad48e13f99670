"""Calls as PyTorch, tinygrad and NumPy spell them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from intaglio import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

X = Tensor([[1.0, 3.0], [2.0, 5.0]])
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "argmax", "argmin", "logsumexp")


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_take_every_spelling(name: str) -> None:
    reduce = getattr(X, name)
    expected = reduce(1, True).tolist()
    assert len(expected) == len(expected[0]) * 2
    for axis in ("axis", "dim"):
        for keep in ("keepdim", "keepdims"):
            assert reduce(**{axis: 1, keep: True}).tolist() == expected


def test_the_norm_takes_every_spelling_after_its_power() -> None:
    expected = X.norm(2, 1, True).tolist()
    assert len(expected) == len(expected[0]) * 2
    for axis in ("axis", "dim"):
        for keep in ("keepdim", "keepdims"):
            assert X.norm(**{axis: 1, keep: True}).tolist() == expected


SAME: dict[str, list[Callable[[], Tensor]]] = {
    "cat": [
        lambda: Tensor.cat([X, X], 1), lambda: Tensor.cat(X, X, dim=1), lambda: X.cat(X, axis=1),
        lambda: Tensor.cat((X, X), dim=1),
    ],
    "stack": [lambda: Tensor.stack([X, X], 1), lambda: X.stack(X, dim=1), lambda: Tensor.stack((X, X), axis=1)],
    "softmax": [lambda: X.softmax(0), lambda: X.softmax(dim=0), lambda: X.softmax(axis=0)],
    "cumsum": [lambda: X.cumsum(1), lambda: X.cumsum(dim=1), lambda: X.cumsum(axis=1)],
    "split": [lambda: X.split(1, 1)[1], lambda: X.split(1, dim=1)[1], lambda: X.split(1, axis=1)[1]],
    "sort": [lambda: X.sort(0)[0], lambda: X.sort(dim=0)[0], lambda: X.sort(axis=0)[0]],
    "unsqueeze": [lambda: X.unsqueeze(0), lambda: X.unsqueeze(dim=0), lambda: X.unsqueeze(axis=0)],
    "transpose": [lambda: X.transpose(0, 1), lambda: X.transpose(dim0=0, dim1=1), lambda: X.T],
    "flatten": [lambda: X.flatten(0, 1), lambda: X.flatten(start_dim=0, end_dim=1), lambda: X.reshape(-1)],
    "roll": [lambda: X.roll(1, 0), lambda: X.roll(1, dims=0), lambda: X.roll(shifts=(1,), dims=(0,))],
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_ways_to_say_the_same(name: str) -> None:
    first, *others = (way().tolist() for way in SAME[name])
    assert all(other == first for other in others)
