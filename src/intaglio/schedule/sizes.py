"""Programs that differ in one size: what they share, the size, and the program at the nominal size.

A structure is taken apart into a skeleton without integers, and the integers. Structures of one skeleton whose integers
are all `a + b * n` are one program at many sizes n.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard, cast

from intaglio.core.dtypes import dtypes
from intaglio.core.size import NOMINAL, UnsizedError, at, split
from intaglio.ir.node import Op
from intaglio.ir.view import View
from intaglio.ops.memory import Const
from intaglio.schedule.structure import Key, RepeatForm, WriteForm

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

PAIRS: Final = 256  # pairs of a written and a read view that are compared at each size


Skeleton: TypeAlias = "tuple[Hashable, ...]"  # a key without its integers, as a flat sequence


def take_apart(key: tuple[Any, ...] | Op) -> tuple[Skeleton, list[int]]:
    """The skeleton of a key, or of part of one, and the integers in the order in which they stand in it."""
    atoms: list[Hashable] = []
    numbers: list[int] = []
    stack: list[Any] = [key]
    while stack:
        item = stack.pop()
        if type(item) is int:
            numbers.append(item)
            atoms.append(int)
        elif _is_number(item):
            numbers.append(item.value)
            atoms.append(Const)
        elif isinstance(item, tuple):
            inner = cast("tuple[Any, ...]", item)
            atoms.append((type(inner), len(inner)))
            stack.extend(reversed(inner))
        elif _has_parts(item):
            atoms.append(item.__class__)
            stack.extend(getattr(item, field.name) for field in reversed(dataclasses.fields(item)))
        else:
            atoms.append(item)
    return tuple(atoms), numbers


def put_together(like: Key, numbers: Sequence[int]) -> Key:
    """The key of the skeleton of `like` with other integers."""
    following = iter(numbers)
    made = _filled(like, following)
    assert isinstance(made, Key)
    return made


def _filled(item: Any, following: Iterator[int]) -> Any:
    """A part of a key (they nest a few levels deep, whatever the program) with the integers that follow."""
    if type(item) is int:
        return next(following)
    if _is_number(item):
        return Const(item.of, item.of.to_bits(next(following)))
    if isinstance(item, tuple):
        whole = cast("tuple[Any, ...]", item)
        kind = cast("Callable[..., Any]", whole.__class__)
        inner = [_filled(part, following) for part in whole]
        return kind(*inner) if hasattr(whole, "_fields") else tuple(inner)
    if _has_parts(item):
        return type(item)(*[_filled(getattr(item, f.name), following) for f in dataclasses.fields(item)])
    return item


def _is_number(item: object) -> bool:
    """Whether part of a key is a constant that may count something."""
    return isinstance(item, Const) and item.of is dtypes.int64


def _has_parts(item: object) -> TypeGuard[Any]:
    """Whether part of a key is an op with fields that may count something."""
    return isinstance(item, Op) and dataclasses.is_dataclass(item) and not isinstance(item, Const)


@dataclass(frozen=True, slots=True)
class Fit:
    """Integers as a + b * n: where one stands that tells n, and the a and b of each."""

    place: int
    constants: list[int]
    factors: list[int]

    def size(self, numbers: Sequence[int]) -> int | None:
        """The n of some integers, if they fit."""
        n, rest = divmod(numbers[self.place] - self.constants[self.place], self.factors[self.place])
        fits = all(v == a + b * n for v, a, b in zip(numbers, self.constants, self.factors, strict=True))
        return n if fits and not rest and n >= 2 else None

    @property
    def is_legible(self) -> bool:
        """Whether each a and b can be read off at the nominal size again: a number of the program may be too large."""
        return all(split(v) == (a, b, 0) for v, a, b in zip(self.nominal, self.constants, self.factors, strict=True))

    @property
    def nominal(self) -> list[int]:
        """The integers at the nominal size."""
        return [a + b * NOMINAL for a, b in zip(self.constants, self.factors, strict=True)]


def fits(samples: Sequence[Sequence[int]]) -> Iterator[Fit]:
    """How the integers of one skeleton may follow from a size: one of them is it, or as many steps of the samples.

    The last of the samples must fit with two others.
    """
    *others, last = samples
    for first, second in itertools.combinations(reversed(others), 2):
        steps = [b - a for a, b in zip(first, last, strict=True)]
        changing = [k for k, step in enumerate(steps) if step]
        if not changing:
            continue
        place = min(changing, key=lambda k: (abs(steps[k]), last[k]))
        for factor in dict.fromkeys((1, math.gcd(steps[place], second[place] - last[place]))):
            if any(step * factor % steps[place] for step in steps):
                continue
            factors = [step * factor // steps[place] for step in steps]
            n = last[place] // factor
            found = Fit(place, [v - b * n for v, b in zip(last, factors, strict=True)], factors)
            if found.is_legible and all(found.size(numbers) is not None for numbers in (first, second, last)):
                yield found


def line(first: tuple[int, Sequence[int]], second: tuple[int, Sequence[int]]) -> Fit | None:
    """How integers follow from a size, of which they are known at two; None where they follow from none."""
    (n, before), (m, after) = first, second
    steps = [b - a for a, b in zip(before, after, strict=True)]
    if n == m or any(step % (m - n) for step in steps):
        return None
    factors = [step // (m - n) for step in steps]
    place = next((place for place, factor in enumerate(factors) if factor), None)
    return None if place is None else Fit(place, [v - b * n for v, b in zip(before, factors, strict=True)], factors)


def is_uniform(key: Key) -> bool:
    """Whether a key at the nominal size means the same at all sizes: extents grow with it, elements stay aligned."""
    for view in _views(key):
        places = [split(place) for place in (view.offset, *view.strides)]
        if any(parts is None or any(part % view.dtype.itemsize for part in parts[1:]) for parts in places):
            return False
        if any(parts is None or parts[1] < 0 or parts[2] for parts in map(split, view.shape)):
            return False
    return True


def apart(key: Key) -> list[bool]:
    """For each pair of a write and a read of one buffer: whether they touch no common byte.

    Raises: UnsizedError if there are too many pairs.
    """
    written: dict[int, list[View]] = {}
    for form in key.statements:
        for write in (form,) if isinstance(form, WriteForm) else (w for arm in form.arms for w in arm):
            written.setdefault(write.ref, []).append(write.view)
    reads = [(ref, view) for form in key.values if (read := _read(form)) for ref, view in (read,) if ref in written]
    if sum(len(written[ref]) for ref, _ in reads) > PAIRS:
        raise UnsizedError("too many pairs of views")
    return [not target.overlaps(view) for ref, view in reads for target in written[ref]]


def view_at(view: View, n: int) -> View:
    """A view at the nominal size, at size n."""
    dtype, shape, strides, offset = view
    return View(dtype, tuple(at(e, n) for e in shape), tuple(at(s, n) for s in strides), at(offset, n))


def _read(form: tuple[Hashable, ...]) -> tuple[int, View] | None:
    """The buffer and view of a value that is read."""
    match form:
        case ("read", int(ref), View() as view, _):
            return ref, view
        case _:
            return None


def _views(key: Key) -> Iterator[View]:
    """Every view of a structure."""
    for value in key.values:
        for part in value:
            view = part if isinstance(part, View) else getattr(part, "view", None)
            if isinstance(view, View):
                yield view
    for form in key.statements:
        if isinstance(form, RepeatForm):
            yield from (w.view for arm in form.arms for w in arm)
        else:
            yield form.view
    for output in key.outputs:
        yield output.view
