"""Functions of neural networks: activations, norms, losses, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intaglio.tensor.reduce import mean

if TYPE_CHECKING:
    from intaglio.tensor.tensor import Tensor


def relu(self: Tensor) -> Tensor:
    """Each element, or 0 below it."""
    return self.maximum(0)


def sigmoid(self: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return ((-self).exp() + 1).reciprocal()


def silu(self: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return self * sigmoid(self)


def gelu(self: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution's weight below x, exactly or by tanh ("tanh")."""
    if approximate == "tanh":
        return self * 0.5 * ((self + self * self * self * 0.044715) * math.sqrt(2 / math.pi)).tanh().__add__(1)
    return self * 0.5 * (1 + (self * (1 / math.sqrt(2))).erf())


def leaky_relu(self: Tensor, slope: float = 0.01) -> Tensor:
    """Each element, scaled by `slope` below 0."""
    return (self > 0).where(self, self * slope)


def softplus(self: Tensor) -> Tensor:
    """log(1 + exp(x)), safe from overflow."""
    return self.maximum(0) + (-(self.abs())).exp().log1p()


def layer_norm(
    self: Tensor, shape: int | Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """The last axes brought to mean 0 and variance 1, then scaled and shifted."""
    rank = 1 if isinstance(shape, int) else len(shape)
    axes = tuple(range(self.ndim - rank, self.ndim))
    apart = self - mean(self, axes, keepdims=True)
    out = apart * (mean(apart * apart, axes, keepdims=True) + eps).rsqrt()
    if weight is not None:
        out = out * weight
    return out if bias is None else out + bias


def rms_norm(self: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """The last axis brought to a root mean square of 1, then scaled."""
    out = self * (mean(self * self, -1, keepdims=True) + eps).rsqrt()
    return out if weight is None else out * weight


def cross_entropy(self: Tensor, target: Tensor) -> Tensor:
    """The mean negative log-likelihood of classes, from scores of shape (n, classes) and class numbers of shape (n,)."""
    chosen = self.log_softmax(-1).gather(-1, target.unsqueeze(-1))
    return -mean(chosen)


def mse_loss(self: Tensor, target: Tensor) -> Tensor:
    """The mean squared difference."""
    apart = self - target
    return mean(apart * apart)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, is_causal: bool = False
) -> Tensor:
    """softmax(query @ key.T / sqrt(width) + mask) @ value. A mask of bool keeps where it is true; others are added.

    Shape: (..., n, d), (..., m, d), (..., m, e) -> (..., n, e).
    """
    scores = (query @ key.transpose(-1, -2)) * (1 / math.sqrt(query.shape[-1]))
    if is_causal:
        keep = query.__class__.ones(query.shape[-2], key.shape[-2], device=query._device).tril().cast(query.__class__.bool_dtype)
        scores = keep.where(scores, -math.inf)
    if mask is not None:
        scores = mask.where(scores, -math.inf) if mask.dtype.is_bool else scores + mask
    return scores.softmax(-1) @ value


def normalize(self: Tensor, axis: int = -1, eps: float = 1e-12) -> Tensor:
    """Each vector along an axis scaled to length 1."""
    return self / (self * self).sum(axis, keepdims=True).sqrt().maximum(eps)


