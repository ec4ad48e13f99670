"""Elementwise ops: each gives a stated value for all operands, and none traps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import InternalError
from intaglio.ops.elementwise import Bitcast, Cast, Library, Where
from intaglio.render.llvm.casts import Casts
from intaglio.render.llvm.text import PLACES

if TYPE_CHECKING:
    from intaglio.ir.node import Node

INTEGER: Final = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
FLOAT: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
INTRINSIC: Final = {
    "sqrt": "sqrt",
    "abs": "fabs",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "roundeven",
}
COMPARE: Final = {
    "lt": ("olt", "slt", "ult"),
    "le": ("ole", "sle", "ule"),
    "eq": ("oeq", "eq", "eq"),
    "ne": ("une", "ne", "ne"),
}


class Arithmetic(Casts):
    """The text of a function that calculates."""

    def elementwise(self, node: Node) -> str:
        """One elementwise op."""
        op = node.op
        shape = node.shape
        match op:
            case Cast(to=to):
                return self.cast(self.value(node.src[0]), node.src[0].dtype, to, shape)
            case Bitcast(to=to):
                (x,) = node.src
                a, b = self.type(x.dtype, shape), self.type(to, shape)
                if x.dtype.is_bool or to.is_bool:
                    return self.cast(self.value(x), x.dtype, to, shape)
                return self.value(x) if a == b else self.fresh(f"bitcast {a} {self.value(x)} to {b}")
            case Library(function=function):
                return self.library(function, shape, [self.value(s, shape) for s in node.src])
            case _:
                pass
        values = [self.value(s, shape) for s in node.src]
        if isinstance(op, Where):
            kind = self.type(node.dtype, shape)
            return self.fresh(
                f"select {self.type(dtypes.bool, shape)} {values[0]}, {kind} {values[1]}, {kind} {values[2]}"
            )
        return self.plain(op.name, node.src[0].dtype, shape, values)

    def plain(self, name: str, dtype: DType, shape: tuple[int, ...], values: list[str]) -> str:
        """An op on values of one dtype; narrow floats are computed in float32, each result rounded."""
        if dtype in PLACES:
            wide = [self.cast(v, dtype, dtypes.float32, shape) for v in values]
            result = self.plain(name, dtypes.float32, shape, wide)
            return result if name in COMPARE else self.cast(result, dtypes.float32, dtype, shape)
        kind = self.type(dtype, shape)
        if name in COMPARE:
            ordered, signed, unsigned = COMPARE[name]
            if dtype.is_float:
                return self.fresh(f"fcmp {ordered} {kind} {values[0]}, {values[1]}")
            return self.fresh(f"icmp {signed if dtype.kind == 'int' else unsigned} {kind} {values[0]}, {values[1]}")
        if name in ("maximum", "minimum"):
            return self.extreme(name == "maximum", dtype, shape, *values)
        if dtype.is_float:
            return self.floating(name, dtype, shape, values)
        return self.integral(name, dtype, shape, values)

    def extreme(self, largest: bool, dtype: DType, shape: tuple[int, ...], a: str, b: str) -> str:
        """The larger or smaller of two; NaN if either is."""
        kind, flag = self.type(dtype, shape), self.type(dtypes.bool, shape)
        if dtype.is_float:
            wins = self.fresh(f"fcmp {'ogt' if largest else 'olt'} {kind} {a}, {b}")
            best = self.fresh(f"select {flag} {wins}, {kind} {a}, {kind} {b}")
            odd = self.fresh(f"fcmp uno {kind} {a}, {a}")
            return self.fresh(f"select {flag} {odd}, {kind} {a}, {kind} {best}")
        sign = "s" if dtype.kind == "int" else "u"
        wins = self.fresh(f"icmp {sign}{'gt' if largest else 'lt'} {kind} {a}, {b}")
        return self.fresh(f"select {flag} {wins}, {kind} {a}, {kind} {b}")

    def floating(self, name: str, dtype: DType, shape: tuple[int, ...], values: list[str]) -> str:
        """An op on floats."""
        kind = self.type(dtype, shape)
        suffix = self.suffix(dtype, shape)
        if name in FLOAT:
            return self.fresh(f"{FLOAT[name]} {kind} {values[0]}, {values[1]}")
        if name == "neg":
            return self.fresh(f"fneg {kind} {values[0]}")
        if name in INTRINSIC:
            return self.fresh(self.intrinsic(f"llvm.{INTRINSIC[name]}.{suffix}", kind, (kind, values[0])))
        if name == "fma":
            if self.target.has_fma:
                return self.fresh(self.intrinsic(f"llvm.fma.{suffix}", kind, *((kind, v) for v in values)))
            product = self.fresh(f"fmul {kind} {values[0]}, {values[1]}")
            return self.fresh(f"fadd {kind} {product}, {values[2]}")
        if name == "copysign":
            return self.fresh(self.intrinsic(f"llvm.copysign.{suffix}", kind, (kind, values[0]), (kind, values[1])))
        if name == "ldexp":
            return self.ldexp(dtype, shape, *values)
        if name == "mul_low":
            return self.mul_low(shape, *values)
        if name == "mod":
            return self.float_mod(dtype, shape, values[0], values[1])[0]
        if name == "floor_div":
            return self.float_mod(dtype, shape, values[0], values[1])[1]
        raise InternalError(f"llvm: no spelling of {name} for {dtype.name}")

    def ldexp(self, dtype: DType, shape: tuple[int, ...], x: str, n: str) -> str:
        """A float by a power of two: one instruction of AVX-512, else in two steps, so that neither overflows."""
        lanes, places = 512 // dtype.bits, dtype.mantissa
        real, word = self.type(dtype, shape), dtypes.int32 if dtype.bits == 32 else dtypes.int64
        if "avx512f" in self.target.features and shape == (lanes,):
            name = f"llvm.x86.avx512.mask.scalef.{'ps' if dtype.bits == 32 else 'pd'}.512"
            given = ((real, x), (real, n), (real, "zeroinitializer"), (f"i{lanes}", "-1"), ("i32", "4"))
            return self.fresh(self.intrinsic(name, real, *given))

        def number(value: float) -> str:
            return self.splat(dtype, value, shape)

        flags, least = self.type(dtypes.bool, shape), number(-dtype.bias - places)
        gone, odd = (self.fresh(f"fcmp {test} {real} {n}, {least}") for test in ("olt", "ult"))  # or NaN, as x is then
        none = self.fresh(f"fmul {real} {x}, {number(0.0)}")
        x = self.fresh(f"select {flags} {gone}, {real} {none}, {real} {x}")  # denormals are slow
        n = self.fresh(f"select {flags} {odd}, {real} {number(0.0)}, {real} {n}")
        whole = number(1.5 * 2.0**places)  # a number added to it is whole in its last bits: two's complement
        half = self.fresh(f"fadd {real} {self.fresh(f'fmul {real} {n}, {number(0.5)}')}, {whole}")
        rest = self.fresh(f"fsub {real} {n}, {self.fresh(f'fsub {real} {half}, {whole}')}")
        for part in (half, self.fresh(f"fadd {real} {rest}, {whole}")):
            pattern = self.fresh(f"bitcast {real} {part} to {self.type(word, shape)}")
            field = self.fresh(f"add {self.type(word, shape)} {pattern}, {self.splat(word, dtype.bias, shape)}")
            field = self.fresh(f"shl {self.type(word, shape)} {field}, {self.splat(word, places, shape)}")
            x = self.fresh(f"fmul {real} {x}, {self.fresh(f'bitcast {self.type(word, shape)} {field} to {real}')}")
        return x

    def mul_low(self, shape: tuple[int, ...], x: str, y: str) -> str:
        """What a product of float64 loses by rounding: by a fused multiply-add, else from the products of halves.

        Source: Dekker, A floating-point technique for extending the available precision, 1971.
        """
        kind = self.type(dtypes.float64, shape)

        def do(op: str, a: str, b: str) -> str:
            return self.fresh(f"f{op} {kind} {a}, {b}")

        product = do("mul", x, y)
        if self.target.has_fma:
            return self.floating("fma", dtypes.float64, shape, [x, y, self.fresh(f"fneg {kind} {product}")])
        word = self.type(dtypes.int64, shape)
        upper = self.splat(dtypes.int64, -1 << 27, shape)  # half of the digits, rounded: products of halves are exact
        half = self.splat(dtypes.int64, 1 << 26, shape)

        def halves(value: str) -> tuple[str, str]:
            pattern = self.fresh(f"add {word} {self.fresh(f'bitcast {kind} {value} to {word}')}, {half}")
            pattern = self.fresh(f"and {word} {pattern}, {upper}")
            high = self.fresh(f"bitcast {word} {pattern} to {kind}")
            return high, do("sub", value, high)

        (a, b), (c, d) = halves(x), halves(y)
        lost = do("sub", do("mul", a, c), product)
        lost = do("add", do("add", lost, do("mul", a, d)), do("mul", b, c))
        return do("add", lost, do("mul", b, d))

    def float_mod(self, dtype: DType, shape: tuple[int, ...], x: str, y: str) -> tuple[str, str]:
        """The remainder with the divisor's sign, and the floored quotient, as NumPy computes them."""
        kind, flag = self.type(dtype, shape), self.type(dtypes.bool, shape)
        zero = "zeroinitializer" if shape else self.literal(dtype, 0.0)

        def choose(condition: str, a: str, b: str) -> str:
            return self.fresh(f"select {flag} {condition}, {kind} {a}, {kind} {b}")

        rest = self.fresh(f"frem {kind} {x}, {y}")
        some = self.fresh(f"fcmp une {kind} {rest}, {zero}")
        below = self.fresh(f"fcmp olt {kind} {rest}, {zero}")
        negative = self.fresh(f"fcmp olt {kind} {y}, {zero}")
        differ = self.fresh(f"and {flag} {self.fresh(f'xor {flag} {below}, {negative}')}, {some}")
        moved = choose(differ, self.fresh(f"fadd {kind} {rest}, {y}"), rest)
        suffix = self.suffix(dtype, shape)
        signed = self.fresh(self.intrinsic(f"llvm.copysign.{suffix}", kind, (kind, zero), (kind, y)))
        remainder = choose(some, moved, signed)
        plain = self.fresh(f"fdiv {kind} {x}, {y}")
        quotient = self.fresh(f"fdiv {kind} {self.fresh(f'fsub {kind} {x}, {rest}')}, {y}")
        one = self.splat(dtype, 1.0, shape)
        quotient = choose(differ, self.fresh(f"fsub {kind} {quotient}, {one}"), quotient)
        low = self.fresh(self.intrinsic(f"llvm.floor.{suffix}", kind, (kind, quotient)))
        far = self.fresh(
            f"fcmp ogt {kind} {self.fresh(f'fsub {kind} {quotient}, {low}')}, {self.splat(dtype, 0.5, shape)}"
        )
        low = choose(far, self.fresh(f"fadd {kind} {low}, {one}"), low)
        nothing = self.fresh(f"fcmp oeq {kind} {quotient}, {zero}")
        low = choose(
            nothing, self.fresh(self.intrinsic(f"llvm.copysign.{suffix}", kind, (kind, zero), (kind, plain))), low
        )
        by_zero = self.fresh(f"fcmp oeq {kind} {y}, {zero}")
        return remainder, choose(by_zero, plain, low)

    def library(self, name: str, shape: tuple[int, ...], values: list[str]) -> str:
        """A function of the C library, lane by lane."""
        if not shape:
            return self.fresh(self.intrinsic(name, "double", *(("double", v) for v in values)))
        kind = self.type(dtypes.float64, shape)
        result = "poison"
        for lane in range(shape[0]):
            one = [self.fresh(f"extractelement {kind} {v}, i32 {lane}") for v in values]
            done = self.fresh(self.intrinsic(name, "double", *(("double", v) for v in one)))
            result = self.fresh(f"insertelement {kind} {result}, double {done}, i32 {lane}")
        return result

    def integral(self, name: str, dtype: DType, shape: tuple[int, ...], values: list[str]) -> str:
        """An op on integers or bools."""
        kind, flag = self.type(dtype, shape), self.type(dtypes.bool, shape)
        x = values[0]
        if dtype.is_bool:
            name = {"add": "or", "mul": "and", "sub": "xor"}.get(name, name)
        if name in INTEGER:
            return self.fresh(f"{INTEGER[name]} {kind} {x}, {values[1]}")
        zero = self.splat(dtype, 0, shape)
        match name:
            case "neg":
                return self.fresh(f"sub {kind} {zero}, {x}")
            case "not":
                return self.fresh(f"xor {kind} {x}, {self.splat(dtype, True if dtype.is_bool else -1, shape)}")
            case "abs":
                if dtype.kind != "int":
                    return x
                below = self.fresh(f"icmp slt {kind} {x}, {zero}")
                return self.fresh(f"select {flag} {below}, {kind} {self.fresh(f'sub {kind} {zero}, {x}')}, {kind} {x}")
            case "floor" | "ceil" | "trunc" | "round":
                return x
            case "floor_div" | "mod":
                return self.divide(name, dtype, shape, x, values[1])
            case "shl" | "shr":
                return self.shift(name, dtype, shape, x, values[1])
            case _:
                raise InternalError(f"llvm: no spelling of {name} for {dtype.name}")

    def divide(self, name: str, dtype: DType, shape: tuple[int, ...], x: str, y: str) -> str:
        """A floored quotient or its remainder; by zero 0, and never a trap."""
        kind, flag = self.type(dtype, shape), self.type(dtypes.bool, shape)
        zero, one = self.splat(dtype, 0, shape), self.splat(dtype, 1, shape)
        known = int(y) if y.lstrip("-").isdigit() else None
        if known and known > 0 and known & (known - 1) == 0:
            if name == "mod":
                return self.fresh(f"and {kind} {x}, {known - 1}")
            return self.fresh(f"{'ashr' if dtype.kind == 'int' else 'lshr'} {kind} {x}, {known.bit_length() - 1}")
        by_zero = ""
        divisor = y
        if known is None or known <= 0:
            by_zero = self.fresh(f"icmp eq {kind} {y}, {zero}")
            unsafe = by_zero
            if dtype.kind == "int":
                minus = self.fresh(f"icmp eq {kind} {y}, {self.splat(dtype, -1, shape)}")
                unsafe = self.fresh(f"or {flag} {by_zero}, {minus}")
            divisor = self.fresh(f"select {flag} {unsafe}, {kind} {one}, {kind} {y}")
        if dtype.kind == "uint":
            result = self.fresh(f"{'udiv' if name == 'floor_div' else 'urem'} {kind} {x}, {divisor}")
        else:
            quotient = self.fresh(f"sdiv {kind} {x}, {divisor}")
            rest = self.fresh(f"sub {kind} {x}, {self.fresh(f'mul {kind} {quotient}, {divisor}')}")
            some = self.fresh(f"icmp ne {kind} {rest}, {zero}")
            differ = self.fresh(f"icmp slt {kind} {self.fresh(f'xor {kind} {rest}, {divisor}')}, {zero}")
            down = self.fresh(f"and {flag} {some}, {differ}")
            if name == "floor_div":
                result = self.fresh(
                    f"select {flag} {down}, {kind} {self.fresh(f'sub {kind} {quotient}, {one}')}, {kind} {quotient}"
                )
                if known is None or known < 0:
                    minus = self.fresh(f"icmp eq {kind} {y}, {self.splat(dtype, -1, shape)}")
                    result = self.fresh(
                        f"select {flag} {minus}, {kind} {self.fresh(f'sub {kind} {zero}, {x}')}, {kind} {result}"
                    )
            else:
                result = self.fresh(
                    f"select {flag} {down}, {kind} {self.fresh(f'add {kind} {rest}, {divisor}')}, {kind} {rest}"
                )
        if by_zero:
            result = self.fresh(f"select {flag} {by_zero}, {kind} {zero}, {kind} {result}")
        return result

    def shift(self, name: str, dtype: DType, shape: tuple[int, ...], x: str, y: str) -> str:
        """A shift; by the width or more (or less than 0) 0 is left, or -1 of negative numbers to the right."""
        kind, flag = self.type(dtype, shape), self.type(dtypes.bool, shape)
        zero = self.splat(dtype, 0, shape)
        fits = self.fresh(f"icmp ult {kind} {y}, {self.splat(dtype, dtype.bits, shape)}")
        count = self.fresh(f"select {flag} {fits}, {kind} {y}, {kind} {zero}")
        op = "shl" if name == "shl" else "ashr" if dtype.kind == "int" else "lshr"
        done = self.fresh(f"{op} {kind} {x}, {count}")
        rest = zero
        if op == "ashr":
            rest = self.fresh(f"ashr {kind} {x}, {self.splat(dtype, dtype.bits - 1, shape)}")
        return self.fresh(f"select {flag} {fits}, {kind} {done}, {kind} {rest}")
