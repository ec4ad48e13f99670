"""Running reductions: side by side, by vectors and by threads, each place takes its values in order."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.core.dtypes import dtypes
from intaglio.lower.kernel import lower
from intaglio.ops.elementwise import exp, mul
from intaglio.ops.loop import sink
from intaglio.ops.memory import const
from intaglio.ops.movement import expand, flip, reshape
from intaglio.ops.reduce import reduce, scan
from intaglio.runtime.compiler import host_target
from tests.unit.lower.running import Operands, numbers, run

ACCUMULATE = {"sum": np.cumsum, "prod": np.cumprod, "max": np.maximum.accumulate}


def drawn(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("kind", ["sum", "prod", "max"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((3, 5), 0), ((1, 40), 1), ((2, 40), 1), ((5, 31), 1), ((17, 33), 1), ((40, 1), 1), ((1, 1), 0), ((7, 129), 0),
        ((301, 2049), 1), ((2049, 301), 0), ((2, 300, 1025), 1), ((600, 3, 331), 1), ((300, 2, 1025), 2),
        ((2, 3, 131072), 2), ((1024, 2, 512), 0), ((600000,), 0),
    ],
)  # fmt: skip
def test_each_place_takes_its_values_in_order(shape: tuple[int, ...], axis: int, kind: str, threads: int) -> None:
    x = drawn(shape)
    out = np.full_like(x, 99)
    k = Operands()
    run(k, k.write(out, scan(kind, k.read(x), axis)), threads=threads)
    np.testing.assert_array_equal(out, ACCUMULATE[kind](x, axis))


@pytest.mark.parametrize(("shape", "axis"), [((2048, 512), 1), ((512, 2048), 0), ((2, 1024, 512), 2)])
def test_threads_share_what_is_around(shape: tuple[int, ...], axis: int) -> None:
    x, out = drawn(shape), np.zeros(shape, np.float32)
    k = Operands()
    assert run(k, k.write(out, scan("sum", k.read(x), axis)), threads=2).chunks >= 4
    assert lower(sink(k.write(out, scan("sum", k.read(x), axis))), host_target(1)).chunks == 1


def test_odd_strides_and_a_scan_in_place() -> None:
    base = drawn((90, 70))
    want = np.cumsum(base[::-2, 3:60:2], 1)
    out = np.zeros((45, 29), np.float32).T
    k = Operands()
    run(k, k.write(out.T, scan("sum", k.read(base[::-2, 3:60:2]), 1)))
    np.testing.assert_array_equal(out.T, want)
    x = drawn((37, 50))
    want = np.cumsum(x, 1)
    k = Operands()
    run(k, k.write(x, scan("sum", k.read(x), 1)))
    np.testing.assert_array_equal(x, want)


def test_from_the_end() -> None:
    x, out = numbers((33, 40)), np.zeros((33, 40), np.float32)
    k = Operands()
    run(k, k.write(out, scan("sum", flip(k.read(x), (1,)), 1)))
    np.testing.assert_array_equal(out, np.cumsum(x[:, ::-1], 1))


@pytest.mark.parametrize("threads", [1, 2])
def test_of_what_is_folded_by_row_or_as_a_whole(threads: int) -> None:
    x, out = numbers((1024, 600)), np.zeros((1024, 600), np.float32)
    for axes in ((1,), (0, 1)):
        k = Operands()
        total = reduce("sum", k.read(x), axes)
        shape = (1024, 1) if axes == (1,) else (1, 1)
        scaled = mul(k.read(x), expand(reshape(total, shape), x.shape))
        run(k, k.write(out, scan("max", scaled, 1)), threads=threads)
        np.testing.assert_array_equal(out, np.maximum.accumulate(x * x.sum(axes, keepdims=True), 1))


def test_results_do_not_depend_on_threads() -> None:
    x = drawn((700, 900))
    found = []
    for threads in (1, 2, 3):
        out = np.zeros_like(x)
        k = Operands()
        value = exp(mul(k.read(x), expand(const(dtypes.float32, 0.25), x.shape)))
        run(k, k.write(out, scan("sum", value, 1)), threads=threads)
        found.append(out)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
