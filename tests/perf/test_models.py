"""Exact counts of whole models of small width: kernels of a forward pass and of steps of decoding, what is compiled."""

from __future__ import annotations

import gc
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import models
from benchmarks.models import Transformer, decoder_tensors, encoder_tensors, steps_tensors
from intaglio import GlobalCounters, Tensor
from intaglio.engine.devices import device_of
from intaglio.storage import flush as flushes
from intaglio.storage.flush import plans
from tests.perf.test_overheads import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LAYER = 7  # kernels: two norms, four products (with bias, GELU, residual), attention
STEP = 6  # products compute their norms; attention; keys and values put into their caches


def drawn(model: Transformer, *tokens: int) -> list[Tensor]:
    """Tokens and weights, in memory."""
    return [Tensor(a).realize() for a in model.draw(tokens, np.random.default_rng(0))]


def memory_now() -> int:
    """Bytes in use where counts begin; what other tests left in cycles is not let go of later."""
    gc.collect()
    device_of("CPU").allocator.collect()
    GlobalCounters.reset()
    return GlobalCounters.mem_used


@pytest.mark.parametrize("layers", [1, 12])
@pytest.mark.parametrize("before", [False, True])
def test_each_layer_of_a_transformer_is_as_many_kernels_and_bytes(layers: int, before: bool) -> None:
    model = Transformer(layers, 288, 4, 200, 64, before=before)  # wider than what runs by rows
    inputs = drawn(model, 64) if before else drawn(model, 2, 64)
    tokens, width = inputs[0].numel(), model.width
    memory = memory_now()
    out = (decoder_tensors if before else encoder_tensors)(model, *inputs).realize()
    beside = 2 if before else 1  # the last norm and the words' logits, or the first norm
    assert GlobalCounters.kernel_count == LAYER * layers + beside
    # Of each token's width a layer reads and writes: two norms 2 and 2, queries, keys and values 1 and 3, attention 3
    # and 1, with what is added 2 and 1, the wide part 1 and 4, the narrow one with what is added 5 and 1.
    numbers = layers * (26 * tokens * width + 12 * width**2 + 13 * width)
    if before:
        numbers += 2 * 64 * width  # the first norm, and what adds to its input, read the words and places of that
        numbers += 2 * tokens * width + 2 * width  # the last norm
        numbers += tokens * width + model.words * width + tokens * model.words
    else:
        numbers += 2 * tokens * width + 64 * width + 2 * width  # the first norm, of words and places
    assert GlobalCounters.global_mem == 4 * numbers + 8 * tokens * beside  # the tokens are read as often
    # A token's vector, the wide part of it, and what comes of both; the encoder's result is that.
    assert GlobalCounters.peak - memory == 4 * 6 * tokens * width + (out.nbytes if before else 0)
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
    each = (
        1 if rows <= 4 else 2
    )  # the product computes few rows; each norm reads the sum that the product before stored
    assert GlobalCounters.kernel_count == each * count


class Watched:
    """Tokens; something is noted before each."""

    def __init__(self, tokens: Tensor, note: Callable[[], None]) -> None:
        self._tokens = tokens
        self._note = note

    def tolist(self) -> Iterator[int]:
        for token in self._tokens.tolist():
            self._note()
            yield token


def test_decoding_compiles_nothing_after_the_first_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "STEPS", 24)
    model = Transformer(2, 48, 4, 50, models.LENGTH, before=True)
    tokens, *weights = drawn(model, 24)
    compiled: list[int] = []
    GlobalCounters.reset()
    out = steps_tensors(model, Watched(tokens, lambda: compiled.append(GlobalCounters.compile_count)), *weights)
    assert compiled[12:] == [GlobalCounters.compile_count] * 12
    want = models.decoder_arrays(model, np, *[t.numpy() for t in (tokens, *weights)])[-1]
    assert np.abs(out.numpy() - want).max() < 1e-4


@pytest.mark.parametrize("layers", [1, 12])
def test_a_step_of_decoding_reads_weights_and_what_came_before_once(layers: int) -> None:
    steps, width, heads, words = 16, 288, 4, 200
    model = Transformer(layers, width, heads, words, models.LENGTH, before=True)
    tokens, *weights = drawn(model, steps)
    seen: list[tuple[int, int]] = []
    memory = memory_now()
    logits = steps_tensors(
        model,
        Watched(tokens, lambda: seen.append((GlobalCounters.kernel_count, GlobalCounters.global_mem))),
        *weights,
    )
    for place, (before, after) in enumerate(pairwise(seen)):
        if place:  # at the first one caches are filled with zeros, and there is nothing to be weighed
            kernels, moved = after[0] - before[0], after[1] - before[1]
            assert kernels == STEP * layers + 2  # the logits of the last norm, and the best of them
            # Of its width a layer reads and writes: queries, keys and values of a norm 1 and 3, putting keys and values
            # into their caches 2 and 2, queries 1, mixed values 1, with what is added 2 and 1, the wide part of a norm
            # 1 and 4, the narrow one with what is added 5 and 1. The first layer's input is a sum of two.
            numbers = layers * (24 * width + 12 * width**2 + 13 * width) + 2 * width
            numbers += layers * 2 * width * (place + 1)  # caches: scores, and what comes of them, are not in memory
            numbers += 3 * width + words * width + words  # the last norm's logits
            assert moved == 4 * (numbers + words) + 8  # the logits, and the place of the best
    caches = 4 * 2 * layers * models.LENGTH * width
    assert GlobalCounters.peak - memory - caches <= 4 * (6 * width + 2 * words)  # logits, and those before
    assert logits.shape == (words,)


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
