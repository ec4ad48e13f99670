"""Names that PyTorch has for common things mean the same here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor, dtypes
from intaglio.core.errors import ShapeError
from tests.conformance.agree import agree

if TYPE_CHECKING:
    from collections.abc import Callable

torch = pytest.importorskip("torch")

A = np.array([[1.0, 0.0, -2.0], [np.inf, 4.0, np.nan]], np.float32)
B = np.array([[1.0, 5.0, 0.0], [np.inf, 4.00001, np.nan]], np.float32)
SAME: dict[str, Callable[[Any, Any], Any]] = {
    "t": lambda a, b: a.t(),
    "swapaxes": lambda a, b: a.swapaxes(0, 1),
    "view_as": lambda a, b: a.view_as(b.t()),
    "expand_as": lambda a, b: a[:1].expand_as(b),
    "unbind": lambda a, b: a.unbind(1)[2],
    "mm": lambda a, b: a[:, :2].nan_to_num().mm(b[:, :2].nan_to_num(0.0, 1.0).t()),
    "bmm": lambda a, b: a[:1, :2].reshape(1, 2, 1).bmm(b[:1, :2].reshape(1, 1, 2)),
    "outer": lambda a, b: a[0].outer(b[0]),
    "logical_and": lambda a, b: a.logical_and(b),
    "logical_or": lambda a, b: a.logical_or(b),
    "logical_xor": lambda a, b: a.logical_xor(b),
    "isclose": lambda a, b: a.isclose(b),
    "isclose with NaN": lambda a, b: a.isclose(b, equal_nan=True),
    "nan_to_num": lambda a, b: a.nan_to_num(),
    "nan_to_num given": lambda a, b: a.nan_to_num(nan=1.0, posinf=2.0, neginf=3.0),
    "amax": lambda a, b: a[:1].amax(dim=1),
    "amin": lambda a, b: a[:1].amin(dim=0, keepdim=True),
    "count_nonzero": lambda a, b: a.count_nonzero(),
    "count_nonzero along": lambda a, b: a.count_nonzero(dim=1),
    "norm of all": lambda a, b: a[:1].norm(),
    "norm 1": lambda a, b: a[:1].norm(1),
    "norm 2 along": lambda a, b: a[:1].norm(2, 1),
    "norm 3": lambda a, b: a[:1].norm(3, dim=1, keepdim=True),
    "norm 0.5": lambda a, b: a[:, :2].norm(0.5),
    "norm inf": lambda a, b: a[:1].norm(float("inf"), dim=1),
    "norm -inf": lambda a, b: a[:1].norm(-float("inf")),
    "norm 0": lambda a, b: a.norm(0),
    "norm fro": lambda a, b: a[:1].norm("fro"),
    "trace": lambda a, b: a[:, :2].trace(),
}


CLOSE = {"norm 3": 1e-6, "norm 0.5": 1e-6}  # by which they may differ; the others are equal


@pytest.mark.parametrize("name", SAME)
def test_a_name_means_what_it_means_in_pytorch(name: str) -> None:
    got = SAME[name](Tensor(A), Tensor(B)).numpy()
    want = SAME[name](torch.tensor(A), torch.tensor(B)).numpy()
    agree(got, want, tolerance=CLOSE.get(name))


def test_questions_about_a_tensor() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert (x.dim(), x.element_size(), x.is_floating_point()) == (2, 4, True)
    assert (x.is_contiguous(), x.t().is_contiguous()) == (True, False)
    assert x.to(dtypes.int32).dtype is dtypes.int32
    assert x.cpu() is x
    assert x.equal(Tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert not x.equal(Tensor([1.0, 2.0]))
    assert x.allclose(x + 1e-7)
    assert not x.allclose(x + 1e-3)
    assert x.swish().allclose(x.silu())


def test_products_that_want_matrices_say_so() -> None:
    with pytest.raises(ShapeError, match=r"mm: both operands must have 2 axes; they are \(2,\) and \(2,\)\."):
        Tensor([1, 2]).mm(Tensor([1, 2]))
    with pytest.raises(ShapeError, match="t: the tensor must have at most two axes"):
        Tensor.zeros(1, 2, 3).t()


def test_a_view_is_never_a_copy() -> None:
    x = Tensor.arange(6).reshape(2, 3)
    x.view(3, -1)[2, 1] = 9
    assert x.tolist() == [[0, 1, 2], [3, 4, 9]]
    assert x.t().view(3, 2).tolist() == x.t().tolist()
    for call in (lambda t: t.t().view(6), lambda t: t.t().view(-1), lambda t: t.t().view_as(t)):
        with pytest.raises(RuntimeError, match="view"):
            call(torch.arange(6).reshape(2, 3))
        with pytest.raises(ShapeError, match=r"^view(_as)?: the strides must allow a view; .* Use reshape"):
            call(x)
    assert x.view(dtypes.int32).tolist() == torch.tensor(x.tolist()).view(torch.int32).tolist()
