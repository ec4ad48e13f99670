"""Elementwise functions: arithmetic, comparison, bits, rounding, transcendentals."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from intaglio.core.dtypes import DType, dtypes, promote, promote_scalar, promote_weak
from intaglio.core.errors import DeviceError, DTypeError, ShapeError, ValueRangeError
from intaglio.ir.node import Node, Op, make_known
from intaglio.ops import elementwise as ops
from intaglio.ops.composite import broadcasting
from intaglio.ops.memory import const
from intaglio.ops.movement import broadcast, expand
from intaglio.ops.slopes import Above, AtLeast, AtMost, Below, Length, LengthPower, LogChance, RightAbs
from intaglio.tensor.arguments import flag, integer, is_tensor, shown, word
from intaglio.tensor.arguments import number as number_of
from intaglio.tensor.base import OF_BITS, TensorBase, Way, result_of, scalar_binary, scalar_unary
from intaglio.tensor.gradients import follows

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.tensor.tensor import Tensor

Example: TypeAlias = tuple[str, str]  # an expression, what it gives
Operand = Any  # a tensor, a Python number, a NumPy array or a nested list
FLOAT: Final = dtypes.default_float
# ways to apply binary ops, for methods and operators; those with OTHER_ (and GT, GE) take the other operand first
ADD, SUB, MUL, DIV = Way(ops.ADD), Way(ops.SUB), Way(ops.MUL), Way(ops.DIV, floats=True)
OTHER_SUB, OTHER_DIV = Way(ops.SUB, swapped=True), Way(ops.DIV, floats=True, swapped=True)
FLOOR_DIV, OTHER_FLOOR_DIV = Way(ops.FLOOR_DIV), Way(ops.FLOOR_DIV, swapped=True)
MOD, OTHER_MOD = Way(ops.MOD), Way(ops.MOD, swapped=True)
POWER, OTHER_POWER = Way(ops.POW, floats=True), Way(ops.POW, floats=True, swapped=True)
MAXIMUM, MINIMUM = Way(ops.MAXIMUM), Way(ops.MINIMUM)
AT_LEAST, AT_MOST, ABOVE, BELOW = (Way(op()) for op in (AtLeast, AtMost, Above, Below))  # as PyTorch's bounds
LENGTH, LENGTH_POWER = Length(), Way(LengthPower())
RIGHT_ABS, LOG_CHANCE = RightAbs(), LogChance()
AND, OR, XOR, SHL, SHR = Way(ops.AND), Way(ops.OR), Way(ops.XOR), Way(ops.SHL), Way(ops.SHR)
LT, LE, GT, GE = Way(ops.LT), Way(ops.LE), Way(ops.LT, swapped=True), Way(ops.LE, swapped=True)
EQ, NE = Way(ops.EQ), Way(ops.NE)
ATAN2, COPYSIGN = Way(ops.ATAN2, floats=True), Way(ops.COPYSIGN, floats=True)
PYTHONS: Final = frozenset((int, float, bool))  # classes of plain numbers
ONE: Final = 1  # what `alpha` is, mostly
STORED_ONLY: Final = (dtypes.float8_e4m3, dtypes.float8_e5m2)
# ops that a kind of dtype has no meaning for, and what to do instead
UNFIT: Final[dict[str, tuple[type[Op], ...]]] = {
    "float": (*OF_BITS, ops.Not),
    "bool": (ops.Sub, ops.Neg, ops.Shl, ops.Shr, ops.FloorDiv, ops.Mod),
    "int": (),
    "uint": (),
}
HINTS: Final = {"float": "Cast or bitcast to an integer first?", "bool": "Use ^ or ~, or cast to an integer first?"}


@lru_cache(maxsize=1024)
def broadcast_shapes(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that shapes broadcast to.

    Raises: ShapeError if they do not.
    """
    rank = max(len(s) for s in shapes)
    out: list[int] = []
    for axis in range(-rank, 0):
        extent = 1
        for shape in shapes:
            n = shape[axis] if -axis <= len(shape) else 1
            if n != 1:
                if extent not in (1, n):
                    listed = " and ".join(str(s) for s in shapes if s)
                    raise ShapeError(
                        f"{name}: shapes must broadcast; {listed} differ on axis {axis}. Reshape or unsqueeze one?"
                    )
                extent = n
        out.append(extent)
    return tuple(out)


def is_number(value: object) -> bool:
    """Whether a value is a plain Python number."""
    return value.__class__ in PYTHONS


def plain(value: Any) -> Any:
    """A number of NumPy's as Python has it; anything else as it is."""
    return value.item() if isinstance(value, (np.number, np.bool)) else value  # pyright: ignore[reportUnknownVariableType] -- of any dtype


def operand(name: str, like: TensorBase, value: Operand) -> Node | int | float | bool:
    """An operand of a named op as a node, or as the number that it is."""
    if isinstance(value, TensorBase):
        check_device(name, like, value)
        return value._value()
    value = plain(value)
    if is_number(value):
        return value
    return tensor_of(name, like, value)._value()  # pyright: ignore[reportArgumentType] -- every handle is a Tensor


def check_device(name: str, x: TensorBase, y: TensorBase) -> None:
    """Raise where the operands of a named op are on two devices."""
    if x._device != y._device:
        raise DeviceError(
            f"{name}: operands must be on one device; they are on {x._device} and {y._device}. Move one with .to()?"
        )


def tensor_of(name: str, like: Tensor, value: Operand) -> Tensor:
    """An operand of a named op as a tensor."""
    if is_tensor(value):
        return value
    if not _is_operand(value):
        raise DTypeError(f"{name}: operands must be tensors, arrays or numbers; got {shown(value)}. Convert it first?")
    return like.__class__(value, device=like._near)


def join(name: str, x: Node, y: Node | int | float | bool, *, floats: bool = False) -> tuple[Node, Node]:
    """Two operands of a named op in the dtype in which they meet."""
    dtype = meeting(x, y) if isinstance(y, Node) else promote_weak(x.dtype, y.__class__)
    if floats and not dtype.is_float:
        dtype = FLOAT
    check_computes(name, dtype)
    other = ops.cast(y, dtype) if isinstance(y, Node) else number(name, dtype, y)
    return ops.cast(x, dtype), other


def meeting(x: Node | Tensor, y: Node | Tensor) -> DType:
    """The dtype in which two values meet. One without axes gives way to one with some, as PyTorch's do."""
    if x.dtype is y.dtype:
        return x.dtype
    if bool(x.shape) == bool(y.shape):
        return promote(x.dtype, y.dtype)
    return promote_scalar(x.dtype, y.dtype) if x.shape else promote_scalar(y.dtype, x.dtype)


def check_computes(name: str, dtype: DType) -> None:
    """Raise where a dtype is for storage only."""
    if dtype in STORED_ONLY:
        raise DTypeError(f"{name}: {dtype.name} is for storage only. Cast to float32 first?")


def number(name: str, dtype: DType, value: int | float | bool) -> Node:
    """A Python number in a dtype.

    Raises: ValueRangeError if an integer dtype cannot hold it.
    """
    if not dtype.is_float and not dtype.is_bool and not dtype.fits(value):
        raise ValueRangeError(
            f"{name}: the number must fit the dtype; {value} does not fit {dtype.name}. Cast the tensor first?"
        )
    return const(dtype, value)


def binary(name: str, way: Way, x: Tensor, y: Operand) -> Tensor:
    """A binary op with broadcasting and promotion."""
    left, view = x._node, x._view
    if not (left.shape if left is not None else view is not None and view.shape):
        quick = _of_scalars(way, x, y)
        if quick is not None:
            return quick
        left = x._node
    if left is None or left.place is not None:
        left = x._value()
    kind = y.__class__
    right: Node | int | float | bool
    if kind is x.__class__:
        if y._device != x._device:
            check_device(name, x, y)
        right = y._value()
    else:
        right = y if kind in PYTHONS else operand(name, x, y)
    if isinstance(right, Node):
        op, dtype, given, shape = _form(name, way, left.dtype, left.shape, right.dtype, right.shape)
        if right.dtype is not dtype:
            right = ops.cast(right, dtype)
    else:
        if way.compares and isinstance(right, int) and left.dtype.is_int and not left.dtype.fits(right):
            answer = way.op.evaluate(right, 0) if way.swapped else way.op.evaluate(0, right)  # the same for every value
            return x._make(to_shape_full(const(dtypes.bool, answer), left.shape), x)
        op, dtype, given, shape = _form(name, way, left.dtype, left.shape, right.__class__)
        right = number(name, dtype, right)
    if left.dtype is not dtype:
        left = ops.cast(left, dtype)
    return x._make(make_known(op, (right, left) if way.swapped else (left, right), given, shape), x, y)


def _of_scalars(way: Way, x: Tensor, y: Operand) -> Tensor | None:
    """A binary op of a scalar as a skeleton with holes; None where it is computed as any other."""
    skeleton = x._as_scalar()
    if skeleton is None:
        return None
    if x._grad_state is None:
        if isinstance(y, TensorBase):
            y._as_scalar()
        quick = scalar_binary(way, x, skeleton, y)
        if quick is not None:
            return quick
    if follows(x) and (x._grad_state is True or getattr(y, "_grad_state", None) is True):
        return scalar_binary(way, x, skeleton, y, tracked=True)
    return None


Form: TypeAlias = "tuple[Op, DType, DType, tuple[int, ...]]"
"""How an op is made: the op, the dtype that its operands are cast to, and what it gives."""


@lru_cache(maxsize=4096)
def _form(
    name: str,
    way: Way,
    left: DType,
    left_shape: tuple[int, ...],
    right: DType | type[object],
    right_shape: tuple[int, ...] = (),
) -> Form:
    """How a binary op is made of two values, or of one and a number of Python's.

    Raises: DTypeError if the op is not computed in the dtype in which they meet; ShapeError if they do not broadcast.
    """
    dtype = _computed_in(name, way, left, right, bool(left_shape), bool(right_shape))
    given = result_of(way.op, dtype, dtype)
    if left_shape == right_shape or not left_shape or not right_shape:  # a scalar stays one
        return way.op, dtype, given, left_shape or right_shape
    return broadcasting(way.op), dtype, given, broadcast_shapes(name, left_shape, right_shape)


def _computed_in(
    name: str, way: Way, left: DType, right: DType | type[object], left_axes: bool, right_axes: bool
) -> DType:
    """The dtype in which a binary op is computed: of two values, each with axes or without, or of one and a number.

    Raises: DTypeError if the op is not computed in that.
    """
    if not isinstance(right, DType):
        dtype = promote_weak(left, right)
    elif left is right:
        dtype = left
    elif left_axes == right_axes:
        dtype = promote(left, right)
    else:
        dtype = promote_scalar(left, right) if left_axes else promote_scalar(right, left)
    if way.floats and not dtype.is_float:
        dtype = FLOAT
    check_computes(name, dtype)
    if way.op.__class__ in UNFIT[dtype.kind]:
        raise DTypeError(f"{name}: {dtype.name} operands have no {name}. {HINTS[dtype.kind]}")
    return dtype


def unary(op: Op, x: Tensor, *, floats: bool = False) -> Tensor:
    """A unary op; `floats` computes integers as the default float."""
    node, view = x._node, x._view
    if node is None and view is not None and view.shape:
        node = x._value()
    elif node is None or not node.shape:
        own = x.dtype
        dtype, _ = _unary_form(op, own, floats)
        skeleton = x._as_scalar()
        if skeleton is not None and x._grad_state is None and dtype is own:
            quick = scalar_unary(op, x, skeleton)
            if quick is not None:
                return quick
        node = x._value()
    elif node.place is not None:
        node = x._value()
    dtype, given = _unary_form(op, node.dtype, floats)
    if node.dtype is not dtype:
        node = ops.cast(node, dtype)
    return x._make(make_known(op, (node,), given, node.shape), x)


@cache
def _unary_form(op: Op, own: DType, floats: bool) -> tuple[DType, DType]:
    """The dtype in which a unary op of a value is computed, and the one that it gives.

    Raises: DTypeError if the op is not computed in that.
    """
    dtype = own if own.is_float or not floats else FLOAT
    check_computes(op.name, dtype)
    if isinstance(op, UNFIT[dtype.kind]):
        name = "bitwise_not" if isinstance(op, ops.Not) else op.name
        raise DTypeError(f"{name}: {dtype.name} operands have no {name}. {HINTS[dtype.kind]}")
    return dtype, result_of(op, dtype)


def copied(x: Tensor) -> Tensor:
    """The result of arithmetic that changes nothing: these values, in storage of its own should anybody write there."""
    return x._make(x._value(), x)


def operator(name: str, way: Way) -> Callable[[Tensor, Operand], Tensor]:
    """The method of an operator: another kind of operand is left to that kind, or to Python's error."""

    def method(self: Tensor, other: Operand) -> Tensor:
        skeleton = self._skeleton
        if skeleton is not None and self._grad_state is None:  # a scalar in a loop: no node is made
            quick = scalar_binary(way, self, skeleton, other)
            if quick is not None:
                return quick
        if other.__class__ is self.__class__ or _is_operand(other):
            return binary(name, way, self, other)
        return NotImplemented

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"The operator of `{name}`."
    return method


def _binary_method(name: str, way: Way, text: str, example: Example) -> Callable[[Tensor, Operand], Tensor]:
    """A method for a binary op."""

    def method(self: Tensor, other: Operand) -> Tensor:
        return binary(name, way, self, other)

    result = "bool." if isinstance(way.op, ops.Comparison) else "that in which both meet."
    if way.floats:
        result = f"{result[:-1]}; integers give the default float."
    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""{text}

    Args:
        other: A tensor, an array or a number; shapes broadcast.
    Dtype: {result}
    Raises: ShapeError if the shapes do not broadcast; DTypeError if the operands have no {name}; ValueRangeError if a
        number does not fit the dtype.
    Examples:
        >>> {example[0]}
        {example[1]}
    """
    return method


def _is_operand(value: object) -> bool:
    """Whether a value can be an operand."""
    return isinstance(value, (TensorBase, int, float, list, tuple)) or hasattr(value, "__array__")


def _unary_method(name: str, op: Op, text: str, example: Example, *, floats: bool = True) -> Callable[[Tensor], Tensor]:
    """A method for a unary op."""

    def method(self: Tensor) -> Tensor:
        return unary(op, self, floats=floats)

    result = "floats keep theirs; ints and bool become the default float." if floats else "as the tensor's."
    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""{text}

    Dtype: {result}
    Raises: DTypeError if the dtype has no {name}.
    Examples:
        >>> {example[0]}
        {example[1]}
    """
    return method


mul = _binary_method("mul", MUL, "The product, element by element.", ("Tensor([2, 3]).mul(4).tolist()", "[8, 12]"))
floor_divide = _binary_method(
    "floor_divide",
    FLOOR_DIV,
    "The quotient rounded down; integer x // 0 is 0.",
    ("Tensor([7, -7]).floor_divide(2).tolist()", "[3, -4]"),
)
mod = _binary_method(
    "mod",
    MOD,
    "The remainder with the divisor's sign; integer x % 0 is 0.",
    ("Tensor([7, -7]).mod(3).tolist()", "[1, 2]"),
)
remainder = _binary_method(
    "remainder",
    MOD,
    "The remainder with the divisor's sign, as mod.",
    ("Tensor([7, -7]).remainder(3).tolist()", "[1, 2]"),
)
maximum = _binary_method(
    "maximum",
    MAXIMUM,
    "The larger, element by element; NaN where either is.",
    ("Tensor([1, 5]).maximum(3).tolist()", "[3, 5]"),
)
minimum = _binary_method(
    "minimum",
    MINIMUM,
    "The smaller, element by element; NaN where either is.",
    ("Tensor([1, 5]).minimum(3).tolist()", "[1, 3]"),
)
bitwise_and = _binary_method(
    "bitwise_and", AND, "Bits (or truth) set in both.", ("Tensor([6, 3]).bitwise_and(2).tolist()", "[2, 2]")
)
bitwise_or = _binary_method(
    "bitwise_or", OR, "Bits (or truth) set in either.", ("Tensor([4, 3]).bitwise_or(2).tolist()", "[6, 3]")
)
bitwise_xor = _binary_method(
    "bitwise_xor", XOR, "Bits (or truth) set in one.", ("Tensor([6, 3]).bitwise_xor(2).tolist()", "[4, 1]")
)
lshift = _binary_method(
    "lshift", SHL, "Bits shifted left; 0 from the width on.", ("Tensor([1, 3]).lshift(2).tolist()", "[4, 12]")
)
rshift = _binary_method(
    "rshift", SHR, "Bits shifted right, keeping the sign.", ("Tensor([8, -8]).rshift(2).tolist()", "[2, -2]")
)
lt = _binary_method(
    "lt", LT, "Where this tensor is less.", ("Tensor([1, 2, 3]).lt(2).tolist()", "[True, False, False]")
)
le = _binary_method(
    "le", LE, "Where this tensor is less or equal.", ("Tensor([1, 2, 3]).le(2).tolist()", "[True, True, False]")
)
gt = _binary_method(
    "gt", GT, "Where this tensor is greater.", ("Tensor([1, 2, 3]).gt(2).tolist()", "[False, False, True]")
)
ge = _binary_method(
    "ge", GE, "Where this tensor is greater or equal.", ("Tensor([1, 2, 3]).ge(2).tolist()", "[False, True, True]")
)
eq = _binary_method("eq", EQ, "Where both are equal.", ("Tensor([1, 2, 3]).eq(2).tolist()", "[False, True, False]"))
ne = _binary_method(
    "ne", NE, "Where they differ (true for NaN).", ("Tensor([1, 2, 3]).ne(2).tolist()", "[True, False, True]")
)
atan2 = _binary_method(
    "atan2",
    ATAN2,
    "The angle of the point (x = other, y = this), in radians.",
    ("Tensor([0.0, 0.0]).atan2(Tensor([1.0, 2.0])).tolist()", "[0.0, 0.0]"),
)
copysign = _binary_method(
    "copysign",
    COPYSIGN,
    "The magnitude of this tensor with the sign of the other.",
    ("Tensor([1.0, 2.0]).copysign(-1).tolist()", "[-1.0, -2.0]"),
)


def add(self: Tensor, other: Operand, *, alpha: float = 1) -> Tensor:
    """The sum, element by element, of this tensor and `alpha` times the other.

    Args:
        other: A tensor, an array or a number; shapes broadcast.
        alpha: What the other is multiplied by.
    Dtype: that in which both meet; on bool, or.
    Raises: ShapeError if the shapes do not broadcast; ValueRangeError if a number does not fit the dtype.
    Examples:
        >>> Tensor([1, 2]).add(Tensor([[10], [20]])).tolist()
        [[11, 12], [21, 22]]
        >>> Tensor([1, 2]).add(1, alpha=5).tolist()
        [6, 7]
    """
    return binary("add", ADD, self, other if alpha is ONE else scaled("add", self, other, alpha))


def sub(self: Tensor, other: Operand, *, alpha: float = 1) -> Tensor:
    """The difference, element by element, of this tensor and `alpha` times the other.

    Args:
        other: A tensor, an array or a number; shapes broadcast.
        alpha: What the other is multiplied by.
    Dtype: that in which both meet; not bool.
    Raises: ShapeError if the shapes do not broadcast; DTypeError of bool.
    Examples:
        >>> Tensor([5, 7]).sub(2).tolist()
        [3, 5]
    """
    return binary("sub", SUB, self, other if alpha is ONE else scaled("sub", self, other, alpha))


def scaled(name: str, x: Tensor, other: Operand, alpha: float) -> Operand:
    """An operand of a named op, multiplied."""
    times = number_of(name, "alpha", alpha)
    return other if times == 1 else binary(name, MUL, tensor_of(name, x, other), times)


def div(self: Tensor, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """The true quotient; integers give the default float.

    Args:
        other: A tensor, an array or a number; shapes broadcast.
        rounding_mode: "floor" rounds down, as floor_divide; "trunc" rounds toward 0. Integers then stay integers.
    Raises: ShapeError if the shapes do not broadcast; ValueRangeError if there is no such rounding.
    Examples:
        >>> Tensor([7, -7]).div(2).tolist(), Tensor([7, -7]).div(2, rounding_mode="trunc").tolist()
        ([3.5, -3.5], [3, -3])
    """
    if rounding_mode is None:
        return binary("div", DIV, self, other)
    if word("div", "rounding_mode", rounding_mode, ("floor", "trunc")) == "floor":
        return binary("div", FLOOR_DIV, self, other)
    divisor = tensor_of("div", self, other)
    if self.dtype.is_float or divisor.dtype.is_float:
        return trunc(binary("div", DIV, self, divisor))
    return binary("div", FLOOR_DIV, sub(self, fmod(self, divisor)), divisor)


def fmod(self: Tensor, other: Operand) -> Tensor:
    """The remainder with this tensor's sign, as C's fmod; integer x % 0 is 0.

    Args:
        other: A tensor, an array or a number; shapes broadcast.
    Dtype: that in which both meet.
    Raises: ShapeError if the shapes do not broadcast.
    Examples:
        >>> Tensor([7.5, -7.5]).fmod(2).tolist(), Tensor([7.5, -7.5]).mod(2).tolist()
        ([1.5, -1.5], [1.5, 0.5])
    """
    divisor = tensor_of("fmod", self, other) if not is_number(other) else other
    rest = binary("fmod", MOD, self, divisor)
    if rest.dtype.is_float:  # of magnitudes, both ways of rounding agree, without a difference that would round
        size = abs(other) if is_number(other) else abs_(_as(tensor_of("fmod", self, other), rest.dtype))
        return copysign(binary("fmod", MOD, abs_(_as(self, rest.dtype)), size), self)
    apart = bitwise_and(ne(rest, 0), ne(lt(rest, 0), lt(self, 0)))
    return where(apart, sub(rest, divisor), rest)


exp = _unary_method("exp", ops.EXP, "e to the power of each element.", ("round(Tensor(1.0).exp().item(), 4)", "2.7183"))
exp2 = _unary_method(
    "exp2", ops.EXP2, "2 to the power of each element.", ("round(Tensor(3.0).exp2().item(), 4)", "8.0")
)
expm1 = _unary_method(
    "expm1", ops.EXPM1, "exp(x) - 1, exact near 0.", ("round(Tensor(1.0).expm1().item(), 4)", "1.7183")
)
log = _unary_method("log", ops.LOG, "The natural logarithm.", ("round(Tensor(10.0).log().item(), 4)", "2.3026"))
log2 = _unary_method("log2", ops.LOG2, "The logarithm to base 2.", ("round(Tensor(8.0).log2().item(), 4)", "3.0"))
log10 = _unary_method(
    "log10", ops.LOG10, "The logarithm to base 10.", ("round(Tensor(1000.0).log10().item(), 4)", "3.0")
)
log1p = _unary_method(
    "log1p", ops.LOG1P, "log(1 + x), exact near 0.", ("round(Tensor(1.0).log1p().item(), 4)", "0.6931")
)
sin = _unary_method("sin", ops.SIN, "The sine of angles in radians.", ("round(Tensor(1.0).sin().item(), 4)", "0.8415"))
cos = _unary_method(
    "cos", ops.COS, "The cosine of angles in radians.", ("round(Tensor(1.0).cos().item(), 4)", "0.5403")
)
tan = _unary_method(
    "tan", ops.TAN, "The tangent of angles in radians.", ("round(Tensor(1.0).tan().item(), 4)", "1.5574")
)
asin = _unary_method("asin", ops.ASIN, "The angle whose sine is x.", ("round(Tensor(1.0).asin().item(), 4)", "1.5708"))
acos = _unary_method(
    "acos", ops.ACOS, "The angle whose cosine is x.", ("round(Tensor(0.0).acos().item(), 4)", "1.5708")
)
atan = _unary_method(
    "atan", ops.ATAN, "The angle whose tangent is x.", ("round(Tensor(1.0).atan().item(), 4)", "0.7854")
)
sinh = _unary_method("sinh", ops.SINH, "The hyperbolic sine.", ("round(Tensor(1.0).sinh().item(), 4)", "1.1752"))
cosh = _unary_method("cosh", ops.COSH, "The hyperbolic cosine.", ("round(Tensor(1.0).cosh().item(), 4)", "1.5431"))
tanh = _unary_method("tanh", ops.TANH, "The hyperbolic tangent.", ("round(Tensor(1.0).tanh().item(), 4)", "0.7616"))
asinh = _unary_method(
    "asinh", ops.ASINH, "The inverse hyperbolic sine.", ("round(Tensor(1.0).asinh().item(), 4)", "0.8814")
)
acosh = _unary_method(
    "acosh", ops.ACOSH, "The inverse hyperbolic cosine.", ("round(Tensor(2.0).acosh().item(), 4)", "1.317")
)
atanh = _unary_method(
    "atanh", ops.ATANH, "The inverse hyperbolic tangent.", ("round(Tensor(0.5).atanh().item(), 4)", "0.5493")
)
erf = _unary_method("erf", ops.ERF, "The error function.", ("round(Tensor(1.0).erf().item(), 4)", "0.8427"))
sqrt = _unary_method(
    "sqrt", ops.SQRT, "The square root; NaN below 0.", ("round(Tensor(2.0).sqrt().item(), 4)", "1.4142")
)
floor = _unary_method(
    "floor",
    ops.FLOOR,
    "Each element rounded down.",
    ("Tensor([1.5, -1.5]).floor().tolist()", "[1.0, -2.0]"),
    floats=False,
)
ceil = _unary_method(
    "ceil", ops.CEIL, "Each element rounded up.", ("Tensor([1.5, -1.5]).ceil().tolist()", "[2.0, -1.0]"), floats=False
)
trunc = _unary_method(
    "trunc",
    ops.TRUNC,
    "Each element rounded toward 0.",
    ("Tensor([1.5, -1.5]).trunc().tolist()", "[1.0, -1.0]"),
    floats=False,
)
neg = _unary_method(
    "neg", ops.NEG, "Each element with its sign changed.", ("Tensor([1, -2]).neg().tolist()", "[-1, 2]"), floats=False
)
abs_ = _unary_method(
    "abs", ops.ABS, "The magnitude of each element.", ("Tensor([1, -2]).abs().tolist()", "[1, 2]"), floats=False
)
bitwise_not = _unary_method(
    "bitwise_not",
    ops.NOT,
    "Each bit inverted; on bool, logical not.",
    ("Tensor([0, 5]).bitwise_not().tolist()", "[-1, -6]"),
    floats=False,
)


def logical_not(self: Tensor) -> Tensor:
    """Where an element is 0 or False.

    Dtype: bool.
    Examples:
        >>> Tensor([0, 2]).logical_not().tolist()
        [True, False]
    """
    return self._make(ops.not_(ops.cast(self._value(), dtypes.bool)), self)


def logical_and(self: Tensor, other: Operand) -> Tensor:
    """Where both are other than 0.

    Args:
        other: A tensor, an array or a number; shapes broadcast.
    Dtype: bool.
    Raises: ShapeError if the shapes do not broadcast.
    Examples:
        >>> Tensor([0, 0, 2]).logical_and(Tensor([0, 1, 3])).tolist()
        [False, False, True]
    """
    return binary("logical_and", AND, ne(self, 0), ne(tensor_of("logical_and", self, other), 0))


def logical_or(self: Tensor, other: Operand) -> Tensor:
    """Where one of both is other than 0.

    Args:
        other: A tensor, an array or a number; shapes broadcast.
    Dtype: bool.
    Raises: ShapeError if the shapes do not broadcast.
    Examples:
        >>> Tensor([0, 0, 2]).logical_or(Tensor([0, 1, 3])).tolist()
        [False, True, True]
    """
    return binary("logical_or", OR, ne(self, 0), ne(tensor_of("logical_or", self, other), 0))


def logical_xor(self: Tensor, other: Operand) -> Tensor:
    """Where exactly one of both is other than 0.

    Args:
        other: A tensor, an array or a number; shapes broadcast.
    Dtype: bool.
    Raises: ShapeError if the shapes do not broadcast.
    Examples:
        >>> Tensor([0, 0, 2]).logical_xor(Tensor([0, 1, 3])).tolist()
        [False, True, False]
    """
    return binary("logical_xor", XOR, ne(self, 0), ne(tensor_of("logical_xor", self, other), 0))


def sign(self: Tensor) -> Tensor:
    """-1, 0 or 1 by the sign of each element; NaN stays.

    Dtype: as the tensor's.
    Examples:
        >>> Tensor([-2.5, 0.0, 7.0]).sign().tolist()
        [-1.0, 0.0, 1.0]
    """
    return self._make(ops.sign(self._value()), self)


def reciprocal(self: Tensor) -> Tensor:
    """1 over each element.

    Dtype: floats keep theirs; ints and bool become the default float.
    Examples:
        >>> Tensor([2, 4]).reciprocal().tolist()
        [0.5, 0.25]
    """
    return binary("reciprocal", OTHER_DIV, self, 1)


def rsqrt(self: Tensor) -> Tensor:
    """1 over the square root of each element.

    Dtype: floats keep theirs; ints and bool become the default float.
    Examples:
        >>> Tensor([4.0, 16.0]).rsqrt().tolist()
        [0.5, 0.25]
    """
    return binary("rsqrt", OTHER_DIV, sqrt(self), 1)


def square(self: Tensor) -> Tensor:
    """Each element times itself.

    Dtype: as the tensor's; of bool int64.
    Examples:
        >>> Tensor([-3, 4]).square().tolist()
        [9, 16]
    """
    x = _as(self, dtypes.int64) if self.dtype is dtypes.bool else self
    return mul(x, x)


def _as(x: Tensor, dtype: DType) -> Tensor:
    """A tensor in a dtype that holds its values: before a magnitude, of which the lowest integer has none."""
    return x if x.dtype is dtype else x.cast(dtype)


def isnan(self: Tensor) -> Tensor:
    """Where an element is NaN.

    Dtype: bool.
    Examples:
        >>> Tensor([1.0, float("nan")]).isnan().tolist()
        [False, True]
    """
    return ne(self, self)


def isinf(self: Tensor) -> Tensor:
    """Where an element is an infinity.

    Dtype: bool.
    Examples:
        >>> Tensor([1.0, float("-inf")]).isinf().tolist()
        [False, True]
    """
    return eq(abs_(self), math.inf) if self.dtype.is_float else ne(self, self)


def isfinite(self: Tensor) -> Tensor:
    """Where an element is a finite number.

    Dtype: bool.
    Examples:
        >>> Tensor([1.0, float("inf"), float("nan")]).isfinite().tolist()
        [True, False, False]
    """
    return lt(abs_(self), math.inf) if self.dtype.is_float else eq(self, self)


def isclose(
    self: Tensor, other: Tensor | float, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Where the difference is at most atol + rtol * abs(other); infinities are close to themselves only.

    Args:
        other: A tensor or a number; shapes broadcast.
        rtol: How far apart they may be, as a part of the other's magnitude.
        atol: How far apart they may be in any case.
        equal_nan: Whether NaN is close to NaN.
    Dtype: bool.
    Raises: ShapeError if the shapes do not broadcast.
    Examples:
        >>> Tensor([1.0, 2.0]).isclose(Tensor([1.0000001, 2.1])).tolist()
        [True, False]
    """
    return close("isclose", self, other, rtol, atol, equal_nan)


def close(name: str, self: Tensor, other: Operand, rtol: float, atol: float, equal_nan: bool) -> Tensor:
    """Where elements are close, for a named op."""
    target = tensor_of(name, self, other)
    bound = add(abs_(mul(target, number_of(name, "rtol", rtol))), number_of(name, "atol", atol))
    near = le(abs_(binary(name, Way(ops.SUB, floats=True), self, target)), bound)
    found = bitwise_or(eq(self, target), bitwise_and(near, isfinite(target)))
    if flag(name, "equal_nan", equal_nan):
        found = bitwise_or(found, bitwise_and(isnan(self), isnan(target)))
    return found


def nan_to_num(self: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """Numbers in place of NaN and the infinities: the largest and smallest of the dtype, if none are given.

    Args:
        nan: In place of NaN.
        posinf: In place of infinity.
        neginf: In place of minus infinity.
    Dtype: as the tensor's.
    Examples:
        >>> Tensor([1.0, float("nan"), float("inf")]).nan_to_num(posinf=9.0).tolist()
        [1.0, 0.0, 9.0]
    """
    fill = number_of("nan_to_num", "nan", nan)
    given = [None if v is None else number_of("nan_to_num", w, v) for w, v in (("posinf", posinf), ("neginf", neginf))]
    if not self.dtype.is_float:
        return copied(self)
    high, low = (
        end if v is None else v for v, end in zip(given, (self.dtype.largest, -self.dtype.largest), strict=True)
    )
    bounded = where(eq(self, math.inf), high, where(eq(self, -math.inf), low, self))
    return where(isnan(self), fill, bounded)


def pow_(self: Tensor, other: Operand) -> Tensor:
    """This tensor to a power. Small whole powers are products; integers stay integers (1 / x is truncated), bool int64.

    Args:
        other: A tensor, an array or a number; shapes broadcast.
    Raises: ShapeError if the shapes do not broadcast.
    Examples:
        >>> Tensor([1.0, 2.0, 3.0]).pow(2).tolist()
        [1.0, 4.0, 9.0]
    """
    other = plain(other)
    if isinstance(other, int) and not self.dtype.is_float:
        base = self.cast(promote_weak(self.dtype, other.__class__))
        return _whole_power(base, int(other))
    if is_number(other) and self.dtype.is_float and abs(other) <= 64 and float(other).is_integer():
        return _whole_power(self, int(other))
    if not self.dtype.is_float and is_tensor(other) and not other.dtype.is_float:
        return _integer_power(self, other)
    return binary("pow", POWER, self, other)


def pow_operator(self: Tensor, other: Operand) -> Tensor:
    """The operator of `pow`."""
    return pow_(self, other) if _is_operand(other) else NotImplemented


def rpow_operator(self: Tensor, other: Operand) -> Tensor:
    """The operator of `pow`, with this tensor as the power."""
    if not _is_operand(other):
        return NotImplemented
    other = plain(other)
    if isinstance(other, int) and not self.dtype.is_float:
        dtype = promote_weak(self.dtype, other.__class__)
        base = self._make(to_shape_full(number("pow", dtype, other), self.shape), self)
        return _integer_power(base, self)
    return binary("pow", OTHER_POWER, self, other)


def _whole_power(x: Tensor, n: int) -> Tensor:
    """A power by repeated squaring."""
    if n == 0:
        return x._make(to_shape_full(const(x.dtype, 1), x.shape), x)
    if n < 0:
        if x.dtype.is_float:
            return reciprocal(_whole_power(x, -n))
        return where(eq(abs_(x), 1), x if n % 2 else mul(x, x), mul(x, 0))
    result: Tensor | None = None
    base = x
    while n:
        if n & 1:
            result = base if result is None else mul(result, base)
        n >>= 1
        if n:
            base = mul(base, base)
    assert result is not None
    return copied(x) if result is x else result


def _integer_power(x: Tensor, y: Tensor) -> Tensor:
    """Integers to integer powers, by the bits of the exponent; a negative power of anything but 1 and -1 is 0."""
    broadcast_shapes("pow", x.shape, y.shape)
    check_device("pow", x, y)
    dtype = meeting(x, y)
    base, left = x.cast(dtype), y.cast(dtype)
    result = add(mul(left, 0), 1)
    power = maximum(left, 0)
    for _ in range(dtype.bits - (dtype.kind == "int")):
        result = where(eq(bitwise_and(power, 1), 1), mul(result, base), result)
        base = mul(base, base)
        power = rshift(power, 1)
    if dtype.min == 0:
        return result
    odd = eq(bitwise_and(left, 1), 1)
    below = where(eq(x, 1), 1, where(eq(x, -1), where(odd, -1, 1), 0)).cast(dtype)
    return where(lt(left, 0), below, result)


def to_shape_full(node: Node, shape: tuple[int, ...]) -> Node:
    """A node broadcast to a shape, scalars too."""
    return expand(node, shape) if node.shape == () and shape != () else broadcast(node, shape)


def where(condition: Tensor, x: Operand, y: Operand) -> Tensor:
    """x where the condition holds, else y.

    Args:
        x: What stands where it holds: a tensor, an array or a number.
        y: What stands where it does not.
    Shape: the three broadcast.
    Dtype: that in which x and y meet.
    Raises: ShapeError if they do not broadcast; DTypeError if both are numbers of no common dtype.
    Examples:
        >>> Tensor([1, 2, 3]).lt(3).where(10, 20).tolist()
        [10, 10, 20]
    """
    test = ops.cast(condition._value() if isinstance(condition, TensorBase) else _no_condition(condition), dtypes.bool)  # pyright: ignore[reportUnnecessaryIsInstance] -- what callers give
    a, b = operand("where", condition, x), operand("where", condition, y)
    if isinstance(a, Node):
        first, second = join("where", a, b)
    elif isinstance(b, Node):
        second, first = join("where", b, a)
    else:
        kinds = {a.__class__, b.__class__}
        dtype = FLOAT if float in kinds else dtypes.int64 if int in kinds else dtypes.bool
        first, second = const(dtype, a), const(dtype, b)
    shape = broadcast_shapes("where", test.shape, first.shape, second.shape)
    return condition._make(
        ops.where(to_shape_full(test, shape), broadcast(first, shape), broadcast(second, shape)), condition, x, y
    )


def _no_condition(given: object) -> Node:
    """Raise for what is no tensor and should be the condition of a choice."""
    raise DTypeError(f"where: the condition must be a tensor; got {shown(given)}. Make one with Tensor(...)?")


def clip(self: Tensor, min: Operand = None, max: Operand = None) -> Tensor:  # noqa: A002 -- PyTorch's and NumPy's names
    """Each element, no lower than `min` and no higher than `max` (None: no bound).

    Args:
        min: The lower bound, if any: a tensor or a number.
        max: The upper bound, if any.
    Dtype: that in which the tensor and its bounds meet.
    Raises: ShapeError if the shapes do not broadcast.
    Examples:
        >>> Tensor([1, 5, 9]).clip(max=6).tolist()
        [1, 5, 6]
    """
    return between("clip", self, min, max)


def clamp(self: Tensor, min: Operand = None, max: Operand = None) -> Tensor:  # noqa: A002 -- PyTorch's names
    """As clip.

    Args:
        min: The lower bound, if any: a tensor or a number.
        max: The upper bound, if any.
    Dtype: that in which the tensor and its bounds meet.
    Raises: ShapeError if the shapes do not broadcast.
    Examples:
        >>> Tensor([1, 5, 9]).clamp(2, 6).tolist()
        [2, 5, 6]
    """
    return between("clamp", self, min, max)


def between(name: str, x: Tensor, low: Operand, high: Operand) -> Tensor:
    """Elements between the bounds of a named op."""
    if low is not None:
        x = binary(name, AT_LEAST, x, low)
    if high is not None:
        x = binary(name, AT_MOST, x, high)
    return copied(x) if low is None and high is None else x


def inside(name: str, x: Tensor, low: Operand, high: Operand) -> Tensor:
    """Elements between the bounds of a named op, which have no slope at the bounds either."""
    return binary(name, BELOW, binary(name, ABOVE, x, low), high)


def lerp(self: Tensor, end: Operand, weight: Operand) -> Tensor:
    """self + weight * (end - self).

    Args:
        end: What weight 1 gives: a tensor or a number.
        weight: How far to go: a tensor or a number.
    Raises: ShapeError if the shapes do not broadcast.
    Examples:
        >>> Tensor([0.0, 10.0]).lerp(Tensor([10.0, 20.0]), 0.5).tolist()
        [5.0, 15.0]
    """
    return add(self, binary("lerp", MUL, binary("lerp", OTHER_SUB, self, end), weight))


def round_(self: Tensor, decimals: int = 0) -> Tensor:
    """Each element rounded to a number of decimals, halves to even. Negative ones round to tens, hundreds, ...

    Args:
        decimals: How many digits after the point stay.
    Dtype: as the tensor's.
    Raises: DTypeError if `decimals` is no integer.
    Examples:
        >>> Tensor([2.5, 3.14159]).round().tolist(), Tensor([1250, -1350]).round(decimals=-2).tolist()
        ([2.0, 3.0], [1200, -1400])
    """
    places = integer("round", "decimals", decimals)
    if abs(places) > 308:
        raise ValueRangeError(f"round: decimals must be between -308 and 308; got {places}. Round to fewer?")
    if places == 0:
        return _nearest(self)
    if self.dtype.is_float:
        x = self.cast(dtypes.float32) if self.dtype.bits < 32 else self
        scale = 10.0 ** abs(places)
        if places < 0:
            return mul(_nearest(div(x, scale)), scale).cast(self.dtype)
        scaled = mul(x, scale)
        return where(isfinite(scaled), div(_nearest(scaled), scale), x).cast(self.dtype)
    if places > 0 or self.dtype.is_bool:
        return copied(self)
    unit = 10**-places
    if not self.dtype.fits(unit):
        return mul(self, 0)
    whole = floor_divide(self, unit)
    twice = mul(sub(self, mul(whole, unit)), 2)
    up = bitwise_or(gt(twice, unit), bitwise_and(eq(twice, unit), eq(mod(whole, 2), 1)))
    return mul(add(whole, up), unit)


_nearest = _unary_method(
    "round",
    ops.ROUND,
    "Each element rounded to nearest, halves to even.",
    ("Tensor([2.5, 3.5]).round().tolist()", "[2.0, 4.0]"),
    floats=False,
)


def logaddexp(self: Tensor, other: Operand) -> Tensor:
    """log(exp(self) + exp(other)), safe from overflow.

    Args:
        other: A tensor, an array or a number; shapes broadcast.
    Dtype: floats keep theirs; ints and bool become the default float.
    Raises: ShapeError if the shapes do not broadcast.
    Examples:
        >>> round(Tensor([1000.0]).logaddexp(1000.0).item() - 1000, 3)
        0.693
    """
    y = tensor_of("logaddexp", self, other)
    apart = binary("logaddexp", Way(ops.SUB, floats=True), self, y)
    if apart.dtype in (
        dtypes.float16,
        dtypes.bfloat16,
    ):  # what is taken away there would be mostly what it was rounded by
        return logaddexp(_as(self, dtypes.float32), _as(y, dtypes.float32)).cast(apart.dtype)
    near = where(eq(self, y), 0.0, neg(abs_(apart)))  # equal infinities are no NaN apart
    return add(maximum(self, y), log1p(exp(near)))


def hypot(self: Tensor, other: Operand) -> Tensor:
    """The length of the vectors (self, other), safe from overflow; infinite where either is.

    Args:
        other: A tensor, an array or a number; shapes broadcast.
    Dtype: floats keep theirs; ints and bool become the default float.
    Raises: ShapeError if the shapes do not broadcast.
    Examples:
        >>> Tensor([3.0]).hypot(4).tolist(), Tensor([1e38]).hypot(0).isfinite().tolist()
        ([5.0], [True])
    """
    y = tensor_of("hypot", self, other)
    dtype = binary("hypot", Way(ops.SUB, floats=True), self, y).dtype
    x, y = abs_(_as(self, dtype)), abs_(_as(y, dtype))
    long = binary("hypot", MAXIMUM, x, y)
    ratio = div(minimum(x, y), where(eq(long, 0), 1, long))
    length = mul(long, sqrt(add(square(ratio), 1)))
    return where(bitwise_or(isinf(x), isinf(y)), math.inf, length)
