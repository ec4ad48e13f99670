"""Conversions between dtypes, with every value at the edges stated; floats of 8 and 16 bits by their codes."""

from __future__ import annotations

from intaglio.core.dtypes import DType, dtypes
from intaglio.render.llvm.text import PLACES, Text


class Casts(Text):
    """The text of a function that converts."""

    def cast(self, x: str, source: DType, to: DType, shape: tuple[int, ...]) -> str:
        """A value as another dtype."""
        if source is to:
            return x
        a, b = self.type(source, shape), self.type(to, shape)
        if self.is_coded(source):
            wide = self.from_narrow(x, source, shape)
            return self.cast(wide, dtypes.float32, to, shape)
        if self.is_coded(to):
            odd = to is dtypes.float16 and source is dtypes.float64
            single = self.odd_single(x, shape) if odd else self.cast(x, source, dtypes.float32, shape)
            return self.to_narrow(single, to, shape)
        if to.is_bool:
            zero = "zeroinitializer" if shape else self.literal(source, 0)
            return self.fresh(f"{'fcmp une' if source.is_float else 'icmp ne'} {a} {x}, {zero}")
        if source.is_float and to.is_float:
            if to is dtypes.float16 and source is dtypes.float64:
                return self.cast(self.odd_single(x, shape), dtypes.float32, to, shape)
            return self.fresh(f"{'fpext' if to.bits > source.bits else 'fptrunc'} {a} {x} to {b}")
        if source.is_float:
            if source in PLACES:
                return self.cast(self.cast(x, source, dtypes.float32, shape), dtypes.float32, to, shape)
            return self.to_integer(x, source, to, shape)
        unsigned = source.kind != "int"
        if to.is_float:
            if to in PLACES:
                return self.cast(self.cast(x, source, dtypes.float32, shape), dtypes.float32, to, shape)
            return self.fresh(f"{'uitofp' if unsigned else 'sitofp'} {a} {x} to {b}")
        if self.bits(source) == to.bits:
            return x
        word = "trunc" if to.bits < self.bits(source) else "zext" if unsigned else "sext"
        return self.fresh(f"{word} {a} {x} to {b}")

    def bits(self, dtype: DType) -> int:
        """The width in a register."""
        return 1 if dtype.is_bool else dtype.bits

    def to_integer(self, x: str, source: DType, to: DType, shape: tuple[int, ...]) -> str:
        """A float truncated; out of range, the lowest integer of the width that it goes through."""
        through = dtypes.int32 if to.bits < 32 or to is dtypes.int32 else dtypes.int64
        kind, flag, whole = self.type(source, shape), self.type(dtypes.bool, shape), self.type(through, shape)
        zero = "zeroinitializer" if shape else self.literal(source, 0.0)
        limit = float(1 << (through.bits - 1))
        # float64 holds -2**31 - 0.5, which truncates into range; the narrower floats have nothing between there.
        low = -limit - 1.0 if source is dtypes.float64 and through is dtypes.int32 else -limit
        above = self.fresh(f"fcmp {'ogt' if low != -limit else 'oge'} {kind} {x}, {self.splat(source, low, shape)}")
        below = self.fresh(f"fcmp olt {kind} {x}, {self.splat(source, limit, shape)}")
        inside = self.fresh(f"and {flag} {above}, {below}")
        safe = self.fresh(f"select {flag} {inside}, {kind} {x}, {kind} {zero}")
        result = self.fresh(f"fptosi {kind} {safe} to {whole}")
        result = self.fresh(
            f"select {flag} {inside}, {whole} {result}, {whole} {self.splat(through, through.min, shape)}"
        )
        if to is dtypes.uint64:
            high = self.fresh(f"fcmp olt {kind} {x}, {self.splat(source, 2.0**64, shape)}")
            large = self.fresh(f"fcmp oge {kind} {x}, {self.splat(source, limit, shape)}")
            both = self.fresh(f"and {flag} {high}, {large}")
            fits = self.fresh(f"select {flag} {both}, {kind} {x}, {kind} {zero}")
            upper = self.fresh(f"fptoui {kind} {fits} to {whole}")
            return self.fresh(f"select {flag} {both}, {whole} {upper}, {whole} {result}")
        return self.cast(result, through, to, shape) if through.bits != to.bits else result

    def from_narrow(self, x: str, source: DType, shape: tuple[int, ...]) -> str:
        """A float of 8 or 16 bits as float32: its bits moved up, then scaled."""
        shift, scale, top = PLACES[source]
        word, real, flag = (
            self.type(dtypes.int32, shape),
            self.type(dtypes.float32, shape),
            self.type(dtypes.bool, shape),
        )

        def number(n: int) -> str:
            return self.splat(dtypes.int32, n, shape)

        wide = self.fresh(f"zext {self.type(source, shape)} {x} to {word}")
        if not scale:
            return self.fresh(f"bitcast {word} {self.fresh(f'shl {word} {wide}, {number(shift)}')} to {real}")
        magnitude = self.fresh(f"and {word} {wide}, {number((1 << (source.bits - 1)) - 1)}")
        bits = self.fresh(f"shl {word} {magnitude}, {number(shift)}")
        value = self.fresh(
            f"fmul {real} {self.fresh(f'bitcast {word} {bits} to {real}')}, "
            f"{self.splat(dtypes.float32, 2.0**scale, shape)}"
        )
        if source is not dtypes.float8_e4m3:  # which has no infinity
            endless = self.fresh(f"icmp eq {word} {magnitude}, {number(top)}")
            value = self.fresh(
                f"select {flag} {endless}, {real} {self.splat(dtypes.float32, float('inf'), shape)}, {real} {value}"
            )
        odd = self.fresh(f"icmp {'eq' if source is dtypes.float8_e4m3 else 'sgt'} {word} {magnitude}, {number(top)}")
        value = self.fresh(
            f"select {flag} {odd}, {real} {self.splat(dtypes.float32, float('nan'), shape)}, {real} {value}"
        )
        sign = self.fresh(f"shl {word} {wide}, {number(32 - source.bits)}")
        signed = self.fresh(f"bitcast {word} {sign} to {real}")
        return self.fresh(
            self.intrinsic(f"llvm.copysign.{self.suffix(dtypes.float32, shape)}", real, (real, value), (real, signed))
        )

    def to_narrow(self, x: str, to: DType, shape: tuple[int, ...]) -> str:
        """A float32 as a float of 8 or 16 bits, rounded once, halves to even: scaled down, then cut at its last bit."""
        shift, scale, top = PLACES[to]
        word, real, flag = (
            self.type(dtypes.int32, shape),
            self.type(dtypes.float32, shape),
            self.type(dtypes.bool, shape),
        )

        def number(n: int) -> str:
            return self.splat(dtypes.int32, n, shape)

        bits = self.fresh(f"bitcast {real} {x} to {word}")
        shifted = self.fresh(f"lshr {word} {bits}, {number(32 - to.bits)}")
        sign = self.fresh(f"and {word} {shifted}, {number(1 << (to.bits - 1))}")
        raw = self.fresh(f"and {word} {bits}, {number(0x7FFFFFFF)}")
        if scale:
            plain = self.fresh(f"bitcast {word} {raw} to {real}")
            scaled = self.fresh(f"fmul {real} {plain}, {self.splat(dtypes.float32, 2.0**-scale, shape)}")
            back = self.fresh(f"fmul {real} {scaled}, {self.splat(dtypes.float32, 2.0**scale, shape)}")
            raw = self.odd(scaled, dtypes.float32, back, plain, shape)
        odd_bit = self.fresh(f"and {word} {self.fresh(f'lshr {word} {raw}, {number(shift)}')}, {number(1)}")
        bumped = self.fresh(
            f"add {word} {self.fresh(f'add {word} {raw}, {number((1 << (shift - 1)) - 1)}')}, {odd_bit}"
        )
        kept = self.fresh(f"lshr {word} {bumped}, {number(shift)}")
        over = self.fresh(f"icmp sge {word} {kept}, {number(top)}")
        kept = self.fresh(f"select {flag} {over}, {word} {number(top)}, {word} {kept}")
        nan = self.fresh(f"fcmp uno {real} {x}, {x}")
        kept = self.fresh(f"select {flag} {nan}, {word} {number(top | 1 << (22 - shift))}, {word} {kept}")
        return self.fresh(f"trunc {word} {self.fresh(f'or {word} {kept}, {sign}')} to {self.type(to, shape)}")

    def odd_single(self, x: str, shape: tuple[int, ...]) -> str:
        """A float64 as a float32 that rounds on, to fewer bits, as the float64 itself would."""
        double, real = self.type(dtypes.float64, shape), self.type(dtypes.float32, shape)
        single = self.fresh(f"fptrunc {double} {x} to {real}")
        back = self.fresh(f"fpext {real} {single} to {double}")
        absolute = f"llvm.fabs.{self.suffix(dtypes.float64, shape)}"
        back, plain = (self.fresh(self.intrinsic(absolute, double, (double, v))) for v in (back, x))
        bits = self.odd(single, dtypes.float64, back, plain, shape)
        return self.fresh(f"bitcast {self.type(dtypes.int32, shape)} {bits} to {real}")

    def odd(self, rounded: str, dtype: DType, back: str, plain: str, shape: tuple[int, ...]) -> str:
        """The bits of a rounded float32, rounded to odd instead: cut, the last bit set if anything was lost.

        What is rounded to odd can be rounded again without a fault. `plain` is the magnitude before, and `back` that
        after, both in `dtype`. Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved
        algorithms using rounding to odd", IEEE Transactions on Computers 57(4), 2008.
        """
        kind, real, word = self.type(dtype, shape), self.type(dtypes.float32, shape), self.type(dtypes.int32, shape)
        flag = self.type(dtypes.bool, shape)
        bits = self.fresh(f"bitcast {real} {rounded} to {word}")
        up = self.fresh(f"zext {flag} {self.fresh(f'fcmp ogt {kind} {back}, {plain}')} to {word}")
        lost = self.fresh(f"zext {flag} {self.fresh(f'fcmp one {kind} {back}, {plain}')} to {word}")
        return self.fresh(f"or {word} {self.fresh(f'sub {word} {bits}, {up}')}, {lost}")
