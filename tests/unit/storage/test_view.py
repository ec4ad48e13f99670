"""Views against NumPy's strided arrays over the same bytes, and overlap against a count of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from intaglio.core.dtypes import DType, dtypes
from intaglio.ir import bounded
from intaglio.ir.bounded import join_terms, sum_hits
from intaglio.ir.view import View

if TYPE_CHECKING:
    import random

DTYPES = (dtypes.uint8, dtypes.int16, dtypes.float32, dtypes.int64)
BYTES = np.random.default_rng(7).integers(0, 256, 16384, dtype=np.uint8)
ORIGIN = 1024  # views reach both ways from here

Array = np.ndarray[Any, Any]


def array(view: View) -> Array:
    """NumPy's array of the view's bytes: kept as bytes on a last axis, so that NaN and odd offsets are no matter."""
    item = view.dtype.itemsize
    return np.ndarray((*view.shape, item), np.uint8, BYTES.data, ORIGIN + view.offset, (*view.strides, 1))


def places(view: View) -> list[int]:
    """The byte places of the view, one for each byte of each element."""
    starts = np.full(view.shape, view.offset, np.int64)
    for axis, (extent, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        steps = np.arange(extent) * stride
        starts = starts + steps.reshape(-1, *(1,) * (view.rank - axis - 1))
    return (starts.reshape(-1, 1) + np.arange(view.dtype.itemsize)).reshape(-1).tolist()


def same(view: View | None, expected: Array) -> None:
    """The view has the shape and the very elements of NumPy's (compared by address, where there is any element)."""
    assert view is not None
    found = array(view)
    assert found.shape == expected.shape
    if found.size:
        assert [s for n, s in zip(found.shape, found.strides, strict=True) if n > 1] == [
            s for n, s in zip(expected.shape, expected.strides, strict=True) if n > 1
        ]
        assert found.__array_interface__["data"][0] == expected.__array_interface__["data"][0]


@st.composite
def strided(draw: st.DrawFn, least: int = 0, most: int = 3, *, loose: bool = True) -> View:
    """Any view of few elements: strides of any sign, zero and overlapping as well where loose."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(
        draw(st.lists(st.integers(0 if draw(st.integers(0, 9)) == 0 else 1, 5), min_size=least, max_size=most))
    )
    if loose and draw(st.booleans()):
        strides = tuple(draw(st.integers(-24, 24)) for _ in shape)
        return View(dtype, shape, strides, draw(st.integers(-40, 40)))
    base = View.contiguous(dtype, tuple(2 * n + 1 for n in shape), draw(st.integers(-40, 40)))
    for axis, extent in enumerate(shape):
        base = base.slice(axis, draw(st.integers(0, 1)), extent, draw(st.integers(1, 2)))
    base = base.flip(tuple(a for a in range(base.rank) if draw(st.booleans())))
    return base.permute(tuple(draw(st.permutations(range(base.rank)))))


@given(strided(least=1), st.data())
def test_selecting_a_position_is_numpys(view: View, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, view.rank - 1))
    assume(view.shape[axis])
    i = data.draw(st.integers(0, view.shape[axis] - 1))
    same(view.select(axis, i), array(view)[(slice(None),) * axis + (i,)])
    if view.shape[0]:
        same(view.at(0), array(view)[0])


@given(strided(least=1), st.data())
def test_slices_of_any_step_are_numpys(view: View, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, view.rank - 1))
    bound = st.none() | st.integers(-7, 7)
    cut = slice(data.draw(bound), data.draw(bound), data.draw(st.integers(-3, 3).filter(bool)))
    start, stop, step = cut.indices(view.shape[axis])
    same(view.slice(axis, start, len(range(start, stop, step)), step), array(view)[(slice(None),) * axis + (cut,)])


@given(strided(), st.data())
def test_permute_flip_and_unit_axes_are_numpys(view: View, data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(range(view.rank))))
    same(view.permute(order), array(view).transpose(*order, view.rank))
    axes = tuple(a for a in range(view.rank) if data.draw(st.booleans()))
    same(view.flip(axes), np.flip(array(view), axes))
    place = data.draw(st.integers(0, view.rank))
    same(view.unsqueeze(place), np.expand_dims(array(view), place))
    units = tuple(a for a in range(view.rank) if view.shape[a] == 1)
    same(view.squeeze(units), array(view).squeeze(units))


@given(strided(), st.data())
def test_expand_is_numpys_broadcast(view: View, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.integers(0, 3)) if n == 1 else n for n in view.shape)
    shape = (*data.draw(st.lists(st.integers(0, 3), max_size=2)), *shape)
    same(view.expand(shape), np.broadcast_to(array(view), (*shape, view.dtype.itemsize)))


@given(strided(), st.data())
def test_shrink_is_a_box_of_slices(view: View, data: st.DataObject) -> None:
    bounds = tuple(tuple(sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n))))) for n in view.shape)
    same(view.shrink(bounds), array(view)[tuple(slice(a, b) for a, b in bounds)])  # pyright: ignore


@given(strided(least=2), st.data())
def test_diagonals_are_numpys(view: View, data: st.DataObject) -> None:
    first, second = data.draw(st.permutations(range(view.rank)))[:2]
    offset = data.draw(st.integers(-6, 6))
    expected = array(view).diagonal(offset, first, second)
    same(view.diagonal(offset, first, second), np.moveaxis(expected, -2, -1))


@given(strided(least=1), st.data())
def test_unfold_is_numpys_sliding_window(view: View, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, view.rank - 1))
    size = data.draw(st.integers(1, 4))
    assume(size <= view.shape[axis])
    step = data.draw(st.integers(1, 3))
    windows = np.lib.stride_tricks.sliding_window_view(array(view), size, axis)
    expected = np.moveaxis(windows[(slice(None),) * axis + (slice(None, None, step),)], -2, -1)
    same(view.unfold(axis, size, step), expected)


@given(strided(), st.data())
def test_reshape_is_a_view_just_where_numpys_needs_no_copy(view: View, data: st.DataObject) -> None:
    left, shape = view.size, list[int]()
    while left > 1:
        divisors = [d for d in range(2, left + 1) if left % d == 0]
        shape.append(data.draw(st.sampled_from(divisors)))
        left //= shape[-1]
    if view.size == 0:
        shape = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3).filter(lambda s: 0 in s))
    for _ in range(data.draw(st.integers(0, 2))):
        shape.insert(data.draw(st.integers(0, len(shape))), 1)
    target = (*shape, view.dtype.itemsize)
    numbers = np.ndarray(view.shape, f"V{view.dtype.itemsize}", BYTES.data, ORIGIN + view.offset, view.strides)
    try:
        numbers.reshape(tuple(shape), copy=False)
    except ValueError:
        assert view.reshape(tuple(shape)) is None
    else:
        made = view.reshape(tuple(shape))
        assert made is not None
        assert made.shape == tuple(shape)
        assert np.array_equal(array(made), array(view).reshape(target))
        assert places(made) == places(view)


@given(strided(), st.sampled_from(DTYPES))
def test_bitcast_is_numpys_view_of_another_dtype(view: View, dtype: DType) -> None:
    old, new = view.dtype.itemsize, dtype.itemsize
    if old != new and view.rank and view.shape[-1] == 1:
        view = View(view.dtype, view.shape, (*view.strides[:-1], old), view.offset)  # NumPy looks at it, we need not
    numbers = np.ndarray(view.shape, f"i{old}", BYTES.data, ORIGIN + view.offset, view.strides)
    made = view.bitcast(dtype)
    try:
        expected = numbers.view(f"i{new}")
    except ValueError:
        assert made is None
    else:
        if made is None:
            assert numbers.size == 0  # NumPy asks less of arrays with nothing in them
            return
        assert made.shape == expected.shape
        assert places(made) == places(view)


@given(strided())
def test_sizes_bounds_and_contiguity_are_those_of_the_bytes(view: View) -> None:
    bytes_of = places(view)
    assert view.nbytes == len(bytes_of) == view.size * view.dtype.itemsize
    low, high = view.byte_bounds()
    assert (low, high) == ((min(bytes_of), max(bytes_of) + 1) if bytes_of else (view.offset, view.offset))
    in_order = bytes_of == list(range(low, high)) if bytes_of else True
    assert view.is_contiguous == in_order
    if view.size:
        assert set(places(view.canonical())) == set(bytes_of)


@given(strided(loose=False))
def test_a_fresh_contiguous_view_x(view: View) -> None:
    fresh = View.contiguous(view.dtype, view.shape, 5)
    assert fresh.is_contiguous
    assert fresh.byte_bounds() == (5, 5 + fresh.nbytes)
    assert fresh.covers_whole(5 + fresh.nbytes) is False or fresh.nbytes == 0
    assert View.contiguous(view.dtype, view.shape).covers_whole(fresh.nbytes)


@given(strided(), st.integers(0, 40))
def test_what_lies_around_a_view_is_every_other_byte(view: View, more: int) -> None:
    bytes_of = places(view)
    if not bytes_of or min(bytes_of) < 0:
        return
    nbytes = max(bytes_of) + 1 + more
    around = view.around(nbytes)
    if around is not None:
        others = [place for piece in around for place in places(piece)]
        assert sorted(others) == sorted(set(range(nbytes)) - set(bytes_of))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3))
def test_a_box_in_a_grid_has_views_around_it(axes: list[tuple[int, int, int]]) -> None:
    grid = View.contiguous(dtypes.int16, tuple(extent + before + after for extent, before, after in axes))
    box = grid
    for axis, (extent, before, _) in enumerate(axes):
        box = box.slice(axis, before, extent, 1)
    around = box.around(grid.nbytes)
    assert around is not None
    assert len(around) <= 2 * len(axes)
    assert len(set(places(box))) + sum(piece.nbytes for piece in around) == grid.nbytes


@given(strided())
def test_internal_overlap_is_a_repeated_byte(view: View) -> None:
    bytes_of = places(view)
    assert view.has_internal_overlap() == (len(set(bytes_of)) < len(bytes_of))


@given(strided(), strided())
def test_overlap_is_a_shared_byte(one: View, other: View) -> None:
    shared = bool(set(places(one)) & set(places(other)))
    assert one.overlaps(other) is shared
    assert other.overlaps(one) is shared
    if one.size and other.size:
        assert shared == np.shares_memory(array(one), array(other))


@example(View(dtypes.float32, (2, 2), (1, 6), 0), View(dtypes.float32, (2, 2), (1, 1), 0))
@given(strided(), strided())
def test_covering_is_never_claimed_wrongly(one: View, other: View) -> None:
    mine, theirs = set(places(one)), set(places(other))
    if one.covers(other):
        assert theirs <= mine
    if one.covers_whole(one.nbytes):
        assert mine == set(range(one.nbytes))


@given(strided(loose=False), st.data())
def test_a_view_covers_itself_and_its_boxes(view: View, data: st.DataObject) -> None:
    flipped = view.flip(tuple(range(view.rank)))
    assert view.covers(flipped)
    assert flipped.covers(view)
    bounds = tuple(sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))) for n in view.shape)
    assert View.contiguous(dtypes.uint8, (40_000,), -1000).covers(view.shrink(tuple((a, b) for a, b in bounds)))


def test_rows_cover_a_part_of_a_row_but_not_what_lies_between() -> None:
    rows = View.contiguous(dtypes.float32, (10, 8)).slice(1, 2, 4, 1)
    assert rows.covers(View.contiguous(dtypes.float32, (10, 8)).at(3).slice(0, 3, 2, 1))
    assert not rows.covers(View.contiguous(dtypes.float32, (10, 8)).at(3).slice(0, 1, 2, 1))
    assert not rows.covers(View.contiguous(dtypes.float32, (10, 8)).at(3))


def test_neighbouring_columns_of_many_rows_are_told_apart() -> None:
    table = View.contiguous(dtypes.float32, (1_000_000, 10))
    left, right = table.slice(1, 0, 3, 1), table.slice(1, 3, 3, 1)
    assert not left.overlaps(right)
    assert left.overlaps(table.slice(1, 2, 3, 1))
    assert not table.slice(0, 0, 500_000, 2).overlaps(table.slice(0, 1, 500_000, 2))


def test_interlocking_steps_over_millions_are_decided_exactly() -> None:
    bytes_ = View.contiguous(dtypes.uint8, (1 << 40,))
    sixes, tens = bytes_.slice(0, 0, 1 << 30, 6), bytes_.slice(0, 1, 1 << 30, 10)
    assert not sixes.overlaps(tens)  # even against odd
    assert sixes.overlaps(bytes_.slice(0, 4, 1 << 30, 10))
    # The least x with 999983 * x = 999979 * y + 1.
    x = pow(999_983, -1, 999_979)
    y = (999_983 * x - 1) // 999_979
    assert bytes_.slice(0, 0, x + 1, 999_983).overlaps(bytes_.slice(0, 1, y + 1, 999_979))
    assert not bytes_.slice(0, 0, x, 999_983).overlaps(bytes_.slice(0, 1, y + 1, 999_979))


def test_a_search_past_its_budget_says_that_they_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = [(101, 5), (77, 6), (45, 7), (33, 5)]
    sums = {0}
    for step, count in terms:
        sums = {s + step * x for s in sums for x in range(count)}
    missing = next(n for n in range(max(sums) // 2, max(sums)) if n not in sums)
    assert not sum_hits(terms, missing, missing)
    monkeypatch.setattr(bounded, "BUDGET", 2)
    assert sum_hits(terms, missing, missing)


def test_bounded_sums_hit_where_listing_them_does(rng: random.Random) -> None:
    for _ in range(150):
        terms = [(rng.randint(1, 60), rng.randint(1, 7)) for _ in range(rng.randint(1, 3))]
        sums, joined = {0}, {0}
        for step, count in terms:
            sums = {s + step * x for s in sums for x in range(count)}
        for step, count in join_terms(terms):
            joined = {s + step * x for s in joined for x in range(count)}
        assert joined == sums, terms
        for width in (0, 1, rng.randint(2, 15)):
            for low in range(-width - 1, max(sums) + 2):
                listed = any(s in sums for s in range(low, low + width + 1))
                assert sum_hits(terms, low, low + width) == listed, (terms, low, width)


def test_self_overlap_of_sliding_windows_is_seen_just_where_they_slide_less_than_their_size() -> None:
    line = View.contiguous(dtypes.int16, (100,))
    assert line.unfold(0, 3, 2).has_internal_overlap()
    assert not line.unfold(0, 3, 3).has_internal_overlap()
    assert line.reshape((10, 10)) == View.contiguous(dtypes.int16, (10, 10))


@pytest.mark.parametrize("extent", [1, 0])
def test_a_repeated_axis_counts_only_where_it_repeats(extent: int) -> None:
    view = View(dtypes.int16, (extent, 4), (0, 2), 0)
    assert not view.has_internal_overlap()
    assert View(dtypes.int16, (2, 4), (0, 2), 0).has_internal_overlap()
