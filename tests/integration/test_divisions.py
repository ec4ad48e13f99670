"""Indices through movement and reshapes: no division is left where loops over the parts need none."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.engine.explain import sources

Program: TypeAlias = Callable[[Any], Any]
PROGRAMS: list[Program] = [
    lambda x: x[:, ::-1].reshape(4, 30) * 2,
    lambda x: x.swapaxes(0, 1).reshape(24, 5) + 1,
    lambda x: x.swapaxes(1, 2).reshape(4, 30) + 1,
    lambda x: x[::-1].reshape(24, 5) + x.reshape(24, 5),
    lambda x: x[:, :, ::-1].reshape(-1) * 3,
    lambda x: x.swapaxes(0, 2).reshape(30, 4) + x.reshape(30, 4),
    lambda x: x[1:3, ::2].reshape(6, 5) + 1,
    lambda x: x.reshape(2, 2, 6, 5)[:, ::-1].reshape(4, 30) - 1,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_merged_axes_leave_no_division_in_a_loop(program: Program) -> None:
    array = np.arange(120).reshape(4, 6, 5)
    tensor = Tensor(array).realize()
    with sources() as seen:
        got = program(tensor).numpy()
    assert np.array_equal(got, program(array))
    assert not [text for text in seen if re.search(r"\b(floor_div|mod)\(\(*i\d", text)]
