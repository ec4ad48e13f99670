"""What DEBUG prints and GRAPH draws."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from intaglio import Tensor
from intaglio.core.config import Context
from intaglio.core.trace import GlobalCounters
from intaglio.engine import debug
from intaglio.engine.devices import device_of

if TYPE_CHECKING:
    from pathlib import Path

LINE = re.compile(
    r"\*\*\* CPU +(\d+) (E_\w+) +arg +(\d+) mem +[\d.]+ GB tm +[\d.]+us +[\d.]+ GFLOPS +[\d.]+ GB/s "
    r"\['mul', 'add'\] (first run|replay)"
)


@pytest.fixture(autouse=True)
def _nothing_shown_yet() -> None:
    """Kernels are told once in a process; here, once in a test."""
    device_of("CPU").ran.clear()
    device_of("CPU").notes.clear()


def run(size: int = 3) -> list[float]:
    """A small program of one kernel."""
    return (Tensor([float(k) for k in range(size)]) * 3 + 4).tolist()


def shown(capsys: pytest.CaptureFixture[str], level: int) -> str:
    """What a run prints."""
    with Context(DEBUG=level):
        assert run() == [4.0, 7.0, 10.0]
    return capsys.readouterr().err


def test_level_0_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, 0) == ""


def test_level_1_prints_the_size_and_device_of_a_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, 1) == "schedule: 1 kernels on CPU\n"


def test_level_2_prints_a_line_a_kernel_that_marks_first_runs_and_replays(capsys: pytest.CaptureFixture[str]) -> None:
    GlobalCounters.reset()
    first, again = (LINE.search(shown(capsys, 2)) for _ in range(2))
    assert first is not None
    assert again is not None
    assert (first[1], first[4]) == ("1", "first run")
    assert (again[1], again[4]) == ("2", "replay")
    assert first[2] == again[2]


def test_level_3_prints_what_a_kernel_computes(capsys: pytest.CaptureFixture[str]) -> None:
    assert "  2 buffers, 1 statements: mul, add\n" in shown(capsys, 3)


def test_level_4_prints_the_source_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, 4).count("void E_") == 1
    assert "void E_" not in shown(capsys, 4)


@pytest.mark.parametrize(("level", "text"), [(5, "sink"), (6, "linear"), (7, ".text")])
def test_levels_above_print_graph_instructions_and_machine_code(
    capsys: pytest.CaptureFixture[str], level: int, text: str
) -> None:
    assert text in shown(capsys, level)
    device_of("CPU").ran.clear()
    assert text not in shown(capsys, level - 1)


def test_graphs_are_drawn_as_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with Context(GRAPH=1, GRAPHUOPS=1):
        run()
    assert capsys.readouterr().err == ""
    texts = {path.name.split("_")[1]: path.read_text() for path in tmp_path.glob("*.dot")}
    assert set(texts) == {"schedule", "kernel"}
    assert 'label="store' in texts["schedule"]
    assert all(text.startswith("digraph") and text.endswith("}") and " -> " in text for text in texts.values())


def test_a_picture_that_cannot_be_drawn_leaves_the_values_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Tensor([1.0, 2.0])
    t += 1

    def refuse(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(debug, "draw", refuse)
    with Context(GRAPHUOPS=1), pytest.raises(OSError, match="no space left"):
        t.realize()
    assert t.tolist() == [2.0, 3.0]
