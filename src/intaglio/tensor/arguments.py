"""What callers give, checked where it is given: whole numbers, numbers, flags, words, tensors.

Each function takes the name of the operation as the user wrote it, and what the value stands for there.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import numpy as np

from intaglio.core.errors import DTypeError, ShapeError, ValueRangeError
from intaglio.tensor.base import TensorBase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.tensor.tensor import Tensor

INTEGER: Final = frozenset((int,))
LONGEST: Final = 40  # characters of a value that an error shows


def integer(name: str, what: str, value: Any) -> int:
    """A whole number (of Python, of NumPy, or a tensor of one).

    Raises: DTypeError if it is none.
    """
    try:
        return index(value)
    except (TypeError, ShapeError):  # of a tensor: it is of floats, or has several elements
        raise _refusal(name, what, "an integer", value) from None


def integers(name: str, what: str, value: Any) -> tuple[int, ...]:
    """One whole number or a sequence of them, as a tuple.

    Raises: DTypeError if it is neither.
    """
    if value.__class__ is tuple and INTEGER.issuperset(map(type, value)):
        return value
    several = hasattr(value, "__iter__") and getattr(value, "shape", None) != ()  # a letter is no number either
    try:
        return tuple(index(each) for each in (value if several else (value,)))
    except (TypeError, ShapeError):
        raise _refusal(name, what, "integers", value) from None


def number(name: str, what: str, value: Any) -> int | float:
    """A number (of Python, or one of NumPy's or a tensor's as Python has it).

    Raises: DTypeError if it is none.
    """
    if value.__class__ is float or isinstance(value, (int, float)):
        return value
    if getattr(value, "shape", None) == ():
        return number(name, what, value.item())
    raise _refusal(name, what, "a number", value)


def flag(name: str, what: str, value: Any) -> bool:
    """True or False.

    Raises: DTypeError if it is anything else.
    """
    if isinstance(value, bool):
        return value
    raise _refusal(name, what, "True or False", value)


def word(name: str, what: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of a few words.

    Raises: ValueRangeError if it is none of them.
    """
    if isinstance(value, str) and value in choices:
        return value
    *others, last = (f'"{choice}"' for choice in choices)
    listed = f"{', '.join(others)} or {last}" if others else last
    raise ValueRangeError(f"{name}: {what} must be {listed}; got {shown(value)}.")


def tensor(name: str, what: str, value: Any) -> Tensor:
    """A tensor.

    Raises: DTypeError if it is none.
    """
    if isinstance(value, TensorBase):
        return value  # pyright: ignore[reportReturnType] -- there are no others
    raise DTypeError(f"{name}: {what} must be a tensor; got {shown(value)}. Make one with Tensor(...)?")


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether a value is a tensor."""
    return isinstance(value, TensorBase)


def is_listed(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether a value is a list or tuple of anything."""
    return isinstance(value, (list, tuple))


def is_array(value: object) -> TypeGuard[np.ndarray[Any, Any]]:
    """Whether a value is an array of NumPy's."""
    return isinstance(value, np.ndarray)


def axes(count: int) -> str:
    """A number of axes in an error."""
    return "1 axis" if count == 1 else f"{count} axes"


def shown(value: object) -> str:
    """A value in an error: as it was written if that is short, else its type."""
    kind: str = value.__class__.__name__
    if kind in ("NoneType", "str", "int", "float", "bool", "list", "tuple", "range"):
        text = repr(value)
        if len(text) <= LONGEST and "Tensor" not in text:
            return text
    return kind


def _refusal(name: str, what: str, wanted: str, value: Any) -> DTypeError:
    """The error for a value of another kind."""
    return DTypeError(f"{name}: {what} must be {wanted}; got {shown(value)}.")
