"""The search for better code: what it finds is used, kept, and harms nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Context, Tensor
from intaglio.core.trace import GlobalCounters
from intaglio.engine import tune
from intaglio.engine.devices import Cpu, Executable, device_of
from intaglio.engine.tune import Trials, Winner, winner_from
from intaglio.lower.choice import Choice, choice_of
from intaglio.runtime.apart import LostError
from intaglio.runtime.trial import Code
from intaglio.storage.flush import plans

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable

    from intaglio.engine.devices import Launches
    from intaglio.lower.kernel import Lowered

SOURCE = Path(__file__).parents[3] / "src"
SIZE = 10_007


class Fake:
    """A process apart that answers by a function of the source: a timer, a crash, a hang."""

    def __init__(self, answer: Callable[[str], float | None]) -> None:
        self.answer = answer
        self.jobs = 0
        self.ready = False

    def ask(self, request: object, limit: float) -> float | None:
        if isinstance(request, tuple):
            self.jobs += 1
            self.ready = True
            return 1e-3
        if not isinstance(request, Code):
            self.ready = False
            return None
        assert self.ready
        assert limit > 0
        try:
            return self.answer(request.source)
        except LostError:
            self.ready = False
            raise


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Executable]:
    """What the CPU ran, with nothing tuned before, and a cache of its own."""
    seen: list[Executable] = []
    run = Cpu.run

    def noted(device: Cpu, launches: Launches, slots: array[int], first: int, last: int, threads: int) -> None:
        seen.extend(launches.executables)
        run(device, launches, slots, first, last, threads)

    monkeypatch.setattr(Cpu, "run", noted)
    monkeypatch.setattr(tune, "_chosen", type(tune._chosen)())
    monkeypatch.setenv("INTAGLIO_CACHE_DIR", str(tmp_path))
    return seen


def program(x: Tensor, cache: Path, beam: int = 1) -> np.ndarray:
    """One kernel, searched for."""
    with Context(BEAM=beam, cache_dir=str(cache)):
        return (x * 3 + 1).sqrt().numpy()


def operand() -> tuple[Tensor, np.ndarray]:
    """Some numbers, and what the program makes of them."""
    array = np.random.default_rng(0).uniform(0, 1, SIZE).astype(np.float32)
    x = Tensor(array).realize()
    return x, (x * 3 + 1).sqrt().numpy()


def chosen(executable: Executable) -> Choice:
    """What its code has otherwise than the model's."""
    return choice_of(executable.lowered.decisions)


def test_the_winner_is_used_and_kept(monkeypatch: pytest.MonkeyPatch, ran: list[Executable], tmp_path: Path) -> None:
    x, expected = operand()
    model = ran[-1].source
    sources: list[str] = []

    def timer(source: str) -> float:
        sources.append(source)
        return 0.5 if sources[1:2] == [source] else 0.9

    fake = Fake(timer)
    monkeypatch.setattr(tune, "_process", fake)
    GlobalCounters.reset()
    assert np.array_equal(program(x, tmp_path), expected)
    assert (GlobalCounters.search_count, GlobalCounters.trial_count) == (1, len(sources))
    assert ran[-1].source == sources[1] != model
    (winner,) = in_cache(tmp_path)
    assert (winner.choice, winner.ratio, winner.beam) == (chosen(ran[-1]), 0.5, 1)
    GlobalCounters.reset()
    assert np.array_equal(program(x, tmp_path), expected)  # remembered
    tune._chosen.clear()
    assert np.array_equal(program(x, tmp_path), expected)  # found on disk
    assert ran[-1].source == sources[1]
    assert (GlobalCounters.search_count, GlobalCounters.trial_count, fake.jobs) == (0, 0, 1)
    assert np.array_equal((x * 3 + 1).sqrt().numpy(), expected)
    assert ran[-1].source == model  # BEAM is not set
    program(x, tmp_path, beam=2)
    assert GlobalCounters.search_count == 1  # a wider search is another


def in_cache(folder: Path) -> list[Winner]:
    """The winners that a folder keeps."""
    with Context(cache_dir=str(folder)):
        return tune.winners()


@pytest.mark.parametrize("lost", [True, False], ids=["crash or hang", "another result"])
def test_candidates_that_fail_are_dropped(
    lost: bool, monkeypatch: pytest.MonkeyPatch, ran: list[Executable], tmp_path: Path
) -> None:
    tried: list[str] = []

    def fail(source: str) -> float | None:
        tried.append(source)
        if tried[2:3] == [source]:
            return 0.8
        if lost:
            raise LostError("crashed")
        return None

    fake = Fake(fail)
    monkeypatch.setattr(tune, "_process", fake)
    x, expected = operand()
    assert np.array_equal(program(x, tmp_path), expected)
    assert len(set(tried)) > 3
    assert ran[-1].source == tried[2]
    assert (fake.jobs > 3) == lost  # a process that is lost is started again


class Timed(Fake):
    """A process apart, by whose clock each candidate takes some seconds; the second one has the best code."""

    def __init__(self, seconds: float) -> None:
        super().__init__(self.timer)
        self.now = 1000.0
        self.seconds = seconds
        self.tried: list[str] = []
        self.limits: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def timer(self, source: str) -> float:
        self.now += self.seconds
        self.tried.append(source)
        return 0.5 if source in self.tried[1:2] else 0.9

    def ask(self, request: object, limit: float) -> float | None:
        if isinstance(request, Code):
            self.limits.append(limit)
        return super().ask(request, limit)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_search_ends_with_its_time_and_gives_the_best_so_far(
    beam: int, monkeypatch: pytest.MonkeyPatch, ran: list[Executable], tmp_path: Path
) -> None:
    x, expected = operand()
    endless, ended = Timed(0), Timed(8)
    for number, timed in enumerate((endless, ended)):
        folder = tmp_path / str(number)
        monkeypatch.setattr(tune, "_process", timed)
        monkeypatch.setattr(tune, "time", timed)
        tune._chosen.clear()
        plans.clear()
        with Context(beam_seconds=20):
            assert np.array_equal(program(x, folder, beam), expected)
        assert ran[-1].source == timed.tried[1]
        assert [winner.ratio for winner in in_cache(folder)] == [0.5]
    assert len(endless.tried) > 4
    assert endless.now == 1000.0
    # After 24 seconds only the best is measured once more. A candidate has what time is left, but a second at least.
    assert ended.tried == [*endless.tried[:3], endless.tried[1]]
    assert ended.limits == [10.0, 10.0, 4.0, 1.0]


def test_where_the_model_cannot_be_tried_it_is_used(
    monkeypatch: pytest.MonkeyPatch, ran: list[Executable], tmp_path: Path
) -> None:
    def crash(*_: object) -> None:
        raise LostError("crashed")

    monkeypatch.setattr(Fake, "ask", crash)
    monkeypatch.setattr(tune, "_process", Fake(lambda _: 0.1))
    x, expected = operand()
    GlobalCounters.reset()
    assert np.array_equal(program(x, tmp_path), expected)
    assert chosen(ran[-1]) == Choice()
    assert GlobalCounters.search_count == 0
    assert in_cache(tmp_path) == []


def test_a_kept_choice_that_gives_other_code_now_is_searched_for_again(
    monkeypatch: pytest.MonkeyPatch, ran: list[Executable], tmp_path: Path
) -> None:
    monkeypatch.setattr(tune, "_process", Fake(lambda _: 0.9))
    x, expected = operand()
    GlobalCounters.reset()
    program(x, tmp_path)
    tune._chosen.clear()
    plans.clear()
    monkeypatch.setattr(tune, "_digest", lambda source: f"another {len(source)}")
    assert np.array_equal(program(x, tmp_path), expected)
    assert GlobalCounters.search_count == 2


def test_a_choice_that_cannot_be_lowered_or_compiled_harms_nothing(
    monkeypatch: pytest.MonkeyPatch, ran: list[Executable], tmp_path: Path
) -> None:
    """With a real process: candidates end it, or are no code at all."""
    x, expected = operand()
    source, lower = Cpu.source, Cpu.lower
    broken: list[str] = []

    def breaking(device: Cpu, lowered: Lowered) -> str:
        text = source(device, lowered)
        if chosen_of(lowered) == Choice():
            return text
        broken.append(("call void @abort()", "soup", "store i8 0, ptr null")[len(broken) % 3])
        return "declare void @abort()\n" + text.replace("ret void", f"{broken[-1]}\n  ret void")

    def raising(device: Cpu, ast: object, size_slot: object = None, choice: Choice = Choice()) -> Lowered:  # noqa: B008
        if choice.answers and choice.answers[0][1] == "lanes":
            raise ZeroDivisionError
        return lower(device, ast, size_slot, choice)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Cpu, "source", breaking)
    monkeypatch.setattr(Cpu, "lower", raising)
    assert np.array_equal(program(x, tmp_path), expected)
    assert len(broken) >= 3
    assert chosen(ran[-1]) == Choice()
    tune._process.close()


def chosen_of(lowered: Lowered) -> Choice:
    """What some code has otherwise than the model's."""
    return choice_of(lowered.decisions)


def test_a_second_process_searches_nothing(tmp_path: Path) -> None:
    text = (
        "import numpy as np\n"
        "from intaglio import Tensor\n"
        "from intaglio.core.trace import GlobalCounters as G\n"
        "x = Tensor(np.arange(300_000, dtype=np.float32))\n"
        "print(((x * 3 + 1) * x).numpy().sum(), G.search_count, G.trial_count > 0)\n"
    )
    environment = os.environ | {"BEAM": "1", "INTAGLIO_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(SOURCE)}
    said = [
        subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=120)
        for _ in range(2)
    ]
    assert [done.stderr for done in said] == ["", ""]
    (first, searched, tried), (second, *rest) = (done.stdout.split() for done in said)
    assert (first, searched, tried) == (second, "1", "True")
    assert rest == ["0", "False"]
    with Context(cache_dir=str(tmp_path)):
        assert len(tune.winners()) == 1
        tune.forget()
        assert tune.winners() == []


def test_other_devices_and_kernels_without_decisions_are_the_models(
    monkeypatch: pytest.MonkeyPatch, ran: list[Executable], tmp_path: Path
) -> None:
    def never(_: str) -> float:
        raise AssertionError

    monkeypatch.setattr(tune, "_process", Fake(never))
    with Context(BEAM=2, cache_dir=str(tmp_path)):
        assert (Tensor([1.0, 2.0], device="PYTHON") * 3).tolist() == [3.0, 6.0]
        assert (Tensor([5]) * 3).tolist() == [15]


def test_a_winner_is_read_back() -> None:
    choice = Choice(((0, "tile", (8, 3)), (1, "pack", 1)))
    winner = Winner("r_3_4", choice, "abc", 0.75, 2, 4)
    assert winner_from(winner.to_bytes()) == winner
    assert str(winner.choice) == "tile 8x3, pack 1"
    for damage in (b"", b"{}", b"[]", b"\xff", b'{"choice": 3}', winner.to_bytes().replace(b"tile", b'"')):
        assert winner_from(damage) is None


def test_trials_begin_again_after_one_was_lost() -> None:
    assert device_of("CPU").kind == "CPU"

    def crash(_: str) -> float:
        raise LostError("crashed")

    fake = Fake(crash)
    trials = Trials(fake, None, None)  # pyright: ignore[reportArgumentType]
    assert trials.begin(1) == 1e-3
    assert trials.ratio(Code("", "", 1), 1) is None
    fake.answer = lambda _: 0.5
    assert trials.ratio(Code("", "", 1), 1) == 0.5
    assert fake.jobs == 2


def test_an_interrupt_ends_a_search_and_nothing_is_asked_after_it(
    monkeypatch: pytest.MonkeyPatch, ran: list[Executable], tmp_path: Path
) -> None:
    def interrupt(_: str) -> float:
        fake.ready = False
        raise KeyboardInterrupt

    fake = Fake(interrupt)
    monkeypatch.setattr(tune, "_process", fake)
    x, expected = operand()
    with pytest.raises(KeyboardInterrupt):
        program(x, tmp_path)
    assert fake.jobs == 1
    fake.answer = lambda _: 1.0
    assert np.array_equal(program(x, tmp_path), expected)
    assert fake.jobs == 2
