"""The rewrite driver: rules applied from the leaves up until none holds, in work linear in the graph."""

from __future__ import annotations

import atexit
import time
from typing import TYPE_CHECKING, Final

from intaglio.core.config import config
from intaglio.core.errors import InternalError
from intaglio.core.trace import MatchStats, MatchTable, match_table
from intaglio.ir.node import Node, rebuild
from intaglio.ir.text import line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from intaglio.ir.rule import Rule, Ruleset

CHAIN: Final = 256  # rewrites in a row at one node: more means that rules undo each other


def rewrite(roots: Iterable[Node], rules: Ruleset, stats: MatchTable | None = None) -> list[Node]:
    """The roots with every rule applied wherever it holds, inputs first, until none does.

    Each node is tried once; what a rule makes is tried in turn. `stats` counts (the process's own table if None).

    Raises: InternalError if rules undo each other.
    """
    roots = list(roots)
    return _Run(rules, match_table if stats is None else stats).run(roots)


class _Run:
    """One pass over a graph."""

    def __init__(self, rules: Ruleset, table: MatchTable) -> None:
        self.rules: Final = rules
        self.table: Final = table
        self.timed: Final = bool(config.track_match_stats)
        self.counts: Final[dict[Rule, MatchStats]] = {}
        self.done: Final[dict[Node, Node]] = {}
        self.became: Final[dict[Node, Node]] = {}  # what a rule made of a node, while that is worked on
        self.chain: Final[dict[Node, int]] = {}  # how many rewrites led to a node
        if self.timed:
            _print_at_exit()

    def run(self, roots: list[Node]) -> list[Node]:
        """Every root, from the leaves up."""
        done = self.done
        stack = list(reversed(roots))
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            following = self.became.get(node)
            if following is not None:
                done[node] = done[following]
                stack.pop()
                continue
            missing = [s for s in reversed(node.src) if s not in done]
            if missing:
                stack.extend(missing)
                continue
            self.visit(node, stack)
        return [done[root] for root in roots]

    def visit(self, node: Node, stack: list[Node]) -> None:
        """A node whose inputs are final: final itself, or something else that comes first."""
        made = rebuild(node, tuple(self.done[s] for s in node.src)) if node.src else node
        if made in self.done:
            self.done[node] = self.done[made]
            return
        found = self.try_rules(made)
        if found is None:
            self.done[node] = self.done[made] = made
            return
        length = self.chain.get(node, 0) + 1
        if length > CHAIN or (found in self.became and found not in self.done):
            raise InternalError(f"rewrite: the rules undo each other at `{line(found)}`")
        self.chain[found] = max(length, self.chain.get(found, 0))
        self.became[node] = self.became[made] = found
        stack.append(made)
        stack.append(found)

    def try_rules(self, node: Node) -> Node | None:
        """What the first rule that holds makes of a node."""
        for rule in self.rules.of(node):
            stats = self.stats(rule)
            stats.tries += 1
            started = time.perf_counter() if self.timed else 0.0
            found = rule.apply(node)
            if self.timed:
                stats.seconds += time.perf_counter() - started
            if found is not None and found is not node:
                self.check(rule, node, found)
                stats.hits += 1
                return found
        return None

    def stats(self, rule: Rule) -> MatchStats:
        """The counts of a rule."""
        found = self.counts.get(rule)
        if found is None:
            found = self.counts[rule] = self.table.of(rule.ruleset, rule.name)
        return found

    def check(self, rule: Rule, before: Node, after: Node) -> None:
        """A rewrite keeps dtype and shape."""
        if after.dtype is not before.dtype or after.shape != before.shape:
            raise InternalError(f"rewrite: {rule} makes `{line(after)}` of `{line(before)}`")


def report(table: MatchTable, level: int) -> str:
    """The counts as a table: by ruleset at level 1, by rule at level 2, slowest first."""
    rows: dict[str, MatchStats] = {}
    for (ruleset, rule), stats in table.rules.items():
        total = rows.setdefault(f"{ruleset}.{rule}" if level > 1 else ruleset, MatchStats())
        total.tries += stats.tries
        total.hits += stats.hits
        total.seconds += stats.seconds
    lines = [f"{'hits':>9} {'tries':>9} {'ms':>9}  rules"]
    for name, stats in sorted(rows.items(), key=lambda row: (-row[1].seconds, row[0])):
        lines.append(f"{stats.hits:9} {stats.tries:9} {stats.seconds * 1e3:9.2f}  {name}")
    return "\n".join(lines)


_printing: Final[list[bool]] = []  # whether the report has been asked for


def _print_at_exit() -> None:
    """Print the process's counts when it ends, once."""
    if not _printing:
        _printing.append(True)
        atexit.register(lambda: print(report(match_table, int(config.track_match_stats))))
