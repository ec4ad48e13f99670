"""Random reads and writes at positions against NumPy: duplicates, negative ones, and ones out of range among them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.errors import IndexRangeError

Array = np.ndarray[Any, Any]
NAMES = ["float32", "float64", "float16", "int8", "int32", "int64", "uint8", "uint32", "uint64", "bool"]
SIZES = [1, 2, 3, 5, 8, 15, 16, 17, 33]
COMBINE: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


class Draw:
    """Random arrays and positions."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.numbers = np.random.default_rng(seed)

    def array(self, shape: tuple[int, ...], name: str) -> Array:
        """Numbers of a dtype, all of them or few different ones."""
        if name == "bool":
            return self.numbers.random(shape) < 0.5
        if name.startswith("float"):
            return self.numbers.standard_normal(shape).astype(name)
        info = np.iinfo(name)
        low, high = (0, 3) if self.choose.random() < 0.5 else (int(info.min), int(info.max))
        return self.numbers.integers(low, high, shape, np.dtype(name), endpoint=True)

    def places(self, n: int, shape: tuple[int, ...]) -> Array:
        """Positions of an axis of n: a tenth of the time, one is out of range."""
        found = self.numbers.integers(-n if self.choose.random() < 0.3 else 0, n, shape)
        if found.size and self.choose.random() < 0.1:
            found.reshape(-1)[self.choose.randrange(found.size)] = self.choose.choice([n, -n - 1, n + 7, -(1 << 40)])
            return found
        return found.astype(self.choose.choice(["int64", "int64", "int32", "int8"]))

    def tensor(self, array: Array) -> Tensor:
        """The tensor of an array: in memory, turned, or yet to be computed."""
        match self.choose.randrange(4):
            case 0:
                return Tensor(array).realize()
            case 1 if array.ndim > 1:
                return Tensor(np.ascontiguousarray(array.T)).T
            case 2 if array.dtype.kind in "iu":
                return Tensor(array) + 0
            case _:
                return Tensor(array)


def inside(places: Array, n: int) -> bool:
    """Whether all positions are in range."""
    return not places.size or bool((places >= -n).all() and (places < n).all())


@pytest.mark.parametrize("part", range(4))
@np.errstate(all="ignore")
def test_reads_and_writes_at_positions(part: int, seed: int) -> None:
    draw = Draw(seed + part)
    for _ in range(20):
        name = draw.choose.choice(NAMES)
        rank = draw.choose.choice([1, 2, 2, 3])
        shape = tuple(draw.choose.choice(SIZES[: 9 - 2 * rank + 2]) for _ in range(rank))
        axis = draw.choose.randrange(rank)
        x = draw.array(shape, name)
        step = draw.choose.choice([_take, _set, _add, _gather, _scatter])
        got, want = step(draw, x, axis)
        try:
            result = got().numpy()
        except IndexRangeError:
            assert want is None, (step.__name__, name, shape, axis)
        else:
            assert want is not None, (step.__name__, name, shape, axis)
            assert result.dtype == want.dtype
            np.testing.assert_array_equal(result, want)


def _index(axis: int, places: Any) -> tuple[Any, ...]:
    """Positions along an axis."""
    return (*[slice(None)] * axis, places)


def _take(draw: Draw, x: Array, axis: int) -> tuple[Any, Array | None]:
    """x[..., places]."""
    places = draw.places(x.shape[axis], draw.choose.choice([(), (4,), (33,), (3, 5), (0,)]))
    want = x[_index(axis, places.astype(np.int64))] if inside(places, x.shape[axis]) else None
    return lambda: draw.tensor(x)[_index(axis, draw.tensor(places))], want


def _set(draw: Draw, x: Array, axis: int) -> tuple[Any, Array | None]:
    """x[..., places] = values, the last of equal positions winning."""
    n, count = x.shape[axis], draw.choose.choice(SIZES)
    places = draw.places(n, (count,))
    values = draw.array((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype.name)
    want = x.copy() if inside(places, n) else None
    for k, place in enumerate(places.tolist() if want is not None else []):
        assert want is not None
        want[_index(axis, place)] = values[_index(axis, k)]

    def got() -> Tensor:
        t = draw.tensor(x)
        t[_index(axis, draw.tensor(places))] = draw.tensor(values)
        return t

    return got, want


def _add(draw: Draw, x: Array, axis: int) -> tuple[Any, Array | None]:
    """index_add, used as it is or turned."""
    x = x.astype(np.int32) if x.dtype == bool else x
    n, count = x.shape[axis], draw.choose.choice(SIZES)
    places = draw.places(n, (count,))
    values = draw.array((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype.name)
    want = x.copy() if inside(places, n) else None
    if want is not None:
        np.add.at(want, _index(axis, places.astype(np.int64)), values)
    turned = draw.choose.random() < 0.5

    def got() -> Tensor:
        out = draw.tensor(x).index_add(axis, draw.tensor(places), draw.tensor(values))
        return out.permute(*reversed(range(x.ndim))) if turned else out

    return got, want.T if turned and want is not None else want


def _along(draw: Draw, x: Array, axis: int) -> tuple[Array, tuple[int, ...], Any]:
    """(positions for gather and scatter, their shape, the index that NumPy takes)."""
    shape = tuple(draw.choose.choice(SIZES) if a == axis else draw.choose.randint(1, n) for a, n in enumerate(x.shape))
    places = draw.places(x.shape[axis], shape)
    index = list(np.indices(shape))
    index[axis] = places.astype(np.int64)
    return places, shape, tuple(index)


def _gather(draw: Draw, x: Array, axis: int) -> tuple[Any, Array | None]:
    """gather."""
    places, _, index = _along(draw, x, axis)
    want = x[index] if inside(places, x.shape[axis]) else None
    return lambda: draw.tensor(x).gather(axis, draw.tensor(places)), want


def _scatter(draw: Draw, x: Array, axis: int) -> tuple[Any, Array | None]:
    """scatter_reduce."""
    x = x.astype(np.int32) if x.dtype == bool else x
    places, shape, index = _along(draw, x, axis)
    kind = draw.choose.choice(list(COMBINE))
    values = draw.array(shape, x.dtype.name)
    want = x.copy() if inside(places, x.shape[axis]) else None
    if want is not None:
        COMBINE[kind].at(want, index, values)
    return lambda: draw.tensor(x).scatter_reduce(axis, draw.tensor(places), draw.tensor(values), kind), want
