"""Products: matmul, dot, einsum, linear: sums of products over repeated views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from intaglio.core.dtypes import dtypes, promote
from intaglio.core.errors import DTypeError, ShapeError
from intaglio.core.words import counted
from intaglio.ir.node import make, make_known
from intaglio.ops import elementwise as ops
from intaglio.ops.composite import MATMUL, sum_of_products
from intaglio.ops.movement import expand, permute, reshape
from intaglio.ops.reduce import reduce as reduce_op
from intaglio.tensor.arguments import number, shown, tensor
from intaglio.tensor.elementwise import ADD, STORED_ONLY, binary, broadcast_shapes, check_device, tensor_of

if TYPE_CHECKING:
    from intaglio.ir.node import Node, Shape
    from intaglio.tensor.tensor import Tensor


UNSUMMED: Final = frozenset((dtypes.bool, *STORED_ONLY))


def matmul(self: Tensor, other: Any) -> Tensor:
    """The matrix product; leading axes broadcast, 1-d operands are vectors.

    Args:
        other: A tensor or an array.
    Shape: (..., m, k) @ (..., k, n) -> (..., m, n).
    Dtype: that in which both meet; sums of half precision are made in float32.
    Raises: ShapeError if the inner sizes differ or the leading axes do not broadcast; DeviceError if the operands are
        on two devices.
    Examples:
        >>> (Tensor([[1, 2], [3, 4]]) @ Tensor([1, 1])).tolist()
        [3, 7]
    """
    return product(self, other)


def product(self: Tensor, other: Any, name: str = "matmul") -> Tensor:
    """A matrix product, for a named op."""
    if type(other) is not type(self):
        other = tensor_of(name, self, other)
    if other._device != self._device:
        check_device(name, self, other)
    x, y = self._value(), other._value()
    left, right = x.shape, y.shape
    dtype = x.dtype
    if dtype is not y.dtype:
        dtype = promote(dtype, y.dtype)
        x, y = ops.cast(x, dtype), ops.cast(y, dtype)
    if dtype in UNSUMMED:
        raise DTypeError(f"{name}: {dtype.name} cannot be summed. Cast it first?")
    if len(left) == len(right) == 2 and left[1] == right[0]:
        return self._make(make_known(MATMUL, (x, y), dtype, (left[0], right[1])), self, other)
    if not left or not right:
        raise ShapeError(
            f"{name}: operands must have at least one axis; lhs {left}, rhs {right}. Multiply scalars with *?"
        )
    vector_x, vector_y = len(left) == 1, len(right) == 1
    if vector_x:
        x = reshape(x, (1, *left))
    if vector_y:
        y = reshape(y, (*right, 1))
    if x.shape[-1] != y.shape[-2]:
        raise ShapeError(
            f"{name}: inner sizes must be equal; lhs {self.shape} has {x.shape[-1]}, "
            f"rhs {other.shape} has {y.shape[-2]}. {_fitting_way(left, right)}"
        )
    if len(x.shape) > 2 or len(y.shape) > 2:
        try:
            broadcast_shapes(name, x.shape[:-2], y.shape[:-2])
        except ShapeError:
            raise ShapeError(
                f"{name}: leading axes must broadcast; lhs {self.shape}, rhs {other.shape}. Unsqueeze or reshape one?"
            ) from None
    out = make(MATMUL, x, y)
    if vector_x:
        out = reshape(out, (*out.shape[:-2], out.shape[-1]))
    if vector_y:
        out = reshape(out, out.shape[:-1])
    return self._make(out, self, other)


def _fitting_way(left: Shape, right: Shape) -> str:
    """What to try where the inner sizes of two shapes differ: the transposition that makes them equal, if one does."""
    lhs = len(left) > 1 and left[-2:-1] == right[-2:][:1]
    rhs = len(right) > 1 and right[-1:] == left[-1:]
    if lhs or rhs:
        return "Transpose one side?" if lhs and rhs else f"Transpose {'lhs' if lhs else 'rhs'}?"
    return "Reshape or slice one?" if len(left) > 1 or len(right) > 1 else "Slice the longer, or use outer?"


def rmatmul(self: Tensor, other: Any) -> Tensor:
    """The matrix product with this tensor on the right."""
    return matmul(tensor_of("matmul", self, other), self)


def dot(self: Tensor, other: Any) -> Tensor:
    """The product of vectors, or of matrices: as matmul.

    Args:
        other: A tensor or an array.
    Shape: as matmul.
    Raises: ShapeError if the inner sizes differ.
    Examples:
        >>> Tensor([1, 2, 3]).dot(Tensor([4, 5, 6])).item()
        32
    """
    return product(self, other, "dot")


def mm(self: Tensor, other: Tensor) -> Tensor:
    """The product of two matrices.

    Args:
        other: The second matrix.
    Shape: (m, k), (k, n) -> (m, n).
    Raises: ShapeError unless both have two axes and the inner sizes are equal.
    Examples:
        >>> Tensor([[1, 2]]).mm(Tensor([[3], [4]])).tolist()
        [[11]]
    """
    return _of_rank("mm", 2, self, other)


def bmm(self: Tensor, other: Tensor) -> Tensor:
    """The products of two batches of matrices.

    Args:
        other: The second matrices.
    Shape: (b, m, k), (b, k, n) -> (b, m, n).
    Raises: ShapeError unless both have three axes that fit.
    Examples:
        >>> Tensor([[[1, 2]], [[3, 4]]]).bmm(Tensor([[[1], [1]], [[2], [2]]])).tolist()
        [[[3]], [[14]]]
    """
    return _of_rank("bmm", 3, self, other)


def _of_rank(name: str, rank: int, self: Tensor, other: Tensor) -> Tensor:
    """A product of two tensors of a given rank."""
    other = tensor(name, "the other operand", other)
    if self.ndim != rank or other.ndim != rank:
        raise ShapeError(
            f"{name}: both operands must have {rank} axes; they are {self.shape} and {other.shape}. Use matmul?"
        )
    return product(self, other, name)


def mv(self: Tensor, vector: Tensor) -> Tensor:
    """The product of a matrix and a vector: (n, m), (m,) -> (n,).

    Args:
        vector: The vector.
    Raises: ShapeError unless they are these.
    Examples:
        >>> Tensor([[1, 2], [3, 4]]).mv(Tensor([1, 1])).tolist()
        [3, 7]
    """
    other = tensor("mv", "the vector", vector)
    if self.ndim != 2 or other.ndim != 1:
        raise ShapeError(f"mv: a matrix and a vector are wanted; they are {self.shape} and {other.shape}. Use matmul?")
    return product(self, other, "mv")


def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * self + alpha * (mat1 @ mat2). Where beta is 0, this tensor counts for nothing, NaN included.

    Args:
        mat1: The first factor.
        mat2: The second factor.
        beta: What this tensor is multiplied by.
        alpha: What the product is multiplied by.
    Shape: (m, n) or broadcast to it, (m, k), (k, n) -> (m, n).
    Raises: ShapeError unless the operands are matrices that fit.
    Examples:
        >>> Tensor([10, 20]).addmm(Tensor([[1, 2]]), Tensor([[1, 0], [0, 1]])).tolist()
        [[11, 22]]
    """
    left, right = tensor("addmm", "mat1", mat1), tensor("addmm", "mat2", mat2)
    product = _of_rank("addmm", 2, left, right)
    scale, own = number("addmm", "alpha", alpha), number("addmm", "beta", beta)
    product = product if scale == 1 else product * scale
    if own == 0:
        return product
    return binary("addmm", ADD, product, self if own == 1 else self * own)


def outer(self: Tensor, other: Tensor) -> Tensor:
    """The products of each element of a vector with each of another: (n,), (m,) -> (n, m).

    Args:
        other: The second vector. (Tensors of other ranks are flattened.)
    Examples:
        >>> Tensor([1, 2]).outer(Tensor([3, 4])).tolist()
        [[3, 4], [6, 8]]
    """
    return self.reshape(-1, 1) * tensor("outer", "the other operand", other).reshape(1, -1)


def linear(self: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """self @ weight.T + bias, with the weight of shape (out, in), as PyTorch's.

    Args:
        weight: The matrix, as (out, in).
        bias: What is added: (out,).
    Shape: (..., in) -> (..., out).
    Raises: ShapeError if the sizes do not fit.
    Examples:
        >>> Tensor([1.0, 2.0]).linear(Tensor([[3.0, 4.0]]), Tensor([0.5])).tolist()
        [11.5]
    """
    factor = tensor("linear", "the weight", weight)
    if factor.ndim != 2 or self.shape[-1:] != factor.shape[1:]:
        raise ShapeError(
            f"linear: the weight must be (out, in) with the last axis of the input; weight {factor.shape}, "
            f"input {self.shape}. {'Transpose' if factor.shape[:-1] == self.shape[-1:] else 'Reshape'} the weight?"
        )
    out = product(self, factor.transpose(-1, -2), "linear")
    return out if bias is None else binary("linear", ADD, out, tensor("linear", "the bias", bias))


def einsum(formula: str, *operands: Tensor) -> Tensor:
    """A sum of products by Einstein's convention, as NumPy's.

    Args:
        formula: Such as "ij,jk->ik"; without "->", the letters that appear once, in order. "..." stands for other axes.
        operands: One tensor for each.
    Raises: ShapeError if a letter has two sizes or the operands do not fit.
    Examples:
        >>> Tensor.einsum("i,i->", Tensor([1, 2]), Tensor([3, 4])).item()
        11
    """
    if not isinstance(formula, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- what callers give
        raise DTypeError(f'einsum: the formula must be text, such as "ij,jk->ik"; got {shown(formula)}. Give it first?')
    operands = tuple(tensor("einsum", "every operand", operand) for operand in operands)
    inputs, arrow, output = formula.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(operands):
        raise ShapeError(
            f"einsum: one term for each operand; {formula!r} has {len(terms)} for "
            f"{counted(len(operands), 'operand')}. Part the terms by commas?"
        )
    strange = sorted({c for c in "".join([*terms, output]).replace("...", "") if not c.isalpha()})
    if strange:
        raise ShapeError(
            f"einsum: axes are named by letters; {formula!r} has {', '.join(map(repr, strange))}. "
            'Write it as "ij,jk->ik"?'
        )
    spread = 0
    for term, operand in zip(terms, operands, strict=True):
        if "..." in term:
            spread = max(spread, operand.ndim - len(term.replace("...", "")))
    dots = "".join(chr(0x2460 + k) for k in range(spread))
    given, terms = terms, [_undotted(t, o.ndim, dots) for t, o in zip(terms, operands, strict=True)]
    letters = "".join(terms)
    if arrow:
        output = output.replace("...", dots)
    else:
        output = dots + "".join(sorted(c for c in set(letters) - set(dots) if letters.count(c) == 1))
    sizes: dict[str, int] = {}
    for k, (term, operand) in enumerate(zip(terms, operands, strict=True)):
        if len(term) != operand.ndim:
            raise ShapeError(
                f"einsum: one letter for each axis; {given[k]!r} for shape {operand.shape}. "
                'Write "..." for axes without a letter?'
            )
        for c, n in zip(term, operand.shape, strict=True):
            if sizes.get(c, n) not in (n, 1) and n != 1:
                what = repr(c) if c.isalpha() else "an axis of '...'"
                raise ShapeError(f"einsum: a letter has one size; {what} is {sizes[c]} and {n}. Use another letter?")
            sizes[c] = max(sizes.get(c, 1), n)
    if any(c not in sizes for c in output) or len(set(output)) != len(output):
        raise ShapeError(
            f"einsum: each letter of the output must appear once there and in an input; {formula!r}. "
            "Change what follows '->'?"
        )
    current, node = _diagonals(terms[0], operands[0]._value())
    dtype = node.dtype
    for place, (term, operand) in enumerate(zip(terms[1:], operands[1:], strict=True), 1):
        own, right = _diagonals(term, operand._value())
        dtype = promote(dtype, right.dtype)
        later = set("".join(terms[place + 1 :])) | set(output)
        order = output if place == len(terms) - 1 else ""  # the last product is made in the order that is asked for
        keep = "".join(c for c in dict.fromkeys(order + current + own) if c in later)
        node = _pair(current, ops.cast(node, dtype), own, ops.cast(right, dtype), keep, sizes)
        current = keep
    gone = tuple(a for a, c in enumerate(current) if c not in output)
    node = reduce_op("sum", node, gone)
    current = "".join(c for c in current if c in output)
    node = permute(node, tuple(current.index(c) for c in output))
    return operands[0]._make(node, *operands)


def _undotted(term: str, rank: int, dots: str) -> str:
    """A term with "..." as the last of the letters for it."""
    if "..." not in term:
        return term
    count = rank - len(term.replace("...", ""))
    return term.replace("...", dots[len(dots) - count :])


def _diagonals(term: str, node: Node) -> tuple[str, Node]:
    """A term with each letter once: repeated ones by their diagonal."""
    from intaglio.ops.memory import iota, take

    while len(set(term)) != len(term):
        c = next(x for x in term if term.count(x) > 1)
        a = term.index(c)
        b = term.index(c, a + 1)
        order = (a, b, *(k for k in range(node.rank) if k not in (a, b)))
        node = permute(node, order)
        node = take(node, iota(node.shape[0]), iota(node.shape[0]))
        term = c + "".join(x for k, x in enumerate(term) if k not in (a, b))
    return term, node


def _pair(left: str, x: Node, right: str, y: Node, keep: str, sizes: dict[str, int]) -> Node:
    """Two operands multiplied and summed over the letters that are not kept."""
    summed = "".join(c for c in dict.fromkeys(left + right) if c not in keep)
    letters = keep + summed
    shape = tuple(sizes[c] for c in letters)

    def spread(term: str, node: Node) -> Node:
        order = [term.index(c) for c in letters if c in term]
        node = permute(node, tuple(order))
        it = iter(node.shape)
        return expand(reshape(node, tuple(next(it) if c in term else 1 for c in letters)), shape)

    return sum_of_products(spread(left, x), spread(right, y), tuple(range(len(keep), len(letters))))
