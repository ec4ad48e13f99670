"""Functions of networks agree with torch's of the same name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intaglio import Tensor
from tests.conformance.agree import agree

torch = pytest.importorskip("torch")
F: Any = torch.nn.functional
RNG = np.random.default_rng(11)
ROWS = RNG.standard_normal((4, 6)).astype(np.float32)
WEIGHT = RNG.standard_normal(6).astype(np.float32)
ACTIVATIONS = [
    "relu",
    "sigmoid",
    "silu",
    "gelu",
    "softplus",
    "leaky_relu",
    "relu6",
    "elu",
    "hardtanh",
    "hardsigmoid",
    "hardswish",
    "mish",
    "logsigmoid",
    "softsign",
]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str, backend: str) -> None:
    values = np.concatenate([ROWS.ravel() * 3, np.array([0.0, -0.0, 20, -20, 100, -100], np.float32)])
    agree(getattr(Tensor(values, device=backend), name)(), getattr(F, name)(torch.tensor(values)), tolerance=3e-6)


def test_gelu_by_tanh() -> None:
    agree(Tensor(ROWS).gelu("tanh"), F.gelu(torch.tensor(ROWS), approximate="tanh"), tolerance=2e-6)


def test_norms(backend: str) -> None:
    x, w = Tensor(ROWS, device=backend), Tensor(WEIGHT, device=backend)
    rows, weight = torch.tensor(ROWS), torch.tensor(WEIGHT)
    agree(x.layer_norm(6, w, w), F.layer_norm(rows, (6,), weight, weight), tolerance=1e-5)
    agree(x.layer_norm((4, 6)), F.layer_norm(rows, (4, 6)), tolerance=1e-5)
    agree(x.rms_norm(w), F.rms_norm(rows, (6,), weight, 1e-6), tolerance=1e-5)
    agree(x.normalize(), F.normalize(rows, dim=-1), tolerance=1e-6)
    images = RNG.standard_normal((2, 6, 3, 3)).astype(np.float32)
    y, pictures = Tensor(images, device=backend), torch.tensor(images)
    agree(y.group_norm(3, w, w), F.group_norm(pictures, 3, weight, weight), tolerance=1e-5)
    agree(y.batch_norm(w, w, w, w * w), F.batch_norm(pictures, weight, weight**2, weight, weight), tolerance=1e-4)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses(reduction: str) -> None:
    x, rows = Tensor(ROWS), torch.tensor(ROWS)
    classes = np.array([1, -100, 3, 0])
    c, k = Tensor(classes), torch.tensor(classes)
    agree(x.cross_entropy(c, reduction=reduction), F.cross_entropy(rows, k, reduction=reduction), tolerance=1e-5)
    agree(
        x.cross_entropy(c, label_smoothing=0.1, reduction=reduction),
        F.cross_entropy(rows, k, label_smoothing=0.1, reduction=reduction),
        tolerance=1e-5,
    )
    shares = np.abs(ROWS) / np.abs(ROWS).sum(1, keepdims=True)
    agree(
        x.cross_entropy(Tensor(shares), label_smoothing=0.2, reduction=reduction),
        F.cross_entropy(rows, torch.tensor(shares), label_smoothing=0.2, reduction=reduction),
        tolerance=1e-5,
    )
    agree(x.nll_loss(c, reduction=reduction), F.nll_loss(rows, k, reduction=reduction), tolerance=1e-5)
    yes = (ROWS > 0).astype(np.float32)
    chances = (1 / (1 + np.exp(-ROWS))).astype(np.float32)
    y, b = Tensor(yes), torch.tensor(yes)
    agree(
        Tensor(chances).binary_cross_entropy(y, reduction=reduction),
        F.binary_cross_entropy(torch.tensor(chances), b, reduction=reduction),
        tolerance=1e-5,
    )
    agree(
        x.binary_cross_entropy_with_logits(y, reduction=reduction),
        F.binary_cross_entropy_with_logits(rows, b, reduction=reduction),
        tolerance=1e-5,
    )
    agree(x.mse_loss(y, reduction=reduction), F.mse_loss(rows, b, reduction=reduction), tolerance=1e-5)
    agree(x.l1_loss(y, reduction=reduction), F.l1_loss(rows, b, reduction=reduction), tolerance=1e-5)


def test_cross_entropy_of_images() -> None:
    scores = RNG.standard_normal((2, 5, 3, 3)).astype(np.float32)
    classes = RNG.integers(0, 5, (2, 3, 3))
    agree(
        Tensor(scores).cross_entropy(Tensor(classes)),
        F.cross_entropy(torch.tensor(scores), torch.tensor(classes)),
        tolerance=1e-5,
    )


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool, backend: str) -> None:
    q = RNG.standard_normal((2, 3, 5, 4)).astype(np.float32)
    x, y = Tensor(q, device=backend), torch.tensor(q)
    agree(
        x.scaled_dot_product_attention(x, x, is_causal=causal),
        F.scaled_dot_product_attention(y, y, y, is_causal=causal),
        tolerance=1e-5,
    )
    mask = RNG.random((5, 5)) > 0.3
    mask[:, 0] = True
    agree(
        x.scaled_dot_product_attention(x, x, Tensor(mask, device=backend)),
        F.scaled_dot_product_attention(y, y, y, torch.tensor(mask)),
        tolerance=1e-5,
    )


def test_dropout_drops_in_training_only() -> None:
    x = Tensor.ones(10_000)
    assert x.dropout(0.5).tolist() == x.tolist()
    dropped = x.dropout(0.25, training=True).numpy()
    assert set(np.unique(dropped).tolist()) <= {0.0, float(np.float32(1 / 0.75))}
    assert 0.22 < (dropped == 0).mean() < 0.28
    assert not x.dropout(1.0, training=True).numpy().any()
