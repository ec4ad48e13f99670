"""Names that PyTorch has for common things mean the same here."""

from __future__ import annotations

import math
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


def whole(like: Any, numbers: Any) -> Any:
    """Whole numbers as a tensor of the library that another is of."""
    return torch.tensor(numbers) if torch.is_tensor(like) else Tensor(numbers)


def values(found: Any) -> Any:
    """What an extreme along an axis gives: PyTorch has positions besides."""
    return found if isinstance(found, Tensor) else found.values


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
    "ravel": lambda a, b: a.t().ravel(),
    "select": lambda a, b: a.select(1, -1),
    "broadcast_to": lambda a, b: a.broadcast_to((2, 2, 3)),
    "rot90": lambda a, b: a.rot90(),
    "rot90 thrice": lambda a, b: a.rot90(3, (1, 0)),
    "rot90 twice": lambda a, b: a.rot90(-2),
    "tile": lambda a, b: a.tile(2),
    "tile more": lambda a, b: a.tile((2, 1, 3)),
    "median": lambda a, b: a[:1].median(),
    "median of NaN": lambda a, b: a.median(),
    "median along": lambda a, b: values(a.median(dim=0)),
    "median kept": lambda a, b: values(b.median(1, True)),
    "diag": lambda a, b: a[0].diag(),
    "diag above": lambda a, b: a[0].diag(2),
    "diag below": lambda a, b: b[0].diag(-1),
    "diag of a matrix": lambda a, b: a.diag(1),
    "fmod": lambda a, b: (a * 3.7).fmod(b + 1),
    "fmod number": lambda a, b: a.fmod(-1.5),
    "remainder": lambda a, b: (a * 3.7).remainder(-1.5),
    "addmm": lambda a, b: a[:, :2].nan_to_num(0.0, 1.0).addmm(b[:, :2].nan_to_num(0.0, 1.0), b[:, 1:].nan_to_num(0.0)),
    "addmm scaled": lambda a, b: a[:, :2].addmm(b[:1, :2].t(), b[:1, 1:], beta=0, alpha=2),
    "mv": lambda a, b: a[:1].mv(b[0]),
    "scatter_add": lambda a, b: a[:1].scatter_add(1, whole(a, [[0, 2, 0]]), b[:1]),
    "scatter_": lambda a, b: (a + 0).scatter_(0, whole(a, [[1, 0, 1]]), b),
    "masked_fill_": lambda a, b: (a + 0).masked_fill_(b > 1, 7),
    "clamp_": lambda a, b: (a + 0).clamp_(min=-1, max=2),
    "take": lambda a, b: a.take(whole(a, [[0, 5], [-2, 1]])),
    "diff": lambda a, b: a[:1].diff(),
    "diff along": lambda a, b: a[:, :2].diff(dim=0),
    "diff twice": lambda a, b: a[:1].diff(n=2),
    "diff of bool": lambda a, b: (a > 0).diff(),
    "diff of too few": lambda a, b: a.diff(n=5),
    "nansum": lambda a, b: b[:1].nansum(dim=0),
    "nanmean": lambda a, b: a[:, 1:].nanmean(dim=1, keepdim=True),
    "logaddexp": lambda a, b: a.logaddexp(b),
    "logaddexp of infinities": lambda a, b: (a - a * 0 - math.inf).logaddexp(b * 0 - math.inf),
    "hypot": lambda a, b: a.hypot(b),
    "hypot of infinity": lambda a, b: (a * 0 + math.inf).hypot(b),
    "index_fill": lambda a, b: a.index_fill(1, whole(a, [0, 2]), -1),
    "type_as": lambda a, b: (b > 0).type_as(a),
    "new_zeros": lambda a, b: a.new_zeros(2, 3),
    "new_ones": lambda a, b: a.new_ones((2,)),
    "new_full": lambda a, b: (a > 0).new_full((2, 2), True),
    "new_tensor": lambda a, b: a.new_tensor([[1, 2]]),
    "short": lambda a, b: a[:1].short(),
    "byte": lambda a, b: b[:1].byte(),
    "data": lambda a, b: a.data * 2,
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


CLOSE = dict.fromkeys(("norm 3", "norm 0.5", "logaddexp", "hypot"), 1e-6)  # how far they may be; others are equal


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


def test_stacks_side_by_side_and_below() -> None:
    for shapes in (((2, 3), (2, 3)), ((3,), (3,)), ((), ()), ((2, 1, 2), (2, 1, 2))):
        arrays = [np.arange(math.prod(s), dtype=np.float32).reshape(s) + k for k, s in enumerate(shapes)]
        for name in ("hstack", "vstack"):
            agree(getattr(Tensor, name)([Tensor(a) for a in arrays]), getattr(np, name)(arrays))
    assert Tensor([1]).hstack(Tensor([2])).tolist() == [1, 2]
    with pytest.raises(ShapeError, match="vstack: shapes must agree except on axis 0"):
        Tensor.vstack([Tensor([1]), Tensor([1, 2])])


def test_more_questions_about_a_tensor() -> None:
    x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    y = torch.tensor(x.tolist())
    for view in (lambda t: t, lambda t: t.t(), lambda t: t[:, 1], lambda t: t[:, ::2], lambda t: t[:1].expand(4, 3)):
        assert view(x).stride() == view(y).stride()
    assert (x.stride(0), x.stride(dim=-1), x.nelement(), x.itemsize) == (3, 1, 6, 4)
    with pytest.raises(ShapeError, match="stride: strides must be whole elements of 4 bytes"):
        Tensor.zeros(2, 6, dtype="int8")[:, :4].bitcast("int32").stride()
    assert x.bfloat16().dtype is dtypes.bfloat16


def test_leaves_are_what_they_are_in_pytorch() -> None:
    found = []
    for make in (lambda: Tensor([1.0, 2.0], requires_grad=True), lambda: torch.tensor([1.0, 2.0], requires_grad=True)):
        w = make()
        found.append([t.is_leaf for t in (w, w * 2, w.detach(), w[0], w.detach() + 1, (w > 0), w.data)])
    assert found[0] == found[1]


def test_data_is_an_alias_without_gradients() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    w.data = w.data * 3
    assert (w.tolist(), w.data.requires_grad) == ([3.0, 6.0], False)
    (w * w).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [6.0, 12.0]


@pytest.mark.parametrize(
    ("name", "options", "bound"),
    [
        ("scaled_uniform", {}, math.sqrt(1 / 4200)),
        ("glorot_uniform", {}, math.sqrt(6 / 130)),
        ("kaiming_uniform", {"a": 0.5}, math.sqrt(6 / (1.25 * 60))),
    ],
)
def test_weights_at_random_lie_within_their_bound(name: str, options: dict[str, float], bound: float) -> None:
    shape = (70, 60)
    drawn = getattr(Tensor, name)(*shape, dtype="float64", requires_grad=True, **options)
    values = drawn.numpy()
    assert (drawn.shape, drawn.dtype, drawn.requires_grad) == (shape, dtypes.float64, True)
    assert 0.98 * bound < np.abs(values).max() <= bound
    assert abs(values.mean()) < 0.1 * bound
    assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_draws_by_probability() -> None:
    chances = Tensor.full((10_000,), 0.25)
    for drawn in (chances.bernoulli(), chances.bernoulli(0.25), chances.long().bernoulli(0.25)):
        assert drawn.float().mean().item() == pytest.approx(0.25, abs=0.02)
        assert sorted(drawn.unique().tolist()) == [0, 1]
    assert Tensor([0.0, 1.0]).expand(50, 2).bernoulli().sum(0).tolist() == [0.0, 50.0]
    assert Tensor([3]).bernoulli(1).tolist() == [1]


def test_tinygrads_names_of_losses() -> None:
    rng = np.random.default_rng(5)
    scores, classes = rng.standard_normal((2, 4, 3)).astype(np.float32), np.array([[0, 1, -1, 2], [2, -1, 0, 0]])
    got = Tensor(scores).sparse_categorical_crossentropy(Tensor(classes), label_smoothing=0.1)
    want = torch.nn.functional.cross_entropy(
        torch.tensor(scores).movedim(-1, 1), torch.tensor(classes), ignore_index=-1, label_smoothing=0.1
    )
    agree(got, want, tolerance=1e-6)
    chances, yes = Tensor([0.25, 0.5]), Tensor([1.0, 0.0])
    agree(chances.binary_crossentropy(yes), np.float32(-(np.log(0.25) + np.log(0.5)) / 2), tolerance=1e-6)


def test_gradients_pass_through_what_is_made_of_others() -> None:
    x = np.array([0.5, -1.5, 2.5], np.float32)
    for call in (
        lambda t: (t.diag() * t).sum(),
        lambda t: t.logaddexp(t * 2).sum(),
        lambda t: t.hypot(t + 1).sum(),
        lambda t: (t.diff() ** 2).sum(),
        lambda t: t.norm(3),
        lambda t: t.fmod(0.7).sum(),
        lambda t: (t.tile(2) * 3).sum(),
        lambda t: t.clamp(min=-1, max=1).sum(),
        lambda t: t.median(),
        lambda t: t.nanmean(),
    ):
        w, v = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        call(w).backward()
        call(v).backward()
        assert w.grad is not None
        agree(w.grad, v.grad, tolerance=1e-5)
