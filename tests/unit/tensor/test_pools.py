"""Pools whose only window reaches past the end of the input."""

from __future__ import annotations

import pytest

from intaglio import Tensor
from intaglio.core.errors import ShapeError


def test_the_mean_of_a_window_that_reaches_past_the_end_is_of_what_it_has() -> None:
    x = Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    assert x.max_pool2d(3, 2, ceil_mode=True).tolist() == [[[[4.0]]]]
    assert x.avg_pool2d(3, 2, ceil_mode=True).tolist() == [[[[2.5]]]]
    assert x.avg_pool2d(4, 2, padding=1, ceil_mode=True).tolist() == [[[[0.625]]]]  # of the zeros as well


@pytest.mark.parametrize("stride", [1, 2])
def test_a_window_that_is_larger_by_a_step_is_an_error(stride: int) -> None:
    for pool in (Tensor.max_pool2d, Tensor.avg_pool2d):
        with pytest.raises(ShapeError, match=f"window {2 + stride}, input 2, padding 0"):
            pool(Tensor.ones(1, 1, 2, 2), 2 + stride, stride, ceil_mode=True)
        with pytest.raises(ShapeError, match=f"window {2 + stride}, input 2, padding 0"):
            pool(Tensor.ones(1, 1, 2, 2), 2 + stride, 5)
