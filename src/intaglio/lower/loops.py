"""Loops over ranges: one inside the other, by whole vectors and what is left, in chunks for threads to share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.core.errors import InternalError
from intaglio.ir.node import Node, make, walk
from intaglio.lower.binding import Binding, Instance
from intaglio.lower.choice import Decisions, about
from intaglio.lower.emit import LINE
from intaglio.lower.index import number
from intaglio.ops.elementwise import add, floor_div, lt, minimum, mul, sub
from intaglio.ops.loop import Chunk
from intaglio.ops.reduce import Fold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.lower.emit import Emitter

Turn: TypeAlias = "Callable[[Node, list[Node]], Sequence[Node]]"  # of a counter and what is carried: what is next
Body: TypeAlias = "Callable[[list[Instance], int], None]"  # given the instances of a vector range, and their lanes
CHUNK: Final = 1 << 18  # elements of work in a chunk at least: taking one costs a thread some microseconds
CHUNKS: Final = 64  # chunks of a kernel at most


@dataclass(slots=True)
class Place:
    """One store of a nest: where, and what."""

    pointer: Node
    index: Node
    value: Node


def has_fold(places: Sequence[Place]) -> bool:
    """Whether a nest reduces something."""
    return any(isinstance(n.op, Fold) for n in walk([p.value for p in places]))


class Loops:
    """Writes loops around what callbacks emit; knows in how many chunks the kernel runs, and what else is decided.

    Attributes:
        chunks: How many there are.
        series: Whether launches of the kernel may be a series, of which each asks for what the next one reads.
    """

    def __init__(self, emitter: Emitter, decisions: Decisions | None = None) -> None:
        self.emitter: Final = emitter
        self.decide: Final = decisions or Decisions()
        self.chunks: int = 1
        self.series: bool = False

    def extent(self, r: Node) -> int:
        """How many values a range takes."""
        return self.emitter.index.affine(r.src[0])[0]

    def nest(
        self,
        ranges: list[Node],
        body: Turn,
        start: Node | None = None,
        stop: Node | None = None,
    ) -> None:
        """Plain nested loops; `start` and `stop` bound the outermost."""
        if not ranges:
            body(number(0), [])
            return
        r = ranges[0]
        self.emitter.loop(
            number(0) if start is None else start,
            r.src[0] if stop is None else stop,
            1,
            (),
            (lambda c, k: body(c, k)) if len(ranges) == 1 else (lambda _, k: (self.nest(ranges[1:], body), k)[1]),
            lambda frame, counter: (r, Binding(frame, counter)),
        )

    def halves(
        self, r: Node, body: Callable[[list[Instance]], None], start: Node | None = None, stop: Node | None = None
    ) -> None:
        """A range, or the part between bounds, in two halves side by side; what is left of an odd number comes last.

        Args:
            body: Given the instances of the range.
            start: The first place. Chunks before the last must be of an even number of places.
            stop: Past the last one.
        """
        emitter, extent = self.emitter, self.extent(r)
        level = len(emitter.frames) - 1
        if start is None or stop is None:
            start, half, past = number(0), number(extent // 2), number(extent)
            middle = half
        else:
            past = stop
            half = emitter.put(level, floor_div(emitter.put(level, sub(stop, start)), number(2)))
            middle = emitter.put(level, add(start, half))

        def both(_: Node, carried: list[Node]) -> list[Node]:
            body([{r: 0}, {r: 1}])
            return carried

        def one(_: Node, carried: list[Node]) -> list[Node]:
            body([{}])
            return carried

        emitter.loop(start, middle, 1, (), both, lambda f, c: (r, Binding(f, c, 2, apart=half)))
        if extent % 2:
            rest = emitter.put(level, add(middle, half))
            emitter.loop(rest, past, 1, (), one, lambda f, c: (r, Binding(f, c)))

    def model_of_chunks(self, extent: int, work: int) -> int:
        """How many chunks the model cuts a range in."""
        return max(1, min(extent, work // CHUNK, CHUNKS))

    def chunk(self, extent: int, work: int, unit: int) -> tuple[Node, Node]:
        """The part of a range that one call runs, in chunks of equal length."""
        model = self.model_of_chunks(extent, work)
        chunks = self.decide.of("chunks", model, about(model, 1, min(extent, CHUNKS)))
        per = -(-extent // chunks)
        return self.chunk_of(extent, -(-per // unit) * unit)

    def chunk_of(self, extent: int, per: int) -> tuple[Node, Node]:
        """The part of a range that one call runs, in chunks of a given length."""
        chunks = -(-extent // per)
        if self.chunks not in (1, chunks):
            raise InternalError("lower: the nests of a kernel are of different numbers of chunks")
        self.chunks = chunks
        emitter = self.emitter
        begin = emitter.put(0, mul(emitter.put(0, make(Chunk("begin"))), number(per)))
        end = emitter.put(0, mul(emitter.put(0, make(Chunk("end"))), number(per)))
        return begin, emitter.put(0, minimum(end, number(extent)))

    def share(self, r: Node, unit: int) -> tuple[Node, Node]:
        """The part of a range that one thread takes: whole units, but for the last."""
        extent = self.extent(r)
        per = -(-extent // self.emitter.target.threads)
        return self.chunk_of(extent, -(-per // unit) * unit)

    def line(self, place: Place, r: Node) -> int:
        """How many steps of a range there are to a line of memory: with fewer, threads would write to one line."""
        step = abs(self.emitter.index.step(place.index, r)) * place.pointer.dtype.itemsize
        return -(-LINE // max(step, 1))

    def together(
        self,
        r: Node,
        count: int,
        body: Callable[[list[Instance]], None],
        begin: Node | None = None,
        end: Node | None = None,
    ) -> None:
        """A range of known extent some places at a time; what is left of it, or between bounds, goes with its last.

        Args:
            body: Given the instances of the range.
        """
        self.some_at_once(self.extent(r), count, lambda first, some: self.at(r, first, some, body), begin, end)

    def at(self, r: Node, first: Node, count: int, body: Callable[[list[Instance]], None]) -> None:
        """Some places of a range, the first of which is known: what is written for their instances."""
        emitter = self.emitter
        emitter.bit(r)
        emitter.bound[r] = Binding(len(emitter.frames) - 1, first, count)
        body([{r: k} for k in range(count)])
        del emitter.bound[r]

    def some_at_once(
        self,
        extent: int,
        count: int,
        body: Callable[[Node, int], None],
        begin: Node | None = None,
        end: Node | None = None,
    ) -> None:
        """As `together`, of what is not one range.

        Args:
            body: Given the first place, and how many.
        """
        if count > 1 and self.emitter.index.varies(extent):
            raise InternalError("lower: an extent that varies is not cut in equal parts")
        emitter = self.emitter
        whole = extent // count * count
        level = len(emitter.frames) - 1
        start = number(0) if begin is None else begin
        stop = number(whole) if end is None else emitter.put(level, minimum(end, number(whole)))
        if whole:
            emitter.loop(start, stop, count, (), lambda counter, carried: (body(counter, count), carried)[1])
        if whole < extent and end is not None:
            rest = emitter.put(level, lt(number(whole), end))
            emitter.when(rest, lambda: body(number(whole), extent - whole))
        elif whole < extent:
            body(number(whole), extent - whole)

    def vectors(self, v: Node, lanes: int, unroll: int, body: Body) -> None:
        """A range by whole vectors, then the rest."""
        extent = self.extent(v)
        if self.emitter.index.varies(extent):
            whole = self.emitter.whole(v.src[0], lanes * unroll)
            self.whole_vectors(v, number(0), whole, lanes, unroll, body)
            self.masked_vectors(v, whole, lanes, body)
            return
        while unroll > 1 and extent < lanes * unroll:
            unroll //= 2
        unit = lanes * unroll
        end = extent // unit * unit
        if end:
            self.whole_vectors(v, number(0), number(end), lanes, unroll, body, once=end == unit)
        if end < extent:
            self.last_vectors(v, end, lanes, body)

    def vectors_between(self, v: Node, begin: Node, end: Node, lanes: int, unroll: int, body: Body) -> None:
        """The part of a range that one chunk runs, by whole vectors; what is left goes with the last chunk."""
        emitter = self.emitter
        extent = self.extent(v)
        whole = extent // (lanes * unroll) * lanes * unroll
        level = len(emitter.frames) - 1
        self.whole_vectors(v, begin, emitter.put(level, minimum(end, number(whole))), lanes, unroll, body)
        if whole < extent:
            last = emitter.put(level, lt(number(whole), end))
            emitter.when(last, lambda: self.last_vectors(v, whole, lanes, body))

    def whole_vectors(
        self, v: Node, start: Node, stop: Node, lanes: int, unroll: int, body: Body, *, once: bool = False
    ) -> None:
        """Whole vectors of a range, some at once."""
        instances: list[Instance] = [{v: u} for u in range(unroll)]

        def run(_: Node, carried: list[Node]) -> list[Node]:
            body(instances, lanes)
            return carried

        self.emitter.loop(
            start, stop, lanes * unroll, (), run, lambda f, c: (v, Binding(f, c, unroll, lanes)), once=once
        )

    def last_vectors(self, v: Node, start: int, lanes: int, body: Body) -> None:
        """What is left of a range after its whole vectors, masked."""
        extent = self.extent(v)
        vectors = -(-(extent - start) // lanes)
        instances: list[Instance] = [{v: u} for u in range(vectors)]

        def run(_: Node, carried: list[Node]) -> list[Node]:
            body(instances, lanes)
            return carried

        self.emitter.loop(
            number(start),
            number(extent),
            1,
            (),
            run,
            lambda f, c: (v, Binding(f, c, vectors, lanes, number(extent))),
            once=True,
        )

    def masked_vectors(self, v: Node, start: Node, lanes: int, body: Body) -> None:
        """What is left of a range whose extent is known when it runs, one masked vector after the other."""

        def run(_: Node, carried: list[Node]) -> list[Node]:
            body([{v: 0}], lanes)
            return carried

        self.emitter.loop(start, v.src[0], lanes, (), run, lambda f, c: (v, Binding(f, c, 1, lanes, v.src[0])))
