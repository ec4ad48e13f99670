"""Exact counts of whole models of small width: kernels of a forward pass, of a step of decoding."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.models import Transformer, decoder_tensors, encoder_tensors
from intaglio import GlobalCounters, Tensor

FIRST = {"before": 1, "after": 1}  # kernels beside those of layers: the norm that is first, or the words' logits
LAYER = {"before": 13, "after": 11}


def kernels_of(model: Transformer, tokens: tuple[int, ...]) -> int:
    """How many kernels a forward pass runs."""
    drawn = [Tensor(a).realize() for a in model.draw(tokens, np.random.default_rng(0))]
    GlobalCounters.reset()
    (decoder_tensors if model.before else encoder_tensors)(model, *drawn).realize()
    return GlobalCounters.kernel_count


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_an_encoder_has_as_many_kernels_in_each_layer(layers: int) -> None:
    model = Transformer(layers, 48, 4, 50, 64, before=False)
    assert kernels_of(model, (1, 16)) == 1 + 11 * layers
