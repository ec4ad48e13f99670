"""What a fresh process loads: LLVM for kernels that no cache has, and only then."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from intaglio.runtime.elf import is_supported

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = """
import sys
import numpy as np
from intaglio import Context, Tensor
from intaglio.core.trace import GlobalCounters
x = Tensor(np.arange(1_000_000, dtype=np.float32))
with Context(threads=2):
    print(((x * 2 + 1).exp() * {factor}).numpy()[7], (x[:16].softmax(0) @ x[:16]).item())
print(GlobalCounters.compile_count, "llvmlite" in sys.modules)
"""


def run(cache: Path, factor: int = 3) -> list[str]:
    """What the program prints."""
    environment = os.environ | {"INTAGLIO_CACHE_DIR": str(cache), "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(factor=factor)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(
    not (is_supported() and os.path.exists("/proc/cpuinfo")), reason="the machine is not known without LLVM here"
)
def test_llvm_is_loaded_only_for_kernels_that_are_new(tmp_path: Path) -> None:
    first, loaded = run(tmp_path)
    assert loaded.endswith("True")
    assert int(loaded.split()[0]) >= 2
    assert run(tmp_path) == [first, "0 False"]
    assert run(tmp_path, 2)[1] == "1 True"  # 2 is part of a kernel's text
    with sqlite3.connect(tmp_path / "kernels.sqlite3") as connection:
        changed = connection.execute("update objects set data = 'x' where key like 'host:%'").rowcount
    connection.close()
    assert changed == 1
    assert run(tmp_path) == [first, "0 True"]  # LLVM is asked again
    assert run(tmp_path) == [first, "0 False"]
