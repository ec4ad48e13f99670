"""The work that is timed: inputs, the program in each package's words, and the figure that is aimed at.

A program of arrays takes `np`, which is NumPy or `jax.numpy`; one of tensors takes Intaglio's or PyTorch's, whose
methods have the same names; what PyTorch spells otherwise has a program of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    Draw = Callable[[np.random.Generator], tuple[np.ndarray, ...]]
    Program = Callable[..., Any]

LARGE: Final = 1 << 24
SMALL: Final = 100  # operations of a small size that are timed together


@dataclass(frozen=True)
class Work:
    """One line of the table."""

    name: str
    draw: Draw
    arrays: Program | None  # (np, *inputs), which is the reference as well, on float64
    tensors: Program
    torch: Program | None = None  # where its spelling is not that of `tensors`
    jax: Program | None = None  # where JAX compiles less than the whole of `arrays`
    graph: Callable[..., Callable[[], np.ndarray]] | None = None  # of its inputs: the call of a graph that is ready
    c: str = ""  # an element of the result in C, of its inputs x, y: a loop of these is what is aimed at
    aim: float = 1.0  # the time over ours, at least, of the best peer, or of the loop in C
    share: float = 0.0  # the time of the machine's limit over ours, at least, as well; 0 where none is aimed at
    traffic: float = 0  # bytes that must be moved
    flops: float = 0
    multiplied: str = "float32"  # the dtype of what is multiplied and added
    tolerance: float = 1e-4  # of the largest value of the reference
    count: int = 1  # operations realized together, each on inputs of its own
    reference: Program | None = None  # where `arrays` is none

    @property
    def by_steps(self) -> bool:
        """Whether a program looks at results on its way, so that it cannot be compiled as a whole."""
        return self.jax is not None


def normal(*shapes: tuple[int, ...]) -> Draw:
    """Normally distributed float32 numbers of some shapes."""
    return lambda draw: tuple(draw.standard_normal(shape, dtype=np.float32) for shape in shapes)


def whole(*shapes: tuple[int, ...]) -> Draw:
    """Bytes of some shapes."""
    return lambda draw: tuple(draw.integers(-128, 128, shape, dtype=np.int8) for shape in shapes)


def elementwise(name: str, aim: float, tensors: Program, arrays: Program, inputs: int = 1, c: str = "") -> Work:
    """Work on each of many elements."""
    shapes = [(LARGE,)] * inputs
    return Work(name, normal(*shapes), arrays, tensors, c=c, aim=aim, traffic=4.0 * LARGE * (inputs + 1))


def rows(
    name: str, aim: float, tensors: Program, arrays: Program, *, written: bool, torch: Program | None = None
) -> Work:
    """Work on a matrix."""
    traffic = 4.0 * LARGE * (2 if written else 1)
    return Work(name, normal((4096, 4096)), arrays, tensors, torch, aim=aim, traffic=traffic, tolerance=1e-3)


def product(
    name: str, aim: float, x: tuple[int, ...], y: tuple[int, ...], count: int = 1, *, share: float = 0.0
) -> Work:
    """A product of matrices."""
    numbers = math.prod(x) + math.prod(y) + math.prod(x[:-1]) * y[-1]
    flops = 2.0 * count * math.prod(x) * y[-1]
    return Work(name, normal(x, y), lambda np, a, b: a @ b, lambda a, b: a @ b, aim=aim, flops=flops,
                share=share, traffic=4.0 * count * numbers, count=count)  # fmt: skip


def chain_of_ten(np: Any, x: Any, y: Any) -> Any:
    """Ten operations on each element."""
    return ((((x * 2 + y) * x - y) * 0.5 + x) * y - 1) * x + y


def gelu(np: Any, x: Any) -> Any:
    """GELU in its form with tanh."""
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def softmax(np: Any, x: Any) -> Any:
    """The softmax of each row."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def layer_norm(np: Any, x: Any) -> Any:
    """Each row with mean 0 and variance 1."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def convolution(np: Any, x: Any, w: Any) -> Any:
    """A convolution of 3 x 3 as nine products."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    high, wide = x.shape[2:]
    parts = [np.einsum("nchw,oc->nohw", padded[:, :, i : i + high, j : j + wide], w[:, :, i, j], optimize=True)
             for i in range(3) for j in range(3)]  # fmt: skip
    return sum(parts[1:], parts[0])


def pooled(np: Any, x: Any) -> Any:
    """The largest of each 2 x 2 elements."""
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


def normed(np: Any, x: Any, mean: Any, variance: Any, weight: Any, bias: Any) -> Any:
    """Batch normalisation by known statistics."""
    scale = weight / np.sqrt(np.abs(variance) + 1e-5)
    return x * scale[:, None, None] + (bias - mean * scale)[:, None, None]


def attention(np: Any, q: Any, k: Any, v: Any) -> Any:
    """Attention to what came before."""
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    later = np.triu(np.ones(scores.shape[-2:], bool), 1)
    return softmax(np, np.where(later, -np.inf, scores)) @ v


def torch_int_product(x: Any, y: Any) -> Any:
    """A product of bytes in int32."""
    import torch

    return torch._int_mm(x, y)


def functions(x: Any) -> Any:
    """The functions of a tensor's package, by PyTorch's names."""
    return torch_functional() if type(x).__module__ == "torch" else type(x)


def normed_rows(x: Any, scale: Any, bias: Any) -> Any:
    """A layer norm of the last axis; tinygrad's takes no weights."""
    if hasattr(x, "layernorm"):
        return x.layernorm() * scale + bias
    return functions(x).layer_norm(x, (x.shape[-1],), scale, bias)


def torch_functional() -> Any:
    """PyTorch's functions; asked for only where PyTorch runs."""
    import torch

    return torch.nn.functional


def indices(count: int, below: int, *shapes: tuple[int, ...]) -> Draw:
    """(normal numbers of some shapes, random indices)."""

    def drawn(draw: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (*normal(*shapes)(draw), draw.integers(0, below, count))

    return drawn


def numpy_scatter_add(np: Any, values: Any, places: Any) -> Any:
    """Sums of the values sent to each place."""
    return np.bincount(places, values, 1 << 16).astype(values.dtype)


def torch_scatter_add(values: Any, places: Any) -> Any:
    """Sums of the values sent to each place."""
    import torch

    return torch.zeros(1 << 16).scatter_add(0, places, values)


def own_scatter_add(values: Any, places: Any) -> Any:
    """Sums of the values sent to each place."""
    return type(values).zeros(1 << 16).scatter(0, places, values, reduce="add")


IMAGES: Final = (8, 64, 56, 56)
HEADS: Final = (8, 12, 512, 64)
MILLION: Final = 1_000_000

WORKS: Final = [
    elementwise("chain of 10, 16M", 1.0, lambda x, y: chain_of_ten(None, x, y), chain_of_ten, 2,
                c="((((x[i] * 2 + y[i]) * x[i] - y[i]) * 0.5f + x[i]) * y[i] - 1) * x[i] + y[i]"),
    elementwise(
        "sin, exp, gelu, tanh in a chain, 16M", 1.5,
        lambda x: gelu_of(x.sin().exp()).tanh(), lambda np, x: np.tanh(gelu(np, np.exp(np.sin(x)))),
    ),
    elementwise("exp 16M", 0.9, lambda x: x.exp(), lambda np, x: np.exp(x)),
    elementwise("tanh 16M", 0.9, lambda x: x.tanh(), lambda np, x: np.tanh(x)),
    elementwise("sin 16M", 0.9, lambda x: x.sin(), lambda np, x: np.sin(x)),
    rows("sum of all 4096²", 1.0, lambda x: x.sum(), lambda np, x: x.sum(), written=False),
    rows("sum of rows 4096²", 1.0, lambda x: x.sum(1), lambda np, x: x.sum(1), written=False),
    rows("sum of columns 4096²", 1.0, lambda x: x.sum(0), lambda np, x: x.sum(0), written=False),
    rows("argmax of rows 4096²", 1.0, lambda x: x.argmax(1), lambda np, x: x.argmax(1), written=False),
    rows("softmax of rows 4096²", 1.5, lambda x: x.softmax(-1), softmax, written=True),
    rows("layer norm of rows 4096²", 1.5, lambda x: x.layer_norm((4096,)), layer_norm, written=True,
         torch=lambda x: torch_functional().layer_norm(x, (4096,))),
    rows("cumsum of rows 4096²", 1.0, lambda x: x.cumsum(1), lambda np, x: np.cumsum(x, 1), written=True),
    *(product(f"matmul {n}³", 0.7 if n < 256 else 0.95, (n, n), (n, n), SMALL if n < 256 else 1,
              share=0.85 if n >= 1024 else 0.0)
      for n in (64, 128, 256, 512, 1024, 2048)),
    Work("matmul 1024³ + bias, gelu", normal((1024, 1024), (1024, 1024), (1024,)),
         lambda np, x, w, b: gelu(np, x @ w + b), lambda x, w, b: gelu_of(x @ w + b), aim=1.1, flops=2.0 * 1024**3),
    product("matmul 64 of 128³", 1.0, (64, 128, 128), (64, 128, 128)),
    product("matmul 32x4096x1024", 1.0, (32, 4096), (4096, 1024)),
    product("matmul 1x4096x4096", 1.0, (1, 4096), (4096, 4096)),
    Work("matmul by transposed 128x768x768", normal((128, 768), (768, 768)), lambda np, x, y: x @ y.T,
         lambda x, y: x @ y.T, flops=2.0 * 128 * 768 * 768),
    Work("matmul bfloat16 1024³", normal((1024, 1024), (1024, 1024)), None,
         lambda x, y: (x.cast("bfloat16") @ y.cast("bfloat16")).cast("float32"),
         lambda x, y: (x.bfloat16() @ y.bfloat16()).float(), aim=0.9, flops=2.0 * 1024**3, multiplied="bfloat16",
         tolerance=2e-2, reference=lambda np, x, y: x @ y),
    Work("matmul int8 1024³", whole((1024, 1024), (1024, 1024)), None,
         lambda x, y: x.cast("int32") @ y.cast("int32"), torch_int_product, aim=0.9, flops=2.0 * 1024**3,
         multiplied="int8", tolerance=0, reference=lambda np, x, y: x.astype(np.float64) @ y.astype(np.float64)),
    Work("conv 3x3 8x64x56x56", normal(IMAGES, (64, 64, 3, 3)), convolution, lambda x, w: x.conv2d(w, padding=1),
         lambda x, w: torch_functional().conv2d(x, w, padding=1), aim=0.9, flops=2.0 * math.prod(IMAGES) * 64 * 9),
    Work("max-pool 2x2 8x64x56x56", normal(IMAGES), pooled, lambda x: x.max_pool2d(2),
         lambda x: torch_functional().max_pool2d(x, 2), traffic=5.0 * math.prod(IMAGES)),
    Work("batch norm 8x64x56x56", normal(IMAGES, *[(64,)] * 4), normed,
         lambda x, m, v, w, b: x.batch_norm(w, b, m, v.abs()),
         lambda x, m, v, w, b: torch_functional().batch_norm(x, m, v.abs(), w, b), traffic=8.0 * math.prod(IMAGES)),
    Work("attention 8x12x512x64, causal", normal(HEADS, HEADS, HEADS), attention,
         lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
         lambda q, k, v: torch_functional().scaled_dot_product_attention(q, k, v, is_causal=True), aim=1.2,
         flops=2.0 * math.prod(HEADS) * 512),
    Work("gather 1M rows of 64", indices(MILLION, MILLION, (MILLION, 64)), lambda np, x, i: x[i], lambda x, i: x[i],
         traffic=520.0 * MILLION, tolerance=0),
    Work("scatter-add 1M into 64k", indices(MILLION, 1 << 16, (MILLION,)), None, own_scatter_add, torch_scatter_add,
         traffic=12.0 * MILLION, reference=numpy_scatter_add),
    Work("sort 1M", normal((MILLION,)), lambda np, x: np.sort(x), lambda x: x.sort()[0], aim=0.5, tolerance=0,
         traffic=8.0 * MILLION),
    Work("topk 100 of 1M", normal((MILLION,)), lambda np, x: np.sort(np.partition(x, MILLION - 100)[-100:])[::-1],
         lambda x: x.topk(100)[0], aim=0.8, tolerance=0, traffic=4.0 * MILLION),
]  # fmt: skip


def gelu_of(x: Any) -> Any:
    """GELU in its form with tanh, of Intaglio's or PyTorch's tensors."""
    return functions(x).gelu(x, approximate="tanh")
