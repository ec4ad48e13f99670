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

`BEAM=n` searches for better code than the cost model's: sizes of tiles and blocks, the order of loops, how many vectors
are computed at once, the pieces that threads share. Starting from the model's code, the `n` best of each round are
changed in one decision at a time, as long as that wins something. Each candidate is compiled and run on random numbers
in a process of its own, in turn with the model's code; one that crashes, takes too long or differs from it in a bit is
dropped, so a search changes no result. What it finds is kept in the cache for the same kernel, machine, `BEAM` and
number of threads, and used where `BEAM` is set again; `intaglio cache` shows it, `--clear-tuned` forgets it. Kernels
that serve any size, of less than two microseconds, or with more than 512 MB of buffers are not searched for.

"""


def main() -> None:
    """Rewrite each page in place."""
    (Path(__file__).parent / "settings.md").write_text(SETTINGS + settings_table())


if __name__ == "__main__":
    main()
