"""The same work by Intaglio and its peers, side by side: `python -m benchmarks [--only WORD] [--quick]`, `make bench`.

Each number of threads has a process of its own, in which the packages take turns on fresh numbers, round by round; each
result is compared with double precision. The table goes to benchmarks/RESULTS.md, or, of a part, to the screen only.
"""

from __future__ import annotations

import argparse
import json
import selectors
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import fresh
from benchmarks.limits import Limits
from benchmarks.overheads import OVERHEADS
from benchmarks.peers import LOOP, PEERS
from benchmarks.report import Cell, Results, Row, render
from benchmarks.table import LINES
from benchmarks.threads import bound, settings

if TYPE_CHECKING:
    from benchmarks.works import Work

PATIENCE: Final = 120.0  # seconds for one peer's rounds of one work
BEGAN: Final = time.perf_counter()
PLACE: Final = Path(__file__).parent / "RESULTS.md"


def main() -> None:
    """Time what is asked for and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="only work whose name has this in it")
    parser.add_argument("--quick", action="store_true", help="three short rounds")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--write", action="store_true", help=f"write {PLACE.name} though it is a part")
    asked = parser.parse_args()
    rounds, seconds, calls = (3, 0.02, 1) if asked.quick else (5, 0.2, 3)
    every = [*LINES, *fresh.FRESH, *OVERHEADS]
    if not any(asked.only in line.name for line in every):
        names = ", ".join(f'"{line.name}"' for line in every)
        parser.error(f"no work has {asked.only!r} in its name; there are {names}")
    missing = {name: reason for name in asked.peers if (reason := PEERS[name].missing())}
    peers = [name for name in asked.peers if name not in missing]
    rows = {work.name: work_row(work) for work in LINES if asked.only in work.name}
    limits: dict[int, Limits] = {}
    for threads in asked.threads:
        worker = Worker(threads, rounds, seconds, calls)
        limits[threads] = Limits.of(worker.ask("limits", []))
        for work in LINES:
            if work.name in rows:
                told(f"{threads} threads: {work.name}")
                limit = limits[threads].seconds(work.traffic, work.flops, work.multiplied)
                rows[work.name].cells[threads] = cell(worker.ask(work.name, peers), limit, work.count)
        worker.close()
    for line in fresh.FRESH:
        if asked.only in line.name:
            told(line.name)
            rows[line.name] = fresh_row(line, max(asked.threads), rounds, with_jax="jax" in peers)
    overheads = {line.name: Row(line.name, line.aim, 1.0, line.bound) for line in OVERHEADS if asked.only in line.name}
    if overheads:
        worker = Worker(max(asked.threads), rounds, seconds, calls)
        for name, row in overheads.items():
            told(name)
            row.cells[worker.threads] = cell(worker.ask(name, peers))
        worker.close()
    results = Results(list(rows.values()), list(overheads.values()), peers, missing, limits, rounds)
    text = render(results)
    told("done")
    print(text)
    if asked.write or not (asked.only or asked.quick):
        PLACE.write_text(text, encoding="utf-8")


def told(what: str) -> None:
    """Say what is timed next, and how many seconds everything has taken so far."""
    print(f"{time.perf_counter() - BEGAN:6.1f} s  {what}", file=sys.stderr, flush=True)


def work_row(work: Work) -> Row:
    """A line that is yet to be timed."""
    rival = LOOP if work.c else ""
    share = f", {work.share} of limit" if work.share else ""
    return Row(work.name, f"{work.aim} x {rival or 'best peer'}{share}", work.aim, rival=rival, share=work.share)


def cell(answer: dict[str, Any], limit: float = 0.0, count: int = 1) -> Cell:
    """The medians of one work, of so many operations."""
    medians = {name: statistics.median(times) / count for name, times in answer["seconds"].items()}
    return Cell(medians, answer["failures"], limit / count, answer["kernels"])


def fresh_row(line: fresh.Fresh, threads: int, rounds: int, *, with_jax: bool) -> Row:
    """The line of work in fresh processes."""
    times = {"intaglio": statistics.median(fresh.seconds(line, threads, rounds))}
    if line.jax and with_jax:
        times["jax"] = statistics.median(fresh.jax_seconds(line, threads, rounds))
    aim = "no dearer than JAX" if line.bound is None else f"below {line.bound * 1e3:.0f} ms"
    return Row(line.name, aim, 1.0, bound=line.bound, cells={threads: Cell(times, {}, 0.0, 0)})


class Worker:
    """A process that times work with some threads; started again if it ends or hangs."""

    def __init__(self, threads: int, rounds: int, seconds: float, calls: int) -> None:
        self.threads: Final = threads
        self.command: Final = [sys.executable, "-m", "benchmarks.worker", str(rounds), str(seconds), str(calls)]
        self._start()

    def _start(self) -> None:
        """A fresh process."""
        with bound(self.threads):
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=settings(self.threads),
                text=True,
                bufsize=1,
            )
        self.selector = selectors.DefaultSelector()
        assert self.process.stdout is not None
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def ask(self, work: str, peers: list[str]) -> dict[str, Any]:
        """What came of work; a peer that hangs or ends the process is left out at the next try."""
        failures: dict[str, str] = {}
        while True:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.write(
                json.dumps({"work": work, "peers": [p for p in peers if p not in failures]}) + "\n"
            )
            self.process.stdin.flush()
            trying = ""
            while True:
                line = self.process.stdout.readline() if self.selector.select(PATIENCE) else None
                if not line:
                    break
                answer = json.loads(line)
                if "trying" not in answer:
                    return {**answer, "failures": {**answer["failures"], **failures}} if peers else answer
                trying = answer["trying"]
            if not trying or trying in failures:
                raise RuntimeError(f"{work}: the process that times ended")
            failures[trying] = "ended the process" if line == "" else f"over {PATIENCE:.0f} s"
            self.process.kill()
            self.process.wait()
            self._start()

    def close(self) -> None:
        """Let the process end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


if __name__ == "__main__":
    main()
