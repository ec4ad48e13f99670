"""Gradients of tensors: what is tracked, and the reverse sweep."""

from __future__ import annotations

import weakref
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Final, Self

from intaglio.core.errors import GradError, ShapeError
from intaglio.ops import elementwise as ops
from intaglio.ops.memory import const, window
from intaglio.ops.movement import expand, reshape
from intaglio.storage.backward import Backward, sweep_back
from intaglio.storage.counts import references_to
from intaglio.storage.history import Record, history_of, is_even, track
from intaglio.storage.storage import Storage
from intaglio.tensor.arguments import flag, tensor
from intaglio.tensor.base import DETACHED, EVERY, TensorBase, current_holes, relieve

if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from types import TracebackType

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.ir.view import View
    from intaglio.tensor.tensor import Tensor

_enabled: Final[ContextVar[bool]] = ContextVar("intaglio_gradients", default=True)


class no_grad(ContextDecorator):  # noqa: N801 -- PyTorch's name
    """A block (or function) in which nothing is tracked: `with no_grad(): p -= lr * p.grad`.

    A write in it changes values and nothing else: gradients of a tensor that was written so are as if it had not been.

    Examples:
        >>> w = Tensor([1.0, 2.0], requires_grad=True)
        >>> h = w * 3
        >>> with no_grad():
        ...     h[0] = 5
        >>> _ = h.sum().backward()
        >>> h.tolist(), w.grad.tolist()
        ([5.0, 6.0], [3.0, 3.0])
    """

    def __init__(self) -> None:
        self._tokens: Final[list[Token[bool]]] = []

    def __enter__(self) -> Self:
        """Stop tracking."""
        self._tokens.append(_enabled.set(False))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Track again as before."""
        _enabled.reset(self._tokens.pop())


def is_bits(handle: TensorBase) -> bool:
    """Whether gradients flow through the bytes of a handle as other elements."""
    storage = handle._storage
    history = history_of(storage) if storage is not None else None
    return history is not None and history.own(handle._place()[1]) is None


def is_tracked(value: object) -> bool:
    """Whether gradients flow through a tensor."""
    if not isinstance(value, TensorBase):
        return False
    state, storage = value._grad_state, value._storage
    if state is not None:
        return state is not DETACHED
    return storage is not None and not storage.plain and storage.history is not None


def is_leaf(value: TensorBase) -> bool:
    """Whether a tensor is (a view of) one that accumulates gradients."""
    history = history_of(value._storage) if value._storage is not None else None
    return history is not None and history.leaf


def is_handle_of_leaf(value: TensorBase) -> bool:
    """Whether a handle is the one whose `.grad` its storage adds to, and no view of it."""
    return value._storage is not None and _handle_of(value._storage) is value


def mark(made: Tensor, node: Node, sources: Sequence[Any]) -> None:
    """Track a computed tensor if one of its sources is."""
    for source in sources:
        state, storage = getattr(source, "_grad_state", None), getattr(source, "_storage", None)  # of a number: none
        if state is not None or (storage is not None and not storage.plain):
            if not is_tracked(source):
                continue
            if not _enabled.get():
                made._node = ops.detach(node)
            elif node.dtype.is_float:
                made._grad_state = True
            return


def place(self: TensorBase, storage: Storage, node: Node) -> None:
    """Begin the history of a tracked value that gets a storage."""
    if self._grad_state is True:
        track(storage, node.dtype, base=node)


def is_apart(handle: TensorBase) -> bool:
    """Whether views of a handle that are taken now have no part in gradients: it has none, or this is in `no_grad`."""
    return handle._grad_state is DETACHED or (not _enabled.get() and is_tracked(handle))


def follows(handle: TensorBase) -> bool:
    """Whether scalar expressions with a tracked scalar are recorded as rows: gradients see it."""
    return _enabled.get() and handle._grad_state is not DETACHED


def write_element(handle: TensorBase, storage: Storage, dtype: DType, offset: int, value: TensorBase) -> bool:
    """Write a tracked scalar expression to one element; False where that is not to be a row."""
    skeleton = value._skeleton
    if value._grad_state is not True or skeleton is None or storage.pinned or storage.read_only:
        return False
    history = history_of(storage)
    if (
        not dtype.is_float
        or not follows(handle)
        or (history is not None and (history.leaf or history.dtype is not dtype or history.rest))
    ):
        return False
    if value._storage is storage and value._offset == offset and skeleton.dtype is dtype:
        return True  # what `t[k] += v` does last
    holes = value._holes or current_holes(value)
    if holes is None:
        return False
    if history is None:
        history = track(storage, dtype, base=storage.base if not storage.log else None)
    storage.write_element(dtype, offset, skeleton, holes)
    history.add_element(skeleton, holes, offset, storage.sequence)
    if not storage.taped % EVERY:
        relieve(storage)
    return True


def cuts(handle: TensorBase, value: TensorBase) -> bool:
    """Whether a write of a value through a handle stops gradients that flow through the same bytes as they are."""
    return value._grad_state is DETACHED and _is_seen(handle) and is_tracked(handle)


def _is_seen(handle: TensorBase) -> bool:
    """Whether gradients see what is written through a handle: neither inside `no_grad` nor through `detach`."""
    return _enabled.get() and handle._grad_state is not DETACHED


def check_write(handle: TensorBase, storage: Storage, view: View, name: str, sources: Sequence[Any]) -> None:
    """Raise where a named op's write would change a leaf that wants gradients, or begin a history of no elements."""
    history = history_of(storage)
    if history is not None and history.leaf and _is_seen(handle):
        raise GradError(
            f"{name}: a tensor that requires grad cannot be written while gradients are tracked. "
            "Write to a .clone(), or inside no_grad()?"
        )
    may = history is not None or not view.dtype.is_float or is_even(view, view.offset)
    if not may and _is_seen(handle) and any(is_tracked(s) for s in sources):
        raise _uneven(name, view)


def _uneven(name: str, view: View) -> GradError:
    """The error of a named op that wants gradients of elements that are no whole number of them apart."""
    return GradError(
        f"{name}: elements that have gradients must lie whole elements of {view.dtype.itemsize} bytes apart; "
        f"they lie {view.strides} bytes apart. Use a .clone()?"
    )


def written(
    handle: TensorBase,
    storage: Storage,
    view: View,
    node: Node,
    indices: tuple[Node, ...],
    mask: Node | None,
    sources: Sequence[Any],
) -> None:
    """Note a write in the storage's history, if it has one or the value brings one.

    A write of nothing is none, though what it is of may bring a history, and neither is one that gradients do not see:
    the history stays what it was.

    Args:
        mask: Which elements of the view are written, where the value has what was there at the others.
    """
    if not _is_seen(handle):
        return
    history = history_of(storage)
    tracked = node.dtype.is_float and any(is_tracked(s) for s in sources)
    if history is None:
        if not tracked:
            return
        first = len(storage.log) == 1 and storage.sequence == storage.log[0].sequence
        base = storage.base if first else None
        history = track(storage, node.dtype, base=base, offset=view.offset)
    if history.leaf or node.size == 0 or view.size == 0:
        return
    other = history.own(view) is None
    value = node if tracked and not other else None
    history.records.append(Record(storage.sequence, view, value, indices, mask if other else None))


def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Say whether gradients are wanted for this tensor; gives the tensor. One that is computed from such has them.

    Args:
        requires_grad: Whether they are.
    Raises: GradError unless it is of floats; where a computed tensor is asked to have none; where a detached one shares
        its bytes with one that has some.
    Examples:
        >>> Tensor([1.0]).requires_grad_().requires_grad
        True
    """
    flag("requires_grad_", "the value", requires_grad)
    if is_tracked(self) and not is_leaf(self):
        if requires_grad:
            return self
        raise GradError("requires_grad: a tensor computed from one that requires grad has gradients. Call .detach()?")
    storage, view = self._place()
    detached = self._grad_state is DETACHED
    if not requires_grad:
        storage.history = storage.history if detached else None
        return self
    if detached and storage.history is not None:
        if not is_leaf(self) and references_to(storage) <= REFERENCES_OF_A_HANDLE:
            node = self._value()
            self._reset(self._device)
            self._node = node
            return requires_grad_(self)
        raise GradError(
            "requires_grad: the bytes of the tensor must be its own; a detached one shares them with a tensor that has "
            "gradients. Use .detach().clone()?"
        )
    if not view.dtype.is_float:
        raise GradError(f"requires_grad: only floats have gradients; the tensor is {view.dtype.name}. Cast it first?")
    if not is_even(view, view.offset):
        raise _uneven("requires_grad", view)
    self._grad_state = None  # one that was detached shares nothing
    track(storage, view.dtype, leaf=True, offset=view.offset)
    self._element = None
    if _handle_of(storage) is None:
        LEAVES[storage] = weakref.ref(self)
    return self


def _references_of_a_handle() -> int:
    """What `references_to` says of a storage that one handle and a variable have."""
    storage = Storage(0, "CPU")
    held = [storage]
    return references_to(storage) + 0 * len(held)


REFERENCES_OF_A_HANDLE: Final = _references_of_a_handle()
LEAVES: Final[weakref.WeakKeyDictionary[Storage, weakref.ref[Tensor]]] = weakref.WeakKeyDictionary()  # their handles


def _handle_of(storage: Storage) -> Tensor | None:
    """The handle of a leaf, if it lives: nobody can ask another for `.grad`."""
    reference = LEAVES.get(storage)
    return reference() if reference is not None else None


def backward(
    self: Tensor, gradient: Tensor | None = None, *, retain_graph: bool | None = None, create_graph: bool = False
) -> Tensor:
    """Add the gradient of this tensor to `.grad` of every leaf that it depends on.

    Args:
        gradient: The cotangent; 1 for a scalar when None.
        retain_graph: Whether another sweep through writes may follow; without it, their history is freed, and another
            is an error. Through values alone, another may always follow, and adds to `.grad` again. As `create_graph`
            when None.
        create_graph: Whether gradients are to flow through the gradients: for second ones.
    Raises: GradError if the tensor is not a tracked float, or no scalar and no cotangent is given.
    Examples:
        >>> w = Tensor([1.0, 2.0], requires_grad=True)
        >>> _ = (w * w).sum().backward()
        >>> w.grad.tolist()
        [2.0, 4.0]
    """
    retain = create_graph if retain_graph is None else retain_graph
    for storage, ct in _sweep("backward", self, gradient, retain=retain, tracked=create_graph).leaves.items():
        leaf = _handle_of(storage)
        if leaf is None:
            continue
        made = _leaf_gradient(self, leaf, ct, tracked=create_graph)
        leaf.grad = made if leaf.grad is None else leaf.grad + made
    return self


def _sweep(
    name: str,
    self: Tensor,
    gradient: Tensor | None,
    wanted: Container[Node | Storage] = (),
    *,
    retain: bool,
    tracked: bool,
) -> Backward:
    """The reverse sweep of a named op from a tensor; gradients flow through what it finds if that is to be tracked."""
    if not is_tracked(self):
        raise GradError(
            f"{name}: the tensor does not depend on one that requires grad. Set requires_grad=True on a leaf?"
        )
    node = self._value()
    if gradient is None:
        if node.size != 1:
            raise GradError(f"{name}: a cotangent is needed for a tensor of shape {node.shape}. Call .sum() first?")
        ct = expand(const(node.dtype, 1), node.shape) if node.shape else const(node.dtype, 1)
    else:
        tensor(name, "the cotangent", gradient)
        if gradient.shape != self.shape:
            raise ShapeError(
                f"{name}: the cotangent must have the tensor's shape; {gradient.shape} for {self.shape}. Reshape it?"
            )
        ct = ops.cast(gradient._value(), node.dtype)
    return sweep_back(node, ct, wanted, retain=retain, differentiable=tracked)


def _leaf_gradient(root: Tensor, leaf: Tensor, ct: Node, *, tracked: bool) -> Tensor:
    """A cotangent of a value, or of a storage, that was found in the sweep from a root: in the shape of a leaf."""
    history = history_of(leaf._storage) if leaf._storage is not None else None
    view = history.own(leaf._place()[1]) if history is not None else None
    if view is None or (view.is_contiguous and view.nbytes == ct.nbytes):
        node = reshape(ct, leaf.shape)
    else:
        node = window(view, ct)
    return leaf._make(node, root) if tracked else leaf.__class__._from_node(ops.detach(node), leaf._device)


def gradient(self: Tensor, *leaves: Tensor, gradient: Tensor | None = None, create_graph: bool = False) -> list[Tensor]:
    """The gradients of this tensor with respect to others as they are now, zeros where it does not depend on one.

    Args:
        leaves: The tensors that it is taken with respect to, whether they were computed or not.
        gradient: What the gradient of this tensor is; ones for a scalar when None.
        create_graph: Whether gradients are to flow through the gradients: for second ones.
    Raises: GradError if this tensor is no scalar and no gradient is given, or an op has none.
    Examples:
        >>> w = Tensor([1.0, 2.0], requires_grad=True)
        >>> (g,) = (w * w * w).sum().gradient(w, create_graph=True)
        >>> (h,) = g.sum().gradient(w)
        >>> g.tolist(), h.tolist()
        ([3.0, 12.0], [6.0, 12.0])
    """
    each = [tensor("gradient", "what it is taken with respect to", leaf) for leaf in leaves]
    places = [_place_of(leaf) if is_tracked(leaf) and not is_bits(leaf) else None for leaf in each]
    wanted = frozenset(place for place in places if place is not None)
    found = _sweep("gradient", self, gradient, wanted, retain=True, tracked=create_graph).found
    out: list[Tensor] = []
    for leaf, place in zip(leaves, places, strict=True):
        ct = None if place is None else found.get(place)
        out.append(leaf.zeros_like() if ct is None else _leaf_gradient(self, leaf, ct, tracked=create_graph))
    return out


def _place_of(leaf: Tensor) -> Node | Storage:
    """Where a sweep finds the cotangent of a tensor: at a value, or at a storage that was written or is of a leaf."""
    storage = leaf._storage
    if storage is None:
        return leaf._value()
    history = history_of(storage)
    return storage if history is None or history.base is None or history.records else history.base
