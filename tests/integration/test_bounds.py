"""What is pending never holds more than the bounds say: it flushes by itself, and every value stays the same."""

from __future__ import annotations

import numpy as np

from intaglio import Context, GlobalCounters, Tensor, dtypes
from intaglio.storage.storage import pending

LIMIT = 100_000


def test_rows_of_host_data_are_written_before_they_pile_up() -> None:
    rows = np.random.default_rng(0).standard_normal((100, 1000)).astype(np.float32)
    t = Tensor.zeros(100, 1000).realize()
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    with Context(JOURNAL_BYTES=LIMIT):
        for k in range(100):
            t[k] = rows[k]
    assert 2 <= GlobalCounters.launch_count <= 10
    assert GlobalCounters.peak - before < 2 * LIMIT + rows[0].nbytes
    assert np.array_equal(t.numpy(), rows)


def test_the_bound_is_on_all_storages_together() -> None:
    targets = [Tensor(np.zeros(1000, np.float32)) for _ in range(60)]
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    with Context(JOURNAL_BYTES=LIMIT):
        for k, t in enumerate(targets):
            t[:] = np.full(1000, k, np.float32)
    assert GlobalCounters.peak - before < 2 * LIMIT
    assert [t[5].item() for t in targets] == list(range(60))


def test_what_a_tensor_holds_is_not_pending() -> None:
    x = Tensor(np.ones(100_000, np.float32))
    t = Tensor.zeros(8).realize()
    GlobalCounters.reset()
    with Context(JOURNAL_BYTES=LIMIT):
        others = [Tensor(np.ones(20_000, np.float32)) for _ in range(3)]
        for k in range(8):
            t[k : k + 1] = x[k : k + 1] * k
    assert GlobalCounters.launch_count == 0
    assert t.tolist() == list(range(8))
    assert len(others) == 3


def test_values_that_nobody_prints_do_not_hold_their_data() -> None:
    average = Tensor(np.zeros(1000, np.float32))
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    with Context(JOURNAL_BYTES=LIMIT):
        for k in range(200):
            average = average * 0.5 + Tensor(np.full(1000, k, np.float32))
    assert GlobalCounters.launch_count > 2
    assert GlobalCounters.peak - before < 3 * LIMIT
    assert abs(average[3].item() - 2 * 198) < 1e-3


def test_positions_count_as_well() -> None:
    t = Tensor.zeros(50, dtype=dtypes.int64).realize()
    GlobalCounters.reset()
    with Context(JOURNAL_BYTES=LIMIT):
        for k in range(200):
            t[np.arange(500) % 50] = k
    assert GlobalCounters.launch_count > 2
    assert t.tolist() == [199] * 50


def test_numbers_are_written_before_they_pile_up() -> None:
    t = Tensor.zeros(5000, dtype=dtypes.int32).realize()
    GlobalCounters.reset()
    most = 0
    with Context(JOURNAL_BYTES=LIMIT):
        for k in range(5000):
            t[k] = k
            if not k % 100:
                most = max(most, sum(len(s.last.numbers) for s in pending if s.last is not None))
    assert most <= LIMIT // 128
    assert GlobalCounters.launch_count >= 5
    assert t.tolist() == list(range(5000))


def test_segments_that_reads_close_are_counted_together() -> None:
    t = Tensor.zeros(100, dtype=dtypes.int32).realize()
    GlobalCounters.reset()
    seen = []
    with Context(JOURNAL_BYTES=LIMIT):
        for turn in range(40):
            for k in range(100):
                t[k] = turn + k
            seen.append(t[:2] + 0)
    assert GlobalCounters.launch_count >= 3
    assert [s.tolist() for s in seen] == [[turn, turn + 1] for turn in range(40)]
    assert t.tolist() == list(range(39, 139))


def test_without_need_nothing_is_written_early() -> None:
    t = Tensor.zeros(2000).realize()
    GlobalCounters.reset()
    for k in range(2000):
        t[k] = k
    for k in range(0, 2000, 100):
        t[k : k + 100] = np.arange(100)
    assert GlobalCounters.launch_count == 0
