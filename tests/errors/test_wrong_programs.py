"""Wrong programs of many kinds: one error each, at the statement, that names the op, the values and what to try."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor, dtypes
from intaglio.core import errors
from intaglio.core.errors import DeviceError, DTypeError, IndexRangeError, IntaglioError, ReadOnlyError

if TYPE_CHECKING:
    from collections.abc import Callable

DTYPES = ", ".join(dtype.name for dtype in dtypes.all)


def table() -> Tensor:
    """Two rows of three integers."""
    return Tensor([[1, 2, 3], [4, 5, 6]])


def floats() -> Tensor:
    """Two rows of three floats."""
    return Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def image() -> Tensor:
    """One image of two channels."""
    return Tensor.ones(1, 2, 5, 5)


def leaf() -> Tensor:
    """Weights whose gradient is wanted."""
    return Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)


def apart() -> Tensor:
    """Two floats of eight bytes, with a byte between them."""
    return Tensor(np.zeros(18, np.uint8)).reshape(2, 9)[:, :8].bitcast(dtypes.float64).reshape(2)


def put(target: Tensor, index: Any, value: Any) -> None:
    """target[index] = value."""
    target[index] = value


def delete(target: Tensor, index: Any) -> None:
    """del target[index]."""
    del target[index]


Case = tuple["Callable[[Any], object]", str, str]
INDICES: list[Case] = [
    (
        lambda t: t[5],
        "IndexRangeError",
        (
            "getitem: 5 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or "
            "from -1 back to -2?"
        ),
    ),
    (
        lambda t: t[0, -4],
        "IndexRangeError",
        (
            "getitem: -4 is out of range for axis 1 of size 3. The range is [-3, 3). Count from 0 to 2, or "
            "from -1 back to -3?"
        ),
    ),
    (
        lambda t: t[..., 3],
        "IndexRangeError",
        (
            "getitem: 3 is out of range for axis 1 of size 3. The range is [-3, 3). Count from 0 to 2, or "
            "from -1 back to -3?"
        ),
    ),
    (
        lambda t: t[[0, 5]],
        "IndexRangeError",
        (
            "getitem: 5 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or "
            "from -1 back to -2?"
        ),
    ),
    (
        lambda t: t[Tensor([0, 9])],
        "IndexRangeError",
        (
            "getitem: 9 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or "
            "from -1 back to -2?"
        ),
    ),
    (
        lambda t: t[np.array([0, -5])],
        "IndexRangeError",
        (
            "getitem: -5 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or "
            "from -1 back to -2?"
        ),
    ),
    (
        lambda t: t[None, 5],
        "IndexRangeError",
        (
            "getitem: 5 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or "
            "from -1 back to -2?"
        ),
    ),
    (
        lambda t: t[0][3],
        "IndexRangeError",
        (
            "getitem: 3 is out of range for axis 0 of size 3. The range is [-3, 3). Count from 0 to 2, or "
            "from -1 back to -3?"
        ),
    ),
    (
        lambda t: put(t, 5, 1),
        "IndexRangeError",
        (
            "setitem: 5 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or "
            "from -1 back to -2?"
        ),
    ),
    (
        lambda t: put(t, (0, 7), 1),
        "IndexRangeError",
        (
            "setitem: 7 is out of range for axis 1 of size 3. The range is [-3, 3). Count from 0 to 2, or "
            "from -1 back to -3?"
        ),
    ),
    (
        lambda t: put(t, [0, 5], 1),
        "IndexRangeError",
        (
            "setitem: 5 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or "
            "from -1 back to -2?"
        ),
    ),
    (
        lambda t: put(t, Tensor([0, 9]), 1),
        "IndexRangeError",
        (
            "setitem: 9 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or "
            "from -1 back to -2?"
        ),
    ),
    (
        lambda t: put(t, (slice(None), [0, 5]), 1),
        "IndexRangeError",
        (
            "setitem: 5 is out of range for axis 1 of size 3. The range is [-3, 3). Count from 0 to 2, or "
            "from -1 back to -3?"
        ),
    ),
    (
        lambda t: put(t, 0, [1, 2]),
        "ShapeError",
        (
            "setitem: the value must broadcast to the target; value (2,), target (3,). Reshape the value, or "
            "slice the target?"
        ),
    ),
    (
        lambda t: t.select(0, 2),
        "IndexRangeError",
        (
            "select: 2 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or "
            "from -1 back to -2?"
        ),
    ),
    (
        lambda t: t.index_select(1, [3]),
        "IndexRangeError",
        (
            "index_select: 3 is out of range for axis 1 of size 3. The range is [-3, 3). Count from 0 to 2, "
            "or from -1 back to -3?"
        ),
    ),
    (
        lambda t: t.index_select(0, 7),
        "IndexRangeError",
        (
            "index_select: 7 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, "
            "or from -1 back to -2?"
        ),
    ),
    (
        lambda t: t.index_fill(0, Tensor([4]), 1),
        "IndexRangeError",
        (
            "index_fill: 4 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or "
            "from -1 back to -2?"
        ),
    ),
    (
        lambda t: t.index_add(0, Tensor([2]), Tensor([[1, 1, 1]])),
        "IndexRangeError",
        (
            "index_add: 2 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or "
            "from -1 back to -2?"
        ),
    ),
    (
        lambda t: t.index_add(0, Tensor([0.0]), Tensor([[1, 1, 1]])),
        "DTypeError",
        ("index_add: positions must be integers; the index is float32. Cast it first?"),
    ),
    (
        lambda t: t.gather(0, Tensor([[5, 0, 0]])),
        "IndexRangeError",
        (
            "gather: 5 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or "
            "from -1 back to -2?"
        ),
    ),
    (
        lambda t: t.gather(0, Tensor([[True, False, True]])),
        "DTypeError",
        ("gather: positions must be integers; the index is bool. Cast it first?"),
    ),
    (
        lambda t: t.take(Tensor([6])),
        "IndexRangeError",
        ("take: 6 is out of range for 6 elements. The range is [-6, 6). Count from 0 to 5, or from -1 back to -6?"),
    ),
    (
        lambda t: t.scatter(0, Tensor([[3, 0, 0]]), 1),
        "IndexRangeError",
        (
            "scatter: 3 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or "
            "from -1 back to -2?"
        ),
    ),
    (
        lambda t: t.scatter_(0, Tensor([[3, 0, 0]]), 1),
        "IndexRangeError",
        (
            "scatter_: 3 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or "
            "from -1 back to -2?"
        ),
    ),
    (
        lambda t: t.scatter_add(1, Tensor([[3], [0]]), t),
        "IndexRangeError",
        (
            "scatter_add: 3 is out of range for axis 1 of size 3. The range is [-3, 3). Count from 0 to 2, "
            "or from -1 back to -3?"
        ),
    ),
    (
        lambda t: t.scatter_reduce(0, Tensor([[-3, 0, 0]]), t, "sum"),
        "IndexRangeError",
        (
            "scatter_reduce: -3 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to "
            "1, or from -1 back to -2?"
        ),
    ),
    (
        lambda t: t.scatter(0, Tensor([[0, 0, 0]]), Tensor([[1]])),
        "ShapeError",
        (
            "scatter: the source must be at least as long as the index; source (1, 1), index (1, 3). Expand "
            "the source, or slice the index?"
        ),
    ),
    (
        lambda t: t["a"],
        "DTypeError",
        ("getitem: parts must be integers, slices, None, '...', or arrays; got 'a'. Write a number?"),
    ),
    (
        lambda t: t[(1, 2), 0],
        "DTypeError",
        ("getitem: parts must be integers, slices, None, '...', or arrays; got (1, 2). Write a list?"),
    ),
    (lambda t: t[1:"a"], "DTypeError", ("getitem: a bound of a slice must be an integer; got 'a'. Write a number?")),
    (
        lambda t: t[1.5:],
        "DTypeError",
        ("getitem: a bound of a slice must be an integer; got 1.5. Round it with int(...)?"),
    ),
    (
        lambda t: t[[0.5]],
        "DTypeError",
        ("getitem: positions must be integers or bool; got float64. Convert them with int(...) or .astype?"),
    ),
    (
        lambda t: t[[[0], [1, 2]]],
        "IndexRangeError",
        ("getitem: nested lists of positions must have equal lengths; got [[0], [1, 2]]. Pad the shorter ones?"),
    ),
    (
        lambda t: put(t, [[0], [1, 2]], 0),
        "IndexRangeError",
        ("setitem: nested lists of positions must have equal lengths; got [[0], [1, 2]]. Pad the shorter ones?"),
    ),
    (lambda t: t.narrow(0, "a", 1), "DTypeError", ("narrow: the start must be an integer; got 'a'. Write a number?")),
    (
        lambda t: t.narrow(0, 1, 5),
        "ShapeError",
        (
            "narrow: the piece must lie within the axis; 5 from 1 on axis 0 of size 2. Use a slice, which "
            "ends with the axis?"
        ),
    ),
    (
        lambda t: t.masked_select(Tensor([True] * 4)),
        "ShapeError",
        ("masked_select: only axes of size 1 can be repeated; shape (4,) to (2, 3). Use repeat, or unsqueeze first?"),
    ),
    (
        lambda t: t.masked_fill(Tensor([True] * 4), 0),
        "ShapeError",
        ("masked_fill: shapes must broadcast; (2, 3) and (4,) differ on axis -1. Reshape or unsqueeze one?"),
    ),
    (
        lambda t: t.masked_fill_(t > 1, 2**70),
        "ValueRangeError",
        (
            "masked_fill_: the number must fit the dtype; 1180591620717411303424 does not fit int64. Cast "
            "the tensor first?"
        ),
    ),
    (
        lambda t: delete(t, 0),
        "DTypeError",
        ("delitem: a tensor keeps its elements. Take the others, as t[:-1] or t[mask]?"),
    ),
]
SHAPES: list[Case] = [
    (
        lambda t: t.reshape(4),
        "ShapeError",
        ("reshape: sizes must agree; the tensor has 6 elements, (4,) has 4. Is (6,) meant?"),
    ),
    (
        lambda t: t.reshape(2, 2, 2),
        "ShapeError",
        ("reshape: sizes must agree; the tensor has 6 elements, (2, 2, 2) has 8. Slice or pad it first?"),
    ),
    (
        lambda t: t.unflatten(1, (2, 2)),
        "ShapeError",
        ("unflatten: sizes must agree; axis 1 has 3 elements, (2, 2) has 4. Slice or pad it first?"),
    ),
    (lambda t: t.unflatten(1, "ab"), "DTypeError", ("unflatten: sizes must be integers; got 'ab'. Write a number?")),
    (
        lambda t: t.flatten(1, 0),
        "ShapeError",
        ("flatten: the first axis must not be after the last; got 1 and 0. Exchange them?"),
    ),
    (lambda t: t.unfold(0, "a", 1), "DTypeError", ("unfold: the size must be an integer; got 'a'. Write a number?")),
    (
        lambda t: t.unfold(0, 1, 1.5),
        "DTypeError",
        ("unfold: the step must be an integer; got 1.5. Round it with int(...)?"),
    ),
    (
        lambda t: t.unfold(0, 1, 0),
        "ShapeError",
        ("unfold: windows of 1 by steps of 0 do not fit axis 0 of size 2. Give positive numbers?"),
    ),
    (
        lambda t: t.unsqueeze(4),
        "ShapeError",
        (
            "unsqueeze: the axis must be in [-3, 3); got 4 for 3 axes with the new one. Count from 0 to 2, "
            "or from -1 back to -3?"
        ),
    ),
    (lambda t: t[0].mT, "ShapeError", ("mT: there must be two axes; the shape is (3,). Unsqueeze it first?")),
    (
        lambda t: t.expand(3),
        "ShapeError",
        ("expand: there must be at least 2 extents; got (3,) for shape (2, 3). Write -1 for an axis that stays?"),
    ),
    (
        lambda t: t.pad(((1,), (1, 1))),
        "ShapeError",
        ("pad: a pair is (before, after); got (1,). Write (0, 0) for an axis that stays?"),
    ),
    (
        lambda t: t.pad(((1, 1),)),
        "ShapeError",
        ("pad: one pair for each axis; got 1 pair for 2 axes. Write None for an axis that stays?"),
    ),
    (
        lambda t: t.pad((1, 2, 3)),
        "ShapeError",
        (
            "pad: a flat list has two numbers for each of at most 2 axes; got [1, 2, 3]. Write (before, "
            "after) of the last axis first?"
        ),
    ),
    (
        lambda t: t.pad((1, 1), mode="replicat"),
        "ValueRangeError",
        (
            'pad: the mode must be "constant", "reflect", "replicate" or "circular"; got \'replicat\'. Is '
            '"replicate" meant?'
        ),
    ),
    (
        lambda t: t[:0].pad(((1, 1), (0, 0)), mode="circular"),
        "ShapeError",
        ('pad: there must be an element to repeat with mode="circular"; axis 0 has none. Use mode="constant"?'),
    ),
    (
        lambda t: t[:0].pad(((1, 1), (0, 0)), mode="replicate"),
        "ShapeError",
        ('pad: there must be an element to repeat with mode="replicate"; axis 0 has none. Use mode="constant"?'),
    ),
    (
        lambda t: t.roll((1, 2), 0),
        "ShapeError",
        ("roll: one shift for each axis; got 2 shifts for 1 axis. Name as many of both?"),
    ),
    (
        lambda t: t.repeat(2),
        "ShapeError",
        ("repeat: one count for each axis; got (2,) for shape (2, 3). Use tile, which takes fewer?"),
    ),
    (
        lambda t: t.split([3, -1]),
        "ShapeError",
        ("split: sizes must not be negative; got [3, -1]. Use narrow for one piece?"),
    ),
    (
        lambda t: t.split([1, 1, 1]),
        "ShapeError",
        ("split: sizes must sum to the axis; [1, 1, 1] sum to 3, axis 0 has 2. Is dim=1 meant?"),
    ),
    (
        lambda t: t.split(0),
        "ShapeError",
        ("split: the size must be positive; got 0. Use chunk for a number of pieces?"),
    ),
    (
        lambda t: Tensor.cat(t, 1),
        "DTypeError",
        ("cat: a list of tensors is wanted; operand 1 is 1. Name the axis, dim=1?"),
    ),
    (
        lambda t: Tensor.cat([t, [1, 2, 3]]),
        "DTypeError",
        ("cat: a list of tensors is wanted; operand 1 is [1, 2, 3]. Make one with Tensor(...)?"),
    ),
    (
        lambda t: Tensor.cat([t, t[0]]),
        "ShapeError",
        ("cat: shapes must agree except on axis 0; operand 1 is (3,), operand 0 is (2, 3). Unsqueeze one?"),
    ),
    (
        lambda _: Tensor.cat(3),
        "DTypeError",
        ("cat: a list of tensors is wanted; got 3. Write cat([a, b]), or a.cat(b)?"),
    ),
    (
        lambda t: Tensor.stack([t, t], 4),
        "ShapeError",
        (
            "stack: the axis must be in [-3, 3); got 4 for 3 axes with the new one. Count from 0 to 2, or "
            "from -1 back to -3?"
        ),
    ),
    (
        lambda t: t.as_strided((3, 3), (1,)),
        "ShapeError",
        ("as_strided: one stride for each extent of at least 0; got (3, 3) and (1,). Give as many of both?"),
    ),
    (
        lambda t: t.movedim((0, 1), 0),
        "ShapeError",
        ("movedim: as many targets as sources are needed; got (0, 1) and 0. Give a place for each?"),
    ),
    (lambda t: t.rot90(1, (0,)), "ShapeError", ("rot90: two axes make a plane; got (0,). Write dims=(0, 1)?")),
    (
        lambda t: t.unsqueeze(0).diag(),
        "ShapeError",
        ("diag: a vector or a matrix is wanted; the shape is (1, 2, 3). Use diagonal, or reshape?"),
    ),
]
REDUCTIONS: list[Case] = [
    (
        lambda t: t.sum(0, 1),
        "DTypeError",
        ("sum: keepdim must be True or False; got 1. Name several axes as one tuple, or write keepdim=True?"),
    ),
    (
        lambda t: t.mean(0, keepdim="a"),
        "DTypeError",
        ("mean: keepdim must be True or False; got 'a'. Write one of them?"),
    ),
    (lambda t: t.argmax(0, 1), "DTypeError", ("argmax: keepdim must be True or False; got 1. Write True?")),
    (lambda t: t.median(0, 1), "DTypeError", ("median: keepdim must be True or False; got 1. Write True?")),
    (lambda t: t.mean(dtype="int64"), "DTypeError", ("mean: the dtype must be a float; got int64. Cast the result?")),
    (
        lambda t: t.sum(dtype="flaot32"),
        "DTypeError",
        (
            f"sum: the dtype must be one of {DTYPES}"
            ", or NumPy's, in native byte order; got 'flaot32'. Is \"float32\" meant?"
        ),
    ),
    (
        lambda t: t.sum(0, keepdim=True, keepdims=True),
        "DTypeError",
        ("sum: keepdim and keepdims mean the same; got both. Drop one?"),
    ),
    (
        lambda t: t[:0].max(),
        "ShapeError",
        ("max: there must be an element to choose; the axes (0, 1) of shape (0, 3) are empty. Check numel() first?"),
    ),
    (
        lambda t: t[:0].argmin(0),
        "ShapeError",
        ("argmin: there must be an element to choose; the tensor has shape (0, 3). Check numel() first?"),
    ),
    (
        lambda t: t[:0].median(0),
        "ShapeError",
        ("median: there must be an element to choose; the tensor has shape (0, 3). Check numel() first?"),
    ),
    (
        lambda t: t[0, 0].sum(0),
        "ShapeError",
        ("sum: the tensor must have an axis; got axis 0 of a scalar. Reshape it to (1,)?"),
    ),
    (
        lambda t: t.count_nonzero(4),
        "ShapeError",
        ("count_nonzero: the axis must be in [-2, 2); got 4 for 2 axes. Count from 0 to 1, or from -1 back to -2?"),
    ),
    (
        lambda t: t.nansum(3),
        "ShapeError",
        ("nansum: the axis must be in [-2, 2); got 3 for 2 axes. Count from 0 to 1, or from -1 back to -2?"),
    ),
    (
        lambda t: t.normalize(3),
        "ShapeError",
        ("normalize: the axis must be in [-2, 2); got 3 for 2 axes. Count from 0 to 1, or from -1 back to -2?"),
    ),
    (lambda t: t.norm("nuc"), "DTypeError", ("norm: p must be a number; got 'nuc'. Write a number?")),
    (lambda t: t.topk(5), "IndexRangeError", ("topk: k must be in [0, 3] on axis 1 of size 3; got 5. Is k=3 meant?")),
    (
        lambda t: t[0].multinomial(-1),
        "ShapeError",
        ("multinomial: the number of samples must not be negative; got -1. Give 0 or more?"),
    ),
    (
        lambda t: t[0].multinomial(4),
        "ValueRangeError",
        (
            "multinomial: as many weights must be above 0 as are drawn; 4 drawn, 3 above 0. Draw fewer, or "
            "with replacement=True?"
        ),
    ),
]
ARITHMETIC: list[Case] = [
    (
        lambda t: t[0, 0] & t[0, 1],
        "DTypeError",
        ("bitwise_and: float32 operands have no bitwise_and. Cast or bitcast to an integer first?"),
    ),
    (
        lambda t: t[0, 0] << 1,
        "DTypeError",
        ("lshift: float32 operands have no lshift. Cast or bitcast to an integer first?"),
    ),
    (
        lambda t: 1 | t[0, 0],
        "DTypeError",
        ("bitwise_or: float32 operands have no bitwise_or. Cast or bitcast to an integer first?"),
    ),
    (
        lambda t: ~t,
        "DTypeError",
        ("bitwise_not: float32 operands have no bitwise_not. Cast or bitcast to an integer first?"),
    ),
    (
        lambda _: Tensor(1.0) ^ Tensor(2.0),
        "DTypeError",
        ("bitwise_xor: float32 operands have no bitwise_xor. Cast or bitcast to an integer first?"),
    ),
    (
        lambda _: Tensor([1, 2]) ** Tensor([1, 2, 3]),
        "ShapeError",
        ("pow: shapes must broadcast; (2,) and (3,) differ on axis -1. Reshape or unsqueeze one?"),
    ),
    (
        lambda t: t.logical_and(t[0, :2]),
        "ShapeError",
        ("logical_and: shapes must broadcast; (2, 3) and (2,) differ on axis -1. Reshape or unsqueeze one?"),
    ),
    (
        lambda t: t.add(t, alpha=np.zeros(3)),
        "DTypeError",
        ("add: alpha must be a number; got ndarray. Take its number with .item()?"),
    ),
    (
        lambda t: t.add_("a"),
        "DTypeError",
        ("add_: operands must be tensors, arrays or numbers; got 'a'. Convert it first?"),
    ),
    (
        lambda t: t.mul_(t[0, :2]),
        "ShapeError",
        ("mul_: shapes must broadcast; (2, 3) and (2,) differ on axis -1. Reshape or unsqueeze one?"),
    ),
    (
        lambda t: t.sub_(t[0, :2]),
        "ShapeError",
        ("sub_: shapes must broadcast; (2, 3) and (2,) differ on axis -1. Reshape or unsqueeze one?"),
    ),
    (
        lambda t: t.add_(Tensor([[[1.0]]])),
        "ShapeError",
        ("add_: the result must have the target's shape; (1, 2, 3) into (2, 3). Make a new tensor?"),
    ),
    (
        lambda t: Tensor.where(True, t, t),
        "DTypeError",
        ("where: the condition must be a tensor; got True. Make one with Tensor(...)?"),
    ),
    (lambda t: t.nan_to_num("a"), "DTypeError", ("nan_to_num: nan must be a number; got 'a'. Write a number?")),
    (
        lambda _: Tensor([1]).nan_to_num("a"),
        "DTypeError",
        ("nan_to_num: nan must be a number; got 'a'. Write a number?"),
    ),
    (lambda t: t.round(1.5), "DTypeError", ("round: decimals must be an integer; got 1.5. Round it with int(...)?")),
    (
        lambda t: t @ t,
        "ShapeError",
        ("matmul: inner sizes must be equal; lhs (2, 3) has 3, rhs (2, 3) has 2. Transpose one side?"),
    ),
    (
        lambda t: t @ t[:, 0],
        "ShapeError",
        ("matmul: inner sizes must be equal; lhs (2, 3) has 3, rhs (2,) has 2. Transpose lhs?"),
    ),
    (
        lambda t: t[0] @ t,
        "ShapeError",
        ("matmul: inner sizes must be equal; lhs (3,) has 3, rhs (2, 3) has 2. Transpose rhs?"),
    ),
    (
        lambda t: t[0] @ t[0, :2],
        "ShapeError",
        ("matmul: inner sizes must be equal; lhs (3,) has 3, rhs (2,) has 2. Slice the longer, or use outer?"),
    ),
    (
        lambda _: Tensor.ones(2, 3) @ Tensor.ones(4, 3),
        "ShapeError",
        ("matmul: inner sizes must be equal; lhs (2, 3) has 3, rhs (4, 3) has 4. Transpose rhs?"),
    ),
    (
        lambda t: t @ Tensor.ones(4, 5),
        "ShapeError",
        ("matmul: inner sizes must be equal; lhs (2, 3) has 3, rhs (4, 5) has 4. Reshape or slice one?"),
    ),
    (
        lambda t: t @ 3,
        "ShapeError",
        ("matmul: operands must have at least one axis; lhs (2, 3), rhs (). Multiply scalars with *?"),
    ),
    (
        lambda t: t.linear(t, Tensor.ones(3)),
        "ShapeError",
        ("linear: shapes must broadcast; (2, 2) and (3,) differ on axis -1. Reshape or unsqueeze one?"),
    ),
    (
        lambda t: t.linear(t.T),
        "ShapeError",
        (
            "linear: the weight must be (out, in) with the last axis of the input; weight (3, 2), input (2, "
            "3). Transpose the weight?"
        ),
    ),
    (
        lambda t: t[0].addmm(t, t.T),
        "ShapeError",
        ("addmm: shapes must broadcast; (2, 2) and (3,) differ on axis -1. Reshape or unsqueeze one?"),
    ),
    (
        lambda t: Tensor.einsum("...i,...i", Tensor.ones(1, 2, 5, 5), t),
        "ShapeError",
        ("einsum: a letter has one size; an axis of '...' is 5 and 2. Use another letter?"),
    ),
    (
        lambda t: Tensor.einsum("ij->ij->i", t),
        "ShapeError",
        ("einsum: axes are named by letters; 'ij->ij->i' has '-', '>'. Write it as \"ij,jk->ik\"?"),
    ),
    (
        lambda t: Tensor.einsum("...ijk", t),
        "ShapeError",
        ("einsum: one letter for each axis; '...ijk' for shape (2, 3). Write \"...\" for axes without a letter?"),
    ),
]
NETWORKS: list[Case] = [
    (
        lambda t: t.layer_norm(3, t[0, :2]),
        "ShapeError",
        ("layer_norm: shapes must broadcast; (2, 3) and (2,) differ on axis -1. Reshape or unsqueeze one?"),
    ),
    (
        lambda t: t.rms_norm(t[0, :2]),
        "ShapeError",
        ("rms_norm: shapes must broadcast; (2, 3) and (2,) differ on axis -1. Reshape or unsqueeze one?"),
    ),
    (
        lambda t: t.group_norm(2),
        "ShapeError",
        ("group_norm: channels must divide into groups; shape (2, 3) has 3 channels for 2 groups. Change groups?"),
    ),
    (
        lambda t: t.group_norm(3, Tensor.ones(2)),
        "ShapeError",
        ("group_norm: shapes must broadcast; (2, 3) and (1, 2) differ on axis -1. Reshape or unsqueeze one?"),
    ),
    (
        lambda t: t.batch_norm(None, None, t[0, :2], t[0]),
        "ShapeError",
        (
            "batch_norm: the mean must have one number for each channel; it has shape (2,) for 3 channels. "
            "Slice or expand it?"
        ),
    ),
    (
        lambda t: t.cross_entropy(Tensor([0, 5])),
        "IndexRangeError",
        (
            "cross_entropy: 5 is out of range for axis 1 of size 3. The range is [0, 3). Give scores for "
            "more classes, or the number to leave out as ignore_index?"
        ),
    ),
    (
        lambda t: t.cross_entropy(Tensor([0, -1])),
        "IndexRangeError",
        (
            "cross_entropy: -1 is out of range for axis 1 of size 3. The range is [0, 3). Give scores for "
            "more classes, or the number to leave out as ignore_index?"
        ),
    ),
    (
        lambda t: t.nll_loss(Tensor([0, 9])),
        "IndexRangeError",
        (
            "nll_loss: 9 is out of range for axis 1 of size 3. The range is [0, 3). Give scores for more "
            "classes, or the number to leave out as ignore_index?"
        ),
    ),
    (
        lambda t: t.sparse_categorical_crossentropy(Tensor([3, 0])),
        "IndexRangeError",
        (
            "sparse_categorical_crossentropy: 3 is out of range for axis 1 of size 3. The range is [0, 3). "
            "Give scores for more classes, or the number to leave out as ignore_index?"
        ),
    ),
    (
        lambda t: t.cross_entropy(Tensor([0, 1, 2])),
        "ShapeError",
        (
            "cross_entropy: the target must have the shape without classes; target (3,), scores (2, 3). "
            "Squeeze or reshape it, or take the argmax of one-hot ones?"
        ),
    ),
    (
        lambda t: t.cross_entropy(t.T),
        "ShapeError",
        ("cross_entropy: shapes must broadcast; (2, 3) and (3, 2) differ on axis -2. Reshape or unsqueeze one?"),
    ),
    (
        lambda t: t.cross_entropy(Tensor([0, 1]), reduction="men"),
        "ValueRangeError",
        ('cross_entropy: the reduction must be "mean", "sum" or "none"; got \'men\'. Is "mean" meant?'),
    ),
    (
        lambda t: t.cross_entropy(Tensor([0, 1]), label_smoothing=2),
        "ValueRangeError",
        ("cross_entropy: label_smoothing must be in [0, 1]; got 2. Is it in percent?"),
    ),
    (
        lambda t: t.mse_loss(t.T),
        "ShapeError",
        ("mse_loss: shapes must broadcast; (2, 3) and (3, 2) differ on axis -2. Reshape or unsqueeze one?"),
    ),
    (
        lambda _: Tensor.ones(4, 1).mse_loss(Tensor.ones(4)),
        "ShapeError",
        ("mse_loss: the target must broadcast to what came; target (4,), tensor (4, 1). Squeeze or reshape one?"),
    ),
    (
        lambda _: Tensor.ones(4).l1_loss(Tensor.ones(4, 1)),
        "ShapeError",
        ("l1_loss: the target must broadcast to what came; target (4, 1), tensor (4,). Squeeze or reshape one?"),
    ),
    (
        lambda t: t.binary_cross_entropy(t[0, :2]),
        "ShapeError",
        ("binary_cross_entropy: shapes must broadcast; (2, 3) and (2,) differ on axis -1. Reshape or unsqueeze one?"),
    ),
    (
        lambda t: t.scaled_dot_product_attention(t, t, mask=t),
        "ShapeError",
        (
            "scaled_dot_product_attention: the mask must broadcast to the scores; mask (2, 3), scores (2, "
            "2). Reshape or slice the mask?"
        ),
    ),
    (
        lambda t: t.scaled_dot_product_attention(t, t[0]),
        "ShapeError",
        (
            "scaled_dot_product_attention: query, key and value must have two axes or more; (2, 3), (2, 3), "
            "(3,). Unsqueeze one?"
        ),
    ),
    (
        lambda t: t.dropout(2),
        "ValueRangeError",
        ("dropout: the probability must be in [0, 1]; got 2. Is it in percent?"),
    ),
]
IMAGES: list[Case] = [
    (
        lambda t: t.conv2d(Tensor.ones(3, 3, 2, 2)),
        "ShapeError",
        (
            "conv2d: channels must agree; input (1, 2, 5, 5) has 2, weight (3, 3, 2, 2) in 1 group takes 3. "
            "Transpose or slice one?"
        ),
    ),
    (
        lambda t: t.conv2d(Tensor.ones(3, 1, 2, 2), groups=2),
        "ShapeError",
        ("conv2d: groups must divide the weight's first axis; weight (3, 1, 2, 2), 2 groups. Change groups?"),
    ),
    (
        lambda t: t.conv2d(Tensor.ones(3, 2, 2, 2), groups=0),
        "ShapeError",
        ("conv2d: there must be at least one group; got 0. Leave groups out?"),
    ),
    (
        lambda t: t.conv2d(Tensor.ones(3, 2, 7, 7)),
        "ShapeError",
        ("conv2d: the window must fit the padded input; window 7, padded input 5. Add padding?"),
    ),
    (
        lambda t: t.conv2d(Tensor.ones(3, 2, 2, 2), bias=Tensor.ones(2)),
        "ShapeError",
        ("conv2d: shapes must broadcast; (1, 3, 4, 4) and (2, 1, 1) differ on axis -3. Reshape or unsqueeze one?"),
    ),
    (
        lambda t: t.conv2d(Tensor.ones(3, 2, 2, 2), stride=(1, 2, 3)),
        "ShapeError",
        (
            "conv2d: stride must have one number for each spatial axis; got (1, 2, 3) for 2 axes. Write one "
            "number for all?"
        ),
    ),
    (
        lambda t: t.conv2d(Tensor.ones(3, 2, 2, 2), padding="same"),
        "DTypeError",
        ("conv2d: the numbers of padding must be integers; got 'same'. Write a number?"),
    ),
    (
        lambda t: t.conv2d(Tensor.ones(3, 2, 2, 2), dilation=0),
        "ValueRangeError",
        ("conv2d: dilation must be at least 1; got 0. Write 1?"),
    ),
    (
        lambda t: t.conv_transpose2d(Tensor.ones(2, 3, 2, 2), padding=9),
        "ShapeError",
        ("conv_transpose2d: padding must leave something; 9 on both sides of 6. Give less?"),
    ),
    (
        lambda t: t.conv_transpose2d(Tensor.ones(2, 3, 2, 2), bias=Tensor.ones(2)),
        "ShapeError",
        (
            "conv_transpose2d: shapes must broadcast; (1, 3, 6, 6) and (2, 1, 1) differ on axis -3. Reshape or "
            "unsqueeze one?"
        ),
    ),
    (
        lambda t: t.max_pool2d(9),
        "ShapeError",
        (
            "max_pool2d: the window must fit the padded input, with padding of at most half of it; window 9, "
            "input 5, padding 0. Change kernel_size or padding?"
        ),
    ),
    (lambda t: t.max_pool2d(0), "ValueRangeError", ("max_pool2d: kernel_size must be at least 1; got 0. Write 1?")),
    (
        lambda t: t.avg_pool2d(2, ceil_mode=1),
        "DTypeError",
        ("avg_pool2d: ceil_mode must be True or False; got 1. Write True?"),
    ),
]
DTYPES_GIVEN: list[Case] = [
    (
        lambda t: t.cast("flaot32"),
        "DTypeError",
        (
            f"cast: the dtype must be one of {DTYPES}"
            ", or NumPy's, in native byte order; got 'flaot32'. Is \"float32\" meant?"
        ),
    ),
    (
        lambda t: t.cast("torch.float16"),
        "DTypeError",
        (
            f"cast: the dtype must be one of {DTYPES}"
            ", or NumPy's, in native byte order; got 'torch.float16'. Is \"float16\" meant?"
        ),
    ),
    (
        lambda t: t.cast("complex64"),
        "DTypeError",
        (
            f"cast: the dtype must be one of {DTYPES}, or NumPy's, in native byte order; "
            "got 'complex64'. Use one of these?"
        ),
    ),
    (
        lambda t: t.cast(None),
        "DTypeError",
        (f"cast: the dtype must be one of {DTYPES}, or NumPy's, in native byte order; got None. Use one of these?"),
    ),
    (
        lambda t: t.cast(">f4"),
        "DTypeError",
        (
            f"cast: the dtype must be one of {DTYPES}"
            ", or NumPy's, in native byte order; got '>f4'. Is \"float32\" meant?"
        ),
    ),
    (
        lambda t: t.to("float33"),
        "DeviceError",
        ('device: no backend "float33"; available here: cpu, disk, npy, null, python. Is the dtype "float32" meant?'),
    ),
    (
        lambda t: t.to(dtype="flaot"),
        "DTypeError",
        (
            f"to: the dtype must be one of {DTYPES}"
            ", or NumPy's, in native byte order; got 'flaot'. Is \"float64\" meant?"
        ),
    ),
    (
        lambda t: t.to(device=3),
        "DeviceError",
        ('device: a name is wanted; got int; there are cpu, disk, npy, null, python. Compute on "CPU"?'),
    ),
    (
        lambda _: Tensor(np.array([1j])),
        "DTypeError",
        (
            f"Tensor: the dtype must be one of {DTYPES}"
            ', or NumPy\'s, in native byte order; got complex128. Convert the array with .astype("float32") '
            "first?"
        ),
    ),
    (
        lambda _: Tensor.zeros(2, dtype="flot32"),
        "DTypeError",
        (
            f"zeros: the dtype must be one of {DTYPES}"
            ", or NumPy's, in native byte order; got 'flot32'. Is \"float32\" meant?"
        ),
    ),
    (
        lambda _: Tensor.from_numpy(np.ones(2, ">f4")),
        "DTypeError",
        (
            f"from_numpy: the dtype must be one of {DTYPES}"
            ', or NumPy\'s, in native byte order; got >f4. Convert the array with .astype("float32") first?'
        ),
    ),
    (
        lambda _: Tensor([300], dtype="int8"),
        "ValueRangeError",
        ('Tensor: the number must fit the dtype; 300 does not fit int8. Is dtype="int16" meant?'),
    ),
    (
        lambda _: Tensor([-1], dtype="uint8"),
        "ValueRangeError",
        ('Tensor: the number must fit the dtype; -1 does not fit uint8. Is dtype="int8" meant?'),
    ),
    (
        lambda _: Tensor.linspace(0, 300, 3, dtype="uint8"),
        "ValueRangeError",
        ('linspace: the number must fit the dtype; 300 does not fit uint8. Is dtype="int16" meant?'),
    ),
    (lambda _: Tensor.eye((2, 3)), "DTypeError", ("eye: n must be an integer; got (2, 3). Write one number?")),
    (
        lambda _: Tensor.uniform(2, low=3, high=1),
        "ValueRangeError",
        ("uniform: high must not be below low; got [3, 1). Exchange them?"),
    ),
    (lambda _: Tensor.normal(2, std=-1), "ValueRangeError", ("normal: std must not be negative; got -1. Is 1 meant?")),
    (lambda t: t.numpy(copy="a"), "DTypeError", ("numpy: copy must be True or False; got 'a'. Write one of them?")),
    (
        lambda t: np.asarray(t, copy=False, dtype="float64"),
        "ValueRangeError",
        ("array: another dtype is a copy; the tensor is int64, float64 was asked for. Allow the copy?"),
    ),
    (lambda t: len(t[0, 0]), "DTypeError", ("len: the tensor must have an axis; it is a scalar. Use numel()?")),
]
GRADIENTS: list[Case] = [
    (
        lambda t: put(t, (0, 0), 3),
        "GradError",
        (
            "setitem: a tensor that requires grad cannot be written while gradients are tracked. Write to a "
            ".clone(), or inside no_grad()?"
        ),
    ),
    (
        lambda t: t.add_(1),
        "GradError",
        (
            "add_: a tensor that requires grad cannot be written while gradients are tracked. Write to a "
            ".clone(), or inside no_grad()?"
        ),
    ),
    (
        lambda t: apart().requires_grad_(),
        "GradError",
        (
            "requires_grad: elements that have gradients must lie whole elements of 8 bytes apart; they lie (9,) bytes "
            "apart. Use a .clone()?"
        ),
    ),
    (
        lambda t: apart().add_(t.cast(dtypes.float64)[0]),
        "GradError",
        (
            "add_: elements that have gradients must lie whole elements of 8 bytes apart; they lie (9,) bytes apart. "
            "Use a .clone()?"
        ),
    ),
    (
        lambda t: put(apart(), [0, 1], t.cast(dtypes.float64)[0]),
        "GradError",
        (
            "setitem: elements that have gradients must lie whole elements of 8 bytes apart; they lie (9,) bytes "
            "apart. Use a .clone()?"
        ),
    ),
    (
        lambda t: t.backward(),
        "GradError",
        ("backward: a cotangent is needed for a tensor of shape (2, 2). Call .sum() first?"),
    ),
    (
        lambda t: (t * 2).backward(Tensor([1.0, 2.0])),
        "ShapeError",
        ("backward: the cotangent must have the tensor's shape; (2,) for (2, 2). Reshape it?"),
    ),
    (
        lambda t: (t * 2).gradient(t),
        "GradError",
        ("gradient: a cotangent is needed for a tensor of shape (2, 2). Call .sum() first?"),
    ),
    (
        lambda t: t.detach().sum().gradient(t),
        "GradError",
        ("gradient: the tensor does not depend on one that requires grad. Set requires_grad=True on a leaf?"),
    ),
    (
        lambda t: setattr(t, "grad", Tensor([1.0])),
        "ShapeError",
        ("grad: the gradient must have the tensor's shape; (1,) for (2, 2). Reshape it?"),
    ),
    (
        lambda t: setattr(t, "grad", 3),
        "DTypeError",
        ("grad: the gradient must be a tensor; got 3. Make one with Tensor(...)?"),
    ),
    (
        lambda t: t.numpy(copy=False),
        "GradError",
        (
            "numpy: memory is shared only of a tensor without gradients, which would not see what an array "
            "writes. Use .detach().numpy(copy=False)?"
        ),
    ),
]
GROUPS: dict[str, tuple[Callable[[], Tensor], list[Case]]] = {
    "indices": (table, INDICES),
    "shapes": (table, SHAPES),
    "reductions": (floats, REDUCTIONS),
    "arithmetic": (floats, ARITHMETIC),
    "networks": (floats, NETWORKS),
    "images": (image, IMAGES),
    "dtypes": (table, DTYPES_GIVEN),
    "gradients": (leaf, GRADIENTS),
}


@pytest.mark.parametrize(
    ("group", "number"), [(group, number) for group, (_, cases) in GROUPS.items() for number in range(len(cases))]
)
def test_the_error_says_what_is_wrong_and_the_tensor_keeps_its_value(group: str, number: int) -> None:
    make, cases = GROUPS[group]
    call, kind, text = cases[number]
    t, expected = make(), make().tolist()
    with pytest.raises(getattr(errors, kind)) as raised:
        call(t)
    assert str(raised.value) == text
    assert t.tolist() == expected


COMPUTED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "getitem": lambda t, i: t[i],
    "setitem": lambda t, i: put(t, i, 0),
    "index_select": lambda t, i: t.index_select(0, i),
    "index_add": lambda t, i: t.index_add(0, i, t),
    "gather": lambda t, i: t.gather(0, i.reshape(2, 1)),
    "scatter": lambda t, i: t.scatter(0, i.reshape(2, 1), 0),
    "scatter_add": lambda t, i: t.scatter_add(0, i.reshape(2, 1), t),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_a_computed_position_out_of_range_names_the_op_that_took_it(name: str) -> None:
    t = table()
    found = COMPUTED[name](t, Tensor([0, 1]) + 3)
    with pytest.raises(
        IndexRangeError,
        match=rf"^{name}: 3 is out of range for axis 0 of size 2; indexed at .*test_wrong_programs.*:\d+\. "
        r"The range is \[-2, 2\)\. Count from 0 to 1, or from -1 back to -2\?$",
    ):
        (found if isinstance(found, Tensor) else t).tolist()
    assert t.tolist() == table().tolist()


def test_a_computed_position_in_a_flattened_tensor_names_its_elements() -> None:
    with pytest.raises(IndexRangeError, match=r"^take: 7 is out of range for 6 elements; indexed at .*\[-6, 6\)"):
        table().take(Tensor([3]) + 4).tolist()


def test_an_index_into_nothing_asks_for_the_shape() -> None:
    with pytest.raises(IndexRangeError) as raised:
        Tensor.zeros(0, 3)[0]
    assert str(raised.value) == (
        "getitem: 0 is out of range for axis 0 of size 0. There is no element to index. Look at the shape first?"
    )


def test_a_class_before_the_first_is_none() -> None:
    scores = floats()
    for name in ("cross_entropy", "nll_loss"):
        with pytest.raises(IndexRangeError, match=rf"^{name}: -1 is out of range for axis 1 of size 3"):
            getattr(scores, name)(Tensor([0, -1]))
        assert getattr(scores, name)(Tensor([0, -1]), ignore_index=-1).shape == ()
        computed = getattr(scores, name)(Tensor([1, 0]) - 1)
        with pytest.raises(IndexRangeError, match=rf"^{name}: -1 is out of range .*test_wrong_programs"):
            computed.item()


def test_host_arrays_refuse_at_the_statement_and_keep_their_values() -> None:
    t = Tensor([1, 2, 3], device="NPY")
    for write in (lambda: put(t, 0, 5), lambda: put(t, slice(None), 5), lambda: t.fill_(5)):
        with pytest.raises(ReadOnlyError, match=r": the tensor must be writable; it is on host arrays\. Move it first"):
            write()
    for compute in (lambda: t + 1, lambda: t[0] * 2, lambda: t.sum(), lambda: t[[0]], lambda: put(t, [0], 5), t.clone):
        with pytest.raises(DeviceError, match="npy: values cannot be computed on host arrays"):
            compute()
    assert (t.tolist(), t[1:].tolist(), t.flip(0).tolist(), t[0].item()) == ([1, 2, 3], [2, 3], [3, 2, 1], 1)
    assert (t.to("CPU") + 1).tolist() == [2, 3, 4]


def test_bits_of_floats_are_refused_in_loops_of_elements_too() -> None:
    t = Tensor([1.0, 2.0])
    for name in ("and", "or", "xor", "lshift", "rshift"):
        with pytest.raises(DTypeError, match="float32 operands have no"):
            getattr(t[0], f"__{name}__")(t[1])
    assert t.tolist() == [1, 2]
    assert (Tensor([6])[0] & 3).item() == 2


def test_a_tensor_of_no_elements_moves_between_devices() -> None:
    for device in ("PYTHON", "NULL", "NPY"):
        assert Tensor.zeros(2, 0).to(device).shape == (2, 0)


def test_a_name_that_there_is_not_is_said_of_the_method_as_it_is_called() -> None:
    with pytest.raises(TypeError, match=r"^sum\(\) got an unexpected keyword argument 'axes'"):
        table().sum(axes=0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue] -- what is tested


def test_every_error_of_these_ends_in_what_to_try() -> None:
    for make, cases in GROUPS.values():
        for call, _, text in cases:
            assert text.endswith("?"), text
            assert ": " in text
            with pytest.raises(IntaglioError):
                call(make())
