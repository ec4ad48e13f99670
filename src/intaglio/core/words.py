"""Words of errors: which known word a misspelt one stands for, numbers of things, and how positions are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

NEAR: Final = 0.6  # of 1: how much alike two words are, at least, for one to be meant by the other


def meant(given: object, known: Iterable[str]) -> str:
    """The known word that a misspelt one is nearest to, as a question after an error; nothing where none is near.

    Examples:
        >>> meant("flaot32", ("int32", "float16", "float32")), meant("torch.float16", ("float16",)), meant(3, ("a",))
        (' Is "float32" meant?', ' Is "float16" meant?', '')
    """
    from difflib import get_close_matches

    if not isinstance(given, str):
        return ""
    spelled = {word.lower(): word for word in known}
    near = get_close_matches(given.rpartition(".")[2].lower(), spelled, 1, NEAR)
    return f' Is "{spelled[near[0]]}" meant?' if near else ""


def counted(count: int, one: str, many: str = "") -> str:
    """A number of things.

    Examples:
        >>> counted(1, "shift"), counted(2, "shift"), counted(0, "axis", "axes")
        ('1 shift', '2 shifts', '0 axes')
    """
    return f"{count} {one}" if count == 1 else f"{count} {many or one + 's'}"


def counting(count: int) -> str:
    """How positions (or axes) of which there are `count` are named, as a question after an error.

    Examples:
        >>> counting(3), counting(1)
        ('Count from 0 to 2, or from -1 back to -3?', 'Is 0 meant?')
    """
    return "Is 0 meant?" if count == 1 else f"Count from 0 to {count - 1}, or from -1 back to {-count}?"
