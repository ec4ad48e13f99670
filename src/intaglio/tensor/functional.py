"""Functions of neural networks: activations, norms, losses, attention."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import DType, dtypes, promote
from intaglio.core.errors import DTypeError, ShapeError, ValueRangeError
from intaglio.core.words import counted
from intaglio.ir.node import make_known
from intaglio.ops import elementwise as ops
from intaglio.ops.layers import BATCH_NORM, GELU, HALF, RMS_NORM, SIGMOID, TANH_GELU, LayerNorm, attention, single
from intaglio.ops.memory import const
from intaglio.storage.checks import out_of_range
from intaglio.tensor.arguments import flag, integer, integers, number, tensor, word
from intaglio.tensor.combine import gathered
from intaglio.tensor.elementwise import (
    ABOVE,
    ADD,
    AT_LEAST,
    AT_MOST,
    LENGTH,
    LOG_CHANCE,
    MUL,
    RIGHT_ABS,
    SUB,
    Operand,
    binary,
    broadcast_shapes,
    check_computes,
    check_device,
    copied,
    inside,
    tensor_of,
    unary,
)
from intaglio.tensor.movement import axis_of, expanded, ravel
from intaglio.tensor.reduce import mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.ir.node import Node, Shape
    from intaglio.ops.composite import Composite
    from intaglio.tensor.base import Way
    from intaglio.tensor.tensor import Tensor

AFFINE: Final = ("the weight", "the bias")


def relu(self: Tensor) -> Tensor:
    """Each element, or 0 below it.

    Dtype: as the tensor's.
    Examples:
        >>> Tensor([-1.0, 2.0]).relu().tolist()
        [0.0, 2.0]
    """
    return binary("relu", ABOVE, self, 0)


def sigmoid(self: Tensor) -> Tensor:
    """1 / (1 + exp(-x)).

    Dtype: floats keep theirs; ints and bool become the default float.
    Examples:
        >>> Tensor([0.0]).sigmoid().tolist()
        [0.5]
    """
    if self.shape:
        return _by_one_node(SIGMOID, self)
    return ((-self).exp() + 1).reciprocal()  # a scalar in a loop makes no node


def silu(self: Tensor) -> Tensor:
    """x * sigmoid(x).

    Dtype: floats keep theirs; ints and bool become the default float.
    Examples:
        >>> round(Tensor(1.0).silu().item(), 4), round(Tensor(1.0).swish().item(), 4)
        (0.7311, 0.7311)
    """
    return self * sigmoid(self)


def gelu(self: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution's weight below x, exactly or by tanh ("tanh").

    Args:
        approximate: "none" or "tanh".
    Dtype: floats keep theirs; ints and bool become the default float.
    Raises: ValueRangeError if there is no such way.
    Source: Hendrycks & Gimpel, Gaussian error linear units, arXiv 1606.08415.
    Examples:
        >>> round(Tensor(1.0).gelu().item(), 4), round(Tensor(1.0).gelu("tanh").item(), 4)
        (0.8413, 0.8412)
    """
    tanh = word("gelu", "approximate", approximate, ("none", "tanh")) == "tanh"
    if self.shape:
        return _by_one_node(TANH_GELU if tanh else GELU, self)
    if tanh:  # a scalar in a loop makes no node
        return self * 0.5 * ((self + self * self * self * 0.044715) * math.sqrt(2 / math.pi)).tanh().__add__(1)
    return self * 0.5 * (1 + (self * (1 / math.sqrt(2))).erf())


def leaky_relu(self: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Each element, scaled by a slope below 0.

    Args:
        negative_slope: The slope.
    Dtype: floats keep theirs; ints and bool become the default float.
    Examples:
        >>> Tensor([-2.0, 2.0]).leaky_relu(0.5).tolist()
        [-1.0, 2.0]
    """
    return (self > 0).where(self, self * number("leaky_relu", "the slope", negative_slope))


def softplus(self: Tensor) -> Tensor:
    """log(1 + exp(x)), safe from overflow.

    Dtype: floats keep theirs; ints and bool become the default float.
    Examples:
        >>> round(Tensor(0.0).softplus().item(), 4)
        0.6931
    """
    return binary("softplus", AT_LEAST, self, 0) + _over_top(self)


def _over_top(x: Tensor) -> Tensor:
    """log(1 + exp(-|x|)): how much the logarithm of 1 + exp(x) is over the larger of x and 0."""
    return (-unary(RIGHT_ABS, x)).exp().log1p()


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
        weight: What the result is multiplied by, if anything.
        bias: What is added then, if anything.
        eps: Added to the variance.
    Raises: ShapeError unless the tensor's shape ends with them.
    Source: Ba, Kiros & Hinton, Layer normalization, arXiv 1607.06450.
    Examples:
        >>> [round(x, 3) for x in Tensor([1.0, 3.0]).layer_norm(2).tolist()]
        [-1.0, 1.0]
    """
    extents = integers("layer_norm", "extents", shape)
    if not extents or self.shape[-len(extents) :] != extents:
        raise ShapeError(
            f"layer_norm: the tensor's shape must end with the one given; {self.shape}, given {extents}. "
            f"Give {self.shape[-1:] or 'a tensor with an axis'}?"
        )
    x = self if self.dtype.is_float else self.cast(dtypes.default_float)
    node = x._value()
    op, count = _layer_norm(node.dtype, extents)
    src = [node, count, const(node.dtype, number("layer_norm", "eps", eps))]
    return _norm("layer_norm", op, (x,), src, extents, (weight, bias))


@lru_cache(maxsize=1024)
def _layer_norm(dtype: DType, extents: Shape) -> tuple[LayerNorm, Node]:
    """The op of a norm along the last axes, of these extents, and how many elements they have.

    Raises: DTypeError if it is not computed in the dtype.
    """
    check_computes("layer_norm", dtype)
    return LayerNorm(len(extents)), const(single(dtype), math.prod(extents))


def _by_one_node(op: Composite, x: Tensor) -> Tensor:
    """An elementwise function of floats."""
    node = x._value()
    dtype = node.dtype
    if not dtype.is_float:
        x = x.cast(dtypes.default_float)
        node = x._value()
        dtype = node.dtype
    check_computes(op.name, dtype)
    return x._make(make_known(op, (node,), dtype, node.shape), x)


def _norm(
    name: str,
    op: Composite,
    tensors: tuple[Tensor, ...],
    src: list[Node],
    extents: tuple[int, ...],
    affine: tuple[Tensor | None, Tensor | None],
    shape: tuple[int, ...] | None = None,
) -> Tensor:
    """A norm of a named op, and what scales and shifts it: one node where that has the shape and dtype it should have.

    Args:
        tensors: Those that the op takes first: the tensor itself is the first of them.
        src: What it takes, without weight and bias: their values, and numbers.
        extents: The shape of weight and bias.
        affine: The weight and the bias, if there are such.
        shape: What they are reshaped to else, if to anything.
    """
    x, dtype = tensors[0], src[0].dtype
    taken = 0  # how many of weight and bias the node takes
    for what, each in zip(AFFINE, affine, strict=True):
        if each is None:
            break
        if each.__class__ is not x.__class__:
            tensor(name, what, each)
        value = each._value()
        if value.shape != extents or value.dtype is not dtype or each._device != x._device:
            del src[len(src) - taken :]
            taken = 0
            break
        src.append(value)
        taken += 1
    made = x._make(make_known(op, tuple(src), dtype, src[0].shape), *tensors, *affine[:taken])
    weight, bias = affine
    if taken:
        weight, bias = None, None if taken == 2 else bias
    return made if weight is None and bias is None else _scaled_and_shifted(name, made, weight, bias, shape)


def _scaled_and_shifted(
    name: str, x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: tuple[int, ...] | None = None
) -> Tensor:
    """x * weight + bias, of a named op, where there are such (reshaped first, if a shape is given)."""
    if weight is not None:
        factor = tensor(name, "the weight", weight)
        x = binary(name, MUL, x, factor if shape is None else factor.reshape(shape))
    if bias is not None:
        shift = tensor(name, "the bias", bias)
        x = binary(name, ADD, x, shift if shape is None else shift.reshape(shape))
    return x


def rms_norm(self: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """The last axis brought to a root mean square of 1, then scaled.

    Args:
        weight: What the result is multiplied by, if anything.
        eps: Added to the mean square.
    Dtype: floats keep theirs; ints and bool become the default float.
    Source: Zhang & Sennrich, Root mean square layer normalization, NeurIPS 2019.
    Examples:
        >>> [round(x, 3) for x in Tensor([3.0, 3.0]).rms_norm().tolist()]
        [1.0, 1.0]
    """
    axis_of("rms_norm", -1, self.ndim)
    x = self if self.dtype.is_float else self.cast(dtypes.default_float)
    count = self.shape[-1]
    check_computes("rms_norm", x.dtype)
    src = [x._value(), const(single(x.dtype), count), const(x.dtype, number("rms_norm", "eps", eps))]
    return _norm("rms_norm", RMS_NORM, (x,), src, (count,), (weight, None))


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
    """The negative log-likelihood of classes, from log-probabilities with the classes along axis 1 (0 of a vector).

    Args:
        target: Numbers of classes.
        ignore_index: The number that counts for nothing.
        reduction: "mean" or "sum" of the losses, or "none" for each.
    Raises: ShapeError if the target does not fit; ValueRangeError if there is no such reduction.
    Examples:
        >>> Tensor([[-1.0, -2.0], [-3.0, -4.0]]).nll_loss(Tensor([0, 1])).item()
        2.5
    """
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
            f"{name}: the target must have the shape without classes; target {target.shape}, scores {self.shape}. "
            "Squeeze or reshape it, or take the argmax of one-hot ones?"
        )
    kept = target.ne(ignore_index)
    cast = target._extremes() if target._storage is None else None
    places = target.unsqueeze(axis)
    known = cast or places._extremes()  # of what is in memory: then there is nothing to check when it is computed
    if known is None:
        places = kept.where(target, 0).unsqueeze(axis)
    elif known[0] < 0 or known[1] >= self.shape[axis]:
        places = _checked(name, places, ignore_index, self.shape[axis], axis)
    losses = -gathered(name, self, axis, places, wraps=False).squeeze(axis)
    losses = kept.where(losses, 0.0)
    return losses.sum() / kept.sum() if reduction == "mean" else _reduction(name, losses, reduction)


def _checked(name: str, places: Tensor, ignore_index: int, classes: int, axis: int) -> Tensor:
    """The classes in memory that a named op is given, and any for what counts for nothing.

    Raises: IndexRangeError if one of these is no class.
    """
    known = places._extremes_but(ignore_index)
    if known is None or known[0] < 0 or known[1] >= classes:
        given = places.numpy()
        bad = given[(given != ignore_index) & ((given < 0) | (given >= classes))]
        if bad.size:
            raise out_of_range(name, int(bad[0]), classes, axis, wraps=False)
    return places.clamp(0, max(0, min(classes - 1, int(places.dtype.max))))  # bounds for which no kernel checks


def cross_entropy(
    self: Tensor, target: Tensor, *, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """The negative log-likelihood of classes from scores, with the classes along axis 1 (0 of a vector).

    Args:
        target: Class numbers of the shape without classes, or probabilities of the scores' shape.
        ignore_index: A class number that counts for nothing.
        label_smoothing: The share of the target that is spread over all classes.
        reduction: "mean" or "sum" of the losses, or "none" for each.
    Raises: ShapeError if the target does not fit; ValueRangeError if there is no such reduction.
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
        raise ValueRangeError(f"{name}: label_smoothing must be in [0, 1]; got {label_smoothing}. Is it in percent?")
    if not self.ndim:
        raise ShapeError(f"{name}: there must be an axis of classes; the scores have shape (). Reshape to (1, -1)?")
    logs = self.log_softmax(axis)
    if target.dtype.is_float:
        weights = target * (1 - label_smoothing) + label_smoothing / self.shape[axis] if label_smoothing else target
        losses = -_joined(name, MUL, logs, weights).sum(axis)
        return losses.sum() / max(1, losses.numel()) if reduction == "mean" else _reduction(name, losses, reduction)
    losses = _class_loss(name, logs, target, ignore_index, "none" if label_smoothing else reduction)
    if not label_smoothing:
        return losses
    kept = target.ne(ignore_index)
    smooth = kept.where(-logs.mean(axis), 0.0)
    losses = losses * (1 - label_smoothing) + smooth * label_smoothing
    return losses.sum() / kept.sum() if reduction == "mean" else _reduction(name, losses, reduction)


def _joined(name: str, way: Way, self: Tensor, target: Operand) -> Tensor:
    """What came and what should have come, joined by a named op.

    Raises: ShapeError unless the second broadcasts to the shape of the first.
    """
    made = binary(name, way, self, target if target.__class__ is self.__class__ else tensor_of(name, self, target))
    if made.shape != self.shape:
        raise ShapeError(
            f"{name}: the target must broadcast to what came; target {tensor_of(name, self, target).shape}, tensor "
            f"{self.shape}. Squeeze or reshape one?"
        )
    return made


def mse_loss(self: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """The squared difference.

    Args:
        target: What should have come.
        reduction: "mean" or "sum" of the losses, or "none" for each.
    Raises: ShapeError if the shapes do not agree; ValueRangeError if there is no such reduction.
    Examples:
        >>> Tensor([1.0, 2.0]).mse_loss(Tensor([3.0, 2.0])).item()
        2.0
    """
    apart = _joined("mse_loss", SUB, self, target)
    return _reduction("mse_loss", apart * apart, reduction)


def l1_loss(self: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """The absolute difference.

    Args:
        target: What should have come.
        reduction: "mean" or "sum" of the losses, or "none" for each.
    Raises: ShapeError if the shapes do not agree; ValueRangeError if there is no such reduction.
    Examples:
        >>> Tensor([1.0, 2.0]).l1_loss(Tensor([3.0, 2.0]), reduction="sum").item()
        2.0
    """
    return _reduction("l1_loss", _joined("l1_loss", SUB, self, target).abs(), reduction)


def binary_cross_entropy(self: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """The negative log-likelihood of yes or no, from probabilities; logarithms are cut at -100, as PyTorch's.

    Args:
        target: What should have come: 0 or 1, or between.
        reduction: "mean" or "sum" of the losses, or "none" for each.
    Raises: ShapeError if the shapes do not agree; ValueRangeError if there is no such reduction.
    Examples:
        >>> round(Tensor([0.5]).binary_cross_entropy(Tensor([1.0])).item(), 4)
        0.6931
    """
    name = "binary_cross_entropy"
    chance = tensor_of(name, self, target)
    yes, no = (unary(LOG_CHANCE, each, floats=True) for each in (self, 1 - self))
    return _reduction(name, -(_joined(name, MUL, yes, chance) + (1 - chance) * no), reduction)


def binary_cross_entropy_with_logits(self: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """The negative log-likelihood of yes or no, from scores.

    Args:
        target: What should have come: 0 or 1, or between.
        reduction: "mean" or "sum" of the losses, or "none" for each.
    Raises: ShapeError if the shapes do not agree; ValueRangeError if there is no such reduction.
    Examples:
        >>> round(Tensor([0.0]).binary_cross_entropy_with_logits(Tensor([1.0])).item(), 4)
        0.6931
    """
    name = "binary_cross_entropy_with_logits"
    chance = tensor_of(name, self, target)
    losses = binary(name, AT_LEAST, self, 0) - _joined(name, MUL, self, chance) + _over_top(self)
    return _reduction(name, losses, reduction)


def dropout(self: Tensor, p: float = 0.5, *, training: bool | None = None) -> Tensor:
    """In training, elements made 0 with probability p and the rest scaled by 1 / (1 - p); else the same values.

    Args:
        p: The probability.
        training: Whether it is training; `Tensor.training` when None.
    Raises: ValueRangeError unless 0 <= p <= 1.
    Source: Srivastava et al., Dropout, JMLR 15, 2014.
    Examples:
        >>> sorted(set(Tensor.ones(100).dropout(0.5, training=True).tolist()))
        [0.0, 2.0]
    """
    if not 0 <= number("dropout", "the probability", p) <= 1:
        raise ValueRangeError(f"dropout: the probability must be in [0, 1]; got {p}. Is it in percent?")
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

    Args:
        key: What queries are compared with.
        value: What is averaged.
        mask: Bool, or what is added to the scores; broadcasts to (..., n, m).
        is_causal: Whether each query sees only the keys up to its own place.
    Shape: (..., n, d), (..., m, d), (..., m, e) -> (..., n, e).
    Raises: ShapeError if the shapes do not fit.
    Source: Vaswani et al., Attention is all you need, NeurIPS 2017.
    Examples:
        >>> q, k, v = Tensor([[0.0]]), Tensor([[1.0], [1.0]]), Tensor([[2.0], [4.0]])
        >>> q.scaled_dot_product_attention(k, v).tolist()
        [[3.0]]
    """
    name = "scaled_dot_product_attention"
    given = [query, tensor(name, "the key", key), tensor(name, "the value", value)]
    if mask is not None:
        given.append(tensor(name, "the mask", mask))
    form: list[DType | Shape] = []
    nodes: list[Node] = []
    for each in given:
        if each._device != query._device:
            check_device(name, query, each)
        node = each._value()
        nodes.append(node)
        form += node.dtype, node.shape
    wide, dtype, shape, scale = _attention(name, *form)
    for k, node in enumerate(nodes):
        if node.dtype is not wide and not (k == 3 and node.dtype.is_bool):
            nodes[k] = ops.cast(node, wide)
    nodes.insert(3, scale)
    out = make_known(attention(flag(name, "is_causal", is_causal)), tuple(nodes), wide, shape)
    return query._make(out if wide is dtype or dtype not in HALF else ops.cast(out, dtype), *given)


@lru_cache(maxsize=1024)
def _attention(
    name: str,
    query: DType,
    queries: Shape,
    key: DType,
    keys: Shape,
    value: DType,
    values: Shape,
    mask: DType | None = None,
    masks: Shape = (),
) -> tuple[DType, DType, Shape, Node]:
    """Of attention: the dtype it is computed in, the result's (which a mask does not widen), its shape, the scale.

    Raises: ShapeError if the shapes do not fit; DTypeError if it is not computed in the dtype.
    """
    if min(len(queries), len(keys), len(values)) < 2:
        raise ShapeError(
            f"{name}: query, key and value must have two axes or more; {queries}, {keys}, {values}. Unsqueeze one?"
        )
    dtype = promote(promote(query, key), value)
    dtype = dtype if dtype.is_float else dtypes.default_float
    check_computes(name, dtype)
    wide = single(dtype)
    wide = wide if mask is None else promote(wide, mask)
    if queries[-1] != keys[-1]:
        raise ShapeError(f"{name}: query and key must be of one width; {queries} and {keys}. Transpose or slice one?")
    if keys[-2] != values[-2]:
        raise ShapeError(
            f"{name}: there must be a value for each key; keys {keys}, values {values}. Transpose or slice one?"
        )
    batch = broadcast_shapes(name, queries[:-2], keys[:-2])
    scores = *batch, queries[-2], keys[-2]
    try:
        scores = broadcast_shapes(name, scores, masks)
    except ShapeError:
        raise ShapeError(
            f"{name}: the mask must broadcast to the scores; mask {masks}, scores {scores}. Reshape or slice the mask?"
        ) from None
    broadcast_shapes(name, scores[:-2], values[:-2])
    shape = (*broadcast_shapes(name, batch, values[:-2]), queries[-2], values[-1])
    return wide, dtype, shape, const(wide, 1 / math.sqrt(queries[-1]))


def normalize(self: Tensor, axis: int = -1, eps: float = 1e-12) -> Tensor:
    """Each vector along an axis scaled to length 1.

    Args:
        axis: The axis; negative counts from the end.
        eps: The least length that is divided by.
    Dtype: floats keep theirs; ints and bool become the default float.
    Raises: ShapeError if there is no such axis.
    Examples:
        >>> [round(x, 3) for x in Tensor([3.0, 4.0]).normalize().tolist()]
        [0.6, 0.8]
    """
    axis_of("normalize", axis, self.ndim)
    length = unary(LENGTH, (self * self).sum(axis, keepdim=True), floats=True)
    return self / binary("normalize", AT_LEAST, length, number("normalize", "eps", eps))


def relu6(self: Tensor) -> Tensor:
    """Each element, no lower than 0 and no higher than 6.

    Dtype: as the tensor's.
    Examples:
        >>> Tensor([-1.0, 2.0, 9.0]).relu6().tolist()
        [0.0, 2.0, 6.0]
    """
    return inside("relu6", self, 0, 6)


def elu(self: Tensor, alpha: float = 1.0) -> Tensor:
    """Each element, or alpha * (exp(x) - 1) below 0.

    Args:
        alpha: What large negative elements tend to, with its sign changed.
    Dtype: floats keep theirs; ints and bool become the default float.
    Examples:
        >>> round(Tensor(-1.0).elu().item(), 4), Tensor(2.0).elu().item()
        (-0.6321, 2.0)
    """
    return (self > 0).where(self, binary("elu", AT_MOST, self, 0).expm1() * number("elu", "alpha", alpha))


def hardtanh(self: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Each element, between two bounds.

    Args:
        min_val: The lower bound.
        max_val: The upper bound.
    Dtype: as the tensor's.
    Raises: ValueRangeError if the dtype cannot hold a bound.
    Examples:
        >>> Tensor([-3.0, 0.5, 3.0]).hardtanh().tolist()
        [-1.0, 0.5, 1.0]
    """
    low, high = number("hardtanh", "min_val", min_val), number("hardtanh", "max_val", max_val)
    return inside("hardtanh", self, low, high)


def hardsigmoid(self: Tensor) -> Tensor:
    """(x + 3) / 6 between 0 and 1.

    Dtype: floats keep theirs; ints and bool become the default float.
    Examples:
        >>> Tensor([-3.0, 0.0, 3.0]).hardsigmoid().tolist()
        [0.0, 0.5, 1.0]
    """
    return inside("hardsigmoid", self + 3, 0, 6) * (1 / 6)


def hardswish(self: Tensor) -> Tensor:
    """x * hardsigmoid(x).

    Dtype: floats keep theirs; ints and bool become the default float.
    Examples:
        >>> Tensor([0.0, 1.5, 3.0]).hardswish().tolist()
        [0.0, 1.125, 3.0]
    """
    return self * hardsigmoid(self)


def mish(self: Tensor) -> Tensor:
    """x * tanh(softplus(x)).

    Dtype: floats keep theirs; ints and bool become the default float.
    Source: Misra, Mish: a self regularized non-monotonic activation function, BMVC 2020.
    Examples:
        >>> round(Tensor(1.0).mish().item(), 4)
        0.8651
    """
    return self * softplus(self).tanh()


def logsigmoid(self: Tensor) -> Tensor:
    """The logarithm of the sigmoid, safe from overflow.

    Dtype: floats keep theirs; ints and bool become the default float.
    Examples:
        >>> round(Tensor(0.0).logsigmoid().item(), 4)
        -0.6931
    """
    return -softplus(-self)


def softsign(self: Tensor) -> Tensor:
    """x / (1 + |x|).

    Dtype: floats keep theirs; ints and bool become the default float.
    Examples:
        >>> Tensor([-1.0, 3.0]).softsign().tolist()
        [-0.5, 0.75]
    """
    return self / (self.abs() + 1)


def group_norm(
    self: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Each group of channels (axis 1) brought to mean 0 and variance 1, then each channel scaled and shifted.

    Args:
        groups: How many; they divide the channels.
        weight: One factor for each channel, if any.
        bias: What is added to each channel then, if anything.
        eps: Added to the variance.
    Raises: ShapeError unless the groups divide the channels.
    Source: Wu & He, Group normalization, ECCV 2018.
    Examples:
        >>> [round(x, 3) for x in Tensor([[1.0, 3.0]]).group_norm(1).flatten().tolist()]
        [-1.0, 1.0]
    """
    if self.ndim < 2 or integer("group_norm", "the number of groups", groups) < 1 or self.shape[1] % groups:
        raise _unlike_groups(self.shape, groups)
    flat = self.reshape(self.shape[0], groups, -1)
    out = layer_norm(flat, flat.shape[-1], eps=number("group_norm", "eps", eps)).reshape(self.shape)
    return _scaled_and_shifted("group_norm", out, weight, bias, (1, -1) + (1,) * (self.ndim - 2))


def _unlike_groups(shape: Shape, groups: int) -> ShapeError:
    """The error for a shape whose channels do not divide into groups."""
    if len(shape) < 2:
        return ShapeError(
            f"group_norm: there must be an axis of channels, the second; the shape is {shape}. Unsqueeze it first?"
        )
    return ShapeError(
        f"group_norm: channels must divide into groups; shape {shape} has {counted(shape[1], 'channel')} for "
        f"{counted(groups, 'group')}. Change groups?"
    )


def batch_norm(
    self: Tensor, weight: Tensor | None, bias: Tensor | None, center: Tensor, variance: Tensor, eps: float = 1e-5
) -> Tensor:
    """Each channel (axis 1) with its mean and variance taken away, then scaled and shifted.

    Args:
        weight: One factor for each channel, if any.
        bias: What is added to each channel then, if anything.
        center: The mean of each channel.
        variance: The variance of each channel.
        eps: Added to the variance.
    Raises: ShapeError unless there is one of each for each channel.
    Source: Ioffe & Szegedy, Batch normalization, ICML 2015.
    Examples:
        >>> x = Tensor([[3.0, 10.0]])
        >>> x.batch_norm(None, None, Tensor([1.0, 10.0]), Tensor([4.0, 1.0]), eps=0.0).tolist()
        [[1.0, 0.0]]
    """
    tensors = self, tensor("batch_norm", "the mean", center), tensor("batch_norm", "the variance", variance)
    src = [self._value(), tensors[1]._value(), tensors[2]._value()]
    node, mean, spread = src
    dtype, extents = node.dtype, node.shape
    channels = extents[1:2]
    alike = mean.dtype is spread.dtype is dtype and mean.shape == spread.shape == channels
    if not (alike and dtype.is_float and len(extents) > 1 and self._device == tensors[1]._device == tensors[2]._device):
        tensors = _of_channels(*tensors)
        src = [each._value() for each in tensors]
        dtype = src[0].dtype
    check_computes("batch_norm", dtype)
    src.append(const(dtype, number("batch_norm", "eps", eps)))
    shape = (1, -1) + (1,) * (len(extents) - 2)
    return _norm("batch_norm", BATCH_NORM, tensors, src, channels, (weight, bias), shape)


def _of_channels(x: Tensor, center: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A tensor, and its mean and variance, in one float dtype and one of those for each channel.

    Raises: ShapeError if they cannot be; DeviceError if they are on two devices.
    """
    check_device("batch_norm", x, center)
    check_device("batch_norm", x, variance)
    if len(x.shape) < 2:
        raise ShapeError(
            f"batch_norm: there must be an axis of channels, the second; the shape is {x.shape}. Unsqueeze it first?"
        )
    dtype = promote(promote(x.dtype, center.dtype), variance.dtype)
    dtype = dtype if dtype.is_float else dtypes.default_float
    channels = x.shape[1:2]
    for what, each in (("mean", center), ("variance", variance)):
        if each.numel() not in (1, *channels):
            raise ShapeError(
                f"batch_norm: the {what} must have one number for each channel; it has shape {each.shape} for "
                f"{counted(channels[0], 'channel')}. Slice or expand it?"
            )
    center, variance = (expanded("batch_norm", ravel(each.cast(dtype)), channels) for each in (center, variance))
    return x.cast(dtype), center, variance


def sparse_categorical_crossentropy(
    self: Tensor, target: Tensor, ignore_index: int = -1, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """The negative log-likelihood of class numbers from scores, with the classes along the last axis: tinygrad's name.

    Args:
        target: Numbers of classes.
        ignore_index: The number that counts for nothing.
        label_smoothing: The part of the weight that all classes share.
        reduction: "mean" or "sum" of the losses, or "none" for each.
    Raises: ShapeError if the target does not fit; ValueRangeError if there is no such reduction.
    Examples:
        >>> round(Tensor([[0.0, 0.0], [1.0, 3.0]]).sparse_categorical_crossentropy(Tensor([1, -1])).item(), 4)
        0.6931
    """
    scores = self.movedim(-1, 1) if self.ndim > 1 else self
    name = "sparse_categorical_crossentropy"
    return _scores_loss(name, scores, target, ignore_index, label_smoothing, reduction)
