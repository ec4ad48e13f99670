"""The Tensor: one handle with every operation as a method."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from intaglio.core.dtypes import DTypeLike, Number, dtypes
from intaglio.core.errors import DTypeError, ShapeError
from intaglio.core.trace import GlobalCounters
from intaglio.engine import realize as engine
from intaglio.storage.history import tracking
from intaglio.storage.postponed import waits_for
from intaglio.storage.report import Report, report
from intaglio.tensor import (
    arguments,
    combine,
    convert,
    creation,
    elementwise,
    functional,
    gradients,
    indexing,
    matmul,
    movement,
    random,
    reduce,
    sorting,
    spatial,
)
from intaglio.tensor.base import (
    EVERY,
    TensorBase,
    bound,
    flush_tensors,
    new,
    partition_tensors,
    relieve_tensor,
    tracked_element,
    uop_of,
)
from intaglio.tensor.elementwise import operator
from intaglio.tensor.spelling import spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

    from intaglio.ir.node import Node
    from intaglio.ir.view import View
    from intaglio.storage.postponed import Pending
    from intaglio.storage.storage import Storage

KINDS: Final = {"bool": 0, "int": 1, "uint": 1, "float": 2}  # of dtypes: a value of a later one does not go into others


class Tensor(TensorBase):
    """An array of one dtype on one device, computed when a value is read.

    Args:
        data: Nested lists of numbers, a number, an array (copied), bytes, a tensor, or a path (its bytes, mapped).
        dtype: The element type; by default int64, float32 or bool for Python numbers, else that of the data.
        device: Where; by default the configured device.
        requires_grad: Whether gradients are wanted for it.
    Raises: ShapeError, DTypeError or ValueRangeError where the data do not make an array.
    Examples:
        >>> t = Tensor([1.0, 2.0, 3.0])
        >>> t[1:] += 10
        >>> t.tolist()
        [1.0, 12.0, 13.0]
    """

    __array_priority__ = 1000
    __hash__ = object.__hash__
    training: ClassVar[bool] = False
    bool_dtype: Final = dtypes.bool

    def __init__(
        self, data: Any, dtype: DTypeLike | None = None, device: str | None = None, requires_grad: bool | None = None
    ) -> None:
        chosen = dtypes.of(dtype, None, "Tensor") if dtype is not None else None
        creation.from_data(self, data, chosen, creation.device_name(device))
        if requires_grad is not None:
            creation.wanting(self, "Tensor", requires_grad)

    # -- what the modules of functions use

    def _make(self, node: Node, *sources: Any) -> Tensor:
        """A computed tensor from others."""
        made = new(Tensor)
        made._node = node
        made._device = self._device
        if tracking.begun:
            gradients.mark(made, node, sources)
        bound.calls += 1
        if bound.calls >= EVERY or bound.used != GlobalCounters.mem_used:
            relieve_tensor(made)
        return made

    def _share(self, storage: Storage, view: View) -> Tensor:
        """A tensor on the same storage."""
        made = new(Tensor)
        made._storage = storage
        made._view = view
        made._device = storage.device
        if tracking.begun and gradients.is_apart(self):
            made._grad_state = gradients.DETACHED
        return made

    def _place(self) -> tuple[Storage, View]:
        storage, view = self._storage, self._view
        if storage is not None and view is not None:
            return storage, view
        if storage is None and self._grad_state is True:
            node = self.to_node()
            found = TensorBase._place(self)
            gradients.place(self, found[0], node)
            return found
        return TensorBase._place(self)

    def _host(self) -> np.ndarray[Any, Any] | None:
        """The values where they are known without computing (no write is pending), else None: to be read at once."""
        storage = self._storage
        if storage is None or storage.log or storage.ref is None or waits_for(storage.ref):
            return None
        return convert.on_memory(storage.ref, self._place()[1])

    def _extremes(self) -> tuple[int, int] | None:
        """(0 or the lowest integer if that is less, the highest) where they are known without computing, else None."""
        with engine.lock:
            storage = self._storage
            found = None if storage is None or storage.log or storage.stays else storage.extremes
            if found is not None and storage is not None and found[0] == storage.sequence and found[1] == self._view:
                return found[2:4]
            array = self._host()
            if array is None:
                return convert.extremes_below(self._node) if storage is None and self._node is not None else None
            storage, view = self._place()
            found = storage.extremes = (storage.sequence, view, *convert.extremes(array))
            return found[2:4]

    def _extremes_but(self, left_out: int) -> tuple[int, int] | None:
        """The same of all numbers but one."""
        with engine.lock:
            known, storage = self._extremes(), self._storage
            if known is None or storage is None or storage.extremes is None:
                return known
            found = storage.extremes
            if len(found) == 4 or found[4] != left_out:
                array = self._host()
                assert array is not None  # what has extremes is in memory
                found = storage.extremes = (*found[:4], left_out, *convert.extremes(array[array != left_out]))
            return found[5:]

    def _check_write(self, storage: Storage, view: View, name: str, *sources: Any) -> None:
        """Raise where a named op's write is not allowed."""
        if tracking.begun:
            gradients.check_write(self, storage, view, name, sources)

    def _written(self, storage: Storage, view: View, node: Node, mask: Node | None, *sources: Any) -> None:
        """Note a write for gradients."""
        if tracking.begun:
            gradients.written(self, storage, view, node, (), mask, sources)

    def _written_at(self, storage: Storage, view: View, indices: tuple[Node, ...], node: Node, *sources: Any) -> None:
        """Note a write at computed positions for gradients."""
        if tracking.begun:
            gradients.written(self, storage, view, node, indices, None, sources)

    def _is_followed(self, storage: Storage) -> bool:
        return storage.history is not None and not storage.pinned and gradients.follows(self)

    def _get(self, index: object) -> Tensor:
        storage = self._storage
        if storage is not None and not storage.plain and self._is_followed(storage):
            place = self._element_at(index)
            if place is not None:
                return tracked_element(self, place[0], storage, place[1])
        return indexing.getitem(self, index)

    def _set(self, index: object, value: object) -> None:
        if isinstance(value, TensorBase) and value._grad_state is True and value._skeleton is not None:
            place = self._element_at(index)
            storage, _ = self._place()
            if place is not None and gradients.write_element(self, storage, place[0].dtype, place[1], value):
                return
        indexing.setitem(self, index, value)

    # -- gradients

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow through it.

        Examples:
            >>> Tensor([1.0], requires_grad=True).requires_grad, Tensor([1.0]).requires_grad
            (True, False)
        """
        return gradients.is_tracked(self)

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        gradients.requires_grad_(self, arguments.flag("requires_grad", "the value", wanted))

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward sweeps have added up, or None.

        Examples:
            >>> w = Tensor([1.0, 2.0], requires_grad=True)
            >>> _ = (w * w).sum().backward()
            >>> w.grad.tolist()
            [2.0, 4.0]
        """
        return getattr(self, "_grad", None)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None and arguments.tensor("grad", "the gradient", value).shape != self.shape:
            raise ShapeError(
                f"grad: the gradient must have the tensor's shape; {value.shape} for {self.shape}. Reshape it?"
            )
        self._grad = value

    requires_grad_, backward, gradient = gradients.requires_grad_, gradients.backward, gradients.gradient

    @property
    def is_leaf(self) -> bool:
        """Whether gradients add up in its `.grad`, or it has none: it was not computed from a tensor that has.

        Examples:
            >>> w = Tensor([1.0], requires_grad=True)
            >>> w.is_leaf, (w * 2).is_leaf, Tensor([1.0]).is_leaf
            (True, False, True)
        """
        return not gradients.is_tracked(self) or gradients.is_handle_of_leaf(self)

    @property
    def data(self) -> Tensor:
        """A tensor that shares this one's storage and takes no part in gradients; when set, values are written.

        Examples:
            >>> w = Tensor([1.0, 2.0], requires_grad=True)
            >>> w.data = w.data * 2
            >>> w.tolist(), w.requires_grad, w.data.requires_grad
            ([2.0, 4.0], True, False)
        """
        return convert.detach(self)

    @data.setter
    def data(self, value: Any) -> None:
        with gradients.no_grad():
            self._put(value, "data")

    # -- properties

    @property
    def ndim(self) -> int:
        """The number of axes.

        Examples:
            >>> Tensor.zeros(2, 3).ndim
            2
        """
        return len(self.shape)

    def dim(self) -> int:
        """The number of axes.

        Examples:
            >>> Tensor.zeros(2, 3).dim()
            2
        """
        return len(self.shape)

    def is_floating_point(self) -> bool:
        """Whether the elements are floats.

        Examples:
            >>> Tensor([1.0]).is_floating_point(), Tensor([1]).is_floating_point()
            (True, False)
        """
        return self.dtype.is_float

    def element_size(self) -> int:
        """The bytes of one element.

        Examples:
            >>> Tensor([1.0]).element_size()
            4
        """
        return self.dtype.itemsize

    def is_contiguous(self) -> bool:
        """Whether its elements lie in row-major order without gaps.

        Examples:
            >>> t = Tensor.zeros(2, 3)
            >>> t.is_contiguous(), t.T.is_contiguous()
            (True, False)
        """
        return self._storage is None or self._place()[1].is_contiguous

    def cpu(self) -> Tensor:
        """The values on the CPU.

        Examples:
            >>> Tensor([1, 2], device="PYTHON").cpu().device
            'CPU'
        """
        return self.to("CPU")

    def numel(self) -> int:
        """The number of elements.

        Examples:
            >>> Tensor.zeros(2, 3).numel()
            6
        """
        return math.prod(self.shape)

    def nelement(self) -> int:
        """The number of elements, as numel.

        Examples:
            >>> Tensor.zeros(2, 3).nelement()
            6
        """
        return self.numel()

    @property
    def itemsize(self) -> int:
        """The bytes of one element, as element_size.

        Examples:
            >>> Tensor([1.0]).itemsize
            4
        """
        return self.dtype.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """How many elements apart in its storage the elements of each axis lie, or those of one.

        Args:
            dim: The axis; all of them when None.
        Raises: ShapeError if that is no whole number of them, as in some views after a bitcast.
        Examples:
            >>> Tensor.zeros(2, 3).stride(), Tensor.zeros(2, 3).T.stride(0)
            ((3, 1), 1)
        """
        strides = self._place()[1].strides
        if any(n % self.itemsize for n in strides):
            raise ShapeError(
                f"stride: strides must be whole elements of {self.itemsize} bytes; they are {strides} bytes. "
                "Call .contiguous() first?"
            )
        apart = tuple(n // self.itemsize for n in strides)
        return apart if dim is None else apart[movement.axis_of("stride", dim, self.ndim)]

    def size(self, axis: int | None = None) -> Any:
        """The shape, or the extent of one axis.

        Args:
            axis: The axis; all of them when None.
        Raises: ShapeError if there is no such axis.
        Examples:
            >>> Tensor.zeros(2, 3).size(), Tensor.zeros(2, 3).size(-1)
            ((2, 3), 3)
        """
        return self.shape if axis is None else self.shape[movement.axis_of("size", axis, self.ndim)]

    @property
    def nbytes(self) -> int:
        """The bytes of its elements.

        Examples:
            >>> Tensor.zeros(2, 3).nbytes
            24
        """
        return self.numel() * self.dtype.itemsize

    @property
    def uop(self) -> Node:
        """The node that the tensor is.

        Examples:
            >>> (Tensor([1.0]) + 1).uop.op.name
            'add'
        """
        return uop_of(self)

    @property
    def T(self) -> Tensor:  # noqa: N802 -- NumPy's name
        """A view with the axes in reverse order.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).T.tolist()
            [[1, 3], [2, 4]]
        """
        return movement.T(self)

    @property
    def mT(self) -> Tensor:  # noqa: N802 -- NumPy's name
        """A view with the last two axes exchanged.

        Raises: ShapeError if there are fewer than two axes.
        Examples:
            >>> Tensor.zeros(5, 2, 3).mT.shape
            (5, 3, 2)
        """
        return movement.mT(self)

    def realize(self, *others: TensorBase) -> Self:
        """Compute this tensor (and others) now, by one schedule; gives the tensor itself.

        Args:
            others: Tensors to compute in the same schedule.
        Raises: DTypeError if an operand is no tensor; DeviceError if there is no memory.
        Examples:
            >>> a, b = Tensor([1, 2]) + 1, Tensor([1, 2]) * 2
            >>> a = a.realize(b)
            >>> a.tolist(), b.tolist()
            ([2, 3], [2, 4])
        """
        if others and not {Tensor}.issuperset(map(type, others)):
            for other in others:
                arguments.tensor("realize", "every operand", other)
        flush_tensors((self, *others))
        return self

    def kernelize(self, *others: Tensor) -> Self:
        """Partition what this tensor (and others) needs into kernels, to run when a value is needed; gives the tensor.

        Afterwards `uop` is ASSIGN(BUFFER, KERNEL): the kernel names its program, metadata and buffers.

        Args:
            others: Tensors to partition with it.
        Raises: DTypeError if an operand is no tensor.
        Examples:
            >>> t = (Tensor([1, 2]) + 1).kernelize()
            >>> t.uop.op.name, t.tolist()
            ('assign', [2, 3])
        """
        partition_tensors((self, *(arguments.tensor("kernelize", "every operand", other) for other in others)))
        return self

    def schedule(self, *others: Tensor) -> list[Any]:
        """The kernels that this tensor (and others) needs, partitioned but not run.

        Args:
            others: Tensors to partition with it.
        Raises: DTypeError if an operand is no tensor.
        Examples:
            >>> (kernel,) = (Tensor([1, 2]) + 1).sum().schedule()
            >>> kernel.metadata
            ('add', 'sum')
        """
        tensors = (self, *(arguments.tensor("schedule", "every operand", other) for other in others))
        held: Pending | None = partition_tensors(tensors)
        return [] if held is None else list(held.plan.kernels)

    def journal(self) -> Report:
        """What is pending on this tensor's storage: entries, the loops that they will be, why some were not rolled.

        Examples:
            >>> t = Tensor.zeros(100).realize()
            >>> for i in range(100):
            ...     t[i] = i
            >>> t.journal()
            1 pending entry
              100 numbers into float32[100]: one whole-array write
        """
        return report(self._place()[0])

    def _in_place(self, out: Tensor, name: str, mask: Callable[[], Node] | None = None) -> Self:
        """A result written through this handle, by a named op.

        Args:
            mask: Which elements it changes; all when None.
        """
        if out is NotImplemented:
            return NotImplemented
        own, made = self.dtype, out.dtype
        if made is not own and KINDS[made.kind] > KINDS[own.kind]:
            raise DTypeError(f"{name}: the result is {made.name} and cannot go into {own.name}. Cast the tensor first?")
        if out.shape != self.shape:
            raise ShapeError(
                f"{name}: the result must have the target's shape; {out.shape} into {self.shape}. Make a new tensor?"
            )
        self._put(out, name, mask() if mask is not None and gradients.is_bits(self) else None)
        return self

    def _put(self, value: Any, name: str, mask: Node | None = None) -> None:
        """Write a value to all of this tensor, or to what a mask has, for a named op."""
        skeleton = self._skeleton
        if (
            skeleton is not None
            and self._storage is not None
            and self._storage.plain
            and isinstance(value, TensorBase)
            and value._holes is not None
            and value._grad_state is None
        ):
            if self._storage.read_only:
                self._storage.check_writable(self._place()[1], name)
            assert value._skeleton is not None
            self._storage.write_element(skeleton.dtype, self._offset, value._skeleton, value._holes)
            return
        storage, view = self._place()
        if isinstance(value, TensorBase) and not view.shape and value._skeleton is not None:
            crooked = view.offset % view.dtype.itemsize
            if not crooked and gradients.write_element(self, storage, view.dtype, view.offset, value):
                return
        indexing.write_view(self, *self._place(), value, name, mask)

    def assign(self, value: Any) -> Self:
        """Write a value (broadcast, cast) to all of this tensor; every view of its storage sees it.

        Args:
            value: A tensor, an array, a list or a number.
        Raises: ShapeError if it does not broadcast; OverlapError if two positions of this tensor share a byte;
            ReadOnlyError if its memory is shared read-only; ValueRangeError for a number that the dtype cannot hold.
        Examples:
            >>> a = Tensor([0, 0])
            >>> a.assign(Tensor([1, 2])).tolist()
            [1, 2]
        """
        return self._assigned(value, "assign")

    def _assigned(self, value: Any, name: str) -> Self:
        """This tensor with a new value, for a named op."""
        if gradients.is_leaf(self) and not gradients.is_tracked(value):
            with gradients.no_grad():  # a new value for a leaf, as an optimizer gives it
                self._put(value, name)
        else:
            self._put(value, name)
        return self

    def copy_(self, value: Any) -> Self:
        """As assign.

        Args:
            value: A tensor, an array, a list or a number; broadcast and cast.
        Raises: as assign.
        Examples:
            >>> Tensor([0, 0]).copy_(Tensor([1, 2])).tolist()
            [1, 2]
        """
        return self._assigned(value, "copy_")

    def fill_(self, value: float) -> Self:
        """Write one number everywhere.

        Args:
            value: The number.
        Raises: as assign.
        Examples:
            >>> Tensor([0, 0]).fill_(7).tolist()
            [7, 7]
        """
        return self._assigned(value, "fill_")

    def zero_(self) -> Self:
        """Write zeros everywhere.

        Raises: as assign.
        Examples:
            >>> Tensor([1, 2]).zero_().tolist()
            [0, 0]
        """
        return self._assigned(0, "zero_")

    def __iadd__(self, other: Any) -> Self:
        return self._in_place(Tensor.__add__(self, other), "iadd")

    def __isub__(self, other: Any) -> Self:
        return self._in_place(Tensor.__sub__(self, other), "isub")

    def __imul__(self, other: Any) -> Self:
        return self._in_place(Tensor.__mul__(self, other), "imul")

    def __itruediv__(self, other: Any) -> Self:
        return self._in_place(Tensor.__truediv__(self, other), "itruediv")

    def __ifloordiv__(self, other: Any) -> Self:
        return self._in_place(Tensor.__floordiv__(self, other), "ifloordiv")

    def __imod__(self, other: Any) -> Self:
        return self._in_place(Tensor.__mod__(self, other), "imod")

    def __ipow__(self, other: Any) -> Self:
        return self._in_place(Tensor.__pow__(self, other), "ipow")

    def __iand__(self, other: Any) -> Self:
        return self._in_place(Tensor.__and__(self, other), "iand")

    def __ior__(self, other: Any) -> Self:
        return self._in_place(Tensor.__or__(self, other), "ior")

    def __ixor__(self, other: Any) -> Self:
        return self._in_place(Tensor.__xor__(self, other), "ixor")

    def __ilshift__(self, other: Any) -> Self:
        return self._in_place(Tensor.__lshift__(self, other), "ilshift")

    def __irshift__(self, other: Any) -> Self:
        return self._in_place(Tensor.__rshift__(self, other), "irshift")

    def add_(self, other: Any, *, alpha: Number = 1) -> Self:
        """Add to every element, in place; as add.

        Args:
            other: A tensor, an array or a number; shapes broadcast.
            alpha: What the other is multiplied by.
        Raises: DTypeError if the result has a dtype that does not go into this one; ShapeError if it is larger; else as
            assign.
        Examples:
            >>> Tensor([1, 2]).add_(10).tolist()
            [11, 12]
        """
        other = other if alpha is elementwise.ONE else elementwise.scaled("add_", self, other, alpha)
        return self._in_place(elementwise.binary("add_", elementwise.ADD, self, other), "add_")

    def sub_(self, other: Any, *, alpha: Number = 1) -> Self:
        """Subtract from every element, in place; as sub.

        Args:
            other: A tensor, an array or a number; shapes broadcast.
            alpha: What the other is multiplied by.
        Raises: DTypeError if the result has a dtype that does not go into this one; ShapeError if it is larger; else as
            assign.
        Examples:
            >>> Tensor([1, 2]).sub_(1, alpha=3).tolist()
            [-2, -1]
        """
        other = other if alpha is elementwise.ONE else elementwise.scaled("sub_", self, other, alpha)
        return self._in_place(elementwise.binary("sub_", elementwise.SUB, self, other), "sub_")

    def mul_(self, other: Any) -> Self:
        """Multiply every element, in place; as mul.

        Args:
            other: A tensor, an array or a number; shapes broadcast.
        Raises: DTypeError if the result has a dtype that does not go into this one; ShapeError if it is larger; else as
            assign.
        Examples:
            >>> Tensor([1, 2]).mul_(3).tolist()
            [3, 6]
        """
        return self._in_place(elementwise.binary("mul_", elementwise.MUL, self, other), "mul_")

    def div_(self, other: Any, *, rounding_mode: str | None = None) -> Self:
        """Divide every element, in place; as div.

        Args:
            other: A tensor, an array or a number; shapes broadcast.
            rounding_mode: As of div: None, "floor" or "trunc".
        Raises: DTypeError if the result has a dtype that does not go into this one; ShapeError if it is larger; else as
            assign.
        Examples:
            >>> Tensor([1.0, 3.0]).div_(2).tolist()
            [0.5, 1.5]
        """
        if rounding_mode is None:
            return self._in_place(elementwise.binary("div_", elementwise.DIV, self, other), "div_")
        return self._in_place(elementwise.div(self, other, rounding_mode=rounding_mode), "div_")

    def clamp_(self, min: Any = None, max: Any = None) -> Self:  # noqa: A002 -- PyTorch's names
        """Bound every element, in place; as clamp.

        Args:
            min: The lower bound, if any: a tensor or a number.
            max: The upper bound, if any.
        Raises: DTypeError if the result has a dtype that does not go into this one; ShapeError if it is larger; else as
            assign.
        Examples:
            >>> Tensor([1, 5, 9]).clamp_(2, 6).tolist()
            [2, 5, 6]
        """
        return self._in_place(elementwise.between("clamp_", self, min, max), "clamp_")

    def masked_fill_(self, mask: Tensor, value: Any) -> Self:
        """Write a number where a mask holds; as masked_fill.

        Args:
            mask: Where it is true, or other than 0; broadcasts to this tensor's shape.
            value: The number.
        Raises: as masked_fill and assign.
        Examples:
            >>> t = Tensor([1, -2, 3])
            >>> t.masked_fill_(t < 0, 0).tolist()
            [1, 0, 3]
        """
        made = combine.masked("masked_fill_", self, mask, value)
        return self._in_place(made, "masked_fill_", lambda: combine.mask_over(self, mask))

    def scatter_(self, dim: int, index: Tensor, src: Any, reduce: str | None = None) -> Self:
        """Write values at positions; as scatter.

        Args:
            dim: The axis; negative counts from the end.
            index: Positions along the axis, of as many axes as this tensor.
            src: A tensor at least as long as the index, or a number.
            reduce: "add" or "multiply" to do so with what is there.
        Raises: as scatter and assign.
        Examples:
            >>> Tensor([0, 0, 0]).scatter_(0, Tensor([2, 0]), 5).tolist()
            [5, 0, 5]
        """
        made = combine.scattered("scatter_", self, dim, index, src, reduce)
        return self._in_place(made, "scatter_", lambda: combine.mask_at("scatter_", self, dim, index))

    # -- arithmetic

    add, sub, mul, div, mod, pow = (
        elementwise.add, elementwise.sub, elementwise.mul, elementwise.div, elementwise.mod, elementwise.pow_,
    )  # fmt: skip
    floor_divide, idiv = elementwise.floor_divide, elementwise.floor_divide
    fmod, remainder, logaddexp, hypot = (
        elementwise.fmod, elementwise.remainder, elementwise.logaddexp, elementwise.hypot,
    )  # fmt: skip
    maximum, minimum, where, clip, clamp, lerp = (
        elementwise.maximum, elementwise.minimum, elementwise.where, spelled(elementwise.clip), elementwise.clamp,
        elementwise.lerp,
    )  # fmt: skip
    bitwise_and, bitwise_or, bitwise_xor, bitwise_not = (
        elementwise.bitwise_and, elementwise.bitwise_or, elementwise.bitwise_xor, elementwise.bitwise_not,
    )  # fmt: skip
    lshift, rshift, logical_not = elementwise.lshift, elementwise.rshift, elementwise.logical_not
    logical_and, logical_or, logical_xor = elementwise.logical_and, elementwise.logical_or, elementwise.logical_xor
    isclose, nan_to_num = elementwise.isclose, elementwise.nan_to_num
    lt, le, gt, ge, eq, ne = (
        elementwise.lt, elementwise.le, elementwise.gt, elementwise.ge, elementwise.eq, elementwise.ne,
    )  # fmt: skip
    exp, exp2, expm1, log, log2, log1p, log10 = (
        elementwise.exp, elementwise.exp2, elementwise.expm1, elementwise.log, elementwise.log2, elementwise.log1p,
        elementwise.log10,
    )  # fmt: skip
    sin, cos, tan, asin, acos, atan, atan2 = (
        elementwise.sin, elementwise.cos, elementwise.tan, elementwise.asin, elementwise.acos, elementwise.atan,
        elementwise.atan2,
    )  # fmt: skip
    sinh, cosh, tanh, asinh, acosh, atanh, erf = (
        elementwise.sinh, elementwise.cosh, elementwise.tanh, elementwise.asinh, elementwise.acosh, elementwise.atanh,
        elementwise.erf,
    )  # fmt: skip
    sqrt, rsqrt, square, reciprocal, neg, abs, sign, copysign = (
        elementwise.sqrt, elementwise.rsqrt, elementwise.square, elementwise.reciprocal,
        elementwise.neg, elementwise.abs_, elementwise.sign, elementwise.copysign,
    )  # fmt: skip
    floor, ceil, trunc, round = elementwise.floor, elementwise.ceil, elementwise.trunc, spelled(elementwise.round_)
    isnan, isinf, isfinite = elementwise.isnan, elementwise.isinf, elementwise.isfinite

    __add__ = __radd__ = operator("add", elementwise.ADD)
    __sub__, __rsub__ = operator("sub", elementwise.SUB), operator("sub", elementwise.OTHER_SUB)
    __mul__ = __rmul__ = operator("mul", elementwise.MUL)
    __truediv__, __rtruediv__ = operator("div", elementwise.DIV), operator("div", elementwise.OTHER_DIV)
    __floordiv__, __rfloordiv__ = (
        operator("floor_divide", elementwise.FLOOR_DIV), operator("floor_divide", elementwise.OTHER_FLOOR_DIV),
    )  # fmt: skip
    __mod__, __rmod__ = operator("mod", elementwise.MOD), operator("mod", elementwise.OTHER_MOD)
    __pow__, __rpow__ = elementwise.pow_operator, elementwise.rpow_operator
    __and__ = __rand__ = operator("bitwise_and", elementwise.AND)
    __or__ = __ror__ = operator("bitwise_or", elementwise.OR)
    __xor__ = __rxor__ = operator("bitwise_xor", elementwise.XOR)
    __lshift__, __rshift__ = operator("lshift", elementwise.SHL), operator("rshift", elementwise.SHR)
    __lt__, __le__ = operator("lt", elementwise.LT), operator("le", elementwise.LE)
    __gt__, __ge__ = operator("gt", elementwise.GT), operator("ge", elementwise.GE)
    __neg__, __abs__, __invert__ = elementwise.neg, elementwise.abs_, elementwise.bitwise_not
    __matmul__, __rmatmul__ = matmul.product, matmul.rmatmul
    _equals, _differs = operator("eq", elementwise.EQ), operator("ne", elementwise.NE)

    def __eq__(self, other: object) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride] -- by element
        return self._equals(other)

    def __ne__(self, other: object) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride] -- by element
        return self._differs(other)

    def __round__(self, ndigits: Any = None) -> Tensor:
        return elementwise.round_(self, 0 if ndigits is None else ndigits)

    def __pos__(self) -> Tensor:
        return elementwise.copied(self)

    # -- movement

    reshape, view, permute, transpose, flip, expand = (
        movement.reshape, movement.view, movement.permute, movement.transpose, movement.flip, movement.expand,
    )  # fmt: skip
    squeeze, unsqueeze, unfold, unflatten, narrow = (
        spelled(movement.squeeze), spelled(movement.unsqueeze), spelled(movement.unfold), spelled(movement.unflatten),
        spelled(movement.narrow),
    )  # fmt: skip
    swapaxes, t, view_as, expand_as, unbind = (
        movement.transpose, movement.t, movement.view_as, movement.expand_as, spelled(movement.unbind),
    )  # fmt: skip
    shrink, diagonal, flatten, movedim = movement.shrink, movement.diagonal, movement.flatten, movement.movedim
    ravel, select, rot90, broadcast_to = (
        movement.ravel, spelled(movement.select), movement.rot90, movement.broadcast_to,
    )  # fmt: skip
    as_strided, bitcast = movement.as_strided, movement.bitcast

    # -- reductions and products

    sum, prod, max, min = spelled(reduce.sum_), spelled(reduce.prod), spelled(reduce.max_), spelled(reduce.min_)
    any, all, mean, var = spelled(reduce.any_), spelled(reduce.all_), spelled(reduce.mean), spelled(reduce.var)
    std, norm, argmax, argmin = (
        spelled(reduce.std), spelled(reduce.norm), spelled(reduce.argmax), spelled(reduce.argmin),
    )  # fmt: skip
    amax, amin = spelled(reduce.amax), spelled(reduce.amin)
    count_nonzero, trace = spelled(reduce.count_nonzero), reduce.trace
    median, nansum, nanmean = spelled(reduce.median), spelled(reduce.nansum), spelled(reduce.nanmean)
    cumsum, cumprod, cummax = spelled(reduce.cumsum), spelled(reduce.cumprod), spelled(reduce.cummax)
    softmax, log_softmax, logsumexp = (
        spelled(reduce.softmax), spelled(reduce.log_softmax), spelled(reduce.logsumexp),
    )  # fmt: skip
    einsum = staticmethod(matmul.einsum)
    mm, bmm, mv, addmm, outer = matmul.mm, matmul.bmm, matmul.mv, matmul.addmm, matmul.outer
    matmul, dot, linear = matmul.matmul, matmul.dot, matmul.linear

    # -- combining

    cat, stack, meshgrid = spelled(combine.cat), spelled(combine.stack), staticmethod(combine.meshgrid)
    hstack, vstack = combine.hstack, combine.vstack
    split, chunk, gather, scatter, scatter_add = (
        spelled(combine.split), spelled(combine.chunk), spelled(combine.gather), spelled(combine.scatter),
        spelled(combine.scatter_add),
    )  # fmt: skip
    take, index_fill, diag, diff, tile = (
        combine.take, spelled(combine.index_fill), combine.diag, spelled(combine.diff), combine.tile,
    )  # fmt: skip
    scatter_reduce, index_add, index_select = (
        spelled(combine.scatter_reduce), spelled(combine.index_add), spelled(combine.index_select),
    )  # fmt: skip
    pad, tril, triu, one_hot = combine.pad, combine.tril, combine.triu, combine.one_hot
    masked_fill, masked_select, repeat, roll = (
        combine.masked_fill, combine.masked_select, combine.repeat, combine.roll,
    )  # fmt: skip
    repeat_interleave, argsort, sort, topk = (
        spelled(combine.repeat_interleave), spelled(sorting.argsort), spelled(sorting.sort), spelled(sorting.topk),
    )  # fmt: skip
    nonzero, unique = combine.nonzero, sorting.unique

    # -- networks

    relu, sigmoid, silu, gelu, leaky_relu, softplus = (
        functional.relu, functional.sigmoid, functional.silu, functional.gelu, functional.leaky_relu,
        functional.softplus,
    )  # fmt: skip
    swish = functional.silu
    relu6, elu, hardtanh, hardsigmoid, hardswish, mish, logsigmoid, softsign = (
        functional.relu6, functional.elu, functional.hardtanh, functional.hardsigmoid, functional.hardswish,
        functional.mish,
        functional.logsigmoid, functional.softsign,
    )  # fmt: skip
    layer_norm, rms_norm, normalize = functional.layer_norm, functional.rms_norm, spelled(functional.normalize)
    group_norm, batch_norm, dropout = functional.group_norm, functional.batch_norm, functional.dropout
    cross_entropy, nll_loss, mse_loss, l1_loss = (
        functional.cross_entropy, functional.nll_loss, functional.mse_loss, functional.l1_loss,
    )  # fmt: skip
    binary_cross_entropy = binary_crossentropy = functional.binary_cross_entropy
    sparse_categorical_crossentropy = functional.sparse_categorical_crossentropy
    binary_cross_entropy_with_logits = functional.binary_cross_entropy_with_logits
    scaled_dot_product_attention = functional.scaled_dot_product_attention

    conv2d, conv_transpose2d = spatial.conv2d, spatial.conv_transpose2d
    max_pool2d, avg_pool2d = spatial.max_pool2d, spatial.avg_pool2d

    # -- making

    zeros, ones, full, empty = (
        classmethod(creation.zeros), classmethod(creation.ones), classmethod(creation.full),
        classmethod(creation.empty),
    )  # fmt: skip
    arange, linspace, eye = classmethod(creation.arange), classmethod(creation.linspace), classmethod(creation.eye)
    zeros_like, ones_like, full_like, empty_like = (
        creation.zeros_like, creation.ones_like, creation.full_like, creation.empty_like,
    )  # fmt: skip
    new_zeros, new_ones, new_full, new_tensor = (
        creation.new_zeros, creation.new_ones, creation.new_full, creation.new_tensor,
    )  # fmt: skip
    rand, randn, randint = classmethod(random.rand), classmethod(random.randn), classmethod(random.randint)
    uniform, normal, randperm = classmethod(random.uniform), classmethod(random.normal), classmethod(random.randperm)
    kaiming_uniform, glorot_uniform, scaled_uniform = (
        classmethod(random.kaiming_uniform), classmethod(random.glorot_uniform), classmethod(random.scaled_uniform),
    )  # fmt: skip
    rand_like, randn_like, multinomial = random.rand_like, random.randn_like, random.multinomial
    bernoulli = random.bernoulli
    manual_seed = staticmethod(random.manual_seed)
    from_numpy = classmethod(creation.share_array)

    # -- host

    numpy, tolist, item, cast, to, contiguous, clone, detach = (
        convert.numpy, convert.tolist, convert.item, convert.cast, convert.to, convert.contiguous, convert.clone,
        convert.detach,
    )  # fmt: skip
    equal, allclose = convert.equal, convert.allclose
    __array__, __bool__, __index__, __format__, __len__, __repr__ = (
        convert.array_protocol, convert.bool_, convert.index_, convert.format_, convert.len_, convert.repr_,
    )  # fmt: skip

    def type(self, dtype: DTypeLike) -> Tensor:
        """As cast.

        Args:
            dtype: A dtype, its name, or NumPy's.
        Raises: DTypeError if it is none.
        Examples:
            >>> Tensor([1.5, 2.5]).type("int32").tolist()
            [1, 2]
        """
        return self.cast(dtype)

    def float(self) -> Tensor:
        """The values as float32.

        Examples:
            >>> Tensor([1, 2]).float()
            Tensor([1., 2.], dtype=float32)
        """
        return self.cast(dtypes.float32)

    def double(self) -> Tensor:
        """The values as float64.

        Examples:
            >>> Tensor([1, 2]).double()
            Tensor([1., 2.], dtype=float64)
        """
        return self.cast(dtypes.float64)

    def half(self) -> Tensor:
        """The values as float16.

        Examples:
            >>> Tensor([1, 2]).half()
            Tensor([1., 2.], dtype=float16)
        """
        return self.cast(dtypes.float16)

    def int(self) -> Tensor:
        """The values as int32.

        Examples:
            >>> Tensor([1.5, 2.5]).int()
            Tensor([1, 2], dtype=int32)
        """
        return self.cast(dtypes.int32)

    def long(self) -> Tensor:
        """The values as int64.

        Examples:
            >>> Tensor([1.5, 2.5]).long()
            Tensor([1, 2], dtype=int64)
        """
        return self.cast(dtypes.int64)

    def short(self) -> Tensor:
        """The values as int16.

        Examples:
            >>> Tensor([1.5, 2.5]).short()
            Tensor([1, 2], dtype=int16)
        """
        return self.cast(dtypes.int16)

    def byte(self) -> Tensor:
        """The values as uint8.

        Examples:
            >>> Tensor([1, 255]).byte()
            Tensor([  1, 255], dtype=uint8)
        """
        return self.cast(dtypes.uint8)

    def bfloat16(self) -> Tensor:
        """The values as bfloat16.

        Examples:
            >>> Tensor([1, 2]).bfloat16()
            Tensor([1., 2.], dtype=bfloat16)
        """
        return self.cast(dtypes.bfloat16)

    def type_as(self, other: Tensor) -> Tensor:
        """The values in another tensor's dtype.

        Args:
            other: The tensor whose dtype it is.
        Raises: DTypeError if that is no tensor.
        Examples:
            >>> Tensor([1, 2]).type_as(Tensor([0.5]))
            Tensor([1., 2.], dtype=float32)
        """
        return self.cast(arguments.tensor("type_as", "the other", other).dtype)

    def bool(self) -> Tensor:
        """Where the values are not 0.

        Examples:
            >>> Tensor([0, 2]).bool()
            Tensor([False, True], dtype=bool)
        """
        return self.cast(dtypes.bool)

    def __int__(self) -> Any:
        return _whole(self.item())

    def __float__(self) -> Any:
        return _real(self.item())

    def __delitem__(self, index: Any) -> None:
        raise DTypeError("delitem: a tensor keeps its elements. Take the others, as t[:-1] or t[mask]?")

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise DTypeError("iter: the tensor must have an axis to go along; it is a scalar. Use item()?")
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> Any:
        return _truth(elementwise.eq(self, value).any().item())

    __reduce__, __deepcopy__, __array_ufunc__ = convert.reduce_, convert.deepcopy, convert.ufunc_protocol

    def __copy__(self) -> Tensor:
        return self._share(*self._place())

    def data_ptr(self) -> Any:
        """Where the bytes of a realized tensor are.

        Examples:
            >>> t = Tensor([1, 2, 3])
            >>> t[1:].data_ptr() - t.data_ptr()
            8
        """
        ref, view = convert.bytes_of(self.realize())
        return engine.buffer_of(ref).address + view.offset


_whole, _real, _truth = int, float, bool
