"""The command `intaglio`: which subcommand runs."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from intaglio import __version__
from intaglio.cli import cache, demo, info
from intaglio.core.errors import IntaglioError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; gives the exit status."""
    parser = argparse.ArgumentParser(
        "intaglio", description="A tensor compiler whose writes are lazy and whose views stay true."
    )
    parser.add_argument("--version", action="version", version=f"intaglio {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    for module in (demo, info, cache):
        module.add_parser(commands)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except IntaglioError as error:
        print(f"intaglio: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
