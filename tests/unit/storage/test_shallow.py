"""Many values, each one op away from memory, are walked at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.storage import standing as module
from intaglio.storage.shallow import shallow
from intaglio.storage.standing import MANY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.storage.shallow import Shallow


def stored(*shape: int) -> Tensor:
    """A tensor in memory."""
    return Tensor(np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)).realize()


def looked_at(values: Sequence[Tensor], device: str = "CPU") -> Shallow | None:
    """What some values are computed from, if they are one op away from memory."""
    return shallow([value._value() for value in values], device)


def key(*values: Tensor) -> bytes:
    """The key of a program that computes some values."""
    found = looked_at(values)
    assert found is not None
    return found.key


def test_programs_of_one_structure_have_one_key() -> None:
    x, y, z = stored(4, 4), stored(4, 4), stored(4, 4)
    assert key(x + y, x @ y) == key(y + z, y @ z)
    assert key(x + y, x @ y) != key(x + y, y @ x)
    assert key(x + y) != key(x - y)
    assert key(x + y, z.exp()) != key(x.exp(), y + z)
    assert key(x.sum(0)) != key(x.sum(1))
    assert key(x[1:3] + y[1:3]) == key(x[2:] + y[:2])  # where a view starts is an argument
    assert key(x[1:3] + y[1:3]) != key(x[::2] + y[1:3])


def test_values_that_share_inputs_are_told_apart_from_those_that_do_not() -> None:
    x, y, z, w = (stored(4, 4) for _ in range(4))
    assert key(x @ y, x @ z) == key(y @ z, y @ w)
    assert key(x @ y, x @ z) != key(x @ y, w @ z)
    assert key(x @ y, x @ z) != key(x @ y, y @ z)
    found = looked_at((x @ y, z @ x))
    assert found is not None
    assert list(found.refs) == [t._storage.ref for t in (x, y, z) if t._storage is not None]


def test_refs_are_in_order_of_first_use() -> None:
    x, y, z = (stored(3, 3) for _ in range(3))
    found = looked_at((y + x, x * z))
    assert found is not None
    assert list(found.refs) == [t._storage.ref for t in (y, x, z) if t._storage is not None]


def pending() -> list[Tensor]:
    """One of them reads what is written and pending."""
    x, y = stored(3), stored(3)
    y[0] = x[1] * 2
    return [x + x, y * y]


def undone() -> list[Tensor]:
    """One of them reads a view of what is yet to be computed."""
    x = stored(2, 3)
    return [x.exp(), (x * x)[1:] * x[:1]]


def kept() -> list[Tensor]:
    """One of them reads what was there before a write."""
    x, y = stored(3), stored(3)
    old = y * y
    y += 1
    y.realize()
    return [x * x, old]


@pytest.mark.parametrize(
    "make",
    [
        pending,
        undone,
        kept,
        lambda: [stored(3) + 1.5],
        lambda: [(stored(3) * stored(3)) * stored(3)],
        lambda: [Tensor.full((3,), 2.0)],
        lambda: [(x := stored(4))[:2] + x[2:]],
    ],
    ids=["pending", "a view", "an old value", "a number", "two ops", "nothing", "one buffer by two views"],
)
def test_others_are_walked_through(make: Callable[[], list[Tensor]]) -> None:
    assert looked_at(make()) is None
    x = stored(5)
    more = [x * x for _ in range(MANY)]
    values, again = make(), make()
    wanted = [value.numpy() for value in again]
    more[0].realize(*more[1:], *values)
    assert all(np.array_equal(value.numpy(), want) for value, want in zip(values, wanted, strict=True))


def test_values_on_another_device_are_walked_through() -> None:
    assert looked_at([stored(3).exp()], "PYTHON") is None


def test_many_values_are_computed_as_each_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    xs, ys = [stored(n, n + 1) for n in range(1, 9)], [stored(n + 1, n) for n in range(1, 9)]
    expected = [x.numpy() @ y.numpy() for x, y in zip(xs, ys, strict=True)]

    def products() -> list[Tensor]:
        found = [x @ y for x, y in zip(xs, ys, strict=True)]
        found[0].realize(*found[1:])
        return found

    products()
    GlobalCounters.reset()
    monkeypatch.setattr(module, "Still", None)  # nobody walks
    found = products()
    assert (GlobalCounters.launch_count, GlobalCounters.plan_count) == (1, 0)
    monkeypatch.undo()
    assert all(np.allclose(a.numpy(), b, rtol=1e-5, atol=1e-6) for a, b in zip(found, expected, strict=True))
