"""Transposition in registers: as many vectors as they have lanes, turned so that each holds one lane of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intaglio.ir.node import Node, make, walk
from intaglio.ops.loop import Interleave
from intaglio.ops.memory import Load

if TYPE_CHECKING:
    from intaglio.lower.emit import Emitter


def transposed(emitter: Emitter, level: int, vectors: list[Node]) -> list[Node]:
    """The k-th lanes of all vectors, for each k: halves of the list interleaved as often as it can be halved."""
    half = len(vectors) // 2
    for _ in range(half.bit_length()):
        vectors = [
            emitter.put(level, make(Interleave(second), vectors[k], vectors[k + half]))
            for k in range(half)
            for second in (False, True)
        ]
    return vectors


def turned_range(emitter: Emitter, value: Node, column: Node, ranges: list[Node]) -> Node | None:
    """The range along which neighbours lie together of a value whose neighbours along `column` lie apart, if any does.

    Then it is read along that range, and turned in registers.
    """
    places = [n.src[1] for n in walk((value,)) if isinstance(n.op, Load)]
    for r in ranges:
        both = [p for p in places if emitter.mask(p) & emitter.bit(r) and emitter.mask(p) & emitter.bit(column)]
        if both and all(_is_turned(emitter, p, column, r) for p in both):
            return r
    return None


def _is_turned(emitter: Emitter, place: Node, column: Node, r: Node) -> bool:
    """Whether a place steps by one along r and by more along the column, evenly."""
    _, terms = emitter.index.affine(place)
    both = emitter.bit(r) | emitter.bit(column)
    others = [t for t in terms if t is not r and t is not column]
    return terms.get(r) == 1 and abs(terms.get(column, 0)) > 1 and not any(emitter.mask(t) & both for t in others)
