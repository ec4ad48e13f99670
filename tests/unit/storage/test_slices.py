"""A slice is still where nothing is pending: then values are computed as they stand, and as any flush computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor, no_grad
from intaglio.storage.slice import Slice

if TYPE_CHECKING:
    from collections.abc import Callable

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
    assert Slice((), [value._value()]).is_still == still
    assert np.allclose(value.numpy(), expected)


def test_a_storage_that_nobody_has_written_is_computed_as_a_value_is() -> None:
    y = stored() * 2
    turned, rows = y.T, y[1:]
    assert y._storage is not None
    assert turned._storage is y._storage is rows._storage
    part = Slice([y._storage], [])
    assert (part.is_still, part.views) == (True, {})
    z = (rows @ turned).realize()
    assert np.allclose(z.numpy(), (ARRAY * 2)[1:] @ (ARRAY * 2).T)
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
    assert not Slice((), [after._value()]).is_still
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


def test_the_walk_of_a_still_slice_is_in_order_and_ends_at_what_lies_in_memory() -> None:
    x = stored()
    y = (x + 1) @ (x + 1).T
    part = Slice((), [y._value(), (y * 2)._value()])
    places = {node: number for number, node in enumerate(part.order)}
    assert len(places) == len(part.order)
    assert all(places[s] < places[n] for n in part.order if n not in part.leaves for s in n.src)
    assert list(part.leaves) == [n for n in part.order if n.op.name == "read" and n not in part.views]
