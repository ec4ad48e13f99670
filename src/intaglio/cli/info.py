"""`intaglio info`: the settings in force and the devices."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from intaglio.core.config import Config, config
from intaglio.engine.devices import NAMES

if TYPE_CHECKING:
    import argparse


def add_parser(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser("info", help="settings and devices")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print both."""
    print("devices: " + ", ".join(NAMES))
    for field in fields(Config):
        print(f"{field.name:<18} {getattr(config, field.name)!r:<10} {field.metadata['help']}")
    return 0
