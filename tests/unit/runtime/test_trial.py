"""Candidates that crash, hang or write what they should not are found out, and harm nothing."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from intaglio.runtime.apart import Apart, LostError
from intaglio.runtime.trial import Code, Job, Memory

if TYPE_CHECKING:
    from collections.abc import Generator

SIZE = 1000
JOB = Job((Memory(4 * SIZE, "float32", False), Memory(4 * SIZE, "float32", True)), ((0, 0), (1, 0)), 2, False)
KERNEL = """
declare void @abort()
define void @kernel(ptr %args, i64 %begin, i64 %end) {{
entry:
  %in = load ptr, ptr %args
  %out.at = getelementptr i64, ptr %args, i64 1
  %out = load ptr, ptr %out.at
  br label %loop
loop:
  %i = phi i64 [{first}, %entry], [%j, %loop]
  %from = getelementptr float, ptr %in, i64 %i
  %x = load float, ptr %from
  %y = {value}
  %to = getelementptr float, ptr %out, i64 %i
  store float %y, ptr %to
  {more}
  %j = add i64 %i, 1
  %go = icmp slt i64 %j, {last}
  br i1 %go, label %loop, label %done
done:
  {then}
  ret void
}}
"""


def kernel(value: str = "fadd float %x, %x", first: int = 0, last: int = SIZE, more: str = "", then: str = "") -> Code:
    """A kernel that doubles numbers, or does something else."""
    return Code(KERNEL.format(value=value, first=first, last=last, more=more, then=then), "kernel", 1)


MODEL = kernel()
GOOD = kernel("fmul float %x, 2.0")
LONG = """br label %wait
wait:
  %n = phi i64 [0, %done], [%m, %wait]
  %m = add i64 %n, 1
  store volatile i64 %m, ptr %args
  %on = icmp ne i64 %m, 0
  br i1 %on, label %wait, label %leave
leave:"""


@pytest.fixture
def process() -> Generator[Apart]:
    """A process apart."""
    made = Apart()
    yield made
    made.close()


def test_a_kernel_with_the_same_result_has_a_ratio(process: Apart) -> None:
    seconds = process.ask((JOB, MODEL), 30)
    assert isinstance(seconds, float)
    assert 0 < seconds < 1
    ratio = process.ask(GOOD, 10)
    assert isinstance(ratio, float)
    assert 0.01 < ratio < 100
    slow = kernel(more="store volatile float %x, ptr %to\n" * 20 + "store volatile float %y, ptr %to")
    slower = process.ask(slow, 10)
    assert isinstance(slower, float)
    assert slower > ratio
    assert process.starts == 1


@pytest.mark.parametrize(
    "wrong",
    [
        kernel("fmul float %x, 3.0"),
        kernel(last=SIZE - 1),
        kernel(first=-1),
        kernel(last=SIZE + 1),
        kernel(more="store float 0.0, ptr %from"),
        Code("no code", "kernel", 1),
        Code(MODEL.source, "missing", 1),
    ],
    ids=["another value", "one missing", "before", "past the end", "an input written", "invalid", "no function"],
)
def test_a_wrong_one_has_none(process: Apart, wrong: Code) -> None:
    process.ask((JOB, MODEL), 30)
    assert process.ask(wrong, 10) is None
    assert isinstance(process.ask(GOOD, 10), float)  # what it wrote is not there any more
    assert process.starts == 1


def test_one_that_crashes_or_hangs_is_lost_and_the_next_are_tried(process: Apart) -> None:
    started = time.monotonic()
    for bad, limit in (
        (kernel(then="call void @abort()"), 10),
        (kernel(more="store float 0.0, ptr null"), 10),
        (kernel(then=LONG), 0.3),
    ):
        assert isinstance(process.ask((JOB, MODEL), 30), float)
        with pytest.raises(LostError):
            process.ask(bad, limit)
        assert process.ask(GOOD, 10) is None  # a new process knows no job
        assert isinstance(process.ask((JOB, MODEL), 30), float)
        assert isinstance(process.ask(GOOD, 10), float)
    assert process.starts == 4
    assert time.monotonic() - started < 60


def test_a_kernel_that_reads_what_it_writes_starts_from_the_same_each_time(process: Apart) -> None:
    once = Job((Memory(4 * SIZE, "float32", True),), ((0, 0), (0, 0)), 1, True)
    process.ask((once, MODEL), 30)
    assert isinstance(process.ask(GOOD, 10), float)
    assert process.ask(kernel("fadd float %x, 1.0"), 10) is None


def test_any_nan_is_as_good_as_another(process: Apart) -> None:
    nan, other, zero = "0x7FF8000000000000", "0xFFF8000000000000", "0.0"
    values = [kernel(f"select i1 true, float {v}, float %x") for v in (nan, other, zero)]
    process.ask((JOB, values[0]), 30)
    assert isinstance(process.ask(values[1], 10), float)
    assert process.ask(values[2], 10) is None


def test_a_process_that_cannot_start_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Apart()
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(LostError):
        process.ask((JOB, MODEL), 1)
    monkeypatch.setattr("sys.executable", "")
    with pytest.raises(LostError):
        process.ask((JOB, MODEL), 1)
    assert process.starts == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_after_fork_has_a_process_of_its_own(process: Apart) -> None:
    process.ask((JOB, MODEL), 30)
    child = os.fork()
    if child == 0:
        fine = process.ask(GOOD, 10) is None and isinstance(process.ask((JOB, MODEL), 30), float)
        process.close()
        os._exit(0 if fine and process.starts == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert isinstance(process.ask(GOOD, 10), float)
    assert process.starts == 1
