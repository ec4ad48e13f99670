"""Counters: what was compiled, launched, moved and kept, and which rules fired."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


class Counters:
    """Exact counts of what this process has done. All but the memory in use and kept are set to zero by `reset`.

    Attributes:
        kernel_count: Kernels run.
        launch_count: Native calls that ran them.
        wave_count: Times that threads ran several kernels side by side.
        plan_count: Programs planned (none of their structure was remembered).
        compile_count: Kernels compiled (not found in a cache).
        search_count: Kernels searched for better code (BEAM; not found in a cache).
        trial_count: Candidates tried for that.
        compile_seconds: How long compiling took.
        run_seconds: How long kernels ran.
        global_ops: Arithmetic operations.
        global_mem: Bytes read and written by kernels, by their views; of elements taken at positions, theirs.
        table_bytes: Bytes of constant tables that re-rolling made.
        mem_used: Bytes of living buffers.
        mem_kept: Bytes of freed memory that are kept for reuse, as they were taken from the system.
        peak: The most bytes at once since the last reset.
    Examples:
        >>> GlobalCounters.reset()
        >>> (Tensor([1.0, 2.0]) + 1).tolist(), GlobalCounters.kernel_count
        ([2.0, 3.0], 1)
    """

    __slots__ = (
        "compile_count",
        "compile_seconds",
        "global_mem",
        "global_ops",
        "kernel_count",
        "launch_count",
        "mem_kept",
        "mem_used",
        "peak",
        "plan_count",
        "run_seconds",
        "search_count",
        "table_bytes",
        "trial_count",
        "wave_count",
    )

    def __init__(self) -> None:
        self.mem_used: int = 0
        self.mem_kept: int = 0
        self.reset()

    def reset(self) -> None:
        """Set the counts to zero (memory in use stays; the peak starts from it)."""
        self.kernel_count: int = 0
        self.launch_count: int = 0
        self.wave_count: int = 0
        self.plan_count: int = 0
        self.compile_count: int = 0
        self.search_count: int = 0
        self.trial_count: int = 0
        self.compile_seconds: float = 0.0
        self.run_seconds: float = 0.0
        self.global_ops: int = 0
        self.global_mem: int = 0
        self.table_bytes: int = 0
        self.peak: int = self.mem_used

    def __repr__(self) -> str:
        return f"GlobalCounters({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


GlobalCounters: Final = Counters()  # an object: to change an attribute of a class takes several times as long


@dataclass(slots=True)
class MatchStats:
    """What one rule did: how often it was tried, how often it changed something, how long it took."""

    tries: int = 0
    hits: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class MatchTable:
    """The statistics of all rules: (ruleset, rule) -> stats."""

    rules: dict[tuple[str, str], MatchStats] = field(default_factory=dict)

    def of(self, ruleset: str, rule: str) -> MatchStats:
        """The statistics of one rule, made at first use."""
        return self.rules.setdefault((ruleset, rule), MatchStats())


match_table: Final = MatchTable()
