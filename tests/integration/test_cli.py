"""The command line: what each command prints, in processes of its own where the cache matters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import intaglio
from intaglio import Context, GlobalCounters
from intaglio.cli import demo
from intaglio.cli.main import main
from intaglio.core.errors import FileFormatError
from tests.integration.test_minilm import needs_weights

SOURCE = Path(__file__).parents[2] / "src"
SMALL_DEMO = "import sys; from intaglio.cli import demo, main; demo.PASSAGES = 12; sys.exit(main.main(sys.argv[1:]))"


def run(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python process that sees the package, and of its settings those given."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("INTAGLIO_") and k not in ("DEBUG", "DEVICE")}
    kept |= {"PYTHONPATH": str(SOURCE)} | environment
    return subprocess.run([sys.executable, *arguments], env=kept, capture_output=True, text=True, timeout=240)


@needs_weights
def test_the_demo_finds_the_passage_and_compiles_nothing_when_run_again(tmp_path: Path) -> None:
    command = ["-c", SMALL_DEMO, "demo", "--query", "how do I slice a list"]
    first, second = (run(command, INTAGLIO_CACHE_DIR=str(tmp_path)) for _ in range(2))
    for done in (first, second):
        assert done.returncode == 0, done.stderr
        assert "1000 writes, 1 kernel: the values are [0.0, 1.0, 2.0, 3.0] to 999.0." in done.stdout
        assert "void E_1000(float *data0) {" in done.stdout
        assert "kernels run in" in done.stdout
    assert " s and kept on disk: a second run compiles none." in first.stdout
    assert "0 programs compiled: all came from the cache on disk." in second.stdout
    assert (
        first.stdout.split("kernels run")[0].rsplit("\n", 1)[0]
        == second.stdout.split("kernels run")[0].rsplit("\n", 1)[0]
    )


def test_the_demo_tells_whether_what_it_compiled_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GlobalCounters, "compile_count", 1)
    monkeypatch.setattr(GlobalCounters, "compile_seconds", 0.25)
    with Context(cache=True):
        assert demo.compiled() == "1 program compiled in 0.25 s and kept on disk: a second run compiles none."
    with Context(cache=False):
        assert demo.compiled() == "1 program compiled in 0.25 s; there is no cache on disk to keep them."


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert (done.value.code, capsys.readouterr().out) == (0, f"intaglio {intaglio.__version__}\n")


def test_info_says_where_each_setting_comes_from(tmp_path: Path) -> None:
    done = run(["-m", "intaglio", "info"], DEBUG="0", INTAGLIO_BEAM="2", INTAGLIO_CACHE_DIR=str(tmp_path))
    lines = {line.split()[0]: line.split() for line in done.stdout.splitlines()}
    assert lines["devices:"] == ["devices:", "cpu,", "disk,", "npy,", "null,", "python"]
    assert lines["debug"][:4] == ["debug", "0", "from", "DEBUG"]
    assert lines["beam"][:4] == ["beam", "2", "from", "INTAGLIO_BEAM"]
    assert lines["threads"][:3] == ["threads", "0", "default"]
    assert done.stderr == ""


def test_the_cache_is_counted_and_cleared(tmp_path: Path) -> None:
    loop = "from intaglio import Tensor; (Tensor([1.0, 2.0]) * 3).tolist()"
    assert run(["-c", loop], INTAGLIO_CACHE_DIR=str(tmp_path)).returncode == 0
    cleared = run(["-m", "intaglio", "cache", "--clear"], INTAGLIO_CACHE_DIR=str(tmp_path))
    assert cleared.stdout.endswith("cleared\n")
    assert not cleared.stdout.startswith("0 kernels")
    assert run(["-m", "intaglio", "cache"], INTAGLIO_CACHE_DIR=str(tmp_path)).stdout.startswith("0 kernels, 0.0 MB in ")
    assert run(["-m", "intaglio", "cache"], INTAGLIO_CACHE="0").stdout == "the cache is off\n"


def test_a_folder_that_can_hold_no_cache_is_said_to_be_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = run(["-m", "intaglio", "cache"], INTAGLIO_CACHE_DIR=str(file))
    told = f"intaglio: cache: its folder must be one that can be written; {file} is not. Set INTAGLIO_CACHE_DIR?\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)


def test_what_searches_found_is_shown_and_forgotten(tmp_path: Path) -> None:
    loop = "import numpy as np; from intaglio import Tensor; (Tensor(np.ones(300_000, np.float32)) * 3 + 1).numpy()"
    assert run(["-c", loop], BEAM="1", INTAGLIO_CACHE_DIR=str(tmp_path)).returncode == 0
    shown = run(["-m", "intaglio", "cache"], INTAGLIO_CACHE_DIR=str(tmp_path)).stdout.splitlines()
    assert [line.split(",")[0] for line in shown[1:]] == ["tuned: E_300000"]
    kernels = shown[0].split()[0]
    cleared = run(["-m", "intaglio", "cache", "--clear-tuned"], INTAGLIO_CACHE_DIR=str(tmp_path))
    assert cleared.stdout.endswith("cleared what was tuned\n")
    left = run(["-m", "intaglio", "cache"], INTAGLIO_CACHE_DIR=str(tmp_path)).stdout
    assert left.startswith(f"{kernels} kernels")
    assert "tuned" not in left


def test_a_reader_that_leaves_early_is_no_error() -> None:
    done = run(
        ["-c", "import subprocess, sys; p = subprocess.Popen([sys.executable, '-m', 'intaglio', 'info'], "
         "stdout=subprocess.PIPE); p.stdout.close(); sys.exit(p.wait())"]
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_no_command_and_an_unknown_one_are_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["engrave"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        assert "usage: intaglio" in capsys.readouterr().err


def test_an_error_of_ours_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(corpus: str) -> list[str]:
        raise FileFormatError("demo: something is missing.")

    monkeypatch.setattr(demo, "passages", fail)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "intaglio: demo: something is missing.\n"


@pytest.mark.parametrize("corpus", ["topics", "docs"])
def test_passages_are_many_and_short_but_no_more_than_asked(corpus: str) -> None:
    texts = demo.passages(corpus)
    assert 5 < len(texts) <= demo.PASSAGES
    assert all(80 <= len(text) <= 700 for text in texts)
