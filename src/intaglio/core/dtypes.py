"""Element types: their ranges, bit patterns, conversions and promotion."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final

from intaglio.core.errors import DTypeError

if TYPE_CHECKING:
    import numpy as np

Number = int | float | bool


@dataclass(frozen=True, eq=False, slots=True)
class DType:
    """One element type. There is one object for each, compared by identity.

    `exponent` and `mantissa` are the bits of a float's two fields (0 for other kinds).
    """

    name: str
    kind: str  # "bool", "int", "uint" or "float"
    bits: int
    exponent: int = 0
    mantissa: int = 0
    struct_code: str = ""

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """Whether it is an integer type, signed or not."""
        return self.kind in ("int", "uint")

    @property
    def is_unsigned(self) -> bool:
        """Whether it is an unsigned integer type."""
        return self.kind == "uint"

    @property
    def is_bool(self) -> bool:
        """Whether it is bool."""
        return self.kind == "bool"

    @property
    def min(self) -> Number:
        """The lowest value (-inf for floats)."""
        if self.kind == "float":
            return -math.inf
        return -(1 << (self.bits - 1)) if self.kind == "int" else False if self.kind == "bool" else 0

    @property
    def max(self) -> Number:
        """The highest value (inf for floats)."""
        if self.kind == "float":
            return math.inf
        if self.kind == "bool":
            return True
        return (1 << (self.bits - (self.kind == "int"))) - 1

    @property
    def largest(self) -> float:
        """The highest finite value of a float type."""
        if self is dtypes.float8_e4m3:
            return 448.0
        top = (1 << self.exponent) - 2 - self.bias
        return math.ldexp(2.0 - math.ldexp(1.0, -self.mantissa), top)

    @property
    def bias(self) -> int:
        """The exponent's bias of a float type."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype (by ml_dtypes where NumPy has none)."""
        return _numpy_dtype(self)

    def wrap(self, value: Number) -> Number:
        """A Python number as a value of this dtype: integers wrap, floats round to nearest even."""
        if self.kind == "float":
            return self._round(value)
        if self.kind == "bool":
            return value != 0
        if isinstance(value, float):
            return self.convert(value, dtypes.float64)
        masked = int(value) & ((1 << self.bits) - 1)
        return masked - (1 << self.bits) if self.kind == "int" and masked >> (self.bits - 1) else masked

    def _round(self, value: Number) -> float:
        """The nearest value of this float type; overflow gives an infinity (NaN in e4m3, which has none)."""
        if isinstance(value, int):
            try:
                wide = float(value)
            except OverflowError:
                wide = math.inf if value > 0 else -math.inf
            if self is not dtypes.float64 and abs(value) > 1 << 53 and int(wide) != value and math.isfinite(wide):
                wide = math.nextafter(wide, math.inf if value > int(wide) else -math.inf) if _is_halfway(wide, self) else wide
            value = wide
        if self.bits == 64 or value == 0.0 or value != value:
            return float(value)
        if math.isinf(value):
            return math.nan if self is dtypes.float8_e4m3 else value
        if self.bits == 32:
            try:
                return struct.unpack("<f", struct.pack("<f", value))[0]
            except OverflowError:
                return math.copysign(math.inf, value)
        _, power = math.frexp(value)
        least = max(power - 1, 1 - self.bias) - self.mantissa
        rounded = math.ldexp(float(round(math.ldexp(value, -least))), least)
        if rounded == 0.0:
            return math.copysign(0.0, value)
        if abs(rounded) > self.largest:
            return math.nan if self is dtypes.float8_e4m3 else math.copysign(math.inf, value)
        return rounded

    def to_bits(self, value: Number) -> int:
        """The bit pattern of a value of this dtype."""
        if self.kind != "float":
            return int(value) & ((1 << self.bits) - 1)
        if self.struct_code:
            return int.from_bytes(struct.pack("<" + self.struct_code, value), "little")
        number = float(value)
        sign = int(math.copysign(1.0, number) < 0) << (self.bits - 1)
        if number != number:
            return sign | ((1 << (self.bits - 1)) - 1 if self is dtypes.float8_e4m3 else self._quiet())
        if math.isinf(number):
            return sign | (((1 << self.exponent) - 1) << self.mantissa)
        if number == 0.0:
            return sign
        _, power = math.frexp(number)
        field = max(power - 1 + self.bias, 0)
        least = max(power - 1, 1 - self.bias) - self.mantissa
        digits = round(math.ldexp(abs(number), -least))
        return sign | ((field << self.mantissa) + digits - ((1 << self.mantissa) if field else 0))

    def _quiet(self) -> int:
        """The pattern of the quiet NaN, without sign."""
        return (((1 << self.exponent) - 1) << self.mantissa) | (1 << (self.mantissa - 1))

    def from_bits(self, bits: int) -> Number:
        """The value of a bit pattern."""
        if self.kind == "bool":
            return bits != 0
        if self.kind == "uint":
            return bits
        if self.kind == "int":
            return bits - (1 << self.bits) if bits >> (self.bits - 1) else bits
        if self.struct_code:
            return struct.unpack("<" + self.struct_code, bits.to_bytes(self.itemsize, "little"))[0]
        sign = -1.0 if bits >> (self.bits - 1) else 1.0
        field = (bits >> self.mantissa) & ((1 << self.exponent) - 1)
        digits = bits & ((1 << self.mantissa) - 1)
        top = (1 << self.exponent) - 1
        if self is dtypes.float8_e4m3:
            if field == top and digits == (1 << self.mantissa) - 1:
                return math.copysign(math.nan, sign)
        elif field == top:
            return math.copysign(math.nan, sign) if digits else sign * math.inf
        if field == 0:
            return sign * math.ldexp(digits, 1 - self.bias - self.mantissa)
        return sign * math.ldexp(digits + (1 << self.mantissa), field - self.bias - self.mantissa)

    def convert(self, value: Number, source: DType) -> Number:
        """The cast of a value of `source` to this dtype.

        Floats to integers truncate; out of range and NaN give INT32_MIN (to 8, 16 and signed 32 bits) or INT64_MIN
        (to the others; uint64 is exact up to 2**64), of which the low bits are kept.
        """
        if source.kind != "float" or self.kind == "float":
            return self.wrap(value)
        if self.kind == "bool":
            return value != 0
        if self is dtypes.uint64 and 2.0**63 <= value < 2.0**64:
            return int(value)
        through = 32 if self.bits < 32 or self is dtypes.int32 else 64
        lowest = -(1 << (through - 1))
        if value != value or math.isinf(value) or not lowest <= math.trunc(value) <= ~lowest:
            return self.wrap(lowest)
        return self.wrap(math.trunc(value))

    def fits(self, value: Number) -> bool:
        """Whether a Python number may be written: integers must be in range, and no NaN or infinity among integers."""
        if self.kind in ("float", "bool"):
            return True
        if isinstance(value, float):
            if not math.isfinite(value):
                return False
            value = math.trunc(value)
        return self.min <= value <= self.max

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return _by_name, (self.name,)


def _is_halfway(wide: float, dtype: DType) -> bool:
    """Whether a float lies half way between two values of a narrower type (so that rounding twice could err)."""
    _, power = math.frexp(wide)
    return math.ldexp(wide, dtype.mantissa + 2 - power) % 2 == 1


class dtypes:  # noqa: N801 -- the name that PyTorch and tinygrad users know
    """All element types, under their names and usual aliases."""

    bool: Final = DType("bool", "bool", 8, struct_code="?")
    int8: Final = DType("int8", "int", 8, struct_code="b")
    int16: Final = DType("int16", "int", 16, struct_code="h")
    int32: Final = DType("int32", "int", 32, struct_code="i")
    int64: Final = DType("int64", "int", 64, struct_code="q")
    uint8: Final = DType("uint8", "uint", 8, struct_code="B")
    uint16: Final = DType("uint16", "uint", 16, struct_code="H")
    uint32: Final = DType("uint32", "uint", 32, struct_code="I")
    uint64: Final = DType("uint64", "uint", 64, struct_code="Q")
    float16: Final = DType("float16", "float", 16, 5, 10, "e")
    bfloat16: Final = DType("bfloat16", "float", 16, 8, 7)
    float32: Final = DType("float32", "float", 32, 8, 23, "f")
    float64: Final = DType("float64", "float", 64, 11, 52, "d")
    float8_e4m3: Final = DType("float8_e4m3", "float", 8, 4, 3)
    float8_e5m2: Final = DType("float8_e5m2", "float", 8, 5, 2)

    char: Final = int8
    short: Final = int16
    int: Final = int32
    long: Final = int64
    uchar: Final = uint8
    ushort: Final = uint16
    uint: Final = uint32
    ulong: Final = uint64
    half: Final = float16
    float: Final = float32
    double: Final = float64
    fp8e4m3: Final = float8_e4m3
    fp8e5m2: Final = float8_e5m2

    default_float: Final = float32
    default_int: Final = int64
    all: ClassVar[tuple[DType, ...]] = (
        bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
        float8_e4m3, float8_e5m2, float16, bfloat16, float32, float64,
    )  # fmt: skip

    @staticmethod
    def is_float(dtype: DType) -> object:
        """Whether a dtype is a floating-point type."""
        return dtype.is_float

    @staticmethod
    def is_int(dtype: DType) -> object:
        """Whether a dtype is an integer type."""
        return dtype.is_int

    @staticmethod
    def is_unsigned(dtype: DType) -> object:
        """Whether a dtype is an unsigned integer type."""
        return dtype.is_unsigned

    @staticmethod
    def from_py(value: object) -> DType:
        """The dtype that a Python number has by itself: bool, int64 or float32."""
        if value.__class__ is True.__class__:
            return dtypes.bool
        return dtypes.default_float if isinstance(value, 0.0.__class__) else dtypes.default_int

    @staticmethod
    def from_numpy(numpy_dtype: object) -> DType:
        """The dtype of a NumPy array.

        Raises: DTypeError if there is none.
        """
        return _from_numpy(str(numpy_dtype))


_NAMES: Final = {dtype.name: dtype for dtype in dtypes.all}
_NUMPY: Final = {"float8_e4m3": "float8_e4m3fn"}
_ORDER: Final = {"bool": 0, "uint": 1, "int": 1, "float": 2}
_FLOATS: Final = (dtypes.float8_e4m3, dtypes.float8_e5m2, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def _by_name(name: str) -> DType:
    """The dtype of a name (for pickle)."""
    return _NAMES[name]


@cache
def _numpy_dtype(dtype: DType) -> np.dtype[np.generic]:
    """The NumPy dtype of a dtype."""
    import numpy as np

    if dtype.kind == "float" and not dtype.struct_code:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, _NUMPY.get(dtype.name, dtype.name)))
    return np.dtype(dtype.name)


@cache
def _from_numpy(name: str) -> DType:
    """The dtype whose NumPy name is `name`."""
    found = {_NUMPY.get(n, n): d for n, d in _NAMES.items()}.get(name)
    if found is None:
        raise DTypeError(f"dtype: no element type for NumPy's {name}; known are {', '.join(_NAMES)}. Convert it first?")
    return found


@cache
def promote(a: DType, b: DType) -> DType:
    """The dtype in which two tensors of dtypes a and b meet: PyTorch's lattice."""
    if a is b:
        return a
    first, second = _ORDER[a.kind], _ORDER[b.kind]
    if first != second:
        return a if first > second else b
    if a.kind == "float":
        if a.bits == b.bits:
            return dtypes.float32
        narrow, wide = sorted((a, b), key=lambda d: d.bits)
        return dtypes.float32 if narrow.bits == 8 and wide.bits == 8 else wide
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return {8: dtypes.int16, 16: dtypes.int32, 32: dtypes.int64, 64: dtypes.float32}[unsigned.bits]


@cache
def promote_weak(dtype: DType, scalar: type) -> DType:
    """The dtype in which a tensor meets a Python number: the tensor's, unless the number's category is higher."""
    if scalar is bool:
        return dtype
    if scalar is int:
        return dtypes.default_int if dtype.is_bool else dtype
    return dtype if dtype.is_float else dtypes.default_float
