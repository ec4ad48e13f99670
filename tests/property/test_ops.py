"""Every primitive elementwise op, for every dtype, equals NumPy at the edges: interpreted and in machine code."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401 -- gives NumPy its bfloat16
import numpy as np
import pytest
from llvmlite import binding

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.target import Target
from intaglio.ir.interpret import run_linear
from intaglio.ir.node import Op, make
from intaglio.ir.view import View
from intaglio.lower.kernel import lower
from intaglio.ops.elementwise import MUL_LOW, Bitcast, Cast, Elementwise, Sloped
from intaglio.ops.loop import sink, store
from intaglio.ops.memory import Param, window
from intaglio.render import llvm
from intaglio.runtime.compiler import host_target
from tests.unit.lower.running import compiler, function

if TYPE_CHECKING:
    from collections.abc import Callable

WORKING = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def values(dtype: DType) -> np.ndarray:
    """The numbers at which things go wrong."""
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_int:
        found = [0, 1, 2, 3, 7, 31, 32, 63, 64, 100, -1, -2, -7, -100, dtype.min, dtype.max, int(dtype.min) + 1]
        return np.array(sorted({dtype.wrap(v) for v in found}), dtype.numpy)
    found = [
        0.0,
        -0.0,
        1,
        -1,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3.75,
        -7,
        100,
        1e-3,
        3e4,
        math.inf,
        -math.inf,
        math.nan,
        2.0**-14,
    ]
    return np.array(found, np.float64).astype(dtype.numpy)


def shift(x: np.ndarray, y: np.ndarray, *, left: bool) -> np.ndarray:
    """Shifts by Python's integers; those out of range leave nothing, or the sign."""
    width = x.dtype.itemsize * 8
    out: list[int] = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if 0 <= b < width:
            out.append(a << b if left else a >> b)
        else:
            out.append(-1 if a < 0 and not left else 0)
    return np.array([v & ((1 << width) - 1) for v in out], f"uint{width}").view(x.dtype)


def by_zero(f: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Integer division, where a divisor of 0 gives 0."""
    return lambda x, y: np.where(y == 0, np.zeros_like(x), f(x, np.where(y == 0, np.ones_like(y), y)))


INTEGER: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "not": np.invert,
    "abs": np.abs,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floor_div": by_zero(np.floor_divide),
    "mod": by_zero(np.remainder),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": lambda x, y: shift(x, y, left=True),
    "shr": lambda x, y: shift(x, y, left=False),
}
FLOAT: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floor_div": np.floor_divide,
    "mod": np.remainder,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "copysign": np.copysign,
}
BOOL: dict[str, Callable[..., Any]] = {
    "not": np.logical_not,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "maximum": np.logical_or,
    "minimum": np.logical_and,
}
COMPARE: dict[str, Callable[..., Any]] = {"lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal}
NOT_HERE = {
    "cast",
    "bitcast",
    "where",
    "rarely",
    "ldexp",
    "mul_low",
    "fma",
    "library",
    "detach",
}  # tested below, with the functions that they are for, or nothing but their operand


def cases() -> list[tuple[str, DType]]:
    found: list[tuple[str, DType]] = []
    for dtype in (dtypes.bool, *dtypes.ints, *WORKING):
        table = BOOL if dtype.is_bool else INTEGER if dtype.is_int else FLOAT
        found += [(name, dtype) for name in (*table, *COMPARE)]
    return found


def compute(
    op: Op, out: DType, *arrays: np.ndarray, interpret: bool = False, target: Target | None = None
) -> np.ndarray:
    """An op on whole arrays, as one kernel."""
    result = np.zeros(arrays[0].shape, out.numpy)
    memory = [*arrays, result]
    pointers = [make(Param(k, dtypes.from_numpy(a.dtype), k)) for k, a in enumerate(memory)]
    windows = [window(View.contiguous(p.dtype, result.shape), p) for p in pointers]
    target = target or host_target(1)
    lowered = lower(sink(store(windows[-1], make(op, *windows[:-1]))), target)
    slots = np.array([a.ctypes.data for a in memory], np.uint64)
    if interpret:
        run_linear(lowered.linear, slots.tolist(), lowered.chunks)
    else:
        address, _ = compiler().load(llvm.render(lowered.linear, target), lowered.name)
        function(address, lowered.linear)(slots.ctypes.data, 0, lowered.chunks)
    return result


def operands(name: str, dtype: DType) -> list[np.ndarray]:
    """Every value, or every pair of values."""
    kind = Op.registry[name]
    assert issubclass(kind, Elementwise)
    single = values(dtype)
    if kind.arity == 1:
        return [single]
    return [np.repeat(single, len(single)), np.tile(single, len(single))]


def agree(got: np.ndarray, want: np.ndarray, name: str, arrays: list[np.ndarray]) -> None:
    """Equal, NaN as NaN."""
    x, y = got, want.astype(got.dtype)
    wrong = ~((x == y) | ((x != x) & (y != y)))
    assert not wrong.any(), f"{name}{[a[wrong][:4].tolist() for a in arrays]}: {x[wrong][:4]}, NumPy {y[wrong][:4]}"


@pytest.mark.parametrize("interpret", [True, False], ids=["PYTHON", "CPU"])
@pytest.mark.parametrize(("name", "dtype"), cases(), ids=lambda v: getattr(v, "name", v))
def test_a_primitive_op_equals_numpy(name: str, dtype: DType, interpret: bool) -> None:
    arrays = operands(name, dtype)
    table = {**(BOOL if dtype.is_bool else INTEGER if dtype.is_int else FLOAT), **COMPARE}
    with np.errstate(all="ignore"):
        if dtype in (dtypes.float16, dtypes.bfloat16) and name not in COMPARE:
            want = table[name](*(a.astype(np.float32) for a in arrays)).astype(dtype.numpy)
        else:
            want = table[name](*arrays)
    out = dtypes.bool if name in COMPARE else dtype
    agree(compute(Op.single(Op.registry[name]), out, *arrays, interpret=interpret), want, name, arrays)


def test_every_primitive_op_is_tested() -> None:
    names = {
        n
        for n, k in Op.registry.items()
        if issubclass(k, Elementwise)
        and k.primitive
        and not issubclass(k, Sloped)  # which others stand for
        and k.__module__.startswith("intaglio.")
    }
    assert names == {*INTEGER, *FLOAT, *BOOL, *COMPARE, *NOT_HERE}


@pytest.mark.parametrize("interpret", [True, False], ids=["PYTHON", "CPU"])
@pytest.mark.parametrize(
    "dtype", [dtypes.bool, dtypes.int8, dtypes.int64, dtypes.uint16, *WORKING], ids=lambda d: d.name
)
def test_where_chooses_bit_for_bit(dtype: DType, interpret: bool) -> None:
    x = values(dtype)
    condition = np.arange(len(x)) % 3 == 0
    got = compute(Op.single(Op.registry["where"]), dtype, condition, x, x[::-1].copy(), interpret=interpret)
    assert got.tobytes() == np.where(condition, x, x[::-1]).tobytes()


@pytest.mark.parametrize("interpret", [True, False], ids=["PYTHON", "CPU"])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_fma_rounds_once(dtype: DType, interpret: bool) -> None:
    small = 2.0 ** (-12 if dtype is dtypes.float32 else -27)
    large = float(np.finfo(dtype.numpy).max)
    x = np.array([1 + small, 3.0, math.inf, 0.0, large], dtype.numpy)
    z = np.array([-1 - 2 * small, 1.0, -math.inf, -0.0, 1.0], dtype.numpy)
    got = compute(Op.single(Op.registry["fma"]), dtype, x, x, z, interpret=interpret)
    agree(got, np.array([small * small, 10.0, math.nan, 0.0, math.inf], dtype.numpy), "fma", [x, z])


@pytest.mark.parametrize("way", ["PYTHON", "CPU", "no_fma"])
def test_what_a_product_loses_is_found(way: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(-2, 2, (2, 1001)) * 10.0 ** rng.integers(-100, 100, (2, 1001))
    here = host_target(1)
    target = replace(here, features=here.features - {"fma"}) if way == "no_fma" else here
    got = compute(MUL_LOW, dtypes.float64, x.copy(), y.copy(), interpret=way == "PYTHON", target=target)
    for a, b, low in zip(x.tolist(), y.tolist(), got.tolist(), strict=True):
        lost = Fraction(a) * Fraction(b) - Fraction(a * b)
        assert abs(Fraction(low) - lost) <= abs(lost) * Fraction(2) ** -40


def convert(x: np.ndarray, source: DType, target: DType) -> np.ndarray:
    """A cast as the semantics say, value by value."""
    return np.array([target.convert(v, source) for v in x.tolist()], target.numpy)


STORED = (*WORKING, dtypes.float8_e4m3, dtypes.float8_e5m2)


@pytest.mark.parametrize("interpret", [True, False], ids=["PYTHON", "CPU"])
@pytest.mark.parametrize("source", [dtypes.bool, *dtypes.ints, *STORED], ids=lambda d: d.name)
def test_casts_follow_the_rules_for_every_pair(source: DType, interpret: bool) -> None:
    x = values(source)
    if source.is_float and source.bits >= 32:
        extra = [2.0**31, -(2.0**31) - 1, 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 1e19, 300.7, -1.9, 65520.0, 449.0, 5e9]
        x = np.concatenate([x, np.array(extra, x.dtype)])
    for target in dtypes.all:
        if target is source:
            continue
        got = compute(Cast(target), target, x, interpret=interpret)
        want = convert(x.astype(np.float64) if source.is_float else x, source, target)
        agree(got, want, f"{source.name} to {target.name}", [x])


NARROW = (dtypes.bfloat16, dtypes.float16, dtypes.float8_e4m3, dtypes.float8_e5m2)


def without_half() -> Target:
    """This machine, as if it had no instruction for float16."""
    here = host_target(1)
    return replace(here, features=here.features - {"f16c", "neon"})


def codes(dtype: DType) -> np.ndarray:
    """Every value of a narrow float."""
    return np.arange(1 << dtype.bits, dtype=f"u{dtype.itemsize}").view(dtype.numpy)


def between(dtype: DType, wide: DType) -> np.ndarray:
    """Every number halfway between two values of a narrow float, its neighbours, and what is out of reach."""
    with np.errstate(all="ignore"):
        numbers = np.unique(codes(dtype).astype(np.float64))
    finite = numbers[np.isfinite(numbers)]
    middle = ((finite[1:] + finite[:-1]) / 2).astype(wide.numpy)
    found = [middle, np.nextafter(middle, wide.numpy.type(math.inf)), np.nextafter(middle, wide.numpy.type(-math.inf))]
    if wide is dtypes.float64:  # one that a float32 would take for the middle
        found += [middle * (1 + 2.0**-30), middle * (1 - 2.0**-30), np.array([1e308, -1e308, 5e-324])]
    return np.concatenate([*found, np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 3e38, -1e-45], wide.numpy)])


def same_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Equal in every bit, but that one NaN is as good as another."""
    nan = want != want
    assert np.array_equal(got != got, nan)
    assert got[~nan].tobytes() == want[~nan].tobytes()


@pytest.mark.parametrize("half", [True, False], ids=["", "no_half"])
@pytest.mark.parametrize("wide", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("narrow", NARROW, ids=lambda d: d.name)
def test_narrow_floats_are_rounded_once_to_even_at_every_tie(narrow: DType, wide: DType, half: bool) -> None:
    target = host_target(1) if half else without_half()
    x = between(narrow, wide)
    with np.errstate(all="ignore"):
        want, wanted = x.astype(narrow.numpy), codes(narrow).astype(wide.numpy)
    same_bits(compute(Cast(narrow), narrow, x, target=target), want)
    same_bits(compute(Cast(wide), wide, codes(narrow), target=target), wanted)


@pytest.mark.parametrize("wide", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("narrow", NARROW, ids=lambda d: d.name)
def test_no_cast_calls_the_runtime_of_a_c_compiler(narrow: DType, wide: DType) -> None:
    """It is not in every process: LLVM must find an instruction for each step on the plainest of machines."""
    pointers = [make(Param(0, wide, 0)), make(Param(1, narrow, 1)), make(Param(2, wide, 2))]
    x, y, z = (window(View.contiguous(p.dtype, (100,)), p) for p in pointers)
    stores = (store(y, make(Cast(narrow), x)), store(z, make(Cast(wide), y)))
    lowered = lower(sink(*stores), Target("x86_64", 16))
    triple = binding.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = triple.create_target_machine(cpu="x86-64", features="", opt=2)
    module = binding.parse_assembly(llvm.render(lowered.linear, Target("x86_64", 16)))
    assert "call" not in machine.emit_assembly(module)


@pytest.mark.parametrize("interpret", [True, False], ids=["PYTHON", "CPU"])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        (dtypes.float32, dtypes.int32),
        (dtypes.uint16, dtypes.bfloat16),
        (dtypes.float64, dtypes.uint64),
        (dtypes.int8, dtypes.uint8),
    ],
    ids=lambda d: d.name,
)
def test_bitcasts_keep_bits(source: DType, target: DType, interpret: bool) -> None:
    x = values(source)
    with np.errstate(invalid="ignore"):
        seen = x.view(target.numpy).astype(np.float64)
    kept = (
        x[~np.isnan(x.astype(np.float64)) & ~np.isnan(seen)] if interpret else x
    )  # the interpreter's numbers have one NaN
    assert compute(Bitcast(target), target, kept, interpret=interpret).tobytes() == kept.tobytes()
