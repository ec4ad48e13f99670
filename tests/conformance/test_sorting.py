"""Order against NumPy's stable order: of every dtype and shape, with ties, NaN and zeros of both signs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.dtypes import dtypes
from intaglio.tensor import sorting

Array = np.ndarray[Any, Any]
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "many": [(1,), (1000,), (3, 5, 7)], "few": [(33,), (17, 4)], "edges": [(33,), (4, 17)], "zeros": [(33,), (3, 0)],
}  # fmt: skip
NAMES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
         "uint64", "bool"]  # fmt: skip


def drawn(draw: np.random.Generator, kind: str, name: str, shape: tuple[int, ...]) -> Tensor:
    """Numbers of a kind."""
    if kind == "few":
        values = draw.integers(0, 4, shape) - (2 if dtypes.of(name).min < 0 else 0)
    elif kind == "edges" and dtypes.of(name).is_float:
        values = draw.choice([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1.0], shape)
    elif kind == "zeros" and dtypes.of(name).is_float:
        values = draw.choice([0.0, -0.0, 1.0, -1.0], shape)
    elif dtypes.of(name).is_float:
        values = draw.standard_normal(shape)
    else:
        low, high = int(dtypes.of(name).min), int(dtypes.of(name).max)
        return Tensor(draw.integers(low, high, shape, np.dtype(name), endpoint=True))
    return Tensor(values).cast(name).realize()


def places(values: Array, axis: int, *, descending: bool) -> Array:
    """NumPy's stable order."""
    if not descending:
        return np.argsort(values, axis, kind="stable")
    return values.shape[axis] - 1 - np.flip(np.argsort(np.flip(values, axis), axis, kind="stable"), axis)


def plain(t: Tensor) -> Array:
    """The numbers in a dtype of NumPy's own."""
    return t.cast("float32").numpy() if t.dtype.name == "bfloat16" else t.numpy()


def same_bits(got: Array, want: Array) -> None:
    """Equal to the last bit."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert got.tobytes() == np.ascontiguousarray(want).tobytes()


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_every_way_to_ask_for_an_order_gives_the_stable_one(name: str, kind: str) -> None:
    draw = np.random.default_rng([NAMES.index(name), len(kind)])
    if kind in ("edges", "zeros") and not dtypes.of(name).is_float:
        pytest.skip("integers have no such numbers")
    for shape in SHAPES[kind]:
        for axis in range(len(shape)):
            t = drawn(draw, kind, name, shape)
            values = plain(t)
            for descending in (False, True):
                order = places(values, axis, descending=descending)
                ordered = np.take_along_axis(values, order, axis)
                found = t.sort(axis, descending=descending)
                same_bits(plain(found[0]), ordered)  # before their places are known
                same_bits(found.indices.numpy(), order)
                both, where = t.sort(axis, descending=descending)
                same_bits(plain(both), ordered)
                same_bits(where.numpy(), order)
                same_bits(t.argsort(axis, descending=descending).numpy(), order)
                for k in {0, shape[axis] // 2}:
                    top = t.topk(k, axis, largest=descending)
                    same_bits(plain(top.values), ordered[(slice(None),) * axis + (slice(0, k),)])
                    same_bits(top.indices.numpy(), order[(slice(None),) * axis + (slice(0, k),)])
                assert (found[0].dtype, where.dtype) == (t.dtype, dtypes.int64)


@pytest.mark.parametrize("name", NAMES)
def test_different_elements(name: str) -> None:
    draw = np.random.default_rng(NAMES.index(name))
    for kind, shape in [("many", (1000,)), ("few", (6, 7)), ("edges", (50,)), ("many", (0,))]:
        t = drawn(draw, kind, name, shape)
        values, inverse, counts = np.unique(plain(t), return_inverse=True, return_counts=True)
        np.testing.assert_array_equal(plain(t.unique()), values)
        assert t.unique().dtype is t.dtype
        found = t.unique(return_inverse=True, return_counts=True)
        for got, want in zip(found, (values, inverse.reshape(shape), counts), strict=True):
            np.testing.assert_array_equal(plain(got), want)


@pytest.mark.parametrize("kind", ["random", "rising", "falling", "equal", "few", "odd", "one by one"])
def test_the_few_largest_of_many(kind: str) -> None:
    """Where a sample tells which those are, and where it tells nothing."""
    n = sorting.MANY * sorting.SAMPLE + 3
    step = n // sorting.SAMPLE
    draw = np.random.default_rng(1)
    values = {
        "random": draw.standard_normal(n), "rising": np.arange(n), "falling": -np.arange(n), "equal": np.ones(n),
        "few": draw.integers(0, 3, n), "odd": np.where(draw.random(n) < 0.001, np.nan, draw.standard_normal(n)),
        "one by one": np.where(np.arange(n) % step == 0, 0, draw.standard_normal(n)),
    }[kind].astype(np.float32)  # fmt: skip
    t = Tensor(values)
    for largest in (True, False):
        order = places(values, 0, descending=largest)
        for k in (1, 7, 100, 900):
            found = t.topk(k, largest=largest)
            same_bits(found.indices.numpy(), order[:k])
            same_bits(found.values.numpy(), values[order[:k]])
            rows = np.stack([values, np.roll(values, 5)])
            same_bits(Tensor(rows).topk(k, 1, largest=largest).values.numpy(), np.stack([values[order[:k]]] * 2))
            turned = np.ascontiguousarray(rows.T)
            want = places(turned, 0, descending=largest)[:k]
            same_bits(Tensor(turned).topk(k, 0, largest=largest).indices.numpy(), want)
            same_bits(t.reshape(1, n, 1).topk(k, 1, largest=largest).indices.numpy(), order[:k].reshape(1, k, 1))


def test_an_order_is_that_of_the_moment_it_was_asked_for() -> None:
    x = Tensor([3.0, 1.0, 2.0]).realize()
    found = x.sort()
    x[1] = 9.0
    later = x.sort(descending=True)
    x[:] = 0.0
    assert found.values.tolist() == [1, 2, 3]
    assert found.indices.tolist() == [1, 2, 0]
    assert (later[0].tolist(), later[-1].tolist(), len(later)) == ([9, 3, 2], [1, 0, 2], 2)
    assert x.tolist() == [0, 0, 0]
    x[:] = 1.0
    assert found.values.tolist() == [1, 2, 3]


def test_values_in_order_are_a_tensor_of_their_own() -> None:
    x = Tensor([3, 1, 2]).realize()
    for _ in range(2):
        found = x.sort().values
        found[0] = 7
        assert (found.tolist(), x.tolist()) == ([7, 2, 3], [3, 1, 2])
    y = x * 2
    order = y.argsort()
    order[0] = 0
    assert (order.tolist(), y.argsort().tolist(), (x * 2).argsort().tolist()) == ([0, 2, 0], [1, 2, 0], [1, 2, 0])


def test_scalars_and_slices_of_a_pair() -> None:
    assert Tensor(3.0).sort(descending=True)[0].tolist() == 3
    found = Tensor([2, 1]).sort()
    assert [t.tolist() for t in found[:]] == [[1, 2], [1, 0]]
    assert repr(found) == f"Sorted(values={found.values!r}, indices={found.indices!r})"
    with pytest.raises(IndexError):
        found[2]


def test_gradients_go_to_where_the_values_were() -> None:
    x = Tensor([3.0, 1.0, 2.0], requires_grad=True)
    (x.sort(descending=True).values * Tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1, 100, 10]
    y = Tensor([3.0, 1.0, 2.0], requires_grad=True)
    (y.topk(2)[0] * Tensor([1.0, 10.0])).sum().backward()
    assert y.grad is not None
    assert y.grad.tolist() == [1, 0, 10]


def test_large_keys_with_ties_keep_their_order() -> None:
    draw = random.Random(3)
    values = np.array([draw.choice([0, 1, 2**40, -(2**62)]) for _ in range(5000)], np.int64)
    same_bits(Tensor(values).argsort().numpy(), np.argsort(values, kind="stable"))
    many = np.random.default_rng(0).standard_normal(5000)
    same_bits(Tensor(many).argsort(descending=True).numpy(), places(many, 0, descending=True))
