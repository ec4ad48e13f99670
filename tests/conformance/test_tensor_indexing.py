"""Indexing of every kind reads and writes what NumPy reads and writes, and is refused where NumPy refuses it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.errors import IndexRangeError, IntaglioError
from intaglio.storage.flush import plans
from tests.conformance.agree import agree

if TYPE_CHECKING:
    import random

PROGRAMS = 150  # of each kind, a run: the seed changes from run to run


def random_shape(rng: random.Random) -> tuple[int, ...]:
    """Up to four axes, seldom empty ones."""
    return tuple(
        rng.choice([0, 1, 2, 3, 4]) if rng.random() < 0.15 else rng.randint(1, 4) for _ in range(rng.randint(0, 4))
    )


def random_index(rng: random.Random, shape: tuple[int, ...], *, advanced: bool) -> tuple[Any, ...]:
    """Parts of every kind, mostly in range."""
    draw = np.random.default_rng(rng.randrange(1 << 31))
    parts: list[Any] = []
    common = rng.choice([(3,), (2,), (1,), (2, 3), (), (0,)])
    axis = 0
    while axis < len(shape):
        n = shape[axis]
        kind = rng.choice(
            [
                "int",
                "slice",
                "slice",
                "slice",
                "new",
                "rest",
                *(["array", "array", "mask", "truth"] if advanced else []),
            ]
        )
        if kind == "int" and n:
            parts.append(rng.randrange(-n, n + (rng.random() < 0.05)))
            axis += 1
        elif kind == "slice":
            bounds = [rng.choice([None, rng.randint(-6, 6)]) for _ in range(2)]
            parts.append(slice(*bounds, rng.choice([None, 1, 2, -1, -2, 3])))
            axis += 1
        elif kind == "new":
            parts.append(None)
        elif kind == "rest" and not any(p is Ellipsis for p in parts):
            parts.append(Ellipsis)
            axis += rng.randint(0, len(shape) - axis)
        elif kind == "array" and n:
            extents = tuple(1 if rng.random() < 0.2 else k for k in common)
            parts.append(draw.integers(-n, n, extents))
            axis += 1
        elif kind == "mask":
            rank = rng.randint(1, len(shape) - axis)
            parts.append(draw.random(shape[axis : axis + rank]) < 0.5)
            axis += rank
        elif kind == "truth" and rng.random() < 0.2:
            parts.append(rng.random() < 0.7)
        elif rng.random() < 0.1:
            break
    return tuple(parts)


def for_tensor(rng: random.Random, index: tuple[Any, ...], device: str) -> Any:
    """The same index with its arrays as tensors, computed tensors or lists."""
    parts: list[Any] = []
    for part in index:
        how = rng.random()
        if not isinstance(part, np.ndarray):
            parts.append(part)
        elif how < 0.4:
            parts.append(Tensor(part, device=device))
        elif how < 0.6 and part.dtype != bool:
            parts.append(Tensor(part, device=device) + 0)
        elif how < 0.6:
            parts.append(Tensor(part.astype(np.int64), device=device) != 0)
        elif how < 0.8 and part.size:
            parts.append(part.tolist())
        else:
            parts.append(part)
    return parts[0] if len(parts) == 1 and rng.random() < 0.5 else tuple(parts)


def a_view(rng: random.Random, array: np.ndarray, tensor: Tensor) -> tuple[np.ndarray, Tensor]:
    """A view of both, by basic indices and permutations."""
    for _ in range(rng.randint(0, 2)):
        if rng.random() < 0.5 and array.ndim:
            order = rng.sample(range(array.ndim), array.ndim)
            array, tensor = array.transpose(order), tensor.permute(order)
        else:
            index = random_index(rng, array.shape, advanced=False)
            try:
                seen = array[index]
            except IndexError:
                break
            if not isinstance(seen, np.ndarray):
                break
            array, tensor = seen, tensor[index]
    return array, tensor


@pytest.mark.values
def test_random_indices(rng: random.Random, backend: str) -> None:
    for _ in range(PROGRAMS if backend == "CPU" else PROGRAMS // 5):
        base = np.random.default_rng(rng.randrange(1 << 31)).integers(-50, 50, random_shape(rng))
        tensor = Tensor(base, device=backend)
        if rng.random() < 0.3:
            tensor = tensor + 0
        array, seen = a_view(rng, base, tensor)
        index = random_index(rng, array.shape, advanced=True)
        own = for_tensor(rng, index, backend)
        context = f"shape {array.shape}, index {index}"
        masks = [part for part in index if isinstance(part, np.ndarray) and part.dtype == bool]
        try:
            want = np.asarray(array[index])
        except IndexError:
            with pytest.raises(IntaglioError):
                seen[own].tolist()
            continue
        unasked = not array.size and any(mask.size == 0 for mask in masks)  # NumPy does not ask whether these fit
        try:
            found = np.asarray(seen[own])
        except IndexRangeError as error:
            if unasked and "a mask must have the shape of the axes" in str(error):
                continue
            raise
        np.testing.assert_array_equal(found, want, err_msg=context, strict=True)
        value: Any = rng.randint(-9, 9)
        if rng.random() < 0.7:
            extents = tuple(1 if rng.random() < 0.2 else n for n in want.shape)[
                rng.randint(0, want.ndim) if rng.random() < 0.3 else 0 :
            ]
            value = np.random.default_rng(rng.randrange(1 << 31)).integers(-50, 50, extents)
        as_tensor = Tensor(value, device=backend) if rng.random() < 0.5 else value
        if rng.random() < 0.6:
            array[index] = value
            seen[own] = as_tensor
        else:
            array[index] += value
            seen[own] += as_tensor
        np.testing.assert_array_equal(np.asarray(tensor), base, err_msg=context)


def test_the_placement_rule_of_index_arrays(backend: str) -> None:
    array = np.arange(120).reshape(2, 3, 4, 5)
    t = Tensor(array, device=backend)
    i, j = np.array([0, 1]), np.array([2, 1])
    for index in (
        (slice(None), i, j),
        (i, slice(None), j),
        (slice(None), i, slice(None), j),
        (0, slice(None), i),
        (i, ..., j),
        (..., i, j),
        (slice(None), 1, i),
    ):
        agree(t[index], array[index])


def test_an_empty_ellipsis_still_parts_index_arrays() -> None:
    array = np.arange(6).reshape(2, 3)
    t = Tensor(array)
    agree(t[None, [1, 0], ..., [2, 2]], array[None, [1, 0], ..., [2, 2]])


def test_one_truth_is_a_new_axis() -> None:
    t, array = Tensor([1, 2]), np.array([1, 2])
    for truth in (True, False):
        agree(t[truth], array[truth])
        agree(t[None, truth], array[None, truth])
    t[True] = 5
    t[False] = 7
    assert t.tolist() == [5, 5]


@pytest.mark.values
def test_the_last_of_duplicate_positions_wins(backend: str) -> None:
    t = Tensor([0, 0, 0, 0], device=backend)
    t[[1, 1, 2, 1]] = Tensor([5, 6, 7, 8], device=backend)
    assert t.tolist() == [0, 8, 7, 0]


@pytest.mark.values
def test_masks_of_part_of_the_axes(backend: str) -> None:
    array = np.arange(12).reshape(3, 4)
    t = Tensor(array, device=backend)
    rows = np.array([True, False, True])
    agree(t[Tensor(rows, device=backend)], array[rows])
    t[rows] = -1
    array[rows] = -1
    t[t > 6] = Tensor([100], device=backend)
    array[array > 6] = 100
    t[t == -1] = np.arange(8)
    array[array == -1] = np.arange(8)
    agree(t, array)


def test_a_mask_write_of_a_number_computes_nothing() -> None:
    from intaglio import GlobalCounters

    t = Tensor([1.0, -2.0, 3.0]).realize()
    before = GlobalCounters.launch_count
    t[t < 0] = 0.0
    assert GlobalCounters.launch_count == before
    assert t.tolist() == [1.0, 0.0, 3.0]


@pytest.mark.values
def test_a_mask_sees_the_values_of_its_moment(backend: str) -> None:
    t = Tensor([1, -2, 3], device=backend)
    mask = t < 0
    t[:] = -t
    t[mask] = 100
    assert t.tolist() == [-1, 100, -3]


def test_tensors_of_whole_numbers_are_positions() -> None:
    t = Tensor([10, 20, 30])
    i = Tensor(1)
    assert t[i].tolist() == 20
    assert t[i + 1].item() == 30
    assert t[np.int64(2)].item() == 30
    assert [10, 20, 30][i] == 20
    t[i] = 5
    assert t.tolist() == [10, 5, 30]


def test_ranges_and_nested_lists_are_positions() -> None:
    t = Tensor([10, 20, 30, 40])
    assert t[range(0, 4, 2)].tolist() == [10, 30]
    assert t[[[0, 1], [2, 3]]].tolist() == [[10, 20], [30, 40]]
    assert t[[]].tolist() == []
    assert t[[Tensor(1), 2]].tolist() == [20, 30]


@pytest.mark.values
def test_values_are_cast_and_broadcast_on_writing(backend: str) -> None:
    t = Tensor(np.zeros((2, 3), np.int8), device=backend)
    t[0] = Tensor([1.9, -1.9, 300.0], device=backend)
    t[:, 1:] = [[7], [8]]
    t[1, 0] = 2.5
    assert t.tolist() == [[1, 7, 7], [2, 8, 8]]
    t[0] = Tensor([300, -129, 1], device=backend)
    assert t[0].tolist() == [44, 127, 1]


def test_rows_are_iterated_and_are_views() -> None:
    t = Tensor([[1, 2], [3, 4]])
    for row in t:
        row += 10
    assert t.tolist() == [[11, 12], [13, 14]]


@pytest.mark.parametrize("n", [1, 9, 17, 33, 65])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_a_write_of_wider_numbers_leaves_what_is_past_it_alone(n: int, step: int) -> None:
    types = [np.int8, np.uint8, np.int16, np.int32, np.int64, np.float32, np.float64, np.bool]
    for source, target in itertools.product(types, types):
        plans.clear()  # a kernel for this very size
        numbers, array = (np.arange(3 * n) % 100).astype(source), (np.arange(n + 9) % 90 + 1).astype(target)
        chosen = numbers[: n * step : step] if step > 0 else numbers[n - 1 :: -1]
        tensor = Tensor(array).realize()
        tensor[:n] = Tensor(numbers).realize()[: n * step : step] if step > 0 else Tensor(numbers).realize()[:n].flip(0)
        array[:n] = chosen.astype(target)
        assert np.array_equal(tensor.numpy(), array), (source, target)
