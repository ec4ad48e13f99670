"""Exact texts of the errors that the core layer raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio.core.config import Context, config, from_environment
from intaglio.core.dtypes import dtypes, promote_weak, result_type
from intaglio.core.errors import IntaglioError

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = (
    "debug, beam, beam_seconds, track_match_stats, device, graph, graphuops, threads, cache, cache_dir, cache_size_mb, "
    "journal_entries, journal_nodes, journal_bytes, memory_bytes, kept_bytes, verify"
)
DTYPES = (
    "bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
    "float8_e4m3, float8_e5m2, float16, bfloat16, float32, float64"
)
CASES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: Context(debgu=1),
        "config: no setting 'debgu'; there are debug, beam, beam_seconds, track_match_stats, device, graph, "
        "graphuops, threads, cache, cache_dir, cache_size_mb, journal_entries, journal_nodes, journal_bytes, "
        'memory_bytes, kept_bytes, verify. Is "debug" meant?',
    ),
    (lambda: config.set(device=3), "config: device must be text; got 3. Leave it out for the default, 'CPU'?"),
    (
        lambda: config.set(journal_entries=0),
        "config: journal_entries must be at least 1; got 0. Leave it out for the default, 262144?",
    ),
    (lambda: Context(DEBUG=None), "config: DEBUG must be a whole number; got None. Leave it out for the default, 0?"),  # type: ignore[arg-type]
    (lambda: Context(DEBUG=1.5), "config: DEBUG must be a whole number; got 1.5. Leave it out for the default, 0?"),  # type: ignore[arg-type]
    (
        lambda: config.set(threads=[1]),
        "config: threads must be a whole number; got [1]. Leave it out for the default, 0?",
    ),  # type: ignore[arg-type]
    (lambda: Context(CACHE=None), "config: CACHE must be 0 or 1; got None. Leave it out for the default, True?"),  # type: ignore[arg-type]
    (lambda: Context(cache=0.5), "config: cache must be 0 or 1; got 0.5. Leave it out for the default, True?"),  # type: ignore[arg-type]
    (
        lambda: Context(DEVICE="nope"),
        "config: DEVICE must name a device; got 'nope'; there are cpu, disk, npy, null, python. Compute on \"CPU\"?",
    ),
    (
        lambda: from_environment({"DEVICE": "cpu:x"}),
        "config: DEVICE must name a device; got 'cpu:x'; there are cpu, disk, npy, null, python. Is \"CPU\" meant?",
    ),
    (
        lambda: from_environment({"BEAM": "x"}),
        "config: BEAM must be a whole number; got 'x'. Leave it out for the default, 0?",
    ),
    (
        lambda: from_environment({"INTAGLIO_CACHE": "2"}),
        "config: INTAGLIO_CACHE must be 0 or 1; got '2'. Leave it out for the default, True?",
    ),
    (
        lambda: dtypes.from_numpy(np.dtype(">f4")),
        "dtypes.from_numpy: the dtype must be one of bool, int8, int16, int32, int64, uint8, uint16, uint32, "
        "uint64, float8_e4m3, float8_e5m2, float16, bfloat16, float32, float64, or NumPy's, in native byte "
        'order; got >f4. Convert the array with .astype("float32") first?',
    ),
    (lambda: dtypes.from_py("3"), "dtype: a number must be a bool, int or float; got str. Convert it with float(...)?"),
    (
        lambda: promote_weak(dtypes.int8, complex),
        "dtype: a number must be a bool, int or float; got complex. Convert it with float(...)?",
    ),
    (lambda: result_type(), "result_type: there must be an operand; got none. Give a dtype or a number?"),
]


@pytest.mark.parametrize(("call", "text"), CASES)
def test_the_core_says_what_must_hold_and_what_came(call: Callable[[], object], text: str) -> None:
    with pytest.raises(IntaglioError) as caught:
        call()
    assert str(caught.value) == text
