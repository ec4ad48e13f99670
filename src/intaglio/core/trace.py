"""Counters: what was compiled, launched, moved and kept, and which rules fired."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final


class GlobalCounters:
    """Exact counts of what this process has done. All but the memory in use and kept are set to zero by `reset`.

    Examples:
        >>> GlobalCounters.reset()
        >>> (Tensor([1.0, 2.0]) + 1).tolist(), GlobalCounters.kernel_count
        ([2.0, 3.0], 1)
    """

    kernel_count: ClassVar[int] = 0  # kernels run
    launch_count: ClassVar[int] = 0  # native calls that ran them
    wave_count: ClassVar[int] = 0  # times that threads ran several kernels side by side
    plan_count: ClassVar[int] = 0  # programs planned (none of their structure was remembered)
    compile_count: ClassVar[int] = 0  # kernels compiled (not found in a cache)
    search_count: ClassVar[int] = 0  # kernels searched for better code (BEAM; not found in a cache)
    trial_count: ClassVar[int] = 0  # candidates tried for that
    compile_seconds: ClassVar[float] = 0.0
    run_seconds: ClassVar[float] = 0.0
    global_ops: ClassVar[int] = 0  # arithmetic operations
    global_mem: ClassVar[int] = 0  # bytes read and written by kernels, by their views
    table_bytes: ClassVar[int] = 0  # bytes of constant tables that re-rolling made
    mem_used: ClassVar[int] = 0  # bytes of living buffers
    mem_kept: ClassVar[int] = 0  # bytes of freed memory that are kept for reuse, as they were taken from the system
    peak: ClassVar[int] = 0  # the most bytes at once since the last reset

    @classmethod
    def reset(cls) -> None:
        """Set the counts to zero (memory in use stays; the peak starts from it)."""
        cls.kernel_count = cls.launch_count = cls.wave_count = cls.plan_count = cls.compile_count = 0
        cls.search_count = cls.trial_count = 0
        cls.compile_seconds = cls.run_seconds = 0.0
        cls.global_ops = cls.global_mem = cls.table_bytes = 0
        cls.peak = cls.mem_used


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
