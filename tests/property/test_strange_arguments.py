"""What is no argument is refused by an error of the house, whatever public method it is given to."""

from __future__ import annotations

import inspect
import itertools
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import IntaglioError, InternalError, Tensor, dtypes

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

STRANGE: list[Any] = ["word", None, 1.5, ["b", 2]]
# values of every kind, of which some are right here and there
VALUES: list[Any] = [
    "word", None, 1.5, -7, 0, 1, 2, 3, -1, (1, 2), (0, 0), [], {}, object(), True, False, float("nan"), 2**70, b"x", 1j,
    [1, "b"], [[1], [2, 3]], slice(None), Ellipsis, range(3), (None,), ((0, 1), (1, 2)), (2, 3), (0, 1), "sum", "mean",
    "float33", "int8", dtypes.float16, "CPU", "PYTHON", np.zeros(1), np.array(["b"]), np.int64(1), np.float64(2.5),
    Tensor([0, 5]), Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor(2.0), Tensor([True]), Tensor([]), Tensor([1, 0]),
    Tensor([[0, 1, 2]]), Tensor.ones(2, 2, 2, 2), Tensor([1.0, 2.0], dtype="float16"), Tensor([True, False]),
]  # fmt: skip
OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.matmul, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.lt,
    operator.ge, operator.eq, operator.iadd, operator.imul, operator.itruediv, operator.ior, operator.ilshift,
]  # fmt: skip
PYTHONS = ("unsupported operand type", "not supported between instances", "can only concatenate", "can't concat")
WRITING = ("assign", "copy_", "fill_", "zero_", "add_", "sub_", "mul_", "div_", "clamp_", "masked_fill_", "scatter_")
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


def tensors() -> list[Tensor]:
    """Tensors of several shapes and dtypes, views and scalars among them."""
    return [
        Tensor([[1, 2, 3], [4, 5, 6]]), Tensor([1.0, 2.0]), Tensor(3.0), Tensor.zeros(0, 3), Tensor.ones(1, 2, 4, 4),
        Tensor([True, False]), Tensor([[1, 2]], dtype="int8"), Tensor([[1.0, 2.0]], requires_grad=True),
        Tensor.ones(2, 3).T, Tensor.ones(1, 2).expand(3, 2), Tensor([1.0, 2.0])[0], Tensor([1, 2, 3], device="NPY"),
    ]  # fmt: skip


def outcome(call: Callable[[], Any]) -> str:
    """What is wrong with how a statement ends; nothing if it gives a value, or an error of the house at once."""
    try:
        found = call()
    except InternalError as error:
        return f"InternalError: {error}"
    except Exception as error:
        return (
            "" if fits(error) or any(words in str(error) for words in PYTHONS) else f"{type(error).__name__}: {error}"
        )
    try:
        for each in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(each, Tensor) and each.numel() < 10**6 and each.device != "NPY":
                each.realize()
    except Exception as error:
        return f"later, {type(error).__name__}: {error}"
    return ""


def arguments(rng: random.Random, name: str) -> tuple[list[Any], dict[str, Any]]:
    """Values for what a method takes, some by keyword."""
    given: list[Any] = []
    named: dict[str, Any] = {}
    own = not isinstance(inspect.getattr_static(Tensor, name), (staticmethod, classmethod))
    for place, parameter in enumerate([*inspect.signature(getattr(Tensor, name)).parameters.values()][own:]):
        if parameter.kind is parameter.VAR_POSITIONAL:
            given += rng.choices(VALUES, k=rng.randint(0, 3))
        elif parameter.kind is parameter.KEYWORD_ONLY or len(given) < place:
            if rng.random() < 0.4 or parameter.default is parameter.empty:
                named[parameter.name] = rng.choice(VALUES)
        elif parameter.default is parameter.empty or rng.random() < 0.5:
            given.append(rng.choice(VALUES))
    return given, named


def test_random_arguments_give_values_or_errors_at_once_and_change_nothing(rng: random.Random) -> None:
    for _ in range(1500):
        name, t = rng.choice(METHODS), rng.choice(tensors())
        given, named = arguments(rng, name)
        before = repr(t.tolist())
        said = outcome(lambda name=name, t=t, given=given, named=named: getattr(t, name)(*given, **named))
        assert said == "", f"Tensor{t.shape}.{name}(*{given}, **{named})"
        if name not in WRITING:
            assert repr(t.tolist()) == before, f"Tensor{t.shape}.{name}(*{given}, **{named})"


def test_random_indices_and_operands_give_values_or_errors_at_once_and_change_nothing(rng: random.Random) -> None:
    for _ in range(1500):
        t, value, other = rng.choice(tensors()), *rng.choices(VALUES, k=2)
        index = rng.choice([value, (value, other), slice(value, other), (slice(None), slice(None, value, other))])
        join = rng.choice(OPERATORS)
        before = repr(t.tolist())
        statements: list[Callable[[], Any]] = [
            lambda t=t, index=index: t[index],
            lambda t=t, index=index, value=other: t.__setitem__(index, value) or t,
            lambda t=t, value=value, join=join: join(t, value),
        ]
        chosen = rng.randrange(3)
        said = outcome(statements[chosen])
        assert said == "", f"Tensor{t.shape}, index {index}, operand {value}, {join.__name__}: statement {chosen}"
        if chosen == 0 or (chosen == 2 and not join.__name__.startswith("i")):
            assert repr(t.tolist()) == before
        assert t.tolist() is not None
