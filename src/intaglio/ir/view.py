"""Views: a dtype, a shape and byte strides over a run of bytes, with exact tests of overlap."""

from __future__ import annotations

from functools import lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from intaglio.core.dtypes import DType, dtypes
from intaglio.ir.bounded import sum_hits

if TYPE_CHECKING:
    from collections.abc import Callable

Ints = tuple[int, ...]


class View(NamedTuple):
    """A typed, strided selection of bytes. Strides and offset are in bytes; strides may be 0 or negative."""

    dtype: DType
    shape: Ints
    strides: Ints
    offset: int

    @staticmethod
    @lru_cache(maxsize=4096)
    def contiguous(dtype: DType, shape: Ints, offset: int = 0) -> View:
        """The row-major view of a shape."""
        strides: list[int] = []
        step = dtype.itemsize
        for extent in reversed(shape):
            strides.append(step)
            step *= max(extent, 1)
        return View(dtype, shape, tuple(reversed(strides)), offset)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie in row-major order without gaps, from any offset."""
        step = self.dtype.itemsize
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != step:
                return self.size == 0
            step *= extent
        return True

    def at(self, i: int) -> View:
        """The view of position i of the first axis (already in range)."""
        dtype, shape, strides, offset = self
        return view_from((dtype, shape[1:], strides[1:], offset + i * strides[0]))

    def select(self, axis: int, i: int) -> View:
        """The view without an axis, at position i of it."""
        return View(
            self.dtype,
            self.shape[:axis] + self.shape[axis + 1 :],
            self.strides[:axis] + self.strides[axis + 1 :],
            self.offset + i * self.strides[axis],
        )

    def slice(self, axis: int, start: int, count: int, step: int) -> View:
        """`count` positions of an axis, from `start` by `step` (any sign)."""
        stride = self.strides[axis]
        return View(
            self.dtype,
            (*self.shape[:axis], count, *self.shape[axis + 1 :]),
            (*self.strides[:axis], stride * step, *self.strides[axis + 1 :]),
            self.offset + start * stride if count else self.offset,
        )

    def permute(self, order: Ints) -> View:
        """The axes in another order."""
        return _permuted(self, order)

    def flip(self, axes: Ints) -> View:
        """Some axes in reverse."""
        offset = self.offset
        strides = list(self.strides)
        for axis in axes:
            offset += max(self.shape[axis] - 1, 0) * strides[axis]
            strides[axis] = -strides[axis]
        return View(self.dtype, self.shape, tuple(strides), offset)

    def expand(self, shape: Ints) -> View:
        """Axes of size 1 repeated (stride 0); new axes in front."""
        missing = len(shape) - len(self.shape)
        old = (1,) * missing + self.shape
        strides = (0,) * missing + self.strides
        return View(
            self.dtype,
            shape,
            tuple(0 if a == 1 and b != 1 else s for a, b, s in zip(old, shape, strides, strict=True)),
            self.offset,
        )

    def unsqueeze(self, axis: int) -> View:
        """A new axis of size 1."""
        return View(
            self.dtype,
            (*self.shape[:axis], 1, *self.shape[axis:]),
            (*self.strides[:axis], 0, *self.strides[axis:]),
            self.offset,
        )

    def squeeze(self, axes: Ints) -> View:
        """The view without some axes of size 1."""
        keep = [a for a in range(len(self.shape)) if a not in axes]
        return View(self.dtype, tuple(self.shape[a] for a in keep), tuple(self.strides[a] for a in keep), self.offset)

    def shrink(self, bounds: tuple[tuple[int, int], ...]) -> View:
        """A box."""
        offset = self.offset
        if all(a < b for a, b in bounds):
            offset += sum(a * s for (a, _), s in zip(bounds, self.strides, strict=True))
        return View(self.dtype, tuple(b - a for a, b in bounds), self.strides, offset)

    def diagonal(self, offset: int = 0, first: int = 0, second: int = 1) -> View:
        """The diagonal of two axes, as a last axis."""
        rows, columns = self.shape[first], self.shape[second]
        count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
        start = self.offset
        if count:
            start += max(offset, 0) * self.strides[second] - min(offset, 0) * self.strides[first]
        keep = [a for a in range(len(self.shape)) if a not in (first, second)]
        return View(
            self.dtype,
            (*(self.shape[a] for a in keep), count),
            (*(self.strides[a] for a in keep), self.strides[first] + self.strides[second]),
            start,
        )

    def unfold(self, axis: int, size: int, step: int) -> View:
        """Sliding windows along an axis: their number takes its place, their size is a last axis."""
        count = (self.shape[axis] - size) // step + 1
        return View(
            self.dtype,
            (*self.shape[:axis], count, *self.shape[axis + 1 :], size),
            (*self.strides[:axis], self.strides[axis] * step, *self.strides[axis + 1 :], self.strides[axis]),
            self.offset,
        )

    def bitcast(self, dtype: DType) -> View | None:
        """The same bytes as another dtype; None where sizes differ and the last axis does not allow it."""
        old, new = self.dtype.itemsize, dtype.itemsize
        if old == new:
            return View(dtype, self.shape, self.strides, self.offset)
        if not self.shape or (self.strides[-1] != old and self.shape[-1] != 1):
            return None
        nbytes = self.shape[-1] * old
        if nbytes % new:
            return None
        return View(dtype, (*self.shape[:-1], nbytes // new), (*self.strides[:-1], new), self.offset)

    def reshape(self, shape: Ints) -> View | None:
        """Another shape over the same bytes; None where the strides do not allow it."""
        return self if shape == self.shape else _reshaped(self, shape)

    def byte_bounds(self) -> tuple[int, int]:
        """The first byte and the byte past the last (equal where there is no element)."""
        return _byte_bounds(self)

    def canonical(self) -> View:
        """The same bytes with positive strides, sorted and merged axes: equal for equal regions of most forms."""
        axes: list[tuple[int, int]] = []
        offset = self.offset
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if extent == 1:
                continue
            if stride < 0:
                offset += (extent - 1) * stride
                stride = -stride
            axes.append((stride, extent))
        axes.sort(reverse=True)
        merged: list[tuple[int, int]] = []
        for stride, extent in axes:
            if stride == 0:
                continue
            if merged and merged[-1][0] == stride * extent:
                merged[-1] = (stride, merged[-1][1] * extent)
            else:
                merged.append((stride, extent))
        return View(self.dtype, tuple(e for _, e in merged), tuple(s for s, _ in merged), offset)

    def covers(self, other: View) -> bool:
        """Whether all bytes of `other` are this view's, where that is plain to see (False is the safe answer)."""
        if other.size == 0:
            return True
        if self.size == 0:
            return False
        (low, high), (first, end) = self.byte_bounds(), other.byte_bounds()
        if first < low or end > high:
            return False
        mine = self.canonical()
        if mine._is_run:
            return True
        return self.dtype.itemsize == other.dtype.itemsize and mine._holds(other.canonical())

    def _holds(self, other: View) -> bool:
        """Whether a canonical view has each axis of another at the same stride, and its positions in range."""
        theirs: dict[int, int] = {}  # axes of one stride see what a longer one does
        for extent, stride in zip(other.shape, other.strides, strict=True):
            theirs[stride] = theirs.get(stride, 1) + extent - 1
        left = other.offset - self.offset
        for extent, stride in zip(self.shape, self.strides, strict=True):
            first, left = divmod(left, stride)
            if first < 0 or first + theirs.pop(stride, 1) > extent:
                return False
        return left == 0 and not theirs

    def covers_whole(self, nbytes: int) -> bool:
        """Whether it selects every byte of a storage of that size."""
        return self.nbytes == nbytes and self.byte_bounds() == (0, nbytes) and not self.has_internal_overlap()

    def has_internal_overlap(self) -> bool:
        """Whether two positions share a byte (exact)."""
        return _overlaps_itself(self)

    def overlaps(self, other: View) -> bool:
        """Whether the two share a byte (exact, but for a safe True where the search would take too long)."""
        (low, high), (first, end) = _byte_bounds(self), _byte_bounds(other)
        return first < high and low < end and low < high and first < end and _overlap(self, other)

    def around(self, nbytes: int) -> list[View] | None:
        """Views of all other bytes of a buffer of `nbytes`, where this one is a box in a row-major grid; else None.

        Examples:
            >>> from intaglio.core.dtypes import dtypes
            >>> inner = View(dtypes.uint8, (2, 2), (4, 1), 5)  # of 4 rows of 4 bytes
            >>> [(v.shape, v.offset) for v in inner.around(16)]
            [((1, 4), 0), ((1, 4), 12), ((2, 1), 4), ((2, 1), 7)]
        """
        dtype, shape, strides, offset = self.canonical()
        if not strides or strides[-1] != dtype.itemsize:
            shape, strides = (*shape, 1), (*strides, dtype.itemsize)
        sizes: list[int] = []  # of the grid
        starts: list[int] = []
        whole = nbytes
        for extent, stride in zip(shape, strides, strict=True):
            size, start = whole // stride, offset // stride
            if (sizes and whole % stride) or start + extent > size:
                return None
            sizes.append(size)
            starts.append(start)
            whole, offset = stride, offset % stride
        if offset:
            return None
        found: list[View] = []
        base = 0
        for k, (extent, stride, size, start) in enumerate(zip(shape, strides, sizes, starts, strict=True)):
            for first, end in ((0, start), (start + extent, size)):
                if end > first:
                    box = (*shape[:k], end - first, *sizes[k + 1 :])
                    found.append(View(dtype, box, strides, base + first * stride))
            base += start * stride
        end = sizes[0] * strides[0]
        if end < nbytes:
            found.append(View(dtypes.uint8, (nbytes - end,), (1,), end))
        return found

    @property
    def _is_run(self) -> bool:
        """Whether a canonical view is one unbroken run of bytes."""
        return not self.shape or (len(self.shape) == 1 and self.strides[0] == self.dtype.itemsize)


view_from: Final = cast("Callable[[tuple[DType, Ints, Ints, int]], View]", partial(tuple.__new__, View))  # pyright: ignore[reportUnknownMemberType] -- typeshed's tuple
"""As View(...), without its Python frame: for what every operation does."""


@lru_cache(maxsize=4096)
def _byte_bounds(view: View) -> tuple[int, int]:
    """The first byte of a view and the byte past the last."""
    dtype, shape, strides, low = view
    if 0 in shape:
        return low, low
    high = low + dtype.itemsize
    for extent, stride in zip(shape, strides, strict=True):
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    return low, high


@lru_cache(maxsize=4096)
def _overlaps_itself(view: View) -> bool:
    """Whether two positions of a view share a byte."""
    axes = [(abs(s), n) for n, s in zip(view.shape, view.strides, strict=True) if n > 1]
    if not axes or view.size == 0:
        return False
    axes.sort()
    reach = view.dtype.itemsize
    nested = True
    for stride, extent in axes:
        if stride == 0:
            return True
        if stride < reach:
            nested = False
        reach += (extent - 1) * stride
    if nested:
        return False
    return _collides([(s, n, n) for s, n in axes], view.dtype.itemsize)


@lru_cache(maxsize=4096)
def _overlap(view: View, other: View) -> bool:
    """Whether two views share a byte, neither of which begins past the end of the other."""
    mine, theirs = view.canonical(), other.canonical()
    if mine._is_run and theirs._is_run:
        return True
    terms = [(s, n) for n, s in zip(mine.shape, mine.strides, strict=True)]
    terms += [(s, n) for n, s in zip(theirs.shape, theirs.strides, strict=True)]
    base = mine.offset - theirs.offset
    shift = sum(s * (n - 1) for n, s in zip(theirs.shape, theirs.strides, strict=True))
    # sum of mine - sum of theirs, each term counted from its far end: all coefficients positive.
    start = base - shift
    return sum_hits(terms, -start - view.dtype.itemsize + 1, -start + other.dtype.itemsize - 1)


def _collides(axes: list[tuple[int, int, int]], itemsize: int) -> bool:
    """Whether two different positions are less than an element apart."""
    for k, (stride, extent, _) in enumerate(axes):
        # Position differences: axis k at least 1 (it is the first axis that differs), later axes any sign, earlier 0.
        rest = axes[k + 1 :]
        terms = [(stride, extent - 1)] + [(s, 2 * n - 1) for s, n, _ in rest]
        start = stride - sum(s * (n - 1) for s, n, _ in rest)
        if sum_hits(terms, -start - itemsize + 1, -start + itemsize - 1):
            return True
    return False


@lru_cache(maxsize=4096)
def _permuted(view: View, order: Ints) -> View:
    """A view with its axes in another order."""
    return View(view.dtype, tuple([view.shape[a] for a in order]), tuple([view.strides[a] for a in order]), view.offset)


@lru_cache(maxsize=4096)
def _reshaped(view: View, shape: Ints) -> View | None:
    """A view under another shape; None where the strides do not allow it."""
    if view.size == 0:
        return View.contiguous(view.dtype, shape, view.offset)
    blocks: list[tuple[int, int]] = []  # (extent, stride) of runs of axes that step as one
    for extent, stride in zip(view.shape, view.strides, strict=True):
        if extent == 1:
            continue
        if blocks and blocks[-1][1] == extent * stride:
            blocks[-1] = (blocks[-1][0] * extent, stride)
        else:
            blocks.append((extent, stride))
    strides: list[int] = []
    place, left = len(blocks) - 1, 0
    step = view.dtype.itemsize
    for extent in reversed(shape):
        if extent == 1:
            strides.append(step)
            continue
        if left <= 1:
            if place < 0:
                return None
            left, step = blocks[place]
            place -= 1
        if left % extent:
            return None
        strides.append(step)
        step *= extent
        left //= extent
    if place >= 0 or left > 1:
        return None
    return View(view.dtype, shape, tuple(reversed(strides)), view.offset)
