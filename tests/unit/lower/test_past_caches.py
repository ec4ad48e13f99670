"""Results that no cache holds are written past the caches: at any address, of any row length, and only those."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from intaglio.core.dtypes import dtypes
from intaglio.core.size import NOMINAL
from intaglio.core.target import Target
from intaglio.ir.view import View
from intaglio.lower.kernel import lower
from intaglio.ops.elementwise import add, cast, maximum, mul
from intaglio.ops.loop import Linear, sink, store
from intaglio.ops.memory import const, take, window
from intaglio.ops.movement import expand, permute, reshape
from intaglio.ops.reduce import reduce
from intaglio.render import llvm
from intaglio.runtime.compiler import host_target
from intaglio.runtime.streams import COPY, SIGNATURE, keeps_results
from tests.unit.lower.running import Operands, compiler, numbers, run

ONE = const(dtypes.float32, 1)
FAR = host_target(3).far


def past(threads: int) -> Target:
    """This machine, as if its third cache were no faster than memory."""
    return replace(host_target(threads), near=0)


def large(shape: tuple[int, ...], shift: int = 0) -> np.ndarray:
    """Zeros that begin some elements after the start of a line of memory."""
    size = int(np.prod(shape))
    room = np.zeros(size + 32, np.float32)
    first = (-room.ctypes.data // 4) % 16 + shift
    return room[first : first + size].reshape(shape)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shift", [0, 1, 8, 15])
@pytest.mark.parametrize("shape", [(FAR // 4,), (FAR // 4 + 1,), (1500, 1501), (900, 50, 48)])
def test_a_large_result_lands_wherever_it_begins(shape: tuple[int, ...], shift: int, threads: int) -> None:
    x, out = numbers(shape), large(shape, shift)
    k = Operands()
    lowered = run(k, k.write(out, add(k.read(x), ONE)), target=past(threads))
    np.testing.assert_array_equal(out, x + 1)
    assert isinstance(lowered.linear.op, Linear)
    assert lowered.linear.op.past == (1,)


@pytest.mark.parametrize("columns", [64, 30, 7])
def test_rows_at_positions_and_turned_and_narrow_results(columns: int) -> None:
    rows = FAR // 4 // columns + 1
    x = numbers((1000, columns))
    places = np.random.default_rng(0).integers(0, 1000, rows)
    out, turned, narrow = large((rows, columns)), large((columns, rows)), np.zeros((FAR,), np.uint8)
    k = Operands()
    run(k, k.write(out, take(k.read(x), k.read(places))), target=past(1))
    run(k := Operands(), k.write(turned, permute(k.read(out), (1, 0))), target=past(1))
    many = numbers((FAR,), "int32") % 7
    run(k := Operands(), k.write(narrow, cast(k.read(many), dtypes.uint8)), target=past(1))
    np.testing.assert_array_equal(out, x[places])
    np.testing.assert_array_equal(turned, out.T)
    np.testing.assert_array_equal(narrow, many)


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("shift", [0, 3])
@pytest.mark.parametrize("shape", [(1024, 2, 2048), (1501, 3, 1500), (96, 600, 24000)])
def test_a_large_product_lands_wherever_it_begins(shape: tuple[int, int, int], shift: int, *, heavy: bool) -> None:
    m, depth, n = shape
    x, y, out = numbers((m, depth)), numbers((depth, n), seed=1), large((m, n), shift)
    k = Operands()
    left = expand(reshape(k.read(x), (m, 1, depth)), (m, n, depth))
    right = expand(reshape(permute(k.read(y), (1, 0)), (1, n, depth)), (m, n, depth))
    value = reduce("sum", mul(left, right), (2,))
    for _ in range(12 if heavy else 0):  # enough to be computed apart from the sums
        value = maximum(add(value, ONE), ONE)
    lowered = run(k, k.write(out, value), target=past(2))
    assert isinstance(lowered.linear.op, Linear)
    assert lowered.linear.op.past == (2,)
    wanted = x @ y
    np.testing.assert_array_equal(out, np.maximum(wanted + 12, 12) if heavy else wanted)


def test_only_what_is_large_and_not_read_goes_past_the_caches() -> None:
    target = past(1)
    least = target.far // 4
    for size, in_place, goes in [(least, False, True), (least - 1, False, False), (least, True, False)]:
        k = Operands()
        out = np.empty(size, np.float32)
        place = k.read(out)
        value = place if in_place else k.read(np.empty(size, np.float32))
        linear = lower(sink(store(place, add(value, ONE))), target).linear
        text = llvm.render(linear, target)
        assert ("nontemporal" in text, "sfence" in text) == (goes and "sse2" in target.features,) * 2


def test_what_is_large_follows_from_the_caches_of_all_threads() -> None:
    assert Target(threads=1, level2=4 << 20).far == 6 << 20
    assert Target(threads=4, level2=4 << 20).far == 8 << 20
    assert Target(threads=2, level2=1 << 18).far == 4 << 20


def test_a_result_of_any_size_may_be_small_and_goes_through_the_caches() -> None:
    k = Operands()
    view = View.contiguous(dtypes.float32, (NOMINAL,))
    x, out = (window(view, k.pointer(np.empty(1, np.float32))) for _ in range(2))
    linear = lower(sink(store(out, add(x, ONE))), host_target(1), size_slot=2).linear
    assert isinstance(linear.op, Linear)
    assert linear.op.past == ()


def test_results_stay_in_a_third_cache_that_takes_them_fast_if_all_fits_that_a_kernel_moves() -> None:
    target = replace(host_target(1), near=0)
    size = target.far // 4
    for inputs, room, stay in [(1, 2, True), (2, 3, True), (2, 2, False), (1, 1, False), (1, 0, False)]:
        k = Operands()
        total = ONE
        for _ in range(inputs):
            total = add(k.read(np.empty(size, np.float32)), total)
        linear = lower(sink(k.write(np.empty(size, np.float32), total)), replace(target, near=4 * size * room)).linear
        assert isinstance(linear.op, Linear)
        assert linear.op.past == (() if stay else (inputs,))


def test_what_a_third_cache_is_worth_is_measured_by_real_copies() -> None:
    size, level3 = 1 << 20, 8 << 20
    names: list[str] = []

    def load(text: str, name: str) -> int:
        names.append(name)
        assert ("nontemporal" in text) == (name == "past")
        return compiler().load(text, name)[0]

    assert keeps_results(load, 16, level3) in (True, False)
    assert names == ["through", "past"]
    given, out = numbers((size,), "uint8"), np.zeros(size, np.uint8)
    for name, mark in [("through", ""), ("past", ", !nontemporal !0")]:
        at = [a.ctypes.data + -a.ctypes.data % 16 for a in (given, out)]
        SIGNATURE(load(COPY.format(name=name, width=16, mark=mark), name))(*at, size - 16)
        assert bytes((ctypes.c_char * (size - 16)).from_address(at[0])) == bytes(
            (ctypes.c_char * (size - 16)).from_address(at[1])
        )
        out[:] = 0


def test_this_machine_keeps_all_results_or_those_that_fill_half_of_the_third_cache() -> None:
    target = host_target(1)
    assert target.near in (0, target.level3 // 2)
