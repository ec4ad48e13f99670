"""An index is taken apart into a view and positions, without computing anything."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.errors import ShapeError
from intaglio.ops.memory import iota
from intaglio.ops.movement import reshape
from intaglio.tensor.elementwise import broadcast_shapes
from intaglio.tensor.indexing import fit_shape, parse


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        (1, (3, 4)),
        (slice(0, 1), (1, 3, 4)),
        ((..., 0), (2, 3)),
        ((None, 0, None), (1, 1, 3, 4)),
        ((slice(None, None, -1), 0, slice(1, 3)), (2, 2)),
        ((), (2, 3, 4)),
        (..., (2, 3, 4)),
        ((slice(5, 9),), (0, 3, 4)),
    ],
)
def test_basic_indices_are_views(index: object, shape: tuple[int, ...]) -> None:
    parsed = parse(Tensor.empty(2, 3, 4), index)
    assert parsed.view.shape == shape
    assert not parsed.arrays


@pytest.mark.parametrize(
    ("index", "first"),
    [
        ((slice(None), [0, 1], [2, 1]), 1),
        (([0, 1], slice(None), [2, 1]), 0),
        ((slice(None), [0, 1]), 1),
        ((..., [0, 1]), 2),
        ((0, slice(None), [0, 1]), 0),
        ((None, [0, 1], ..., [1, 0]), 0),
        ((None, [0, 1]), 1),
    ],
)
def test_positions_go_first_unless_they_are_neighbours(index: object, first: int) -> None:
    assert parse(Tensor.empty(2, 3, 4), index).first == first


def test_negative_positions_count_from_the_end() -> None:
    parsed = parse(Tensor.empty(2, 3), ([-1, 0],))
    assert parsed.arrays[0].tolist() == [1, 0]


def test_values_broadcast_and_lose_leading_axes_of_size_one() -> None:
    value = reshape(iota(3), (1, 1, 3))
    assert fit_shape(value, (2, 3)).shape == (2, 3)
    assert fit_shape(value, (3,)).shape == (3,)
    with pytest.raises(ShapeError):
        fit_shape(value, (2,))
    with pytest.raises(ShapeError):
        fit_shape(reshape(iota(6), (2, 3)), (3,))


def test_broadcasting_of_shapes() -> None:
    assert broadcast_shapes("f", (3, 1), (4,), ()) == (3, 4)
    assert broadcast_shapes("f", (0, 1), (1, 5)) == (0, 5)
    with pytest.raises(ShapeError, match="f: shapes must broadcast"):
        broadcast_shapes("f", (0,), (2,))


@pytest.mark.parametrize("seed", range(20))
def test_plain_indices_name_the_views_that_numpy_has(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(40):
        shape = tuple(draw.choice((0, 1, 2, 3, 5)) for _ in range(draw.randint(0, 4)))
        array = np.arange(math.prod(shape)).reshape(shape)
        ends = (None, *range(-6, 7))
        parts: list[object] = []
        for n in shape[: draw.randint(0, len(shape))]:
            part = slice(draw.choice(ends), draw.choice(ends), draw.choice((None, 1, 2, -1, -2)))
            parts.append(draw.choice((part, part, slice(None), draw.randint(-n, n - 1) if n else part)))
        if draw.random() < 0.4:
            parts.insert(draw.randint(0, len(parts)), Ellipsis)
        for _ in range(draw.randint(0, 2)):
            parts.insert(draw.randint(0, len(parts)), None)
        index = tuple(parts)
        try:
            expected = array[index]
        except IndexError:
            with pytest.raises(IndexError):
                Tensor(array)[index]
            continue
        made = Tensor(array)[index]
        assert made.shape == expected.shape, index
        assert np.array_equal(made.numpy(), expected), index
