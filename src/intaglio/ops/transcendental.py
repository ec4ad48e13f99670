"""Which function has which form: single precision its own, narrower floats that, double precision the C library's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ir.node import Node, Op, make
from intaglio.ops import angles, division, exponentials, logarithms
from intaglio.ops.elementwise import Elementwise, cast, decompositions

if TYPE_CHECKING:
    from collections.abc import Callable

NARROW: Final = (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2)
FORMS: Final[dict[str, Callable[..., Node]]] = {
    "exp": exponentials.exp, "exp2": exponentials.exp2, "expm1": exponentials.expm1, "sinh": exponentials.sinh,
    "cosh": exponentials.cosh, "tanh": exponentials.tanh, "erf": exponentials.erf, "log": logarithms.log,
    "log2": logarithms.log2, "log1p": logarithms.log1p, "asinh": logarithms.asinh, "acosh": logarithms.acosh,
    "atanh": logarithms.atanh, "pow": logarithms.power, "sin": angles.sin, "cos": angles.cos, "tan": angles.tan,
    "asin": angles.asin, "acos": angles.acos, "atan": angles.atan, "atan2": angles.atan2, "mod": division.mod,
    "floor_div": division.floor_div,
}  # fmt: skip


def by_dtype(op: Elementwise, narrow: Callable[..., Node]) -> Callable[..., Node]:
    """float32 by its own form, narrower floats through float32, everything else through float64."""

    def form(*src: Node) -> Node:
        dtype = src[0].dtype
        if dtype is dtypes.float32:
            return narrow(*src)
        if dtype is dtypes.float64:
            return make(op, *src)
        through = dtypes.float32 if dtype in NARROW else dtypes.float64
        return cast(make(op, *(cast(s, through) for s in src)), dtype)

    return form


def _register() -> None:
    """Give every op that is not primitive its decomposition."""
    for kind in list(Op.registry.values()):
        if issubclass(kind, Elementwise) and (not kind.primitive or kind.name in FORMS):
            op = Op.single(kind)
            assert isinstance(op, Elementwise)
            decompositions[kind.name] = by_dtype(op, FORMS[kind.name])


_register()
