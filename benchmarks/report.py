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
TIMES: Final = """\
Times with {threads} threads: the median of {rounds} rounds in which packages take turns on fresh numbers; building,
dispatch and memory for results included. A process has as many processors as threads; before a turn it is quiet
(threads that looked for work sleep), and a call warms up. Results are checked against double precision. Ratio: the best
peer's time over ours, or, where the aim says so, that of a loop in C (by -O3 -march=native -ffp-contract=off, shared by
OpenMP), which keeps the memory of its result from call to call. Limit: what multiply-adds of this machine allow, and
the nearest of its caches that holds all inputs and outputs, or else memory; where the aim names a share of it, that is
the limit's time over ours. A line is met at 0.95 of its figures; what is not says how much of them was reached.
"""
OVERHEADS: Final = """\
## Overheads

Medians, with {threads} threads. A kernel with a chunk for each thread is posted from Python, once more at once or after
a pause: it does nothing, or all threads wait in it until the last one has come. Graphs of operations on 8 x 8 numbers
are built, not computed, beside PyTorch's eager calls, which compute.
"""


@dataclass(frozen=True)
class Cell:
    """One work with one number of threads: seconds by package, what failed, the machine's limit, kernels of ours."""

    seconds: dict[str, float]
    failures: dict[str, str]
    limit: float
    kernels: int

    def ratio(self, bound: float | None, rival: str) -> float | None:
        """A bound over our time, or the time of a peer, or of the best one."""
        others = [s for name, s in self.seconds.items() if name != OWN and rival in ("", name)]
        if OWN not in self.seconds or (bound is None and not others):
            return None
        return (min(others) if bound is None else bound) / self.seconds[OWN]


@dataclass
class Row:
    """One line: the figure that is aimed at, and its cells by number of threads."""

    name: str
    aim: str
    figure: float
    bound: float | None = None  # seconds
    rival: str = ""  # the peer whose time is aimed at: the best one's, if none is named
    share: float = 0.0  # of the machine's limit, at least, that is aimed at as well
    cells: dict[int, Cell] = field(default_factory=dict)

    def reached(self, cell: Cell) -> float | None:
        """How much of its figures a cell reaches, of that of which it reaches least."""
        ratio = cell.ratio(self.bound, self.rival)
        if ratio is None:
            return None
        share = cell.limit / cell.seconds[OWN]
        return min(ratio / self.figure, share / self.share) if self.share else ratio / self.figure


@dataclass(frozen=True)
class Results:
    """All that was measured in one run."""

    rows: list[Row]
    overheads: list[Row]
    peers: list[str]
    missing: dict[str, str]
    limits: dict[int, Limits]
    rounds: int


def render(results: Results) -> str:
    """The page."""
    threads = list(results.limits)
    versions = ", ".join(PEERS[p].about for p in results.peers if "." not in p)
    lines = [
        "# Intaglio and its peers, side by side",
        "",
        f"{datetime.date.today()}, {processor()}, Python {platform.python_version()}; {versions}.",
        *(f"{name}: {reason}." for name, reason in results.missing.items()),
        "",
        TIMES.format(threads=" / ".join(map(str, threads)), rounds=results.rounds),
        *limits_table(results.limits),
        *table("work", results.rows, results.peers),
        *failures(results.rows),
    ]
    if results.overheads:
        lines += [
            OVERHEADS.format(threads=max(threads)),
            *table("overhead", results.overheads, results.peers),
            *failures(results.overheads),
        ]
    return "\n".join(lines)


def limits_table(limits: dict[int, Limits]) -> list[str]:
    """Bytes a second by level, operations a second by dtype."""
    first = next(iter(limits.values()))
    names = [f"{level.name}, read / copied" for level in first.levels]
    rows = [
        [
            str(threads),
            *(f"{level.read / 1e9:.1f} / {level.copy / 1e9:.1f} GB/s" for level in found.levels),
            *(f"{flops / 1e9:.0f} GFLOP/s" for flops in found.flops.values()),
        ]
        for threads, found in limits.items()
    ]
    return grid(["threads", *names, *(f"{dtype} multiply-adds" for dtype in first.flops)], rows)


def table(title: str, rows: list[Row], peers: list[str]) -> list[str]:
    """Lines, of the peers that ran any of the work; nothing where there are none."""
    if not rows:
        return []
    cells = [cell for row in rows for cell in row.cells.values()]
    ran = [p for p in peers if any(p in cell.seconds for cell in cells)]
    beside = ["limit", "kernels"] if any(cell.kernels for cell in cells) else []
    return grid([title, "aim", *ran, *beside, "ratio", "met"], [line(row, ran, beside) for row in rows])


def grid(titles: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    return [f"| {' | '.join(parts)} |" for parts in (titles, ["---"] * len(titles), *rows)] + [""]


def line(row: Row, peers: list[str], beside: list[str]) -> list[str]:
    """One line of a table."""
    cells = list(row.cells.values())
    ratios = [c.ratio(row.bound, row.rival) for c in cells]
    met = ["-" if r is None else "yes" if r >= MET else f"{r:.2f}" for r in map(row.reached, cells)]
    about = [" / ".join(shown(c.limit or None) for c in cells), str(cells[0].kernels or "-")] if beside else []
    return [
        row.name,
        row.aim,
        *(" / ".join(shown(c.seconds.get(peer)) for c in cells) for peer in peers),
        *about,
        " / ".join("-" if r is None else f"{r:.2f}" for r in ratios),
        " / ".join(met),
    ]


def failures(rows: list[Row]) -> list[str]:
    """What did not run, and why."""
    found = [
        f"- {row.name}, {name}, {threads} threads: {reason}"
        for row in rows
        for threads, cell in row.cells.items()
        for name, reason in cell.failures.items()
        if reason != "n/a"
    ]
    return [*found, ""] if found else []


def shown(seconds: float | None) -> str:
    """A time with three digits."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= scale or unit == "ns":
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
