"""Elementwise functions agree with NumPy and torch, at the edges too."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor, dtypes
from tests.conformance.agree import TOLERANCE, agree

if TYPE_CHECKING:
    from collections.abc import Callable

torch = pytest.importorskip("torch")

EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.7,
    -3.7,
    1e-5,
    30.0,
    -30.0,
    math.inf,
    -math.inf,
    math.nan,
    1e-40,
]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
BY_TORCH = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log1p",
    "log10",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "rsqrt",
]
EXACT = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "neg": "negative",
    "abs": "abs",
    "reciprocal": "reciprocal", "square": "square", "isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite",
}  # fmt: skip
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "maximum",
    "minimum",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
    "atan2",
    "copysign",
]


def pairs(values: list[Any], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Every value with every other."""
    first, second = np.meshgrid(np.array(values, dtype), np.array(values, dtype))
    return first.ravel().copy(), second.ravel().copy()


def edges_of(dtype: str) -> list[int]:
    """The values of an integer dtype at which things go wrong."""
    info = np.iinfo(dtype)
    return [0, 1, 2, 3, 7, 100, int(info.max), int(info.min), int(info.max) - 1, int(info.min) + 1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BY_TORCH)
def test_unary_functions_of_edges(name: str, dtype: str, backend: str) -> None:
    values = np.concatenate([np.array(EDGES, dtype), np.random.default_rng(1).standard_normal(20).astype(dtype) * 3])
    got = getattr(Tensor(values, device=backend), name)()
    agree(got, getattr(torch, name)(torch.tensor(values)), tolerance=TOLERANCE[dtype])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "reference"), EXACT.items())
def test_exact_functions_of_edges(name: str, reference: str, dtype: str, backend: str) -> None:
    values = np.concatenate([np.array(EDGES, dtype), np.random.default_rng(1).standard_normal(20).astype(dtype) * 3])
    agree(getattr(Tensor(values, device=backend), name)(), getattr(np, reference)(values))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_of_edges(name: str, dtype: str, backend: str) -> None:
    x, y = pairs(EDGES, dtype)
    want = getattr(torch, name)(torch.tensor(x), torch.tensor(y))
    got = getattr(Tensor(x, device=backend), name)(Tensor(y, device=backend))
    agree(got, want, tolerance=TOLERANCE[dtype] if name == "atan2" else None)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_remainder_and_power_of_edges(dtype: str, backend: str) -> None:
    x, y = pairs(EDGES, dtype)
    agree(Tensor(x, device=backend) % Tensor(y, device=backend), x % y)
    agree(Tensor(x, device=backend) ** Tensor(y, device=backend), x**y, tolerance=TOLERANCE[dtype])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lt", "le", "gt", "ge", "eq", "ne"]
)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_arithmetic_wraps_and_is_total(dtype: str, name: str, backend: str) -> None:
    x, y = pairs(edges_of(dtype), dtype)
    op: Callable[[Any, Any], Any] = getattr(operator, name)
    agree(op(Tensor(x, device=backend), Tensor(y, device=backend)), op(x, y))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_past_the_width(dtype: str, backend: str) -> None:
    bits = np.dtype(dtype).itemsize * 8
    x, y = (
        a.astype(dtype)
        for a in np.meshgrid(np.array(edges_of(dtype), dtype), np.array([0, 1, bits - 1, bits, bits + 1, 100]))
    )
    shifted = [(int(a) << int(b)) & ((1 << bits) - 1) if b < bits else 0 for a, b in zip(x.flat, y.flat, strict=True)]
    left = np.array(shifted, f"uint{bits}").view(dtype).reshape(x.shape)
    right = np.array([int(a) >> int(b) for a, b in zip(x.flat, y.flat, strict=True)], dtype).reshape(x.shape)
    agree(Tensor(x, device=backend) << Tensor(y, device=backend), left)
    agree(Tensor(x, device=backend) >> Tensor(y, device=backend), right)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_powers_stay_integers(dtype: str, backend: str) -> None:
    x = np.array(edges_of(dtype), dtype)
    agree(Tensor(x, device=backend) ** 3, x * x * x)
    base, exponent = np.meshgrid(np.array([0, 1, 2, 3, 5], dtype), np.array([0, 1, 2, 3, 9], dtype))
    agree(Tensor(base, device=backend) ** Tensor(exponent, device=backend), base**exponent)


@pytest.mark.parametrize("name", ["neg", "abs", "invert"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_unary(dtype: str, name: str, backend: str) -> None:
    x = np.array(edges_of(dtype), dtype)
    op: Callable[[Any], Any] = getattr(operator, name)
    agree(op(Tensor(x, device=backend)), op(x))
    agree(Tensor(x, device=backend).sign(), np.sign(x))


def test_sign_keeps_nan_and_zero() -> None:
    agree(Tensor([2.0, -2.0, 0.0, math.nan]).sign(), np.array([1, -1, 0, math.nan], np.float32))


OPS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.lt, operator.eq]
NAMES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


def made(values: list[int], name: str) -> Tensor:
    """Whole numbers as a dtype."""
    return Tensor(values).cast(getattr(dtypes, name))


@pytest.mark.parametrize("right", NAMES)
@pytest.mark.parametrize("left", NAMES)
def test_promotion_of_two_tensors_is_torch_s(left: str, right: str) -> None:
    for op in OPS:
        x, y = torch.tensor([1, 2, 3]).to(getattr(torch, left)), torch.tensor([1, 1, 2]).to(getattr(torch, right))
        try:
            want = op(x, y)
        except RuntimeError:
            continue  # torch does not subtract bools
        got = op(made([1, 2, 3], left), made([1, 1, 2], right))
        assert f"torch.{got.dtype.name}" == str(want.dtype)
        assert got.cast(dtypes.float64).tolist() == want.double().tolist()


@pytest.mark.parametrize("number", [True, 2, 2.5])
@pytest.mark.parametrize("name", NAMES)
def test_python_numbers_are_weak(name: str, number: float) -> None:
    for op in OPS:
        try:
            want = op(torch.tensor([1, 2, 3]).to(getattr(torch, name)), number)
        except RuntimeError:
            continue
        got = op(made([1, 2, 3], name), number)
        assert f"torch.{got.dtype.name}" == str(want.dtype)
        assert got.cast(dtypes.float64).tolist() == want.double().tolist()


def test_comparisons_with_numbers_beyond_the_dtype() -> None:
    t = Tensor(np.array([0, 255], np.uint8))
    assert (t < 300).tolist() == [True, True]
    assert (t == -1).tolist() == [False, False]
    assert (t >= 300).tolist() == [False, False]
    assert (t != 2**70).tolist() == [True, True]


CASTS = np.array(
    [0, 1, -1, 2.7, -2.7, 300, 70000, 3e9, -3e9, 1e10, 1e19, 1e20, -1e20, math.nan, math.inf, -math.inf, 1e-7],
    np.float64,
)


def cast_by_rule(value: float, name: str) -> int:
    """What the contract says of a float cast to an integer."""
    bits = int(name.lstrip("uint"))
    unsigned = name.startswith("u")
    whole = math.trunc(value) if math.isfinite(value) else None
    if name == "uint64" and whole is not None and 2**63 <= whole < 2**64:
        return whole
    through = 32 if bits <= 16 or name == "int32" else 64
    if whole is None or not -(2 ** (through - 1)) <= whole < 2 ** (through - 1):
        whole = -(2 ** (through - 1))
    low = whole & ((1 << bits) - 1)
    return low if unsigned or low < 1 << (bits - 1) else low - (1 << bits)


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.values
def test_floats_out_of_range_cast_by_rule(name: str, source: str, backend: str) -> None:
    values = CASTS.astype(source)
    want = [cast_by_rule(float(v), name) for v in values]
    assert Tensor(values, device=backend).cast(getattr(dtypes, name)).tolist() == want


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["bool", "float16", "bfloat16", "float32", "float64", *INTEGERS])
@pytest.mark.values
def test_integers_and_floats_cast(name: str, backend: str) -> None:
    whole = np.array([0, 1, 2, 127, 128, 255, 256, -1, -129, 2**40 + 5, -(2**63)])
    target = getattr(dtypes, name)
    agree(Tensor(whole, device=backend).cast(target).numpy(), whole.astype(target.numpy))
    if not name.startswith(("int", "uint")):
        agree(
            Tensor(CASTS, device=backend).cast(target).cast(dtypes.float64),
            CASTS.astype(target.numpy).astype(np.float64),
        )


@pytest.mark.parametrize(
    "shapes", [((3, 1), (1, 4)), ((), (2, 3)), ((2, 3), (3,)), ((5, 1, 2), (3, 1)), ((0, 3), (3,)), ((1,), ())]
)
def test_broadcasting(shapes: tuple[tuple[int, ...], tuple[int, ...]], backend: str) -> None:
    x, y = (np.arange(math.prod(s)).reshape(s) + 1 for s in shapes)
    agree(Tensor(x, device=backend) * Tensor(y, device=backend), x * y)


def test_where_promotes_and_broadcasts(backend: str) -> None:
    test = Tensor([[True], [False]], device=backend)
    agree(test.where(Tensor([1, 2], device=backend), 0.5), np.array([[1, 2], [0.5, 0.5]], np.float32))
    agree(test.where(3, 4), np.array([[3], [4]]))


def test_numpy_on_either_side(backend: str) -> None:
    array = np.array([1.0, 2.0])
    t = Tensor([3.0, 4.0], device=backend)
    for got in (array * t, t * array, np.multiply(array, t), np.float64(2) * t * 0.5 * array):
        assert isinstance(got, Tensor)
        agree(got, np.array([3.0, 8.0]))
    assert isinstance(np.float32(2) * t, Tensor)
    agree(np.hypot(t, 0.0), np.array([3.0, 4.0], np.float32))


def test_in_place_operators_write_through_views(backend: str) -> None:
    t = Tensor([1, 2, 3, 4], device=backend)
    view = t[1:3]
    view += 10
    view *= Tensor([2, 3], device=backend)
    t -= 1
    t //= 2
    agree(t, (np.array([1, 24, 39, 4]) - 1) // 2)
    agree(view, np.array([11, 19]))


def test_scalars_of_loops_are_tensors_like_others() -> None:
    t = Tensor([1.0, 2.0, 3.0])
    x = t[0] * 2 + t[1] / 4 - 1
    assert x.shape == ()
    assert x.dtype is dtypes.float32
    t[0] = 100
    agree(x, np.float32(1.5))
    agree(x + t, np.array([101.5, 3.5, 4.5], np.float32))
    agree((t[2] // 2) ** 3 % 2, np.float32(1))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_the_lowest_integer_has_a_magnitude_beside_floats(dtype: str) -> None:
    least = np.iinfo(dtype).min
    whole, other = np.array([least, least, least + 1, 7], dtype), np.array([2.5, np.inf, -3.0, least], np.float64)
    for name, want in (("fmod", np.fmod(whole, other)), ("hypot", np.hypot(whole.astype(np.float64), other))):
        agree(getattr(Tensor(whole), name)(Tensor(other)), want, tolerance=1e-15)
    agree(Tensor(whole).fmod(0.75), np.fmod(whole.astype(np.float32), np.float32(0.75)))
    near = np.array([least + 1, least, least, 8], dtype)
    agree(Tensor(whole).isclose(Tensor(near), rtol=0.1, atol=2), np.array([True, True, True, True]))


def test_squares_of_bool_are_integers_and_signs_of_zeros_are_zero() -> None:
    agree(Tensor([True, False]).square(), np.array([1, 0]))
    found = Tensor([-0.0, 0.0, -2.0, np.nan]).sign().numpy()
    agree(Tensor(found), np.array([0, 0, -1, np.nan], np.float32))
    assert not np.signbit(found[:2]).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_logarithms_of_halves_are_rounded_once(dtype: str) -> None:
    x, y = (Tensor(np.random.default_rng(k).uniform(-1, 0, 100).astype(np.float32)).cast(dtype) for k in (0, 1))
    want = np.logaddexp(x.cast("float32").numpy(), y.cast("float32").numpy())
    assert x.logaddexp(y).dtype.name == dtype
    assert np.array_equal(x.logaddexp(y).cast("float32").numpy(), Tensor(want).cast(dtype).cast("float32").numpy())
