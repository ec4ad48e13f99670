"""Bounds hold: no value of an expression lies outside, and what is known exactly is exact."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.ops.bounds import bounds

if TYPE_CHECKING:
    from collections.abc import Callable


def ten() -> Tensor:
    """0 .. 9, not looked at before."""
    return Tensor.arange(10)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (lambda: ten(), (0, 9)),
        (lambda: ten() * 2 - 3, (-3, 15)),
        (lambda: 9 - ten(), (0, 9)),
        (lambda: ten() * -1, (-9, 0)),
        (lambda: (ten() - 5) // 2, (-3, 2)),
        (lambda: (ten() * 7) % 4, (0, 3)),
        (lambda: ten() % 100, (0, 9)),
        (lambda: (ten() - 100) % 4, (0, 3)),
        (lambda: Tensor([1, 2]).clip(0, 5), (0, 5)),
        (lambda: (ten() > 3).where(ten() + 7, 2), (2, 16)),
        (lambda: ten().max(), (0, 9)),
        (lambda: ten().cast("uint8"), (0, 9)),
        (lambda: (ten() + 250).cast("uint8"), (0, 255)),
        (lambda: ten().cast("int8") * 20, (-128, 127)),
        (lambda: Tensor([3, 4], dtype="uint8").cast("int64"), (0, 255)),
        (lambda: Tensor([3.5]).cast("int16"), (-(2**15), 2**15 - 1)),
        (lambda: (ten() == 3).cast("int32"), (0, 1)),
        (lambda: ten() // (ten() - 4), (-(2**63), 2**63 - 1)),
        (lambda: ten().sum(), (-(2**63), 2**63 - 1)),
        (lambda: Tensor([5, 6]), (-(2**63), 2**63 - 1)),
    ],
)
def test_what_is_known_of_an_expression(value: Callable[[], Tensor], want: tuple[int, int]) -> None:
    assert bounds(value()._value()) == want


def test_no_value_lies_outside() -> None:
    draw = random.Random(7)
    names = ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"]
    for _ in range(60):
        dtype = draw.choice(names)
        info = np.iinfo(dtype)
        array = np.random.default_rng(draw.randrange(1 << 30)).integers(info.min, info.max, 20, dtype=dtype)
        x = (Tensor(array) if draw.random() < 0.5 else Tensor.arange(20)).cast(dtype)
        for _ in range(draw.randrange(1, 6)):
            k = draw.choice([1, 2, 3, 7, 100])
            step = draw.choice(
                [
                    lambda t, k=k: t + k, lambda t, k=k: t - k, lambda t, k=k: t * k, lambda t, k=k: t // k,
                    lambda t, k=k: t % k, lambda t, k=k: k - t,
                    lambda t, k=k: t.maximum(k), lambda t, k=k: t.minimum(k),
                    lambda t: t.cast(draw.choice(names)), lambda t: t.flip(0), lambda t: (t > 3).where(t, 1),
                ]
            )  # fmt: skip
            x = step(x)
        low, high = bounds(x._value())
        found = [int(v) for v in x.tolist()]
        assert low <= min(found), x.dtype
        assert max(found) <= high, x.dtype
