"""The exact texts of errors that tensors raise, at the call that was wrong, with the tensor unharmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Tensor, dtypes, safe_load, safe_save
from intaglio.core import errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def table() -> Tensor:
    """Two rows of three."""
    return Tensor([[1, 2, 3], [4, 5, 6]])


def row() -> Tensor:
    """Two floats."""
    return Tensor([1.0, 2.0])


def put(target: Tensor, index: object, value: object) -> None:
    """target[index] = value."""
    target[index] = value


def small(*values: int) -> Tensor:
    """Numbers as int8."""
    return Tensor(list(values), dtype=dtypes.int8)


Case = tuple["Callable[[], object]", str, str]
INDEXING: list[Case] = [
    (
        lambda: table()[5],
        "IndexRangeError",
        "getitem: 5 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or from "
        "-1 back to -2?",
    ),
    (
        lambda: table()[0, -4],
        "IndexRangeError",
        "getitem: -4 is out of range for axis 1 of size 3. The range is [-3, 3). Count from 0 to 2, or from "
        "-1 back to -3?",
    ),
    (
        lambda: row()[2],
        "IndexRangeError",
        "getitem: 2 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or from "
        "-1 back to -2?",
    ),
    (
        lambda: table()[0, 0, 0],
        "IndexRangeError",
        "getitem: there must be an axis for each index; got 3 indices for shape (2, 3). Leave some out?",
    ),
    (
        lambda: table()[..., ...],
        "IndexRangeError",
        "getitem: '...' may appear once; it appears 2 times. Write ':' for the others?",
    ),
    (
        lambda: table()[1.5],
        "DTypeError",
        "getitem: parts must be integers, slices, None, '...', or arrays; got 1.5. Round it with int(...)?",
    ),
    (
        lambda: table()[[0, 7]],
        "IndexRangeError",
        "getitem: 7 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or from "
        "-1 back to -2?",
    ),
    (
        lambda: table()[np.array([[0, -3]])],
        "IndexRangeError",
        "getitem: -3 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or from "
        "-1 back to -2?",
    ),
    (
        lambda: table()[Tensor([0, 5])],
        "IndexRangeError",
        "getitem: 5 is out of range for axis 0 of size 2. The range is [-2, 2). Count from 0 to 1, or from "
        "-1 back to -2?",
    ),
    (
        lambda: table()[[0, 1], [0, 1, 2]],
        "IndexRangeError",
        "getitem: the shapes of index arrays must broadcast; got (2,) and (3,). Index by one after the other?",
    ),
    (
        lambda: table()[row()],
        "DTypeError",
        "getitem: positions must be integers or bool; the tensor is float32. Cast it first?",
    ),
    (
        lambda: table()[[True, False, True]],
        "IndexRangeError",
        "getitem: a mask must have the shape of the axes that it stands for; mask (3,), axes (2,). Compare "
        "the tensor itself, as in t[t > 0]?",
    ),
    (lambda: table()[::0], "IndexRangeError", "getitem: a slice's step must not be 0; got 0. Leave it out?"),
    (
        lambda: put(table(), 0, Tensor([1, 2])),
        "ShapeError",
        "setitem: the value must broadcast to the target; value (2,), target (3,). Reshape the value, or "
        "slice the target?",
    ),
    (
        lambda: put(small(1), 0, 300),
        "ValueRangeError",
        "setitem: the number must fit the dtype; 300 does not fit int8. Cast the tensor first?",
    ),
    (
        lambda: put(small(1), slice(None), float("nan")),
        "ValueRangeError",
        "setitem: the number must fit the dtype; nan does not fit int8. Cast the tensor first?",
    ),
    (
        lambda: put(small(1, 2), small(1, 2) > 1, -129),
        "ValueRangeError",
        "setitem: the number must fit the dtype; -129 does not fit int8. Cast the tensor first?",
    ),
    (
        lambda: put(small(1, 2), slice(None), [300, 1]),
        "ValueRangeError",
        'Tensor: the number must fit the dtype; 300 does not fit int8. Is dtype="int16" meant?',
    ),
    (
        lambda: put(Tensor([1]).expand(3), 0, 1),
        "OverlapError",
        "setitem: each position of the target must have bytes of its own; the view of shape (3,) with "
        "strides (0,) (bytes) repeats some. Write to a .clone()?",
    ),
    (
        lambda: put(Tensor([1, 2]), 0, "a"),
        "DTypeError",
        "setitem: the value must be a tensor, an array, a list or a number; got 'a'. Convert it first?",
    ),
    (
        lambda: put(Tensor([1, 2]), 0, 1j),
        "DTypeError",
        "setitem: the value must be a tensor, an array, a list or a number; got complex. Convert it first?",
    ),
    (
        lambda: Tensor([1, 2]).fill_(None),  # pyright: ignore[reportArgumentType]
        "DTypeError",
        "fill_: the value must be a tensor, an array, a list or a number; got None. Convert it first?",
    ),
]
MAKING: list[Case] = [
    (
        lambda: small(300),
        "ValueRangeError",
        'Tensor: the number must fit the dtype; 300 does not fit int8. Is dtype="int16" meant?',
    ),
    (
        lambda: Tensor([[1], [2, 3]]),
        "ShapeError",
        "Tensor: nested lists must have equal lengths; found items of shapes [(1,), (2,)]. Pad the shorter?",
    ),
    (
        lambda: Tensor("abc"),
        "DTypeError",
        "Tensor: data must be numbers; got str. Convert it to a list or array of numbers?",
    ),
    (
        lambda: Tensor(None),
        "DTypeError",
        "Tensor: data must be numbers; got NoneType. Convert it to a list or array of numbers?",
    ),
    (lambda: Tensor.zeros(2, -1), "ShapeError", "zeros: extents must not be negative; got (2, -1). Give 0 or more?"),
    (lambda: Tensor.empty(-1), "ShapeError", "empty: extents must not be negative; got (-1,). Give 0 or more?"),
    (lambda: Tensor.zeros("a"), "DTypeError", "zeros: extents must be integers; got 'a'. Write a number?"),
    (
        lambda: Tensor.full((2,), 300, dtype=dtypes.int8),
        "ValueRangeError",
        'full: the number must fit the dtype; 300 does not fit int8. Is dtype="int16" meant?',
    ),
    (
        lambda: Tensor.arange(0, 5, 0),
        "ValueRangeError",
        "arange: step must not be 0; got 0, 5 and 0. Leave it out for 1?",
    ),
    (
        lambda: Tensor.linspace(0, 1, -1),
        "ShapeError",
        "linspace: the number of steps must not be negative; got -1. Give 0 or more?",
    ),
    (lambda: Tensor.eye(-1), "ShapeError", "eye: extents must not be negative; got (-1, -1). Give 0 or more?"),
    (
        lambda: Tensor.rand(2, dtype=dtypes.int32),
        "DTypeError",
        "rand: the dtype must be a float that can be computed with; got int32. Use randint, or cast?",
    ),
    (
        lambda: Tensor.randint(2, low=3, high=3),
        "ValueRangeError",
        "randint: high must be above low; got [3, 3). Exchange or widen them?",
    ),
    (
        lambda: Tensor([1], device="nope"),
        "DeviceError",
        'device: no backend "nope"; available here: cpu, disk, npy, null, python. Compute on "CPU"?',
    ),
    (
        lambda: row().to("nope"),
        "DeviceError",
        'device: no backend "nope"; available here: cpu, disk, npy, null, python. Compute on "CPU"?',
    ),
    (
        lambda: Tensor.from_numpy(np.ones((2, 2)).T),
        "ShapeError",
        "from_numpy: the array must be contiguous; its strides are (8, 16) for shape (2, 2). Copy it first?",
    ),
]
ARITHMETIC: list[Case] = [
    (
        lambda: table() + Tensor([1, 2]),
        "ShapeError",
        "add: shapes must broadcast; (2, 3) and (2,) differ on axis -1. Reshape or unsqueeze one?",
    ),
    (
        lambda: table() @ table(),
        "ShapeError",
        "matmul: inner sizes must be equal; lhs (2, 3) has 3, rhs (2, 3) has 2. Transpose one side?",
    ),
    (
        lambda: Tensor.zeros(2, 2, 3) @ Tensor.zeros(3, 3, 4),
        "ShapeError",
        "matmul: leading axes must broadcast; lhs (2, 2, 3), rhs (3, 3, 4). Unsqueeze or reshape one?",
    ),
    (
        lambda: table() @ Tensor(1),
        "ShapeError",
        "matmul: operands must have at least one axis; lhs (2, 3), rhs (). Multiply scalars with *?",
    ),
    (
        lambda: table() + Tensor([[1]], device="PYTHON"),
        "DeviceError",
        "add: operands must be on one device; they are on CPU and PYTHON. Move one with .to()?",
    ),
    (
        lambda: Tensor(np.array([1], np.uint8)) + 300,
        "ValueRangeError",
        "add: the number must fit the dtype; 300 does not fit uint8. Cast the tensor first?",
    ),
    (
        lambda: row() & row(),
        "DTypeError",
        "bitwise_and: float32 operands have no bitwise_and. Cast or bitcast to an integer first?",
    ),
    (
        lambda: Tensor([True]) - Tensor([True]),
        "DTypeError",
        "sub: bool operands have no sub. Use ^ or ~, or cast to an integer first?",
    ),
    (
        lambda: row().cast(dtypes.float8_e4m3) * 2,
        "DTypeError",
        "mul: float8_e4m3 is for storage only. Cast to float32 first?",
    ),
    (
        lambda: row().maximum("x"),
        "DTypeError",
        "maximum: operands must be tensors, arrays or numbers; got 'x'. Convert it first?",
    ),
    (
        lambda: table().__iadd__(1.5),
        "DTypeError",
        "iadd: the result is float32 and cannot go into int64. Cast the tensor first?",
    ),
    (
        lambda: table().__iadd__(Tensor([[[1]]])),
        "ShapeError",
        "iadd: the result must have the target's shape; (1, 2, 3) into (2, 3). Make a new tensor?",
    ),
    (
        lambda: Tensor.einsum("ij,jk->ik", table(), table()),
        "ShapeError",
        "einsum: a letter has one size; 'j' is 3 and 2. Use another letter?",
    ),
    (
        lambda: Tensor.einsum("i1", table()),
        "ShapeError",
        "einsum: axes are named by letters; 'i1' has '1'. Write it as \"ij,jk->ik\"?",
    ),
    (
        lambda: Tensor.einsum("ij->i.", table()),
        "ShapeError",
        "einsum: axes are named by letters; 'ij->i.' has '.'. Write it as \"ij,jk->ik\"?",
    ),
    (
        lambda: iter(Tensor(3)),
        "DTypeError",
        "iter: the tensor must have an axis to go along; it is a scalar. Use item()?",
    ),
    (
        lambda: Tensor.einsum("ij,jk", table()),
        "ShapeError",
        "einsum: one term for each operand; 'ij,jk' has 2 for 1 operand. Part the terms by commas?",
    ),
    (
        lambda: Tensor.einsum("ij->z", table()),
        "ShapeError",
        "einsum: each letter of the output must appear once there and in an input; 'ij->z'. Change what follows '->'?",
    ),
]
SHAPES: list[Case] = [
    (
        lambda: table().reshape(4, 2),
        "ShapeError",
        "reshape: sizes must agree; the tensor has 6 elements, (4, 2) has 8. Is (3, 2) meant?",
    ),
    (
        lambda: table().reshape(-1, -1),
        "ShapeError",
        "reshape: at most one extent may be -1; got (-1, -1). Give the others?",
    ),
    (
        lambda: table().reshape(-1, 4),
        "ShapeError",
        "reshape: sizes must agree; the tensor has 6 elements, of which (-1, 4) cannot be made. Slice or pad it first?",
    ),
    (
        lambda: table().permute(0, 0),
        "ShapeError",
        "permute: each axis may be given once; got (0, 0). Is another axis meant?",
    ),
    (
        lambda: table().permute(0),
        "ShapeError",
        "permute: every axis must be given once; got (0,) for shape (2, 3). Order (0, 1), or exchange two "
        "with transpose?",
    ),
    (
        lambda: table().flip(3),
        "ShapeError",
        "flip: the axis must be in [-2, 2); got 3 for 2 axes. Count from 0 to 1, or from -1 back to -2?",
    ),
    (
        lambda: table().expand(2, 4),
        "ShapeError",
        "expand: only axes of size 1 can be repeated; shape (2, 3) to (2, 4). Use repeat, or unsqueeze first?",
    ),
    (
        lambda: table().shrink(((0, 9), None)),
        "ShapeError",
        "shrink: bounds must lie within the shape; ((0, 9), (0, 3)) of (2, 3). Use a slice, which ends with the axis?",
    ),
    (
        lambda: table().unfold(0, 5, 1),
        "ShapeError",
        "unfold: windows of 5 by steps of 1 do not fit axis 0 of size 2. Pad the axis first, or take smaller ones?",
    ),
    (
        lambda: table().diagonal(0, 1, 1),
        "ShapeError",
        "diagonal: the axes must differ; got 1 and 1. Is another axis meant?",
    ),
    (
        lambda: small(1, 2, 3).bitcast(dtypes.int32),
        "DTypeError",
        "bitcast: the last axis must be contiguous and divide evenly; int8[3] to int32. Slice or pad the "
        "last axis first?",
    ),
    (
        lambda: table().as_strided((9, 9), (1, 1)),
        "ShapeError",
        "as_strided: the view must lie within the storage; bytes 0 to 136 of 48. Give smaller extents or strides?",
    ),
    (
        lambda: table().sum(2),
        "ShapeError",
        "sum: the axis must be in [-2, 2); got 2 for 2 axes. Count from 0 to 1, or from -1 back to -2?",
    ),
    (lambda: table().sum((0, 0)), "ShapeError", "sum: each axis may be given once; got (0, 0). Is another axis meant?"),
    (
        lambda: Tensor.zeros(2, 0).max(1),
        "ShapeError",
        "max: there must be an element to choose; the axes (1,) of shape (2, 0) are empty. Check numel() first?",
    ),
    (
        lambda: Tensor([]).argmax(),
        "ShapeError",
        "argmax: there must be an element to choose; the tensor has shape (0,). Check numel() first?",
    ),
    (
        lambda: Tensor.cat([]),
        "ShapeError",
        "cat: there must be at least one tensor; got none. Begin with an empty one, Tensor([])?",
    ),
    (
        lambda: Tensor.cat([table(), Tensor([[1, 2]])]),
        "ShapeError",
        "cat: shapes must agree except on axis 0; operand 1 is (1, 2), operand 0 is (2, 3). Reshape or slice one?",
    ),
    (
        lambda: Tensor.stack([table(), row()]),
        "ShapeError",
        "stack: shapes must be equal; operand 1 is (2,), operand 0 is (2, 3). Use cat, or pad or slice one?",
    ),
    (
        lambda: table().split([1, 2]),
        "ShapeError",
        "split: sizes must sum to the axis; [1, 2] sum to 3, axis 0 has 2. Is dim=1 meant?",
    ),
    (
        lambda: table().chunk(0),
        "ShapeError",
        "chunk: there must be at least one chunk; got 0. Use split for a size of pieces?",
    ),
    (
        lambda: table().pad((3, 3), mode="reflect"),
        "ShapeError",
        "pad: reflection must be shorter than the axis; got (3, 3) for axis 1 of size 3. Use "
        'mode="replicate" or "circular"?',
    ),
    (
        lambda: table().pad(((1, -3), (0, 0))),
        "ShapeError",
        "pad: no more can be cut off an axis than it has; (1, -3) for axis 0 of size 2. Cut less?",
    ),
    (
        lambda: table().index_add(0, Tensor([0]), table()),
        "ShapeError",
        "index_add: the source must have (1, 3) for an index of one axis; it has (2, 3), the index (1,). Reshape one?",
    ),
    (
        lambda: table().gather(0, Tensor([0])),
        "ShapeError",
        "gather: the index must have 2 axes, none but 0 longer than the tensor's; index (1,), tensor (2, 3). "
        "Unsqueeze or reshape the index, or index with []?",
    ),
    (lambda: table().topk(4), "IndexRangeError", "topk: k must be in [0, 3] on axis 1 of size 3; got 4. Is k=3 meant?"),
]
STRICT: list[Case] = [
    (
        lambda: table().layer_norm((4,)),
        "ShapeError",
        "layer_norm: the tensor's shape must end with the one given; (2, 3), given (4,). Give (3,)?",
    ),
    (
        lambda: table().topk(-1),
        "IndexRangeError",
        "topk: k must be in [0, 3] on axis 1 of size 3; got -1. Is k=0 meant?",
    ),
    (
        lambda: small(0, -1).one_hot(3),
        "IndexRangeError",
        "one_hot: -1 is out of range for axis 1 of size 3. The range is [0, 3). Give more classes, or "
        "numbers from 0 on?",
    ),
    (
        lambda: small(0, 3).one_hot(3),
        "IndexRangeError",
        "one_hot: 3 is out of range for axis 1 of size 3. The range is [0, 3). Give more classes, or numbers "
        "from 0 on?",
    ),
    (
        lambda: row().one_hot(3),
        "DTypeError",
        "one_hot: the elements must be integers; they are float32. Cast them first?",
    ),
    (
        lambda: row().gelu("foo"),
        "ValueRangeError",
        'gelu: approximate must be "none" or "tanh"; got \'foo\'. Write one of them?',
    ),
    (
        lambda: Tensor.meshgrid(row(), row(), indexing="foo"),
        "ValueRangeError",
        'meshgrid: indexing must be "ij" or "xy"; got \'foo\'. Write one of them?',
    ),
    (
        lambda: Tensor.randint(2, high=300, dtype="uint8"),
        "ValueRangeError",
        "randint: the dtype must hold the range; uint8 cannot hold [0, 300). Give a wider dtype?",
    ),
    (
        lambda: Tensor([0.0, 0.0]).multinomial(replacement=True),
        "ValueRangeError",
        "multinomial: as many weights must be above 0 as are drawn; 1 drawn, 0 above 0. Give a weight above 0?",
    ),
    (
        lambda: Tensor([[1.0, 2.0], [0.0, 3.0]]).multinomial(2),
        "ValueRangeError",
        "multinomial: as many weights must be above 0 as are drawn; 2 drawn, 1 above 0. Draw fewer, or with "
        "replacement=True?",
    ),
    (
        lambda: Tensor([1.0, -1.0]).multinomial(),
        "ValueRangeError",
        "multinomial: weights must be finite and not negative; some are not. Use softmax first?",
    ),
    (
        lambda: Tensor([1.0], requires_grad="yes"),
        "DTypeError",
        "Tensor: requires_grad must be True or False; got 'yes'. Write one of them?",
    ),
    (
        lambda: row().requires_grad_("yes"),
        "DTypeError",
        "requires_grad_: the value must be True or False; got 'yes'. Write one of them?",
    ),
    (
        lambda: row().dropout(training="yes"),
        "DTypeError",
        "dropout: training must be True or False; got 'yes'. Write one of them?",
    ),
    (
        lambda: safe_save({1: row()}, "never.safetensors"),
        "FileFormatError",
        "safe_save: the names of tensors must be text; got 1. Use str(name)?",
    ),
    (
        lambda: safe_save("never.safetensors", {"w": row()}),
        "FileFormatError",
        "safe_save: tensors by name and then a path are wanted; got str first. "
        'Write safe_save({"name": tensor}, path)?',
    ),
    (
        lambda: safe_save([row()], "never.safetensors"),
        "FileFormatError",
        "safe_save: tensors by name and then a path are wanted; got list first. "
        'Write safe_save({"name": tensor}, path)?',
    ),
    (lambda: safe_load(3), "DTypeError", "safe_load: a path is wanted; got int. Give text, or a pathlib.Path?"),
    (lambda: row().sum(1.0), "DTypeError", "sum: axes must be integers; got 1.0. Write 1?"),
    (
        lambda: row().pad(1),
        "DTypeError",
        "pad: (before, after) for each axis, or a flat list of numbers; got 1. Write (1, 1) for both ends of "
        "the last axis?",
    ),
    (lambda: table().tril("a"), "DTypeError", "tril: the diagonal must be an integer; got 'a'. Write a number?"),
    (lambda: Tensor.full("a", 1), "DTypeError", "full: extents must be integers; got 'a'. Write a number?"),
    (lambda: Tensor.full(2, "a"), "DTypeError", "full: the value must be a number; got 'a'. Write a number?"),
    (lambda: Tensor.eye("a"), "DTypeError", "eye: n must be an integer; got 'a'. Write a number?"),
    (lambda: Tensor.arange("a"), "DTypeError", "arange: stop must be a number; got 'a'. Write a number?"),
    (
        lambda: Tensor.arange(float("nan")),
        "ValueRangeError",
        "arange: start, stop and step must be finite; got 0, nan and 1. Give a finite stop?",
    ),
    (lambda: row().roll("a"), "DTypeError", "roll: shifts must be integers; got 'a'. Write a number?"),
    (lambda: row().repeat(-1), "ShapeError", "repeat: counts must not be negative; got (-1,). Give 0 or more?"),
    (
        lambda: row().repeat_interleave(-1),
        "ShapeError",
        "repeat_interleave: the count must not be negative; got -1. Give 0 or more?",
    ),
    (
        lambda: row().gather(0, 1),
        "DTypeError",
        "gather: the index must be a tensor; got 1. Make one with Tensor(...)?",
    ),
    (
        lambda: row().masked_fill(1, 1),
        "DTypeError",
        "masked_fill: the mask must be a tensor; got 1. Make one with Tensor(...)?",
    ),
    (
        lambda: Tensor.einsum(3),
        "DTypeError",
        'einsum: the formula must be text, such as "ij,jk->ik"; got 3. Give it first?',
    ),
    (
        lambda: row().conv2d(3),
        "DTypeError",
        "conv2d: the weight must be a tensor; got 3. Make one with Tensor(...)?",
    ),
    (lambda: row().equal(1), "DTypeError", "equal: the other must be a tensor; got 1. Make one with Tensor(...)?"),
    (
        lambda: row().view_as(3),
        "DTypeError",
        "view_as: the other must be a tensor; got 3. Make one with Tensor(...)?",
    ),
    (
        lambda: Tensor.from_numpy([1]),
        "DTypeError",
        "from_numpy: an array of NumPy's is wanted; got [1]. Use Tensor(...), which copies?",
    ),
    (
        lambda: row().realize(3),
        "DTypeError",
        "realize: every operand must be a tensor; got 3. Make one with Tensor(...)?",
    ),
    (
        lambda: row().to(3),
        "DTypeError",
        'to: a device, a dtype or a tensor is wanted; got 3. Write to("CPU"), or to("float32")?',
    ),
    (
        lambda: row() @ row().to("PYTHON"),
        "DeviceError",
        "matmul: operands must be on one device; they are on CPU and PYTHON. Move one with .to()?",
    ),
    (
        lambda: row().allclose("a"),
        "DTypeError",
        "allclose: operands must be tensors, arrays or numbers; got 'a'. Convert it first?",
    ),
    (lambda: "a" in row(), "DTypeError", "eq: operands must be tensors, arrays or numbers; got 'a'. Convert it first?"),
    (
        lambda: row().add("a"),
        "DTypeError",
        "add: operands must be tensors, arrays or numbers; got 'a'. Convert it first?",
    ),
    (
        lambda: table().assign(Tensor([1, 2])),
        "ShapeError",
        "assign: the value must broadcast to the target; value (2,), target (2, 3). Reshape the value, or "
        "slice the target?",
    ),
    (
        lambda: small(1).fill_(300),
        "ValueRangeError",
        "fill_: the number must fit the dtype; 300 does not fit int8. Cast the tensor first?",
    ),
    (
        lambda: row().trace(),
        "ShapeError",
        "trace: the tensor must be a matrix; the shape is (2,). Use diagonal and sum?",
    ),
    (lambda: row().sort(dim=7), "ShapeError", "sort: the axis must be in [-1, 1); got 7 for 1 axis. Is 0 meant?"),
    (
        lambda: row().linear(Tensor.zeros(2, 3)),
        "ShapeError",
        "linear: the weight must be (out, in) with the last axis of the input; weight (2, 3), input (2,). "
        "Transpose the weight?",
    ),
    (
        lambda: Tensor.zeros(2, 2).mv(row()[:1]),
        "ShapeError",
        "mv: inner sizes must be equal; lhs (2, 2) has 2, rhs (1,) has 1. Reshape or slice one?",
    ),
    (
        lambda: row().clamp(max=Tensor([1.0, 2.0, 3.0])),
        "ShapeError",
        "clamp: shapes must broadcast; (2,) and (3,) differ on axis -1. Reshape or unsqueeze one?",
    ),
    (
        lambda: row().add_(Tensor([[1.0]])),
        "ShapeError",
        "add_: the result must have the target's shape; (1, 2) into (2,). Make a new tensor?",
    ),
]
HOST: list[Case] = [
    (
        lambda: table().item(),
        "ShapeError",
        "item: there must be exactly one element; the tensor has shape (2, 3). Index it first?",
    ),
    (
        lambda: bool(table()),
        "ShapeError",
        "bool: the truth of a tensor of 6 elements is ambiguous; the tensor has shape (2, 3). Use .any() or .all()?",
    ),
    (
        lambda: [1, 2][row()[0]],
        "DTypeError",
        "index: only whole numbers can be an index; the tensor is float32. Cast it, or use int(t)?",
    ),
]
ALL = [*INDEXING, *MAKING, *ARITHMETIC, *SHAPES, *STRICT, *HOST]


@pytest.mark.parametrize("number", range(len(ALL)))
def test_text(number: int) -> None:
    call, kind, text = ALL[number]
    with pytest.raises(getattr(errors, kind)) as raised:
        call()
    assert str(raised.value) == text


def test_a_refused_write_changes_nothing() -> None:
    t = Tensor([[1, 2, 3], [4, 5, 6]])
    for index, value in ((5, 0), ([0, 9], 0), (0, [1, 2]), (slice(None), Tensor([1, 2])), (..., 2**70)):
        with pytest.raises(errors.IntaglioError):
            t[index] = value
    with pytest.raises(errors.IntaglioError):
        t += 0.5
    assert t.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_computed_index_out_of_range_names_the_line_and_drops_that_write_alone() -> None:
    t = Tensor([10, 20, 30])
    index = Tensor([0, 1]) + 2
    t[0] = 11
    t[index] = 99
    t[1] = 21
    with pytest.raises(errors.IndexRangeError, match=r"^setitem: 3 is out .* of size 3; .*test_tensor_"):
        t.tolist()
    assert t.tolist() == [11, 21, 30]


def test_reading_at_a_computed_index_out_of_range_names_the_line() -> None:
    t = Tensor([10, 20, 30])
    out = t[Tensor([0, -4]) + 0]
    with pytest.raises(errors.IndexRangeError, match=r"^getitem: -4 is out .* of size 3; .*test_tensor_"):
        out.tolist()
    assert t.tolist() == [10, 20, 30]


def test_a_computed_class_that_is_none_names_the_line() -> None:
    for given, bad in (([0, 1], 3), ([0, -3], -1)):
        out = (Tensor(given) + 2).one_hot(3)
        with pytest.raises(errors.IndexRangeError, match=rf"^one_hot: {bad} is out .* axis 1 .*test_tensor_"):
            out.tolist()
    assert (Tensor([0, -2]) + 2).one_hot(3).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "nothing"
    with pytest.raises(errors.FileFormatError) as raised:
        Tensor(path)
    assert str(raised.value) == f"file: {path} cannot be opened; No such file or directory. Is the path right?"
    for call in (lambda: Tensor(path), lambda: safe_load(path), lambda: safe_save({"w": row()}, path / "w")):
        with pytest.raises(errors.FileMissingError, match="No such file") as missing:
            call()
        assert isinstance(missing.value, (FileNotFoundError, errors.FileFormatError, ValueError))
    with pytest.raises(FileNotFoundError):
        safe_load(path)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_a_class_that_there_is_not_is_told_by_the_loss(name: str) -> None:
    with pytest.raises(
        errors.IndexRangeError, match=rf"^{name}: 5 is out of range for axis 1 of size 3\. The range is \[0, 3\)\. "
    ):
        getattr(table().float(), name)(Tensor([0, 5])).item()
