"""Tensors are made from every kind of data, by rule, and at random."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor, dtypes
from intaglio.core.errors import DTypeError, ValueRangeError
from tests.conformance.agree import agree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("data", "want"),
    [
        ([1, 2], np.array([1, 2])),
        ([1, 2.5], np.array([1, 2.5], np.float32)),
        ([True, False], np.array([True, False])),
        ([True, 2], np.array([1, 2])),
        (3, np.array(3)),
        (3.5, np.array(3.5, np.float32)),
        (True, np.array(True)),
        ([], np.zeros(0, np.float32)),
        ([[], []], np.zeros((2, 0), np.float32)),
        (range(3), np.arange(3)),
        (b"abc", np.frombuffer(b"abc", np.uint8)),
        (((1, 2), (3, 4)), np.array([[1, 2], [3, 4]])),
        (np.array([1.5]), np.array([1.5])),
        (np.float16(2), np.array(2, np.float16)),
        (np.arange(6).reshape(2, 3).T, np.arange(6).reshape(2, 3).T),
        (np.array([1, 2], ">i4"), np.array([1, 2], np.int32)),
        ([2**60 + 1], np.array([2**60 + 1])),
        ([math.nan, math.inf, -0.0], np.array([math.nan, math.inf, -0.0], np.float32)),
    ],
)
def test_from_data(data: Any, want: np.ndarray, backend: str) -> None:
    agree(Tensor(data, device=backend), want)


def test_from_tensors() -> None:
    agree(Tensor([Tensor(1), Tensor(2)]), np.array([1, 2]))
    t = Tensor([1, 2])
    u = Tensor(t, dtype=dtypes.float32)
    t[0] = 9
    agree(u, np.array([1, 2], np.float32))


def test_from_data_with_a_dtype() -> None:
    agree(Tensor([1, 2], dtype=dtypes.uint8), np.array([1, 2], np.uint8))
    agree(Tensor([2**63 + 5], dtype=dtypes.uint64), np.array([2**63 + 5], np.uint64))
    agree(Tensor([0, 2], dtype=dtypes.bool), np.array([False, True]))
    agree(Tensor(np.array([1.9, -1.9]), dtype=dtypes.int32), np.array([1, -1], np.int32))
    agree(Tensor([0.1], dtype=dtypes.float64), np.array([0.1]))
    assert Tensor([1.0], dtype=dtypes.bfloat16).tolist() == [1.0]


def test_host_data_is_copied_at_the_statement() -> None:
    array = np.array([1, 2, 3])
    t = Tensor(array)
    array[:] = 0
    assert t.tolist() == [1, 2, 3]
    out = t.numpy()
    out[:] = 9
    assert t.tolist() == [1, 2, 3]


def test_a_shared_array_sees_writes_both_ways() -> None:
    array = np.array([1.0, 2.0, 3.0], np.float32)
    t = Tensor.from_numpy(array)
    array[0] = 10
    assert t.tolist() == [10.0, 2.0, 3.0]


def test_files_are_mapped_not_read(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(np.arange(10, dtype=np.float32).tobytes())
    t = Tensor(path)
    assert (t.device, t.dtype, t.shape) == ("DISK", dtypes.uint8, (40,))
    agree(t.bitcast(dtypes.float32)[2:4].to("CPU"), np.array([2, 3], np.float32))


RULES: list[tuple[Any, Any, float | None]] = [
    (lambda d: Tensor.zeros(2, 3, device=d), np.zeros((2, 3), np.float32), None),
    (lambda d: Tensor.ones((2,), device=d), np.ones(2, np.float32), None),
    (lambda d: Tensor.zeros(device=d), np.zeros((), np.float32), None),
    (lambda d: Tensor.full((2,), 3, device=d), np.full(2, 3), None),
    (lambda d: Tensor.full((2, 0), True, device=d), np.full((2, 0), True), None),
    (lambda d: Tensor.full((), 2.5, device=d), np.full((), 2.5, np.float32), None),
    (lambda d: Tensor.arange(5, device=d), np.arange(5), None),
    (lambda d: Tensor.arange(5, -3, -2, device=d), np.arange(5, -3, -2), None),
    (lambda d: Tensor.arange(3, 3, device=d), np.arange(3, 3), None),
    (lambda d: Tensor.arange(0, 1, 0.1, device=d), np.arange(0, 1, 0.1).astype(np.float32), 1e-7),
    (lambda d: Tensor.arange(4, dtype=dtypes.float16, device=d), np.arange(4, dtype=np.float16), None),
    (lambda d: Tensor.linspace(0.1, 0.7, 13, device=d), np.linspace(0.1, 0.7, 13).astype(np.float32), 1e-7),
    (lambda d: Tensor.linspace(2, 5, 1, device=d), np.array([2], np.float32), None),
    (lambda d: Tensor.eye(3, device=d), np.eye(3, dtype=np.float32), None),
    (lambda d: Tensor.eye(2, 4, device=d), np.eye(2, 4, dtype=np.float32), None),
    (lambda d: Tensor([1, 2], device=d).zeros_like(), np.zeros(2, np.int64), None),
    (lambda d: Tensor([1, 2], device=d).ones_like(dtype=dtypes.float32), np.ones(2, np.float32), None),
    (lambda d: Tensor([1.5], device=d).full_like(7), np.array([7], np.float32), None),
]


@pytest.mark.parametrize("case", range(len(RULES)))
def test_by_rule(case: int, backend: str) -> None:
    make, want, tolerance = RULES[case]
    agree(make(backend), want, tolerance=tolerance)


def test_constants_own_their_storage_once_written() -> None:
    a, b = Tensor.zeros(3), Tensor.zeros(3)
    a[0] = 1
    row = Tensor.full((2, 2), 4)
    row[0, 0] = 5
    assert b.tolist() == [0, 0, 0]
    assert row.tolist() == [[5, 4], [4, 4]]


# -- at random


def test_threefry_gives_the_published_numbers() -> None:
    from intaglio.ops.elementwise import cast
    from intaglio.ops.memory import const
    from intaglio.tensor.random import threefry

    u32 = dtypes.uint32
    vectors = [  # counter, key, result: the known answers of Random123
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ]
    for counter, key, want in vectors:
        words = threefry(const(u32, counter[0]), const(u32, counter[1]), key)
        got = tuple(Tensor._from_node(cast(w, dtypes.int64), "CPU").item() for w in words)
        assert got == want


def test_random_numbers_depend_on_seed_and_statement_alone() -> None:
    Tensor.manual_seed(42)
    first, second = Tensor.rand(5), Tensor.randn(3)
    late = second.tolist(), first.tolist()
    Tensor.manual_seed(42)
    soon = Tensor.rand(5).tolist(), Tensor.randn(3).tolist()
    assert late == soon[::-1]


def test_random_numbers_are_the_same_on_every_device() -> None:
    Tensor.manual_seed(7)
    here = Tensor.rand(20).tolist()
    Tensor.manual_seed(7)
    assert Tensor.rand(20, device="PYTHON").tolist() == here


def test_random_numbers_have_their_distribution() -> None:
    Tensor.manual_seed(3)
    u = Tensor.rand(20_000).numpy()
    assert (u >= 0).all() and (u < 1).all()  # noqa: PT018
    assert abs(u.mean() - 0.5) < 0.01
    n = Tensor.randn(20_000, dtype=dtypes.float64).numpy()
    assert abs(n.mean()) < 0.03
    assert abs(n.std() - 1) < 0.03
    whole = Tensor.randint(20_000, low=-3, high=4).numpy()
    assert set(whole.tolist()) == set(range(-3, 4))
    assert np.bincount(whole + 3).min() > 2600
    wide = Tensor.uniform(1000, low=2, high=5).numpy()
    assert 2 <= wide.min() < wide.max() <= 5
    assert abs(Tensor.normal(20_000, mean=3, std=2).numpy().std() - 2) < 0.06


def test_random_numbers_of_a_half_dtype_stay_below_one() -> None:
    for dtype in (dtypes.float16, dtypes.bfloat16, dtypes.float64):
        u = Tensor.rand(5000, dtype=dtype)
        assert u.dtype is dtype
        assert u.max().item() < 1


def test_permutations_and_draws() -> None:
    assert sorted(Tensor.randperm(50).tolist()) == list(range(50))
    weights = Tensor([0.0, 1.0, 0.0, 3.0])
    drawn = weights.multinomial(400, replacement=True).tolist()
    assert set(drawn) == {1, 3}
    assert 230 < drawn.count(3) < 370
    assert sorted(weights.multinomial(2, replacement=False).tolist()) == [1, 3]
    assert Tensor([[1.0, 0.0], [0.0, 1.0]]).multinomial(3, replacement=True).tolist() == [[0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("dtype", [dtypes.int16, "int16", np.int16, np.dtype("int16"), "<i2"])
def test_a_dtype_may_be_given_by_name_or_as_numpy_has_it(dtype: Any) -> None:
    made = [
        Tensor([1, 2], dtype=dtype),
        Tensor(np.ones(2), dtype=dtype),
        Tensor.zeros(2, dtype=dtype),
        Tensor.arange(2, dtype=dtype),
        Tensor.randint(2, high=9, dtype=dtype),
        Tensor([1.0, 2.0]).cast(dtype),
        Tensor([1, 2]).sum(dtype=dtype),
        Tensor([1, 2], dtype=dtypes.int32).bitcast(dtype),
        Tensor([1]).full_like(3, dtype=dtype),
    ]
    assert {tensor.dtype for tensor in made} == {dtypes.int16}


def test_a_dtype_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(
        DTypeError, match=r"^zeros: the dtype must be one of bool, .*; got 'int7'\. Is \"int8\" meant\?$"
    ):
        Tensor.zeros(2, dtype="int7")


@pytest.mark.parametrize(
    "bounds",
    [(0, 2**60 + 1, 2**60), (2**62 + 3, 2**62 - 3, -1), (2**60, 2**60 + 2), (5, -3, -2), (-7, 8, 5), (3, 3), (4, 1)],
)
def test_arange_of_integers_is_exact(bounds: tuple[int, ...]) -> None:
    assert Tensor.arange(*bounds).tolist() == list(range(*bounds))


@pytest.mark.parametrize(
    "ends", [(0.1, 0.7), (-1.7e308, 1.7e308), (1.7e308, -1.7e308), (1e-310, 3), (2, 5), (0, 1 / 3), (1.0, 1.0)]
)
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 13, 50])
def test_linspace_ends_where_it_is_told(ends: tuple[float, float], steps: int) -> None:
    got = Tensor.linspace(*ends, steps, dtype=dtypes.float64).numpy()
    want = np.array(
        [
            float(Fraction(ends[0]) + (Fraction(ends[1]) - Fraction(ends[0])) * k / max(1, steps - 1))
            for k in range(steps)
        ]
    )
    assert got[0] == ends[0]
    assert steps == 1 or got[-1] == ends[1]
    np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-14 * max(map(abs, ends)))


def test_linspace_of_integers_ends_exactly() -> None:
    assert Tensor.linspace(1, 2**62 + 1, 2, dtype=dtypes.int64).tolist() == [1, 2**62 + 1]
    assert Tensor.linspace(0, 10, 7, dtype=dtypes.int64).tolist() == [0, 1, 3, 5, 6, 8, 10]
    with pytest.raises(ValueRangeError, match="300 does not fit int8"):
        Tensor.linspace(0, 300, 3, dtype=dtypes.int8)
