"""Where nothing is pending, values are computed as they stand, by what is remembered of programs like theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor, no_grad
from intaglio.storage.flush import plans
from intaglio.storage.still import PendingError, Still

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.ir.node import Node

ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)


def stored() -> Tensor:
    """A tensor in memory."""
    return Tensor(ARRAY).realize()


def detached() -> Tensor:
    """A value of a tracked tensor that is not tracked."""
    w = Tensor(ARRAY, requires_grad=True).realize()
    with no_grad():
        return (w * 2) @ w.T


def placed() -> Tensor:
    """A value of a value that is in memory, whose tensor was written since."""
    x = stored()
    y = x * 3
    z = y + 1
    y.realize()
    y += 100
    y.realize()
    return z


def written() -> Tensor:
    """A value of what is written and pending."""
    x = stored()
    x[1] = x[0] * 2
    return x + 1


def viewed() -> Tensor:
    """A value of a view of one that is yet to be computed."""
    return (stored() * 2)[1:] + 1


def walked(*values: Node) -> Still | None:
    """What values are computed from, if nothing is pending."""
    still = Still()
    try:
        still.walk(values, ())
    except PendingError:
        return None
    return still


ROWS = np.concatenate([ARRAY[:1], ARRAY[:1] * 2, ARRAY[2:]])


@pytest.mark.parametrize(
    ("make", "still", "expected"),
    [
        (lambda: stored() + stored()[0], True, ARRAY + ARRAY[0]),
        (lambda: Tensor.full((3,), 2.0) * 2, True, np.full(3, 4, np.float32)),
        (detached, True, (ARRAY * 2) @ ARRAY.T),
        (placed, True, ARRAY * 3 + 1),
        (written, False, ROWS + 1),
        (viewed, True, (ARRAY * 2)[1:] + 1),
        (lambda: Tensor.empty(4)[:2] * 0, False, np.zeros(2, np.float32)),
    ],
    ids=["in memory", "constant", "detached", "kept", "written", "a view", "undefined"],
)
def test_values_with_nothing_pending_stand_as_they_are(
    make: Callable[[], Tensor], still: bool, expected: np.ndarray
) -> None:
    value = make()
    assert (walked(value._value()) is not None) == still
    assert np.allclose(value.numpy(), expected)


def test_a_storage_that_nobody_has_written_is_computed_as_a_value_is() -> None:
    y = stored() * 2
    turned, rows = y.T, y[1:]
    assert y._storage is not None
    assert turned._storage is y._storage is rows._storage
    product = rows @ turned
    still = walked(product._value())
    assert still is not None
    assert (len(still.refs), len(still.views), set(still.views.values())) == (1, 2, {y._storage.base})
    assert np.allclose(product.numpy(), (ARRAY * 2)[1:] @ (ARRAY * 2).T)
    assert y._storage.ref is None  # only what was asked for has bytes
    GlobalCounters.reset()
    turned.realize()
    assert GlobalCounters.kernel_count == 1
    turned[0, 0] = 7.0
    assert (y[0, 0].item(), rows.tolist()) == (7.0, (ARRAY * 2)[1:].tolist())


def test_a_value_read_through_a_view_is_what_it_was_before_a_write() -> None:
    y = stored() * 2
    before = y.T + 1
    y[0] = 0.0
    after = y.T + 1
    assert walked(after._value()) is None
    assert np.array_equal(after.numpy()[:, 0], np.ones(4, np.float32))
    assert np.array_equal(before.numpy(), ARRAY.T * 2 + 1)


def test_a_storage_and_what_reads_it_are_computed_once() -> None:
    x = stored()
    (x @ x.T).realize()
    GlobalCounters.reset()
    y = x @ x.T
    flat = y.reshape(-1) + 1
    y.realize(flat)
    assert GlobalCounters.kernel_count == 2
    assert np.allclose(flat.numpy(), (ARRAY @ ARRAY.T).reshape(-1) + 1)


def test_the_walk_is_in_order_and_ends_at_what_lies_in_memory() -> None:
    x = stored()
    y = (x + 1) @ (x + 1).T
    still = walked(y._value(), (y * 2)._value())
    assert still is not None
    assert list(still.order.values()) == list(range(len(still.order)))
    assert all(still.order[s] < number for node, number in still.order.items() for s in node.src)
    reads = still.program([]).reads
    assert list(reads) == [n for n in still.order if n.op.name == "read" and n not in still.views]


def key(*values: Tensor) -> bytes:
    """The key of a program that computes some values."""
    nodes = [value._value() for value in values]
    still = walked(*nodes)
    assert still is not None
    return still.key(nodes, "CPU")


def test_programs_of_one_structure_have_one_key() -> None:
    x, y = stored(), stored()
    assert key(x * 3.5 + y) == key(y * 4.5 + x)  # literals are arguments
    assert key(x * 3.5 + 3.5) != key(x * 3.5 + 4.5)  # of which one is used twice, or there are two
    assert key(x * 1 + y) != key(x * 3.5 + y)  # but for those that simplify
    assert key(x + y) != key(x + x)
    assert key(x - y, y) != key(x - y, x)
    assert key(x[0] + 1) == key(y[1] + 1)  # where a view starts is an argument
    assert key(x[0] + x[1]) == key(x[1] + x[2])
    assert key(x[0] + x[1]) != key(x[0] + x[2])
    assert key(x[0] + x[1]) != key(x[0] + y[1])
    assert key((x * 2).T + 1) != key((x * 2).reshape(4, 3) + 1)
    assert key(x.sum(0)) != key(x.sum(1))
    assert key(x.softmax(0)) != key(x.softmax(1))


def test_a_literal_that_stays_in_a_kernel_is_asked_for() -> None:
    x = stored()

    def padded(value: float) -> list[list[float]]:
        return (x.pad((1, 1), value=value) * 2).tolist()

    for value in (2.5, 3.5, 2.5):
        assert padded(value)[0][0] == 2 * value
    for index in (1, 2, 1):
        assert (x + Tensor.full((3, 4), float(index) + 0.5)).tolist()[0][0] == index + 0.5


def test_a_known_program_is_neither_planned_nor_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(factor: float) -> np.ndarray:
        x = stored()
        return ((x * factor).softmax(-1).T @ x[1:].T.reshape(-1)[:3].reshape(3, 1)).numpy()

    first = program(1.5)
    monkeypatch.setattr(plans, "plan", None)
    monkeypatch.setattr(plans, "_planned", None)
    assert np.array_equal(program(1.5), first)
    assert not np.array_equal(program(2.5), first)


def test_forgotten_plans_are_made_again() -> None:
    x = stored()
    (x + 2.5).realize()
    plans.clear()
    GlobalCounters.reset()
    assert np.array_equal((x + 3.5).numpy(), ARRAY + 3.5)
    assert GlobalCounters.plan_count == 1
