"""The error function of float64. Coefficients are minimax fits; the error is 1.3 ulp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.ops.approximate import at_most, double, magnitude, series
from intaglio.ops.elementwise import copysign, fma, gt, mul, sub, where
from intaglio.ops.exponentials import bounded_exp2

if TYPE_CHECKING:
    from intaglio.ir.node import Node

NEAR: Final = (  # by x ** 2, what erf(x) / x is more than 1
    -7.801188874097751e-10, 1.3722976265924504e-08, -1.6209175911748696e-07, 1.6447517677871873e-06,
    -1.4924744663335489e-05, 0.00012055295320494294, -0.0008548325989696758, 0.005223977607423468,
    -0.02686617064327622, 0.11283791670945253, -0.3761263890318355, 0.12837916709551256,
)  # fmt: skip
FAR: Final = (  # by |x| - 1, the logarithm to base 2 of 8 (1 - erf(|x|)), better where that is larger
    -7.01903782424798e-12, 1.7215722984648675e-10, -1.903124907784777e-09, 1.2290346401870691e-08,
    -4.8174771011725003e-08, 8.369672326132874e-08, 2.9547402852929997e-07, -3.075729032035185e-06,
    1.3952837564016992e-05, -3.923981594794192e-05, 3.793757712734715e-05, 0.00034237524455629434,
    -0.0028535082755819343, 0.014475749827083096, -0.05995999001468419, -1.2163466576872246, -3.807225345853586,
    0.3315833032184003,
)  # fmt: skip
ONE: Final = 5.93  # from where it is 1


def erf(x: Node) -> Node:
    """The error function: a polynomial up to 1, 1 - 2 ** (a polynomial) beyond.

    The power is made in eighths: where it weighs most, near 1, its exponent is then near 0, and rounded there.
    """
    size = magnitude(x)
    eighths = bounded_exp2(series(FAR, sub(at_most(size, ONE), double(1.0))))
    far = fma(eighths, double(-0.125), double(1.0))
    near = fma(x, series(NEAR, mul(x, x)), x)
    return where(gt(size, double(1.0)), copysign(far, x), near)
