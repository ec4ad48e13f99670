"""Whole models with random weights: GPT-2 small and MiniLM, each written once for arrays and once for tensors.

A program is given token numbers and all weights, in the order of their names. One of arrays takes `np`, which is NumPy,
`jax.numpy` or `mlx.core`; one of tensors takes PyTorch's, or those of packages that spell its functions alike.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.works import Work, functions, gelu, layer_norm, normed_rows, softmax

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Weights = dict[str, Any]

LENGTH: Final = 128  # tokens of a sequence
STEPS: Final = 32  # tokens that are decoded one by one


@dataclass(frozen=True)
class Transformer:
    """The sizes of a model, and where it norms: before each part, or after it is added."""

    layers: int
    width: int
    heads: int
    words: int
    places: int
    before: bool

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight."""
        width = self.width
        found: dict[str, tuple[int, ...]] = {"words": (self.words, width), "places": (self.places, width)}
        found |= vectors("norm", width)
        for k in range(self.layers):
            found |= vectors(f"{k}.norm1", width) | vectors(f"{k}.norm2", width)
            found |= linear_shapes(f"{k}.qkv", width, 3 * width) | linear_shapes(f"{k}.mix", width, width)
            found |= linear_shapes(f"{k}.wide", width, 4 * width) | linear_shapes(f"{k}.narrow", 4 * width, width)
        return found

    def draw(self, tokens: tuple[int, ...], draw: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Random tokens, and the weights, which are drawn once in a process."""
        return draw.integers(0, self.words, tokens), *weights_of(self)

    def named(self, weights: Sequence[Any]) -> Weights:
        """Weights by name."""
        return dict(zip(self.shapes, weights, strict=True))

    @property
    def multiplied(self) -> int:
        """Weights that each token is multiplied by, without those of the words."""
        return 12 * self.layers * self.width**2


GPT2: Final = Transformer(12, 768, 12, 50257, 1024, before=True)
MINILM: Final = Transformer(6, 384, 12, 30522, 512, before=False)


def vectors(name: str, width: int) -> dict[str, tuple[int, ...]]:
    """The shapes of a norm's weights."""
    return {f"{name}.scale": (width,), f"{name}.bias": (width,)}


def linear_shapes(name: str, inner: int, outer: int) -> dict[str, tuple[int, ...]]:
    """The shapes of a linear map's weights."""
    return {f"{name}.weight": (inner, outer), f"{name}.bias": (outer,)}


@functools.cache
def weights_of(model: Transformer) -> tuple[np.ndarray, ...]:
    """Random weights, in the order of their shapes."""
    draw = np.random.default_rng()
    return tuple(weight(name, shape, draw) for name, shape in model.shapes.items())


def weight(name: str, shape: tuple[int, ...], draw: np.random.Generator) -> np.ndarray:
    """Random numbers of about the size that trained weights have."""
    numbers = draw.standard_normal(shape, dtype=np.float32)
    numbers *= 0.02 if len(shape) > 1 else 0.1
    return numbers + np.float32(1) if name.endswith("scale") else numbers


# Of arrays


def linear(x: Any, w: Weights, name: str) -> Any:
    """A linear map, of arrays or tensors."""
    return x @ w[f"{name}.weight"] + w[f"{name}.bias"]


def norm(np: Any, x: Any, w: Weights, name: str) -> Any:
    """A layer norm."""
    return layer_norm(np, x) * w[f"{name}.scale"] + w[f"{name}.bias"]


def attend(np: Any, x: Any, w: Weights, k: int, model: Transformer) -> Any:
    """What each token takes from the others, or from those before it."""
    *batch, length, width = x.shape
    qkv = linear(x, w, f"{k}.qkv").reshape(*batch, length, 3, model.heads, width // model.heads)
    q, keys, values = (np.swapaxes(qkv[..., part, :, :], -2, -3) for part in range(3))
    scores = q @ np.swapaxes(keys, -1, -2) * (width // model.heads) ** -0.5
    if model.before:
        scores = np.where(np.tri(length) > 0, scores, -1e30)
    mixed = np.swapaxes(softmax(np, scores) @ values, -2, -3).reshape(x.shape)
    return linear(mixed, w, f"{k}.mix")


def feed_forward(np: Any, x: Any, w: Weights, k: int) -> Any:
    """The part of a layer that looks at one token."""
    return linear(gelu(np, linear(x, w, f"{k}.wide")), w, f"{k}.narrow")


def decoder_arrays(model: Transformer, np: Any, tokens: Any, *weights: Any) -> Any:
    """The logits of all tokens."""
    w = model.named(weights)
    x = w["words"][tokens] + w["places"][: tokens.shape[-1]]
    for k in range(model.layers):
        x = x + attend(np, norm(np, x, w, f"{k}.norm1"), w, k, model)
        x = x + feed_forward(np, norm(np, x, w, f"{k}.norm2"), w, k)
    return norm(np, x, w, "norm") @ w["words"].T


def encoder_arrays(model: Transformer, np: Any, tokens: Any, *weights: Any) -> Any:
    """The vectors of all tokens."""
    w = model.named(weights)
    x = norm(np, w["words"][tokens] + w["places"][: tokens.shape[-1]], w, "norm")
    for k in range(model.layers):
        x = norm(np, x + attend(np, x, w, k, model), w, f"{k}.norm1")
        x = norm(np, x + feed_forward(np, x, w, k), w, f"{k}.norm2")
    return x


def step(
    model: Transformer, np: Any, w: Weights, keys: Any, values: Any, token: Any, place: Any, reach: int
) -> tuple[Any, Any, Any]:
    """(logits after one more token, caches of keys and values with that token's), of the first `reach` places."""
    heads, width = model.heads, model.width
    seen = np.arange(reach) <= place
    x = w["words"][token] + w["places"][place]
    for k in range(model.layers):
        q, key, value = linear(norm(np, x, w, f"{k}.norm1"), w, f"{k}.qkv").reshape(3, heads, width // heads)
        keys, values = put(keys, k, place, key), put(values, k, place, value)
        scores = (keys[k, :, :reach] @ q[:, :, None])[:, :, 0] * (width // heads) ** -0.5
        shares = softmax(np, np.where(seen, scores, -1e30))
        x = x + linear((shares[:, None] @ values[k, :, :reach]).reshape(width), w, f"{k}.mix")
        x = x + feed_forward(np, norm(np, x, w, f"{k}.norm2"), w, k)
    return w["words"] @ norm(np, x, w, "norm"), keys, values


def put(cache: Any, k: int, place: Any, rows: Any) -> Any:
    """A cache with a row for each head; only JAX makes a new one."""
    if hasattr(cache, "at") and hasattr(cache.at[0], "set"):
        return cache.at[k, :, place].set(rows)
    cache[k, :, place] = rows
    return cache


def steps_arrays(model: Transformer, np: Any, tokens: Any, *weights: Any) -> Any:
    """The logits after some tokens, one by one; of each the best word is looked at."""
    w = model.named(weights)
    shape = model.layers, model.heads, LENGTH, model.width // model.heads
    keys, values = np.zeros(shape, weights[0].dtype), np.zeros(shape, weights[0].dtype)
    logits = None
    for place in range(STEPS):
        logits, keys, values = step(model, np, w, keys, values, tokens[place], place, place + 1)
        logits.argmax().item()
    return logits


def steps_jax(model: Transformer, tokens: Any, *weights: Any) -> Any:
    """The same with a step that is compiled once: it looks at all places of the caches, which it is given for good."""
    import jax

    w = model.named(weights)
    shape = model.layers, model.heads, LENGTH, model.width // model.heads
    keys, values = jax.numpy.zeros(shape), jax.numpy.zeros(shape)
    logits = None
    for place in range(STEPS):
        logits, keys, values = jax_step(model)(w, keys, values, tokens[place], place)
        logits.argmax().item()
    return logits


@functools.cache
def jax_step(model: Transformer) -> Any:
    """One step, compiled."""
    import jax

    return jax.jit(lambda *given: step(model, jax.numpy, *given, LENGTH), donate_argnums=(1, 2))


# Of tensors


def tensor_norm(x: Any, w: Weights, name: str) -> Any:
    """A layer norm."""
    return normed_rows(x, w[f"{name}.scale"], w[f"{name}.bias"])


def tensor_attend(x: Any, w: Weights, k: int, model: Transformer) -> Any:
    """What each token takes from the others, or from those before it."""
    batch, length, _ = x.shape
    parts = linear(x, w, f"{k}.qkv").chunk(3, -1)
    q, keys, values = (part.reshape(batch, length, model.heads, -1).transpose(1, 2) for part in parts)
    mixed = functions(x).scaled_dot_product_attention(q, keys, values, is_causal=model.before)
    return linear(mixed.transpose(1, 2).reshape(x.shape), w, f"{k}.mix")


def tensor_feed_forward(x: Any, w: Weights, k: int) -> Any:
    """The part of a layer that looks at one token."""
    return linear(functions(x).gelu(linear(x, w, f"{k}.wide"), approximate="tanh"), w, f"{k}.narrow")


def decoder_tensors(model: Transformer, tokens: Any, *weights: Any) -> Any:
    """The logits of all tokens."""
    w = model.named(weights)
    x = (w["words"][tokens] + w["places"][: tokens.shape[-1]])[None]
    for k in range(model.layers):
        x = x + tensor_attend(tensor_norm(x, w, f"{k}.norm1"), w, k, model)
        x = x + tensor_feed_forward(tensor_norm(x, w, f"{k}.norm2"), w, k)
    return (tensor_norm(x, w, "norm") @ w["words"].T)[0]


def steps_tensors(model: Transformer, tokens: Any, *weights: Any) -> Any:
    """The logits after some tokens, one by one, with caches that are written in place."""
    w = model.named(weights)
    heads, width = model.heads, model.width
    zeros = getattr(weights[0], "new_zeros", None) or type(weights[0]).zeros
    caches = [[zeros((heads, LENGTH, width // heads)) for _ in range(model.layers)] for _ in range(2)]
    logits = None
    for place, token in enumerate(tokens.tolist()):
        x = w["words"][token : token + 1] + w["places"][place : place + 1]
        for k, (keys, values) in enumerate(zip(*caches, strict=True)):
            parts = linear(tensor_norm(x, w, f"{k}.norm1"), w, f"{k}.qkv").reshape(3, heads, 1, width // heads)
            keys[:, place : place + 1], values[:, place : place + 1] = parts[1], parts[2]
            attend = functions(x).scaled_dot_product_attention
            mixed = attend(parts[0][None], keys[None, :, : place + 1], values[None, :, : place + 1])
            x = x + linear(mixed.reshape(x.shape), w, f"{k}.mix")
            x = x + tensor_feed_forward(tensor_norm(x, w, f"{k}.norm2"), w, k)
        logits = (tensor_norm(x, w, "norm") @ w["words"].T)[0]
        logits.argmax().item()
    return logits


def encoder_tensors(model: Transformer, tokens: Any, *weights: Any) -> Any:
    """The vectors of all tokens."""
    w = model.named(weights)
    x = tensor_norm(w["words"][tokens] + w["places"][: tokens.shape[-1]], w, "norm")
    for k in range(model.layers):
        x = tensor_norm(x + tensor_attend(x, w, k, model), w, f"{k}.norm1")
        x = tensor_norm(x + tensor_feed_forward(x, w, k), w, f"{k}.norm2")
    return x


def line(name: str, model: Transformer, tokens: tuple[int, ...], arrays: Any, tensors: Any, jax: Any = None) -> Work:
    """A line of the table; `jax` where tokens go through the model one by one."""
    multiplied = model.multiplied + (model.words * model.width if model.before else 0)
    seen = tokens[-1] // (2 if model.before else 1)
    flops = math.prod(tokens) * (2.0 * multiplied + 4 * model.layers * model.width * seen)
    passes = STEPS if jax is not None else 1
    of, step_by_step = functools.partial, None if jax is None else functools.partial(jax, model)
    return Work(name, of(model.draw, tokens), of(arrays, model), of(tensors, model), jax=step_by_step,
                graph=of(graph_of, model, jax is not None), aim=1.2, traffic=4.0 * multiplied * passes, flops=flops,
                tolerance=1e-3)  # fmt: skip


def graph_of(model: Transformer, by_steps: bool, tokens: np.ndarray, *_: np.ndarray) -> Callable[[], np.ndarray]:
    """The model in ONNX Runtime, which the module it is in needs."""
    from benchmarks import graphs

    return (graphs.steps_graph if by_steps else graphs.forward_graph)(model, tokens)


MODELS: Final = [
    line("GPT-2 small, 128 tokens", GPT2, (LENGTH,), decoder_arrays, decoder_tensors),
    line("GPT-2 small, decode of 32 tokens", GPT2, (STEPS,), steps_arrays, steps_tensors, steps_jax),
    line("MiniLM-L6, 1 x 128 tokens", MINILM, (1, LENGTH), encoder_arrays, encoder_tensors),
    line("MiniLM-L6, 32 x 128 tokens", MINILM, (32, LENGTH), encoder_arrays, encoder_tensors),
]
