"""What operations and flushes cost beside the kernels' work: counted in nodes, plans, launches, and lines that run."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.ir.node import living
from intaglio.storage.history import tracking
from intaglio.storage.postponed import postponed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing has been tracked or postponed, whatever other tests did: operations and flushes would ask some more."""
    monkeypatch.setattr(tracking, "begun", False)
    before = [*postponed]
    postponed.clear()
    yield
    postponed.extend(before)


def lines(work: Callable[[], object]) -> int:
    """How many lines of Python some work runs, once all caches know it and what planning left behind is gone.

    It is the least of three counts: now and then an operation also looks at bounds, for many.
    """
    count = 0
    counts: list[int] = []

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    work()
    before = sys.gettrace()
    gc.collect()
    gc.disable()  # what other tests left is not let go of here
    work()
    try:
        for _ in range(3):
            count = 0
            sys.settrace(trace)
            work()
            sys.settrace(before)
            counts.append(count)
    finally:
        sys.settrace(before)
        gc.enable()
    return min(counts)


def matrices(count: int, n: int = 8) -> list[Tensor]:
    """Matrices in memory."""
    draw = np.random.default_rng(0)
    return [Tensor(draw.standard_normal((n, n), dtype=np.float32)).realize() for _ in range(count)]


def products(xs: list[Tensor], ys: list[Tensor]) -> list[Tensor]:
    """Products realized together."""
    found = [x @ y for x, y in zip(xs, ys, strict=True)]
    return [found[0].realize(*found[1:]), *found[1:]]


def test_a_product_is_one_node() -> None:
    x, y = matrices(2)
    values = x._value(), y._value()
    before = living()
    z = x @ y
    assert living() == before + 1
    assert z._value().src == values


def test_a_handle_keeps_its_value_until_a_write() -> None:
    x, y = matrices(2)
    row = x[0]
    first = x._value(), y._value(), row._value()
    before = living()
    for _ in range(3):
        z = (x + y) * y
    assert living() == before + 2
    del z
    y[1, 1] = 5.0
    x[4:] = 0.0
    assert (x._value() is first[0], y._value() is first[1], row._value() is first[2]) == (False, False, True)


def test_equal_products_are_planned_once_and_run_by_one_call() -> None:
    xs, ys = matrices(100), matrices(100)
    products(xs, ys)
    GlobalCounters.reset()
    found = products(ys, xs)
    counts = (GlobalCounters.kernel_count, GlobalCounters.launch_count, GlobalCounters.plan_count)
    assert (*counts, GlobalCounters.compile_count) == (100, 1, 0, 0)
    assert np.allclose(found[7].numpy(), ys[7].numpy() @ xs[7].numpy(), rtol=1e-5, atol=1e-5)


def test_a_new_input_of_the_same_form_is_not_planned() -> None:
    first, *rest = matrices(10)
    (first + 1).sum().item()
    GlobalCounters.reset()
    for x in rest:
        (x + 1).sum().item()
    assert (GlobalCounters.plan_count, GlobalCounters.kernel_count, GlobalCounters.compile_count) == (0, 9, 0)


@pytest.mark.parametrize(
    ("work", "most"),
    [
        (lambda x, y: x * y, 55),
        (lambda x, y: x * 2, 57),
        (lambda x, y: x @ y, 47),
        (lambda x, y: x.reshape(4, 16).transpose(0, 1), 45),
        (lambda x, y: x[..., 1:3], 65),
        (lambda x, y: x.layer_norm(8), 66),
        (lambda x, y: x.argmax(1), 44),
        (lambda x, y: x.scaled_dot_product_attention(y, x, is_causal=True), 79),
        (lambda x, y: (x + 1).sum().item(), 460),
    ],
    ids=[
        "product of elements",
        "by a number",
        "matrix product",
        "two views",
        "slice",
        "norm",
        "position",
        "attention",
        "a flush",
    ],
)
def test_lines_of_an_operation(work: Callable[[Tensor, Tensor], object], most: int) -> None:
    x, y = matrices(2)
    assert lines(lambda: work(x, y)) <= most


HOST = np.ones((2, 8), np.float32)


@pytest.mark.parametrize(
    ("work", "most"),
    [
        # 313: 30 more where as many views are remembered as may be
        (lambda x, y: x.__setitem__(slice(1, 3), y[1:3]), 345),
        (lambda x, y: x.__setitem__(slice(1, 3), HOST), 205),
        (lambda x, y: step_in_place(x, y), 1400),
    ],
    ids=["a slice", "an array", "a slice in place, done"],
)
def test_lines_of_a_write(work: Callable[[Tensor, Tensor], object], most: int) -> None:
    x, y = matrices(2)
    assert lines(lambda: work(x, y)) <= most


def step_in_place(x: Tensor, y: Tensor) -> None:
    """Inner rows of a matrix from others, made at once."""
    x[1:-1] += (y[2:] - x[:-2]) * 0.5
    x.realize()


def sums(xs: list[Tensor], ys: list[Tensor]) -> list[Tensor]:
    """Sums realized together."""
    found = [x + y for x, y in zip(xs, ys, strict=True)]
    return [found[0].realize(*found[1:]), *found[1:]]


def mixed(xs: list[Tensor], ys: list[Tensor]) -> list[Tensor]:
    """Products of one half, and sums of the rows of the other, realized together."""
    half = len(xs) // 2
    found = [x @ y for x, y in zip(xs[:half], ys[:half], strict=True)]
    found += [x.sum(0) for x in xs[half:]]
    return [found[0].realize(*found[1:]), *found[1:]]


@pytest.mark.parametrize(("work", "most"), [(products, 112), (sums, 120), (mixed, 110)])
def test_lines_of_one_among_many(work: Callable[[list[Tensor], list[Tensor]], object], most: int) -> None:
    xs, ys = matrices(120), matrices(120)
    few, many = lines(lambda: work(xs[:20], ys[:20])), lines(lambda: work(xs, ys))
    assert (many - few) / 100 <= most


def block(x: Tensor, matrix: Tensor, vector: Tensor) -> Tensor:
    """What a transformer's layer does, by operations of a tensor."""
    n, d = x.shape
    queries, keys, values = (((x.layer_norm(d, vector, vector) @ matrix + vector)[:, :d]).reshape(n, 2, d // 2)
                             .transpose(0, 1) for _ in range(3))  # fmt: skip
    mixed = queries.scaled_dot_product_attention(keys, values, is_causal=True)
    return x + (mixed.transpose(0, 1).reshape(n, d) @ matrix + vector).gelu(approximate="tanh")


def test_layers_of_a_model_are_few_nodes_and_one_walk() -> None:
    x, matrix = matrices(2)
    vector = matrix[0]

    def model(layers: int) -> Tensor:
        y = x
        for _ in range(layers):
            y = block(y, matrix, vector)
        return y

    model(2).realize()
    before = living()
    y = model(2)
    # norm, product, bias, which are equal for all three; three views of that; attention, a view of it, that in order;
    # product, bias, activation, sum
    assert living() - before == 2 * 13
    GlobalCounters.reset()
    y.realize()
    assert (GlobalCounters.plan_count, GlobalCounters.compile_count, GlobalCounters.launch_count) == (0, 0, 1)
    few, many = lines(lambda: model(2).realize()), lines(lambda: model(12).realize())
    assert (many - few) / 10 <= 1740
