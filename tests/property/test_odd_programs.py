"""Random programs of odd sizes, of every kind of dtype, with empty axes and steps backwards, equal NumPy."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.odd_programs import OddPrograms


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**48))
def test_random_programs_of_odd_sizes_and_dtypes_equal_numpy(number: int) -> None:
    OddPrograms(random.Random(number)).run()
