"""Pickles and deep copies: values, sharing and the wish for gradients are kept; a history is not."""

from __future__ import annotations

import pickle
from copy import deepcopy

import numpy as np
import pytest

from intaglio import Tensor, no_grad
from intaglio.core.errors import GradError


def test_views_share_after_a_pickle_as_before() -> None:
    t = Tensor([[1, 2], [3, 4]])
    t[0, 0] = 9
    a, b = pickle.loads(pickle.dumps((t, t.T)))
    a[0, 1] = 7
    assert b.tolist() == [[9, 3], [7, 4]]
    assert t.tolist() == [[9, 2], [3, 4]]


def test_a_pickle_of_a_computed_tensor_wants_gradients_as_it_did() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    written = Tensor.zeros(2)
    written[:] = y
    for tensor in (x, y, written, x[:1]):
        again = pickle.loads(pickle.dumps(tensor))
        assert again.requires_grad
        (again * again).sum().backward()
        assert again.grad is not None
        assert np.array_equal(again.grad.numpy(), 2 * tensor.numpy())
    assert not pickle.loads(pickle.dumps(y.detach())).requires_grad
    kept, plain = pickle.loads(pickle.dumps((y, y.detach())))
    assert (kept.requires_grad, plain.requires_grad) == (True, False)


def test_pickles_agree_with_pytorch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.0], requires_grad=True)
    assert pickle.loads(pickle.dumps(x * 2)).requires_grad
    with pytest.raises(RuntimeError):
        deepcopy(x * 2)


def test_a_deep_copy_is_of_leaves_alone() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    copied, shared = deepcopy([x, x.detach()])
    assert (copied.requires_grad, shared.requires_grad) == (True, False)
    assert copied.grad is not None
    assert copied.grad.tolist() == [2, 4]
    with no_grad():
        shared[0] = 5
    assert (copied.tolist(), x.tolist()) == ([5, 2], [1, 2])
    with pytest.raises(GradError) as caught:
        deepcopy(x * 2)
    assert str(caught.value) == (
        "deepcopy: a tensor that was computed under gradients has no copy of its own history. "
        "Copy .detach(), or take .clone()?"
    )
    assert deepcopy((x * 2).detach()).tolist() == [2, 4]
