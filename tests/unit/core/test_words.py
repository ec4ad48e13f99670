"""The words of errors: what was meant, how many there are, how they are counted."""

from __future__ import annotations

import pytest

from intaglio.core.dtypes import dtypes
from intaglio.core.words import counted, counting, meant

DTYPES = [dtype.name for dtype in dtypes.all]


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("flaot32", "float32"),
        ("Float16", "float16"),
        ("torch.int8", "int8"),
        ("bf16", "bfloat16"),
        ("uint128", "uint8"),
    ],
)
def test_a_misspelt_word_is_answered_by_the_nearest(given: str, word: str) -> None:
    assert meant(given, DTYPES) == f' Is "{word}" meant?'


@pytest.mark.parametrize("given", ["complex64", "", "strange", 3, None])
def test_nothing_is_meant_by_what_is_far_from_every_word(given: object) -> None:
    assert meant(given, DTYPES) == ""


def test_one_thing_is_singular() -> None:
    assert (counted(0, "axis", "axes"), counted(1, "axis", "axes"), counted(2, "shift")) == (
        "0 axes",
        "1 axis",
        "2 shifts",
    )
    assert (counting(1), counting(2)) == ("Is 0 meant?", "Count from 0 to 1, or from -1 back to -2?")
