"""Making tensors: from data, by rule, at random."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio.core.config import config
from intaglio.core.dtypes import DType, DTypeLike, dtypes
from intaglio.core.errors import DeviceError, DTypeError, ShapeError, ValueRangeError
from intaglio.core.target import canonical
from intaglio.engine import realize as engine
from intaglio.ir.view import View
from intaglio.ops import elementwise as ops
from intaglio.ops.memory import BufferRef, const, iota
from intaglio.ops.movement import expand, reshape
from intaglio.runtime.buffer import Buffer
from intaglio.storage.storage import Storage
from intaglio.tensor import files
from intaglio.tensor.arguments import (
    flag,
    integer,
    integers,
    is_array,
    is_listed,
    is_tensor,
    misfit,
    not_negative,
    number,
    shown,
)
from intaglio.tensor.movement import one_or_more

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.ir.node import Node
    from intaglio.tensor.base import TensorBase
    from intaglio.tensor.tensor import Tensor


def device_name(device: str | None) -> str:
    """A device's usual name; the default's when None.

    Raises: DeviceError if there is no such device, or it is a file (which `empty` and `to` take alone).
    """
    chosen = device if device is not None else str(config.device)
    name = canonical(chosen)
    if name == "DISK" and ":" in chosen:
        raise DeviceError(
            f'device: values are not made in a file; got "{chosen}". '
            f'Open it with Tensor.empty(shape, device="{chosen}") and write to that, or move a tensor with .to()?'
        )
    return name


def from_data(self: Tensor, data: Any, dtype: DType | None, device: str) -> None:
    """Make a new handle hold data."""
    if is_tensor(data):
        node = data.to(device)._value()
        adopt_node(self, ops.cast(node, dtype) if dtype is not None else node, device)
        return
    if isinstance(data, os.PathLike):
        file = files.to_read(Path(data))  # pyright: ignore[reportUnknownArgumentType] -- of str or bytes
        adopt_storage(self, file, View.contiguous(dtypes.uint8, (file.nbytes,)))
        return
    if isinstance(data, (bytes, bytearray, memoryview)):
        array: np.ndarray[Any, Any] = np.frombuffer(bytes(data), np.uint8)  # pyright: ignore[reportUnknownArgumentType] -- a view of anything
    elif hasattr(data, "__array__"):
        array = np.asarray(data)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
    else:
        array, known = _from_lists(data, dtype)
        adopt_array(self, array, known, device)
        return
    known = dtypes.from_numpy(array.dtype, "Tensor")
    adopt_array(self, array, known, device)
    if dtype is not None and dtype is not known:
        adopt_node(self, ops.cast(self._value(), dtype), device)


def adopt_node(self: TensorBase, node: Node, device: str) -> None:
    """Make a new handle hold a computed value."""
    self._reset(device)
    self._node = node


def adopt_array(self: TensorBase, array: np.ndarray[Any, Any], dtype: DType, device: str) -> None:
    """Make a new handle hold a copy of host data."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""
    ref = engine.from_bytes(data, device)
    adopt_storage(self, Storage(len(data), device, ref=ref), View.contiguous(dtype, array.shape))


def adopt_storage(self: TensorBase, storage: Storage, view: View) -> None:
    """Make a new handle hold a view of a storage."""
    self._reset(storage.device if storage.device != "NPY" else apart(storage).device)
    self._storage, self._view = storage, view


def apart(storage: Storage) -> Storage:
    """A storage of host arrays, where nothing is computed: pinned, so that what is asked of it is an error at once."""
    storage.pin()
    return storage


def _from_lists(data: Any, dtype: DType | None) -> tuple[np.ndarray[Any, Any], DType]:
    """Nested lists of Python numbers (or tensors) as an array: int64, the default float, or bool."""
    if isinstance(data, range):
        data = list(data)
    flat: list[Any] = []
    shape = _shape_of(data, flat)
    kinds = {v.__class__ for v in flat}
    if not kinds <= {int, float, bool}:
        strange = next(v.__class__ for v in flat if v.__class__ not in (int, float, bool))
        raise DTypeError(
            f"Tensor: data must be numbers; got {strange.__name__}. Convert it to a list or array of numbers?"
        )
    known = dtypes.default_float if float in kinds or not flat else dtypes.default_int if int in kinds else dtypes.bool
    target = dtype or known
    if target.is_int:
        for v in flat:
            if not target.fits(v):
                raise misfit("Tensor", v, target)
    size = target.itemsize
    if (
        target in (dtypes.float32, dtypes.float64)
        and kinds <= {float, int}
        and all(v.__class__ is float or abs(v) < 1 << 53 for v in flat)
    ):
        with np.errstate(all="ignore"):
            return np.array(flat, np.float64).astype(target.numpy).reshape(shape), target
    raw = b"".join(target.to_bits(target.wrap(v)).to_bytes(size, "little") for v in flat)
    return np.frombuffer(raw, target.numpy).reshape(shape), target


def _shape_of(data: Any, flat: list[Any]) -> tuple[int, ...]:
    """The shape of nested lists, whose numbers are appended to `flat`.

    Raises: ShapeError if the lists are ragged.
    """
    if not is_listed(data):
        if hasattr(data, "__array__"):
            inner: np.ndarray[Any, Any] = np.asarray(data)
            flat.extend(inner.reshape(-1).tolist())
            return inner.shape
        flat.append(data)
        return ()
    if data and {item.__class__ for item in data} <= {int, float, bool}:
        flat.extend(data)
        return (len(data),)
    shapes = {_shape_of(item, flat) for item in data}
    if len(shapes) > 1:
        raise ShapeError(
            f"Tensor: nested lists must have equal lengths; found items of shapes {sorted(shapes)}. Pad the shorter?"
        )
    return (len(data), *(next(iter(shapes)) if shapes else ()))


def wanting(made: Tensor, name: str, requires_grad: bool | None) -> Tensor:
    """A tensor that a named function has made, with gradients if they are wanted."""
    wanted = requires_grad is not None and flag(name, "requires_grad", requires_grad)
    return made.requires_grad_() if wanted else made


# -- by rule


def _extents(name: str, shape: object) -> tuple[int, ...]:
    """The shape that a named op is given.

    Raises: DTypeError or ShapeError if it is none.
    """
    found = integers(name, "extents", shape)
    if any(n < 0 for n in found):
        raise ShapeError(f"{name}: extents must not be negative; got {found}. Give 0 or more?")
    return found


def _filled(
    name: str,
    cls: type[Tensor],
    shape: object,
    value: Any,
    dtype: DTypeLike | None,
    device: str | None,
    requires_grad: bool,
) -> Tensor:
    """One number in a shape, for a named op."""
    extents, each = _extents(name, shape), number(name, "the value", value)
    chosen = dtypes.of(dtype, dtypes.from_py(each), name)
    if not chosen.fits(each):
        raise misfit(name, each, chosen)
    node = const(chosen, each)
    return wanting(cls._from_node(expand(node, extents) if extents else node, device_name(device)), name, requires_grad)


def zeros(
    cls: type[Tensor],
    *shape: object,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros.

    Args:
        shape: Extents, one by one or as one sequence.
        dtype: The element type; by default the default float, float32.
        device: Where; by default the configured device.
        requires_grad: Whether gradients are wanted for it.
    Raises: ShapeError if an extent is negative; DTypeError if it is no integer.
    Examples:
        >>> Tensor.zeros(2, 2, dtype="int32").tolist()
        [[0, 0], [0, 0]]
    """
    chosen = dtypes.of(dtype, dtypes.default_float, "zeros")
    return _filled("zeros", cls, one_or_more(shape), 0, chosen, device, requires_grad)


def ones(
    cls: type[Tensor],
    *shape: object,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones.

    Args:
        shape: Extents, one by one or as one sequence.
        dtype: The element type; by default the default float, float32.
        device: Where; by default the configured device.
        requires_grad: Whether gradients are wanted for it.
    Raises: ShapeError if an extent is negative; DTypeError if it is no integer.
    Examples:
        >>> Tensor.ones((3,)).tolist()
        [1.0, 1.0, 1.0]
    """
    chosen = dtypes.of(dtype, dtypes.default_float, "ones")
    return _filled("ones", cls, one_or_more(shape), 1, chosen, device, requires_grad)


def full(
    cls: type[Tensor],
    shape: int | Sequence[int],
    value: float,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """One number everywhere.

    Args:
        shape: The extents, or one extent.
        value: The number.
        dtype: The element type; by default that of the number: int64, float32 or bool.
        device: Where; by default the configured device.
        requires_grad: Whether gradients are wanted for it.
    Raises: ShapeError if an extent is negative; ValueRangeError if the dtype cannot hold the number.
    Examples:
        >>> Tensor.full((2, 2), 7).tolist()
        [[7, 7], [7, 7]]
    """
    return _filled("full", cls, shape, value, dtype, device, requires_grad)


def empty(
    cls: type[Tensor],
    *shape: object,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor whose elements are whatever is there until they are written.

    Args:
        shape: Extents, one by one or as one sequence.
        dtype: The element type; by default the default float, float32.
        device: `DISK:<path>` opens a file to be written: it is made, or made longer, where there is need, and its bytes
            are the elements (those of a longer file that follow stay as they are). Writes are pending like any others,
            and are in the file after `realize`; those of a tensor that is gone by then are not made.
        requires_grad: Whether gradients are wanted for it.
    Raises: FileFormatError if the file cannot be opened or has no room; ShapeError if an extent is negative.
    Examples:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "counts"
        >>> counts = Tensor.empty(4, dtype=dtypes.uint8, device=f"DISK:{path}")
        >>> counts[1:3] = 7
        >>> list(path.read_bytes()), list(counts.realize().numpy()) == list(path.read_bytes())
        ([0, 0, 0, 0], True)
    """
    extents = _extents("empty", one_or_more(shape))
    chosen = dtypes.of(dtype, dtypes.default_float, "empty")
    view = View.contiguous(chosen, extents)
    path = files.path_of("empty", device)
    storage = Storage(view.nbytes, device_name(device)) if path is None else files.to_write(path, view.nbytes)
    made = cls._from_view(storage, view)
    return wanting(made, "empty", requires_grad)


def arange(
    cls: type[Tensor],
    start: float,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """Numbers from start (0) up to stop, by step. Integers give int64, floats the default float.

    Args:
        start: The first number, or, alone, where to stop.
        stop: Where to stop; it is not reached.
        step: From one number to the next.
        dtype: The element type; by default as said above.
        device: Where; by default the configured device.
    Raises: ValueRangeError if step is 0.
    Examples:
        >>> Tensor.arange(2, 10, 3).tolist()
        [2, 5, 8]
    """
    first, end = (0, start) if stop is None else (start, stop)
    start, stop = number("arange", "start", first), number("arange", "stop", end)
    step = number("arange", "step", step)
    if step == 0 or not all(math.isfinite(v) for v in (start, stop, step)):
        raise _no_range(start, stop, step)
    whole = all(isinstance(v, int) for v in (start, stop, step))
    count = max(0, int(-((start - stop) // step)) if whole else math.ceil((stop - start) / step))  # ints: exactly
    exact = dtypes.int64 if whole else dtypes.float64
    chosen = dtypes.of(dtype, dtypes.int64 if whole else dtypes.default_float, "arange")
    node = ops.cast(iota(count), exact)
    if step != 1:
        node = ops.mul(node, const(exact, step))
    if start != 0:
        node = ops.add(node, const(exact, start))
    return cls._from_node(ops.cast(node, chosen), device_name(device))


def _no_range(start: float, stop: float, step: float) -> ValueRangeError:
    """The error for numbers between which an arange has no end."""
    if step == 0:
        return ValueRangeError(f"arange: step must not be 0; got {start}, {stop} and {step}. Leave it out for 1?")
    return ValueRangeError(
        f"arange: start, stop and step must be finite; got {start}, {stop} and {step}. Give a finite stop?"
    )


def linspace(
    cls: type[Tensor],
    start: float,
    stop: float,
    steps: int,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """`steps` numbers evenly spaced from start to stop, both included and exact.

    Args:
        start: The first number.
        stop: The last number.
        steps: How many.
        dtype: The element type; by default the default float.
        device: Where; by default the configured device.
    Raises: ShapeError if there are to be fewer than none; ValueRangeError if the dtype cannot hold start or stop.
    Examples:
        >>> Tensor.linspace(0, 1, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    start, stop = number("linspace", "start", start), number("linspace", "stop", stop)
    steps = not_negative("linspace", "the number of steps", integer("linspace", "the number of steps", steps))
    chosen = dtypes.of(dtype, dtypes.default_float, "linspace")
    for end in (start, stop):
        if not chosen.fits(end):
            raise misfit("linspace", end, chosen)
    gaps = max(1, steps - 1)
    place = iota(steps)
    apart = float(stop) - float(start)
    each = apart / gaps if math.isfinite(apart) else stop / gaps - start / gaps  # large ends have no difference
    step = const(dtypes.float64, each)
    after = ops.add(const(dtypes.float64, start), ops.mul(ops.cast(place, dtypes.float64), step))
    left = ops.cast(ops.sub(const(dtypes.int64, gaps), place), dtypes.float64)
    before = ops.sub(const(dtypes.float64, stop), ops.mul(left, step))
    near = ops.lt(place, const(dtypes.int64, steps // 2))
    node = ops.cast(ops.where(near, after, before), chosen)
    if steps > 1:
        node = ops.where(ops.eq(place, const(dtypes.int64, gaps)), const(chosen, stop), node)
    node = ops.where(ops.eq(place, const(dtypes.int64, 0)), const(chosen, start), node)  # integers may have more digits
    return cls._from_node(node, device_name(device))


def eye(
    cls: type[Tensor], n: int, m: int | None = None, *, dtype: DTypeLike | None = None, device: str | None = None
) -> Tensor:
    """Ones on the diagonal, zeros elsewhere.

    Args:
        n: The rows.
        m: The columns; as many as rows when None.
        dtype: The element type; by default the default float, float32.
        device: Where; by default the configured device.
    Raises: ShapeError if an extent is negative.
    Examples:
        >>> Tensor.eye(2, 3).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    n, columns = _extents("eye", (integer("eye", "n", n), n if m is None else integer("eye", "m", m)))
    rows = expand(reshape(iota(n), (n, 1)), (n, columns))
    same = ops.eq(rows, expand(reshape(iota(columns), (1, columns)), (n, columns)))
    return cls._from_node(ops.cast(same, dtypes.of(dtype, dtypes.default_float, "eye")), device_name(device))


def _like(
    name: str,
    self: Tensor,
    shape: object,
    value: Any,
    dtype: DTypeLike | None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """One number in this tensor's dtype and device, unless others are named, for a named op."""
    chosen = dtypes.of(dtype, self.dtype, name)
    return _filled(name, self.__class__, shape, value, chosen, self._near if device is None else device, requires_grad)


def zeros_like(self: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """Zeros of this tensor's shape.

    Args:
        dtype: The element type; by default this tensor's.
    Examples:
        >>> Tensor([1, 2]).zeros_like().tolist()
        [0, 0]
    """
    return _like("zeros_like", self, self.shape, 0, dtype)


def ones_like(self: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """Ones of this tensor's shape.

    Args:
        dtype: The element type; by default this tensor's.
    Examples:
        >>> Tensor([5, 2]).ones_like(dtype="float32").tolist()
        [1.0, 1.0]
    """
    return _like("ones_like", self, self.shape, 1, dtype)


def full_like(self: Tensor, value: float, dtype: DTypeLike | None = None) -> Tensor:
    """One number in this tensor's shape.

    Args:
        value: The number.
        dtype: The element type; by default this tensor's.
    Raises: ValueRangeError if the dtype cannot hold the number.
    Examples:
        >>> Tensor([1, 2]).full_like(7).tolist()
        [7, 7]
    """
    return _like("full_like", self, self.shape, value, dtype)


def new_zeros(
    self: Tensor,
    *shape: object,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros of a shape, in this tensor's dtype and on its device, if no others are named.

    Args:
        shape: Extents, one by one or as one sequence.
        dtype: The element type; by default this tensor's.
        device: Where; by default this tensor's device.
        requires_grad: Whether gradients are wanted for it.
    Raises: ShapeError if an extent is negative; DTypeError if it is no integer.
    Examples:
        >>> Tensor([1], dtype="int8").new_zeros(2, 2)
        Tensor([[0, 0],
                [0, 0]], dtype=int8)
    """
    return _like("new_zeros", self, one_or_more(shape), 0, dtype, device, requires_grad)


def new_ones(
    self: Tensor,
    *shape: object,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones of a shape, in this tensor's dtype and on its device, if no others are named.

    Args:
        shape: Extents, one by one or as one sequence.
        dtype: The element type; by default this tensor's.
        device: Where; by default this tensor's device.
        requires_grad: Whether gradients are wanted for it.
    Raises: ShapeError if an extent is negative; DTypeError if it is no integer.
    Examples:
        >>> Tensor([2.5]).new_ones(2)
        Tensor([1., 1.], dtype=float32)
    """
    return _like("new_ones", self, one_or_more(shape), 1, dtype, device, requires_grad)


def new_full(
    self: Tensor,
    shape: int | Sequence[int],
    value: float,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """One number in a shape, in this tensor's dtype and on its device, if no others are named.

    Args:
        shape: The extents, or one extent.
        value: The number.
        dtype: The element type; by default this tensor's.
        device: Where; by default this tensor's device.
        requires_grad: Whether gradients are wanted for it.
    Raises: ShapeError if an extent is negative; ValueRangeError if the dtype cannot hold the number.
    Examples:
        >>> Tensor([2.5]).new_full((2,), 7)
        Tensor([7., 7.], dtype=float32)
    """
    return _like("new_full", self, shape, value, dtype, device, requires_grad)


def new_tensor(
    self: Tensor,
    data: Any,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A copy of data, in this tensor's dtype and on its device, if no others are named.

    Args:
        data: What `Tensor` takes.
        dtype: The element type; by default this tensor's.
        device: Where; by default this tensor's device.
        requires_grad: Whether gradients are wanted for it.
    Raises: as Tensor.
    Examples:
        >>> Tensor([2.5]).new_tensor([1, 2])
        Tensor([1., 2.], dtype=float32)
    """
    chosen = dtypes.of(dtype, self.dtype, "new_tensor")
    return self.__class__(data, chosen, self._near if device is None else device, requires_grad)


def empty_like(self: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """An empty tensor of this tensor's shape.

    Args:
        dtype: The element type; by default this tensor's.
    Examples:
        >>> Tensor.zeros(2, 3).empty_like().shape
        (2, 3)
    """
    return self.__class__.empty(*self.shape, dtype=dtypes.of(dtype, self.dtype, "empty_like"), device=self._device)


def share_array(cls: type[Tensor], array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor on the memory of an array: writes on either side show on the other once they have run.

    Args:
        array: A contiguous array; one that is read-only gives a tensor that is.
    Raises: DTypeError if it is no array; ShapeError if it is not contiguous.
    Examples:
        >>> import numpy as np
        >>> array = np.zeros(3, np.float32)
        >>> t = Tensor.from_numpy(array)
        >>> t[1] = 7
        >>> array.tolist()
        [0.0, 7.0, 0.0]
    """
    if not is_array(array):
        raise DTypeError(
            f"from_numpy: an array of NumPy's is wanted; got {shown(array)}. Use Tensor(...), which copies?"
        )
    if not array.flags.c_contiguous:
        raise ShapeError(
            f"from_numpy: the array must be contiguous; its strides are {array.strides} for shape {array.shape}. "
            "Copy it first?"
        )
    known = dtypes.from_numpy(array.dtype, "from_numpy")
    if array.nbytes == 0:
        return cls(array)
    ref = BufferRef(array.nbytes, "CPU")
    writable = bool(array.flags.writeable)
    engine.adopt(ref, Buffer(int(array.__array_interface__["data"][0]), array.nbytes, array, read_only=not writable))
    storage = Storage(array.nbytes, "CPU", ref=ref)
    storage.read_only = not writable
    storage.pin()
    return cls._from_view(storage, View.contiguous(known, array.shape))
