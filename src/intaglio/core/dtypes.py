"""Element types: their ranges, bit patterns, conversions and promotion."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

from intaglio.core.errors import DTypeError
from intaglio.core.words import meant

if TYPE_CHECKING:
    import numpy as np

Number = int | float | bool
Kind = Literal["bool", "int", "uint", "float"]
Flag = bool  # what `bool` means inside `dtypes`
DTypeLike: TypeAlias = "DType | str | type | np.dtype[np.generic]"  # a dtype, its name, or what NumPy has for it


@dataclass(frozen=True, eq=False, slots=True)
class DType:
    """One element type. There is one object for each, compared by identity.

    `exponent` and `mantissa` are the bits of a float's two fields (0 for other kinds); `struct_code` is empty where
    `struct` has none. `min` and `max` are infinite for floats (`largest` is their highest finite value).

    Examples:
        >>> dtypes.int8.itemsize, dtypes.int8.min, dtypes.int8.max, dtypes.float16.largest
        (1, -128, 127, 65504.0)
    """

    name: str
    kind: Kind
    bits: int
    exponent: int = 0
    mantissa: int = 0
    struct_code: str = ""
    itemsize: int = field(init=False)  # bytes of one element in memory
    is_float: bool = field(init=False)
    is_int: bool = field(init=False)  # signed or not
    is_unsigned: bool = field(init=False)
    is_bool: bool = field(init=False)
    min: Number = field(init=False)
    max: Number = field(init=False)

    def __post_init__(self) -> None:
        """Fill in what follows from the kind and the width."""
        limits: dict[Kind, tuple[Number, Number]] = {
            "bool": (False, True),
            "int": (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1),
            "uint": (0, (1 << self.bits) - 1),
            "float": (-math.inf, math.inf),
        }
        derived = {
            "itemsize": self.bits // 8,
            "is_float": self.kind == "float",
            "is_int": self.kind in ("int", "uint"),
            "is_unsigned": self.kind == "uint",
            "is_bool": self.kind == "bool",
            "min": limits[self.kind][0],
            "max": limits[self.kind][1],
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

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
        if self.is_float:
            return self._round(value)
        if self.is_bool:
            return value != 0
        if isinstance(value, float):
            return self.convert(value, dtypes.float64)
        masked = int(value) & ((1 << self.bits) - 1)
        return masked - (1 << self.bits) if self.kind == "int" and masked >> (self.bits - 1) else masked

    def _round(self, value: Number) -> float:
        """The nearest value of this float type; overflow gives an infinity (NaN in e4m3, which has none)."""
        value = self._widen(value) if isinstance(value, int) else value
        if self.bits == 64 or value == 0.0 or value != value:
            return float(value)
        if math.isinf(value):
            return math.nan if self is dtypes.float8_e4m3 else value
        if self.struct_code:
            try:
                return struct.unpack("<" + self.struct_code, struct.pack("<" + self.struct_code, value))[0]
            except OverflowError:
                return math.copysign(math.inf, value)
        _, power = math.frexp(value)
        if power > self.bias + 2:  # beyond every format; the rest is judged after rounding
            return math.nan if self is dtypes.float8_e4m3 else math.copysign(math.inf, value)
        least = max(power - 1, 1 - self.bias) - self.mantissa
        rounded = math.ldexp(float(round(math.ldexp(value, -least))), least)
        if rounded == 0.0:
            return math.copysign(0.0, value)
        if abs(rounded) > self.largest:
            return math.nan if self is dtypes.float8_e4m3 else math.copysign(math.inf, value)
        return rounded

    def _widen(self, value: int) -> float:
        """The double nearest to an integer, moved off the halfway points of this type that it does not lie on.

        Rounding the result to this type is then rounding the integer once.
        """
        try:
            wide = float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
        if self.bits == 64 or -(1 << 53) <= value <= 1 << 53 or int(wide) == value:
            return wide
        _, power = math.frexp(wide)
        if math.ldexp(wide, self.mantissa + 2 - power) % 2 != 1:
            return wide
        return math.nextafter(wide, math.inf if value > int(wide) else -math.inf)

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


class dtypes:  # noqa: N801 -- the name that PyTorch and tinygrad users know
    """All element types, under their names and usual aliases.

    Examples:
        >>> dtypes.float is dtypes.float32, dtypes.of("int16")
        (True, dtypes.int16)
    """

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
    ints: ClassVar[tuple[DType, ...]] = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
    floats: ClassVar[tuple[DType, ...]] = (float8_e4m3, float8_e5m2, float16, bfloat16, float32, float64)
    all: ClassVar[tuple[DType, ...]] = (bool, *ints, *floats)  # noqa: A003 -- the field's word

    @staticmethod
    def is_float(dtype: DType) -> Flag:
        """Whether a dtype is a floating-point type."""
        return dtype.is_float

    @staticmethod
    def is_int(dtype: DType) -> Flag:
        """Whether a dtype is an integer type."""
        return dtype.is_int

    @staticmethod
    def is_unsigned(dtype: DType) -> Flag:
        """Whether a dtype is an unsigned integer type."""
        return dtype.is_unsigned

    @staticmethod
    def from_py(value: object) -> DType:
        """The dtype that a Python number has by itself: bool, int64 or float32.

        Raises: DTypeError if it is no bool, int or float.
        """
        return _dtype_of_number(value)

    @staticmethod
    def of(dtype: DTypeLike | None, default: DType | None = None, name: str = "dtypes.of") -> DType:
        """A dtype itself; the one that a name or NumPy's own dtype stands for; `default` for None.

        Raises: DTypeError if it stands for none, which says that `name` was given it.
        Examples:
            >>> dtypes.of("int16") is dtypes.int16, dtypes.of(None, dtypes.float32) is dtypes.float32
            (True, True)
        """
        if dtype is None and default is not None:
            return default
        return dtype if isinstance(dtype, DType) else _NAMES.get(str(dtype)) or dtypes.from_numpy(dtype, name)

    @staticmethod
    def from_numpy(numpy_dtype: object, name: str = "dtypes.from_numpy") -> DType:
        """The dtype of a NumPy array's dtype (or of anything that NumPy takes for one).

        Raises: DTypeError if there is none, or its bytes are swapped; it says that `name` was given it.
        """
        return _from_numpy(str(numpy_dtype)) or _from_numpy_like(numpy_dtype, name)


_NAMES: Final = {dtype.name: dtype for dtype in dtypes.all}
_NUMPY: Final = {"float8_e4m3": "float8_e4m3fn"}
_ORDER: Final = {"bool": 0, "uint": 1, "int": 1, "float": 2}


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
def _from_numpy(name: str) -> DType | None:
    """The dtype whose NumPy name is `name`."""
    return {_NUMPY.get(n, n): d for n, d in _NAMES.items()}.get(name)


def _from_numpy_like(numpy_dtype: object, name: str) -> DType:
    """The dtype of what only NumPy understands (`np.float32`, "f4", "<i8", float), for a named op."""
    import numpy as np

    known: np.dtype[np.generic] | None = None
    try:
        if numpy_dtype is not None:  # of which NumPy makes float64
            known = np.dtype(numpy_dtype)  # pyright: ignore[reportArgumentType, reportCallIssue] -- any object
    except (TypeError, ValueError, SyntaxError, DeprecationWarning):  # a warning where warnings are errors
        pass
    found = _from_numpy(known.name) if known is not None else None
    if found is not None and known is not None and known.isnative:
        return found
    if isinstance(numpy_dtype, np.dtype):
        hint = f' Convert the array with .astype("{found.name if found is not None else "float32"}") first?'
    elif found is not None:
        hint = f' Is "{found.name}" meant?'
    else:
        hint = meant(numpy_dtype, _NAMES) or " Use one of these?"
    got = repr(numpy_dtype) if isinstance(numpy_dtype, str) else f"{numpy_dtype}"
    raise DTypeError(
        f"{name}: the dtype must be one of {', '.join(_NAMES)}, or NumPy's, in native byte order; got {got}.{hint}"
    )


def _dtype_of_number(value: object) -> DType:
    """The dtype of a number by itself; NumPy's numbers that are no Python numbers have their own."""
    if isinstance(value, bool):
        return dtypes.bool
    if isinstance(value, int):
        return dtypes.default_int
    if isinstance(value, float):
        return dtypes.default_float
    own = getattr(value, "dtype", None)
    if own is not None:
        return dtypes.from_numpy(own)
    raise DTypeError(
        f"dtype: a number must be a bool, int or float; got {type(value).__name__}. Convert it with float(...)?"
    )


@cache
def promote(a: DType, b: DType) -> DType:
    """The dtype in which two tensors meet.

    PyTorch's lattice, which refuses uint16 to uint64 and the 8-bit floats; here an unsigned type meets a signed one in
    the narrowest signed type that holds both (uint64 in the default float), and two 8-bit floats meet in float32.
    """
    if a is b:
        return a
    if _ORDER[a.kind] != _ORDER[b.kind]:
        return a if _ORDER[a.kind] > _ORDER[b.kind] else b
    if a.is_float:
        return dtypes.float32 if a.bits == b.bits else _wider(a, b)
    if a.kind == b.kind:
        return _wider(a, b)
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return {8: dtypes.int16, 16: dtypes.int32, 32: dtypes.int64, 64: dtypes.default_float}[unsigned.bits]


def _wider(a: DType, b: DType) -> DType:
    """The one with more bits."""
    return a if a.bits > b.bits else b


@cache
def promote_weak(dtype: DType, scalar: type) -> DType:
    """The dtype in which a tensor meets a Python number: the tensor's, unless the number's category is higher."""
    if issubclass(scalar, bool):
        return dtype
    if issubclass(scalar, int):
        return dtypes.default_int if dtype.is_bool else dtype
    if issubclass(scalar, float):
        return dtype if dtype.is_float else dtypes.default_float
    raise DTypeError(
        f"dtype: a number must be a bool, int or float; got {scalar.__name__}. Convert it with float(...)?"
    )


@cache
def promote_scalar(dtype: DType, scalar: DType) -> DType:
    """The dtype in which a tensor with axes meets one without: its own, unless the other's category is higher."""
    return promote(dtype, scalar) if _ORDER[scalar.kind] > _ORDER[dtype.kind] else dtype


def result_type(*operands: DType | Number) -> DType:
    """The dtype in which tensors (given by dtype) and Python numbers meet; numbers are weak.

    Raises: DTypeError if there is no operand, or one is no dtype, bool, int or float.
    """
    strong = [operand for operand in operands if isinstance(operand, DType)]
    weak = [operand for operand in operands if not isinstance(operand, DType)]
    if not strong:
        if not weak:
            raise DTypeError("result_type: there must be an operand; got none. Give a dtype or a number?")
        return max((_dtype_of_number(number) for number in weak), key=lambda dtype: _ORDER[dtype.kind])
    found = strong[0]
    for dtype in strong[1:]:
        found = promote(found, dtype)
    for number in weak:
        found = promote_weak(found, type(number))
    return found
