"""Element types: rounding, bits, casts and promotion against independent references."""

from __future__ import annotations

import copy
import math
import pickle
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intaglio.core.dtypes import DType, dtypes, promote, promote_weak, result_type
from intaglio.core.errors import DTypeError

FLOATS = dtypes.floats
NARROW = [d for d in FLOATS if d.bits <= 16]


def same(a: float, b: float) -> bool:
    """Equal with NaN equal to NaN and the zeros apart."""
    return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def values_of(dtype: DType) -> np.ndarray:
    """All values of a float type of at most 16 bits, by NumPy or ml_dtypes."""
    bits = np.arange(1 << dtype.bits, dtype=np.uint8 if dtype.bits == 8 else np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaNs among them
        return bits.view(dtype.numpy).astype(np.float64)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_pattern_of_a_narrow_float_has_the_value_that_numpy_reads(dtype: DType) -> None:
    for bits, value in enumerate(values_of(dtype).tolist()):
        assert same(float(dtype.from_bits(bits)), value), hex(bits)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_pattern_of_a_narrow_float_survives_the_way_to_a_value_and_back(dtype: DType) -> None:
    for bits, value in enumerate(values_of(dtype).tolist()):
        if value == value:
            assert dtype.to_bits(dtype.from_bits(bits)) == bits
        else:
            assert dtype.from_bits(dtype.to_bits(value)) != value


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_rounding_at_and_beside_every_halfway_point_is_to_nearest_even(dtype: DType) -> None:
    finite = np.sort(values_of(dtype)[np.isfinite(values_of(dtype))])
    middles = (finite[:-1] + finite[1:]) / 2
    points = np.concatenate([middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf), finite * 1.0625])
    step = max(1, len(points) // 20_000)
    points = points[::step]
    for point in points.tolist():  # by fractions: ml_dtypes rounds twice, through float32
        assert same(float(dtype.wrap(point)), nearest(dtype, Fraction(point), math.copysign(1, point))), point


def nearest(dtype: DType, exact: Fraction, sign: float) -> float:
    """The value of a float type nearest to a number, ties to even, by fractions."""
    size = abs(exact)
    if size == 0:
        return math.copysign(0.0, sign)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** power > size:
        power -= 1
    ulp = Fraction(2) ** (max(power, 1 - dtype.bias) - dtype.mantissa)
    rounded = round(size / ulp) * ulp
    if rounded > Fraction(dtype.largest):
        return math.nan if dtype is dtypes.float8_e4m3 else math.copysign(math.inf, sign)
    return math.copysign(float(rounded), sign)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_an_integer_of_any_size_is_rounded_once(dtype: DType) -> None:
    draw = random.Random(7)
    for _ in range(3000):
        high, low = draw.randrange(1 << (dtype.mantissa + 2)), draw.choice([0, 1, -1])
        value = draw.choice([-1, 1]) * ((high << draw.randrange(70)) + low)
        assert same(float(dtype.wrap(value)), nearest(dtype, Fraction(value), value or 1)), value


def test_an_integer_beyond_all_floats_is_an_infinity() -> None:
    assert dtypes.float64.wrap(10**400) == math.inf
    assert dtypes.float16.wrap(-(10**400)) == -math.inf
    assert math.isnan(dtypes.float8_e4m3.wrap(10**400))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_the_largest_double_overflows_every_narrow_float(dtype: DType) -> None:
    expected = math.nan if dtype is dtypes.float8_e4m3 else math.inf
    assert same(float(dtype.wrap(1.7976931348623157e308)), expected)
    assert same(float(dtype.wrap(5e-324)), 0.0)
    assert same(float(dtype.wrap(-5e-324)), -0.0)


@given(st.floats(), st.sampled_from([dtypes.float32, dtypes.float16]))
def test_rounding_to_float32_and_float16_is_numpys(value: float, dtype: DType) -> None:
    with np.errstate(over="ignore", under="ignore"):
        assert same(float(dtype.wrap(value)), float(np.float64(value).astype(dtype.numpy)))


@given(st.integers(), st.sampled_from(dtypes.ints))
def test_integers_wrap_as_their_low_bits(value: int, dtype: DType) -> None:
    got = dtype.wrap(value)
    assert dtype.min <= got <= dtype.max
    assert (int(got) - value) % (1 << dtype.bits) == 0


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_bits_are_the_bytes_that_numpy_keeps(dtype: DType) -> None:
    for value in (0, 1, dtype.wrap(3), dtype.wrap(-2), dtype.wrap(100)):
        raw = np.array(value).astype(dtype.numpy).tobytes()
        assert dtype.to_bits(dtype.wrap(value)) == int.from_bytes(raw, "little")
        assert len(raw) == dtype.itemsize


CASTS = [
    # (source value, to, what it gives), by the rule of the two conversions, int32 and int64
    (7.8, "int8", 7), (-7.8, "int8", -7), (300.0, "int8", 44), (-1.0, "uint8", 255), (70000.0, "uint16", 4464),
    (3e9, "int8", 0), (3e9, "uint16", 0), (math.nan, "int16", 0), (math.inf, "uint8", 0),
    (3e9, "int32", -(2**31)), (math.nan, "int32", -(2**31)), (2147483647.5, "int32", 2147483647),
    (-2147483648.9, "int32", -(2**31)), (3e9, "uint32", 3_000_000_000), (-1.0, "uint32", 2**32 - 1),
    (1e19, "uint32", 0), (2.0**63, "int64", -(2**63)), (math.nan, "int64", -(2**63)), (-(2.0**63), "int64", -(2**63)),
    (2.0**63, "uint64", 2**63), (2.0**64, "uint64", 2**63), (-1.0, "uint64", 2**64 - 1), (math.nan, "uint64", 2**63),
    (math.nan, "bool", True), (0.0, "bool", False), (-0.0, "bool", False), (0.1, "bool", True),
]  # fmt: skip


@pytest.mark.parametrize(("value", "name", "expected"), CASTS)
def test_floats_convert_to_integers_by_truncation_with_stated_edges(value: float, name: str, expected: int) -> None:
    got = getattr(dtypes, name).convert(value, dtypes.float64)
    assert got == expected
    assert type(got) is type(expected)


@given(st.floats(-1e18, 1e18), st.sampled_from(["int64", "int32", "uint32", "int16", "uint8"]))
def test_conversion_of_values_in_range_is_numpys(value: float, name: str) -> None:
    dtype: DType = getattr(dtypes, name)
    if dtype.min <= math.trunc(value) <= dtype.max:
        assert dtype.convert(value, dtypes.float64) == int(np.float64(value).astype(dtype.numpy))


def test_conversions_between_integers_wrap_and_to_bool_ask_for_zero() -> None:
    assert dtypes.uint8.convert(-1, dtypes.int64) == 255
    assert dtypes.int8.convert(200, dtypes.uint8) == -56
    assert dtypes.bool.convert(256, dtypes.int64) is True
    assert dtypes.int32.convert(True, dtypes.bool) == 1
    assert dtypes.float16.convert(2049, dtypes.int64) == 2048.0


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("int8", 127, True), ("int8", 128, False), ("int8", -129, False), ("uint8", -1, False),
        ("uint64", 2**64 - 1, True), ("int8", 7.8, True), ("int8", 127.9, True), ("int8", 128.0, False),
        ("int64", math.nan, False), ("int64", math.inf, False), ("float16", 1e30, True),
        ("float8_e4m3", math.nan, True), ("bool", 300, True),
    ],
)  # fmt: skip
def test_a_number_fits_where_it_may_be_written(name: str, value: float, fits: bool) -> None:
    assert getattr(dtypes, name).fits(value) is fits


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_a_dtype_is_one_object_through_copies_pickles_and_numpy(dtype: DType) -> None:
    assert copy.deepcopy(dtype) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert dtypes.from_numpy(dtype.numpy) is dtype
    assert dtype != dtype.name
    assert dtype.numpy.itemsize == dtype.itemsize


def test_numpy_spellings_are_understood_and_foreign_dtypes_refused() -> None:
    assert dtypes.from_numpy(np.float32) is dtypes.float32
    assert dtypes.from_numpy("<i8") is dtypes.int64
    assert dtypes.from_numpy(float) is dtypes.float64
    for foreign in (">f4", np.dtype("datetime64[s]"), np.complex64, "no such dtype", object()):
        with pytest.raises(DTypeError, match=r"^dtypes\.from_numpy: the dtype must be one of bool, int8"):
            dtypes.from_numpy(foreign)


def test_limits_are_those_of_numpy() -> None:
    for dtype in dtypes.ints:
        assert (dtype.min, dtype.max) == (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in FLOATS:
        assert dtype.largest == float(ml_dtypes.finfo(dtype.numpy).max)
        assert (dtype.min, dtype.max) == (-math.inf, math.inf)


def test_promotion_is_symmetric_and_keeps_the_higher_category() -> None:
    for a in dtypes.all:
        for b in dtypes.all:
            met = promote(a, b)
            assert met is promote(b, a)
            assert met.is_float or not (a.is_float or b.is_float)
            if met.is_int:
                assert met.min <= min(a.min, b.min)
                assert met.max >= max(a.max, b.max)


def test_promotion_is_torchs_wherever_torch_has_one() -> None:
    torch = pytest.importorskip("torch")
    names = {"float8_e4m3": "float8_e4m3fn"}
    of = {dtype: getattr(torch, names.get(dtype.name, dtype.name)) for dtype in dtypes.all}
    compared = 0
    for a in dtypes.all:
        for b in dtypes.all:
            try:
                expected = torch.promote_types(of[a], of[b])
            except RuntimeError:
                continue
            assert of[promote(a, b)] is expected, (a, b)
            compared += 1
        for number in (True, 2, 2.5):
            assert of[promote_weak(a, type(number))] is torch.result_type(torch.empty(2, dtype=of[a]), number), a
    assert compared >= 100


def test_python_numbers_are_weak_in_a_result_type() -> None:
    assert result_type(dtypes.int8, 1000) is dtypes.int8
    assert result_type(dtypes.int8, 1.5) is dtypes.float32
    assert result_type(dtypes.float16, 1.5, True) is dtypes.float16
    assert result_type(dtypes.bool, 1) is dtypes.int64
    assert result_type(1, 2.0) is dtypes.float32
    assert result_type(dtypes.int8, dtypes.uint8, 1) is dtypes.int16
    with pytest.raises(DTypeError):
        result_type()
    with pytest.raises(DTypeError):
        result_type(1j)  # type: ignore[arg-type]


def test_numbers_have_a_dtype_by_themselves() -> None:
    assert dtypes.from_py(True) is dtypes.bool
    assert dtypes.from_py(3) is dtypes.int64
    assert dtypes.from_py(3.0) is dtypes.float32
    assert dtypes.from_py(np.int16(3)) is dtypes.int16
    with pytest.raises(DTypeError):
        dtypes.from_py("3")


def test_aliases_are_the_same_objects() -> None:
    assert dtypes.half is dtypes.float16
    assert dtypes.float is dtypes.float32
    assert dtypes.double is dtypes.float64
    assert dtypes.int is dtypes.int32
    assert dtypes.long is dtypes.int64
    assert dtypes.fp8e4m3 is dtypes.float8_e4m3
    assert dtypes.is_float(dtypes.bfloat16)
    assert not dtypes.is_int(dtypes.bool)
    assert dtypes.is_unsigned(dtypes.uchar)
    assert len(dtypes.all) == 15
