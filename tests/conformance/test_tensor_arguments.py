"""Arguments that PyTorch and NumPy have beside operands and axes mean the same here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import DTypeError, Tensor, ValueRangeError, dtypes
from tests.conformance.agree import agree

if TYPE_CHECKING:
    from collections.abc import Callable

torch = pytest.importorskip("torch")

A = np.array([[1.25, -7.5, 3.0], [-2.5, 0.5, 6.35]], np.float32)
B = np.array([[2.0, 2.0, -0.7], [0.7, -3.0, 1e-3]], np.float32)
K = np.array([7, -7, 5, -5, -9, 2**62, -(2**63)])
J = np.array([2, 2, -3, -3, 9, 7, -1])
WITH: dict[str, Callable[[Any, Any], Any]] = {
    "clamp min": lambda a, b: a.clamp(min=0),
    "clamp max": lambda a, b: a.clamp(max=0.5),
    "clamp both": lambda a, b: a.clamp(min=b - 1, max=b),
    "clip": lambda a, b: a.clip(min=-1, max=1),
    "var biased": lambda a, b: a.var(unbiased=False),
    "var along": lambda a, b: a.var(dim=1, unbiased=True),
    "std corrected": lambda a, b: a.std(dim=0, correction=0, keepdim=True),
    "div floor": lambda a, b: a.div(b, rounding_mode="floor"),
    "div trunc": lambda a, b: a.div(b, rounding_mode="trunc"),
    "add alpha": lambda a, b: a.add(b, alpha=2),
    "sub alpha": lambda a, b: a.sub(b, alpha=-3),
    "add_ alpha": lambda a, b: (a + 0).add_(b, alpha=2),
    "round": lambda a, b: a.round(),
    "round decimals": lambda a, b: a.round(decimals=1),
    "round tens": lambda a, b: (a * 10).round(decimals=-1),
    "leaky_relu": lambda a, b: (torch.nn.functional.leaky_relu if torch.is_tensor(a) else Tensor.leaky_relu)(
        a, negative_slope=0.2
    ),
    "sort": lambda a, b: a.sort(dim=1, descending=True).values,
    "sort indices": lambda a, b: a.sort(dim=0).indices,
    "topk": lambda a, b: a.topk(2).values,
    "topk indices": lambda a, b: a.topk(2, dim=1, largest=False).indices,
    "mean dtype": lambda a, b: a.mean(dtype=torch.float64 if torch.is_tensor(a) else dtypes.float64),
}


@pytest.mark.parametrize("name", WITH)
def test_an_argument_means_what_it_means_in_pytorch(name: str) -> None:
    agree(WITH[name](Tensor(A), Tensor(B)), WITH[name](torch.tensor(A), torch.tensor(B)), tolerance=1e-6)


def test_integers_are_divided_exactly() -> None:
    i, j, k, m = Tensor(K), Tensor(J), torch.tensor(K), torch.tensor(J)
    for mode in ("floor", "trunc"):
        agree(i[:-1].div(j[:-1], rounding_mode=mode), k[:-1].div(m[:-1], rounding_mode=mode))
    agree(i.fmod(j), np.fmod(K, J))
    agree(Tensor([5, -5]).fmod(0), np.array([0, 0]))
    agree(Tensor([125, -125, 135, 149, 0]).round(decimals=-1), np.round([125, -125, 135, 149, 0], -1))
    agree(Tensor([5]).round(decimals=3), np.array([5]))
    agree(Tensor([5], dtype="int8").round(decimals=-3), np.array([0], np.int8))


def test_rounding_to_more_decimals_than_there_are_changes_nothing() -> None:
    agree(Tensor([1.5, 3e38]).round(decimals=38), np.array([1.5, 3e38], np.float32))
    agree(Tensor(np.array([1.25], np.float16)).round(decimals=6), np.array([1.25], np.float16))
    with pytest.raises(ValueRangeError, match="round: decimals must be between -308 and 308; got 400"):
        Tensor([1.0]).round(decimals=400)


def test_pythons_round() -> None:
    assert round(Tensor([2.5, 3.5])).tolist() == [2.0, 4.0]
    agree(round(Tensor(A), 1), np.round(A, 1))


def test_one_call_moves_and_casts() -> None:
    x = Tensor([1, 2])
    assert x.to("CPU", dtypes.float32).dtype is dtypes.float32
    assert x.to("float16").dtype is dtypes.float16
    assert x.to(np.float64).dtype is dtypes.float64
    moved = x.to(device="PYTHON", dtype="int8")
    assert (moved.device, moved.dtype, moved.tolist()) == ("PYTHON", dtypes.int8, [1, 2])
    again = x.to(moved)
    assert (again.device, again.dtype) == ("PYTHON", dtypes.int8)
    assert x.to("CPU") is x.to("int64") is x.to(None) is x


def test_whole_numbers_at_random_as_each_library_asks_for_them() -> None:
    ways = (
        Tensor.randint(4, 3, low=2, high=5),
        Tensor.randint(2, 5, (4, 3)),
        Tensor.randint(2, 5, size=(4, 3)),
        Tensor.randint((4, 3), low=2, high=5),
    )
    for found in ways:
        assert found.shape == (4, 3)
        assert 2 <= found.min().item() <= found.max().item() < 5
    assert Tensor.randint(1, [2]).tolist() == [0, 0]


def test_unique_with_all_that_it_knows() -> None:
    values = np.array([[3, 1], [3, 2]])
    found, inverse, counts = Tensor(values).unique(return_inverse=True, return_counts=True)
    want = torch.tensor(values).unique(return_inverse=True, return_counts=True)
    for got, expected in zip((found, inverse, counts), want, strict=True):
        agree(got, expected)


def test_a_loss_of_one_vector() -> None:
    scores = np.array([-1.0, -2.0, -0.5], np.float32)
    agree(Tensor(scores).nll_loss(Tensor(1)), torch.nn.functional.nll_loss(torch.tensor(scores), torch.tensor(1)))
    agree(
        Tensor(scores).cross_entropy(Tensor(2)),
        torch.nn.functional.cross_entropy(torch.tensor(scores), torch.tensor(2)),
        tolerance=1e-6,
    )


def test_a_tensor_that_requires_grad_shows_it() -> None:
    x = Tensor([1.0], requires_grad=True)
    assert repr(x) == "Tensor([1.], dtype=float32, requires_grad=True)"
    assert repr(x.detach()) == "Tensor([1.], dtype=float32)"


@pytest.mark.parametrize("name", ["sum", "mean", "std", "var", "min", "max", "prod", "all", "any", "cumsum", "argmax"])
def test_functions_of_numpy_stay_lazy(name: str) -> None:
    function = getattr(np, name)
    found = function(Tensor(A), axis=1)
    assert isinstance(found, Tensor)
    agree(found, function(A, axis=1), tolerance=1e-6)
    if name in ("cumsum", "argmax"):  # NumPy asks arrays where these cannot be asked of a tensor
        return
    agree(function(Tensor(A), keepdims=True), function(A, keepdims=True), tolerance=1e-6)
    with pytest.raises(DTypeError, match=f"{name}: there is no `out`"):
        function(Tensor(A), axis=1, out=np.zeros(2, np.float32))


def test_functions_of_numpy_with_more_to_them() -> None:
    agree(np.sum(Tensor(A), dtype=np.float64), np.sum(A, dtype=np.float64))
    agree(np.std(Tensor(A), axis=0, ddof=1), np.std(A, axis=0, ddof=1), tolerance=1e-6)
    assert isinstance(np.clip(Tensor(A), 0, 1), Tensor)
    assert isinstance(np.round(Tensor(A), 1), Tensor)
