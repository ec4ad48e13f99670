"""`intaglio info`: the settings in force, where each comes from, and the devices."""

from __future__ import annotations

import os
from dataclasses import Field, fields
from typing import TYPE_CHECKING, Any

from intaglio.core.config import Config, config, from_environment
from intaglio.core.target import DEVICES

if TYPE_CHECKING:
    import argparse


def add_parser(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser("info", help="settings and devices")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print both."""
    del options
    print("devices: " + ", ".join(name.lower() for name in DEVICES))
    for field in fields(Config):
        value = getattr(config, field.name)
        print(f"{field.name:<18} {value!r:<10} {_source(field, value):<24} {field.metadata['help']}")
    return 0


def _source(field: Field[Any], value: object) -> str:
    """Where a setting's value comes from."""
    for key in (f"INTAGLIO_{field.name.upper()}", str(field.metadata["short"])):
        if key in os.environ and getattr(from_environment(os.environ), field.name) == value:
            return f"from {key}"
    return "default" if value == field.default else "set by code"
