"""`intaglio cache`: the compiled kernels on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intaglio.engine.devices import disk_cache

if TYPE_CHECKING:
    import argparse


def add_parser(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser("cache", help="compiled kernels on disk")
    parser.add_argument("--clear", action="store_true", help="forget them")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show or clear."""
    cache = disk_cache()
    if cache is None:
        print("the cache is off")
        return 0
    count, nbytes = cache.stats()
    print(f"{count} kernels, {nbytes / 1e6:.1f} MB in {cache.path}")
    if options.clear:
        cache.clear()
        print("cleared")
    return 0
