"""The error function of float32. Coefficients are minimax fits; the error is 1.0 ulp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ops.approximate import at_most, magnitude, number, polynomial
from intaglio.ops.elementwise import copysign, fma, gt, mul, neg, sub, where
from intaglio.ops.exponentials import bounded_exp

if TYPE_CHECKING:
    from intaglio.ir.node import Node

NEAR: Final = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)


def erf(x: Node) -> Node:
    """The error function: a polynomial near 0, 1 - exp(a polynomial) elsewhere."""
    size = magnitude(x)
    t = at_most(size, 4.0)  # where it is 1: no denormals, which are slow
    q = mul(t, t)
    r = fma(number(-1.72853470e-5), t, number(3.83197126e-4))
    u = fma(number(-3.88396438e-3), t, number(2.42546219e-2))
    r = fma(r, q, u)
    for c in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        r = fma(r, t, number(c))
    r = fma(r, t, neg(t))
    far = copysign(sub(number(1.0), bounded_exp(r)), x)
    near = fma(x, polynomial(NEAR, q), x)
    return where(gt(size, number(0.927734375)), far, near)
