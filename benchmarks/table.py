"""All lines of the table, in their order."""

from __future__ import annotations

from typing import Final

from benchmarks.models import MODELS
from benchmarks.works import WORKS

LINES: Final = [*WORKS, *MODELS]
