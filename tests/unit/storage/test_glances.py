"""A handle keeps the value that it has in memory, and lets go of it at the first write that overlaps its view."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.core.dtypes import dtypes
from intaglio.ir.view import View
from intaglio.storage.storage import RECENT, Storage


def stored() -> tuple[Tensor, Storage]:
    """A tensor in memory, and its storage."""
    x = Tensor(np.arange(16, dtype=np.float32)).realize()
    assert x._storage is not None
    return x, x._storage


def test_equal_views_have_one_glance() -> None:
    x, storage = stored()
    view = View.contiguous(dtypes.float32, (16,))
    first, second = storage.glance(view), storage.glance(view)
    assert first is second
    assert first.node is x._value()


@pytest.mark.parametrize("number", [True, False])
def test_a_write_through_another_view_ends_those_that_it_overlaps(number: bool) -> None:
    x, _ = stored()
    low, high = x[:8], x[8:]
    kept = low._value(), high._value()
    x[3] = 7.0 if number else x[4] * 2
    assert low._value() is not kept[0]
    assert number or high._value() is kept[1]  # numbers go through a pen for all of x
    assert (low.tolist()[3], kept[1].shape) == (7.0 if number else 8.0, (8,))


def test_more_views_than_are_remembered_end_the_others() -> None:
    x, storage = stored()
    whole = x._value()
    parts = [x[k:] for k in range(1, RECENT + 2)]
    for part in parts:
        part._value()
    assert storage.reads is not None
    assert len(storage.reads.glances) <= RECENT
    x += 1
    assert x._value() is not whole
    assert [part[0].item() for part in parts] == [k + 1.0 for k in range(1, RECENT + 2)]


def test_a_value_that_only_a_handle_keeps_is_not_saved_from_a_write() -> None:
    x, _ = stored()
    (x * 2).realize()
    GlobalCounters.reset()
    x += 1
    x.realize()
    assert GlobalCounters.kernel_count == 1


def test_a_value_in_an_expression_is_what_it_was() -> None:
    x, _ = stored()
    before = x * 2
    x += 1
    after = x * 2
    assert np.array_equal(after.numpy() - before.numpy(), np.full(16, 2, np.float32))


def test_handles_and_storages_make_no_cycle() -> None:
    x, storage = stored()
    x._value()
    reference = weakref.ref(storage)
    gc.disable()
    try:
        del x, storage
        assert reference() is None
    finally:
        gc.enable()
