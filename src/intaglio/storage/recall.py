"""Flushes with writes pending that ran before: found again by the key of their history, and no program is made."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

from intaglio.core.config import settings_now
from intaglio.engine import realize as engine
from intaglio.ir.view import View
from intaglio.ops.memory import BufferRef
from intaglio.storage.families import Families
from intaglio.storage.scalars import register_scalars
from intaglio.storage.slice import whole_home
from intaglio.storage.standing import plans
from intaglio.storage.written import Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.core.config import Config
    from intaglio.engine.plan import Plan
    from intaglio.ir.node import Node
    from intaglio.schedule.program import Program
    from intaglio.storage.families import Member
    from intaglio.storage.storage import Storage


KEYS: Final = 1 << 22  # bytes of keys of histories of which it is known which reads are overwritten


class Name(NamedTuple):
    """What a flush is known by.

    Attributes:
        key: Of its history.
        lost: The numbers of the reads that it keeps since somebody may still ask for them.
    """

    key: bytes
    lost: list[int]

    @classmethod
    def of(cls, base: bytes, lost: list[int]) -> Name:
        """That of a history with some key, and of reads that are kept."""
        return cls(base + array("q", lost).tobytes(), lost)


class Made(NamedTuple):
    """The buffers that a flush makes: of storages without bytes, of wanted nodes, of reads that are kept."""

    homes: list[BufferRef]
    outputs: list[BufferRef]
    saved: list[BufferRef]


class Recalled:
    """A flush that ran before in this form, ready to run.

    Attributes:
        plan: What it runs.
        outputs: The buffer of each wanted node.
    """

    def __init__(self, history: _History, made: Made, plan: Plan) -> None:
        self.plan: Final = plan
        fresh = iter(made.outputs)
        self.outputs: Final = [whole_home(node) or next(fresh) for node in history.nodes]
        self._history: Final = history
        self._made: Final = made

    def commit(self) -> None:
        """Retire the entries, which have run."""
        walk, renamed = self._history.walk, self.plan.renamed
        for storage, ref in zip(walk.homeless, self._made.homes, strict=True):
            storage.ref = renamed.get(ref, ref)
            storage.base = None
        for storage, stamp in walk.stamps():
            ref = storage.ref
            if ref is not None:
                storage.ref = renamed.get(ref, ref)
            storage.origin = None
            storage.retire(stamp)
        for node, ref in zip(self._history.kept, self._made.saved, strict=True):
            node.place = renamed.get(ref, ref), View.contiguous(node.dtype, node.shape)


def recall(
    storages: Sequence[Storage], nodes: Sequence[Node], settings: Config, given_up: Sequence[Node]
) -> Recalled | Name | None:
    """A flush that ran before in this form; or what it is to be known by; None where that is not known.

    Args:
        given_up: The nodes of which nobody will ask what they were computed from.
    """
    history = _History.of(storages, nodes)
    if history is None:
        return None
    register_scalars()
    if history.walk.is_read_elsewhere():
        return None
    base = history.key()
    history.keep(history.walk.lost(_overwritten.of(history.walk, base), given_up))
    name = Name.of(base, history.lost)
    device = history.device
    homes = [BufferRef(storage.nbytes, device) for storage in history.walk.homeless]
    outputs, saved = ([BufferRef(n.nbytes, device) for n in of] for of in (history.roots, history.kept))
    made = Made(homes, outputs, saved)
    program = name.key, *history.buffers(made), history.walk.literals, settings
    plan = plans.recall(*program)
    if plan is None and _is_of_family(history, name):
        plan = plans.recall(*program)
    return name if plan is None else Recalled(history, made, plan)


def _is_of_family(history: _History, name: Name) -> bool:
    """Whether a history differs in a size alone from one that ran; if so, it is known by its name from now on."""
    member = history.member()
    found = families.find(member) if member is not None else None
    if member is None or found is None:
        return False
    plans.adopt(name.key, *found, history.rests(member), history.walk.literals)
    return True


def learn(
    name: Name,
    storages: Sequence[Storage],
    nodes: Sequence[Node],
    program: Program,
    homes: dict[Storage, BufferRef],
    saved: dict[Node, BufferRef],
) -> Plan | None:
    """The plan of a program that was made of a flush, by whose name it is known from now on.

    None where the flush was not made as its history tells: where writes were left out that nobody would have seen, or
    other reads were kept.

    Args:
        homes: The buffers of storages that had none.
        saved: Those of reads that are kept.
    """
    history = _History.of(storages, nodes)
    if history is None or Name.of(history.key(), name.lost) != name:
        return None
    history.keep(name.lost)
    if {*saved} != {*history.kept}:
        return None
    homeless = history.walk.homeless
    if {*homeless} != homes.keys():
        return None
    lost = {*saved.values()}
    outputs = [output.ref for output in program.outputs if output.ref not in lost]
    made = Made([homes[storage] for storage in homeless], outputs, [saved[node] for node in history.kept])
    known = name.key, *history.buffers(made), history.walk.literals
    plan = plans.recall(*known, settings_now()) or plans.learn(*known, program)
    member = history.member()
    if member is not None and plans.starts_at(name.key, history.rests(member)):
        families.learn(member, name.key, plan.form)
    return plan


class _Overwritten:
    """Which reads of histories are overwritten, by their keys."""

    def __init__(self) -> None:
        self._known: Final[dict[bytes, list[int]]] = {}
        self._size: int = 0  # of the keys

    def of(self, walk: Written, key: bytes) -> list[int]:
        """The numbers of the reads of a walk whose bytes are overwritten, looked for once for each key."""
        if not walk.is_read_before:
            return []
        found = self._known.get(key)
        if found is None:
            self._size += len(key)
            if self._size > KEYS:
                self._known.clear()
                self._size = len(key)
            found = self._known[key] = walk.overwritten()
        return found


families: Final = Families()
_overwritten: Final = _Overwritten()


class _History:
    """What some storages and nodes are computed from, writes that are pending among it.

    Attributes:
        walk: The walk through it.
        nodes: The wanted nodes.
        roots: Those of them that are to be computed.
        device: Where all of it is.
        lost: The numbers of the reads that are kept, once that is known.
        kept: They.
    """

    def __init__(self, walk: Written, nodes: Sequence[Node], roots: list[Node], device: str) -> None:
        self.walk: Final = walk
        self.nodes: Final = nodes
        self.roots: Final = roots
        self.device: Final = device
        self.lost: list[int] = []
        self.kept: list[Node] = []

    @classmethod
    def of(cls, storages: Sequence[Storage], nodes: Sequence[Node]) -> _History | None:
        """The history of storages and nodes, if it is known in full, and all on the device of values that name none."""
        walk = Written()
        roots = [node for node in nodes if whole_home(node) is None]
        device = engine.default_device()
        if not walk.follow_all(storages, roots) or not walk.storages or walk.devices != {device}:
            return None
        return cls(walk, nodes, roots, device)

    def key(self) -> bytes:
        """What it has in common with others that are made into one program, if the same reads are kept."""
        return self.walk.key(self.roots, self.device)

    def keep(self, lost: list[int]) -> None:
        """Note which reads are kept, by their numbers."""
        self.lost = lost
        if lost:
            order = [*self.walk.order]
            self.kept = [order[number] for number in lost]

    def member(self) -> Member | None:
        """It taken apart, the key once made, if that is not too large."""
        return self.walk.member((*self.roots, *self.kept), self.lost)

    def rests(self, member: Member) -> list[int]:
        """For each of its buffers, how far behind its start the structure sees it."""
        walk = self.walk
        before, after = len(walk.refs) + len(walk.parts), len(walk.homeless) + len(self.roots) + len(self.kept)
        return [*[0] * before, *member.rests, *[0] * after]

    def buffers(self, made: Made) -> tuple[list[BufferRef], list[int]]:
        """Its buffers, in a fixed order, and the byte from which the structure sees each.

        Args:
            made: Those that are made.
        """
        walk = self.walk
        whole = [*walk.homes, *made.homes, *made.outputs, *made.saved]
        return [*walk.refs, *walk.parts, *whole], [*walk.starts, *[0] * len(whole)]
