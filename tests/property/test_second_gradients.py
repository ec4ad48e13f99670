"""First and second gradients of layers, reductions, products and moves are PyTorch's, whatever lies in between."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from intaglio import Tensor, dtypes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Shape = tuple[int, ...]
    Function = Callable[..., Any]
    Case = tuple[list[Shape], Function]

torch = pytest.importorskip("torch")
F = torch.nn.functional
PROGRAMS: Final = 60
BOUNDS: Final = {"float64": 1e-8, "float32": 2e-3}


def either(ours: Function, theirs: Function) -> Function:
    """A function of tensors of either library."""
    return lambda *xs: (ours if isinstance(xs[0], Tensor) else theirs)(*xs)


def whole(like: Any, numbers: Any) -> Any:
    """Whole numbers, or a mask, as a tensor of the library that another is of."""
    return Tensor(numbers) if isinstance(like, Tensor) else torch.tensor(numbers)


class Draw(random.Random):
    """What a program is drawn with."""

    def shape(self, rank: int | None = None, *, empty: float = 0.1) -> Shape:
        """A shape with small extents, 1 among them, seldom 0."""
        extents = [self.randint(1, 4) for _ in range(self.randint(1, 3) if rank is None else rank)]
        if extents and self.random() < empty:
            extents[self.randrange(len(extents))] = 0
        return tuple(extents)

    def like(self, shape: Shape) -> Shape:
        """A shape that broadcasts to another."""
        extents = [1 if self.random() < 0.3 else n for n in shape]
        return tuple(extents[self.randint(0, len(extents)) if self.random() < 0.4 else 0 :])

    def numbers(self, below: int, shape: Shape) -> Any:
        """Whole numbers."""
        return np.random.default_rng(self.getrandbits(32)).integers(0, below, shape)


def along(name: str, *, empty: float = 0.0) -> Callable[[Draw], Case]:
    """A method along an axis."""

    def case(d: Draw) -> Case:
        shape = d.shape(empty=empty)
        axis = d.randrange(-len(shape), len(shape))
        return [shape], lambda x: getattr(x, name)(axis)

    return case


def pointwise(name: str, theirs: Function | None = None) -> Callable[[Draw], Case]:
    """A method of one tensor."""
    return lambda d: ([d.shape()], either(lambda x: getattr(x, name)(), theirs or (lambda x: getattr(x, name)())))


def of_two(name: str) -> Callable[[Draw], Case]:
    """A method of two tensors that broadcast."""

    def case(d: Draw) -> Case:
        shape = d.shape()
        shapes = [shape, d.like(shape)]
        d.shuffle(shapes)
        return shapes, lambda x, y: getattr(x, name)(y)

    return case


def sparse(name: str) -> Callable[[Draw], Case]:
    """A method along an axis, some of whose elements are 0."""

    def case(d: Draw) -> Case:
        shape = d.shape(empty=0)
        axis, some = d.randrange(len(shape)), d.numbers(3, shape) > 0
        return [shape], lambda x: getattr(x * whole(x, some), name)(axis)

    return case


def product(d: Draw) -> Case:
    batch = d.shape(d.randint(0, 2), empty=0)
    m, k, n = (d.randint(0 if d.random() < 0.1 else 1, 5) for _ in range(3))
    return [(*d.like(batch), m, k), (*d.like(batch), k, n)], lambda x, y: x @ y


def einsum(d: Draw) -> Case:
    formula, shapes = d.choice(
        [("ij,jk->ik", [(2, 3), (3, 4)]), ("ii->i", [(3, 3)]), ("abc,cd,ad->bd", [(2, 3, 2), (2, 3), (2, 3)])]
    )
    return shapes, either(lambda *x: Tensor.einsum(formula, *x), lambda *x: torch.einsum(formula, *x))


def layer_norm(d: Draw) -> Case:
    shape = d.shape(empty=0)
    last = shape[-d.randint(1, len(shape)) :]
    return [shape, last, last][: d.randint(1, 3)], either(
        lambda x, *more: x.layer_norm(last, *more), lambda x, *more: F.layer_norm(x, last, *more)
    )


def rms_norm(d: Draw) -> Case:
    shape = d.shape(empty=0)
    return [shape, shape[-1:]][: d.randint(1, 2)], either(
        lambda x, *w: x.rms_norm(*w, eps=1e-5), lambda x, *w: F.rms_norm(x, shape[-1:], *w, eps=1e-5)
    )


def batch_norm(d: Draw) -> Case:
    n = d.randint(1, 3)
    shapes = [(d.randint(2, 3), n, 2, d.randint(1, 2)), *[(n,)] * d.choice([0, 2])]

    def own(x: Tensor, *affine: Tensor) -> Tensor:
        return x.batch_norm(*(affine or (None, None)), x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0))

    return shapes, either(own, lambda x, *affine: F.batch_norm(x, None, None, *affine, training=True))


def attention(d: Draw) -> Case:
    batch = d.shape(d.randint(0, 2), empty=0)
    n, m, e, v = (d.randint(1, 4) for _ in range(4))
    kind = d.choice(["", "causal", "bool", "added"])
    m = n if kind == "causal" else m
    seen = d.numbers(2, (n, m)) > 0
    seen[:, 0] = True

    def of(q: Any, k: Any, w: Any, *added: Any) -> Any:
        mask = whole(q, seen) if kind == "bool" else added[0] if added else None
        if isinstance(q, Tensor):
            return q.scaled_dot_product_attention(k, w, mask, is_causal=kind == "causal")
        scores = q @ k.mT / math.sqrt(e)  # PyTorch's own has no second gradient of some shapes
        if kind == "causal":
            mask = torch.ones(n, n, dtype=torch.bool).tril()
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else scores + mask
        return scores.softmax(-1) @ w

    return [(*batch, n, e), (*batch, m, e), (*batch, m, v), *([(n, m)] if kind == "added" else [])], of


def cross_entropy(d: Draw) -> Case:
    n, classes = d.randint(1, 4), d.randint(1, 4)
    right, smooth = d.numbers(classes, (n,)), d.choice([0.0, 0.1])
    return [(n, classes)], either(
        lambda x: x.cross_entropy(Tensor(right), label_smoothing=smooth),
        lambda x: F.cross_entropy(x, torch.tensor(right), label_smoothing=smooth),
    )


def convolution(d: Draw) -> Case:
    groups, kernel = d.choice([1, 1, 2]), (d.randint(1, 3), d.randint(1, 3))
    options = {"stride": d.choice([1, 2, (1, 2), 3]), "dilation": d.choice([1, 2]), "padding": d.choice([0, 1, (1, 0)])}
    extents = [(k - 1) * options["dilation"] + d.randint(1, 4) for k in kernel]
    channels, out = groups * d.randint(1, 2), groups * d.randint(1, 2)
    shapes = [(d.randint(1, 2), channels, *extents), (out, channels // groups, *kernel), (out,)][: d.randint(2, 3)]
    return shapes, either(
        lambda x, *more: x.conv2d(*more, groups=groups, **options),
        lambda x, *more: F.conv2d(x, *more, groups=groups, **options),
    )


def pooling(name: str) -> Callable[[Draw], Case]:
    """A pooling over windows that may overlap."""

    def case(d: Draw) -> Case:
        kernel, stride = (d.randint(2, 3), d.randint(2, 3)), d.choice([None, 1, 2])
        shape = (d.randint(1, 2), d.randint(1, 2), *(k + d.randint(0, 3) for k in kernel))
        padding = d.choice([0, 1])
        return [shape], either(
            lambda x: getattr(x, name)(kernel, stride=stride, padding=padding),
            lambda x: getattr(F, name)(x, kernel, stride=stride, padding=padding),
        )

    return case


def scattered(how: str) -> Callable[[Draw], Case]:
    """A scatter to places of which some are equal."""

    def case(d: Draw) -> Case:
        shape = d.shape(2, empty=0)
        axis, itself = d.randrange(2), d.random() < 0.5
        places = d.numbers(shape[axis], shape)
        return [shape, shape], lambda x, y: x.scatter_reduce(axis, whole(x, places), y, how, include_self=itself)

    return case


def positions(d: Draw) -> Case:
    shape = (d.randint(2, 4), d.randint(2, 4))
    i, j = d.numbers(shape[0], (3,)), d.numbers(shape[1], (3,))
    some, each = d.numbers(2, shape) > 0, d.numbers(shape[1], shape)
    pick: Function = d.choice(
        [
            lambda x: x[whole(x, i)],
            lambda x: x[whole(x, i), whole(x, j)],
            lambda x: x[whole(x, some)],
            lambda x: x[1:, ::2],
            lambda x: x.gather(1, whole(x, each)),
        ]
    )
    return [shape], pick


def joined(d: Draw) -> Case:
    shape = d.shape()
    axis = d.randrange(len(shape))
    other = tuple(d.randint(0, 3) if a == axis else n for a, n in enumerate(shape))
    return [shape, other], either(lambda x, y: x.cat(y, dim=axis), lambda x, y: torch.cat([x, y], axis))


def ordered(d: Draw) -> Case:
    shape = d.shape(empty=0)
    axis = d.randrange(len(shape))
    count = d.randint(1, shape[axis])
    return [shape], d.choice([lambda x: x.sort(axis)[0], lambda x: x.topk(count, axis)[0]])


CASES: Final[dict[str, Callable[[Draw], Case]]] = {
    **{n: pointwise(n) for n in ("exp", "sin", "tanh", "atan", "asinh", "erf", "sigmoid", "square", "relu", "abs")},
    **{n: pointwise(n, getattr(F, n)) for n in ("gelu", "silu", "softplus", "elu", "mish", "logsigmoid")},
    **{n: of_two(n) for n in ("add", "mul", "div", "maximum", "atan2", "hypot", "logaddexp")},
    **{n: along(n, empty=0.1) for n in ("sum", "prod", "cumsum", "cumprod", "softmax", "log_softmax")},
    **{n: along(n) for n in ("mean", "logsumexp", "amax", "norm")},
    "cummax": lambda d: ([(d.randint(1, 4), 3)], either(lambda x: x.cummax(1), lambda x: x.cummax(1).values)),
    "var": lambda d: ([(d.randint(1, 3), d.randint(2, 4))], lambda x: x.var(1) + x.std(-1, correction=0)),
    **{f"{n} with zeros": sparse(n) for n in ("prod", "cumprod")},
    "product": product, "einsum": einsum, "layer_norm": layer_norm, "rms_norm": rms_norm, "batch_norm": batch_norm,
    "attention": attention, "cross_entropy": cross_entropy, "convolution": convolution,
    "max_pool2d": pooling("max_pool2d"), "avg_pool2d": pooling("avg_pool2d"),
    **{f"scattered by {n}": scattered(n) for n in ("sum", "mean", "prod", "amax")},
    "positions": positions, "joined": joined, "ordered": ordered,
}  # fmt: skip


def before(d: Draw) -> tuple[Callable[[Shape], Shape], Function]:
    """What comes between a leaf and a function: (the leaf's shape, the operand): views, and writes in place."""

    def written(x: Any, shape: Shape) -> Any:
        if 0 in shape or not shape:
            return x
        y = x * 1
        y[0] = x[0] * x[0] + x[0]
        y += 0.5
        return y

    return d.choice(
        [
            (lambda s: s, lambda x, s: x),
            (lambda s: s[::-1], lambda x, s: x.permute(*range(len(s))[::-1]) if s else x),
            (lambda s: (math.prod(s),), lambda x, s: x.reshape(s)),
            (lambda s: (2, *s), lambda x, s: x[1]),
            (lambda s: s, lambda x, s: x.flip(0) if s else x),
            (lambda s: s, written),
        ]
    )


def after(d: Draw) -> Function:
    """What comes behind: nothing, a square, a write in place."""

    def written(y: Any) -> Any:
        if 0 in y.shape or not y.shape:
            return y
        z = y * 0
        z[:] = y
        z[0] = z[0].clone() * z[0].clone()
        return z

    return d.choice([lambda y: y, lambda y: y * y, written])


class Program:
    """A function of some operands, drawn by a number, and how its gradients are asked for."""

    def __init__(self, number: int, name: str | None = None) -> None:
        """Draw it; a case at random if none is named."""
        d = Draw(number)
        self.name = name or d.choice(sorted(CASES))
        self.told = f"{self.name} of {number}"
        self.shapes, self.function = CASES[self.name](d)
        self.ways = [before(d) for _ in self.shapes]
        self.after = after(d)
        self.dtype = d.choice(["float64", "float64", "float32"])
        numbers = np.random.default_rng(d.getrandbits(32))
        self.arrays = [
            numbers.standard_normal(room(shape)).astype(self.dtype)
            for shape, (room, _) in zip(self.shapes, self.ways, strict=True)
        ]
        self.wanted = [d.random() < 0.7 for _ in self.shapes]
        self.wanted[d.randrange(len(self.wanted))] = True
        self.seed = d.getrandbits(32)

    def weighted(self, values: list[Any], make: Function) -> Any:
        """A sum of some values with weights."""
        d = np.random.default_rng(self.seed)
        total = 0
        for value in values:
            total = (value * make(d.standard_normal(tuple(value.shape)))).sum() + total
        return total

    def run(self, make: Function, slopes: Function) -> list[Any]:
        """The value, its gradients, and the gradients of a weighted sum of those."""
        leaves = [make(array, wanted) for array, wanted in zip(self.arrays, self.wanted, strict=True)]
        ways = zip(leaves, self.ways, self.shapes, strict=True)
        value = self.after(self.function(*(way(leaf, shape) for leaf, (_, way), shape in ways)))
        leaves = [leaf for leaf, wanted in zip(leaves, self.wanted, strict=True) if wanted]
        first = slopes(self.weighted([value], make), leaves)
        return [value, *first, *slopes(self.weighted(first, make), leaves)]

    def check(self) -> None:
        """Both libraries must agree; PyTorch calculates in float64."""

        def ours(array: Any, wanted: bool = False) -> Tensor:
            return Tensor(array, dtype=self.dtype, requires_grad=wanted)

        def theirs(array: Any, wanted: bool = False) -> Any:
            return torch.tensor(array, dtype=torch.float64, requires_grad=wanted)

        got = self.run(ours, _gradients)
        want = self.run(theirs, _slopes)
        for mine, other in zip(got, want, strict=True):
            expected = other.detach().resolve_neg().numpy() if not other._is_zerotensor() else np.zeros(other.shape)
            size = max(1.0, float(np.abs(expected).max(initial=0)))
            bound = BOUNDS[self.dtype]
            assert mine.dtype is getattr(dtypes, self.dtype), self.told
            np.testing.assert_allclose(mine.numpy(), expected, bound, bound * size, err_msg=self.told)


def _gradients(y: Tensor, xs: list[Tensor]) -> Sequence[Tensor]:
    """Our gradients, zeros where there are none: of slopes that are empty, say."""
    return y.gradient(*xs, create_graph=True) if y.requires_grad else [x.zeros_like() for x in xs]


def _slopes(y: Any, xs: list[Any]) -> list[Any]:
    """PyTorch's gradients, zeros where there are none."""
    found = torch.autograd.grad(y, xs, create_graph=True, allow_unused=True) if y.requires_grad else [None] * len(xs)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(xs, found, strict=True)]


FOUND: Final = {  # programs that were wrong, and why
    199006323383347: ("softmax", "what is read for some rows only was read from scratch before that was written"),
}


@pytest.mark.parametrize(("number", "name"), [(number, name) for number, (name, _) in FOUND.items()])
def test_programs_that_were_wrong(number: int, name: str) -> None:
    Program(number, name).check()


@pytest.mark.parametrize("name", CASES)
def test_second_gradients_are_pytorchs(name: str, rng: random.Random) -> None:
    Program(rng.randrange(1 << 48), name).check()


def test_second_gradients_of_programs_at_random_are_pytorchs(rng: random.Random) -> None:
    for _ in range(PROGRAMS):
        Program(rng.randrange(1 << 48)).check()


@pytest.mark.parametrize("zeros", [(), (1,), (0, 3), (0, 1, 4)])
def test_third_gradients_of_products_with_zeros_are_pytorchs(zeros: tuple[int, ...]) -> None:
    values = np.array([0.5, -1.5, 2.0, 1.25, -0.75])
    values[list(zeros)] = 0
    weights = np.array([1.0, -2.0, 0.5, 3.0, 1.5])
    for function in (lambda x, w: (x.cumprod(0) * w).sum(), lambda x, w: x.prod() * w[0]):
        x, y = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
        got, want = function(x, Tensor(weights)), function(y, torch.tensor(weights))
        for _ in range(3):
            (g,) = got.gradient(x, create_graph=True)
            (h,) = torch.autograd.grad(want, y, create_graph=True)
            np.testing.assert_allclose(g.numpy(), h.detach().numpy(), rtol=1e-12, atol=1e-12)
            got, want = (g * Tensor(weights)).sum(), (h * torch.tensor(weights)).sum()
