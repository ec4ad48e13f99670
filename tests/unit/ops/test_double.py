"""Functions of float64: within their stated error over numbers of all sizes, and C's values at the edges.

The reference has 64 bits of mantissa: long double, where the host has one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Op
from intaglio.ops.elementwise import LDEXP
from intaglio.runtime.compiler import host_target
from tests.property.test_ops import compute

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.core.target import Target

pytestmark = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double is no longer than double here")
LONG = np.longdouble
PI = LONG("3.14159265358979323846264338327950288")
BOUNDS = {  # ulp: some hundredths more than the worst of eight million numbers, most of them where errors are large
    "exp": 0.96, "exp2": 0.98, "expm1": 1.25, "log": 0.9, "log2": 0.9, "log10": 0.9, "log1p": 1.3, "sin": 0.92,
    "cos": 0.92, "tan": 1.6, "asin": 1.2, "acos": 1.2, "atan": 1.7, "sinh": 1.55, "cosh": 1.55, "tanh": 1.6,
    "asinh": 1.6, "acosh": 1.95,
    "atanh": 0.98, "erf": 1.3,
}  # fmt: skip
NUMPY = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
}  # fmt: skip
OFTEN = [
    0.0, 5e-324, 1e-310, 2.0**-1022, 1e-20, 0.25, 1 / 3, math.log(2) / 2, 0.5, 0.5625, 0.625, math.sqrt(0.5), 1.0,
    math.sqrt(2), 2.0, 4.0, 19.0, 38.0, 709.78, 710.0, 710.4758, 745.13, 746.0, 1023.99, 1024.0, 1074.0, 1075.0, 1e6,
    2.0**20, 2.0**28, 2.0**53, 1e22, 1e300, 1.7e308, math.inf, math.nan,
]  # fmt: skip


def error_function(x: np.ndarray) -> np.ndarray:
    """The error function by a series whose terms are all positive."""
    size = np.minimum(np.abs(x), LONG(7))
    term, total = size, size
    for n in range(1, 300):
        term = term * (2 * size * size) / (2 * n + 1)
        total = total + term
    return np.copysign(np.minimum(2 / np.sqrt(PI) * np.exp(-size * size) * total, LONG(1)), x)


def exact(name: str, x: np.ndarray) -> np.ndarray:
    """A function in long double."""
    f: Callable[[np.ndarray], np.ndarray] = error_function if name == "erf" else getattr(np, NUMPY.get(name, name))
    with np.errstate(all="ignore"):
        return f(x.astype(LONG))


def errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Errors in units of the last place of float64."""
    ulp = np.spacing(np.abs(want.astype(np.float64)))
    return (np.abs(got.astype(LONG) - want) / ulp).astype(np.float64)


def spread(seed: int) -> np.ndarray:
    """Numbers of every size, more of those near 0, near 1 and near multiples of pi / 2, and where forms change."""
    rng = np.random.default_rng(seed)
    count = 50_021
    some = (np.arange(count, dtype=np.uint64) * np.uint64(2**64 // count) + np.uint64(rng.integers(1 << 40))).view(
        np.float64
    )
    near = np.concatenate([rng.uniform(-800, 800, 20_000), rng.uniform(-12, 12, 40_000)])
    small = np.linspace(-1.05, 1.05, 20_001)
    steps = rng.choice([-1, 1], 20_000) * 10.0 ** rng.uniform(-17, 0, 20_000)
    turns = np.rint(2.0 ** rng.uniform(0, 40, 20_000)) * (math.pi / 2)
    points = np.array(OFTEN)
    sides = np.concatenate([points, np.nextafter(points, np.inf), np.nextafter(points, 0)])
    return np.concatenate([some, near, small, steps, 1 + steps, turns, np.nextafter(turns, 0), sides, -sides])


def check(name: str, got: np.ndarray, x: np.ndarray, times: float = 1) -> None:
    """Within (some times) the stated error where it is a number; infinities, NaN and signs of 0 as they are."""
    want = exact(name, x)
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float64)
    numbers = np.isfinite(rounded)
    assert np.array_equal(got[~numbers], rounded[~numbers], equal_nan=True)
    worst = errors(got[numbers], want[numbers])
    assert worst.max() < BOUNDS[name] * times, f"{name}({x[numbers][worst.argmax()]!r}): {worst.max()}"
    none = (x == 0) & (rounded == 0)
    assert np.array_equal(np.signbit(got[none]), np.signbit(rounded[none]))


def plain() -> Target:
    """This machine, as if it had no AVX-512."""
    here = host_target(1)
    return replace(here, vector_bytes=32, features=frozenset(f for f in here.features if not f.startswith("avx512")))


def without_fma() -> Target:
    """This machine, as if it had no fused multiply-add either."""
    here = plain()
    return replace(here, features=here.features - {"fma"})


@pytest.mark.parametrize("name", BOUNDS)
def test_a_function_keeps_its_stated_error_at_numbers_of_all_sizes(name: str, seed: int) -> None:
    x = spread(seed)
    check(name, getattr(Tensor(x), name)().numpy(), x)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_fused_multiply_add_is_not_needed(name: str, seed: int) -> None:
    x = spread(seed)
    check(name, compute(Op.single(Op.registry[name]), dtypes.float64, x, target=without_fma()), x, 2.5)


@pytest.mark.parametrize("name", BOUNDS)
def test_vectors_of_any_length_find_the_same_bits(name: str, seed: int) -> None:
    x = spread(seed)[::7].copy()
    op: Any = Op.single(Op.registry[name])
    wide = compute(op, dtypes.float64, x)
    assert np.array_equal(compute(op, dtypes.float64, x, target=plain()), wide, equal_nan=True)
    for n in (1, 7, 9):
        assert np.array_equal(compute(op, dtypes.float64, x[:n].copy()), wide[:n], equal_nan=True)


@pytest.mark.parametrize("name", [*BOUNDS, "pow", "atan2"])
def test_the_interpreter_finds_the_same_bits(name: str) -> None:
    points = np.array(OFTEN)
    x = np.concatenate([points, -points])
    kind = Op.registry[name]
    arrays = [x] if name in BOUNDS else [np.repeat(x, 5), np.resize(x, 5 * len(x))]
    found = [compute(Op.single(kind), dtypes.float64, *arrays, interpret=way) for way in (True, False)]
    assert np.array_equal(found[0], found[1], equal_nan=True)


def test_powers_of_two_are_rounded_once() -> None:
    x = np.array([1.0, 1.5, 1 + 2.0**-52, 1 - 2.0**-53, -1.25, 0.25, 0.0, -0.0, np.nan])
    x, n = (grid.ravel().copy() for grid in np.meshgrid(x, np.arange(-1100, 1030, dtype=np.float64)))
    with np.errstate(all="ignore"):
        want = np.ldexp(x, n.astype(np.int32))
    for target in (host_target(1), plain()):
        assert np.array_equal(compute(LDEXP, dtypes.float64, x, n, target=target), want, equal_nan=True)
    assert np.array_equal(compute(LDEXP, dtypes.float64, x, n, interpret=True), want, equal_nan=True)


def test_angles_of_points_are_those_of_c(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.array([0, 5e-324, 1e-308, 1e-200, 0.5, 1, 1 + 2.0**-52, 3, 1e200, 1.7e308, np.inf, np.nan])
    y, x = (grid.ravel() for grid in np.meshgrid(np.concatenate([edges, -edges]), np.concatenate([edges, -edges])))
    y, x = (np.concatenate([a, 10.0 ** rng.uniform(-5, 5, 40_000) * rng.choice([-1, 1], 40_000)]) for a in (y, x))
    want = np.arctan2(y.astype(LONG), x.astype(LONG))
    got = Tensor(y).atan2(Tensor(x)).numpy()
    numbers = ~np.isnan(want)
    normal = numbers & (np.abs(want) > 2.0**-1022)
    assert np.array_equal(np.isnan(got), ~numbers)
    assert np.array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))
    assert errors(got[normal], want[normal]).max() < 1.9


def powers(x: np.ndarray, y: np.ndarray, target: Target) -> np.ndarray:
    return compute(Op.single(Op.registry["pow"]), dtypes.float64, x, y, target=target)


def test_powers_at_the_edges_are_those_of_c() -> None:
    sizes = [
        0,
        0.5,
        1,
        2,
        3,
        np.inf,
        5e-324,
        1e-310,
        2.0**-1022,
        1e308,
        2.0**53,
        2.0**53 - 1,
        1 + 2.0**-52,
        1 / 3,
        np.nan,
    ]
    edges = np.array([*sizes, *[-size for size in sizes]])
    x, y = (grid.ravel().copy() for grid in np.meshgrid(edges, edges))
    with np.errstate(all="ignore"):
        want = (x.astype(LONG) ** y.astype(LONG)).astype(np.float64)
    for target in (host_target(1), without_fma()):
        got = powers(x, y, target)
        numbers = np.isfinite(want) & (np.abs(want) > 2.0**-1022)
        assert np.array_equal(got[~numbers], want[~numbers], equal_nan=True)
        assert np.array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))
        assert errors(got[numbers], want[numbers].astype(LONG)).max() <= 1.0


@pytest.mark.parametrize("spread", [0.001, 0.7, 60.0, 600.0])
def test_powers_keep_their_stated_error(seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    x = np.exp(rng.uniform(-spread, spread, 50_000))
    y = rng.uniform(-740 / spread, 740 / spread, 50_000)
    with np.errstate(all="ignore"):
        want = x.astype(LONG) ** y.astype(LONG)
    numbers = (want > 2.0**-1022) & (want < np.finfo(np.float64).max)
    assert errors((Tensor(x) ** Tensor(y)).numpy()[numbers], want[numbers]).max() < 1.1
    assert errors(powers(x, y, plain())[numbers], want[numbers]).max() < 1.1
    assert errors(powers(x, y, without_fma())[numbers], want[numbers]).max() < 1.4
