"""From tensors to the host: values, arrays, text; and between dtypes and devices."""

from __future__ import annotations

import copyreg
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from intaglio.core.dtypes import DType, DTypeLike, dtypes
from intaglio.core.errors import DTypeError, GradError, InternalError, ShapeError, ValueRangeError
from intaglio.core.target import canonical
from intaglio.core.words import counted
from intaglio.engine import realize as engine
from intaglio.engine.devices import device_of
from intaglio.ir.view import View
from intaglio.ops.elementwise import Cast
from intaglio.ops.elementwise import cast as cast_op
from intaglio.ops.memory import BufferRef, Const, Read
from intaglio.storage.flush import flush, pin
from intaglio.storage.postponed import waits_for
from intaglio.storage.storage import Storage
from intaglio.tensor import files
from intaglio.tensor.arguments import flag, shown, tensor
from intaglio.tensor.creation import apart
from intaglio.tensor.elementwise import close, copied
from intaglio.tensor.gradients import DETACHED, is_leaf, is_tracked

if TYPE_CHECKING:
    from pathlib import Path

    from intaglio.ir.node import Node
    from intaglio.tensor.tensor import Tensor

DTYPE_NAMES: Final = {dtype.name for dtype in dtypes.all}
SHOWN = 1000  # elements from which a printed tensor is shortened


def bytes_of(self: Tensor) -> tuple[BufferRef, View]:
    """The buffer and view of this tensor's value, computed if need be."""
    with engine.lock:
        if self._storage is None:
            known = place_of(self._value())
            if known is not None:
                return known
            self.realize()
        storage, view = self._place()
        ref = storage.ref
        if storage.log or ref is None or waits_for(ref):
            flush([storage])
            ref = storage.ref
    if ref is None:
        raise ShapeError("numpy: the tensor has no bytes.")
    return ref, view


def place_of(node: Node) -> tuple[BufferRef, View] | None:
    """The bytes that a value is, where they are known without computing."""
    if node.place is None and isinstance(node.op, Read):
        return _unchanged(node.op, node)
    return None if node.place is None or waits_for(node.place[0]) else node.place


def _unchanged(op: Read, node: Node) -> tuple[BufferRef, View] | None:
    """The bytes of a read of a storage that is in memory and was not written since."""
    storage, view = op.storage, op.view
    assert isinstance(storage, Storage)
    ref = storage.ref
    there = ref is not None and not storage.log and not waits_for(ref)
    return (ref, view) if ref is not None and there and storage.read(view) is node else None


def numpy(self: Tensor, *, copy: bool = True) -> np.ndarray[Any, Any]:
    """The values as a NumPy array. Computes them if need be.

    Args:
        copy: Whether the array has memory of its own. False gives one on the tensor's memory: from then on reads of the
            tensor are taken, and writes to it are made, before their statement returns, so that each side sees what the
            other writes. The array keeps the memory alive.
    Raises: GradError if memory is to be shared of a tensor under gradients, which would not know of writes by others.
    Examples:
        >>> Tensor([1, 2]).numpy()
        array([1, 2])
        >>> t = Tensor([1, 2])
        >>> array = t.numpy(copy=False)
        >>> array[0] = 5
        >>> t[1] = 6
        >>> t.tolist(), array.tolist()
        ([5, 6], [5, 6])
    """
    if copy is not True and not flag("numpy", "copy", copy):
        return _shared(self)
    shape = self.shape
    if 0 in shape:
        return np.empty(shape, self.dtype.numpy)
    node = self._node
    if node is not None and isinstance(node.op, Const):
        return _number(node.op)
    del node  # what nobody holds needs no place
    with engine.lock:
        ref, view = bytes_of(self)
        memory = engine.buffer_of(ref)
        return np.array(np.ndarray(view.shape, view.dtype.numpy, memory.view(), view.offset, view.strides))


def _number(op: Const) -> np.ndarray[Any, Any]:
    """A number as an array without axes."""
    return np.frombuffer(op.bits.to_bytes(op.of.itemsize, "little"), op.of.numpy)[0:1].reshape(()).copy()


def _shared(self: Tensor) -> np.ndarray[Any, Any]:
    """An array on the tensor's memory; read-only where the memory is, or where two positions share a byte."""
    if is_tracked(self):
        raise GradError(
            "numpy: memory is shared only of a tensor without gradients, which would not see what an array writes. "
            "Use .detach().numpy(copy=False)?"
        )
    if self.numel() == 0:
        return np.empty(self.shape, self.dtype.numpy)
    storage, view = self._place()
    with engine.lock:
        pin(storage)
        if storage.ref is None:
            raise InternalError("numpy: the tensor has no bytes")
        array = on_memory(storage.ref, view)
    if view.has_internal_overlap():
        array.flags.writeable = False
    return array


def on_memory(ref: BufferRef, view: View) -> np.ndarray[Any, Any]:
    """The elements of a view of a buffer's bytes, in place."""
    if not view.size:
        return np.empty(view.shape, view.dtype.numpy)
    memory = np.asarray(engine.buffer_of(ref))
    return np.ndarray(view.shape, view.dtype.numpy, memory, view.offset, view.strides)


def extremes(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """(0 or the lowest of some integers if that is less, the highest or -1)."""
    if not array.size:
        return 0, -1
    if array.dtype.kind == "i" and array.flags.c_contiguous:  # as unsigned, negative ones are higher than all others
        high = int(array.view(f"u{array.dtype.itemsize}").max())
        if high < 1 << (8 * array.dtype.itemsize - 1):
            return 0, high
    return min(int(array.min()), 0), int(array.max())


def extremes_below(node: Node) -> tuple[int, int] | None:
    """What `extremes` gives of a value that is integers in memory, as they are or in a wider dtype; else None."""
    while isinstance(node.op, Cast) and node.src[0].dtype.is_int and _holds(node.dtype, node.src[0].dtype):
        (node,) = node.src
    known = place_of(node) if node.dtype.is_int else None
    return None if known is None or waits_for(known[0]) else extremes(on_memory(*known))


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether a dtype has all numbers of another."""
    return wide.min <= narrow.min and narrow.max <= wide.max


def tolist(self: Tensor) -> Any:
    """The values as nested lists of Python numbers (a number for a scalar).

    Examples:
        >>> Tensor([[1, 2], [3, 4]]).tolist(), Tensor(5).tolist()
        ([[1, 2], [3, 4]], 5)
    """
    return _printable(self).tolist()


def _printable(self: Tensor) -> np.ndarray[Any, Any]:
    """The values in a dtype of NumPy's own."""
    array = numpy(self)
    return array.astype(np.float32) if self.dtype.is_float and not self.dtype.struct_code else array


def item(self: Tensor) -> int | float | bool:
    """The value of a tensor of one element.

    Raises: ShapeError if it has more or fewer.
    Examples:
        >>> Tensor([[3]]).item()
        3
    """
    shape = self.shape
    if shape and math.prod(shape) != 1:
        raise ShapeError(f"item: there must be exactly one element; the tensor has shape {shape}. Index it first?")
    node = self._node
    if node is not None and isinstance(node.op, Const):
        return node.op.value
    del node  # what nobody holds needs no place
    with engine.lock:
        ref, view = bytes_of(self)
        found = engine.buffer_of(ref).read(view.offset, view.dtype.itemsize)
    return view.dtype.from_bits(int.from_bytes(found, "little"))


def array_protocol(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """NumPy's way to an array: a copy, unless one is refused.

    Raises: ValueRangeError if a copy is refused and another dtype asked for.
    """
    if copy is False and dtype is not None and np.dtype(dtype) != self.dtype.numpy:
        raise ValueRangeError(
            f"array: another dtype is a copy; the tensor is {self.dtype.name}, {dtype} was asked for. Allow the copy?"
        )
    array = numpy(self, copy=copy is not False)
    return array if dtype is None or copy is False else array.astype(dtype)


def equal(self: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape and equal elements. Computes them if need be.

    Args:
        other: The other tensor.
    Raises: DTypeError if that is no tensor.
    Examples:
        >>> Tensor([1, 2]).equal(Tensor([1, 2])), Tensor([1, 2]).equal(Tensor([1]))
        (True, False)
    """
    return self.shape == tensor("equal", "the other", other).shape and bool((self == other).all())


def allclose(
    self: Tensor, other: Tensor | float, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether all elements are close, as `isclose` says. Computes the tensors if need be.

    Args:
        other: A tensor or a number; shapes broadcast.
        rtol: How far apart they may be, as a part of the other's magnitude.
        atol: How far apart they may be in any case.
        equal_nan: Whether NaN is close to NaN.
    Raises: ShapeError if the shapes do not broadcast.
    Examples:
        >>> Tensor([1.0, 2.0]).allclose(Tensor([1.0, 2.00001]))
        True
    """
    return bool(close("allclose", self, other, rtol, atol, equal_nan).all())


def bool_(self: Tensor) -> bool:
    """The truth of a tensor of one element.

    Raises: ShapeError if it has more.
    """
    if self.numel() != 1:
        raise ShapeError(
            f"bool: the truth of a tensor of {counted(self.numel(), 'element')} is ambiguous; "
            f"the tensor has shape {self.shape}. Use .any() or .all()?"
        )
    return bool(item(self))


def index_(self: Tensor) -> int:
    """A whole number of one element, usable as an index."""
    if not (self.dtype.is_int or self.dtype.is_bool):
        raise DTypeError(
            f"index: only whole numbers can be an index; the tensor is {self.dtype.name}. Cast it, or use int(t)?"
        )
    return int(item(self))


def format_(self: Tensor, spec: str) -> str:
    """Each number formatted by the specification, in brackets as they are nested; with none, as repr.

    Examples:
        >>> f"{Tensor([[1.0, 2.5]]):.2f} {Tensor([3.0]).sum():.1f}"
        '[[1.00, 2.50]] 3.0'
    """
    if not spec:
        return repr(self)
    if self.numel() == 1:
        return format(item(self), spec)

    def spelled(value: Any) -> str:
        return format(value.item(), spec)

    return np.array2string(_printable(self), separator=", ", threshold=SHOWN, formatter={"all": spelled})


def len_(self: Tensor) -> int:
    """The extent of the first axis.

    Raises: DTypeError if there is none.
    """
    if not self.shape:
        raise DTypeError("len: the tensor must have an axis; it is a scalar. Use numel()?")
    return self.shape[0]


def repr_(self: Tensor) -> str:
    """The values, shortened as NumPy does, with dtype and device where they are not the defaults."""
    text = np.array2string(
        _printable(self),
        separator=", ",
        threshold=SHOWN,
        prefix="Tensor(",
    )
    notes = f", dtype={self.dtype.name}"
    if is_tracked(self):
        notes += ", requires_grad=True"
    if self._device != "CPU":
        notes += f", device={self._device!r}"
    if 0 in self.shape:
        notes += f", shape={self.shape}"
    return f"Tensor({text}{notes})"


def cast(self: Tensor, dtype: DTypeLike) -> Tensor:
    """The values as a dtype, in storage of their own. Floats to integers truncate; out of range wraps.

    Args:
        dtype: A dtype, its name, or NumPy's.
    Raises: DTypeError if it is none.
    Examples:
        >>> from intaglio import dtypes
        >>> Tensor([1.7, -1.7]).cast(dtypes.int32).tolist()
        [1, -1]
    """
    target = dtypes.of(dtype, None, "cast")
    return copied(self) if target is self.dtype else self._make(cast_op(self._value(), target), self)


def to(self: Tensor, *place: Any, device: str | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """The values on another device, or as another dtype, or both (the tensor itself where it is there and has that).

    Args:
        place: A device, a dtype (or its name), both in this order, or a tensor that has both.
        device: `DISK:<path>` writes the values to a file now, which then has no other bytes; the tensor given is that
            file, and may be written.
        dtype: The dtype.
    Raises: DeviceError if there is no such device; FileFormatError if the file cannot be written.
    Examples:
        >>> Tensor([1, 2]).to("float64").dtype, Tensor([1.5]).to("CPU", dtypes.int32).tolist()
        (dtypes.float64, [1])
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "numbers"
        >>> file = Tensor([1, 2], dtype=dtypes.uint8).to(f"DISK:{path}")
        >>> list(path.read_bytes())
        [1, 2]
    """
    for given in place:
        if isinstance(given, self.__class__):
            device, dtype = given._device, given.dtype
        elif given is None or (isinstance(given, str) and given not in DTYPE_NAMES):
            device = given
        elif isinstance(given, (str, DType, type, np.dtype)):
            dtype = given  # pyright: ignore[reportUnknownVariableType] -- any dtype of NumPy's
        else:
            raise DTypeError(
                f'to: a device, a dtype or a tensor is wanted; got {shown(given)}. Write to("CPU"), or to("float32")?'
            )
    if dtype is not None and dtypes.of(dtype, None, "to") is not self.dtype:
        self = cast(self, dtype)
    if device is None:
        return self
    name = canonical(device)
    path = files.path_of("to", device) if name == "DISK" and device.upper() != self._device else None
    if path is not None:
        return _to_file(self, path)
    if name == self._device:
        return self
    with engine.lock:  # a read's bytes may be written once it is let go
        ref, view = bytes_of(self)
        made = BufferRef(view.nbytes, name)
        target = device_of(name).allocate(view.nbytes)
        device_of(name).copy(engine.buffer_of(ref), view, target)
        engine.adopt(made, target)
    storage = Storage(view.nbytes, name, ref=made)
    return self.__class__._from_view(
        storage if name != "NPY" else apart(storage), View.contiguous(view.dtype, view.shape)
    )


def _to_file(self: Tensor, path: Path) -> Tensor:
    """The values written to a file. They are computed first: if that fails, the file is what it was."""
    if self._device != "CPU":
        return _to_file(self.to("CPU"), path)
    ref, view = bytes_of(self)
    storage = Storage(ref.nbytes, "CPU", ref=ref)
    storage.read_only = True
    kept = self.__class__._from_view(storage, view)
    file = files.to_write(path, view.nbytes, exactly=True)
    made = self.__class__._from_view(file, View.contiguous(view.dtype, view.shape))
    return made.assign(kept).realize()


def contiguous(self: Tensor) -> Tensor:
    """The tensor itself where its elements lie in row-major order, else a copy.

    Examples:
        >>> t = Tensor([[1, 2], [3, 4]])
        >>> t.contiguous() is t, t.T.contiguous().stride()
        (True, (2, 1))
    """
    if self._storage is None or self._place()[1].is_contiguous:
        return self
    return clone(self)


def clone(self: Tensor) -> Tensor:
    """A copy with storage of its own.

    Examples:
        >>> t = Tensor([1, 2])
        >>> c = t.clone()
        >>> t[0] = 9
        >>> c.tolist()
        [1, 2]
    """
    node: Node = self._value()
    made = self._make(node, self)
    made._place()
    return made


def detach(self: Tensor) -> Tensor:
    """A tensor that shares this one's storage and takes no part in gradients.

    Examples:
        >>> w = Tensor([1.0, 2.0], requires_grad=True)
        >>> w.detach().requires_grad
        False
    """
    storage, view = self._place()
    made = self.__class__._from_view(storage, view)
    made._grad_state = DETACHED
    return made


# NumPy's universal functions by the tensor functions of the same meaning
UFUNCS: Final = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "floor_divide": "floor_divide",
    "remainder": "mod", "power": "pow", "maximum": "maximum", "minimum": "minimum", "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor", "left_shift": "lshift", "right_shift": "rshift",
    "less": "lt",
    "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne", "arctan2": "atan2",
    "copysign": "copysign", "matmul": "matmul", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log",
    "log2": "log2",
    "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin", "arccos": "acos",
    "arctan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh",
    "sqrt": "sqrt", "square": "square", "reciprocal": "reciprocal", "negative": "neg", "absolute": "abs",
    "sign": "sign",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "round", "isnan": "isnan", "isinf": "isinf",
    "isfinite": "isfinite", "invert": "bitwise_not", "logical_not": "logical_not",
}  # fmt: skip


def ufunc_protocol(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """NumPy's functions on tensors: lazily where Intaglio has the same one, else on arrays.

    Examples:
        >>> import numpy as np
        >>> np.sqrt(Tensor([4.0, 9.0]))
        Tensor([2., 3.], dtype=float32)
    """
    name = UFUNCS.get(ufunc.__name__)
    kind = self.__class__
    if name is None or method != "__call__" or options:
        if any(isinstance(o, kind) for o in options.get("out") or ()):
            return NotImplemented
        return getattr(ufunc, method)(*(numpy(x) if isinstance(x, kind) else x for x in inputs), **options)
    first = inputs[0] if isinstance(inputs[0], kind) else kind(inputs[0], device=self._device)
    return getattr(first, name)(*inputs[1:])


# -- copies and pickles: tensors that share a storage share one afterwards


def _stored(storage: Storage) -> tuple[Any, tuple[bytes, str]]:
    """A storage in a pickle: its bytes and its device (memory, where it is a file)."""
    return _restore_storage, (_contents(storage), "CPU" if storage.path is not None else storage.device)


def _contents(storage: Storage) -> bytes:
    """The bytes of a storage as of now."""
    with engine.lock:
        flush([storage])
        return bytes(engine.buffer_of(storage.ref).view()) if storage.ref is not None and storage.nbytes else b""


def _restore_storage(data: bytes, device: str) -> Storage:
    """A storage out of a pickle."""
    return Storage(len(data), device, ref=engine.from_bytes(data, device))


def _restore(
    kind: type[Tensor],
    storage: Storage,
    dtype: DType,
    place: tuple[Any, Any, int],
    tracked: bool,
    detached: bool = False,
) -> Tensor:
    """A tensor out of a pickle: a leaf, if gradients flowed through it."""
    shape, strides, offset = place
    made = kind._from_view(storage, View(dtype, shape, strides, offset))
    if detached:
        made._grad_state = DETACHED
    return made.requires_grad_() if tracked else made


def reduce_(self: Tensor) -> tuple[Any, ...]:
    """What a pickle keeps: the values, what is shared, and whether gradients are wanted (not how it was computed).

    Examples:
        >>> import pickle
        >>> y = Tensor([1.0, 2.0], requires_grad=True) * 3
        >>> again = pickle.loads(pickle.dumps(y))
        >>> again.requires_grad, again.tolist()
        (True, [3.0, 6.0])
    """
    storage, view = self._place()
    tracked = is_tracked(self) and view.dtype.is_float
    place = (view.shape, view.strides, view.offset)
    return _restore, (self.__class__, storage, view.dtype, place, tracked, self._grad_state is DETACHED)


def deepcopy(self: Tensor, memo: dict[Any, Any]) -> Tensor:
    """A copy; tensors that share a storage share the copy of it. Its gradient, if there is one, is copied too.

    Raises: GradError if the tensor was computed under gradients: a copy would not know from what.
    """
    if is_tracked(self) and not is_leaf(self):
        raise GradError(
            "deepcopy: a tensor that was computed under gradients has no copy of its own history. "
            "Copy .detach(), or take .clone()?"
        )
    storage, view = self._place()
    twin = memo.get(id(storage))
    if twin is None:
        restore, kept = _stored(storage)
        memo[id(storage)] = twin = restore(*kept)
    made = self.__class__._from_view(twin, view)
    if self._grad_state is DETACHED:
        made._grad_state = DETACHED
    elif is_tracked(self) and view.dtype.is_float:
        made.requires_grad_()
    if self.grad is not None:
        made.grad = deepcopy(self.grad, memo)
    return made


copyreg.pickle(Storage, _stored)
