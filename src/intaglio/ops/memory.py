"""Leaves and memory: constants, buffers, windows on bytes, reads, takes, loads."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import InternalError
from intaglio.ir.node import Node, Op, Result, make, make_under

if TYPE_CHECKING:
    from intaglio.ir.view import View


class BufferRef:
    """The name of some bytes on a device. `memory`, the runtime buffer that it stands for, is the engine's alone.

    Compared by identity. When the last reference goes, the bytes go.
    """

    __slots__ = ("__weakref__", "device", "memory", "nbytes")

    def __init__(self, nbytes: int, device: str) -> None:
        self.memory: object = None
        self.nbytes: Final = nbytes
        self.device: Final = device

    @property
    def id(self) -> int:
        """Its number among those that were asked for one."""
        number = _asked.get(self)
        if number is None:
            number = _asked[self] = next(_numbers)
        return number

    def __repr__(self) -> str:
        return f"BufferRef({self.id}, {self.nbytes} bytes, {self.device})"


_numbers: Final = itertools.count()
_asked: Final[weakref.WeakKeyDictionary[BufferRef, int]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Const(Op):
    """A number: its dtype and bit pattern (so that 0.0, -0.0, 1, True and each NaN differ). Shape ()."""

    of: DType
    bits: int
    name: ClassVar[str] = "const"

    @property
    def value(self) -> int | float | bool:
        """The number as a Python value."""
        return self.of.from_bits(self.bits)

    def infer(self) -> Result:
        """A scalar of its dtype."""
        return self.of, ()


@dataclass(frozen=True, slots=True)
class Iota(Op):
    """The int64 values 0 .. n-1. Shape (n,). At LINEAR level, the lane numbers of a vector."""

    n: int
    name: ClassVar[str] = "iota"

    def infer(self) -> Result:
        """n 64-bit integers."""
        return dtypes.int64, (self.n,)


@dataclass(frozen=True, slots=True)
class Buffer(Op):
    """All bytes of a realized buffer. Shape (nbytes,), uint8. TENSOR level; kernels name a `Param` instead."""

    ref: BufferRef
    name: ClassVar[str] = "buffer"

    def infer(self) -> Result:
        """Its bytes."""
        return dtypes.uint8, (self.ref.nbytes,)


@dataclass(frozen=True, slots=True)
class Param(Op):
    """A pointer argument of a kernel, typed. KERNEL level and below.

    Params of one `group` may share bytes; Params of different groups never do. `nbytes` is -1 where it is not fixed.
    """

    slot: int
    of: DType
    group: int
    name: ClassVar[str] = "param"

    def infer(self) -> Result:
        """A pointer: the shape is empty, the dtype that of its elements."""
        return self.of, ()


@dataclass(frozen=True, slots=True)
class NextParam(Op):
    """The pointer argument of the launch after this one in a series (`Linear`); of the last one, its own. LINEAR level.

    What is there can only be asked for (`Prefetch`).
    """

    slot: int
    of: DType
    name: ClassVar[str] = "next_param"

    def infer(self) -> Result:
        """A pointer: the shape is empty, the dtype that of its elements."""
        return self.of, ()


@dataclass(frozen=True, slots=True)
class Arg(Op):
    """A scalar argument of a kernel (a lifted literal). Shape ()."""

    slot: int
    of: DType
    name: ClassVar[str] = "arg"

    def infer(self) -> Result:
        """A scalar of its dtype."""
        return self.of, ()


@dataclass(frozen=True, slots=True)
class Window(Op):
    """The elements that a `View` selects from the row-major bytes of its input.

    src: (value[, offset]). The value is a Buffer or Param, or any node at all (its elements in row-major order are the
    bytes: how a view of something not yet computed is read without computing it apart). `offset` is an int64 scalar
    in BYTES, added to the view's; it may depend on Ranges (a sequential loop) or be an Arg.
    """

    view: View
    name: ClassVar[str] = "window"

    def infer(self, value: Node, offset: Node | None = None) -> Result:
        """The view's dtype and shape."""
        if offset is not None and offset.shape != ():
            raise InternalError(f"window: the offset must be a scalar, not of shape {offset.shape}")
        return self.view.dtype, self.view.shape


@dataclass(unsafe_hash=True, slots=True)  # not frozen, since that makes each object by calls
class Read(Op):
    """The value of a view of a storage as of the moment `stamp`. Storage level; resolved before scheduling.

    `storage` is opaque here and compared by identity.
    """

    storage: Final[object]
    view: Final[View]
    stamp: Final[int]
    name: ClassVar[str] = "read"

    def infer(self) -> Result:
        """The view's dtype and shape."""
        return self.view.dtype, self.view.shape


@dataclass(frozen=True, slots=True)
class Take(Op):
    """Elements at computed positions: out[j..., rest...] = x[i0[j], ..., ik[j], rest...].

    src: (x, i0, ..., ik): int64 indices of one shape J for the leading axes of x. Shape J + x.shape[k:].
    Indices are already wrapped (no negatives) and checked elsewhere; one out of range reads as index 0.
    """

    name: ClassVar[str] = "take"

    def infer(self, x: Node, *indices: Node) -> Result:
        """Index shape, then the axes of x that were not indexed."""
        if not indices or len(indices) > x.rank:
            raise InternalError(f"take: {len(indices)} indices for {x.rank} axes")
        if any(i.shape != indices[0].shape or i.dtype is not dtypes.int64 for i in indices):
            raise InternalError("take: indices must be int64 of one shape")
        return x.dtype, indices[0].shape + x.shape[len(indices) :]


@dataclass(frozen=True, slots=True)
class Put(Op):
    """`base` with `values` combined in at computed positions, in row-major order of the indices (so the last one wins).

    src: (base, values, i0, ..., ik). `combine` is set, add, mul, max or min. values has shape J + base.shape[k:].
    An index out of range is dropped.
    """

    combine: str
    name: ClassVar[str] = "put"

    def infer(self, base: Node, values: Node, *indices: Node) -> Result:
        """The base's dtype and shape."""
        if not indices or values.shape != indices[0].shape + base.shape[len(indices) :]:
            raise InternalError(f"put: values {values.shape} do not fit {[i.shape for i in indices]} of {base.shape}")
        if values.dtype is not base.dtype:
            raise InternalError(f"put: values are {values.dtype.name}, the base is {base.dtype.name}")
        return base.dtype, base.shape


@dataclass(frozen=True, slots=True)
class Load(Op):
    """One element, or a vector, from a Param or Local. LOOP and LINEAR level.

    src: (pointer, index[, mask]); index in elements. A scalar index with lanes = 0 is a scalar; with lanes = n, n
    neighbours; a vector index gathers. Lanes whose mask is false give 0 and touch no memory.
    `epoch` tells apart loads of one place at different times, in kernels that also write it.
    """

    lanes: int = 0
    epoch: int = 0
    name: ClassVar[str] = "load"

    def infer(self, pointer: Node, index: Node, mask: Node | None = None) -> Result:
        """The pointer's dtype, as many lanes as asked."""
        if index.dtype is not dtypes.int64:
            raise InternalError(f"load: the index is {index.dtype.name}, not int64")
        return pointer.dtype, index.shape or ((self.lanes,) if self.lanes else ())


@dataclass(frozen=True, slots=True)
class Local(Op):
    """Scratch memory of one kernel call, `size` elements. Used where a Param is."""

    uid: int
    of: DType
    size: int
    name: ClassVar[str] = "local"

    def infer(self) -> Result:
        """A pointer to its dtype."""
        return self.of, ()


def const(dtype: DType, value: int | float | bool) -> Node:
    """A number of a dtype, converted to it (integers wrap, floats round)."""
    if value or isinstance(value, int):
        return _recent_const(dtype, value)
    return _const(dtype, value)  # 0.0 and -0.0 are equal as keys


def _const(dtype: DType, value: int | float | bool) -> Node:
    """A number of a dtype."""
    return make(Const(dtype, dtype.to_bits(dtype.wrap(value))))


_recent_const: Final = lru_cache(maxsize=256, typed=True)(_const)


def iota(n: int) -> Node:
    """The integers 0 .. n-1."""
    return make(Iota(n))


def buffer(ref: BufferRef) -> Node:
    """The bytes of a buffer."""
    return make(Buffer(ref))


def window(view: View, value: Node, offset: Node | None = None) -> Node:
    """The elements that `view` selects from the bytes of `value`."""
    return make(Window(view), value) if offset is None else make(Window(view), value, offset)


def read(storage: object, view: View, stamp: int) -> Node:
    """The value of a view of a storage as of a moment.

    It is found by where the storage is, so that the table of nodes keeps no storage alive: a pending write of a storage
    may read it, and nobody else need hold either.
    """
    return make_under((Read, id(storage), view, stamp), Read(storage, view, stamp), view.dtype, view.shape)


def take(x: Node, *indices: Node) -> Node:
    """x at computed positions of its leading axes."""
    return make(Take(), x, *indices)


def put(combine: str, base: Node, values: Node, *indices: Node) -> Node:
    """base with values combined in at computed positions of its leading axes."""
    return make(Put(combine), base, values, *indices)


def load(pointer: Node, index: Node, mask: Node | None = None, *, lanes: int = 0, epoch: int = 0) -> Node:
    """A load of one element, of `lanes` neighbours, or of a vector of places."""
    op = Load(lanes, epoch)
    return make(op, pointer, index) if mask is None else make(op, pointer, index, mask)
