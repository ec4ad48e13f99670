"""Which function has which form: single and double precision their own, narrower floats that of single precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node, Op, make
from intaglio.ops import angles, arcs, division, error_function, exponentials, logarithms
from intaglio.ops.double import error_function as double_error_function
from intaglio.ops.double import logarithms as double_logarithms
from intaglio.ops.double import powers
from intaglio.ops.elementwise import Elementwise, cast, decompositions

if TYPE_CHECKING:
    from collections.abc import Callable

NARROW: Final = (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2)
FORMS: Final[dict[str, Callable[..., Node]]] = {  # of float32, and of float64 unless DOUBLE has another
    "exp": exponentials.exp, "exp2": exponentials.exp2, "expm1": exponentials.expm1, "sinh": exponentials.sinh,
    "cosh": exponentials.cosh, "tanh": exponentials.tanh, "erf": error_function.erf, "log": logarithms.log,
    "log2": logarithms.log2, "log10": logarithms.log10, "log1p": logarithms.log1p, "asinh": logarithms.asinh,
    "acosh": logarithms.acosh, "atanh": logarithms.atanh, "pow": logarithms.power, "sin": angles.sin,
    "cos": angles.cos, "tan": angles.tan, "asin": arcs.asin, "acos": arcs.acos, "atan": arcs.atan, "atan2": arcs.atan2, "mod": division.mod,
    "floor_div": division.floor_div,
}  # fmt: skip
DOUBLE: Final[dict[str, Callable[..., Node]]] = {
    "erf": double_error_function.erf, "pow": powers.power,
    "log": double_logarithms.log, "log2": double_logarithms.log2, "log10": double_logarithms.log10,
    "log1p": double_logarithms.log1p,
    "asinh": double_logarithms.asinh, "acosh": double_logarithms.acosh, "atanh": double_logarithms.atanh,
}  # fmt: skip


def by_dtype(op: Elementwise, single: Callable[..., Node], double: Callable[..., Node]) -> Callable[..., Node]:
    """float32 and float64 by their own forms, narrower floats through float32, integers through float64."""

    def form(*src: Node) -> Node:
        dtype = src[0].dtype
        if dtype is dtypes.float32:
            return single(*src)
        if dtype is dtypes.float64:
            return double(*src)
        through = dtypes.float32 if dtype in NARROW else dtypes.float64
        return cast(make(op, *(cast(s, through) for s in src)), dtype)

    return form


def _register() -> None:
    """Give every op that is not primitive its decomposition."""
    for kind in list(Op.registry.values()):
        if issubclass(kind, Elementwise) and (not kind.primitive or kind.name in FORMS):
            op = Op.single(kind)
            assert isinstance(op, Elementwise)
            single = FORMS[kind.name]
            decompositions[kind.name] = by_dtype(op, single, DOUBLE.get(kind.name, single))


_register()
