"""The comparisons, but for their times: what is run does what it is said to do, and what is absent is said to be."""

from __future__ import annotations

import ctypes
import inspect
import json
import math
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from benchmarks import limits, loops, overheads, worker
from benchmarks.limits import Level, Limits
from benchmarks.overheads import OVERHEADS, Overhead
from benchmarks.peers import LOOP, OWN, PEERS
from benchmarks.report import Cell, Results, Row, render
from benchmarks.works import WORKS
from intaglio import Context, GlobalCounters
from intaglio.runtime.compiler import Compiler, host_caches, host_target
from intaglio.runtime.taking import SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.works import Work

ROOT: Final = Path(__file__).parents[2]
VECTOR: Final = host_target(1).vector_bytes
LEVELS: Final = [Level("third cache", 1e6, 4e9, 8e9), Level("memory", math.inf, 1e9, 2e9)]


@pytest.mark.skipif(loops.compiler() is None, reason="there is no compiler of C")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("work", [work for work in WORKS if work.c], ids=lambda work: work.name)
def test_a_loop_in_c_gives_the_bits_of_numpy(work: Work, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
    draw = np.random.default_rng(0)
    taken = inspect.signature(work.tensors).parameters
    inputs = [tuple(draw.standard_normal(100_003, dtype=np.float32) for _ in taken) for _ in range(2)]
    run = PEERS[LOOP].runner(work)(inputs)
    assert run is not None
    assert work.arrays is not None
    for got, given in zip(run(), inputs, strict=True):
        assert np.array_equal(got, work.arrays(np, *given))


def test_without_a_compiler_the_loop_in_c_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert PEERS[LOOP].missing() == "not installed (no cc, gcc, clang)"


def test_work_without_a_loop_in_c_is_none_of_its() -> None:
    work = next(work for work in WORKS if not work.c)
    assert PEERS[LOOP].runner(work)([]) is None


def ran(source: str, given: np.ndarray, out: np.ndarray, chunks: Sequence[tuple[int, int]]) -> None:
    """Some chunks of a loop that measures."""
    address, _ = Compiler(lambda: None).load(source, "loop")
    slots = (ctypes.c_uint64 * 2)(given.ctypes.data, out.ctypes.data)
    for begin, end in chunks:
        SIGNATURE(address)(ctypes.addressof(slots), begin, end, None)


@pytest.mark.parametrize("mark", ["", ", !nontemporal !0"])
@pytest.mark.parametrize(("passes", "chunks"), [(1, [(0, 2), (2, 3)]), (4, [(0, 1), (1, 2), (2, 3)])])
def test_a_copy_goes_through_the_parts_of_its_chunks(passes: int, chunks: list[tuple[int, int]], mark: str) -> None:
    part = 2 * limits.WIDE * VECTOR
    given, out = limits.aligned(4 * part), limits.aligned(4 * part)
    given[:] = np.arange(given.size)
    ran(limits.stream(VECTOR, part, passes * part, copied=True, mark=mark), given, out, chunks)
    assert np.array_equal(out[: 3 * part // 4], given[: 3 * part // 4])
    assert not out[3 * part // 4 :].any()


@pytest.mark.parametrize("passes", [1, 4])
def test_a_read_sums_its_part_as_often_as_it_is_asked_to(passes: int) -> None:
    part = 4 * limits.WIDE * VECTOR
    given, out = limits.aligned(2 * part), limits.aligned(2 * part)
    given[:] = np.arange(given.size) % 7
    ran(limits.stream(VECTOR, part, passes * part), given, out, [(1, 2)])
    assert out.sum() == passes * given[part // 4 :].sum()


@pytest.mark.parametrize("dtype", list(limits.multiplied(VECTOR)))
def test_a_peak_is_of_multiply_adds(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STEPS", 5)
    sums = 3
    given, out = limits.aligned(4 * VECTOR), limits.aligned(4 * VECTOR)
    numbers = np.arange(VECTOR // limits.multiplied(VECTOR)[dtype]) % 8
    if dtype == "bfloat16":
        given.view(np.uint16)[: numbers.size] = numbers.astype(np.float32).view(np.uint32) >> 16
    else:
        given.view(dtype)[: numbers.size] = numbers
    ran(limits.multiply_adds(VECTOR, dtype, sums), given, out, [(0, 1)])
    found = out.view(np.int32 if dtype == "int8" else np.float32)[: sums * VECTOR // 4].reshape(sums, -1)
    assert np.array_equal(found, [5 * (numbers**2).reshape(VECTOR // 4, -1).sum(1)] * sums)


def test_limits_are_of_known_caches_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, less in (("ARRAY", 1 << 22), ("MOVED", 1 << 22), ("STEPS", 100)):
        monkeypatch.setattr(limits, name, less)
    found = limits.measure(2, tries=1, seconds=0)
    assert [level.name for level in found.levels] == [*(limits.CACHES[key] for key in sorted(host_caches())), "memory"]
    assert min(rate for level in found.levels for rate in (level.read, level.copy)) > 0
    assert set(found.flops) == set(limits.multiplied(VECTOR))
    assert Limits.of(json.loads(json.dumps(asdict(found)))) == found


def test_work_is_limited_by_the_level_that_holds_it_and_by_its_dtype() -> None:
    found = Limits(LEVELS, {"float32": 1e9, "int8": 4e9})
    assert found.seconds(1e6, 0) == 1e6 / 8e9
    assert found.seconds(2e6, 0) == 2e6 / 2e9
    assert (found.seconds(0, 1e9), found.seconds(0, 1e9, "int8"), found.seconds(0, 1e9, "bfloat16")) == (1, 0.25, 0)


def page(rows: list[Row], costs: list[Row], missing: dict[str, str]) -> str:
    """A page of one run by ours and NumPy."""
    return render(Results(rows, costs, [OWN, "numpy"], missing, {2: Limits(LEVELS, {"float32": 1e9})}, 3))


def test_a_line_is_held_against_the_peer_that_it_names() -> None:
    cell = Cell({OWN: 2e-3, "numpy": 1e-3, LOOP: 3e-3}, {}, 1e-3, 1)
    assert cell.ratio(None, "") == 0.5
    assert cell.ratio(None, LOOP) == 1.5
    assert cell.ratio(None, "jax") is None
    assert cell.ratio(1e-3, "") == 0.5


def test_a_page_shows_limits_lines_and_overheads() -> None:
    rows = [
        Row("chain", "1.0 x c loop", 1.0, rival=LOOP, cells={2: Cell({OWN: 2e-3, "numpy": 1e-3}, {}, 1e-3, 1)}),
        Row("sum", "1.0 x best peer", 1.0, cells={2: Cell({OWN: 2e-3, "numpy": 1e-3}, {}, 0.0, 1)}),
    ]
    costs = [Row("a launch", "below 5 µs", 1.0, 5e-6, cells={2: Cell({OWN: 2.5e-9}, {"numpy": "it fell"}, 0.0, 0)})]
    text = page(rows, costs, {LOOP: "not installed"})
    for line in (
        "c loop: not installed.",
        "| threads | third cache, read / copied | memory, read / copied | float32 multiply-adds |",
        "| 2 | 4.0 / 8.0 GB/s | 1.0 / 2.0 GB/s | 1 GFLOP/s |",
        "| work | aim | intaglio | numpy | limit | kernels | ratio | met |",
        "| chain | 1.0 x c loop | 2 ms | 1 ms | 1 ms | 1 | - | - |",
        "| sum | 1.0 x best peer | 2 ms | 1 ms | - | 1 | 0.50 | 0.50 |",
        "## Overheads",
        "| overhead | aim | intaglio | ratio | met |",
        "| a launch | below 5 µs | 2.5 ns | 2000.00 | yes |",
        "- a launch, numpy, 2 threads: it fell",
    ):
        assert f"\n{line}\n" in text
    assert "Overheads" not in page(rows, [], {})
    assert "| work |" not in page([], costs, {})


@pytest.mark.parametrize("line", OVERHEADS, ids=lambda line: line.name)
def test_an_overhead_is_measured_and_its_peer_only_where_it_is(line: Overhead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overheads, "CALLS", 3)
    there = [] if PEERS["torch"].missing() else ["torch"]
    compared = line.bound is None
    for peers in ([], there):
        with Context(threads=2):
            times = line.measure(2, peers)
        assert set(times) == ({OWN, *peers} if compared else {OWN})
        assert all(len(tries) == 2 and min(tries) > 0 for tries in times.values())
    assert compared == (line.aim == "1.0 x torch")


def test_what_is_launched_is_the_kernel_of_a_flush() -> None:
    run, given, tensors = overheads.recorded()
    result = tensors[-1].numpy(copy=False)
    result[:] = 0
    GlobalCounters.reset()
    run(*given)
    assert (GlobalCounters.kernel_count, GlobalCounters.launch_count) == (1, 1)
    assert np.array_equal(result, 2 * np.arange(16))


@pytest.mark.parametrize("empty", [False, True])
def test_what_is_replayed_adds_or_does_nothing(empty: bool) -> None:
    call, tensors = overheads.replay(empty=empty)
    result = tensors[-1].numpy(copy=False)
    result[:] = 0
    call()
    assert np.array_equal(result, 2 * np.arange(16) * (not empty))


def test_an_overhead_that_fails_says_why() -> None:
    def fails(tries: int, peers: object) -> dict[str, list[float]]:
        raise RuntimeError("no threads\nat all")

    answer = worker.cost(Overhead("one", None, fails), [], 1)
    assert answer == {"seconds": {}, "failures": {OWN: "RuntimeError: no threads"}, "kernels": 0}


def test_a_part_of_the_table_goes_to_the_screen() -> None:
    results = ROOT / "benchmarks" / "RESULTS.md"
    before = results.read_bytes()
    command = [sys.executable, "-m", "benchmarks", "--only", "a launch", "--quick", "--threads", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, "--peers", OWN], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    assert "| overhead | aim | intaglio | ratio | met |" in done.stdout
    assert "| a launch from Python | below 5 µs |" in done.stdout
    assert "| 1 |" in done.stdout
    assert results.read_bytes() == before


@pytest.mark.parametrize(
    ("ours", "limit", "expected"),
    [(1.0, 0.8, "yes"), (0.5, 0.2, "0.50"), (2.0, 1.9, "0.50"), (1.0, 0.4, "0.50"), (1.02, 0.9, "yes")],
)
def test_a_line_reaches_what_it_reaches_least_of_its_figures(ours: float, limit: float, expected: str) -> None:
    row = Row("a product", "1.0 x best peer, 0.8 of limit", 1.0, share=0.8)
    row.cells[1] = Cell({OWN: ours, "numpy": 1.0}, {}, limit, 1)
    page = render(Results([row], [], [OWN, "numpy"], {}, {1: Limits(LEVELS, {"float32": 1e9})}, 1))
    assert f"| {expected} |" in page
