"""Convolutions and pooling agree with torch, gradients too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.errors import ShapeError
from tests.conformance.agree import agree

torch = pytest.importorskip("torch")
F: Any = torch.nn.functional
RNG = np.random.default_rng(2)


def draw(*shape: int) -> np.ndarray:
    """Small whole numbers, whose products are exact."""
    return RNG.integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize(
    ("x", "w", "how"),
    [
        ((2, 3, 7, 8), (4, 3, 3, 3), {}),
        ((1, 2, 7, 8), (4, 2, 2, 3), {"stride": 2}),
        ((1, 2, 9, 9), (2, 2, 3, 3), {"dilation": 2, "padding": 1}),
        ((2, 4, 6, 6), (6, 2, 3, 3), {"groups": 2, "padding": (1, 0)}),
        ((1, 4, 5, 5), (4, 1, 3, 3), {"groups": 4}),
        ((1, 2, 6, 7), (3, 2, 1, 1), {"stride": (2, 3)}),
    ],
)
def test_conv2d(x: tuple[int, ...], w: tuple[int, ...], how: dict[str, Any], backend: str) -> None:
    image, weight, bias = draw(*x), draw(*w), draw(w[0])
    got = Tensor(image, device=backend).conv2d(Tensor(weight, device=backend), Tensor(bias, device=backend), **how)
    agree(got, F.conv2d(torch.tensor(image), torch.tensor(weight), torch.tensor(bias), **how))


def test_convolutions_of_other_ranks(backend: str) -> None:
    line, w = draw(2, 3, 9), draw(4, 3, 3)
    agree(
        Tensor(line, device=backend).conv2d(Tensor(w, device=backend), padding=1, stride=2),
        F.conv1d(torch.tensor(line), torch.tensor(w), padding=1, stride=2),
    )
    block, w = draw(1, 2, 4, 4, 5), draw(2, 2, 2, 2, 2)
    agree(
        Tensor(block, device=backend).conv2d(Tensor(w, device=backend)), F.conv3d(torch.tensor(block), torch.tensor(w))
    )


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"dilation": 2},
        {"groups": 2, "stride": (1, 2)},
        {"padding": 2},
    ],
)
def test_conv_transpose2d(how: dict[str, Any], backend: str) -> None:
    x, w, b = draw(2, 4, 3, 4), draw(4, 2, 3, 3), draw(2 * how.get("groups", 1))
    got = Tensor(x, device=backend).conv_transpose2d(Tensor(w, device=backend), Tensor(b, device=backend), **how)
    agree(got, F.conv_transpose2d(torch.tensor(x), torch.tensor(w), torch.tensor(b), **how))


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(2, 2, 0), (2, 2, 1), (3, 2, 1), ((3, 2), 1, (1, 0)), (3, 3, 0)]
)
def test_pools(kernel: Any, stride: int, padding: Any, ceil_mode: bool, backend: str) -> None:
    image = draw(2, 3, 7, 8)
    x, y = Tensor(image, device=backend), torch.tensor(image)
    agree(
        x.max_pool2d(kernel, stride, padding=padding, ceil_mode=ceil_mode),
        F.max_pool2d(y, kernel, stride, padding, ceil_mode=ceil_mode),
    )
    for counted in (True, False):
        agree(
            x.avg_pool2d(kernel, stride, padding=padding, ceil_mode=ceil_mode, count_include_pad=counted),
            F.avg_pool2d(y, kernel, stride, padding, ceil_mode, counted),
            tolerance=1e-6,
        )


@pytest.mark.parametrize(
    ("extent", "kernel", "stride", "padding", "dilation"),
    [(2, 3, 2, 0, 1), (1, 4, 4, 0, 1), (3, 4, 2, 0, 1), (3, 5, 3, 1, 1), (2, (3, 1), 2, 0, 1), (3, 2, 2, 0, 3)],
)
def test_the_only_window_may_reach_past_the_end(
    extent: int, kernel: Any, stride: int, padding: int, dilation: int, backend: str
) -> None:
    image = draw(2, 3, extent, extent)
    x, y = Tensor(image, device=backend), torch.tensor(image)
    agree(
        x.max_pool2d(kernel, stride, dilation, padding, ceil_mode=True),
        F.max_pool2d(y, kernel, stride, padding, dilation, ceil_mode=True),
    )
    for counted in (True, False) if dilation == 1 else ():
        agree(
            x.avg_pool2d(kernel, stride, padding=padding, ceil_mode=True, count_include_pad=counted),
            F.avg_pool2d(y, kernel, stride, padding, True, counted),
            tolerance=1e-6,
        )


def test_gradients_of_convolutions_and_pools() -> None:
    image, weight = (RNG.standard_normal(s).astype(np.float32) for s in ((1, 2, 6, 6), (3, 2, 3, 3)))  # no ties
    x, w = Tensor(image, requires_grad=True), Tensor(weight, requires_grad=True)
    y, v = torch.tensor(image, requires_grad=True), torch.tensor(weight, requires_grad=True)
    out = x.conv2d(w, padding=1, stride=2)
    want = F.conv2d(y, v, padding=1, stride=2)
    (out.avg_pool2d(2, 1) * out.max_pool2d(2, 1)).sum().backward()
    (F.avg_pool2d(want, 2, 1) * F.max_pool2d(want, 2, 1)).sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    agree(x.grad, y.grad, tolerance=1e-5)
    agree(w.grad, v.grad, tolerance=1e-5)


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(
        ShapeError, match=r"^conv2d: channels must agree; input \(1, 2, 4, 4\) has 2, weight .* in 1 group takes 3\. "
    ):
        Tensor.zeros(1, 2, 4, 4).conv2d(Tensor.zeros(1, 3, 2, 2))
    with pytest.raises(ShapeError, match=r"^conv2d: the window must fit the padded input; window 3, padded input 2\. "):
        Tensor.zeros(1, 1, 2, 2).conv2d(Tensor.zeros(1, 1, 3, 3))
    with pytest.raises(ShapeError, match=r"^max_pool2d: the window must fit the padded input"):
        Tensor.zeros(1, 1, 2, 2).max_pool2d(3)
