"""MiniLM with real weights: its vectors are those that PyTorch gives, however sentences are batched and padded."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import GlobalCounters, Tensor
from intaglio.models.minilm import PACKAGE, MiniLM, _even_rows, weights_folder
from tests.integration.reference import FILE, SENTENCES, embed

if TYPE_CHECKING:
    from collections.abc import Sequence


def installed(*packages: str) -> bool:
    """Whether all packages can be imported."""
    return all(importlib.util.find_spec(package) is not None for package in packages)


needs_weights = pytest.mark.skipif(not installed(PACKAGE, "tokenizers"), reason="weights and tokenizers not installed")


@pytest.fixture(scope="module")
def model() -> MiniLM:
    return MiniLM()


@pytest.fixture(scope="module")
def reference() -> np.ndarray:
    stored = json.loads(FILE.read_text())
    return np.array([stored[sentence] for sentence in SENTENCES])


def agree(found: np.ndarray, expected: np.ndarray | Sequence[Sequence[float]], cosine: float = 1e-5) -> None:
    """Each vector has length 1 and the direction of its reference."""
    expected = np.asarray(expected, np.float64)
    lengths = np.linalg.norm(found, axis=1)
    assert np.abs(lengths - 1).max() < 1e-5
    cosines = (found * expected).sum(1) / lengths / np.linalg.norm(expected, axis=1)
    assert (1 - cosines).max() < cosine
    assert np.abs(found - expected).max() < 1e-4


def test_the_reference_tells_sentences_apart(reference: np.ndarray) -> None:
    alike = reference @ reference.T - np.eye(len(reference))
    assert alike.max() < 0.9
    assert np.abs(np.linalg.norm(reference, axis=1) - 1).max() < 1e-6


@needs_weights
def test_vectors_are_those_of_pytorch(model: MiniLM, reference: np.ndarray) -> None:
    agree(model.embed(SENTENCES), reference)


@needs_weights
def test_padding_and_company_do_not_change_a_vector(model: MiniLM, reference: np.ndarray) -> None:
    agree(model.embed(SENTENCES[:1]), reference[:1])
    ids = model.tokenizer.encode(SENTENCES[0]).ids
    padded = np.zeros((2, 48), np.int64)
    padded[0, : len(ids)] = ids
    padded[0, len(ids) :] = 2023  # what stands behind the mask must not matter
    mask = np.zeros((2, 48), np.int64)
    mask[0, : len(ids)] = mask[1, 0] = 1
    agree(model.encoder.embed(Tensor(padded), Tensor(mask)).numpy()[:1], reference[:1])


@needs_weights
def test_a_second_batch_of_the_same_sizes_compiles_nothing(model: MiniLM) -> None:
    first = model.embed(["one short sentence", "and one more"])
    compiled = GlobalCounters.compile_count
    second = model.embed(["two other words", "there they are again"])
    assert GlobalCounters.compile_count == compiled
    assert np.abs(first - second).max() > 0.01


@needs_weights
def test_no_sentences_give_no_vectors(model: MiniLM) -> None:
    assert model.embed([]).shape == (0, 384)


@needs_weights
@pytest.mark.skipif(not installed("torch", "transformers"), reason="torch and transformers not installed")
@pytest.mark.filterwarnings("ignore")  # theirs, of their own affairs
def test_transformers_gives_the_stored_reference_again(model: MiniLM, reference: np.ndarray) -> None:
    again = np.array(embed(weights_folder()))
    agree(again, reference, 1e-6)
    agree(model.embed(SENTENCES), again)


@pytest.mark.parametrize(("count", "rows"), [(1, 1), (3, 3), (5, 8), (32, 32), (33, 20), (100, 28)])
def test_batches_are_even_so_that_little_is_padding(count: int, rows: int) -> None:
    assert _even_rows(count, 32) == rows
