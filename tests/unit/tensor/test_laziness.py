"""What computes and what does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from intaglio import GlobalCounters, Tensor, dtypes

if TYPE_CHECKING:
    from collections.abc import Callable


def filled() -> Tensor:
    """A small realized tensor."""
    return Tensor([[3.0, 1.0, 2.0], [6.0, 5.0, 4.0]])


LAZY: dict[str, Callable[[Tensor], object]] = {
    "arithmetic": lambda t: (t * 2 + 1).exp().sum(0),
    "views": lambda t: t.T[::-1].reshape(-1, 2, 1).squeeze(-1),
    "products": lambda t: t @ t.T,
    "joins": lambda t: Tensor.cat([t, t]).pad(((1, 1), (0, 0))).tril(),
    "positions": lambda t: t[Tensor([1, 0])],
    "writes": lambda t: t.clone().assign(5),
    "elements": lambda t: t[0, 1] * 2,
    "casts": lambda t: t.cast(dtypes.int32).bitcast(dtypes.float32),
    "random": lambda t: t.rand_like() + Tensor.randint(2, 3),
    "losses": lambda t: t.cross_entropy(Tensor([0, 1])),
    "scatters": lambda t: t.scatter(1, Tensor([[0], [1]]), 7.0),
}


@pytest.mark.parametrize("name", LAZY)
def test_nothing_is_computed_by(name: str) -> None:
    t = filled()
    before = GlobalCounters.launch_count
    made = LAZY[name](t)
    assert GlobalCounters.launch_count == before
    del made


def test_reading_twice_computes_once() -> None:
    t = filled() * 3
    t.tolist()
    before = GlobalCounters.launch_count
    t.tolist()
    t.numpy()
    assert GlobalCounters.launch_count == before


def test_a_write_of_the_same_view_is_nothing() -> None:
    t = filled()
    t[0] = t[0]
    t[:, 1] = t[:, 1]
    storage, _ = t._place()
    assert not storage.log


def test_empty_writes_are_checked_but_not_kept() -> None:
    t = Tensor([1, 2])
    t[2:] = 5
    t[[]] = 7
    storage, _ = t._place()
    assert not storage.log
