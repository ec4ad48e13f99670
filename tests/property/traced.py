"""Arrays that know how each of their elements depends on the leaves: the oracle of gradients.

An array is three things that are always indexed, viewed and written alike: its values in NumPy; its slopes, one more
axis behind, along which lie the derivatives by each element of each leaf (so views, overlaps and duplicates are
NumPy's own); and, for as long as PyTorch takes the program as it is, PyTorch's tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    Values = np.ndarray[Any, Any]

try:
    import torch
except ImportError:  # PyTorch is one oracle of two
    torch: Any = None


@dataclass
class Trace:
    """What the arrays of one program share."""

    room: int  # how many elements all leaves may have
    leaves: list[Traced] = field(default_factory=list)
    used: int = 0
    recording: bool = True  # False inside `no_grad`
    refused: str = "" if torch is not None else "PyTorch is not installed"  # why PyTorch goes along no further

    def follow(self, step: Callable[[], Any]) -> Any:
        """What PyTorch makes of a step, or None once it has refused one."""
        if self.refused:
            return None
        try:
            with torch.set_grad_enabled(self.recording):
                return step()
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
            self.refused = str(error)
            return None

    def leaf(self, values: Values) -> Traced:
        """An array that wants gradients."""
        slopes = np.zeros((*values.shape, self.room))
        slopes.reshape(values.size, self.room)[:, self.used : self.used + values.size] = np.eye(values.size)
        self.used += values.size
        theirs = self.follow(lambda: torch.tensor(values, requires_grad=True))
        self.leaves.append(Traced(self, values, slopes, theirs, [True], leaf=True))
        return self.leaves[-1]

    def constant(self, values: Values) -> Traced:
        """An array that depends on no leaf."""
        slopes = np.zeros((*values.shape, self.room))
        return Traced(self, values, slopes, self.follow(lambda: torch.tensor(values)), [False])


class Traced:
    """An array with slopes."""

    __array_ufunc__ = None  # NumPy's scalars leave arithmetic to it

    def __init__(
        self, trace: Trace, values: Values, slopes: Values, theirs: Any, tracked: list[bool], **flags: bool
    ) -> None:
        """An array.

        Args:
            tracked: Whether gradients flow through this memory; shared by all its views.
            flags: `leaf`: writes must not be recorded. `silent`: it was detached, so that it has no slopes, and what
                is written through it leaves those of others alone.
        """
        self.trace, self.values, self.slopes, self.theirs = trace, values, slopes, theirs
        self.tracked, self.leaf, self.silent = tracked, flags.get("leaf", False), flags.get("silent", False)
        self.shape, self.ndim, self.size, self.dtype = values.shape, values.ndim, values.size, values.dtype
        self.strides, self.itemsize = values.strides, values.itemsize

    # -- views

    def _view(self, values: Values, slopes: Values, step: Callable[[Any], Any]) -> Traced:
        theirs = self.trace.follow(lambda: step(self.theirs))
        silent = self.silent or (self.tracked[0] and not self.trace.recording)
        return Traced(self.trace, values, slopes, theirs, self.tracked, leaf=self.leaf and not silent, silent=silent)

    def __getitem__(self, index: Any) -> Traced:
        index = index if isinstance(index, tuple) else (index,)
        if index and isinstance(index[0], list):
            return self._made(self.values[index], self._seen()[index], lambda t: t[index])
        index = index if Ellipsis in index else (*index, ...)
        return self._view(self.values[index], self.slopes[(*index, slice(None))], lambda t: t[index])

    def transpose(self, order: list[int]) -> Traced:
        """The axes in another order."""
        return self._view(
            self.values.transpose(order), self.slopes.transpose([*order, self.ndim]), lambda t: t.permute(order)
        )

    @property
    def T(self) -> Traced:  # noqa: N802 -- NumPy's name
        """The axes in reverse order."""
        return self.transpose(list(range(self.ndim))[::-1])

    def reshape(self, shape: tuple[int, ...]) -> Traced:
        """A view where the strides allow it, else a copy."""
        values = self.values.reshape(shape)
        slopes = self.slopes.reshape((*values.shape, self.trace.room))
        if np.may_share_memory(values, self.values):
            return self._view(values, slopes, lambda t: t.view(shape))
        return self._made(values, self._seen().reshape(slopes.shape), lambda t: t.reshape(shape))

    def diagonal(self) -> Traced:
        """The diagonal of the first two axes, last."""
        values, slopes = self.values.diagonal(), np.moveaxis(self.slopes.diagonal(), -1, self.ndim - 2)
        values.flags.writeable = slopes.flags.writeable = True
        return self._view(values, slopes, lambda t: t.diagonal())

    def view(self, dtype: Any) -> Traced:
        """The same bytes as another dtype of the same size.

        Raises: ValueError if the size is another.
        """
        if np.dtype(dtype).itemsize != self.itemsize:
            raise ValueError("slopes have no bytes")
        self.trace.refused = self.trace.refused or "PyTorch gives the bits of a tracked tensor no gradient"
        return self._view(self.values.view(dtype), self.slopes, lambda t: t)

    def detach(self) -> Traced:
        """The same memory, with no part in gradients."""
        theirs = self.trace.follow(lambda: self.theirs.detach())
        return Traced(self.trace, self.values, self.slopes, theirs, self.tracked, silent=True)

    # -- values

    def _made(self, values: Any, slopes: Values, step: Callable[[Any], Any], *others: Traced) -> Traced:
        """A fresh array; PyTorch works on a copy, so that what it saves is not written."""
        values, slopes = np.asarray(values, order="C"), np.ascontiguousarray(slopes)  # as fresh tensors are laid out
        seen = self.trace.recording and values.dtype.kind == "f"
        theirs = self.trace.follow(lambda: step(self.theirs.clone()))
        tracked = seen and any(x.is_tracked for x in (self, *others))
        return Traced(self.trace, values, slopes if seen else np.zeros_like(slopes), theirs, [tracked])

    @property
    def is_tracked(self) -> bool:
        """Whether gradients flow through what is read from it."""
        return self.tracked[0] and not self.silent

    def _seen(self) -> Values:
        """The slopes of what is read through this handle."""
        return np.zeros_like(self.slopes) if self.silent or self.dtype.kind != "f" else self.slopes.copy()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Values:
        return np.array(self.values, dtype)

    def astype(self, dtype: Any) -> Traced:
        """A cast copy."""
        kind = np.dtype(dtype)
        return self._made(self.values.astype(kind), self._seen(), lambda t: t.to(getattr(torch, kind.name)))

    def copy(self) -> Traced:
        """A copy."""
        return self._made(self.values.copy(), self._seen(), lambda t: t)

    def __add__(self, other: Any) -> Traced:
        if isinstance(other, Traced):
            made = self.values + other.values
            slopes = _wide(self, made) + _wide(other, made)
            return self._made(made, slopes, lambda t: t + other.theirs.clone(), other)
        return self._made(self.values + other, self._seen(), lambda t: t + other.item())

    def __sub__(self, other: Any) -> Traced:
        return self + type(other)(-other)

    def __mul__(self, other: Any) -> Traced:
        if isinstance(other, Traced):
            made = self.values * other.values
            slopes = _wide(self, made) * _times(other, made) + _wide(other, made) * _times(self, made)
            return self._made(made, slopes, lambda t: t * other.theirs.clone(), other)
        return self._made(self.values * other, self._seen() * float(other), lambda t: t * other.item())

    def sum(self, axis: int) -> Traced:
        """The sum along an axis."""
        return self._made(self.values.sum(axis), self._seen().sum(axis), lambda t: t.sum(axis))

    def __gt__(self, limit: int) -> Values:
        return self.values > limit

    # -- writes

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[index] = value.values if isinstance(value, Traced) else value
        if self.trace.recording and not self.silent:
            assert not self.leaf, "the program writes a leaf"
            tracked = isinstance(value, Traced) and self.dtype.kind == value.dtype.kind == "f"
            self.slopes[index] = value._seen() if tracked else 0
            self.tracked[0] |= tracked and value.is_tracked
        if not self.trace.refused:
            self.trace.follow(lambda: self._write_theirs(index, value))

    def _write_theirs(self, index: Any, value: Any) -> None:
        """The same write in PyTorch."""
        if isinstance(index, (list, np.ndarray)) and not _is_mask(index):
            places = np.asarray(index) % self.shape[0]
            if len(np.unique(places)) < places.size:
                raise ValueError("PyTorch gives each of equal places a gradient")
        theirs = value.theirs.clone() if isinstance(value, Traced) else torch.as_tensor(value)
        if self.silent and theirs.requires_grad:
            raise ValueError("PyTorch would track the detached tensor")
        self.theirs[torch.from_numpy(index) if isinstance(index, np.ndarray) else index] = theirs

    def __iadd__(self, other: Any) -> Traced:
        self[...] = self + other
        return self


def _is_mask(index: Any) -> bool:
    """Whether an index is an array of truths."""
    return isinstance(index, np.ndarray) and index.dtype.kind == "b"


def _wide(x: Traced, made: Values) -> Values:
    """The slopes of an operand in the shape of a result."""
    slopes = x._seen()
    lead = (1,) * (made.ndim - x.ndim)
    return np.broadcast_to(slopes.reshape((*lead, *slopes.shape)), (*made.shape, x.trace.room))


def _times(x: Traced, made: Values) -> Values:
    """The values of an operand as what slopes of a result's shape are multiplied by."""
    return np.broadcast_to(x.values, made.shape)[..., None].astype(np.float64)
