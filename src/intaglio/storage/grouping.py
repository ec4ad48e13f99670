"""Entries of a slice as groups that are rolled, and those that are not, in the order in which they are made."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from intaglio.ops.memory import Read
from intaglio.storage import reroll
from intaglio.storage.aside import set_aside
from intaglio.storage.batch import supports
from intaglio.storage.instances import Instances, TooDeepError, of_one_form, reads_of, uses, version
from intaglio.storage.journal import Elements, Entry, GatherEntry, first_of
from intaglio.storage.readers import outdated, overwritten, renew, target
from intaglio.storage.scalars import cast_pattern
from intaglio.storage.skeleton import Pattern, of_node
from intaglio.storage.slice import computed
from intaglio.storage.storage import Storage
from intaglio.storage.tape import Tapes
from intaglio.storage.temporaries import Versions, made_in_turns, seen_through, still_read, versions
from intaglio.storage.writes import Gathering, Item, Kind, is_on_grid

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.storage.instances import Version
    from intaglio.storage.journal import AnyEntry
    from intaglio.storage.readers import Numbered
    from intaglio.storage.slice import Slice


class Grouping:
    """How the entries of one slice are grouped.

    Args:
        part: The slice; its `own` and `lost` are found.
        homes: The storages that have bytes so far: whoever makes the groups adds to them.
    """

    def __init__(self, part: Slice, homes: Container[Storage]) -> None:
        self.slice: Final = part
        self.tapes: Final = Tapes()
        self.temporaries: Final[dict[Storage, Versions]] = {}  # which are computed nowhere but in what reads them
        self.instances: Final[set[Storage]] = set()  # which are others' bytes for as long as they live
        self.private: Final[set[Storage]] = set()  # of copies and instances, that nothing needs afterwards
        self._homes: Final = homes
        self._kinds: Final[dict[tuple[object, ...], Kind]] = {}
        self._newest: Final[dict[Node, int]] = {}  # the last of the writes that values of versions 0 see
        self._rollable: Final[dict[int, tuple[Entry | Item, Item]]] = {}  # by number
        self._gaps: Final[dict[int, int]] = {}  # for numbers of writes, how many of those before them are taken

    def steps(self, entries: list[tuple[Storage, AnyEntry]]) -> Iterator[reroll.Group | tuple[Storage, AnyEntry]]:
        """Entries as groups that are rolled, and those that are not, in the order in which they are made.

        Each is made, and the storages that it touches have a home, before the next is asked for.
        """
        known, observed = self._rolled(entries)
        gathering = Gathering()
        last: dict[Storage, int] = {}
        prior: dict[Storage, int] = {}
        first = 0  # the number of the first write that waits

        def emit() -> Iterator[reroll.Group]:
            yield from reroll.roll(gathering.take(), prior)
            prior.update(last)
            last.clear()

        for storage, entry in self._pieces(known, observed):
            if last and any(self._begins(source, first, last) for source in self._used(storage, entry)):
                yield from emit()  # version 0 is computed when it is first used: after all that it reads
            seen = observed.get(storage)
            before = last.get(storage)
            if seen and before is not None:
                place = bisect_left(seen, before)
                if place < len(seen) and seen[place] < first_of(entry):
                    yield from emit()
            if self._gather(storage, entry, gathering):
                first = first if last else first_of(entry)
                last[storage] = entry.sequence
            else:
                yield from emit()
                assert not isinstance(entry, Item)  # they are gathered
                yield storage, entry
                prior[storage] = entry.sequence
        yield from emit()

    @property
    def done(self) -> Iterable[Storage]:
        """The storages that have no more use once the writes are made, though they never had bytes."""
        return itertools.chain((storage for storage in self.temporaries if storage.log), self.instances)

    def _rolled(
        self, entries: list[tuple[Storage, AnyEntry]]
    ) -> tuple[list[tuple[Storage, AnyEntry | Item]], dict[Storage, list[int]]]:
        """The entries, those that may be rolled known and with stamps as new as they may be; and what is observed.

        Elements that read older moments, or write what is read so, are taken apart.
        """
        self._see_through([(storage, entry) for storage, entry in entries if isinstance(entry, Entry)])
        for storage, entry in entries:
            if isinstance(entry, Entry) and (found := self._item(storage, entry)) is not None:
                self._rollable[entry.sequence] = found
        self._see_no_more([(storage, entry) for storage, entry in entries if isinstance(entry, Entry)])
        shared = self._share([pair for pair in entries if pair[0] not in self.temporaries])
        writes = [self._numbered(storage, entry) for storage, entry in shared]
        older = outdated(writes)
        taken: list[tuple[Storage, AnyEntry | Item]] = []
        for storage, entry in shared:
            if older and isinstance(entry, Elements) and not older.isdisjoint({storage, *entry.sources()}):
                taken.extend((storage, item) for item in self._items(storage, entry))
            else:
                taken.append((storage, entry))
        if older:
            taken.sort(key=lambda pair: first_of(pair[1]))
            writes = [self._numbered(storage, entry) for storage, entry in taken]
        found = renew(writes, older)
        copies = set_aside(writes, older, self.kind, self._gaps)
        if copies:
            taken = self._with_copies(taken, copies)
            writes = [self._numbered(storage, entry) for storage, entry in taken]
            found = renew(writes, older)
        alone = [entry for _, entry in taken if isinstance(entry, Entry) and entry.sequence not in self._rollable]
        return taken, self._observed(alone, writes, older, found)

    def _see_through(self, entries: list[tuple[Storage, Entry]]) -> None:
        """Find the temporaries of turns."""
        candidates: dict[Storage, Versions] = {}
        for storage in self.slice.bases - set(self.slice.wanted):
            base = storage.base
            if base is None or storage.ref is not None or storage.readers:
                continue
            if not storage.log or storage in self.slice.private:
                found = versions(base, storage, self.slice.log(storage))
                if found is not None:
                    candidates[storage] = found
        if candidates:
            for storage in made_in_turns(candidates, [entry.value for _, entry in entries]):
                self.temporaries[storage] = candidates[storage]

    def _see_no_more(self, entries: list[tuple[Storage, Entry]]) -> None:
        """Leave out the temporaries that something reads as they are."""
        if not self.temporaries:
            return
        entries = [(storage, entry) for storage, entry in entries if storage not in self.temporaries]
        rolled = self._rollable
        values = [node for _, e in entries if e.sequence not in rolled for node in (e.value, *e.indices)]
        plain = [rolled[entry.sequence][0] for _, entry in entries if entry.sequence in rolled]
        values += [entry.value for entry in plain if isinstance(entry, Entry)]
        values += self.slice.nodes
        values += [s.base for s in self.slice.bases - self.temporaries.keys() if s.base is not None]
        for storage in still_read(values, self.temporaries):
            del self.temporaries[storage]

    def _share(self, entries: list[tuple[Storage, AnyEntry]]) -> Sequence[tuple[Storage, AnyEntry | Item]]:
        """The entries, those of storages that turns make anew as writes of what these storages share."""
        known = self._versions(entries)
        if not known:
            return entries
        moved: list[Item] = []
        rest: list[tuple[Storage, AnyEntry | Item]] = []
        for storage, entry in entries:
            item = self._rollable[entry.sequence][1] if entry.sequence in self._rollable else None
            if isinstance(entry, Elements) and (storage in known or not known.keys().isdisjoint(entry.sources())):
                moved += self._items(storage, entry)
            elif item is not None and uses(item, known):
                moved.append(item)
            else:
                rest.append((storage, entry))
        moved.sort(key=first_of)
        instances = Instances(known, self.kind, self._gaps)
        try:
            made = instances.rewrite(moved)
        except TooDeepError:
            self._gaps.clear()
            return entries
        self.instances.update(known)
        self.private.update(instances.shared)
        self._rollable.update((item.sequence, (item, item)) for item in made)
        return sorted([*rest, *((item.storage, item) for item in made)], key=lambda pair: first_of(pair[1]))

    def _versions(self, entries: list[tuple[Storage, AnyEntry]]) -> dict[Storage, Version]:
        """The storages that turns make anew, with their versions 0: all that reads or writes them can be rolled."""
        candidates = self.slice.private - self.temporaries.keys()
        found: dict[Storage, Version] = {}
        for storage in candidates:
            base = seen_through(storage.base, self.temporaries) if storage.base is not None else None
            made = version(storage, base)
            if made is not None and supports(made[1]) and is_on_grid(*made):
                found[storage] = made
        turns = len(found)
        if turns < 2:
            return {}
        values: list[Node] = [*self.slice.nodes]
        for storage, entry in entries:
            item = self._rollable[entry.sequence][1] if entry.sequence in self._rollable else None
            if isinstance(entry, Elements):
                continue
            if item is None:
                found.pop(storage, None)
                if isinstance(entry, Entry):
                    values += (entry.value, *entry.indices)
                elif isinstance(entry, GatherEntry):
                    values += entry.reads
            elif reroll.is_wide(item.kind, turns):
                found.pop(storage, None)
        found = {storage: made for storage, made in found.items() if not reroll.is_much(made[1], turns)}
        kept = of_one_form(found)
        others = self.slice.bases - kept - self.temporaries.keys()
        values += [storage.base for storage in others if storage.base is not None]
        blocked = {
            node.op.storage
            for node in computed(values)
            if isinstance(node.op, Read) and isinstance(node.op.storage, Storage)
        }
        work = list(kept & blocked)
        while work:
            storage = work.pop()
            if storage in kept:
                kept.remove(storage)
                work.extend(source for source in reads_of(found[storage][1]) if source in kept)
        return {storage: found[storage] for storage in self.slice.stamps if storage in kept}

    def _with_copies(
        self, entries: list[tuple[Storage, AnyEntry | Item]], copies: list[Item]
    ) -> list[tuple[Storage, AnyEntry | Item]]:
        """Entries with the writes that copy what some of them read and others overwrite before."""
        for storage in {copy.storage for copy in copies}:
            self.private.add(storage)
        self._rollable.update((copy.sequence, (copy, copy)) for copy in copies)
        self._rollable.update(
            (n, (item, item)) for n, (_, item) in list(self._rollable.items()) if _reads_any(item, self.private)
        )
        return sorted([*entries, *((copy.storage, copy) for copy in copies)], key=lambda pair: first_of(pair[1]))

    def _numbered(self, storage: Storage, entry: AnyEntry | Item) -> Numbered:
        """An entry, its number, and what it is to those who ask which bytes are read and written."""
        known = self._rollable.get(entry.sequence)
        if known is not None:
            return storage, entry.sequence, known[1]
        assert not isinstance(entry, Item)
        return storage, entry.sequence, target(entry)

    def _items(self, storage: Storage, entry: Elements) -> list[Item]:
        """Elements one by one."""
        gathering = Gathering()
        self._gather(storage, entry, gathering)
        items = gathering.take().items()
        self._rollable.update((item.sequence, (item, item)) for item in items)
        return items

    def _pieces(
        self, entries: list[tuple[Storage, AnyEntry | Item]], observed: dict[Storage, list[int]]
    ) -> list[tuple[Storage, AnyEntry | Item]]:
        """The entries in program order, with elements cut wherever the statements so far may have to be made.

        That is at a write that is not rolled, between writes that a living read saw, and before the first use of a
        storage whose version 0 is still to be computed.
        """
        stamps: set[int] = set()
        before: dict[Storage, int] = {}
        pieces: list[tuple[Storage, AnyEntry | Item]] = []
        for storage, entry in entries:
            seen = observed.get(storage, ())
            own = entry.cut(seen) if isinstance(entry, Elements) else [entry]
            pieces.extend((storage, piece) for piece in own)
            for piece in own:
                first = first_of(piece)
                newest = before.get(storage)
                place = bisect_left(seen, newest) if newest is not None else len(seen)
                if (newest is None and storage.base is not None) or (place < len(seen) and seen[place] < first):
                    stamps.add(first - 1)
                before[storage] = piece.sequence
            if isinstance(entry, Elements):
                stamps.update(_first_uses(entry))
            if not isinstance(entry, Elements) and entry.sequence not in self._rollable:
                stamps.add(entry.sequence)
        ordered = sorted(stamps)
        cut = [
            (storage, piece)
            for storage, entry in pieces
            for piece in (entry.cut(ordered) if isinstance(entry, Elements) else (entry,))
        ]
        cut.sort(key=lambda pair: first_of(pair[1]))
        return cut

    def _used(self, storage: Storage, entry: AnyEntry | Item) -> Iterable[Storage]:
        """The storages that a write uses."""
        if isinstance(entry, Elements):
            return (storage, *entry.sources())
        rollable = self._rollable.get(entry.sequence)
        if rollable is None:
            return (storage,)
        _, item = rollable
        return (storage, *(step.storage for step, _ in item.kind.reads))

    def _begins(self, storage: Storage, first: int, written: Container[Storage]) -> bool:
        """Whether version 0 of a storage is still to be computed, from what a write of this number or a later one made.

        Of those that wait, a storage that is written has had its version 0 looked at.
        """
        if storage.base is None or storage in self._homes or storage in written:
            return False
        return _newest(storage.base, self._newest) >= first

    def _observed(
        self, alone: list[Entry], writes: list[Numbered], older: set[Storage], found: dict[Storage, set[int]]
    ) -> dict[Storage, list[int]]:
        """The moments of each storage that some read needs to be the end of a group.

        They are those of reads whose bytes are overwritten before they are used, and of reads in versions 0.
        """
        reads: dict[Storage, list[Node]] = {}
        values = [value for entry in alone for value in (entry.value, *entry.indices)]
        for node in computed([*values, *self.slice.nodes]):
            match node.op:
                case Read(storage=Storage() as storage) if node in self.slice.own:
                    reads.setdefault(storage, []).append(node)
                case _:
                    pass
        again = [
            node
            for storage, own in reads.items()
            for node in overwritten(storage, self.slice.stamps.get(storage, -1), own)
        ]
        founding = self.slice.founding(self.temporaries.keys() | self.instances)
        taped = self.tapes.want(self.slice.lost.keys() - set(founding), writes, older)
        for node in itertools.chain(self.slice.lost.keys() - taped, founding, again):
            match node.op:
                case Read(storage=Storage() as storage, stamp=seen) if storage.log and first_of(storage.log[0]) <= seen:
                    found.setdefault(storage, set()).add(seen)
                case _:
                    pass
        return {storage: sorted(stamps) for storage, stamps in found.items()}

    def _gather(self, storage: Storage, entry: AnyEntry | Item, gathering: Gathering) -> bool:
        """Put an entry among the writes that may be rolled; gives False for one that may not."""
        if isinstance(entry, Elements):
            for skeleton, sequences, offsets, columns in entry.by_skeleton():
                pattern = cast_pattern(skeleton.pattern(), entry.dtype)
                gathering.extend(self.kind(storage, entry.dtype, (), (), pattern), sequences, offsets, columns)
            return True
        known = self._rollable.get(entry.sequence)
        if known is not None:
            gathering.add(known[1])
        return known is not None

    def _item(self, storage: Storage, entry: Entry) -> tuple[Entry, Item] | None:
        """A node's write in the form in which it can be rolled, and as a write of what temporaries are; or None."""
        if entry.indices or entry.combine != "set":
            return None
        value = seen_through(entry.value, self.temporaries) if self.temporaries else entry.value
        found = of_node(value)
        if found is None or not supports(found[0]) or not is_on_grid(entry.view, *found):
            return None
        view = entry.view
        kind = self.kind(storage, view.dtype, view.shape, view.strides, found[0])
        plain = entry if value is entry.value else replace(entry, value=value)
        return plain, Item(entry.sequence, kind, view.offset, found[1])

    def kind(
        self, storage: Storage, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], pattern: Pattern
    ) -> Kind:
        """The one object for these common properties."""
        key = (storage, dtype, shape, strides, pattern)
        kind = self._kinds.get(key)
        if kind is None:
            kind = Kind(storage, dtype, shape, strides, pattern, tuple(pattern.reads))
            self._kinds[key] = kind
        return kind

    def plain(self, item: Item) -> Entry | Item:
        """A write of a group as the entry that it was made of, if it was made of one."""
        return self._rollable.get(item.sequence, (item,))[0]


def _newest(root: Node, found: dict[Node, int]) -> int:
    """The number of the last write that a value sees, through versions 0 of storages as well.

    Args:
        found: What is known of values, to which what is found is added.
    """
    stack = [root]
    while stack:
        node = stack[-1]
        newest, below = 0, node.src
        if node.place is not None:
            below = ()
        elif isinstance(node.op, Read) and isinstance(node.op.storage, Storage):
            newest, base = node.op.stamp, node.op.storage.base
            below = () if base is None else (base,)
        missing = [source for source in below if source not in found]
        stack.extend(missing)
        if not missing:
            found[stack.pop()] = max([newest, *(found[source] for source in below)])
    return found[root]


def _first_uses(entry: Elements) -> list[int]:
    """The stamps before the first uses of storages whose version 0 is still to be computed."""
    if not any(source.base is not None for source in entry.sources()):
        return []
    found: dict[Storage, int] = {}
    for skeleton, sequences, _, _ in entry.by_skeleton():
        for source in skeleton.storages:
            if source.base is not None:
                found[source] = min(sequences[0], found.get(source, sequences[0]))
    return [sequence - 1 for sequence in found.values()]


def _reads_any(item: Item, storages: set[Storage]) -> bool:
    """Whether a write reads one of some storages."""
    return any(step.storage in storages for step, _ in item.kind.reads)
