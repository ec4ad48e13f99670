"""What a fresh process pays: programs run in processes of their own, with empty and with kept caches."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.threads import bound, settings

TIMED: Final = """
import time
import numpy as np
{setup}
started = time.perf_counter()
{body}
print(time.perf_counter() - started)
"""
OWN_SETUP: Final = "from intaglio import Tensor\nx = np.arange(16.0, dtype=np.float32)"
JAX_SETUP: Final = "import jax, jax.numpy as jnp\nx = np.arange(16.0, dtype=np.float32)"
FIRST: Final = "(Tensor(x) * 2 + 1).tolist()"
HUNDRED: Final = """
import itertools
steps = (lambda z: z.relu(), lambda z: z.abs(), lambda z: z * z, lambda z: z * 0.5, lambda z: z + 0.25)
y = Tensor(x).realize()
for chosen in itertools.islice(itertools.product(steps, repeat=3), 100):
    z = y
    for step in chosen:
        z = step(z)
    (z - 1).tolist()
"""
CHAIN: Final = """
y = Tensor(x).realize()
for k in range(1000):
    y = y + k
y.tolist()
"""
JAX_CHAIN: Final = """
def chain(y):
    for k in range(1000):
        y = y + k
    return y
jax.jit(chain)(x).tolist()
"""


@dataclass(frozen=True)
class Fresh:
    """One line: a program in a fresh process, and the seconds that are aimed at."""

    name: str
    body: str
    bound: float | None = None  # seconds
    kept: bool = False  # run once before, with the caches kept
    jax: str = ""  # the peer's program, which is the bound


FRESH: Final = [
    Fresh("first kernel, fresh process, empty cache", FIRST, 0.25),
    Fresh("first kernel, fresh process, kept cache", FIRST, 0.06, kept=True),
    Fresh("100 different small kernels, empty cache", HUNDRED, 1.5),
    Fresh("1000 adds on 16, built and run once, empty cache", CHAIN, jax=JAX_CHAIN),
]


def seconds(line: Fresh, threads: int, rounds: int) -> list[float]:
    """Of some fresh processes."""
    found: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            source = TIMED.format(setup=OWN_SETUP, body=line.body)
            if line.kept:
                run(source, threads, folder)
            found.append(run(source, threads, folder))
    return found


def jax_seconds(line: Fresh, threads: int, rounds: int) -> list[float]:
    """The same of JAX."""
    return [run(TIMED.format(setup=JAX_SETUP, body=line.jax), threads, "") for _ in range(rounds)]


def run(source: str, threads: int, cache: str) -> float:
    """The seconds that a program prints."""
    environment = {**settings(threads), "INTAGLIO_CACHE_DIR": cache}
    command, folder = [sys.executable, "-c", source], Path(__file__).parent.parent
    with bound(threads):
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return float(done.stdout)
