"""Products by windows over an image: lines as one run of columns, and padded lines in scratch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio.core.dtypes import dtypes
from intaglio.core.target import Target
from intaglio.ir.levels import Level
from intaglio.ir.node import make
from intaglio.ir.verify import verify
from intaglio.ir.view import View
from intaglio.lower.kernel import lower
from intaglio.ops.composite import write_out
from intaglio.ops.convolution import Convolution
from intaglio.ops.elementwise import add, cast, maximum, mul
from intaglio.ops.loop import sink, store
from intaglio.ops.memory import Load, Local, Param, const, window
from intaglio.ops.movement import expand, pad, reshape
from intaglio.ops.reduce import reduce
from tests.unit.lower.running import Operands, numbers, run

if TYPE_CHECKING:
    from intaglio.ir.node import Node
    from intaglio.lower.kernel import Lowered

# (batch, channels, height, width, kernels, kernel height and width, padding, dilation)
SHAPES = [
    (1, 3, 6, 9, 4, 3, 3, 0, 1),
    (2, 5, 12, 23, 7, 3, 3, 1, 1),
    (1, 2, 30, 15, 9, 5, 3, 2, 1),
    (1, 4, 20, 16, 16, 3, 3, 1, 1),
    (2, 3, 19, 20, 8, 3, 3, 2, 2),
    (1, 3, 18, 64, 5, 1, 3, 1, 1),
    (1, 3, 18, 17, 5, 3, 1, 1, 1),
    (1, 64, 24, 25, 33, 3, 3, 1, 1),
]


def scratch(lowered: Lowered) -> int:
    """How many pieces of scratch a kernel has."""
    return len({n for node in lowered.linear.src for n in node.src if isinstance(n.op, Local)})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("how", ["one thread", "two threads", "interpreted"])
def test_lines_of_an_image_run_together(shape: tuple[int, ...], how: str) -> None:
    batch, channels, height, width, kernels, tall, wide, pad, dilation = shape
    if how == "interpreted":  # a turn of a loop takes long there
        batch, channels, kernels = 1, 2, min(kernels, 4)
    x, w = numbers((batch, channels, height, width)), numbers((kernels, channels, tall, wide), seed=1)
    reach, side = dilation * (tall - 1), dilation * (wide - 1)
    size = height + 2 * pad - reach, width + 2 * pad - side
    residual = numbers((batch, kernels, *size), seed=2)
    bias = numbers((kernels,), seed=3)
    out = np.full((batch, kernels, *size), 99, np.float32)
    k = Operands()
    op = Convolution(size, (tall, wide), (1, 1), (dilation,) * 2, ((pad, pad),) * 2, 1)
    (value,) = write_out([make(op, k.read(x), k.read(w))])
    lines = expand(reshape(k.read(bias), (1, kernels, 1, 1)), out.shape)
    value = maximum(add(add(value, lines), k.read(residual)), const(dtypes.float32, 0))
    statement = k.write(out, value)
    lowered = run(k, *sink(statement).src, threads=1 + (how == "two threads"), interpret=how == "interpreted")
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    want = np.zeros(out.shape, np.float32)
    for i in range(tall):
        for j in range(wide):
            seen = padded[:, :, dilation * i : dilation * i + size[0], dilation * j : dilation * j + size[1]]
            want += np.einsum("bchw,oc->bohw", seen, w[:, :, i, j])
    assert np.array_equal(out, np.maximum(want + bias[:, None, None] + residual, 0))
    assert scratch(lowered) >= (2 if pad else 1 if size[1] % 16 else 0)


@pytest.mark.parametrize("vector_bytes", [0, 16, 32, 64])
def test_lines_run_together_in_vectors_of_any_width(vector_bytes: int) -> None:
    x, w = make(Param(0, dtypes.float32, 0)), make(Param(1, dtypes.float32, 1))
    out = make(Param(2, dtypes.float32, 2))
    for kernels in (2, 7, 64):
        seen, turned, to = (1, 8, 21, 23), (kernels, 8, 3, 3), (1, kernels, 21, 23)
        image, weights, target = (
            window(View.contiguous(dtypes.float32, shape), pointer)
            for shape, pointer in ((seen, x), (turned, w), (to, out))
        )
        op = Convolution((21, 23), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 1)
        (value,) = write_out([make(op, image, weights)])
        lowered = lower(sink(store(target, value)), Target(vector_bytes=vector_bytes))
        verify(lowered.linear, Level.LINEAR)
        assert (scratch(lowered) == 2) == bool(vector_bytes)


def test_what_lies_between_the_lines_is_not_stored_and_harms_nothing() -> None:
    x, w = numbers((1, 2, 20, 19)), numbers((3, 2, 3, 3), seed=1)
    x[..., -2:] = np.inf
    x[..., 7, :] = np.nan
    out = np.full((1, 3, 18, 17), 99, np.float32)
    k = Operands()
    op = Convolution((18, 17), (3, 3), (1, 1), (1, 1), ((0, 0), (0, 0)), 1)
    (value,) = write_out([make(op, k.read(x), k.read(w))])
    run(k, k.write(out, value))
    finite = np.zeros((18, 17), bool)
    finite[[*range(5), *range(8, 18)], :15] = True
    assert np.isfinite(out[0, :, finite]).all()
    assert not np.isfinite(out[0, 0, 5:8]).any()


@pytest.mark.parametrize("apart", [1, 2])
def test_an_image_by_integers_whose_windows_step_otherwise_is_right(apart: int) -> None:
    height, width, kernels, tall = 24, 33, 8, 3
    x, w = numbers((height, width)), numbers((kernels, tall), seed=1)
    y = np.random.default_rng(2).integers(-3, 4, (height + apart * (tall - 1), width))
    out = np.full((kernels, height, width), 99, np.float32)
    k = Operands()
    full, line = (*out.shape, tall), 4 * width
    image = window(View(dtypes.float32, full, (0, line, 4, line), 0), pad(k.read(x), ((1, 1), (0, 0))))
    factor = cast(window(View(dtypes.int64, full, (0, 2 * line, 8, 2 * apart * line), 0), k.read(y)), dtypes.float32)
    weights = expand(reshape(k.read(w), (kernels, 1, 1, tall)), full)
    run(k, k.write(out, reduce("sum", mul(weights, mul(image, factor)), (3,))))
    padded = np.pad(x, ((1, 1), (0, 0)))
    windows = [padded[i : i + height] * y[apart * i : apart * i + height] for i in range(tall)]
    assert np.array_equal(out, np.einsum("ki,ihw->khw", w, np.array(windows, np.float32)))


def test_a_padded_image_is_read_under_masks_only_where_it_is_copied() -> None:
    x, w = numbers((1, 8, 30, 31)), numbers((16, 8, 3, 3), seed=1)
    out = np.zeros((1, 16, 30, 31), np.float32)
    k = Operands()
    op = Convolution((30, 31), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 1)
    (value,) = write_out([make(op, k.read(x), k.read(w))])
    lowered = run(k, k.write(out, value))
    reads = [n for n in lowered.linear.src if isinstance(n.op, Load) and _is_first(n.src[0])]
    assert 0 < len(reads) <= 4


def _is_first(pointer: Node) -> bool:
    """Whether a pointer is the first parameter."""
    return isinstance(pointer.op, Param) and pointer.op.slot == 0
