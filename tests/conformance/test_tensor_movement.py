"""Movement gives the elements that NumPy gives, and views where NumPy gives views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Tensor, dtypes
from tests.conformance.agree import agree

if TYPE_CHECKING:
    from collections.abc import Callable

CUBE = np.arange(24).reshape(2, 3, 4)
VIEWS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], Any]]] = {
    "reshape": (lambda t: t.reshape(4, -1), lambda a: a.reshape(4, -1)),
    "reshape of a tuple": (lambda t: t.reshape((6, 4)), lambda a: a.reshape(6, 4)),
    "permute": (lambda t: t.permute(2, 0, 1), lambda a: a.transpose(2, 0, 1)),
    "transpose": (lambda t: t.transpose(0, -1), lambda a: a.swapaxes(0, 2)),
    "T": (lambda t: t.T, lambda a: a.T),
    "mT": (lambda t: t.mT, lambda a: a.swapaxes(-1, -2)),
    "movedim": (lambda t: t.movedim((0, 1), (-1, 0)), lambda a: np.moveaxis(a, (0, 1), (-1, 0))),
    "flip some": (lambda t: t.flip(0, 2), lambda a: np.flip(a, (0, 2))),
    "flip all": (lambda t: t.flip(), np.flip),
    "unsqueeze": (lambda t: t.unsqueeze(-1), lambda a: a[..., None]),
    "squeeze": (lambda t: t[:1].squeeze(0), lambda a: a[0]),
    "squeeze all": (lambda t: t[:1, :, :1].squeeze(), lambda a: a[0, :, 0]),
    "squeeze of a long axis": (lambda t: t.squeeze(1), lambda a: a),
    "shrink": (lambda t: t.shrink(((0, 1), None, (1, 3))), lambda a: a[:1, :, 1:3]),
    "narrow": (lambda t: t.narrow(2, -3, 2), lambda a: a[:, :, 1:3]),
    "diagonal": (lambda t: t.diagonal(1, 1, 2), lambda a: np.diagonal(a, 1, 1, 2)),
    "lower diagonal": (lambda t: t.diagonal(-1), lambda a: np.diagonal(a, -1)),
    "flatten": (lambda t: t.flatten(1), lambda a: a.reshape(2, 12)),
    "unflatten": (lambda t: t.unflatten(2, (2, -1)), lambda a: a.reshape(2, 3, 2, 2)),
    "bitcast": (lambda t: t.bitcast(dtypes.float64), lambda a: a.view(np.float64)),
    "bitcast to narrow": (lambda t: t.bitcast(dtypes.uint8), lambda a: a.view(np.uint8)),
    "bitcast to wide": (lambda t: t.bitcast(dtypes.int32).bitcast(dtypes.int64), lambda a: a),
    "negative steps": (lambda t: t[::-1, 2:0:-1, ::2], lambda a: a[::-1, 2:0:-1, ::2]),
    "split": (lambda t: t.split([1, 2], 1)[1], lambda a: a[:, 1:]),
    "chunk": (lambda t: t.chunk(2, 2)[1], lambda a: a[:, :, 2:]),
    "detach": (lambda t: t.detach(), lambda a: a),
    "contiguous": (lambda t: t.contiguous(), lambda a: a),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_storage_both_ways(name: str, backend: str) -> None:
    on_tensor, on_array = VIEWS[name]
    array = CUBE.copy()
    t = Tensor(array, device=backend)
    view, want = on_tensor(t), on_array(array)
    agree(view, want)
    t[1, 2, 1:] = -5
    array[1, 2, 1:] = -5
    agree(view, want)
    if name in ("diagonal", "lower diagonal"):
        return  # NumPy's are not writable
    view[...] = 7
    want[...] = 7
    agree(t, array)


COPIES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], Any]]] = {
    "reshape that strides forbid": (
        lambda t: t.permute(2, 0, 1).reshape(8, 3),
        lambda a: a.transpose(2, 0, 1).reshape(8, 3),
    ),
    "clone": (lambda t: t.clone(), lambda a: a.copy()),
    "contiguous of a transpose": (lambda t: t.T.contiguous(), lambda a: a.T.copy()),
    "positions": (lambda t: t[[0, 1]], lambda a: a[[0, 1]]),
    "pad": (lambda t: t.pad(((0, 0), (1, 0), (0, 2))), lambda a: np.pad(a, ((0, 0), (1, 0), (0, 2)))),
    "cast": (lambda t: t.cast(dtypes.int32), lambda a: a.astype(np.int32)),
    "repeat": (lambda t: t.repeat(1, 2, 1), lambda a: np.tile(a, (1, 2, 1))),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_share_nothing(name: str, backend: str) -> None:
    on_tensor, on_array = COPIES[name]
    t = Tensor(CUBE, device=backend)
    copy, want = on_tensor(t), on_array(CUBE.copy())
    t[...] = -1
    agree(copy, want)
    copy[...] = 3
    agree(t, np.full_like(CUBE, -1))


def test_expand_repeats(backend: str) -> None:
    t = Tensor(CUBE, device=backend)
    agree(t.unsqueeze(1).expand(2, 5, 3, 4), np.broadcast_to(CUBE[:, None], (2, 5, 3, 4)))
    agree(Tensor([1, 2], device=backend).expand(3, -1), np.broadcast_to([1, 2], (3, 2)))
    agree(t[0, 0, 0].expand(2, 2), np.zeros((2, 2), np.int64))


def test_unfold_slides_windows(backend: str) -> None:
    t = Tensor(CUBE, device=backend)
    agree(t.unfold(2, 2, 1), np.lib.stride_tricks.sliding_window_view(CUBE, 2, 2))
    agree(t.unfold(2, 2, 2), CUBE.reshape(2, 3, 2, 2))


def test_as_strided_reads_the_storage(backend: str) -> None:
    t = Tensor(CUBE, device=backend)[1]
    agree(t.as_strided((3, 2), (1, 4), 2), np.lib.stride_tricks.as_strided(CUBE.reshape(-1)[2:], (3, 2), (8, 32)))


def test_views_of_computed_values_are_views(backend: str) -> None:
    t = Tensor([1.0, 2.0], device=backend) + 1
    bits = t.bitcast(dtypes.int32)
    t[0] = 0.0
    agree(bits, np.array([0.0, 3.0], np.float32).view(np.int32))


def test_rolls_and_repeats(backend: str) -> None:
    a = np.arange(12).reshape(4, 3)
    t = Tensor(a, device=backend)
    agree(t.roll(1, 0), np.roll(a, 1, 0))
    agree(t.roll((1, -2), (0, 1)), np.roll(a, (1, -2), (0, 1)))
    agree(t.roll(5), np.roll(a, 5))
    agree(t.repeat(2, 1, 3), np.tile(a, (2, 1, 3)))
    agree(t.repeat_interleave(2, 1), a.repeat(2, 1))
    agree(t.repeat_interleave(3), a.repeat(3))
