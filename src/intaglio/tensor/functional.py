"""Functions of neural networks: activations, norms, losses, attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from intaglio.core.dtypes import promote
from intaglio.core.errors import DTypeError, ShapeError, ValueRangeError
from intaglio.tensor.arguments import flag, integer, integers, number, tensor, word
from intaglio.tensor.combine import below_diagonal
from intaglio.tensor.elementwise import copied, tensor_of
from intaglio.tensor.reduce import HALF, below_top, mean, widened

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    if word("gelu", "approximate", approximate, ("none", "tanh")) == "tanh":
        return self * 0.5 * ((self + self * self * self * 0.044715) * math.sqrt(2 / math.pi)).tanh().__add__(1)
    return self * 0.5 * (1 + (self * (1 / math.sqrt(2))).erf())


def leaky_relu(self: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Each element, scaled by a slope below 0."""
    return (self > 0).where(self, self * number("leaky_relu", "the slope", negative_slope))


def softplus(self: Tensor) -> Tensor:
    """log(1 + exp(x)), safe from overflow."""
    return self.maximum(0) + (-(self.abs())).exp().log1p()


def layer_norm(
    self: Tensor,
    shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The last axes brought to mean 0 and variance 1, then scaled and shifted.

    Args:
        shape: The extents of those axes.
    Raises: ShapeError unless the tensor's shape ends with them.
    """
    extents = integers("layer_norm", "extents", shape)
    axes = tuple(range(self.ndim - len(extents), self.ndim))
    if not extents or self.shape[-len(extents) :] != extents:
        raise ShapeError(f"layer_norm: the tensor's shape must end with the one given; {self.shape}, given {extents}.")
    apart = self - mean(self, axes, keepdim=True)
    tiny = number("layer_norm", "eps", eps)
    out = apart * (mean(apart * apart, axes, keepdim=True) + tiny).rsqrt()
    return _scaled_and_shifted("layer_norm", out, weight, bias)


def _scaled_and_shifted(
    name: str, x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: tuple[int, ...] | None = None
) -> Tensor:
    """x * weight + bias, of a named op, where there are such (reshaped first, if a shape is given)."""
    if weight is not None:
        factor = tensor(name, "the weight", weight)
        x = x * (factor if shape is None else factor.reshape(shape))
    if bias is not None:
        shift = tensor(name, "the bias", bias)
        x = x + (shift if shape is None else shift.reshape(shape))
    return x


def rms_norm(self: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """The last axis brought to a root mean square of 1, then scaled."""
    out = self * (mean(self * self, -1, keepdim=True) + number("rms_norm", "eps", eps)).rsqrt()
    return _scaled_and_shifted("rms_norm", out, weight, None)


def _reduction(name: str, losses: Tensor, reduction: str) -> Tensor:
    """The losses of a named op as asked: their "mean", their "sum", or "none" for all of them."""
    match word(name, "the reduction", reduction, ("mean", "sum", "none")):
        case "mean":
            return mean(losses)
        case "sum":
            return losses.sum()
        case _:
            return losses


def nll_loss(self: Tensor, target: Tensor, *, ignore_index: int = -100, reduction: str = "mean") -> Tensor:
    """The negative log-likelihood of classes, from log-probabilities with the classes along axis 1 (0 of a vector)."""
    return _class_loss("nll_loss", self, target, ignore_index, reduction)


def _class_loss(name: str, self: Tensor, target: Tensor, ignore_index: int, reduction: str) -> Tensor:
    """The negative log-likelihood of classes, for a named op."""
    axis = 1 if self.ndim > 1 else 0
    target = tensor(name, "the target", target)
    integer(name, "ignore_index", ignore_index)
    if not target.dtype.is_int:
        raise DTypeError(f"{name}: classes must be integers; the target is {target.dtype.name}. Cast it first?")
    if not self.ndim or target.shape != self.shape[:axis] + self.shape[axis + 1 :]:
        raise ShapeError(
            f"{name}: the target must have the shape without classes; target {target.shape}, scores {self.shape}."
        )
    kept = target.ne(ignore_index)
    safe = kept.where(target, 0)
    losses = -self.gather(axis, safe.unsqueeze(axis)).squeeze(axis)
    losses = kept.where(losses, 0.0)
    return losses.sum() / kept.sum() if reduction == "mean" else _reduction(name, losses, reduction)


def cross_entropy(
    self: Tensor, target: Tensor, *, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """The negative log-likelihood of classes from scores, with the classes along axis 1 (0 of a vector).

    Args:
        target: Class numbers of the shape without classes, or probabilities of the scores' shape.
        ignore_index: A class number that counts for nothing.
        label_smoothing: The share of the target that is spread over all classes.
    Examples:
        >>> round(Tensor([[0.0, 0.0]]).cross_entropy(Tensor([1])).item(), 4)
        0.6931
    """
    return _scores_loss("cross_entropy", self, target, ignore_index, label_smoothing, reduction)


def _scores_loss(
    name: str, self: Tensor, target: Tensor, ignore_index: int, label_smoothing: float, reduction: str
) -> Tensor:
    """The negative log-likelihood of classes from scores, for a named op."""
    axis = 1 if self.ndim > 1 else 0
    target = tensor(name, "the target", target)
    if not 0 <= number(name, "label_smoothing", label_smoothing) <= 1:
        raise ValueRangeError(f"{name}: label_smoothing must be in [0, 1]; got {label_smoothing}.")
    if not self.ndim:
        raise ShapeError(f"{name}: there must be an axis of classes; the scores are one number.")
    logs = self.log_softmax(axis)
    if target.dtype.is_float:
        weights = target * (1 - label_smoothing) + label_smoothing / self.shape[axis] if label_smoothing else target
        losses = -(logs * weights).sum(axis)
        return losses.sum() / max(1, losses.numel()) if reduction == "mean" else _reduction(name, losses, reduction)
    losses = _class_loss(name, logs, target, ignore_index, "none" if label_smoothing else reduction)
    if not label_smoothing:
        return losses
    kept = target.ne(ignore_index)
    smooth = kept.where(-logs.mean(axis), 0.0)
    losses = losses * (1 - label_smoothing) + smooth * label_smoothing
    return losses.sum() / kept.sum() if reduction == "mean" else _reduction(name, losses, reduction)


def mse_loss(self: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """The squared difference."""
    apart = self - tensor_of("mse_loss", self, target)
    return _reduction("mse_loss", apart * apart, reduction)


def l1_loss(self: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """The absolute difference."""
    return _reduction("l1_loss", (self - tensor_of("l1_loss", self, target)).abs(), reduction)


def binary_cross_entropy(self: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """The negative log-likelihood of yes or no, from probabilities; logarithms are cut at -100, as PyTorch's."""
    chance = tensor_of("binary_cross_entropy", self, target)
    yes, no = self.log().maximum(-100), (1 - self).log().maximum(-100)
    return _reduction("binary_cross_entropy", -(chance * yes + (1 - chance) * no), reduction)


def binary_cross_entropy_with_logits(self: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """The negative log-likelihood of yes or no, from scores."""
    name = "binary_cross_entropy_with_logits"
    chance = tensor_of(name, self, target)
    return _reduction(name, self.maximum(0) - self * chance + (-(self.abs())).exp().log1p(), reduction)


def dropout(self: Tensor, p: float = 0.5, *, training: bool | None = None) -> Tensor:
    """In training, elements made 0 with probability p and the rest scaled by 1 / (1 - p); else the same values.

    Raises: ValueRangeError unless 0 <= p <= 1.
    """
    if not 0 <= number("dropout", "the probability", p) <= 1:
        raise ValueRangeError(f"dropout: the probability must be in [0, 1]; got {p}.")
    on = self.__class__.training if training is None else flag("dropout", "training", training)
    if not on or p == 0:
        return copied(self)
    if p == 1:
        return self * 0
    keep = self.__class__.rand(*self.shape, device=self._device) >= p
    return keep.where(self, 0.0) * (1 / (1 - p))


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, is_causal: bool = False
) -> Tensor:
    """softmax(query @ key.T / sqrt(width) + mask) @ value. A mask of bool keeps where it is true; others are added.

    Shape: (..., n, d), (..., m, d), (..., m, e) -> (..., n, e).
    """
    name = "scaled_dot_product_attention"
    key, value = tensor(name, "the key", key), tensor(name, "the value", value)
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ShapeError(
            f"{name}: query, key and value must have two axes or more; {query.shape}, {key.shape}, {value.shape}."
        )
    dtype = promote(promote(query.dtype, key.dtype), value.dtype)
    query, key, value = widened(query), widened(key), widened(value)
    scores = (query @ key.transpose(-1, -2)) * (1 / math.sqrt(query.shape[-1]))
    if flag(name, "is_causal", is_causal):
        scores = query._make(below_diagonal(name, scores, 0), query, key).where(scores, -math.inf)
    if mask is not None:
        mask = tensor(name, "the mask", mask)
        scores = mask.where(scores, -math.inf) if mask.dtype.is_bool else scores + mask
    weights = below_top(name, scores, -1).exp()
    out = (weights @ value) / weights.sum(-1, keepdim=True)
    return out.cast(dtype) if dtype in HALF else out


def normalize(self: Tensor, axis: int = -1, eps: float = 1e-12) -> Tensor:
    """Each vector along an axis scaled to length 1."""
    return self / (self * self).sum(axis, keepdim=True).sqrt().maximum(number("normalize", "eps", eps))


def relu6(self: Tensor) -> Tensor:
    """Each element, no lower than 0 and no higher than 6."""
    return self.clip(0, 6)


def elu(self: Tensor, alpha: float = 1.0) -> Tensor:
    """Each element, or alpha * (exp(x) - 1) below 0."""
    return (self > 0).where(self, self.minimum(0).expm1() * number("elu", "alpha", alpha))


def hardtanh(self: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Each element, between two bounds."""
    return self.clip(number("hardtanh", "min_val", min_val), number("hardtanh", "max_val", max_val))


def hardsigmoid(self: Tensor) -> Tensor:
    """(x + 3) / 6 between 0 and 1."""
    return (self + 3).clip(0, 6) * (1 / 6)


def hardswish(self: Tensor) -> Tensor:
    """x * hardsigmoid(x)."""
    return self * hardsigmoid(self)


def mish(self: Tensor) -> Tensor:
    """x * tanh(softplus(x))."""
    return self * softplus(self).tanh()


def logsigmoid(self: Tensor) -> Tensor:
    """The logarithm of the sigmoid, safe from overflow."""
    return -softplus(-self)


def softsign(self: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return self / (self.abs() + 1)


def group_norm(
    self: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Each group of channels (axis 1) brought to mean 0 and variance 1, then each channel scaled and shifted."""
    if self.ndim < 2 or integer("group_norm", "the number of groups", groups) < 1 or self.shape[1] % groups:
        raise ShapeError(f"group_norm: channels must divide into groups; shape {self.shape}, {groups} groups.")
    flat = self.reshape(self.shape[0], groups, -1)
    out = layer_norm(flat, flat.shape[-1], eps=number("group_norm", "eps", eps)).reshape(self.shape)
    return _scaled_and_shifted("group_norm", out, weight, bias, (1, -1) + (1,) * (self.ndim - 2))


def batch_norm(
    self: Tensor, weight: Tensor | None, bias: Tensor | None, center: Tensor, variance: Tensor, eps: float = 1e-5
) -> Tensor:
    """Each channel (axis 1) with its mean and variance taken away, then scaled and shifted."""
    center, variance = tensor("batch_norm", "the mean", center), tensor("batch_norm", "the variance", variance)
    if self.ndim < 2:
        raise ShapeError(f"batch_norm: there must be an axis of channels, the second; the shape is {self.shape}.")
    shape = (1, -1) + (1,) * (self.ndim - 2)
    scale = (variance + number("batch_norm", "eps", eps)).rsqrt()
    return _scaled_and_shifted("batch_norm", (self - center.reshape(shape)) * scale.reshape(shape), weight, bias, shape)


def sparse_categorical_crossentropy(
    self: Tensor, target: Tensor, ignore_index: int = -1, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """The negative log-likelihood of class numbers from scores, with the classes along the last axis: tinygrad's name.

    Examples:
        >>> round(Tensor([[0.0, 0.0], [1.0, 3.0]]).sparse_categorical_crossentropy(Tensor([1, -1])).item(), 4)
        0.6931
    """
    scores = self.movedim(-1, 1) if self.ndim > 1 else self
    name = "sparse_categorical_crossentropy"
    return _scores_loss(name, scores, target, ignore_index, label_smoothing, reduction)
