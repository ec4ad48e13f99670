"""Loops in C as a peer, made by the system's compiler at first use: what a person would write by hand.

One thread runs the plain loop; for more it is shared by OpenMP. Operations are rounded one by one, as NumPy does. The
result is kept from call to call, which is faster than fresh memory for each, so only the loop itself is timed.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMPILERS: Final = "cc", "gcc", "clang"
FLAGS: Final = "-O3", "-march=native", "-ffp-contract=off", "-fPIC", "-shared", "-x", "c", "-"
SOURCE: Final = """
void loop(float *restrict out, {inputs}, long count) {{
  #pragma omp parallel for
  for (long i = 0; i < count; i++) out[i] = {element};
}}
"""


def compiler() -> str | None:
    """The compiler, if there is one."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def about() -> str:
    """What the compiler says that it is."""
    return subprocess.run([compiler() or "", "--version"], capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )[0]


@functools.cache
def compiled(element: str, names: str, threads: int) -> Callable[..., None]:
    """A loop that computes each element of a result from those of its inputs, which have names of a letter."""
    source = SOURCE.format(inputs=", ".join(f"const float *restrict {name}" for name in names), element=element)
    shared = ["-fopenmp"] if threads > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "loop.so"
        done = subprocess.run(
            [compiler() or "", *shared, *FLAGS, "-o", place], input=source, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        function = ctypes.CDLL(str(place)).loop
    function.argtypes = [*[ctypes.c_void_p] * (1 + len(names)), ctypes.c_long]
    function.restype = None
    return function


def prepare(element: str, inputs: Sequence[tuple[np.ndarray, ...]]) -> Callable[[], list[np.ndarray]]:
    """A call that fills the results, each as large as the inputs that it is computed from."""
    names, threads = "xyz"[: len(inputs[0])], int(os.environ["OMP_NUM_THREADS"])
    function = compiled(element, names, threads)
    results = [np.empty_like(arrays[0]) for arrays in inputs]
    given: list[list[Any]] = [
        [*(a.ctypes.data for a in (out, *arrays)), out.size] for out, arrays in zip(results, inputs, strict=True)
    ]

    def run() -> list[np.ndarray]:
        for arguments in given:
            function(*arguments)
        return results

    return run
