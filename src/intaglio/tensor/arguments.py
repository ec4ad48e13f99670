"""What callers give, checked where it is given: whole numbers, numbers, flags, words, tensors.

Each function takes the name of the operation as the user wrote it, and what the value stands for there.
"""

from __future__ import annotations

import math
from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import numpy as np

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import DTypeError, ShapeError, ValueRangeError
from intaglio.core.words import counted, meant
from intaglio.tensor.base import TensorBase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.tensor.tensor import Tensor

INTEGER: Final = frozenset((int,))
LONGEST: Final = 40  # characters of a value that an error shows
INTS: Final = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint64)


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
    raise ValueRangeError(
        f"{name}: {what} must be {listed}; got {shown(value)}.{meant(value, choices) or ' Write one of them?'}"
    )


def not_negative(name: str, what: str, value: int) -> int:
    """A whole number from 0 on.

    Raises: ShapeError if it is less.
    """
    if value < 0:
        raise ShapeError(f"{name}: {what} must not be negative; got {value}. Give 0 or more?")
    return value


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
    return counted(count, "axis", "axes")


def misfit(name: str, value: float, dtype: DType) -> ValueRangeError:
    """The error for a number that a dtype cannot hold, in a tensor that a named op makes."""
    holds = next((wide.name for wide in INTS if wide.fits(value)), "float32")
    return ValueRangeError(
        f'{name}: the number must fit the dtype; {value} does not fit {dtype.name}. Is dtype="{holds}" meant?'
    )


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
    return DTypeError(f"{name}: {what} must be {wanted}; got {shown(value)}. {as_wanted(wanted, value)}")


def as_wanted(wanted: str, value: object) -> str:
    """What to write in place of a value of another kind: a question."""
    if wanted == "True or False":
        return f"Write {bool(value)}?" if isinstance(value, int) else "Write one of them?"
    if isinstance(value, str):
        digits = value.strip().lstrip("+-").replace(".", "", wanted == "a number").isdigit()
        return f"Write {value.strip()} without quotes?" if digits else "Write a number?"
    if isinstance(value, float):
        if value.is_integer():
            return f"Write {int(value)}?"
        return "Round it with int(...)?" if math.isfinite(value) else "Write a whole number?"
    if hasattr(value, "__array__"):
        return "Take its number with .item()?"
    if is_listed(value) and wanted != "integers":
        return "Write one number?"
    return "Write whole numbers?" if wanted == "integers" else "Write a number?"
