"""Random programs of views and writes equal NumPy, statement by statement; none is refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intaglio.storage.flush import plans
from tests.property.alias_programs import Buffering, Overwriting, Programs, Turning, Wide

# Programs that once came out wrong, by what was wrong.
FOUND = {
    165: "a scalar kept from before a write, used after it",
    394: "two stores of one kernel, the second over what the first reads",
    2024: "bytes of a value that is not in memory, seen as another dtype",
    2365: "a reduction older than the group that it was rolled into",
    3160: "two storages in one group that end at different moments",
    3234: "a kept old value read from where it no longer was",
    3443: "a scalar expression that had become a storage",
    104202: "a first version that reads what the same group writes",
    800340: "words at distances that are no multiple of their size",
    15036: "a stale read among writes that depend on one another",
    15966802: "an element computed from a first version that reads what the same group writes",
    35374762537: "NumPy's result in the order of a permuted operand, of which a reshape is no view",
    7100023: "words seen through an empty view",
}


@settings(max_examples=1600, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**48))
def test_random_programs_equal_numpy(number: int) -> None:
    Programs(random.Random(number)).run()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**48))
def test_random_programs_that_overwrite_what_they_wrote_equal_numpy(number: int) -> None:
    Overwriting(random.Random(number), 24).run()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**48))
def test_random_programs_whose_loops_make_temporaries_equal_numpy(number: int) -> None:
    Turning(random.Random(number), 8).run()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**48))
def test_random_programs_whose_loops_write_buffers_of_their_own_equal_numpy(number: int) -> None:
    Buffering(random.Random(number), 6).run()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**48))
def test_random_programs_of_wide_axes_equal_numpy(number: int) -> None:
    plans.clear()  # else one plan for all sizes would serve most of them
    Wide(random.Random(number), 8).run()


@pytest.mark.parametrize("number", FOUND)
def test_programs_that_were_wrong_once(number: int) -> None:
    Programs(random.Random(number)).run()


def test_words_off_their_grid_are_written_in_order() -> None:
    import numpy as np

    from intaglio import Tensor, dtypes

    array = np.arange(12, dtype=np.uint8).reshape(4, 3)
    tensor = Tensor(array)
    words, expected = tensor[:, :2].bitcast(dtypes.int16), array[:, :2].view(np.int16)
    for i in range(1, 4):
        words[i, 0] = words[i - 1, 0] * 3 + i
        expected[i, 0] = expected[i - 1, 0] * 3 + i
    assert np.array_equal(words.numpy(), expected)
    assert np.array_equal(tensor.numpy(), array)
