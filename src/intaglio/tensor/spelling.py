"""Keywords as other libraries spell them: `axis` or `dim`, `keepdim` or `keepdims`, and what NumPy adds to them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from intaglio.core.errors import DTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")
OTHER: Final = {"axis": "dim", "dim": "axis", "keepdim": "keepdims", "correction": "ddof"}


def spelled(function: F) -> F:
    """A function that takes its keywords in PyTorch's and NumPy's spelling as well as its own.

    NumPy's functions call the methods of their names with all keywords: `out`, too, which must be None.

    Examples:
        >>> def total(x, axis=None, keepdim=False):
        ...     return x, axis, keepdim
        >>> spelled(total)(1, dim=2, keepdims=True)
        (1, 2, True)
    """
    code = function.__code__
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    others = {OTHER[name]: name for name in own if name in OTHER}
    function.__qualname__ = function.__qualname__.rstrip("_")  # of which Python's errors speak

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            return function(*args)
        if kwargs.pop("out", None) is not None:
            raise DTypeError(f"{function.__name__.rstrip('_')}: there is no `out`. Assign to it: out[...] = x?")
        for name in [name for name in kwargs if name in others]:
            if others[name] in kwargs:
                raise DTypeError(
                    f"{function.__name__.rstrip('_')}: {others[name]} and {name} mean the same; got both. Drop one?"
                )
            kwargs[others[name]] = kwargs.pop(name)
        return function(*args, **kwargs)

    return cast("F", call)
