"""Products and operands of two shapes as composite ops, and what writes all composite ops out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import InternalError
from intaglio.ir.composite import Composite
from intaglio.ir.node import Interned, Node, Result, make, rebuild, toposort
from intaglio.ops import elementwise as ops
from intaglio.ops.movement import broadcast, expand, permute, reshape
from intaglio.ops.reduce import reduce

if TYPE_CHECKING:
    from collections.abc import Iterable

    from intaglio.ir.node import Shape

WIDE: Final = {  # dtype: what its products are added in
    dtypes.float16: dtypes.float32,
    dtypes.bfloat16: dtypes.float32,
    dtypes.int8: dtypes.int32,
    dtypes.uint8: dtypes.int32,
}


class Matmul(Composite):
    """The product of matrices: (..., m, k), (..., k, n) -> (..., m, n); axes in front are broadcast."""

    name: ClassVar[str] = "matmul"

    def infer(self, x: Node, y: Node) -> Result:
        """The operands' dtype; their shapes must fit."""
        left, right = x.shape, y.shape
        if len(left) == len(right) == 2 and left[1] == right[0] and x.dtype is y.dtype:
            return x.dtype, (left[0], right[1])
        if x.dtype is not y.dtype or len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
            raise InternalError(f"matmul: {x.dtype.name}{list(left)} by {y.dtype.name}{list(right)}")
        return x.dtype, (*batch_of(x.shape[:-2], y.shape[:-2]), left[-2], right[-1])

    def written_out(self, x: Node, y: Node) -> Node:
        """The sum of products of both factors, repeated along the axes that they lack."""
        (m, k), n = x.shape[-2:], y.shape[-1]
        batch = batch_of(x.shape[:-2], y.shape[:-2])
        rank = len(batch)
        if y.rank == 2 and x.rank == rank + 2:  # one matrix for all: its rows and the batch are rows of one product
            rows = m
            for extent in batch:
                rows *= extent
            left = expand(reshape(x, (rows, 1, k)), (rows, n, k))
            right = expand(reshape(permute(y, (1, 0)), (1, n, k)), (rows, n, k))
            return reshape(sum_of_products(left, right, (2,)), (*batch, m, n))
        full = (*batch, m, n, k)
        left = reshape(x, (*_lead(x, rank), m, 1, k))
        y = reshape(y, (*_lead(y, rank), k, n))
        right = reshape(permute(y, (*range(rank), rank + 1, rank)), (*_lead(y, rank), 1, n, k))
        return sum_of_products(expand(left, full), expand(right, full), (rank + 2,))


MATMUL: Final = Matmul()


@dataclass(frozen=True, slots=True, eq=False)
class Broadcast(Interned, Composite):
    """An elementwise op on two operands of different shapes: each is repeated along the axes that it lacks."""

    op: ops.Binary
    name: ClassVar[str] = "broadcast"

    def infer(self, x: Node, y: Node) -> Result:
        """What the op gives, in the shape that both fit; they must."""
        if x.dtype is not y.dtype:
            raise InternalError(f"{self.op.name}: operands are {x.dtype.name} and {y.dtype.name}")
        return self.op.infer(x, x)[0], batch_of(x.shape, y.shape)

    def written_out(self, x: Node, y: Node) -> Node:
        """The op on both as they are repeated."""
        shape = batch_of(x.shape, y.shape)
        return make(self.op, broadcast(x, shape), broadcast(y, shape))


broadcasting: Final = cache(Broadcast)  # an op as one that takes operands of different shapes


def sum_of_products(x: Node, y: Node, axes: tuple[int, ...]) -> Node:
    """The sum over axes of the product of two nodes of one shape; half precision adds in float32, bytes in int32."""
    dtype = x.dtype
    if dtype in WIDE:
        x, y = ops.cast(x, WIDE[dtype]), ops.cast(y, WIDE[dtype])
    return ops.cast(reduce("sum", ops.mul(x, y), axes), dtype)


@lru_cache(maxsize=1024)
def batch_of(a: Shape, b: Shape) -> Shape:
    """The shape that two shapes which fit broadcast to."""
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    return tuple([n if m == 1 else m for m, n in pairs])


def write_out(roots: Iterable[Node]) -> list[Node]:
    """Some values with the graphs of composite ops in their places."""
    roots = list(roots)
    order = toposort(roots)
    if not any(isinstance(node.op, Composite) for node in order):
        return roots
    done: dict[Node, Node] = {}
    for node in order:
        src = tuple([done[source] for source in node.src])
        done[node] = node.op.written_out(*src) if isinstance(node.op, Composite) else rebuild(node, src)
    return [done[root] for root in roots]


def _lead(x: Node, rank: int) -> Shape:
    """The axes in front of a stack of matrices, so many of them."""
    lead = x.shape[:-2]
    return (1,) * (rank - len(lead)) + lead
