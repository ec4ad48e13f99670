"""Where in the user's program something was made."""

from __future__ import annotations

import os
import sys
from typing import Final

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_site() -> tuple[str, int] | None:
    """File and line of the nearest caller outside this package."""
    frame = sys._getframe(1)  # noqa: SLF001 -- the one cheap way to the caller's line
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None
