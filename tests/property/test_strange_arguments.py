"""What is no argument is refused by an error of the house, whatever public method it is given to."""

from __future__ import annotations

import inspect
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from intaglio import IntaglioError, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

STRANGE: list[Any] = ["word", None, 1.5, ["b", 2]]
SIGNATURE = ("missing", "positional argument", "unexpected keyword", "mean the same")
METHODS = [
    name for name, _ in inspect.getmembers(Tensor, callable) if not name.startswith("_") and name != "bool_dtype"
]


def fits(error: BaseException) -> bool:
    """Whether an error is one of the house, or Python's for a call that no signature takes."""
    return isinstance(error, IntaglioError) or (
        isinstance(error, TypeError) and any(words in str(error) for words in SIGNATURE)
    )


def refused(call: Callable[[], Any]) -> str:
    """What another error than these says; nothing if there is none."""
    try:
        found = call()
    except Exception as error:
        return "" if fits(error) else f"{type(error).__name__}: {error}"
    return "NotImplemented" if found is NotImplemented else ""


@pytest.mark.parametrize("name", METHODS)
def test_a_strange_argument_is_refused_in_the_words_of_the_house(name: str) -> None:
    strange: dict[str, str] = {}
    for tensor in (Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1, 2]), Tensor(True)):
        values = [*STRANGE, tensor]
        calls = [(), *itertools.product(values, repeat=1), *itertools.product(values, repeat=2)]
        calls += [(value,) * count for value in values for count in (3, 4, 5)]
        calls += [(tensor, tensor, *(value,) * count) for value in STRANGE for count in (1, 2, 3)]
        for given in calls:
            said = refused(lambda given=given, tensor=tensor: getattr(tensor, name)(*given))
            if said:
                strange[f"Tensor{tensor.shape}.{name}{given}"] = said
    assert strange == {}


def test_there_are_methods() -> None:
    assert len(METHODS) > 200
