"""Gradients through ops, views and writes, against PyTorch where it is installed and by finite differences."""

from __future__ import annotations

import gc
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor, dtypes, no_grad
from intaglio.core.errors import GradError
from intaglio.ir.node import Op
from intaglio.ops import elementwise

if TYPE_CHECKING:
    from collections.abc import Callable

UNARY = {
    "exp": (-1, 1), "exp2": (-1, 1), "expm1": (-1, 1), "log": (0.5, 2), "log2": (0.5, 2), "log10": (0.5, 2),
    "log1p": (-0.5, 1),
    "sin": (-2, 2), "cos": (-2, 2), "tan": (-1, 1), "asin": (-0.8, 0.8), "acos": (-0.8, 0.8), "atan": (-2, 2),
    "sinh": (-1, 1), "cosh": (-1, 1), "tanh": (-1, 1), "asinh": (-1, 1), "acosh": (1.5, 3), "atanh": (-0.8, 0.8),
    "erf": (-1, 1), "sqrt": (0.5, 2), "abs": (0.5, 2), "neg": (-1, 1), "reciprocal": (0.5, 2), "sigmoid": (-2, 2),
    "silu": (-2, 2), "gelu": (-2, 2), "relu": (0.5, 2), "softmax": (-1, 1), "log_softmax": (-1, 1),
    "logsumexp": (-1, 1), "cumsum": (-1, 1), "cumprod": (0.5, 1.5), "prod": (0.5, 1.5),
    "max": (0, 1), "min": (0, 1), "var": (0, 1),
}  # fmt: skip


def same_gradients(ours: list[Tensor], theirs: list[Any]) -> None:
    """PyTorch's gradients; none is as good as zeros."""
    for mine, other in zip(ours, theirs, strict=True):
        if other.grad is None:
            assert mine.grad is None or not mine.grad.numpy().any()
        else:
            assert mine.grad is not None
            assert np.allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", UNARY)
def test_finite_differences_agree(name: str) -> None:
    low, high = UNARY[name]
    rng = np.random.default_rng(len(name))
    x = rng.uniform(low, high, 6)
    weights = rng.standard_normal(6)

    def value(at: np.ndarray[Any, Any]) -> Tensor:
        out = getattr(leaf if at is x else Tensor(at), name)()
        return (out * Tensor(weights)).sum() if out.shape else out

    leaf = Tensor(x, requires_grad=True)
    value(x).backward()
    assert leaf.grad is not None
    got = leaf.grad.numpy()
    step = 1e-6
    for k in range(6):
        up, down = x.copy(), x.copy()
        up[k] += step
        down[k] -= step
        slope = (value(up).item() - value(down).item()) / (2 * step)
        assert abs(got[k] - slope) <= 1e-5 * max(1.0, abs(slope)), (name, k, got[k], slope)


BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "mod", "pow", "atan2", "copysign", "floor_divide"]
STEPS = {("floor_divide", 0), ("floor_divide", 1), ("copysign", 1)}  # flat between their steps: no gradient


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", BINARY)
def test_finite_differences_of_two_operands_agree(name: str, which: int) -> None:
    rng = np.random.default_rng(len(name))
    x, y = np.array([0.7, 1.3, 2.6, 5.9, 4.4, 7.1]), np.array([1.9, 0.8, 2.1, 1.7, 4.9, 2.4])
    if name != "pow":
        x[1], y[2], x[4], y[4] = -x[1], -y[2], -x[4], -y[4]
    weights = rng.standard_normal(6)
    leaves = [Tensor(v, requires_grad=True) for v in (x, y)]
    (getattr(leaves[0], name)(leaves[1]) * Tensor(weights)).sum().backward()
    values = []
    for step in (1e-6, -1e-6):
        moved = [x.copy(), y.copy()]
        moved[which] += step
        values.append(getattr(Tensor(moved[0]), name)(Tensor(moved[1])).numpy())
    slopes = weights * (values[0] - values[1]) / 2e-6
    grad = leaves[which].grad
    if (name, which) in STEPS:
        assert grad is None
        assert not slopes.any()
    else:
        assert grad is not None
        np.testing.assert_allclose(grad.numpy(), slopes, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["where", "rarely", "fma"])
def test_gradients_of_three_operands_are_known(name: str) -> None:
    arrays = [np.array([1.0, 0.0, 3.0]), np.array([4.0, 5.0, 6.0]), np.array([-7.0, 8.0, 9.0])]
    a, b, c = (Tensor(v, requires_grad=True) for v in arrays)
    if name != "fma":
        choose = {"where": elementwise.where, "rarely": elementwise.rarely}[name]
        out = a._make(choose((a > 0.5)._value(), b._value(), c._value()), b, c)
        expected = [None, [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    else:
        out = a._make(elementwise.fma(a._value(), b._value(), c._value()), a, b, c)
        assert out.tolist() == [-3.0, 8.0, 27.0]
        expected = [arrays[1].tolist(), arrays[0].tolist(), [1.0, 1.0, 1.0]]
    out.sum().backward()
    assert [None if t.grad is None else t.grad.tolist() for t in (a, b, c)] == expected


def test_the_slope_of_ldexp_is_its_power() -> None:
    x = Tensor([1.5, -0.75, 0.0], requires_grad=True)
    n = Tensor([3.0, -2.0, 1.0])
    out = x._make(elementwise.ldexp(x._value(), n._value()), x)
    assert out.tolist() == [12.0, -0.1875, 0.0]
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [8.0, 0.25, 2.0]


def test_the_slope_of_copysign_is_a_sign_at_every_value() -> None:
    x, y = ([s * v for v in (np.inf, 0.0, 3.0) for s in (1, -1)] for _ in range(2))
    a = Tensor([v for v in x for _ in y], requires_grad=True)
    b = [w for _ in x for w in y]
    a.copysign(Tensor(b)).sum().backward()
    assert a.grad is not None
    assert np.array_equal(a.grad.numpy(), np.copysign(1, a.numpy()) * np.copysign(1, b))


def test_every_elementwise_op_has_its_gradient_measured_here_or_is_flat() -> None:
    flat = {"floor", "ceil", "trunc", "round", "lt", "le", "eq", "ne", "not", "and", "or", "xor", "shl", "shr"}
    others = {"where", "rarely", "fma", "ldexp", "floor_div", "cast", "bitcast", "detach", "library", "mul_low"}
    ops = {name for name, op in Op.registry.items() if issubclass(op, elementwise.Elementwise)}
    sloped = {name for name, op in Op.registry.items() if issubclass(op, elementwise.Sloped)}  # see test_slopes
    assert ops - sloped <= {*UNARY, *BINARY, *flat, *others}


def _writes(t: Any, a: Any, b: Any) -> Any:
    """Writes of slices, rows and sums, through views of views."""
    t[1:3] = b[0:2] * 2
    t[2] = t[1].clone() * 3
    t[:, 0] += a[0]
    view = t[4]
    view += b[4]
    return (t * t).sum()


def _loop(t: Any, a: Any, b: Any) -> Any:
    """Elements written one by one."""
    for i in range(5):
        t[i, 1] = a[0, i] * b[i, 0]
    return (t * t).sum()


def _recurrence(t: Any, a: Any, b: Any) -> Any:
    """Each row from the one before."""
    for i in range(4):
        t[i + 1] = t[i].clone() * a[1, i] + b[i]
    return (t * 0.5).sum()


def _covered(t: Any, a: Any, b: Any) -> Any:
    """What is written over gets no gradient."""
    t[:] = b * 3
    t[1:4] = b[0] * a[2, 2]
    return (t * t).sum()


def _in_place(t: Any, a: Any, b: Any) -> Any:
    """In-place operators on what gradients flow through."""
    y = b * 2
    y += a[0, 0]
    y *= b
    y[0] = 0
    return y.sum() + t.sum()


def _expressions(t: Any, a: Any, b: Any) -> Any:
    """Products, softmax, views that cross, advanced reads."""
    return (
        ((a @ b).tanh() * 2).exp().sum()
        + a.softmax(-1)[1:3, ::2].sum()
        + b.reshape(3, 5)[:, 1].sum()
        + b[[0, 2, 2]].sum()
    )


@pytest.mark.parametrize("program", [_writes, _loop, _recurrence, _covered, _in_place, _expressions])
def test_pytorch_agrees(program: Callable[[Any, Any, Any], Any]) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 5)).astype(np.float32), rng.standard_normal((5, 3)).astype(np.float32)
    theirs = [torch.tensor(v, requires_grad=True) for v in (a, b)]
    ours = [Tensor(v, requires_grad=True) for v in (a, b)]
    expected, got = program(torch.zeros(5, 3), *theirs), program(Tensor.zeros(5, 3), *ours)
    assert np.isclose(got.item(), expected.item(), rtol=1e-4)
    expected.backward()
    got.backward()
    same_gradients(ours, theirs)


def copied(x: Any) -> Any:
    """A tensor as it is; for PyTorch, which wants it before a write, a copy."""
    return x if isinstance(x, Tensor) else x.clone()


def _decay(t: Any, x: Any, w: Any) -> Any:
    """Each element from the one before."""
    for i in range(1, t.shape[0]):
        t[i, 0] = copied(t[i - 1, 0]) * 0.5 + x[i, 0]
    return (t * t).sum()


def _weight(t: Any, x: Any, w: Any) -> Any:
    """One weight in every turn: its gradient is a sum over them."""
    for i in range(1, t.shape[0]):
        t[i, 0] = copied(t[i - 1, 0]) * w[0] + x[i, 0]
    return (t * t).sum()


def _rows(t: Any, x: Any, w: Any) -> Any:
    """Rows, by an op whose slope depends on the value."""
    for i in range(1, t.shape[0]):
        t[i] = (copied(t[i - 1]) * w).tanh() + x[i]
    return (t * t).sum()


def _columns(t: Any, x: Any, w: Any) -> Any:
    """Columns, backwards, with reductions in the body."""
    for i in range(t.shape[1] - 2, -1, -1):
        t[:, i] = (copied(t[:, i + 1]) + x[:, i]).softmax(-1) * w[i]
    return (t * t).sum()


def _network(t: Any, x: Any, w: Any) -> Any:
    """A recurrent network: its matrix is read whole in every turn."""
    matrix = w.reshape(3, 1) * w
    for i in range(1, t.shape[0]):
        t[i] = (copied(t[i - 1]) @ matrix + x[i]).tanh()
    return (t * t).sum()


def _second_order(t: Any, x: Any, w: Any) -> Any:
    """Two turns back, of which only a part is read later."""
    for i in range(2, t.shape[0]):
        t[i] = copied(t[i - 1]) * copied(t[i - 2]) * 0.5 + x[i] * w
    return t[t.shape[0] // 2 :, 1].sum()


def _down(t: Any, x: Any, w: Any) -> Any:
    """A negative step."""
    for i in range(t.shape[0] - 2, -1, -1):
        t[i, 1] = copied(t[i + 1, 1]).sin() + x[i, 1]
    return (t[1:] * t[1:]).sum()


def _ahead(t: Any, x: Any, w: Any) -> Any:
    """Each turn reads what a later one overwrites: nothing flows from turn to turn."""
    t[:] = x * 2
    for i in range(t.shape[0] - 1):
        t[i] = copied(t[i + 1]) * copied(t[i]) + x[i] * w
    return (t * t).sum()


def _in_one_place(t: Any, x: Any, w: Any) -> Any:
    """An accumulator: every value that the slope needs is overwritten by the next turn."""
    for i in range(t.shape[0]):
        t[0, 0] = copied(t[0, 0]) * x[i, 0] + x[i, 1] * w[1]
    return (t * t).sum()


def _two_in_turn(t: Any, x: Any, w: Any) -> Any:
    """Two storages in turn."""
    u = x * 1
    for i in range(1, t.shape[0]):
        t[i] = copied(u[i - 1]) * w + x[i]
        u[i] = copied(t[i]) * 0.5 - copied(u[i - 1]) * copied(u[i])
    return (t * u).sum()


def _branches(t: Any, x: Any, w: Any) -> Any:
    """Two kinds of turn that follow no period."""
    for i in range(1, t.shape[0]):
        t[i] = copied(t[i - 1]) * w + x[i] if i * i % 7 < 3 else copied(t[i - 1]) - x[i]
    return (t * t).sum()


def _nest(t: Any, x: Any, w: Any) -> Any:
    """A table in which each element has two before it."""
    for i in range(1, t.shape[0]):
        for j in range(1, t.shape[1]):
            t[i, j] = copied(t[i - 1, j]) * w[0] + copied(t[i, j - 1]) * x[i, j]
    return (t * t).sum()


def _repeated(t: Any, x: Any, w: Any) -> Any:
    """A scalar repeated over a row: what it gets is summed."""
    for i in range(1, t.shape[0]):
        t[i] = copied(t[i - 1]) * w[0].expand(3) + x[i, 0].expand(3)
    return (t * t).sum()


def _twice(t: Any, x: Any, w: Any) -> Any:
    """A sweep, a write of a number, a value of that moment, and a sweep over the same places."""
    t[0] = 1.0
    for i in range(1, t.shape[0]):
        t[i] = copied(t[i - 1]) * w + x[i]
    t[t.shape[0] // 2] = 0.5
    between = (copied(t) * copied(t)).sum()
    for i in range(1, t.shape[0]):
        t[i] = copied(t[i - 1]) * w + x[i] * copied(t[i])
    return between + (t * t).sum()


def _sum_inside(t: Any, x: Any, w: Any) -> Any:
    """A loss that grows in the loop."""
    loss = (w * 0).sum()
    for i in range(1, t.shape[0]):
        t[i] = copied(t[i - 1]) * w + x[i]
        loss = loss + (copied(t[i]) * copied(t[i])).sum()
    return loss


def _gates(t: Any, x: Any, w: Any) -> Any:
    """Turns that make a value of their own and view parts of it."""
    for i in range(1, t.shape[0]):
        h = (t[i - 1].clone() * w + x[i]).reshape(3, 1) * w
        t[i] = h[0] * h[1].tanh() + h[:, 2]
    return (t * t).sum()


RECURRENCES = [
    _decay, _weight, _rows, _columns, _network, _second_order, _down, _ahead, _in_one_place, _two_in_turn, _branches,
    _nest, _repeated, _twice, _sum_inside, _gates,
]  # fmt: skip


@pytest.mark.parametrize("first", [False, True], ids=["backward first", "value first"])
@pytest.mark.parametrize("turns", [1, 2, 3, 13])
@pytest.mark.parametrize("program", RECURRENCES)
def test_pytorch_agrees_through_recurrences(program: Callable[[Any, Any, Any], Any], turns: int, first: bool) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(turns)
    x, w = rng.standard_normal((turns, 3)).astype(np.float32), rng.standard_normal(3).astype(np.float32)
    theirs = [torch.tensor(v, requires_grad=True) for v in (x, w)]
    ours = [Tensor(v, requires_grad=True) for v in (x, w)]
    expected, got = program(torch.zeros(turns, 3), *theirs), program(Tensor.zeros(turns, 3), *ours)
    if not expected.requires_grad:
        return
    if first:
        got.realize()
    expected.backward()
    got.backward()
    same_gradients(ours, theirs)
    assert np.isclose(got.item(), expected.item(), rtol=1e-4)


def test_finite_differences_agree_through_a_recurrence() -> None:
    n = 9
    x = np.random.default_rng(0).standard_normal(n)

    def value(leaf: Tensor) -> Tensor:
        t = Tensor.zeros(n, dtype=leaf.dtype)
        for i in range(1, n):
            t[i] = (t[i - 1] * leaf[0]).tanh() + leaf[i]
        return (t * t).sum()

    leaf = Tensor(x, requires_grad=True)
    value(leaf).backward()
    assert leaf.grad is not None
    steps = np.eye(n) * 1e-6
    slopes = [(value(Tensor(x + step)).item() - value(Tensor(x - step)).item()) / 2e-6 for step in steps]
    np.testing.assert_allclose(leaf.grad.numpy(), slopes, rtol=1e-6, atol=1e-7)


def test_a_history_kept_through_a_recurrence_serves_two_sweeps() -> None:
    x = Tensor(np.arange(6, dtype=np.float32), requires_grad=True)
    t = Tensor.zeros(6)
    for i in range(1, 6):
        t[i] = t[i - 1] * t[i - 1] * 0.1 + x[i]
    loss = t.sum()
    loss.backward(retain_graph=True)
    assert x.grad is not None
    once = x.grad.numpy()
    loss.backward()
    assert np.allclose(x.grad.numpy(), 2 * once)
    with pytest.raises(GradError, match="retain_graph=True"):
        (t * 3).sum().backward()


def test_what_is_written_after_backward_does_not_change_it() -> None:
    grads = []
    for late in (False, True):
        w = Tensor([0.5, 2.0], requires_grad=True)
        t = Tensor.zeros(8)
        for i in range(1, 8):
            t[i] = (t[i - 1] * w[0]).tanh() + w[1]
        t.sum().backward()
        if late:
            with no_grad():
                w[:] = 7.0
            t[:] = 3.0
            t.realize(w)
        assert w.grad is not None
        grads.append(w.grad.tolist())
    assert grads[0] == grads[1]


def test_of_equal_places_the_last_gets_the_gradient() -> None:
    v = Tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    t = Tensor.zeros(3)
    t[[0, 1, 0, 2]] = v
    (t * Tensor([10.0, 20.0, 30.0])).sum().backward()
    assert v.grad is not None
    assert v.grad.tolist() == [0.0, 20.0, 10.0, 30.0]


def test_a_saved_value_is_what_it_was() -> None:
    w = Tensor([2.0, 3.0], requires_grad=True)
    x = Tensor([5.0, 7.0])
    y = (w * x).sum()
    x[:] = 0
    y.backward()
    assert w.grad is not None
    assert w.grad.tolist() == [5.0, 7.0]


def test_gradients_add_up_and_can_be_taken_without_backward() -> None:
    w = Tensor([1.0, -2.0], requires_grad=True)
    for _ in range(3):
        (w * w).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [6.0, -12.0]
    (g,) = (w * 3).sum().gradient(w)
    assert g.tolist() == [3.0, 3.0]


def test_nothing_is_tracked_inside_no_grad_or_through_detach() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    with no_grad():
        constant = w * 10
    ((w * constant) + w.detach() * 5).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [10.0, 20.0]
    with pytest.raises(GradError, match="does not depend"):
        constant.sum().backward()


def test_backward_through_a_loop_of_writes_takes_as_many_kernels_at_any_length() -> None:
    counts = []
    for n in (100, 1000):
        x = Tensor(np.ones(n, np.float32)).realize()
        w = Tensor([2.0], requires_grad=True)
        t = Tensor.zeros(n)
        for i in range(n):
            t[i] = w[0] * x[i]
        GlobalCounters.reset()
        t.sum().backward()
        assert w.grad is not None
        assert w.grad.tolist() == [float(n)]
        counts.append(GlobalCounters.kernel_count)
    assert counts[0] == counts[1]


def test_a_number_written_through_a_mask_keeps_the_gradient_of_the_rest() -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    t = x * 1
    t[t > 2.5] = 0
    (t * t).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 4.0, 0.0, 0.0]


def test_a_freed_history_is_an_error_that_says_what_to_do() -> None:
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    t = x * 2
    t[0] = 7.0
    (t * t).sum().backward()
    with pytest.raises(GradError, match="retain_graph=True"):
        (t * 3).sum().backward()


def test_a_retained_history_serves_two_sweeps() -> None:
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    t = x * 2
    t[0] = 7.0
    first, second = t.sum(), (t * t).sum()
    first.backward(retain_graph=True)
    second.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 18.0, 26.0]


def test_many_lazy_optimizer_steps_run() -> None:
    y = Tensor([3.0, 4.0], requires_grad=True)
    with no_grad():
        for _ in range(5):
            y *= 2
            y -= 1
    assert y.tolist() == [65.0, 97.0]
    z = Tensor([1.0, 2.0], requires_grad=True)
    for _ in range(4):
        (z * z).sum().backward()
        with no_grad():
            z -= z.grad * 0.1
        z.grad = None
    assert np.allclose(z.numpy(), np.array([1.0, 2.0]) * 0.8**4)


def test_writing_nothing_is_no_write_for_gradients_either() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    t = Tensor([1.0, 2.0, 3.0]) + 1
    t[0:0] = w[0:0]
    t[1:] = w * 3
    t.sum().backward()
    assert t.tolist() == [2.0, 3.0, 6.0]
    assert w.grad is not None
    assert w.grad.tolist() == [3.0, 3.0]


def test_what_a_loop_wrote_begins_a_tensor_that_is_written_next() -> None:
    w = Tensor([2.0, -1.0, 3.0], requires_grad=True)
    t = Tensor.zeros(3)
    for i in range(1, 3):
        t[i] = t[i - 1] * w[i] + 1
    for i in range(3):
        t[i] = w[i] * i
    square = t * t
    square *= 2
    (t.sum() + square.sum()).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [0.0, 1.0 - 4.0, 2.0 + 48.0]


def test_requires_grad_may_be_set_as_an_attribute() -> None:
    x = Tensor([2.0, 3.0])
    x.requires_grad = True
    (x * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4.0, 6.0]
    x.requires_grad = False
    assert not (x * 2).requires_grad
    with pytest.raises(GradError, match="only floats have gradients"):
        Tensor([1]).requires_grad = True


def silent_element(h: Any, quiet: Any) -> None:
    """One number where gradients do not see it."""
    with quiet():
        h[0] = 5


def silent_everything(h: Any, quiet: Any) -> None:
    """All of it, from a value that is itself tracked."""
    with quiet():
        h[:] = h * 3 + 1


def silent_loop(h: Any, quiet: Any) -> None:
    """Between writes that gradients do see."""
    for i in range(1, 4):
        h[i] = h[i - 1].clone() * 2 + h[i].clone()
        with quiet():
            h[i] = 7


def silent_view(h: Any, quiet: Any) -> None:
    """Through a view that was taken inside."""
    with quiet():
        part = h[1:]
        part += 4


def detached_handle(h: Any, quiet: Any) -> None:
    """Through a handle that takes no part in gradients."""
    h.detach()[1:3] = 0


def cut_by_itself(h: Any, quiet: Any) -> None:
    """The same values, of which gradients know nothing."""
    h[1:3] = h[1:3].detach()


@pytest.mark.parametrize(
    "change", [silent_element, silent_everything, silent_loop, silent_view, detached_handle, cut_by_itself]
)
def test_what_gradients_do_not_see_changes_values_only(change: Callable[[Any, Any], None]) -> None:
    torch = pytest.importorskip("torch")
    values = np.array([1.0, -2.0, 3.0, 0.5])
    w, theirs = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    h, other = w * 2, theirs * 2
    change(h, no_grad)
    change(other, torch.no_grad)
    (h * 3).sum().backward()
    (other * 3).sum().backward()
    assert w.grad is not None
    assert np.array_equal(h.numpy(), other.detach().numpy())
    assert np.array_equal(w.grad.numpy(), theirs.grad.numpy())


def test_a_value_saved_before_a_silent_write_is_what_it_was() -> None:
    w = Tensor([2.0, 3.0], requires_grad=True)
    h = w * 1
    square = h * h
    with no_grad():
        h[:] = 100
    square.sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [4.0, 6.0]


def test_a_view_taken_inside_no_grad_or_of_a_leaf_that_was_detached_has_no_gradient() -> None:
    w = Tensor([2.0, 3.0], requires_grad=True)
    with no_grad():
        view = w[:1]
    assert not view.requires_grad
    w.detach()[0] = 9
    (w * w).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [18.0, 6.0]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("int64", [2.0, 0, 0, 2, 2, 0]), ("int32", [0.0, 0, 2, 2, 2, 0]), ("uint8", [0.0, 2, 2, 2, 2, 0])],
)
def test_elements_of_which_bits_were_written_have_no_gradient(dtype: str, expected: list[float]) -> None:
    w = Tensor(np.arange(6.0), requires_grad=True)
    h = w * 2
    bits = h.bitcast(getattr(dtypes, dtype))
    bits[[1, 2]] = 0
    bits[-1] = 3
    h.sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == expected


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda bits: operator.setitem(bits, bits > 8, 5), [0, 2, 0, 2]),
        (lambda bits: operator.setitem(bits.reshape(2, 2), Tensor([False, True]), 5), [2, 2, 0, 0]),
        (lambda bits: operator.setitem(bits.bitcast(dtypes.int32).reshape(4, 2)[:, 1], bits > 8, 5), [0, 2, 0, 2]),
        (lambda bits: bits.masked_fill_(bits > 8, 5), [0, 2, 0, 2]),
        (lambda bits: bits.reshape(2, 2).masked_fill_(bits[:2] > 8, 5), [0, 2, 0, 2]),
        (lambda bits: bits.scatter_(0, Tensor([3, 0, 3]), 5), [0, 2, 2, 0]),
        (lambda bits: bits.reshape(2, 2).scatter_(1, Tensor([[1]]), 5, "add"), [2, 0, 2, 2]),
    ],
)
def test_elements_beside_those_of_which_bits_were_written_keep_their_gradient(
    write: Callable[[Tensor], Any], expected: list[float]
) -> None:
    w = Tensor(np.array([2.0, -1.0, 3.0, -4.0]), requires_grad=True)
    h = w * 2
    write(h.bitcast(dtypes.int64))
    h.sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == expected


@pytest.mark.parametrize(
    ("write", "expected"),
    [(lambda bits: bits.masked_fill_(bits, 0), [0, 0, 0]), (lambda bits: bits.scatter_(0, bits[:1], 2), [0, 2, 2])],
)
def test_bits_that_say_which_bits_are_written_are_those_before(
    write: Callable[[Tensor], Any], expected: list[float]
) -> None:
    w = Tensor(np.array([2.0, -1.0, 3.0]), requires_grad=True)
    h = w * 2
    bits = h.bitcast(dtypes.int64)
    bits[0] = 0
    write(bits)
    h.sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == expected


def number_across(across: Tensor, w: Tensor) -> None:
    """A number into one of them."""
    across[0] = 1.0


def values_across(across: Tensor, w: Tensor) -> None:
    """What has gradients, all at once."""
    across[:] = w[:2] * 2


def loop_across(across: Tensor, w: Tensor) -> None:
    """What has gradients, one by one."""
    for i in range(2):
        across[i] = w[i] * 2


def positions_across(across: Tensor, w: Tensor) -> None:
    """What has gradients, at positions."""
    across[Tensor([1])] = w[:1] * 2


def mask_across(across: Tensor, w: Tensor) -> None:
    """Where a mask holds."""
    across.masked_fill_(Tensor([True, False]), 5.0)


def read_across(across: Tensor, w: Tensor) -> None:
    """Nothing."""


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (number_across, [0, 0, 2]),
        (values_across, [0, 0, 0]),
        (loop_across, [0, 0, 0]),
        (positions_across, [2, 0, 0]),
        (mask_across, [0, 0, 2]),
        (read_across, [2, 2, 2]),
    ],
)
def test_numbers_that_lie_across_elements_are_other_elements(
    write: Callable[[Tensor, Tensor], None], expected: list[float]
) -> None:
    w = Tensor(np.array([2.0, -1.0, 3.0]), requires_grad=True)
    h = w * 2
    across = h.bitcast(dtypes.uint8)[4:20].bitcast(dtypes.float64)
    write(across, w)
    total = h.sum()
    for i in range(2):
        total = total + across[i] * across[i]
    (total + (across * 3).sum()).backward()
    assert w.grad is not None
    assert w.grad.tolist() == expected


@pytest.mark.parametrize("start", [0, 4, 5, 8])
def test_elements_with_gradients_may_begin_anywhere_in_memory(start: int) -> None:
    values = np.arange(1.0, 5.0)
    memory = Tensor(np.frombuffer(bytes(start) + values.tobytes() + bytes(3), np.uint8))
    leaf = memory[start : start + 32].bitcast(dtypes.float64).requires_grad_()
    t = Tensor.zeros(4, dtype=dtypes.float64)
    t[0] = leaf[0]
    for i in range(1, 4):
        t[i] = t[i - 1] * leaf[i]
    t[3].backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [24, 12, 8, 6]


@pytest.mark.parametrize("start", [0, 3, 8])
def test_bits_of_elements_that_begin_anywhere_may_be_written(start: int) -> None:
    w = Tensor(np.array([2.0, -1.0, 3.0, 1.0]), requires_grad=True)
    memory = Tensor(np.zeros(start + 33, np.uint8))
    h = memory[start : start + 32].bitcast(dtypes.float64)
    h[:] = w * 2
    memory[start : start + 8].masked_fill_(Tensor([False, True] * 4), 1)
    memory[start + 23 : start + 24] = 1
    memory[: start + 1] = 1
    memory[start + 32 :] = 1
    (h * 3).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [0, 6, 0, 6]


def test_a_part_of_untracked_floats_may_be_written_as_other_floats() -> None:
    w = Tensor(np.array([2.0, -1.0, 3.0]), requires_grad=True)
    t = Tensor.zeros(6).bitcast(dtypes.float64)
    t[:2] = w[:2] * 2
    (t * t).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [16, -8, 0]


def test_nothing_depends_on_the_bits_of_a_tensor() -> None:
    w = Tensor([2.0, -1.0], requires_grad=True)
    h = w * 2
    (gradient,) = (h * h).sum().gradient(h.bitcast(dtypes.int32))
    assert (gradient.dtype, gradient.tolist()) == (dtypes.int32, [0, 0])


@pytest.mark.parametrize("flushes", [0, 1, 2])
def test_values_of_a_loop_of_elements_are_kept_when_they_are_overwritten(flushes: int) -> None:
    values = np.array([1.0, -3.0, 2.0, -2.0, 0.5])
    w = Tensor(values, requires_grad=True)
    h = w * 1
    for i in range(1, 5):
        h[i] = h[i - 1] * h[i] + w[i]
        if flushes == 2:
            h.realize()
    total = (h * h).sum()
    h[:] = 0
    if flushes:
        h.realize()
    total.backward()
    torch = pytest.importorskip("torch")
    theirs = torch.tensor(values, requires_grad=True)
    rows = [theirs[0]]
    for i in range(1, 5):
        rows.append(rows[-1] * theirs[i] + theirs[i])
    torch.stack(rows).square().sum().backward()
    assert w.grad is not None
    assert np.allclose(w.grad.numpy(), theirs.grad.numpy())


def test_running_sums_inside_a_loop_that_depends_on_itself_are_right() -> None:
    torch = pytest.importorskip("torch")
    values = np.arange(24.0).reshape(6, 4) % 5
    x, theirs = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    t, other = Tensor.zeros(6, 4, dtype=dtypes.float64), torch.zeros(6, 4, dtype=torch.float64)
    for i in range(1, 6):
        t[i] = t[i - 1].cumsum(0) * 0.5 + x[i]
        other[i] = other[i - 1].clone().cumsum(0) * 0.5 + theirs[i]
    (t * t).sum().backward()
    (other * other).sum().backward()
    assert x.grad is not None
    assert np.allclose(t.numpy(), other.detach().numpy())
    assert np.allclose(x.grad.numpy(), theirs.grad.numpy())


def test_a_leaf_that_nobody_holds_is_gone() -> None:
    held: list[int] = []
    for _ in range(5):
        leaf = Tensor(np.ones(10_000, np.float32), requires_grad=True)
        (leaf * leaf).sum().backward()
        assert leaf.grad is not None
        leaf.grad.realize()
        gc.collect()
        held.append(GlobalCounters.mem_used)
    assert held[2:] == held[1:2] * 3  # the first collection also finds what tests before left


def test_a_computed_tensor_may_be_asked_for_gradients_and_has_them_already() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    y = (w * 2).requires_grad_()
    (y * y).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [8.0, 16.0]
    with pytest.raises(GradError, match="requires_grad: a tensor computed from one that requires grad has gradients"):
        y.requires_grad_(False)


def test_gradients_with_respect_to_what_was_computed() -> None:
    def found(make: Callable[[Any], Any], slopes: Callable[[Any, list[Any]], Any]) -> list[list[float]]:
        w = make([1.0, 2.0, 3.0])
        h, t, e = w * 2, w * 1, w[0] * 3
        t[0] = h[1] * w[2]
        t[1:] *= 2
        loss = (t * t).sum() + (h[1:] * h[1:] * h[1:]).sum() + (h * e).sum()
        return [g.tolist() for g in slopes(loss, [h, t, e, w])]

    torch = pytest.importorskip("torch")
    ours = found(lambda v: Tensor(v, requires_grad=True), lambda y, xs: y.gradient(*xs))
    assert ours == found(lambda v: torch.tensor(v, requires_grad=True), lambda y, xs: torch.autograd.grad(y, xs))


def test_gradients_of_gradients_flow_through_writes_and_loops() -> None:
    def second(make: Callable[..., Any], x: Any, first: Callable[[Any, Any], Any]) -> Any:
        t = make(6)
        for i in range(1, 6):
            t[i] = copied(t[i - 1]) * x[0] + x[1] * x[2]
        g = first((t * t * t).sum(), x)
        (g * g).sum().backward()
        return x.grad.tolist()

    torch = pytest.importorskip("torch")
    ours = second(
        Tensor.zeros, Tensor([0.5, 1.0, 2.0], requires_grad=True), lambda y, x: y.gradient(x, create_graph=True)[0]
    )
    theirs = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
    assert ours == pytest.approx(
        second(torch.zeros, theirs, lambda y, x: torch.autograd.grad(y, x, create_graph=True)[0]), rel=1e-5
    )


def test_backward_leaves_gradients_that_have_gradients_where_asked() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    t = x * 1
    t[0] = x[1] * x[0]
    (t * t).sum().backward(create_graph=True)
    g = x.grad
    assert g is not None
    assert g.requires_grad
    x.grad = None
    g.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [16.0, 12.0]
    (x * x).sum().backward()
    assert not x.grad.requires_grad


def test_what_is_joined_with_a_tracked_nothing_is_tracked() -> None:
    x = Tensor.zeros(0, 2, requires_grad=True)
    joined = Tensor.ones(1, 2).cat(x)
    assert joined.requires_grad
    joined.sum().backward()
    assert x.grad is None or x.grad.shape == (0, 2)


def test_weights_that_are_written_later_are_kept_for_what_was_computed_by_them() -> None:
    w = Tensor([2.0, 3.0, 4.0], requires_grad=True)
    t = w * 1
    for i in range(1, 3):
        t[i] = t[i - 1] * w[i] + w[i]
    with no_grad():
        for i in range(1, 3):
            w[i] = w[i] * 2
    assert w.tolist() == [2.0, 6.0, 8.0]
    t[2].backward()
    assert w.grad is not None
    assert w.grad.tolist() == [12.0, 12.0, 10.0]


@pytest.mark.parametrize("before", [False, True])
def test_gradients_are_with_respect_to_a_value_as_it_is_now(before: bool) -> None:
    w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    h = w * 2
    if before:
        h[0] = h[1] * 1
    y = (h * h).sum()
    now, _ = y.gradient(h, w)
    assert now.tolist() == [8.0 if before else 4.0, 8.0, 12.0]
    h[2] = h[1] * 5
    now, leaf = y.gradient(h, w)
    assert now.tolist() == [0.0, 0.0, 0.0]
    assert leaf.tolist() == ([0.0, 32.0, 24.0] if before else [8.0, 16.0, 24.0])


def test_a_detached_value_may_begin_anew() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    for _ in range(2):
        (w * w).sum().backward()
        assert w.grad is not None
        w = (w - 0.25 * w.grad).detach().requires_grad_()
    assert w.requires_grad
    assert w.tolist() == [0.25, 0.5]
    alone = Tensor([1.0]).detach()
    alone.requires_grad = True
    (alone * 3).sum().backward()
    assert alone.grad is not None
    assert alone.grad.tolist() == [3.0]


def test_a_detached_tensor_that_shares_bytes_leaves_gradients_alone() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    shared = w.detach()
    assert not shared.requires_grad_(False).requires_grad
    with pytest.raises(GradError, match=r"Use \.detach\(\)\.clone\(\)\?"):
        shared.requires_grad_()
    computed = w * 2
    seen = computed.detach()
    computed.realize()
    with pytest.raises(GradError, match="shares them"):
        seen.requires_grad_()
    own = shared.clone().requires_grad_()
    (own * own * w).sum().backward()
    assert w.grad is not None
    assert own.grad is not None
    assert (w.grad.tolist(), own.grad.tolist()) == ([1.0, 4.0], [2.0, 8.0])
