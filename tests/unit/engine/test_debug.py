"""What DEBUG prints and GRAPH draws."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from intaglio import Tensor
from intaglio.core.config import Context
from intaglio.core.trace import GlobalCounters
from intaglio.engine.devices import device_of
from intaglio.engine.draw import schedule_lines
from intaglio.storage.standing import plans

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
    device_of("CPU").told = True


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
    assert shown(capsys, 1) == "schedule: 1 kernel on CPU\n"


def test_level_1_names_a_device_once(capsys: pytest.CaptureFixture[str]) -> None:
    device_of("CPU").told = False
    device, schedule = shown(capsys, 1).splitlines()
    assert re.fullmatch(r"device: CPU, vectors of \d+ bytes, \d+ threads?", device)
    assert schedule == "schedule: 1 kernel on CPU"
    assert shown(capsys, 1) == "schedule: 1 kernel on CPU\n"
    with Context(DEBUG=1):
        (Tensor([1.0], device="PYTHON") + 1).realize()
    assert "device: PYTHON, the interpreter\n" in capsys.readouterr().err
    device_of("PYTHON").told = False


def test_level_5_prints_the_graph_before_and_after_rewriting(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, 5)
    before, after = (text.index(f"graph {when} rewriting:\n") for when in ("before", "after"))
    assert before < after
    assert " = add float32[3] " in text[before:after]
    assert "sink" not in text[before:after]
    assert "sink" in text[after:]


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
    said = capsys.readouterr().err.splitlines()
    assert sorted(said) == sorted(f"graph: {path}" for path in tmp_path.glob("*.dot"))
    texts = {path.name.split("_")[1]: path.read_text() for path in tmp_path.glob("*.dot")}
    assert set(texts) == {"tensors", "schedule", "kernel"}
    assert 'label="store' in texts["schedule"]
    assert 'label="mul' in texts["tensors"]
    assert 'label="store' not in texts["tensors"]
    assert all(text.startswith("digraph") and text.endswith("}") and " -> " in text for text in texts.values())


def test_kernels_are_drawn_in_order_each_with_its_own_parameters() -> None:
    x = Tensor.ones(64, 64).realize()
    kernels = (x.exp() @ x.exp() @ x).schedule()
    lines = schedule_lines(kernels)
    assert len(kernels) > 1
    arrows = [tuple(line.strip(" ;").split(" -> ")) for line in lines if " -> " in line and "style" not in line]
    for k, kernel in enumerate(kernels):
        assert sum(f"subgraph cluster_{k} " in line for line in lines) == 1
        params = [line.split()[0] for line in lines if line.startswith(f"  k{k}n") and '[label="param' in line]
        assert len(params) == len(kernel.buffers)
        assert {target for _, target in arrows if target in params} == set(params)
        drawn = [(source, target) for source, target in arrows if source[0] == "b" and target in params]
        assert len(drawn) == len(params)
        written = [target for source, target in arrows if source.startswith(f"k{k}n") and target[0] == "b"]
        assert len(written) == len(kernel.written)
    assert sum("style=dotted" in line for line in lines) == len(kernels) - 1
    inside = [(a, b) for a, b in arrows if a[0] == b[0] == "k"]
    assert all(a.split("n")[0] == b.split("n")[0] for a, b in inside)


def test_a_picture_that_cannot_be_written_stops_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with Context(GRAPH=1, GRAPHUOPS=1):
        assert run() == [4.0, 7.0, 10.0]
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"graph: the picture of the {kind} is not written; No such file or directory."
        for kind in ("tensors", "schedule", "kernel")
    ]


def test_level_3_tells_how_a_kernel_was_lowered_once(capsys: pytest.CaptureFixture[str]) -> None:
    plans.clear()  # of any size, too
    text = shown(capsys, 3)
    assert re.search(r"^lowered: E_3, \d+ loops?, (vectors of \d+|no vectors)$", text, re.MULTILINE)
    assert "lowered:" not in shown(capsys, 3)
    with Context(DEBUG=3):
        Tensor([[1.0] * 64] * 300).softmax(1).realize()
    found = re.search(
        r"^lowered: r_300_64\w*, \d+ loops, .*(\d+) bytes of scratch", capsys.readouterr().err, re.MULTILINE
    )
    assert found is not None
    assert int(found[1]) >= 0
