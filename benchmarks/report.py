"""The table of results as Markdown."""

from __future__ import annotations

import datetime
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.peers import OWN, PEERS

if TYPE_CHECKING:
    from benchmarks.limits import Limits

MET: Final = 0.95  # of its figure: so a line counts as met


@dataclass(frozen=True)
class Cell:
    """One work with one number of threads: seconds by package, what failed, the machine's limit, kernels of ours."""

    seconds: dict[str, float]
    failures: dict[str, str]
    limit: float
    kernels: int

    def ratio(self, bound: float | None) -> float | None:
        """The best peer's time, or a bound, over ours."""
        others = [s for name, s in self.seconds.items() if name != OWN]
        if OWN not in self.seconds or (bound is None and not others):
            return None
        return (min(others) if bound is None else bound) / self.seconds[OWN]


@dataclass
class Row:
    """One line: the figure that is aimed at, and its cells by number of threads."""

    name: str
    aim: str
    figure: float
    bound: float | None = None
    cells: dict[int, Cell] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """All that was measured in one run."""

    rows: list[Row]
    peers: list[str]
    missing: dict[str, str]
    limits: dict[int, Limits]
    rounds: int


def render(results: Results) -> str:
    """The page."""
    threads = list(results.limits)
    peers = [p for p in results.peers if any(p in cell.seconds for row in results.rows for cell in row.cells.values())]
    versions = ", ".join(f"{PEERS[p].package} {PEERS[p].version}" for p in results.peers if "." not in p)
    lines = [
        "# Intaglio and its peers, side by side",
        "",
        f"{datetime.date.today()}, {processor()}, Python {platform.python_version()}; {versions}.",
        *(f"{name}: {reason}." for name, reason in results.missing.items()),
        "",
        f"Times with {' / '.join(map(str, threads))} threads: the median of {results.rounds} rounds in which packages",
        "take turns on fresh numbers; building, dispatch and memory for results included. A process has as many",
        "processors as threads; before a turn it is quiet (threads that looked for work sleep), and a call warms up.",
        "Results are checked against double precision. Ratio: the best peer's time over ours. Limit: what memory or",
        "multiply-adds of this machine allow. A line is met at 0.95 of its figure; what is not says how much of it was",
        "reached.",
        "",
        "| threads | read | copy | float32 multiply-adds |",
        "| --- | --- | --- | --- |",
        *(
            f"| {n} | {limit.read / 1e9:.1f} GB/s | {limit.copy / 1e9:.1f} GB/s | {limit.flops / 1e9:.0f} GFLOP/s |"
            for n, limit in results.limits.items()
        ),
        "",
        "| work | aim | " + " | ".join(peers) + " | limit | kernels | ratio | met |",
        "| --- " * (6 + len(peers)) + "|",
        *(line(row, peers) for row in results.rows),
        "",
        *failures(results),
    ]
    return "\n".join(lines)


def line(row: Row, peers: list[str]) -> str:
    """One line of the table."""
    cells = list(row.cells.values())
    times = [" / ".join(shown(c.seconds.get(peer)) for c in cells) for peer in peers]
    ratios = [c.ratio(row.bound) for c in cells]
    met = ["-" if r is None else "yes" if r >= MET * row.figure else f"{r / row.figure:.2f}" for r in ratios]
    parts = [
        row.name,
        row.aim,
        *times,
        " / ".join(shown(c.limit or None) for c in cells),
        str(cells[0].kernels or "-"),
        " / ".join("-" if r is None else f"{r:.2f}" for r in ratios),
        " / ".join(met),
    ]
    return f"| {' | '.join(parts)} |"


def failures(results: Results) -> list[str]:
    """What did not run, and why."""
    return [
        f"- {row.name}, {name}, {threads} threads: {reason}"
        for row in results.rows
        for threads, cell in row.cells.items()
        for name, reason in cell.failures.items()
        if reason != "n/a"
    ] + [""]


def shown(seconds: float | None) -> str:
    """A time with three digits."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale or unit == "µs":
            return f"{seconds / scale:.3g} {unit}"
    raise AssertionError


def processor() -> str:
    """The processor's name."""
    try:
        for text in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if text.startswith("model name"):
                return text.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
