"""Write the generated pages of the docs: the table of settings."""

from __future__ import annotations

from pathlib import Path

from intaglio.core.config import settings_table

SETTINGS = """# Settings

Every setting is one field of `Config`. A `Context` goes before `config.set`, which goes before the environment; the
environment is read once, when a setting is first asked for.

    >>> from intaglio import Context, config
    >>> with Context(DEBUG=1):
    ...     config.debug
    1

"""


def main() -> None:
    """Rewrite each page in place."""
    (Path(__file__).parent / "settings.md").write_text(SETTINGS + settings_table())


if __name__ == "__main__":
    main()
