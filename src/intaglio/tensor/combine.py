"""Combining and rearranging: cat, stack, split, pad, triangles, gather, scatter, sort."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from intaglio.core.dtypes import dtypes, promote
from intaglio.core.errors import DTypeError, IndexRangeError, ShapeError
from intaglio.ops import elementwise as ops
from intaglio.ops import movement
from intaglio.ops.memory import const, iota, put, take
from intaglio.ops.movement import expand, reshape
from intaglio.tensor.arguments import flag, integer, word
from intaglio.tensor.base import TensorBase
from intaglio.tensor.indexing import checked as checked_index
from intaglio.tensor.movement import axis_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.ir.node import Node
    from intaglio.tensor.tensor import Tensor


def _listed(name: str, given: tuple[Any, ...], dim: int) -> tuple[list[Tensor], int]:
    """(the tensors of a call, the axis): they come one by one, or as a list with the axis after it."""
    if given and not isinstance(given[0], TensorBase):
        first, *rest = given
        given = tuple(first)
        if rest:
            (dim,) = rest
    for tensor in given:
        if not isinstance(tensor, TensorBase):
            raise DTypeError(f"{name}: a list of tensors is wanted; one of them is a {type(tensor).__name__}.")
    if not given:
        raise ShapeError(f"{name}: there must be at least one tensor.")
    return list(given), dim


def cat(*given: Any, dim: int = 0) -> Tensor:
    """Tensors one after the other along an axis: `cat([a, b], dim)`, or `a.cat(b, dim=dim)`.

    Raises: ShapeError unless shapes agree but on that axis.
    Examples:
        >>> Tensor.cat([Tensor([1]), Tensor([2, 3])]).tolist()
        [1, 2, 3]
        >>> Tensor([[1]]).cat(Tensor([[2]]), dim=1).tolist()
        [[1, 2]]
    """
    tensors, dim = _listed("cat", given, dim)
    first = tensors[0]
    a = axis_of("cat", dim, first.ndim)
    dtype = first.dtype
    for k, tensor in enumerate(tensors):
        if (
            tensor.ndim != first.ndim
            or tensor.shape[:a] + tensor.shape[a + 1 :] != first.shape[:a] + first.shape[a + 1 :]
        ):
            raise ShapeError(
                f"cat: shapes must agree except on axis {a}; operand {k} is {tensor.shape}, operand 0 is {first.shape}."
            )
        dtype = promote(dtype, tensor.dtype)
    total = sum(t.shape[a] for t in tensors)
    out = first.__class__.empty(*first.shape[:a], total, *first.shape[a + 1 :], dtype=dtype, device=first._device)
    start = 0
    for tensor in tensors:
        stop = start + tensor.shape[a]
        out[(slice(None),) * a + (slice(start, stop),)] = tensor
        start = stop
    return out


def stack(*given: Any, dim: int = 0) -> Tensor:
    """Tensors of one shape along a new axis: `stack([a, b], dim)`, or `a.stack(b, dim=dim)`."""
    tensors, dim = _listed("stack", given, dim)
    for k, tensor in enumerate(tensors):
        if tensor.shape != tensors[0].shape:
            raise ShapeError(
                f"stack: shapes must be equal; operand {k} is {tensor.shape}, operand 0 is {tensors[0].shape}."
            )
    return cat([t.unsqueeze(dim) for t in tensors], dim=axis_of("stack", dim, tensors[0].ndim + 1))


def split(self: Tensor, sizes: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive pieces along an axis: of one size (the last may be smaller), or of the sizes listed."""
    a = axis_of("split", dim, self.ndim)
    n = self.shape[a]
    if isinstance(sizes, int):
        if sizes <= 0:
            raise ShapeError(f"split: the size must be positive; got {sizes}.")
        sizes = [min(sizes, n - s) for s in range(0, n, sizes)] or [0]
    if sum(sizes) != n:
        raise ShapeError(f"split: sizes must sum to the axis; {list(sizes)} sum to {sum(sizes)}, axis {a} has {n}.")
    out: list[Tensor] = []
    start = 0
    for size in sizes:
        out.append(self[(slice(None),) * a + (slice(start, start + size),)])
        start += size
    return tuple(out)


def chunk(self: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most `chunks` pieces of equal size (the last may be smaller)."""
    n = self.shape[axis_of("chunk", dim, self.ndim)]
    if chunks < 1:
        raise ShapeError(f"chunk: there must be at least one chunk; got {chunks}.")
    return split(self, max(1, -(-n // chunks)), dim)


def pad(self: Tensor, padding: Sequence[Any], mode: str = "constant", value: float = 0.0) -> Tensor:
    """The tensor with more elements around it.

    Args:
        padding: (before, after) for each axis, or PyTorch's flat list from the last axis backwards.
        mode: "constant", "reflect", "replicate" or "circular".
        value: What "constant" puts there.
    """
    pads = _pads(padding, self.ndim)
    if mode == "constant":
        cut = self
        if any(a < 0 or b < 0 for a, b in pads):
            cut = self.shrink([(max(0, -a), n - max(0, -b)) for (a, b), n in zip(pads, self.shape, strict=True)])
        grow = tuple((max(a, 0), max(b, 0)) for a, b in pads)
        node = movement.pad(cut._value(), grow)
        if value != 0:
            inside = movement.pad(expand(const(dtypes.bool, True), cut.shape), grow)
            node = ops.where(inside, node, const(self.dtype, value))
        return self._make(node, self)
    x = self
    for axis, (before, after) in enumerate(pads):
        if before or after:
            places = _pad_places(mode, x.shape[axis], before, after)
            x = x[(slice(None),) * axis + (places,)]
    return x


def _pads(padding: Sequence[Any], rank: int) -> list[tuple[int, int]]:
    """(before, after) for each axis."""
    if padding and isinstance(padding[0], int):
        if len(padding) % 2 or len(padding) // 2 > rank:
            raise ShapeError(f"pad: a flat list has two numbers an axis, for at most {rank} axes; got {list(padding)}.")
        pairs = [(int(padding[k]), int(padding[k + 1])) for k in range(0, len(padding), 2)]
        return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]
    found = [(0, 0) if p is None else (int(p[0]), int(p[1])) for p in padding]
    if len(found) != rank:
        raise ShapeError(f"pad: one pair for each axis; got {len(found)} for {rank} axes.")
    return found


def _pad_places(mode: str, n: int, before: int, after: int) -> list[int]:
    """Which element each place of a padded axis shows."""
    span = range(-before, n + after)
    match mode:
        case "replicate":
            return [min(max(i, 0), n - 1) for i in span]
        case "circular":
            return [i % n for i in span]
        case "reflect":
            if before >= n or after >= n:
                raise ShapeError(f"pad: reflection must be shorter than the axis; got {(before, after)} for {n}.")
            return [n - 1 - abs(n - 1 - abs(i)) for i in span]
        case _:
            raise ShapeError(f'pad: the mode must be "constant", "reflect", "replicate" or "circular"; got {mode!r}.')


def _below(self: Tensor, diagonal: int) -> Node:
    """Where column - row <= diagonal, over the last two axes."""
    if self.ndim < 2:
        raise ShapeError(f"tril: there must be two axes; the tensor has shape {self.shape}.")
    n, m = self.shape[-2:]
    rows = expand(reshape(iota(n), (n, 1)), (n, m))
    columns = expand(reshape(iota(m), (1, m)), (n, m))
    inside = ops.le(columns, ops.add(rows, const(dtypes.int64, diagonal)))
    lead = self.ndim - 2
    return expand(reshape(inside, (1,) * lead + (n, m)), self.shape)


def tril(self: Tensor, diagonal: int = 0) -> Tensor:
    """The elements on and below a diagonal; zeros above."""
    return self._make(ops.where(_below(self, diagonal), self._value(), const(self.dtype, 0)), self)


def triu(self: Tensor, diagonal: int = 0) -> Tensor:
    """The elements on and above a diagonal; zeros below."""
    return self._make(ops.where(_below(self, diagonal - 1), const(self.dtype, 0), self._value()), self)


def one_hot(self: Tensor, num_classes: int) -> Tensor:
    """1 at each element's number along a new last axis, 0 elsewhere: int64.

    Raises: DTypeError unless the elements are integers; IndexRangeError if one is negative or no class (for computed
        ones, when they are computed).
    Examples:
        >>> Tensor([2, 0]).one_hot(3).tolist()
        [[0, 0, 1], [1, 0, 0]]
    """
    classes = integer("one_hot", "the number of classes", num_classes)
    if classes < 0:
        raise ShapeError(f"one_hot: the number of classes must not be negative; got {classes}.")
    if not self.dtype.is_int:
        raise DTypeError(f"one_hot: the elements must be integers; they are {self.dtype.name}. Cast them first?")
    node = checked_index(self, classes, self.ndim, "one_hot", wraps=False)._value()
    shape = (*self.shape, classes)
    wide = expand(reshape(node, (*self.shape, 1)), shape)
    places = expand(reshape(iota(classes), (1,) * self.ndim + (classes,)), shape)
    return self._make(ops.cast(ops.eq(wide, places), dtypes.int64), self)


def _along(name: str, self: Tensor, axis: int, index: Tensor) -> tuple[int, list[Node]]:
    """(axis, index nodes for every axis) of PyTorch's gather and scatter."""
    a = axis_of(name, axis, self.ndim)
    if index.ndim != self.ndim or any(
        i > n for k, (i, n) in enumerate(zip(index.shape, self.shape, strict=True)) if k != a
    ):
        raise ShapeError(
            f"{name}: the index must have {self.ndim} axes, none but {a} longer than the tensor's; "
            f"index {index.shape}, tensor {self.shape}."
        )
    if index.dtype.is_float:
        raise DTypeError(f"{name}: positions must be integers; the index is {index.dtype.name}.")
    places: list[Node] = []
    for k, n in enumerate(index.shape):
        if k == a:
            places.append(ops.cast(checked_index(index, self.shape[a], a)._value(), dtypes.int64))
        else:
            places.append(expand(reshape(iota(n), tuple(n if j == k else 1 for j in range(index.ndim))), index.shape))
    return a, places


def gather(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """out[i][j] = self[index[i][j]][j] for axis 0, and so on: PyTorch's gather.

    Raises: ShapeError or IndexRangeError where the index does not fit.
    """
    _, places = _along("gather", self, dim, index)
    return self._make(take(self._value(), *places), self, index)


def scatter(self: Tensor, dim: int, index: Tensor, source: Any, reduce: str | None = None) -> Tensor:
    """The tensor with source[i][j] put at [index[i][j]][j] for axis 0, and so on: PyTorch's scatter.

    The last of equal positions wins.
    """
    combine = {None: "set", "add": "add", "multiply": "mul"}.get(reduce)
    if combine is None:
        raise ShapeError(f'scatter: reduce must be "add" or "multiply"; got {reduce!r}.')
    _, places = _along("scatter", self, dim, index)
    return self._make(put(combine, self._value(), _source(self, source, index), *places), self, index)


def _source(self: Tensor, source: Any, index: Tensor) -> Node:
    """The values of a scatter in the index's shape."""
    if isinstance(source, TensorBase):
        node = ops.cast(source._value(), self.dtype)
        if node.rank != index.ndim or any(a < b for a, b in zip(node.shape, index.shape, strict=True)):
            raise ShapeError(
                f"scatter: the source must be at least as long as the index; source {node.shape}, index {index.shape}."
            )
        return movement.shrink(node, tuple((0, n) for n in index.shape))
    return expand(const(self.dtype, source), index.shape)


def scatter_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """The tensor with the sum, prod, amax, amin or mean of what the index sends to each place, as PyTorch's.

    Args:
        include_self: Whether the old element takes part; places that nothing is sent to keep it either way.
    """
    kinds = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}
    if reduce not in kinds:
        raise ShapeError(f"scatter_reduce: reduce must be one of {', '.join(kinds)}; got {reduce!r}.")
    _, places = _along("scatter_reduce", self, dim, index)
    values = _source(self, source, index)
    dtype = self.dtype
    base = self._value()
    start = {"add": 0, "mul": 1, "max": dtype.min, "min": dtype.max}[kinds[reduce]]
    ones = expand(const(dtypes.int64, 1), index.shape)
    counts = put("add", expand(const(dtypes.int64, 0), self.shape), ones, *places)
    hit = ops.lt(const(dtypes.int64, 0), counts)
    first = base if include_self else ops.where(hit, expand(const(dtype, start), self.shape), base)
    out = put(kinds[reduce], first, values, *places)
    if reduce == "mean":
        total = ops.add(counts, const(dtypes.int64, int(include_self)))
        total = ops.cast(ops.maximum(total, const(dtypes.int64, 1)), dtype)
        out = ops.div(out, total) if dtype.is_float else ops.floor_div(out, total)
        if not include_self:
            out = ops.where(hit, out, base)
    return self._make(out, self, index, source)


def index_add(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """The tensor with the slices of `source` added at the positions of an axis that the index names."""
    a = axis_of("index_add", dim, self.ndim)
    order = (a, *(k for k in range(self.ndim) if k != a))
    place = ops.cast(checked_index(index, self.shape[a], a)._value(), dtypes.int64)
    base = movement.permute(self._value(), order)
    values = movement.permute(ops.cast(source._value(), self.dtype), order)
    out = put("add", base, values, place)
    back = tuple(order.index(k) for k in range(self.ndim))
    return self._make(movement.permute(out, back), self, index, source)


def index_select(self: Tensor, dim: int, index: Any) -> Tensor:
    """The slices of an axis at the positions that the index names."""
    return self[(slice(None),) * axis_of("index_select", dim, self.ndim) + (index,)]


def masked_fill(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """The tensor with a number where a mask holds."""
    return mask.where(self.__class__(value, dtype=self.dtype, device=self._device), self)


def masked_select(self: Tensor, mask: Tensor) -> Tensor:
    """The elements where a mask holds, in row-major order. Computes the mask."""
    return self[mask.expand(*self.shape)]


def repeat(self: Tensor, *counts: object) -> Tensor:
    """The tensor repeated along each axis: PyTorch's repeat."""
    from intaglio.tensor.movement import flat_ints

    times = flat_ints(counts)
    if len(times) < self.ndim:
        raise ShapeError(f"repeat: one count for each axis; got {times} for shape {self.shape}.")
    own = (1,) * (len(times) - self.ndim) + self.shape
    node = reshape(self._value(), tuple(n for pair in zip((1,) * len(own), own, strict=True) for n in pair))
    node = expand(node, tuple(n for pair in zip(times, own, strict=True) for n in pair))
    return self._make(reshape(node, tuple(t * n for t, n in zip(times, own, strict=True))), self)


def repeat_interleave(self: Tensor, count: int, dim: int | None = None) -> Tensor:
    """Each element (or slice of an axis) `count` times in a row."""
    x = self.reshape(-1) if dim is None else self
    a = 0 if dim is None else axis_of("repeat_interleave", dim, x.ndim)
    wide = x.unsqueeze(a + 1).expand(*x.shape[: a + 1], count, *x.shape[a + 1 :])
    return wide.reshape(*x.shape[:a], x.shape[a] * count, *x.shape[a + 1 :])


def roll(self: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Elements moved along axes, those that fall off coming back at the start."""
    if dims is None:
        flat = roll(self.reshape(-1), shifts, 0)
        return flat.reshape(self.shape)
    moves = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    along = (dims,) if isinstance(dims, int) else tuple(dims)
    if len(moves) != len(along):
        raise ShapeError(f"roll: one shift for each axis; got {len(moves)} shifts for {len(along)} axes.")
    x = self
    for shift, axis in zip(moves, along, strict=True):
        a = axis_of("roll", axis, x.ndim)
        n = x.shape[a]
        if n and shift % n:
            lead = (slice(None),) * a
            cut = n - shift % n
            x = cat([x[(*lead, slice(cut, None))], x[(*lead, slice(None, cut))]], dim=a)
    return x


def meshgrid(*tensors: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of a grid, one tensor an axis.

    Args:
        indexing: "ij" gives the axes in order, "xy" the first two exchanged.
    """
    word("meshgrid", "indexing", indexing, ("ij", "xy"))
    shape = tuple(t.numel() for t in tensors)
    out = [
        t.reshape(tuple(-1 if b == a else 1 for b in range(len(shape)))).expand(*shape) for a, t in enumerate(tensors)
    ]
    return tuple(t.transpose(0, 1) for t in out) if indexing == "xy" and len(out) > 1 else tuple(out)


def argsort(self: Tensor, dim: int = -1, *, descending: bool = False) -> Tensor:
    """The positions that sort an axis, equal elements in order, NaN last: int64. Computes the tensor."""
    import numpy as np

    a = axis_of("argsort", dim, max(self.ndim, 1))
    array = self.numpy()
    if array.dtype.kind == "V":
        array = array.astype(np.float32)
    if descending:
        flipped = np.flip(array, a)
        order = array.shape[a] - 1 - np.flip(np.argsort(flipped, axis=a, kind="stable"), a)
    else:
        order = np.argsort(array, axis=a, kind="stable")
    return self.__class__(np.ascontiguousarray(order), device=self._device)


class Sorted(NamedTuple):
    """Elements in order, and where they were."""

    values: Tensor
    indices: Tensor


def sort(self: Tensor, dim: int = -1, *, descending: bool = False) -> Sorted:
    """(the elements of an axis in order, where they were).

    Examples:
        >>> found = Tensor([3, 1, 2]).sort()
        >>> found.values.tolist(), found.indices.tolist()
        ([1, 2, 3], [1, 2, 0])
    """
    axis_of("sort", dim, max(self.ndim, 1))
    order = argsort(self, dim, descending=descending)
    return Sorted(gather(self, dim, order), order)


def topk(self: Tensor, k: int, dim: int = -1, *, largest: bool = True) -> Sorted:
    """(the k largest or smallest elements of an axis in order, where they were).

    Raises: IndexRangeError if the axis has fewer, or k is negative.
    """
    a = axis_of("topk", dim, self.ndim)
    count = integer("topk", "k", k)
    if not 0 <= count <= self.shape[a]:
        raise IndexRangeError(f"topk: k must not be negative, nor exceed the axis; {count} of {self.shape[a]}.")
    order = argsort(self, a, descending=largest)[(slice(None),) * a + (slice(0, count),)]
    return Sorted(gather(self, a, order), order)


def nonzero(self: Tensor) -> Tensor:
    """The positions of the elements that are not 0, one row each: int64. Computes the tensor.

    Examples:
        >>> Tensor([[0, 5], [6, 0]]).nonzero().tolist()
        [[0, 1], [1, 0]]
    """
    import numpy as np

    return self.__class__(np.argwhere(self.cast(dtypes.bool).numpy()), device=self._device)


def unique(self: Tensor, *, return_inverse: bool = False, return_counts: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The different elements in order. Computes the tensor.

    Args:
        return_inverse: Whether to give also where each element is among them.
        return_counts: Whether to give also how often each occurs.
    Examples:
        >>> values, counts = Tensor([3, 1, 3]).unique(return_counts=True)
        >>> values.tolist(), counts.tolist()
        ([1, 3], [1, 2])
    """
    import numpy as np

    found, inverse, counts = np.unique(self.numpy(), return_inverse=True, return_counts=True)
    asked = [found]
    if flag("unique", "return_inverse", return_inverse):
        asked.append(inverse.reshape(self.shape))
    if flag("unique", "return_counts", return_counts):
        asked.append(counts)
    first, *others = (self.__class__(array, device=self._device) for array in asked)
    return (first, *others) if others else first
