"""Writes that may be rolled, by columns: whole-array analysis needs no object for each write."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from intaglio.ir.view import View, view_from
from intaglio.storage.columns import integers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from intaglio.core.dtypes import DType
    from intaglio.storage.columns import Integers
    from intaglio.storage.skeleton import Hole, Pattern, ReadStep
    from intaglio.storage.storage import Storage

    Column: TypeAlias = list[Hole] | Integers


@dataclass(eq=False, frozen=True, slots=True)
class Kind:
    """What writes must share to be rolled together; interned by its maker, so compared by identity."""

    storage: Storage
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pattern: Pattern
    reads: tuple[tuple[ReadStep, int], ...]  # the reads of the pattern, each with its first hole

    @property
    def region(self) -> tuple[int, int]:
        """The first and past-the-last byte of a target, relative to its offset."""
        return bytes_of(self.dtype, self.shape, self.strides)

    @property
    def size(self) -> int:
        """How many elements one write has."""
        return prod(self.shape)


def bytes_of(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """The first and past-the-last byte of a region, relative to its offset."""
    return view_from((dtype, shape, strides, 0)).byte_bounds()


def is_on_grid(view: View, pattern: Pattern, holes: tuple[Hole, ...]) -> bool:
    """Whether all elements that a write touches lie at multiples of their size (those that do not are not rolled)."""
    if any(place % view.dtype.itemsize for place in (view.offset, *view.strides)):
        return False
    return not any(
        int(holes[hole]) % step.dtype.itemsize or any(s % step.dtype.itemsize for s in step.strides)
        for step, hole in pattern.reads
    )


def offsets_of(dtype: DType, places: Collection[int]) -> Integers:
    """The byte offsets of places that are counted in elements."""
    return np.fromiter(places, np.int64, len(places)) * dtype.itemsize


@dataclass(slots=True)
class Item:
    """One write that may be rolled: what it has in common with others (`kind`), and its numbers and positions."""

    sequence: int
    kind: Kind
    offset: int
    holes: tuple[Hole, ...]
    renewed: tuple[Hole, ...] | None = None  # the holes as they were recorded, where a stamp is another by now

    @property
    def recorded(self) -> tuple[Hole, ...]:
        """The holes as they were recorded."""
        return self.renewed or self.holes

    @property
    def storage(self) -> Storage:
        """The storage that is written."""
        return self.kind.storage

    @property
    def view(self) -> View:
        """The view that is written."""
        return View(self.kind.dtype, self.kind.shape, self.kind.strides, self.offset)


@dataclass(slots=True)
class Run:
    """All writes of one kind in a group, in order: their places in the group and in the program, offsets and holes.

    The columns of a read's two holes are arrays; those of numbers are lists, whose numbers may be of any class.
    """

    kind: Kind
    numbers: Integers  # places in the group
    sequences: Integers  # numbers among all writes of the process
    offsets: Integers  # of the targets, in bytes
    columns: list[Column]

    def column(self, hole: int) -> Column:
        """The values of one hole, in order."""
        return self.columns[hole]

    def whole(self, hole: int) -> Integers:
        """The values of one hole of a read."""
        column = self.columns[hole]
        assert isinstance(column, np.ndarray)
        return column

    def keep(self, places: slice | Integers) -> Run:
        """The run with only the writes at these places of it."""
        columns: list[Column] = []
        for column in self.columns:
            if isinstance(column, np.ndarray):
                columns.append(column[places])
            else:
                columns.append(column[places] if isinstance(places, slice) else [column[p] for p in places.tolist()])
        return Run(self.kind, self.numbers[places], self.sequences[places], self.offsets[places], columns)


@dataclass(slots=True)
class Writes:
    """Writes in program order: the number of each among all writes of the process, and the rest by kind."""

    sequences: Integers
    runs: list[Run]  # in the order in which their kinds first appear; a run's `numbers` are places in `sequences`

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def kinds(self) -> Integers:
        """For each write, which of the runs it is in."""
        found = np.zeros(len(self), np.int64)
        for k, run in enumerate(self.runs[1:], 1):
            found[run.numbers] = k
        return found

    @property
    def ends(self) -> dict[Storage, int]:
        """The number of the last write of each storage."""
        found: dict[Storage, int] = {}
        for run in self.runs:
            last = int(run.sequences[-1])
            found[run.kind.storage] = max(last, found.get(run.kind.storage, last))
        return found

    @property
    def starts(self) -> dict[Storage, int]:
        """The number of the first write of each storage."""
        return {run.kind.storage: int(run.sequences[0]) for run in reversed(self.runs)}  # by first appearance

    def of(self, runs: list[Run]) -> Writes:
        """The writes of some runs alone."""
        if len(runs) == len(self.runs):
            return self
        places = np.sort(np.concatenate([run.numbers for run in runs]))
        own = [replace(run, numbers=np.searchsorted(places, run.numbers)) for run in runs]
        return Writes(self.sequences[places], own)

    def cut(self, bounds: Sequence[int]) -> Iterator[Writes]:
        """The stretches from each bound to the next."""
        if len(bounds) == 2:
            yield self
            return
        kinds = self.kinds
        taken = [0] * len(self.runs)
        for start, stop in itertools.pairwise(bounds):
            found, first, counts = np.unique(kinds[start:stop], return_index=True, return_counts=True)
            runs: list[Run] = []
            for place in np.argsort(first).tolist():
                k, count = int(found[place]), int(counts[place])
                run = self.runs[k].keep(slice(taken[k], taken[k] + count))
                taken[k] += count
                runs.append(replace(run, numbers=run.numbers - start))
            yield Writes(self.sequences[start:stop], runs)

    def between(self, start: int, stop: int) -> Writes:
        """The writes from one place to another."""
        runs: list[Run] = []
        for run in self.runs:
            first, end = np.searchsorted(run.numbers, (start, stop)).tolist()
            if first < end:
                own = run.keep(slice(first, end))
                runs.append(replace(own, numbers=own.numbers - start))
        runs.sort(key=lambda run: run.numbers[0])
        return Writes(self.sequences[start:stop], runs)

    def items(self) -> list[Item]:
        """The writes one by one."""
        found: list[Item] = []
        for run in self.runs:
            columns = [c.tolist() if isinstance(c, np.ndarray) else c for c in run.columns]
            rows = zip(*columns, strict=True) if columns else itertools.repeat(())
            found.extend(
                Item(sequence, run.kind, offset, holes)
                for sequence, offset, holes in zip(run.sequences.tolist(), run.offsets.tolist(), rows, strict=False)
            )
        found.sort(key=lambda item: item.sequence)
        return found


@dataclass(slots=True)
class _Draft:
    """The writes of one kind while they are gathered."""

    sequences: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    columns: list[list[Hole]] = field(default_factory=list)


class Gathering:
    """Writes on their way into columns."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._drafts: dict[Kind, _Draft] = {}
        for item in items:
            self.add(item)

    def add(self, item: Item) -> None:
        """One more write."""
        self.extend(item.kind, [item.sequence], [item.offset], [[hole] for hole in item.holes])

    def extend(self, kind: Kind, sequences: list[int], offsets: list[int], columns: list[list[Hole]]) -> None:
        """More writes of one kind."""
        draft = self._drafts.get(kind)
        if draft is None:
            draft = self._drafts[kind] = _Draft(columns=[[] for _ in columns])
        draft.sequences += sequences
        draft.offsets += offsets
        for column, values in zip(draft.columns, columns, strict=True):
            column += values

    def take(self) -> Writes:
        """All of them, in program order; none are left."""
        runs = [_run(kind, draft) for kind, draft in self._drafts.items()]
        runs.sort(key=lambda run: run.sequences[0])
        self._drafts = {}
        if len(runs) == 1:
            sequences = runs[0].sequences
            return Writes(sequences, [replace(runs[0], numbers=np.arange(len(sequences)))])
        sequences = np.sort(np.concatenate([run.sequences for run in runs])) if runs else np.zeros(0, np.int64)
        return Writes(sequences, [replace(run, numbers=np.searchsorted(sequences, run.sequences)) for run in runs])


def _run(kind: Kind, draft: _Draft) -> Run:
    """A gathered kind as a run whose places in a group are not known yet."""
    columns: list[Column] = list(draft.columns)
    for _, hole in kind.reads:
        columns[hole] = _whole(draft.columns[hole])
        columns[hole + 1] = _whole(draft.columns[hole + 1])
    sequences = _whole(draft.sequences)
    run = Run(kind, sequences, sequences, _whole(draft.offsets), columns)
    in_order = bool((np.diff(sequences) > 0).all())  # but for skeletons that differ in nothing that counts
    return run if in_order else run.keep(np.argsort(sequences))


def _whole(values: Sequence[Hole]) -> Integers:
    """Integers that fit 64 bits."""
    found = integers(values)
    assert found is not None
    return found
