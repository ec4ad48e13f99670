"""Sums of products of bytes of both signs: of one vector, LLVM's own instruction for them would leave parts of sums."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio import Tensor


@pytest.mark.parametrize("depth", [4, 15, 16, 17, 32, 64])
@pytest.mark.parametrize("dtypes", [("int8", "uint8"), ("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("turned", [False, True])
def test_sums_of_products_of_bytes_are_exact(depth: int, dtypes: tuple[str, str], turned: bool) -> None:
    draw = np.random.default_rng(depth)
    a, b = (draw.integers(0, 100, shape).astype(d) for shape, d in zip(((3, depth), (depth, 2)), dtypes, strict=True))
    expected = a.astype(np.int32) @ b.astype(np.int32)
    right = Tensor(np.ascontiguousarray(b.T)).T if turned else Tensor(b)
    product = Tensor(a).cast("int32") @ right.cast("int32")
    assert np.array_equal(product.numpy(), expected)
    assert np.array_equal((Tensor(a).cast("int32") @ right.cast("int32")).sum(-1).numpy(), expected.sum(-1))
