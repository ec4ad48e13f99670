"""Shapes, axes and padding are resolved by plain arithmetic."""

from __future__ import annotations

import pytest

from intaglio.core.errors import DTypeError, ShapeError
from intaglio.tensor.combine import _pad_places, _pads
from intaglio.tensor.movement import axes_of, flat_ints, resolve_shape


def test_integers_come_one_by_one_or_as_a_sequence() -> None:
    assert flat_ints("reshape", (2, 3)) == flat_ints("reshape", ((2, 3),)) == flat_ints("reshape", ([2, 3],)) == (2, 3)
    assert flat_ints("reshape", (4,)) == (4,)
    assert flat_ints("reshape", ()) == flat_ints("reshape", ((),)) == ()
    for bad in ((2.5,), ("ab",), ((1, None),)):
        with pytest.raises(DTypeError):
            flat_ints("reshape", bad)


def test_one_extent_is_found() -> None:
    assert resolve_shape("f", (2, -1), 6) == (2, 3)
    assert resolve_shape("f", (-1,), 0) == (0,)
    assert resolve_shape("f", (0, 5), 0) == (0, 5)
    for bad in ((-1, 0), (4, -1), (-2, 3), (7,)):
        with pytest.raises(ShapeError):
            resolve_shape("f", bad, 6)


def test_axes_count_from_the_end() -> None:
    assert axes_of("f", (-1, 0), 3) == (2, 0)
    assert axes_of("f", None, 2) == (0, 1)
    with pytest.raises(ShapeError):
        axes_of("f", (0, -2), 2)
    with pytest.raises(DTypeError):
        axes_of("f", "a", 2)  # pyright: ignore[reportArgumentType]


def test_flat_padding_starts_at_the_last_axis() -> None:
    assert _pads((1, 2), 3) == [(0, 0), (0, 0), (1, 2)]
    assert _pads((1, 2, 3, 4), 2) == [(3, 4), (1, 2)]
    assert _pads([(1, 2), None], 2) == [(1, 2), (0, 0)]


def test_padded_places() -> None:
    assert _pad_places("reflect", 4, 2, 2) == [2, 1, 0, 1, 2, 3, 2, 1]
    assert _pad_places("replicate", 2, 2, 1) == [0, 0, 0, 1, 1]
    assert _pad_places("circular", 3, 1, 2) == [2, 0, 1, 2, 0, 1]
