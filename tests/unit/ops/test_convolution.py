"""Convolutions are what their formula says, and their cotangents are its transposes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.dtypes import dtypes
from intaglio.ir.node import make, toposort
from intaglio.ir.view import View
from intaglio.ops.composite import Composite, write_out
from intaglio.ops.convolution import Convolution, KernelsOf, image_of
from intaglio.ops.memory import Param, window

if TYPE_CHECKING:
    from intaglio.ir.node import Node

# (image, kernels, how): strides, dilations, paddings, groups; images that windows leave parts of out
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 7, 8), (4, 3, 3, 3), {}),
    ((2, 3, 17, 23), (5, 3, 3, 3), {"padding": 1}),
    ((1, 4, 9, 33), (18, 4, 5, 5), {"padding": 2}),
    ((2, 4, 9, 11), (6, 2, 3, 3), {"padding": 1, "stride": 2, "groups": 2}),
    ((1, 3, 10, 8), (5, 3, 3, 2), {"stride": (2, 3), "dilation": (1, 2)}),
    ((2, 4, 7, 7), (4, 2, 3, 3), {"padding": 2, "dilation": 2, "groups": 2}),
    ((2, 3, 12, 14), (3, 1, 3, 3), {"padding": 1, "groups": 3}),
    ((1, 2, 6, 6), (3, 2, 1, 1), {"padding": 2, "stride": 3}),
    ((1, 2, 5, 5), (2, 2, 5, 5), {}),
    ((2, 2, 8, 8), (2, 2, 2, 2), {"padding": 5, "stride": 3}),
    ((2, 3, 30), (4, 3, 5), {"padding": 2, "stride": 2}),
    ((1, 2, 5, 6, 9), (3, 2, 2, 3, 3), {"padding": 1}),
]


def numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Small whole numbers, whose sums of products are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)


def each(value: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    """One number for each axis."""
    return (value,) * rank if isinstance(value, int) else value


def places(x: np.ndarray, w: np.ndarray, how: dict[str, Any]) -> np.ndarray:
    """The convolution place by place of the window."""
    rank = x.ndim - 2
    steps, dilations = each(how.get("stride", 1), rank), each(how.get("dilation", 1), rank)
    groups = how.get("groups", 1)
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in each(how.get("padding", 0), rank))))
    n = [(m - d * (k - 1) - 1) // s + 1 for m, k, s, d in zip(x.shape[2:], w.shape[2:], steps, dilations, strict=True)]
    x = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    w = w.reshape(groups, -1, *w.shape[1:])
    out = np.zeros((x.shape[0], groups, w.shape[1], *n))
    for place in itertools.product(*map(range, w.shape[3:])):
        at = tuple(slice(d * k, d * k + s * m, s) for d, k, s, m in zip(dilations, place, steps, n, strict=True))
        seen = x[(..., *at)][(..., *(slice(0, m) for m in n))]
        out += np.einsum("bgc...,goc->bgo...", seen, w[(..., *place)])
    return out.reshape(x.shape[0], -1, *n)


@pytest.mark.parametrize(("image", "kernels", "how"), CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_a_convolution_is_a_sum_over_the_places_of_its_window(
    image: tuple[int, ...], kernels: tuple[int, ...], how: dict[str, Any], dtype: type
) -> None:
    x, w = numbers(image, 0), numbers(kernels, 1)
    got = Tensor(x.astype(dtype)).conv2d(Tensor(w.astype(dtype)), **how)
    assert np.array_equal(got.numpy(), places(x, w, how))


@pytest.mark.parametrize(("image", "kernels", "how"), CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cotangents_are_transposes(
    image: tuple[int, ...], kernels: tuple[int, ...], how: dict[str, Any], dtype: type
) -> None:
    x, w = (Tensor(numbers(shape, k).astype(dtype), requires_grad=True) for k, shape in enumerate((image, kernels)))
    y = x.conv2d(w, **how)
    ct = numbers(y.shape, 2)
    y.backward(Tensor(ct.astype(dtype)))
    assert x.grad is not None
    assert w.grad is not None
    other, others = numbers(image, 3), numbers(kernels, 4)
    assert np.vdot(x.grad.numpy(), other) == np.vdot(ct, places(other, numbers(kernels, 1), how))
    assert np.vdot(w.grad.numpy(), others) == np.vdot(ct, places(numbers(image, 0), others, how))


def test_the_cotangents_of_cotangents_are_those_of_the_formula() -> None:
    rng = np.random.default_rng(5)
    x, w, v = (rng.standard_normal(shape) for shape in ((1, 2, 6, 5), (3, 2, 3, 2), (1, 2, 6, 5)))
    how: dict[str, Any] = {"padding": 1, "stride": (2, 1)}

    def slope(image: np.ndarray, kernels: np.ndarray) -> np.ndarray:
        """Of the sum of the cubed convolution, by the image."""
        given = Tensor(image, requires_grad=True)
        given.conv2d(Tensor(kernels), **how).pow(3).sum().backward()
        assert given.grad is not None
        return given.grad.numpy()

    step = 1e-6
    y = Tensor(x, requires_grad=True)
    kernels = Tensor(w, requires_grad=True)
    out = y.conv2d(kernels, **how)
    (3 * out * out * Tensor(v).conv2d(kernels, **how)).sum().backward()  # the slope along v
    assert y.grad is not None
    want = (slope(x + step * v, w) - slope(x - step * v, w)) / (2 * step)
    np.testing.assert_allclose(y.grad.numpy(), want, rtol=1e-6, atol=1e-6)


def test_what_a_convolution_is_written_out_as_has_its_type_and_no_composite_op() -> None:
    def leaf(slot: int, shape: tuple[int, ...]) -> Node:
        return window(View.contiguous(dtypes.float32, shape), make(Param(slot, dtypes.float32, slot)))

    x, w, y = leaf(0, (2, 4, 9, 8)), leaf(1, (6, 2, 3, 3)), leaf(2, (2, 6, 5, 4))
    how = (5, 4), (3, 3), (2, 2), (1, 1), ((1, 1), (1, 1)), 2
    for node in (
        make(Convolution(*how), x, w),
        make(KernelsOf(*how), x, y),
        image_of(Convolution(*how), (9, 8), y, w),
    ):
        (value,) = write_out((node,))
        assert (value.shape, value.dtype) == (node.shape, node.dtype)
        assert not any(isinstance(n.op, Composite) for n in toposort((value,)))
