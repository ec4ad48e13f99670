"""Functions of float32: within their stated error over all numbers, and C's values at the edges."""

from __future__ import annotations

import ctypes
import ctypes.util
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Op
from intaglio.ops.elementwise import LDEXP, RARELY
from intaglio.runtime.compiler import host_target
from tests.property.test_ops import compute

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.core.target import Target

SIZES = [0, 0.5, 1, 2, 3, np.inf, 1e-45, 1e-38, 3e38, 16777216, 16777217, 33554431, 1.0000001, 0.99999994, 0.3333]
EDGES = np.array([*SIZES, *[-size for size in SIZES], np.nan], np.float32)


BOUNDS = {  # ulp
    "exp": 0.9, "exp2": 0.9, "expm1": 1.5, "log": 0.9, "log2": 0.501, "log10": 0.501, "log1p": 1.5, "sin": 1.3,
    "cos": 1.3, "tan": 1.6, "asin": 1.2, "acos": 1.2, "atan": 1.2, "sinh": 1.5, "cosh": 1.9, "tanh": 1.4,
    "asinh": 0.501, "acosh": 0.501,
    "atanh": 1.3, "erf": 1.0,
}  # fmt: skip
NUMPY: dict[str, Any] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh,
}  # fmt: skip
OFTEN = [
    0.0,
    0.25,
    0.5,
    0.5625,
    1.0,
    1.5,
    89.0,
    104.0,
    71475.99,
    71476.0,
    2.0**28,
    2.0**-126,
    1e-40,
    3e38,
    np.inf,
    np.nan,
]


def exact(name: str, x: np.ndarray) -> np.ndarray:
    """A function by double precision."""
    kind: Any = Op.registry[name]
    f: Callable[[float], float] = kind.of

    def one(value: float) -> float:
        try:
            return f(value)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return np.array([one(float(v)) for v in x])


def spread(seed: int) -> np.ndarray:
    """Numbers of every size, more of those near 1, and those at which forms change."""
    some = np.arange(0, 1 << 32, 99991, dtype=np.int64).astype(np.uint32).view(np.float32)
    near = np.random.default_rng(seed).uniform(-12, 12, 40_000).astype(np.float32)
    small = np.linspace(-1.05, 1.05, 20_001).astype(np.float32)
    points = np.array(OFTEN, np.float32)
    sides = np.concatenate([points, np.nextafter(points, np.float32(9)), np.nextafter(points, np.float32(0))])
    return np.concatenate([some, near, small, sides, -sides])


def check(name: str, got: np.ndarray, x: np.ndarray, times: float = 1) -> None:
    """Within (some times) the stated error where it is a number; infinities, NaN and signs of 0 as they are."""
    want = exact(name, x)
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
    numbers = np.isfinite(rounded)
    assert np.array_equal(got[~numbers], rounded[~numbers], equal_nan=True)
    worst = errors(got[numbers], want[numbers])
    assert worst.max() < BOUNDS[name] * times, f"{name}({x[numbers][worst.argmax()]!r}): {worst.max()}"
    none = (x == 0) & (rounded == 0)
    assert np.array_equal(np.signbit(got[none]), np.signbit(rounded[none]))


@pytest.mark.parametrize("name", BOUNDS)
def test_a_function_keeps_its_stated_error_over_all_numbers(name: str, seed: int) -> None:
    x = spread(seed)
    check(name, getattr(Tensor(x), name)().numpy(), x)


CLEAR = 0.9  # ulp of NumPy's worst of some numbers up to which it is within 1 for all


def is_c(name: str, given: tuple[np.ndarray, ...], found: np.ndarray) -> bool:
    """Whether results are those of C's library, bit by bit."""
    function = getattr(ctypes.CDLL(ctypes.util.find_library("m")), f"{name}f")
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float] * len(given)
    some = slice(0, None, max(1, found.size // 2000))
    values = [function(*map(float, row)) for row in zip(*(array[some] for array in given), strict=True)]
    return np.array_equal(np.array(values, np.float32), found[some], equal_nan=True)


def allowed(name: str, numpys: np.ufunc, *given: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """(ulp that an error may be, the exact results, which of these are numbers).

    It is 1 where NumPy's errors are not more. C's functions, which it calls for one number after the other where it
    has none in vectors for a processor, are no measure: those of some libraries are rounded right.
    """
    with np.errstate(all="ignore"):
        want, theirs = numpys(*(array.astype(np.float64) for array in given)), numpys(*given)
        numbers = np.isfinite(want.astype(np.float32))
    worst = errors(theirs[numbers], want[numbers]).max()
    return 1 if worst <= CLEAR and not is_c(name, given, theirs) else 2, want, numbers


@pytest.mark.parametrize("name", NUMPY)
def test_errors_are_within_1_ulp_where_numpys_are_and_within_2_elsewhere(name: str, seed: int) -> None:
    x = np.arange(seed % 4999, 1 << 32, 4999, dtype=np.int64).astype(np.uint32).view(np.float32)
    most, want, numbers = allowed(name, NUMPY[name], x)
    got = getattr(Tensor(x), name)().numpy()
    assert BOUNDS[name] < most
    assert errors(got[numbers], want[numbers]).max() < most  # without fused multiply-adds as well


@pytest.mark.parametrize("wide", [False, True])
def test_powers_and_angles_are_within_1_ulp_where_numpys_are_and_within_2_elsewhere(wide: bool, seed: int) -> None:
    rng, count = np.random.default_rng(seed), 200_000
    x, y = (10.0 ** rng.uniform(-20 if wide else -1, 20 if wide else 1, (2, count))).astype(np.float32)
    powers = rng.uniform(-2, 2, count) if wide else rng.uniform(-30, 30, count)
    signs = rng.choice([-1, 1], (2, count)).astype(np.float32)
    cases = [
        ("pow", np.power, Tensor.pow, (x, powers.astype(np.float32)), 0.501),
        ("atan2", np.arctan2, Tensor.atan2, (signs[0] * y, signs[1] * x), 1.9),
    ]
    for name, numpys, own, given, stated in cases:
        most, want, numbers = allowed(name, numpys, *given)
        numbers &= np.abs(want) > 2.0**-126
        got = own(*map(Tensor, given)).numpy()
        assert stated < most
        assert errors(got[numbers], want[numbers]).max() < most


def plain() -> Target:
    """This machine, as if it had no AVX-512."""
    here = host_target(1)
    return replace(here, vector_bytes=32, features=frozenset(f for f in here.features if not f.startswith("avx512")))


@pytest.mark.parametrize("name", BOUNDS)
def test_a_fused_multiply_add_is_not_needed(name: str, seed: int) -> None:
    here = plain()
    x = spread(seed)
    target = replace(here, features=here.features - {"fma"})
    check(name, compute(Op.single(Op.registry[name]), dtypes.float32, x, target=target), x, 2.5)


@pytest.mark.parametrize("name", ["exp", "exp2", "expm1", "cosh", "sinh", "tanh", "erf"])
def test_powers_of_two_need_no_instruction_of_their_own(name: str, seed: int) -> None:
    x = spread(seed)
    op = Op.single(Op.registry[name])
    check(name, compute(op, dtypes.float32, x, target=plain()), x)
    assert compute(op, dtypes.float32, x, target=plain()).tobytes() == compute(op, dtypes.float32, x).tobytes()


@pytest.mark.parametrize("name", [*BOUNDS, "pow", "atan2"])
def test_the_interpreter_finds_the_same_bits(name: str) -> None:
    points = np.array(OFTEN, np.float32)
    x = np.concatenate([points, -points])
    kind = Op.registry[name]
    arrays = [x] if name in BOUNDS else [np.repeat(x, 8), np.tile(x, 8)]
    found = [compute(Op.single(kind), dtypes.float32, *arrays, interpret=way) for way in (True, False)]
    assert np.array_equal(found[0], found[1], equal_nan=True)


def test_angles_of_points_are_those_of_c(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, x = (grid.ravel().copy() for grid in np.meshgrid(EDGES, EDGES))
    y, x = (np.concatenate([a, (10.0 ** rng.uniform(-5, 5, 50_000)) * rng.choice([-1, 1], 50_000)]).astype(np.float32)
            for a in (y, x))  # fmt: skip
    want = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    got = Tensor(y).atan2(Tensor(x)).numpy()
    numbers = ~np.isnan(want)
    normal = numbers & (np.abs(want) > 2.0**-126)
    assert np.array_equal(np.isnan(got), ~numbers)
    assert np.array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))
    assert errors(got[normal], want[normal]).max() < 1.9


def test_powers_of_two_are_rounded_once() -> None:
    x = np.array([1.0, 1.5, 1.0000001, -1.25, 0.25, 0.0, -0.0, np.nan], np.float32)
    x, n = (grid.ravel().copy() for grid in np.meshgrid(x, np.arange(-160, 140, dtype=np.float32)))
    with np.errstate(all="ignore"):
        want = np.ldexp(x, n.astype(np.int32))
    for target in (host_target(1), plain()):
        for interpret in (True, False):
            got = compute(LDEXP, dtypes.float32, x, n, target=target, interpret=interpret)
            assert np.array_equal(got, want, equal_nan=True)


@pytest.mark.parametrize("interpret", [True, False], ids=["PYTHON", "CPU"])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 100])
def test_what_is_rare_is_chosen_lane_by_lane(n: int, interpret: bool) -> None:
    rng = np.random.default_rng(n)
    for share in (0.0, 0.05, 1.0):
        condition = rng.random(n) < share
        x, y = np.arange(n, dtype=np.float32), -np.arange(n, dtype=np.float32)
        got = compute(RARELY, dtypes.float32, condition, x, y, interpret=interpret)
        assert np.array_equal(got, np.where(condition, x, y))


def c_pow(x: float, y: float) -> float:
    """C's pow, with infinities and NaN for Python's errors."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
    except ValueError:
        if x == 0:
            return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
        return math.nan


def errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Errors in units of the last place of float32."""
    return np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want.astype(np.float32))).astype(np.float64)


def test_powers_at_the_edges_are_those_of_c() -> None:
    x, y = (grid.ravel().copy() for grid in np.meshgrid(EDGES, EDGES))
    with np.errstate(all="ignore"):
        expected = np.array([c_pow(float(a), float(b)) for a, b in zip(x, y, strict=True)]).astype(np.float32)
    got = (Tensor(x) ** Tensor(y)).numpy()
    same = (got == expected) & (np.signbit(got) == np.signbit(expected))
    assert (same | (np.isnan(got) & np.isnan(expected))).all()


@pytest.mark.parametrize("spread", [0.7, 60.0])
def test_powers_are_rounded_nearly_always_right(seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    x = np.exp(rng.uniform(-spread, spread, 100_000)).astype(np.float32)
    y = rng.uniform(-80 / spread, 80 / spread, 100_000).astype(np.float32)
    want = x.astype(np.float64) ** y.astype(np.float64)
    normal = (want > 2.0**-126) & (want < 2.0**127)
    assert errors((Tensor(x) ** Tensor(y)).numpy()[normal], want[normal]).max() < 0.501


def test_small_powers_are_rounded_to_denormals() -> None:
    y = np.linspace(-155, -120, 2000).astype(np.float32)
    expected = (2.0 ** y.astype(np.float64)).astype(np.float32)
    assert np.array_equal((Tensor(np.full(2000, 2, np.float32)) ** Tensor(y)).numpy(), expected)


def test_logarithms_to_base_2_over_all_positive_numbers() -> None:
    x = np.arange(1, 0x7F800000, 9973, dtype=np.int32).view(np.float32)
    want = np.log2(x.astype(np.float64))
    assert errors(Tensor(x).log2().numpy(), want).max() < 0.501
    edges = Tensor(np.array([-1, -0.0, 0, np.inf, -np.inf, np.nan], np.float32)).log2().numpy()
    assert np.array_equal(edges, np.array([np.nan, -np.inf, -np.inf, np.inf, np.nan, np.nan]), equal_nan=True)
