"""Random nests of loops whose writes depend on one another equal NumPy, turn by turn."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intaglio.lower import loops, parts
from intaglio.storage.flush import plans
from tests.property.nest_programs import Nests


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**48))
def test_random_nests_equal_numpy(number: int) -> None:
    Nests(random.Random(number)).run()


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**48), st.sampled_from((16, 64)))
def test_random_nests_in_small_parts_equal_numpy(number: int, part: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in ((parts, "PART", part), (parts, "CHUNK", 8), (loops, "CHUNK", 8)):
            patch.setattr(module, name, value)
        plans.clear()
        Nests(random.Random(number)).run()


def test_parts_of_an_axis_with_neighbours_are_whole_vectors() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PART", 64)
        Nests(random.Random(137732229950552)).run()
