"""Convolutions and pooling: products and reductions over sliding windows, in any number of dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intaglio.core.dtypes import promote
from intaglio.core.errors import ShapeError, ValueRangeError
from intaglio.core.words import counted
from intaglio.ir.node import make
from intaglio.ops.convolution import Convolution
from intaglio.ops.elementwise import cast
from intaglio.tensor.arguments import axes, flag, integer, integers, shown, tensor
from intaglio.tensor.elementwise import ADD, binary, check_device
from intaglio.tensor.reduce import pooled

if TYPE_CHECKING:
    from intaglio.tensor.tensor import Tensor

Extents = int | Sequence[int]


def _each(name: str, what: str, value: Extents, rank: int, *, least: int = 1) -> tuple[int, ...]:
    """A number for each spatial axis, for an argument of a named op.

    Raises: ShapeError unless there are as many; ValueRangeError if one is too small.
    """
    given = integers(name, f"the numbers of {what}", value)
    found = given * rank if isinstance(value, int) else given
    if len(found) != rank or min(found, default=least) < least:
        raise _unlike_axes(name, what, value, found, rank, least)
    return found


def _unlike_axes(
    name: str, what: str, value: Extents, found: tuple[int, ...], rank: int, least: int
) -> ShapeError | ValueRangeError:
    """The error for an argument of a named op that has not a number for each spatial axis, or one that is too small."""
    if len(found) != rank:
        return ShapeError(
            f"{name}: {what} must have one number for each spatial axis; got {found} for {axes(rank)}. "
            "Write one number for all?"
        )
    return ValueRangeError(f"{name}: {what} must be at least {least}; got {shown(value)}. Write {least}?")


def _spatial_rank(name: str, self: Tensor) -> int:
    """How many axes follow the first two.

    Raises: ShapeError if there is none.
    """
    if self.ndim < 3:
        raise ShapeError(
            f"{name}: the input must have two axes and the spatial ones; got {self.shape}. Unsqueeze it first?"
        )
    return self.ndim - 2


def windows(x: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> Tensor:
    """A view of the windows of the last axes: shape (..., positions..., places in the window...)."""
    rank = len(kernel)
    first = x.ndim - rank
    for axis, (k, s, d) in enumerate(zip(kernel, stride, dilation, strict=True)):
        x = x.unfold(first + axis, d * (k - 1) + 1, s)
        x = x[(..., slice(None, None, d))]
    return x


def _check_channels(name: str, self: Tensor, weight: Tensor, groups: int, channels: int) -> None:
    """Raise where input, weight and groups do not fit; `channels` are those that the weight takes."""
    if weight.ndim < 3 or self.ndim != weight.ndim:
        raise ShapeError(
            f"{name}: input and weight must have two axes and the spatial ones; got {self.shape} and {weight.shape}. "
            "Unsqueeze one?"
        )
    if groups < 1 or self.shape[1] != channels or weight.shape[0] % groups:
        raise _unlike_channels(name, self, weight, groups, channels)


def _unlike_channels(name: str, self: Tensor, weight: Tensor, groups: int, channels: int) -> ShapeError:
    """The error for channels or groups that do not fit."""
    own = counted(groups, "group")
    if groups < 1:
        return ShapeError(f"{name}: there must be at least one group; got {groups}. Leave groups out?")
    if self.shape[1] == channels:
        return ShapeError(
            f"{name}: groups must divide the weight's first axis; weight {weight.shape}, {own}. Change groups?"
        )
    advice = "Change groups?" if groups > 1 else "Transpose or slice one?"
    return ShapeError(
        f"{name}: channels must agree; input {self.shape} has {self.shape[1]}, weight {weight.shape} in {own} takes "
        f"{channels}. {advice}"
    )


def _with_bias(name: str, out: Tensor, bias: Tensor) -> Tensor:
    """The output of a named op, with a number added to each channel."""
    return binary(name, ADD, out, tensor(name, "the bias", bias).reshape(-1, *(1,) * (out.ndim - 2)))


def conv2d(
    self: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    groups: int = 1,
    stride: Extents = 1,
    dilation: Extents = 1,
    padding: Extents = 0,
) -> Tensor:
    """The convolution (correlation) with a weight of shape (out, in / groups, ...), in as many dimensions as it has.

    Args:
        weight: The kernels, as (out, in / groups, ...).
        bias: What is added: (out,).
        groups: How many groups of channels are apart.
        stride: Steps of the window, one or for each axis.
        dilation: Steps within the window.
        padding: Zeros on both sides of each spatial axis, or one number for all.
    Shape: (n, in, ...) and (out, in / groups, ...) -> (n, out, ...).
    Raises: ShapeError where channels or sizes do not fit.
    Examples:
        >>> Tensor.ones(1, 1, 3, 3).conv2d(Tensor.ones(1, 1, 2, 2)).tolist()
        [[[[4.0, 4.0], [4.0, 4.0]]]]
    """
    weight, groups = tensor("conv2d", "the weight", weight), integer("conv2d", "the number of groups", groups)
    rank = weight.ndim - 2
    _check_channels("conv2d", self, weight, groups, math.prod(weight.shape[1:2]) * groups)
    strides, dilations = _each("conv2d", "stride", stride, rank), _each("conv2d", "dilation", dilation, rank)
    pads = _each("conv2d", "padding", padding, rank, least=0)
    kernel = weight.shape[2:]
    positions: list[int] = []
    for n, k, s, d, p in zip(self.shape[2:], kernel, strides, dilations, pads, strict=True):
        reach, padded = d * (k - 1) + 1, n + 2 * p
        if not 1 <= reach <= padded:
            raise ShapeError(
                f"conv2d: the window must fit the padded input; window {reach}, padded input {padded}. Add padding?"
            )
        positions.append((padded - reach) // s + 1)
    check_device("conv2d", self, weight)
    x, w = self._value(), weight._value()
    dtype = promote(x.dtype, w.dtype)
    around = tuple((p, p) for p in pads)
    op = Convolution(tuple(positions), kernel, strides, dilations, around, groups)
    out = self._make(make(op, cast(x, dtype), cast(w, dtype)), self, weight)
    return out if bias is None else _with_bias("conv2d", out, bias)


def conv_transpose2d(
    self: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    groups: int = 1,
    stride: Extents = 1,
    dilation: Extents = 1,
    padding: Extents = 0,
    output_padding: Extents = 0,
) -> Tensor:
    """The transpose of a convolution: each input element spreads a weight of shape (in, out / groups, ...).

    Args:
        weight: The kernels, as (in, out / groups, ...).
        bias: What is added: (out,).
        groups: How many groups of channels are apart.
        stride: Steps of the window, one or for each axis.
        dilation: Steps within the window.
        padding: How much of the result's border is cut.
        output_padding: How much is added to the result's end.
    Shape: (n, in, ...), (in, out / groups, ...) -> (n, out, ...).
    Raises: ShapeError where channels or sizes do not fit.
    Examples:
        >>> Tensor([[[[1.0, 2.0]]]]).conv_transpose2d(Tensor([[[[1.0, 1.0]]]])).tolist()
        [[[[1.0, 3.0, 2.0]]]]
    """
    name = "conv_transpose2d"
    weight, groups = tensor(name, "the weight", weight), integer(name, "the number of groups", groups)
    rank = weight.ndim - 2
    _check_channels(name, self, weight, groups, math.prod(weight.shape[:1]))
    strides, dilations = _each(name, "stride", stride, rank), _each(name, "dilation", dilation, rank)
    pads = _each(name, "padding", padding, rank, least=0)
    more = _each(name, "output_padding", output_padding, rank, least=0)
    x = self
    if any(s > 1 for s in strides) and self.numel():
        spread = tuple((n - 1) * s + 1 for n, s in zip(self.shape[2:], strides, strict=True))
        x = self.__class__.zeros(*self.shape[:2], *spread, dtype=self.dtype, device=self.device)
        x[(..., *(slice(None, None, s) for s in strides))] = self
    reach = [d * (k - 1) for k, d in zip(weight.shape[2:], dilations, strict=True)]
    for n, q, p, m in zip(x.shape[2:], reach, pads, more, strict=True):
        if n + q + m < 2 * p + 1:
            raise ShapeError(f"{name}: padding must leave something; {p} on both sides of {n + q + m}. Give less?")
    x = x.pad([(0, 0), (0, 0), *((r - p, r - p + m) for r, p, m in zip(reach, pads, more, strict=True))])
    turned = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:]).transpose(1, 2)
    turned = turned.flip(*range(3, 3 + rank)).reshape(-1, weight.shape[0] // groups, *weight.shape[2:])
    out = conv2d(x, turned, None, groups, 1, dilation, 0)
    return out if bias is None else _with_bias(name, out, bias)


def _pool_pads(
    name: str,
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
    *,
    ceil_mode: bool,
) -> list[tuple[int, int]]:
    """(before, after) for each spatial axis, so that every window is whole."""
    found: list[tuple[int, int]] = []
    for n, k, s, d, p in zip(shape, kernel, stride, dilation, padding, strict=True):
        reach = d * (k - 1) + 1
        count = (n + 2 * p - reach) // s + 1
        if ceil_mode and flag(name, "ceil_mode", ceil_mode):
            count = math.ceil((n + 2 * p - reach) / s) + 1
            if (count - 1) * s >= n + p:
                count -= 1  # a window that starts in the padding on the far side is left out
        if count < 1 or 2 * p > reach:
            raise ShapeError(
                f"{name}: the window must fit the padded input, with padding of at most half of it; "
                f"window {reach}, input {n}, padding {p}. Change kernel_size or padding?"
            )
        found.append((p, max(p, (count - 1) * s + reach - n - p)))
    return found


def max_pool2d(
    self: Tensor,
    kernel_size: Extents = 2,
    stride: Extents | None = None,
    dilation: Extents = 1,
    padding: Extents = 0,
    *,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window of the spatial axes, those after the first two.

    Args:
        kernel_size: The extents of the window.
        stride: Its steps; those extents when None.
        dilation: The steps within it.
        padding: How much is added around the input.
        ceil_mode: Whether a last window may reach past the end, the first if it is by less than a step.
    Shape: (n, channels, ...) -> (n, channels, ...).
    Raises: ShapeError if no window fits.
    Examples:
        >>> Tensor.arange(16).reshape(1, 1, 4, 4).max_pool2d().tolist()
        [[[[5, 7], [13, 15]]]]
    """
    rank = _spatial_rank("max_pool2d", self)
    kernel = _each("max_pool2d", "kernel_size", kernel_size, rank)
    dilations = _each("max_pool2d", "dilation", dilation, rank)
    strides = kernel if stride is None else _each("max_pool2d", "stride", stride, rank)
    pads = _each("max_pool2d", "padding", padding, rank, least=0)
    around = _pool_pads("max_pool2d", self.shape[2:], kernel, strides, dilations, pads, ceil_mode=ceil_mode)
    x = self.pad([(0, 0), (0, 0), *around], value=self.dtype.min) if any(a or b for a, b in around) else self
    return pooled(windows(x, kernel, strides, dilations), tuple(range(-rank, 0)))


def avg_pool2d(
    self: Tensor,
    kernel_size: Extents = 2,
    stride: Extents | None = None,
    dilation: Extents = 1,
    padding: Extents = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of the spatial axes, those after the first two.

    Args:
        kernel_size: The extents of the window.
        stride: Its steps; those extents when None.
        dilation: The steps within it.
        padding: How much is added around the input.
        ceil_mode: Whether a last window may reach past the end, the first if it is by less than a step.
        count_include_pad: Whether the zeros of `padding` count (those that `ceil_mode` adds never do).
    Shape: (n, channels, ...) -> (n, channels, ...).
    Raises: ShapeError if no window fits.
    Examples:
        >>> Tensor.arange(16).reshape(1, 1, 4, 4).avg_pool2d().tolist()
        [[[[2.5, 4.5], [10.5, 12.5]]]]
    """
    rank = _spatial_rank("avg_pool2d", self)
    kernel = _each("avg_pool2d", "kernel_size", kernel_size, rank)
    dilations = _each("avg_pool2d", "dilation", dilation, rank)
    strides = kernel if stride is None else _each("avg_pool2d", "stride", stride, rank)
    pads = _each("avg_pool2d", "padding", padding, rank, least=0)
    around = _pool_pads("avg_pool2d", self.shape[2:], kernel, strides, dilations, pads, ceil_mode=ceil_mode)
    inside = tuple(range(-rank, 0))
    counted = [(p, p) if count_include_pad else (0, 0) for p in pads]
    padded = self.pad([(0, 0), (0, 0), *around]) if any(a or b for a, b in around) else self
    seen = windows(padded, kernel, strides, dilations)
    if around == counted:  # then every window has as many
        return seen.mean(inside)
    total = seen.sum(inside)
    ones = self.__class__.ones(
        *(n + a + b for n, (a, b) in zip(self.shape[2:], counted, strict=True)), device=self.device
    )
    rest = [(a - c, b - e) for (a, b), (c, e) in zip(around, counted, strict=True)]
    counts = windows(ones.pad(rest), kernel, strides, dilations).sum(inside)
    return total / counts.cast(total.dtype)
