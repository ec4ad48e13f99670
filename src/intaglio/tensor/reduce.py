"""Reductions: sums, extremes, moments, positions of extremes, running sums, softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from intaglio.core.dtypes import DType, DTypeLike, dtypes
from intaglio.core.errors import DTypeError, ShapeError
from intaglio.ir.node import make_known
from intaglio.ops import elementwise as ops
from intaglio.ops.extremes import Position, first_place, position
from intaglio.ops.layers import HALF, LogSoftmax, Softmax, single
from intaglio.ops.memory import const, iota
from intaglio.ops.movement import Reshape, expand, reshape
from intaglio.ops.reduce import EXTREMES, reduction
from intaglio.ops.reduce import reduce as reduce_op
from intaglio.ops.reduce import scan as scan_op
from intaglio.ops.slopes import Chosen
from intaglio.schedule.pieces import LARGE, PIECES
from intaglio.tensor.arguments import flag, number
from intaglio.tensor.elementwise import LENGTH, LENGTH_POWER, binary, check_computes, unary
from intaglio.tensor.movement import axes_of, axis_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.ir.node import Node, Shape
    from intaglio.ops.composite import Composite
    from intaglio.ops.reduce import Reduce
    from intaglio.tensor.tensor import Tensor

Axis = int | Sequence[int] | None
TRUTHS = ("any", "all")  # extremes that no elements have, too
CHOOSING = ("max", "min")  # whose slope is that of one element along an axis, as PyTorch's; amax and amin share it
WINDOWS = ("max_pool2d",)


def kept_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with some axes of size 1."""
    return tuple(1 if a in axes else n for a, n in enumerate(shape))


class _Form(NamedTuple):
    """How values of one dtype and shape are reduced.

    Attributes:
        dtype: What is computed in.
        elements: How many each result is of.
        op: The reduction; None along no axes.
        shape: That of its result.
        keep: What gives it the axes again, with size 1, if they are to stay.
        kept: The shape then.
    """

    dtype: DType
    elements: int
    op: Reduce | None
    shape: Shape
    keep: Reshape | None
    kept: Shape


@lru_cache(maxsize=1024)
def _form(name: str, kind: str, dtype: DType, shape: Shape, axis: int | tuple[int, ...] | None, keepdim: bool) -> _Form:
    """How a named op reduces values; half precision is accumulated in float32.

    Extremes of floats along one axis, and those of windows, are elements that are chosen (`Chosen`).

    Raises: DTypeError if it cannot be; ShapeError if an axis is out of range or given twice, or an extreme of nothing
        is asked for.
    """
    check_computes(name, dtype)
    axes = axes_of(name, axis, len(shape))
    if kind in EXTREMES and name not in TRUTHS and any(shape[a] == 0 for a in axes):
        raise ShapeError(
            f"{name}: there must be an element to choose; the axes {axes} of shape {shape} are empty. "
            "Check numel() first?"
        )
    left = tuple(n for a, n in enumerate(shape) if a not in axes)
    wide = dtype if kind in EXTREMES else single(dtype)
    if not axes:
        return _Form(dtype, 1, None, left, None, left)
    kept = kept_shape(shape, axes)
    count = math.prod(shape[a] for a in axes)
    chosen = dtype.is_float and (name in WINDOWS or (name in CHOOSING and isinstance(axis, int)))
    op = Chosen(kind, tuple(sorted(axes))) if chosen else reduction(kind, axes)
    return _Form(wide, count, op, left, Reshape(kept) if keepdim else None, kept)


def _total(name: str, kind: str, node: Node, axis: Axis, keepdim: object) -> tuple[Node, int]:
    """(a value reduced by a named op, in the dtype that it is computed in, and how many elements each is of)."""
    if keepdim.__class__ is not bool or (axis is not None and axis.__class__ is not int):
        keepdim = keepdim if type(keepdim) is bool else _kept(name, keepdim)
        axis = int(axis) if isinstance(axis, np.integer) else axis
        axis = axis if axis.__class__ is int else axes_of(name, axis, len(node.shape))
    dtype, count, op, shape, keep, kept = _form(name, kind, node.dtype, node.shape, axis, bool(keepdim))
    node = ops.cast(node, dtype)
    if op is not None:
        node = make_known(op, (node,), dtype, shape)
    return node if keep is None else make_known(keep, (node,), dtype, kept), count


def _kept(name: str, keepdim: object) -> bool:
    """Whether axes are kept, as a named op is told: a number there is mostly a second axis.

    Raises: DTypeError if it is neither True nor False.
    """
    if isinstance(keepdim, int) and not isinstance(keepdim, bool):
        raise DTypeError(
            f"{name}: keepdim must be True or False; got {keepdim}. Name several axes as one tuple, or write keepdim="
            f"{bool(keepdim)}?"
        )
    return _keeps(name, keepdim)


def _keeps(name: str, keepdim: object) -> bool:
    """Whether an axis is kept, as a named op of one axis is told.

    Raises: DTypeError if it is neither True nor False.
    """
    return flag(name, "keepdim", keepdim.item() if isinstance(keepdim, np.bool) else keepdim)


def pooled(self: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The largest element of each window, whose last axes are given."""
    return _reduced("max_pool2d", "max", self, self._value(), axes, keepdim=False)


def _reduced(name: str, kind: str, self: Tensor, node: Node, axis: Axis, keepdim: object) -> Tensor:
    """A value of a tensor reduced by a named op, in its own dtype."""
    found, _ = _total(name, kind, node, axis, keepdim)
    return self._make(ops.cast(found, node.dtype), self)


def _accumulated(name: str, node: Node, dtype: DTypeLike | None) -> Node:
    """The operand of a named sum or product: bool and small integers as int64 (uint64 stays)."""
    if dtype is not None:
        return ops.cast(node, dtypes.of(dtype, None, name))
    if node.dtype.is_float or node.dtype in (dtypes.int64, dtypes.uint64):
        return node
    return ops.cast(node, dtypes.int64)


def sum_(self: Tensor, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """The sum along axes.

    Args:
        axis: Axis or axes; all when None.
        keepdim: Whether the axes that go stay with size 1.
        dtype: What to add in; by default int64 for integers and bool, else the tensor's own.
    Shape: (..., n, ...) -> (..., ...), or (..., 1, ...) with keepdim.
    Raises: ShapeError if an axis is out of range or given twice.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).sum(axis=0).tolist()
        [4, 6]
    """
    return _reduced("sum", "sum", self, _accumulated("sum", self._value(), dtype), axis, keepdim)


def prod(self: Tensor, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """The product along axes.

    Args:
        axis: Axis or axes; all when None. Negative counts from the end.
        keepdim: Whether the axes that go stay with size 1.
        dtype: What to multiply in; by default int64 for integers and bool, else the tensor's own.
    Shape: (..., n, ...) -> (..., ...), or (..., 1, ...) with keepdim.
    Raises: ShapeError if an axis is out of range or given twice.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).prod(axis=1).tolist()
        [2, 12]
    """
    return _reduced("prod", "prod", self, _accumulated("prod", self._value(), dtype), axis, keepdim)


def max_(self: Tensor, axis: Axis = None, keepdim: bool = False) -> Tensor:
    """The largest element along axes; NaN if one is.

    Along one axis (a number) its gradient is that of the first element that is equal to it; else all of those share it.

    Args:
        axis: Axis or axes; all when None. Negative counts from the end.
        keepdim: Whether the axes that go stay with size 1.
    Shape: (..., n, ...) -> (..., ...), or (..., 1, ...) with keepdim.
    Dtype: as the tensor's.
    Raises: ShapeError if there is no element, or an axis is out of range or given twice.
    Examples:
        >>> Tensor([[1, 5], [7, 2]]).max(axis=1).tolist(), Tensor([[1, 5], [7, 2]]).max().item()
        ([5, 7], 7)
    """
    return _reduced("max", "max", self, self._value(), axis, keepdim)


def amax(self: Tensor, axis: Axis = None, keepdim: bool = False) -> Tensor:
    """The largest element along axes; NaN if one is. Its gradient is shared by all elements that are equal to it.

    Args:
        axis: Axis or axes; all when None. Negative counts from the end.
        keepdim: Whether the axes that go stay with size 1.
    Shape: (..., n, ...) -> (..., ...), or (..., 1, ...) with keepdim.
    Dtype: as the tensor's.
    Raises: ShapeError if there is no element, or an axis is out of range or given twice.
    Examples:
        >>> Tensor([[1, 5], [7, 2]]).amax(axis=1).tolist(), Tensor([[1, 5], [7, 2]]).amax().item()
        ([5, 7], 7)
    """
    return _reduced("amax", "max", self, self._value(), axis, keepdim)


def min_(self: Tensor, axis: Axis = None, keepdim: bool = False) -> Tensor:
    """The smallest element along axes; NaN if one is.

    Along one axis (a number) its gradient is that of the first element that is equal to it; else all of those share it.

    Args:
        axis: Axis or axes; all when None. Negative counts from the end.
        keepdim: Whether the axes that go stay with size 1.
    Shape: (..., n, ...) -> (..., ...), or (..., 1, ...) with keepdim.
    Dtype: as the tensor's.
    Raises: ShapeError if there is no element, or an axis is out of range or given twice.
    Examples:
        >>> Tensor([[1, 5], [7, 2]]).min(axis=1).tolist(), Tensor([[1, 5], [7, 2]]).min().item()
        ([1, 2], 1)
    """
    return _reduced("min", "min", self, self._value(), axis, keepdim)


def amin(self: Tensor, axis: Axis = None, keepdim: bool = False) -> Tensor:
    """The smallest element along axes; NaN if one is. Its gradient is shared by all elements that are equal to it.

    Args:
        axis: Axis or axes; all when None. Negative counts from the end.
        keepdim: Whether the axes that go stay with size 1.
    Shape: (..., n, ...) -> (..., ...), or (..., 1, ...) with keepdim.
    Dtype: as the tensor's.
    Raises: ShapeError if there is no element, or an axis is out of range or given twice.
    Examples:
        >>> Tensor([[1, 5], [7, 2]]).amin(axis=1).tolist(), Tensor([[1, 5], [7, 2]]).amin().item()
        ([1, 2], 1)
    """
    return _reduced("amin", "min", self, self._value(), axis, keepdim)


def any_(self: Tensor, axis: Axis = None, keepdim: bool = False) -> Tensor:
    """Whether some element along axes is true.

    Args:
        axis: Axis or axes; all when None. Negative counts from the end.
        keepdim: Whether the axes that go stay with size 1.
    Shape: (..., n, ...) -> (..., ...), or (..., 1, ...) with keepdim.
    Dtype: bool.
    Raises: ShapeError if an axis is out of range or given twice.
    Examples:
        >>> Tensor([[0, 0], [0, 3]]).any(axis=1).tolist()
        [False, True]
    """
    return _reduced("any", "max", self, ops.cast(self._value(), dtypes.bool), axis, keepdim)


def all_(self: Tensor, axis: Axis = None, keepdim: bool = False) -> Tensor:
    """Whether every element along axes is true.

    Args:
        axis: Axis or axes; all when None. Negative counts from the end.
        keepdim: Whether the axes that go stay with size 1.
    Shape: (..., n, ...) -> (..., ...), or (..., 1, ...) with keepdim.
    Dtype: bool.
    Raises: ShapeError if an axis is out of range or given twice.
    Examples:
        >>> Tensor([[1, 2], [0, 3]]).all(axis=1).tolist()
        [True, False]
    """
    return _reduced("all", "min", self, ops.cast(self._value(), dtypes.bool), axis, keepdim)


def _float_of(name: str, dtype: DTypeLike) -> DType:
    """The float dtype that a named op is to compute in.

    Raises: DTypeError if it is none.
    """
    chosen = dtypes.of(dtype, None, name)
    if not chosen.is_float:
        raise DTypeError(f"{name}: the dtype must be a float; got {chosen.name}. Cast the result?")
    return chosen


def mean(self: Tensor, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """The arithmetic mean along axes; integers give the default float, if no dtype is named.

    Args:
        axis: Axis or axes; all when None. Negative counts from the end.
        keepdim: Whether the axes that go stay with size 1.
        dtype: What to compute in; by default the tensor's own or the default float.
    Shape: (..., n, ...) -> (..., ...), or (..., 1, ...) with keepdim.
    Raises: ShapeError if an axis is out of range or given twice.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).mean(axis=0).tolist()
        [2.0, 3.0]
    """
    node = self._value()
    own = node.dtype if node.dtype.is_float else dtypes.default_float
    node = ops.cast(node, own if dtype is None else _float_of("mean", dtype))
    total, count = _total("mean", "sum", node, axis, keepdim)
    return self._make(ops.cast(ops.div(total, const(total.dtype, count)), node.dtype), self)


def var(
    self: Tensor,
    axis: Axis = None,
    keepdim: bool = False,
    correction: float = 1,
    *,
    unbiased: bool | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """The variance along axes: squares about the mean, over n - correction; integers give the default float.

    Args:
        axis: Axis or axes; all when None. Negative counts from the end.
        keepdim: Whether the axes that go stay with size 1.
        correction: What is taken from the number of elements that is divided by.
        unbiased: PyTorch's other way to say correction=1, or with False correction=0. NumPy says `ddof`.
        dtype: What to compute in; by default the tensor's own or the default float.
    Shape: (..., n, ...) -> (..., ...), or (..., 1, ...) with keepdim.
    Raises: ShapeError if an axis is out of range or given twice.
    Examples:
        >>> Tensor([1.0, 3.0]).var().item(), Tensor([1.0, 3.0]).var(unbiased=False).item()
        (2.0, 1.0)
    """
    x = self if dtype is None else self.cast(dtype)
    return _narrowed(_variance("var", widened(x), axis, keepdim, correction, unbiased), x)


def std(
    self: Tensor,
    axis: Axis = None,
    keepdim: bool = False,
    correction: float = 1,
    *,
    unbiased: bool | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """The standard deviation along axes: the root of the variance.

    Args:
        axis: Axis or axes; all when None. Negative counts from the end.
        keepdim: Whether the axes that go stay with size 1.
        correction: What is taken from the number of elements that is divided by.
        unbiased: True for a correction of 1, False for 0: PyTorch's other spelling.
        dtype: What to compute in; by default the tensor's own or the default float.
    Shape: (..., n, ...) -> (..., ...), or (..., 1, ...) with keepdim.
    Raises: ShapeError if an axis is out of range or given twice.
    Examples:
        >>> Tensor([1.0, 3.0]).std(correction=0).item()
        1.0
    """
    x = self if dtype is None else self.cast(dtype)
    return _narrowed(unary(LENGTH, _variance("std", widened(x), axis, keepdim, correction, unbiased)), x)


def _variance(name: str, x: Tensor, axis: Axis, keepdim: bool, correction: float, unbiased: bool | None) -> Tensor:
    """The variance of floats, for a named op."""
    axes, keepdim = axes_of(name, axis, x.ndim), keepdim if type(keepdim) is bool else _kept(name, keepdim)
    count = math.prod(x.shape[a] for a in axes)
    less = number(name, "correction", correction)
    if unbiased is not None:
        less = int(flag(name, "unbiased", unbiased))
    apart = x - mean(x, axes, keepdim=True)
    return sum_(apart * apart, axes, keepdim=keepdim) / max(count - less, 0)


class _Search(NamedTuple):
    """How the position of an extreme is found in values of one dtype and shape.

    Attributes:
        flat: What makes a vector of them, if one is searched.
        length: That of the vector.
        pieces: In how many the vector is searched; 0 for all at once.
        op: Finds the position along an axis.
        shape: That of its result.
        keep: What gives it the axes again, with size 1, if they are to stay.
        kept: The shape then.
    """

    flat: Reshape | None
    length: int
    pieces: int
    op: Position
    shape: Shape
    keep: Reshape | None
    kept: Shape


@lru_cache(maxsize=1024)
def _search(name: str, kind: str, dtype: DType, shape: Shape, axis: int | None, keepdim: bool) -> _Search:
    """How a named op finds the position of an extreme.

    Raises: DTypeError if it cannot; ShapeError if there is no element or no such axis.
    """
    size = math.prod(shape)
    if size == 0 and (axis is None or shape[axis_of(name, axis, len(shape))] == 0):
        raise ShapeError(
            f"{name}: there must be an element to choose; the tensor has shape {shape}. Check numel() first?"
        )
    check_computes(name, dtype)
    flat = Reshape((size,)) if axis is None and len(shape) != 1 else None
    along = 0 if axis is None else axis_of(name, axis, len(shape))
    kept = kept_shape(shape, tuple(range(len(shape))) if axis is None else (along,))
    left = () if axis is None else shape[:along] + shape[along + 1 :]
    numbers = range(PIECES, 1, -1) if not left and size >= LARGE else ()
    pieces = next((k for k in numbers if size % k == 0), 0)
    return _Search(flat, size, pieces, position(kind, along), left, Reshape(kept) if keepdim else None, kept)


def _position(name: str, kind: str, self: Tensor, axis: int | None, *, keepdim: object) -> Tensor:
    """The first position of the extreme (of the first NaN, if there is one)."""
    node = self._value()
    if axis is not None and axis.__class__ is not int:
        axis = axis_of(name, axis, len(node.shape))
    flat, length, pieces, op, shape, keep, kept = _search(name, kind, node.dtype, node.shape, axis, bool(keepdim))
    if flat is not None:
        node = make_known(flat, (node,), node.dtype, (length,))
    found = _in_pieces(kind, node, pieces) if pieces else make_known(op, (node,), dtypes.int64, shape)
    return self._make(found if keep is None else make_known(keep, (found,), dtypes.int64, kept), self)


def _in_pieces(kind: str, node: Node, count: int) -> Node:
    """The first position of the extreme of a long vector: the least of those in equal pieces that reach it."""
    n = node.size
    rows = reshape(node, (count, n // count))
    along = expand(reshape(iota(n // count), (1, n // count)), rows.shape)
    starts = ops.mul(iota(count), const(dtypes.int64, n // count))
    places = ops.add(first_place(kind, rows, (1,), along, n), starts)
    return first_place(kind, reduce_op(kind, rows, (1,)), (0,), places, n)


def argmax(self: Tensor, axis: int | None = None, keepdim: bool = False) -> Tensor:
    """The position of the largest element (the first of equals), int64; of the flattened tensor when axis is None.

    Args:
        axis: The axis; the flattened tensor when None.
        keepdim: Whether the axis stays with size 1.
    Dtype: int64.
    Raises: ShapeError if there is no element or no such axis.
    Examples:
        >>> Tensor([[1, 5, 5], [7, 2, 0]]).argmax(axis=1).tolist()
        [1, 0]
    """
    return _position("argmax", "max", self, axis, keepdim=keepdim is not False and _keeps("argmax", keepdim))


def argmin(self: Tensor, axis: int | None = None, keepdim: bool = False) -> Tensor:
    """The position of the smallest element (the first of equals), int64; of the flattened tensor when axis is None.

    Args:
        axis: The axis; the flattened tensor when None.
        keepdim: Whether the axis stays with size 1.
    Dtype: int64.
    Raises: ShapeError if there is no element or no such axis.
    Examples:
        >>> Tensor([[1, 5, 5], [7, 2, 0]]).argmin(axis=1).tolist()
        [0, 2]
    """
    return _position("argmin", "min", self, axis, keepdim=keepdim is not False and _keeps("argmin", keepdim))


def _running(name: str, kind: str, self: Tensor, axis: int, dtype: DTypeLike | None = None) -> Tensor:
    """A running reduction."""
    node = self._value()
    check_computes(name, node.dtype)
    if kind not in EXTREMES:
        node = _accumulated(name, node, dtype)
    if self.ndim == 0:
        axis_of(name, axis, 1)
        return self._make(node, self)
    return self._make(scan_op(kind, node, axis_of(name, axis, self.ndim)), self)


def cumsum(self: Tensor, axis: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The running sum along an axis, inclusive.

    Args:
        axis: The axis; the first by default (PyTorch wants it named, NumPy flattens).
        dtype: What to add in; by default int64 for integers and bool, else the tensor's own.
    Shape: as the tensor's.
    Raises: ShapeError if there is no such axis.
    Examples:
        >>> Tensor([1, 2, 3]).cumsum().tolist()
        [1, 3, 6]
    """
    return _running("cumsum", "sum", self, axis, dtype)


def cumprod(self: Tensor, axis: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The running product along an axis, inclusive.

    Args:
        axis: The axis; the first by default.
        dtype: What to multiply in; by default int64 for integers and bool, else the tensor's own.
    Shape: as the tensor's.
    Raises: ShapeError if there is no such axis.
    Examples:
        >>> Tensor([1, 2, 3, 4]).cumprod().tolist()
        [1, 2, 6, 24]
    """
    return _running("cumprod", "prod", self, axis, dtype)


def cummax(self: Tensor, axis: int = 0) -> Tensor:
    """The running maximum along an axis, inclusive.

    Args:
        axis: The axis; the first by default.
    Shape: as the tensor's.
    Dtype: as the tensor's.
    Raises: ShapeError if there is no such axis.
    Examples:
        >>> Tensor([3, 1, 4, 1, 5]).cummax().tolist()
        [3, 3, 4, 4, 5]
    """
    return _running("cummax", "max", self, axis)


def _top(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The maximum along axes, kept as axes of size 1. No gradient flows through it: results do not depend on it."""
    return x._make(ops.detach(reshape(reduce_op("max", x._value(), axes), kept_shape(x.shape, axes))))


def widened(self: Tensor) -> Tensor:
    """Operands of exponentials: integers as the default float, half precision as float32."""
    if self.dtype in HALF:
        return self.cast(dtypes.float32)
    return self if self.dtype.is_float else self.cast(dtypes.default_float)


def _narrowed(out: Tensor, like: Tensor) -> Tensor:
    """A result back in half precision where its operand was."""
    return out.cast(like.dtype) if like.dtype in HALF else out


def _along(name: str, op: Callable[[int], Composite], self: Tensor, axis: int) -> Tensor:
    """A function of the elements along an axis, for a named op; a scalar is alone on one."""
    node = self._value()
    shape = node.shape
    if axis.__class__ is not int:
        axis = axis_of(name, axis, len(shape) or 1)
    dtype, made_by, given = _line_form(name, op, node.dtype, len(shape), axis)
    line = ops.cast(node, dtype) if shape else reshape(ops.cast(node, dtype), (1,))
    made = make_known(made_by, (line,), dtype, line.shape)
    return self._make(ops.cast(made if shape else reshape(made, shape), given), self)


@lru_cache(maxsize=1024)
def _line_form(
    name: str, op: Callable[[int], Composite], dtype: DType, rank: int, axis: int
) -> tuple[DType, Composite, DType]:
    """(the dtype that a named function along an axis is computed in, its op, the dtype of its result).

    Raises: DTypeError if it cannot be computed; ShapeError if there is no such axis.
    """
    own = dtype if dtype.is_float else dtypes.default_float
    wide = single(own)
    check_computes(name, wide)
    return wide, op(axis_of(name, axis, rank or 1)), own


def softmax(self: Tensor, axis: int = -1) -> Tensor:
    """Exponentials along an axis, scaled to sum to 1; safe from overflow.

    Args:
        axis: The axis; negative counts from the end.
    Shape: as the tensor's.
    Dtype: floats keep theirs (half precision is computed in float32); integers give the default float.
    Raises: ShapeError if there is no such axis.
    Examples:
        >>> Tensor([0.0, 0.0]).softmax().tolist()
        [0.5, 0.5]
    """
    return _along("softmax", Softmax, self, axis)


def log_softmax(self: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of the softmax along an axis, safe from overflow.

    Args:
        axis: The axis; negative counts from the end.
    Shape: as the tensor's.
    Dtype: floats keep theirs (half precision is computed in float32); integers give the default float.
    Raises: ShapeError if there is no such axis.
    Examples:
        >>> round(Tensor([0.0, 0.0]).log_softmax()[0].item(), 4)
        -0.6931
    """
    return _along("log_softmax", LogSoftmax, self, axis)


def logsumexp(self: Tensor, axis: Axis = None, keepdim: bool = False) -> Tensor:
    """The logarithm of the summed exponentials along axes, safe from overflow.

    Args:
        axis: Axis or axes; all when None. Negative counts from the end.
        keepdim: Whether the axes that go stay with size 1.
    Shape: (..., n, ...) -> (..., ...), or (..., 1, ...) with keepdim.
    Dtype: floats keep theirs; ints and bool become the default float.
    Raises: ShapeError if an axis is out of range or given twice.
    Source: Blanchard, Higham & Higham, IMA J. Numer. Anal. 41(4), 2021.
    Examples:
        >>> round(Tensor([0.0, 0.0]).logsumexp().item(), 4)
        0.6931
    """
    x, axes = widened(self), axes_of("logsumexp", axis, self.ndim)
    top = _top(x, axes)
    safe = top.isfinite().where(top, 0.0)
    result = _narrowed(sum_((x - safe).exp(), axes, keepdim=True).log() + safe, self)
    if keepdim is not False and _kept("logsumexp", keepdim):
        return result
    return result.reshape(tuple(n for a, n in enumerate(self.shape) if a not in axes))


def norm(self: Tensor, p: float | str = 2.0, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """The p-norm along axes (all when None), as of a vector: the p-th root of the summed p-th powers of magnitudes.

    Args:
        p: 2, or "fro", is the Euclidean length; infinity the largest magnitude, minus infinity the smallest; 0 counts
            the elements that are not 0.
        dim: Axis or axes; all when None. Negative counts from the end.
        keepdim: Whether the axes that go stay with size 1.
    Dtype: floats, and they keep theirs.
    Raises: DTypeError unless it is of floats, and p a number.
    Examples:
        >>> t = Tensor([[3.0, -4.0], [0.0, 5.0]])
        >>> t.norm(1).item(), t.norm(dim=1).tolist()
        (12.0, [5.0, 5.0])
    """
    power = 2.0 if isinstance(p, str) and p == "fro" else number("norm", "p", p)
    if not self.dtype.is_float:
        raise DTypeError(f"norm: the tensor must be of floats; it is {self.dtype.name}. Cast it first?")
    axes, keepdim = axes_of("norm", dim, self.ndim), keepdim if type(keepdim) is bool else _kept("norm", keepdim)
    x = widened(self)
    match power:
        case 0:
            out = sum_((x != 0).where(1.0, x * 0.0), axes, keepdim)  # its slope is 0, as PyTorch's
        case 1:
            out = sum_(x.abs(), axes, keepdim)
        case 2:
            out = unary(LENGTH, sum_(x * x, axes, keepdim))
        case _ if math.isinf(power):
            sizes = x.abs()
            out = _reduced("norm", "max" if power > 0 else "min", sizes, sizes._value(), axes, keepdim)
        case _:
            out = _length_power(sum_(_length_power(x.abs(), power), axes, keepdim), 1 / power)
    return _narrowed(out, self)


def _length_power(x: Tensor, power: float) -> Tensor:
    """Magnitudes to a power, with a slope of 0 where they are 0: those to powers above 1 have it by themselves."""
    return x**power if power > 1 else binary("norm", LENGTH_POWER, x, power)


def count_nonzero(self: Tensor, axis: Axis = None) -> Tensor:
    """How many elements along axes are other than 0: int64.

    Args:
        axis: Axis or axes; all when None. Negative counts from the end.
    Raises: ShapeError if an axis is out of range or given twice.
    Examples:
        >>> Tensor([[1, 0], [2, 3]]).count_nonzero(axis=0).tolist()
        [2, 1]
    """
    return _reduced(
        "count_nonzero", "sum", self, _accumulated("count_nonzero", (self != 0)._value(), None), axis, False
    )


def trace(self: Tensor) -> Tensor:
    """The sum of a matrix's diagonal.

    Shape: (n, m) -> ().
    Raises: ShapeError if it is no matrix.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).trace().item()
        5
    """
    if self.ndim != 2:
        raise ShapeError(f"trace: the tensor must be a matrix; the shape is {self.shape}. Use diagonal and sum?")
    return sum_(self.diagonal())


def median(self: Tensor, axis: int | None = None, keepdim: bool = False) -> Tensor:
    """The middle element in order along an axis (of all when None), the lower of two; NaN if one is.

    Computes the tensor.

    Args:
        axis: The axis; all elements when None.
        keepdim: Whether the axis stays with size 1.
    Raises: ShapeError if there is no element.
    Examples:
        >>> Tensor([7, 1, 3, 2]).median().item()
        2
    """
    if keepdim.__class__ is not bool:
        keepdim = _keeps("median", keepdim)
    if axis is None:
        found = median(self.reshape(-1), 0)
        return found.reshape((1,) * self.ndim) if keepdim else found
    a = axis_of("median", axis, self.ndim)
    n = self.shape[a]
    if n == 0:
        raise ShapeError(
            f"median: there must be an element to choose; the tensor has shape {self.shape}. Check numel() first?"
        )
    ordered = self.sort(a).values
    middle = ordered.select(a, (n - 1) // 2)
    if self.dtype.is_float:
        middle = ordered.select(a, n - 1).isnan().where(math.nan, middle)  # NaN is last in order
    return middle.unsqueeze(a) if keepdim else middle


def nansum(self: Tensor, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """The sum along axes of the elements that are not NaN.

    Args:
        axis: Axis or axes; all when None. Negative counts from the end.
        keepdim: Whether the axes that go stay with size 1.
        dtype: What to add in, as of sum.
    Shape: (..., n, ...) -> (..., ...), or (..., 1, ...) with keepdim.
    Raises: ShapeError if an axis is out of range or given twice.
    Examples:
        >>> Tensor([1.0, float("nan"), 2.0]).nansum().item()
        3.0
    """
    counted = self.isnan().where(0, self) if self.dtype.is_float else self
    return _reduced("nansum", "sum", self, _accumulated("nansum", counted._value(), dtype), axis, keepdim)


def nanmean(self: Tensor, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """The mean along axes of the elements that are not NaN; NaN where there is none.

    Args:
        axis: Axis or axes; all when None. Negative counts from the end.
        keepdim: Whether the axes that go stay with size 1.
        dtype: What to compute in, as of mean.
    Shape: (..., n, ...) -> (..., ...), or (..., 1, ...) with keepdim.
    Raises: ShapeError if an axis is out of range or given twice.
    Examples:
        >>> Tensor([1.0, float("nan"), 2.0]).nanmean().item()
        1.5
    """
    axes, keepdim = axes_of("nanmean", axis, self.ndim), keepdim if type(keepdim) is bool else _kept("nanmean", keepdim)
    x = self.cast(dtypes.of(dtype, self.dtype if self.dtype.is_float else dtypes.default_float, "nanmean"))
    wide = widened(x)
    return _narrowed(nansum(wide, axes, keepdim) / sum_(wide == wide, axes, keepdim), x)
