"""Exact kernels and bytes of convolutions by groups and of pools, forwards and backwards."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL: Final = (2, 8, 20, 24)
LARGE: Final = (2, 64, 56, 56)  # large enough for kernels of its own where results share little


def floats(*shape: int) -> Tensor:
    """Random numbers in memory."""
    return Tensor(np.random.default_rng(len(shape)).standard_normal(shape, np.float32)).realize()


def counted(program: Callable[[], Tensor]) -> tuple[int, int, Tensor]:
    """(kernels, bytes moved) of what a program gives, and that."""
    GlobalCounters.reset()
    out = program().realize()
    return GlobalCounters.kernel_count, GlobalCounters.global_mem, out


def pulled_back(program: Callable[..., Tensor], *inputs: Tensor) -> tuple[int, int, int]:
    """(kernels, bytes moved) of the gradients of inputs, and the bytes of the cotangent that they come of."""
    for x in inputs:
        x.requires_grad = True
    out = program(*inputs)
    ct = floats(*out.shape)
    GlobalCounters.reset()
    out.backward(ct)
    Tensor.realize(*[x.grad for x in inputs if x.grad is not None])
    return GlobalCounters.kernel_count, GlobalCounters.global_mem, ct.nbytes


def padded(shape: tuple[int, ...]) -> int:
    """Bytes of an image with one more place on each side."""
    n, c, h, w = shape
    return 4 * math.prod((n, c, h + 2, w + 2))


@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_a_depthwise_convolution_is_one_kernel_that_reads_the_image_once(
    shape: tuple[int, ...], stride: int, bias: bool
) -> None:
    channels = shape[1]
    x, w, b = floats(*shape), floats(channels, 1, 3, 3), floats(channels)
    if bias:
        kernels, moved, out = counted(lambda: x.conv2d(w, b, padding=1, groups=channels, stride=stride).relu())
    else:
        kernels, moved, out = counted(lambda: x.conv2d(w, padding=1, groups=channels, stride=stride))
    assert (kernels, moved) == (1, x.nbytes + w.nbytes + bias * b.nbytes + out.nbytes)


@pytest.mark.parametrize(("shape", "kernels"), [(SMALL, 1), (LARGE, 2)], ids=["small", "large"])
@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_a_depthwise_convolution_copy_nothing(shape: tuple[int, ...], kernels: int, stride: int) -> None:
    channels = shape[1]
    x, w = floats(*shape), floats(channels, 1, 3, 3)
    count, moved, ct = pulled_back(lambda x, w: x.conv2d(w, padding=1, groups=channels, stride=stride), x, w)
    assert (count, moved) == (kernels, 2 * x.nbytes + 2 * w.nbytes + kernels * ct)  # each kernel reads the cotangent


def test_a_convolution_by_groups_is_one_kernel_that_reads_the_image_once() -> None:
    x, w = floats(*SMALL), floats(8, 4, 3, 3)
    kernels, moved, out = counted(lambda: x.conv2d(w, padding=1, groups=2))
    assert (kernels, moved) == (1, x.nbytes + w.nbytes + out.nbytes)


def test_a_convolution_by_groups_and_strides_copies_the_padded_image() -> None:
    x, w = floats(*SMALL), floats(8, 4, 3, 3)
    kernels, moved, out = counted(lambda: x.conv2d(w, padding=1, groups=2, stride=2))
    past = 4 * (24 + 2 + 1)  # no window reaches the last row, nor the last place of the one before
    assert (kernels, moved) == (2, x.nbytes + w.nbytes + out.nbytes + 2 * padded(SMALL) - past)


@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_a_convolution_are_products_over_copies(groups: int) -> None:
    x, w = floats(*SMALL), floats(16, 8 // groups, 3, 3)
    count, moved, ct = pulled_back(lambda x, w: x.conv2d(w, padding=1, groups=groups), x, w)
    copies = 2 * w.nbytes + x.nbytes + padded(SMALL)  # the kernels turned round, the padded image channels last
    products = (ct + w.nbytes + x.nbytes) + (ct + padded(SMALL) + w.nbytes)
    assert (count, moved) == (4, copies + products)


POOLS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "max": lambda x: x.max_pool2d(2),
    "avg": lambda x: x.avg_pool2d(2),
    "max of windows that overlap": lambda x: x.max_pool2d(3, 2, padding=1),
    "avg of windows that overlap": lambda x: x.avg_pool2d(3, 2, padding=1),
}


@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("name", POOLS)
def test_a_pool_is_one_kernel_that_reads_the_image_once(name: str, shape: tuple[int, ...]) -> None:
    x = floats(*shape)
    kernels, moved, out = counted(lambda: POOLS[name](x))
    assert (kernels, moved) == (1, x.nbytes + out.nbytes)


@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("name", ["max", "avg"])
def test_the_gradient_of_a_pool_is_one_kernel_that_copies_nothing(name: str, shape: tuple[int, ...]) -> None:
    x = floats(*shape)
    count, moved, ct = pulled_back(POOLS[name], x)
    seen = x.nbytes if name == "max" else 0  # which element is the largest
    assert (count, moved) == (1, seen + ct + x.nbytes)


@pytest.mark.parametrize(("shape", "kernels"), [(SMALL, 2), (LARGE, 3)], ids=["small", "large"])
@pytest.mark.parametrize("name", ["max of windows that overlap", "avg of windows that overlap"])
def test_the_gradient_of_windows_that_overlap_is_summed_in_a_padded_image(
    name: str, shape: tuple[int, ...], kernels: int
) -> None:
    x = floats(*shape)
    count, moved, ct = pulled_back(POOLS[name], x)
    seen = x.nbytes if name.startswith("max") else 0
    summed = 2 * padded(shape) + 9 * ct  # zeros; what each place of a window adds; read without its margin
    assert (count, moved) == (kernels, seen + ct + summed + x.nbytes)
