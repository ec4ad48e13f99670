"""Exact counts of whole models of small width: kernels of a forward pass and of steps of decoding, what is compiled."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import models
from benchmarks.models import Transformer, decoder_tensors, encoder_tensors, steps_tensors
from intaglio import GlobalCounters, Tensor
from intaglio.storage import flush as flushes
from intaglio.storage.flush import plans
from tests.perf.test_overheads import lines

LAYER = 7  # kernels: two norms, four products (with bias, GELU, residual), attention


def drawn(model: Transformer, *tokens: int) -> list[Tensor]:
    """Tokens and weights, in memory."""
    return [Tensor(a).realize() for a in model.draw(tokens, np.random.default_rng(0))]


@pytest.mark.parametrize("layers", [1, 12])
@pytest.mark.parametrize("before", [False, True])
def test_each_layer_of_a_transformer_is_as_many_kernels(layers: int, before: bool) -> None:
    model = Transformer(layers, 288, 4, 50, 64, before=before)  # wider than what runs by rows
    inputs = drawn(model, 64) if before else drawn(model, 2, 64)
    GlobalCounters.reset()
    out = (decoder_tensors if before else encoder_tensors)(model, *inputs).realize()
    beside = 2 if before else 1  # the last norm and the words' logits, or the first norm
    assert GlobalCounters.kernel_count == LAYER * layers + beside
    arrays = [t.numpy() for t in inputs]
    want = (models.decoder_arrays if before else models.encoder_arrays)(model, np, *arrays)
    assert np.abs(out.numpy() - want).max() < 1e-4


@pytest.mark.parametrize("rows", [1, 3, 4, 5])
def test_a_norm_of_few_rows_after_large_products_is_one_kernel(rows: int) -> None:
    draw, width, count = np.random.default_rng(0), 1536, 3
    x, matrix, vector = (draw.standard_normal(s, np.float32) for s in ((rows, width), (width, width), (width,)))
    matrix *= 0.02
    own = [Tensor(a).realize() for a in (x, matrix, vector)]
    GlobalCounters.reset()
    y, product, bias = own
    want = x.astype(np.float64)
    for _ in range(count):
        y = y + (y.layer_norm(width, bias, bias) @ product + bias)
        normed = models.layer_norm(np, want) * vector + vector
        want = want + normed @ matrix + vector
    assert np.abs(y.numpy() - want).max() < 1e-3
    assert GlobalCounters.kernel_count == 2 * count  # each norm reads the sum that the product before it stored


def test_decoding_compiles_nothing_after_the_first_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "STEPS", 24)
    model = Transformer(2, 48, 4, 50, models.LENGTH, before=True)
    tokens, *weights = drawn(model, 24)
    compiled: list[int] = []

    class Watched:
        """Tokens; how much was compiled is noted before each."""

        def tolist(self) -> list[int]:
            for token in tokens.tolist():
                compiled.append(GlobalCounters.compile_count)
                yield token

    GlobalCounters.reset()
    out = steps_tensors(model, Watched(), *weights)
    assert compiled[12:] == [GlobalCounters.compile_count] * 12
    want = models.decoder_arrays(model, np, *[t.numpy() for t in (tokens, *weights)])[-1]
    assert np.abs(out.numpy() - want).max() < 1e-4


def test_a_step_of_decoding_is_known_by_its_history(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 3
    model = Transformer(12, 48, 4, 50, models.LENGTH, before=True)
    inputs = drawn(model, steps)

    def decode() -> Tensor:
        return steps_tensors(model, *inputs)

    want = [decode().numpy() for _ in range(2)]
    monkeypatch.setattr(flushes, "Flush", None)  # no slice, no groups, no program
    monkeypatch.setattr(plans, "plan", None)
    monkeypatch.setattr(plans, "_form", None)  # no structure
    GlobalCounters.reset()
    assert np.array_equal(decode().numpy(), want[1])
    assert (GlobalCounters.plan_count, GlobalCounters.compile_count) == (0, 0)
    assert GlobalCounters.launch_count == steps + 1  # the last logits are asked for apart
    assert lines(decode) / steps <= 40_000  # 24 layers' writes among them: 160 000 while each was taken apart


def test_a_step_at_a_place_that_was_never_reached_is_known_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Transformer(3, 48, 4, 50, models.LENGTH, before=True)
    tokens, *weights = drawn(model, 24)
    made: list[int] = []
    begin = flushes.Flush.__init__

    def counted(self: flushes.Flush, *arguments: object) -> None:
        made.append(len(made))
        begin(self, *arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(flushes.Flush, "__init__", counted)
    steps_tensors(model, tokens[:12], *weights)
    known = len(made)
    out = steps_tensors(model, tokens, *weights)
    assert len(made) == known
    want = models.decoder_arrays(model, np, *[t.numpy() for t in (tokens, *weights)])[-1]
    assert np.abs(out.numpy() - want).max() < 1e-4
