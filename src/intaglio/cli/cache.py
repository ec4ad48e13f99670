"""`intaglio cache`: the compiled kernels on disk, and what searches found for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intaglio.core.errors import ConfigError
from intaglio.core.words import counted
from intaglio.engine import tune
from intaglio.engine.devices import disk_cache

if TYPE_CHECKING:
    import argparse


def add_parser(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser("cache", help="compiled kernels on disk")
    parser.add_argument("--clear", action="store_true", help="forget them")
    parser.add_argument("--clear-tuned", action="store_true", help="forget what searches (BEAM) found")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show or clear.

    Raises: ConfigError if there can be no cache where the settings have it.
    """
    cache = disk_cache()
    if cache is None:
        print("the cache is off")
        return 0
    if not cache.is_open:
        raise ConfigError(
            f"cache: its folder must be one that can be written; {cache.path.parent} is not. Set INTAGLIO_CACHE_DIR?"
        )
    count, nbytes = cache.stats()
    found = tune.winners()
    print(f"{counted(count, 'kernel')}, {nbytes / 1e6:.1f} MB in {cache.path}")
    for winner in found:
        about = f"BEAM={winner.beam}, {winner.threads} thread{'s' if winner.threads > 1 else ''}"
        print(f"tuned: {winner.kernel}, {1 / winner.ratio:.2f} times as fast, {about}: {winner.choice}")
    if options.clear:
        cache.clear()
        print("cleared")
    elif options.clear_tuned:
        tune.forget()
        print("cleared what was tuned")
    return 0
