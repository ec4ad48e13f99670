"""Composite ops of neural networks: activations, norms, softmax, attention.

Each is one node until it is planned, and means what the formula in its docstring says, op by op. Operands are of one
float dtype (counts of halves are float32, in which those are added). Numbers that a caller chooses are inputs, so that
kernels take them as arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import InternalError
from intaglio.ir.node import Interned, make
from intaglio.ops import elementwise as ops
from intaglio.ops.composite import MATMUL, Composite, batch_of
from intaglio.ops.memory import const, iota
from intaglio.ops.movement import broadcast, expand, permute, reshape
from intaglio.ops.reduce import reduce

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node, Result, Shape

HALF: Final = (dtypes.float16, dtypes.bfloat16)
SATURATED: Final = 25.0  # |x| from which the sigmoid of GELU by tanh is 0 or 1 in each dtype


class Layer(Composite):
    """What gives a value like its first operand."""

    def infer(self, x: Node, *others: Node) -> Result:
        """As the operand."""
        return x.dtype, x.shape


class Sigmoid(Layer):
    """1 / (exp(-x) + 1); of half precision in float32."""

    name: ClassVar[str] = "sigmoid"

    def written_out(self, x: Node) -> Node:
        """The formula."""
        return _in_single(_sigmoid, x)

    def pulled_back(self, ct: Node, *src: Node) -> list[Node | None]:
        """The cotangent of x: the slope is sigmoid(x) * sigmoid(-x), which is 0 where exp(-x) is infinite."""
        (x,) = src
        return [ops.mul(ct, ops.mul(make(self, x), make(self, ops.neg(x))))]


class Gelu(Layer):
    """x * 0.5 * (1 + erf(x / sqrt(2))); of half precision in float32."""

    name: ClassVar[str] = "gelu"

    def written_out(self, x: Node) -> Node:
        """The formula."""
        return _in_single(_gelu, x)


class TanhGelu(Layer):
    """x / (exp(-2 * z) + 1) where z = (x + x * x * x * 0.044715) * sqrt(2 / pi), which is x * 0.5 * (tanh(z) + 1).

    That has fewer operations, and keeps more digits where tanh(z) is near -1. Half precision is computed in float32.
    """

    name: ClassVar[str] = "tanh_gelu"

    def written_out(self, x: Node) -> Node:
        """The formula."""
        return _in_single(_tanh_gelu, x)

    def differentiable(self, *src: Node) -> Node:
        """x * sigmoid(2 * z), where z is that of x within bounds, beyond which the sigmoid is 0 or 1."""
        return _in_single(_bounded_tanh_gelu, *src)


def single(dtype: DType) -> DType:
    """What a float dtype is computed and added in: half precision in float32."""
    return dtypes.float32 if dtype in HALF else dtype


def _in_single(formula: Callable[[Node], Node], x: Node) -> Node:
    """A formula of x, of which half precision is rounded at last."""
    return ops.cast(formula(ops.cast(x, single(x.dtype))), x.dtype)


def _sigmoid(x: Node) -> Node:
    """1 / (exp(-x) + 1)."""
    one = const(x.dtype, 1)
    return ops.div(one, ops.add(ops.exp(ops.neg(x)), one))


def _gelu(x: Node) -> Node:
    """x * 0.5 * (1 + erf(x / sqrt(2)))."""
    inner = make(ops.ERF, ops.mul(x, const(x.dtype, 1 / math.sqrt(2))))
    return ops.mul(ops.mul(x, const(x.dtype, 0.5)), ops.add(inner, const(x.dtype, 1)))


def _tanh_gelu(x: Node) -> Node:
    """x / (exp(-2 * z) + 1)."""
    return ops.div(x, ops.add(ops.exp(_doubled(x, -1)), const(x.dtype, 1)))


def _bounded_tanh_gelu(x: Node) -> Node:
    """x * sigmoid(2 * z), of z within bounds: its slope is a number however large x is."""
    bounded = ops.maximum(ops.minimum(x, const(x.dtype, SATURATED)), const(x.dtype, -SATURATED))
    return ops.mul(x, make(SIGMOID, _doubled(bounded, 1)))


def _doubled(x: Node, sign: int) -> Node:
    """(x + x * x * x * 0.044715) * sqrt(2 / pi) twice, of a sign."""
    scale = sign * math.sqrt(8 / math.pi)
    slope = ops.add(ops.mul(ops.mul(x, x), const(x.dtype, 0.044715 * scale)), const(x.dtype, scale))
    return ops.mul(x, slope)


@dataclass(frozen=True, slots=True, eq=False)
class LayerNorm(Interned, Layer):
    """d * (1 / sqrt(mean(d * d) + eps)) * weight + bias, where d = x - mean(x), along the last axes.

    src: (x, count, eps[, weight[, bias]]): count is the number of elements along those axes.
    """

    axes: int
    name: ClassVar[str] = "layer_norm"

    def written_out(self, x: Node, count: Node, eps: Node, *affine: Node) -> Node:
        """The formula."""
        unit, _ = self._normalized(x, count, eps)
        return _affine(unit, *affine)

    def pulled_back(self, ct: Node, *src: Node) -> list[Node | None]:
        """(g - mean(g) - u * mean(g * u)) * scale, where u is x normalized and g = ct * weight; of u, ct * u.

        That is one pass over the rows; what follows from the formula op by op keeps values of x's size in between.
        """
        x, count, eps, *affine = src
        unit, scale = self._normalized(x, count, eps)
        axes = self._along(x)
        given = ops.mul(ct, broadcast(affine[0], x.shape)) if affine else ct
        even = broadcast(_mean(given, axes, count), x.shape)
        along = ops.mul(unit, broadcast(_mean(ops.mul(given, unit), axes, count), x.shape))
        own = ops.mul(ops.sub(ops.sub(given, even), along), scale)
        others = [_of_trailing(g, a) for g, a in zip((ops.mul(ct, unit), ct), affine, strict=False)]
        return [own, None, None, *others]

    def _along(self, x: Node) -> tuple[int, ...]:
        """The axes that are normalized."""
        if self.axes > x.rank:  # a number of axes is no size: a plan for any is refused here
            raise InternalError(f"layer_norm: {self.axes} axes of shape {x.shape}")
        return tuple(range(x.rank - self.axes, x.rank))

    def _normalized(self, x: Node, count: Node, eps: Node) -> tuple[Node, Node]:
        """(x normalized, what it was scaled by)."""
        axes = self._along(x)
        apart = ops.sub(x, broadcast(_mean(x, axes, count), x.shape))
        spread = ops.add(_mean(ops.mul(apart, apart), axes, count), eps)
        scale = broadcast(_rsqrt(spread), x.shape)
        return ops.mul(apart, scale), scale


class RmsNorm(Layer):
    """x * (1 / sqrt(mean(x * x) + eps)) * weight, along the last axis.

    src: (x, count, eps[, weight]): count is the number of elements along that axis.
    """

    name: ClassVar[str] = "rms_norm"

    def written_out(self, x: Node, count: Node, eps: Node, *weight: Node) -> Node:
        """The formula."""
        square = ops.add(_mean(ops.mul(x, x), (x.rank - 1,), count), eps)
        return _affine(ops.mul(x, broadcast(_rsqrt(square), x.shape)), *weight)


class BatchNorm(Layer):
    """(x - center) * (1 / sqrt(variance + eps)) * weight + bias, along axis 1.

    src: (x, center, variance, eps[, weight[, bias]]): one of each for each position of axis 1, but of eps.
    """

    name: ClassVar[str] = "batch_norm"

    def written_out(self, x: Node, center: Node, variance: Node, eps: Node, *affine: Node) -> Node:
        """The formula."""
        shape = (1, x.shape[1]) + (1,) * (x.rank - 2)
        scale = _rsqrt(ops.add(reshape(variance, shape), eps))
        apart = ops.sub(x, broadcast(reshape(center, shape), x.shape))
        return _affine(ops.mul(apart, broadcast(scale, x.shape)), *[reshape(each, shape) for each in affine])


@dataclass(frozen=True, slots=True, eq=False)
class Softmax(Interned, Layer):
    """e / sum(e), where e = exp(x - max(x)), along an axis."""

    axis: int
    name: ClassVar[str] = "softmax"

    def written_out(self, x: Node) -> Node:
        """The formula."""
        e = ops.exp(_below_top(x, self.axis))
        return ops.div(e, broadcast(_kept("sum", e, (self.axis,)), x.shape))


@dataclass(frozen=True, slots=True, eq=False)
class LogSoftmax(Interned, Layer):
    """d - log(sum(exp(d))), where d = x - max(x), along an axis."""

    axis: int
    name: ClassVar[str] = "log_softmax"

    def written_out(self, x: Node) -> Node:
        """The formula."""
        apart = _below_top(x, self.axis)
        return ops.sub(apart, broadcast(ops.log(_kept("sum", ops.exp(apart), (self.axis,))), x.shape))


@dataclass(frozen=True, slots=True, eq=False)
class Attention(Interned, Composite):
    """(e @ value) / sum(e), where e = exp(s - max(s)) and s = (query @ key.T) * scale, masked.

    src: (query, key, value, scale[, mask]). A causal one keeps the scores up to each query's own place; a mask of bool
    keeps those where it is true; any other is added.
    """

    causal: bool
    name: ClassVar[str] = "attention"

    def infer(self, query: Node, key: Node, value: Node, scale: Node, *mask: Node) -> Result:
        """As many vectors as there are queries, as wide as the values."""
        scores = batch_of(query.shape[:-2], key.shape[:-2])
        return query.dtype, (*batch_of(scores, value.shape[:-2]), query.shape[-2], value.shape[-1])

    def written_out(self, query: Node, key: Node, value: Node, scale: Node, *mask: Node) -> Node:
        """The formula."""
        scores = ops.mul(MATMUL.written_out(query, _turned(key)), scale)
        least = const(scores.dtype, -math.inf)
        if self.causal:
            scores = ops.where(below_diagonal(scores.shape, 0), scores, least)
        for each in mask:
            wide = broadcast(each, scores.shape)
            scores = ops.where(wide, scores, least) if each.dtype.is_bool else ops.add(scores, wide)
        weights = ops.exp(_below_top(scores, scores.rank - 1))
        out = MATMUL.written_out(weights, value)
        return ops.div(out, broadcast(_kept("sum", weights, (weights.rank - 1,)), out.shape))


SIGMOID, GELU, TANH_GELU = Sigmoid(), Gelu(), TanhGelu()
RMS_NORM, BATCH_NORM = RmsNorm(), BatchNorm()
attention: Final = cache(Attention)  # the one that is causal, or not


def below_diagonal(shape: Shape, diagonal: int) -> Node:
    """Where column - row <= diagonal, over the last two axes of a shape."""
    n, m = shape[-2:]
    rows = expand(reshape(iota(n), (n, 1)), (n, m))
    columns = expand(reshape(iota(m), (1, m)), (n, m))
    return broadcast(ops.le(columns, ops.add(rows, const(dtypes.int64, diagonal))), shape)


def _kept(kind: str, x: Node, axes: tuple[int, ...]) -> Node:
    """A reduction whose axes stay with size 1."""
    return reshape(reduce(kind, x, axes), tuple([1 if a in axes else n for a, n in enumerate(x.shape)]))


def _mean(x: Node, axes: tuple[int, ...], count: Node) -> Node:
    """The mean along axes, which stay with size 1; half precision is added in float32."""
    total = _kept("sum", ops.cast(x, single(x.dtype)), axes)
    return ops.cast(ops.div(total, count), x.dtype)


def _of_trailing(ct: Node, x: Node) -> Node:
    """A cotangent summed over the axes that an operand lacks."""
    return reduce("sum", ct, tuple(range(ct.rank - x.rank)))


def _rsqrt(x: Node) -> Node:
    """1 over the square root."""
    return ops.div(const(x.dtype, 1), ops.sqrt(x))


def _affine(x: Node, weight: Node | None = None, bias: Node | None = None) -> Node:
    """x * weight + bias, as far as there are such."""
    if weight is not None:
        x = ops.mul(x, broadcast(weight, x.shape))
    return x if bias is None else ops.add(x, broadcast(bias, x.shape))


def _below_top(x: Node, axis: int) -> Node:
    """x - max along an axis. No gradient flows through the maximum: results do not depend on it."""
    return ops.sub(x, broadcast(ops.detach(_kept("max", x, (axis,))), x.shape))


def _turned(x: Node) -> Node:
    """A stack of matrices with their axes exchanged."""
    rank = x.rank
    return permute(x, (*range(rank - 2), rank - 1, rank - 2))
