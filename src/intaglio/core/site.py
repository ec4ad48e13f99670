"""Where in the user's program something was made."""

from __future__ import annotations

import os
import sys
from typing import Final


def user_site() -> tuple[str, int] | None:
    """File and line of the nearest caller outside this package."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            return code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


# Taken from the code object itself: it is spelled as the files of all other frames are.
_PACKAGE: Final = os.path.dirname(os.path.dirname(user_site.__code__.co_filename)) + os.sep
