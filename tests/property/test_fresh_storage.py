"""The result of arithmetic has storage of its own, whatever public method made it: a write there changes no operand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from inspect import getmembers, isfunction
from typing import Any

import pytest

from intaglio import IntaglioError, Tensor, dtypes

# What gives views, or the tensor itself, by contract: what is written there is seen in the operand.
SHARING = {
    "as_strided", "bitcast", "broadcast_to", "chunk", "contiguous", "cpu", "detach", "diag", "diagonal", "expand",
    "expand_as", "flatten", "flip", "meshgrid", "movedim", "narrow", "permute", "ravel", "reshape", "rot90", "select",
    "shrink", "split", "squeeze", "swapaxes", "t", "to", "transpose", "unbind", "unflatten", "unfold", "unsqueeze",
    "view", "view_as", "__copy__", "__getitem__", "__iter__", "realize", "kernelize", "schedule",
}  # fmt: skip
WRITING = {"assign", "backward", "gradient", "__setitem__", "__delitem__", "__setstate__", "__init__", "idiv"}
OTHERS = {
    "__new__", "__repr__", "__len__", "__hash__", "__class_getitem__", "__format__", "__int__", "__float__",
    "__index__", "__bool__", "__contains__", "__array__", "__array_ufunc__", "__deepcopy__", "__reduce__", "allclose",
    "as_scalar",
    "data_ptr", "dim", "element_size", "equal", "is_contiguous", "is_floating_point", "item", "journal", "manual_seed",
    "nelement", "numel", "numpy", "size", "stride", "to_node", "tolist",
}  # fmt: skip
METHODS = [
    name
    for name, _ in getmembers(Tensor, isfunction)
    if (not name.startswith("_") or name.endswith("__"))
    and not (name.endswith("_") and not name.startswith("__"))
    and not name.startswith("__i")
    and name not in SHARING | WRITING | OTHERS
]


def operands() -> list[Tensor]:
    """Matrices, a vector and a scalar, of floats, integers and truths, in memory."""
    made = [
        Tensor([[0.5, 1.0], [2.0, 3.0]]), Tensor([[1, 0], [0, 1]]), Tensor([[True, False], [False, True]]),
        Tensor([1.0, 2.0]), Tensor(3.0), Tensor([[[1.0]]]), Tensor([[[[1.0, 2.0], [3.0, 4.0]]]]),
    ]  # fmt: skip
    return [tensor.realize() for tensor in made]


def arguments(name: str, x: Tensor) -> list[tuple[Any, ...]]:
    """Arguments of many kinds, those above all with which an operation changes nothing."""
    values: list[Any] = [0, 1, 2, (), x.dtype, x, [(0, 0)] * x.ndim, [True, False]]
    found: list[tuple[Any, ...]] = [(), *itertools.product(values, repeat=1), *itertools.product(values, repeat=2)]
    found += [(1, 1), (1, 1, 1), (x, x, 1), (1, x, 1), (0, Tensor([[0, 0], [1, 1]]), x), (0, Tensor([0, 1]), x)]
    found += [([(0, 0)] * x.ndim, mode) for mode in ("reflect", "replicate", "circular")]
    ones, positions = Tensor([1.0, 1.0]), Tensor([0, 1])
    special: dict[str, list[tuple[Any, ...]]] = {
        "einsum": [("ij", x), ("ij->ij", x), ("i", x), ("ij,ij->ij", x, x)],
        "batch_norm": [(None, None, ones * 0, ones)],
        "mv": [(ones,)],
        "index_select": [(0, positions)],
        "nll_loss": [(positions,), (Tensor(0),)],
        "scatter_reduce": [(0, positions, x, "sum"), (0, Tensor([[0, 0], [1, 1]]), x, "amax")],
    }
    return special.get(name, found)


def results(found: Any) -> list[Tensor]:
    """The tensors that a call gave."""
    if isinstance(found, Tensor):
        return [found]
    return [each for each in found if isinstance(each, Tensor)] if isinstance(found, Sequence) else []


@pytest.mark.parametrize("name", METHODS)
def test_a_write_to_a_result_changes_no_operand(name: str) -> None:
    made: list[Tensor] = []
    for x in operands():
        before = x.tolist()
        for given in arguments(name, x):
            method = getattr(Tensor if name == "einsum" else x, name)
            try:
                found = results(method(*given))
            except (IntaglioError, TypeError):
                continue
            for result in found:
                assert result is not x, (name, given)
                result.fill_(7)
            made += found
        assert x.tolist() == before
        for result in made[-3:]:
            result.realize()
        assert x.tolist() == before
    assert made, "no arguments that it takes"


UNCHANGED = {
    "power": lambda x: x**1,
    "plus": lambda x: +x,
    "cast": lambda x: x.cast(x.dtype),
    "as its own dtype": lambda x: x.type_as(x),
    "clip": lambda x: x.clip(),
    "clamp": lambda x: x.clamp(None, None),
    "roll by nothing": lambda x: x.roll(0, 0),
    "roll all around": lambda x: x.roll(3, 0),
    "roll flat": lambda x: x.roll(3),
    "repeat each once": lambda x: x.repeat_interleave(1),
    "repeat each once along an axis": lambda x: x.repeat_interleave(1, 0),
    "repeat once": lambda x: x.repeat(1),
    "dropout": lambda x: x.dropout(0.0),
    "no difference": lambda x: x.diff(0),
    "no padding": lambda x: x.pad([(0, 0)], "reflect"),
    "advanced": lambda x: x[[0, 1, 2]],
    "clone": lambda x: x.clone(),
}


@pytest.mark.parametrize("change", UNCHANGED.values(), ids=UNCHANGED.keys())
@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int64])
def test_what_changes_nothing_is_a_copy(change: Any, pending: bool, dtype: Any) -> None:
    x = Tensor([1, 2, 3], dtype=dtype).realize()
    if pending:
        x[0] = 1
    result = change(x)
    x[1] = 20
    result[0] = 99
    assert (x.tolist(), result.tolist()) == ([1, 20, 3], [99, 2, 3])


def test_integers_without_nan_are_a_copy() -> None:
    x = Tensor([1, 2, 3]).realize()
    for result in (x.nan_to_num(), x.round(2), x.floor(), x.ceil(), x.trunc()):
        result[0] = 99
    assert x.tolist() == [1, 2, 3]


def test_one_repeated_is_no_view_of_itself() -> None:
    x = Tensor([[5]]).realize()
    wide = x.repeat_interleave(3, 1)
    wide[0, 0] = 1
    assert (wide.tolist(), x.tolist()) == ([[1, 5, 5]], [[5]])
