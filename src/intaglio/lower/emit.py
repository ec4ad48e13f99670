"""Emission: scalar expressions placed in loops as linear instructions, each as far out as its ranges allow."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import InternalError
from intaglio.ir.node import Node, make, toposort, walk
from intaglio.lower.binding import Binding, Instance
from intaglio.lower.index import Index, Terms, number
from intaglio.lower.positions import emit_position, position_of
from intaglio.lower.sums import SPAN, across, blocks_across, blocks_of, spans_along, spans_of
from intaglio.ops.elementwise import (
    ADD,
    Elementwise,
    Eq,
    FloorDiv,
    Le,
    Lt,
    Mul,
    Ne,
    Rarely,
    add,
    and_,
    floor_div,
    fma,
    lt,
    maximum,
    minimum,
    mul,
    or_,
    sub,
    where,
)
from intaglio.ops.loop import END_IF, END_LOOP, PREFETCH, STORE, Carried, If, Loop, Range, Shuffle
from intaglio.ops.loop import Final as FinalValue
from intaglio.ops.memory import Arg, Const, Load, Local, Param, const, iota, load
from intaglio.ops.movement import expand
from intaglio.ops.reduce import COMBINES, Across, Dot, Fold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.core.target import Target
    from intaglio.lower.positions import Position

ACCUMULATORS: Final = 4  # independent vectors in a reduction along memory
LINE: Final = 64  # bytes of a line of memory
STRIDED: Final = 4  # steps of a load along a vector up to which whole vectors are read, not single elements
WRITTEN_OUT: Final = 96  # values taken by the innermost loop of a reduction up to which it is no loop


@dataclass(slots=True)
class Frame:
    """The body of one loop in the making: its instructions, and what is known in it."""

    code: list[Node] = field(default_factory=list)
    have: set[Node] = field(default_factory=set)
    memo: dict[tuple[Node, tuple[tuple[int, int], ...]], Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cut:
    """Where along a range a value is simpler: before `low`, and from `high` on. Both are multiples of whole blocks."""

    low: Node
    high: Node
    before: Node
    beyond: Node


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a load asks for: so many instances further along a range, or (no range) elements further in memory."""

    along: Node | None
    further: int


class Emitter:
    """Writes the instructions of one kernel."""

    def __init__(self, index: Index, target: Target) -> None:
        self.index: Final = index
        self.target: Final = target
        self.frames: list[Frame] = [Frame()]
        self.bound: Final[dict[Node, Binding]] = {}
        self.bits: Final[dict[Node, int]] = {}
        self.masks: Final[dict[Node, int]] = {}
        self.guard: int = 0  # the frame of the condition around: a load must not run where it does not hold
        self.pinned: int = 0  # ranges that a load of written memory depends on
        self.flops: int = 0
        self.kept: Final[dict[Node, tuple[Node, Node, Node]]] = {}  # fold body -> (a value in it, where it is kept)
        self.stops: Final[dict[Node, Node]] = {}  # range of a sum -> where it may stop: what comes after adds nothing
        self.beside: Final[dict[Node, tuple[int, Callable[[Node], None]]]] = {}  # of a sum's range: every so many turns
        self.cuts: Final[dict[Node, Cut]] = {}  # range of a fold -> where its body is simpler
        self.ahead: Final[dict[Node, Ahead]] = {}  # loads that are asked for before they run
        self._numbers: Final = itertools.count()
        self._orders: Final[dict[tuple[Node, ...], list[Node]]] = {}

    # -- dependence

    def bit(self, r: Node) -> int:
        """The bit of a range."""
        found = self.bits.get(r)
        if found is None:
            found = self.bits[r] = 1 << len(self.bits)
        return found

    def mask(self, root: Node) -> int:
        """The ranges that a value depends on."""
        masks = self.masks
        found = masks.get(root)
        if found is not None:
            return found
        for node in toposort((root,), enter=lambda n: n not in masks):
            if node in masks:
                continue
            op = node.op
            if isinstance(op, Range):
                masks[node] = self.bit(node)
                continue
            total = 0
            for s in node.src:
                total |= masks[s]
            if isinstance(op, Fold):
                for r in node.src[1:]:
                    total &= ~self.bit(r)
            elif isinstance(op, Load) and op.epoch:
                total |= self.pinned
            masks[node] = total
        return masks[root]

    def level(self, mask: int) -> int:
        """The frame for a value with these ranges: as far out as they allow, but under the condition around it."""
        return max(self._outermost(mask), self.guard)

    def _outermost(self, mask: int) -> int:
        """The innermost frame whose range a value with these ranges needs."""
        found = 0
        for r, binding in self.bound.items():
            if self.bits[r] & mask and binding.frame > found:
                found = binding.frame
        return found

    def _key(self, mask: int, instance: Instance) -> tuple[tuple[int, int], ...]:
        """Which instance of the ranges in a mask."""
        return tuple(sorted((self.bits[r], n) for r, n in instance.items() if n and self.bits[r] & mask))

    # -- writing

    def put(self, level: int, node: Node) -> Node:
        """Have an instruction in a frame (or in one around it)."""
        if isinstance(node.op, (Const, Arg, Param, Local)):
            return node
        for frame in self.frames[: level + 1]:
            if node in frame.have:
                return node
        frame = self.frames[level]
        frame.have.add(node)
        frame.code.append(node)
        return node

    def effect(self, node: Node) -> None:
        """Append an effect to the innermost frame."""
        self.frames[-1].code.append(node)

    def loop(
        self,
        start: Node,
        stop: Node,
        step: int,
        inits: Sequence[Node],
        body: Callable[[Node, list[Node]], Sequence[Node]],
        bind: Callable[[int, Node], tuple[Node, Binding]] | None = None,
        *,
        once: bool = False,
    ) -> list[Node]:
        """A loop around what `body(counter, carried)` writes; gives the carried values after it. `once`: no loop."""
        counter = start if once else make(Loop(next(self._numbers)), start, stop, number(step), *inits)
        carried = list(inits) if once else [make(Carried(k), counter) for k in range(len(inits))]
        self.frames.append(Frame())
        key: Node | None = None
        if bind is not None:
            key, binding = bind(len(self.frames) - 1, counter)
            self.bit(key)
            self.bound[key] = binding
        following = list(body(counter, carried))
        if key is not None:
            del self.bound[key]
        frame = self.frames.pop()
        code = self.frames[-1].code
        if once:
            code.extend(frame.code)
            self.frames[-1].have |= frame.have
            return following
        end = make(END_LOOP, counter, *following)
        code.append(counter)
        code.extend(frame.code)
        code.append(end)
        return [make(FinalValue(k), end) for k in range(len(following))]

    def when(self, condition: Node, body: Callable[[], None]) -> None:
        """Instructions that run only where a scalar holds."""
        start = make(If(next(self._numbers)), condition)
        self.frames.append(Frame())
        around, self.guard = self.guard, len(self.frames) - 1
        body()
        self.guard = around
        frame = self.frames.pop()
        self.frames[-1].code += [start, *frame.code, make(END_IF, start)]

    def store(self, pointer: Node, place: Node, value: Node, instance: Instance) -> None:
        """Store one instance of a value, masked by the loop's tail."""
        self.effect(self.storing(pointer, place, value, instance))

    def store_all(self, pointer: Node, place: Node, value: Node, instances: list[Instance]) -> None:
        """Store some instances of a value, the stores together: those that go past the caches branch once."""
        values = self.emit_all(value, instances)
        stores = [self.storing(pointer, place, v, instance) for v, instance in zip(values, instances, strict=True)]
        for node in stores:
            self.effect(node)

    def storing(self, pointer: Node, place: Node, value: Node, instance: Instance) -> Node:
        """The store of one instance of a value, all it needs being written."""
        index, along = self.address(place, instance)
        v = along if along is not None else self.vector(self.mask(place))
        lanes = self.bound[v].lanes if v is not None else 0
        if lanes and not value.shape:
            value = self.put(len(self.frames) - 1, expand(value, (lanes,)))
        tail = self.tail(v, instance) if v is not None else None
        return make(STORE, pointer, index, value, *(() if tail is None else (tail,)))

    # -- values

    def emit(self, root: Node, instance: Instance) -> Node:
        """Have a value computed for one instance; gives it."""
        return self.emit_all(root, [instance])[0]

    def emit_all(self, root: Node, instances: list[Instance]) -> list[Node]:
        """Have a value computed for several instances, step by step: so that none waits for all of another."""
        roots = (root,)
        order = self._orders.get(roots)
        if order is None:
            self.mask(root)  # of all nodes below at once
            order = self._orders[roots] = usual(roots, enter=lambda n: not isinstance(n.op, (Fold, Load)))
        values = [root] * len(instances)
        for node in order:
            if isinstance(node.op, Rarely):
                self._rarely(node, instances)
            values = [self._one(node, instance) for instance in instances]
        return values

    def _known(self, node: Node, instance: Instance) -> Node:
        """A value that has been computed."""
        if isinstance(node.op, (Const, Arg, Param, Local)):
            return node
        found = self._found(node, instance)
        if found is None:
            raise InternalError(f"lower: {node.op.name} is used before it is computed")
        return found

    def _found(self, node: Node, instance: Instance) -> Node | None:
        """A value if it has been computed: in a frame between the outermost that may have it and this condition's."""
        mask = self.mask(node)
        key = (node, self._key(mask, instance))
        outermost = self._outermost(mask)
        for frame in self.frames[outermost : max(outermost, self.guard) + 1]:
            found = frame.memo.get(key)
            if found is not None:
                return found
        return None

    def _one(self, node: Node, instance: Instance) -> Node:
        """Have one node computed, its inputs being known."""
        op = node.op
        if isinstance(op, (Const, Arg, Param, Local)):
            return node
        found = self._found(node, instance)
        if found is not None:
            return found
        mask = self.mask(node)
        level = self.level(mask)
        key = (node, self._key(mask, instance))
        frame = self.frames[level]
        match op:
            case Range():
                value = self._range(node, instance)
            case Load():
                value = self._load(node, op, instance, level)
            case Fold():
                self._fold(node, op, level)
                return frame.memo[key]
            case FloorDiv() if (quotient := self._quotient(node, instance)) is not None:
                value = quotient
            case Elementwise():
                value = self.put(level, make(op, *(self._known(s, instance) for s in node.src)))
                if node.dtype.is_float:
                    self.flops += 1
            case _:
                raise InternalError(f"lower: {op.name} in a scalar expression")
        frame.memo[key] = value
        return value

    def _rarely(self, node: Node, instances: list[Instance]) -> None:
        """Have a value computed, what is rare of it under one condition for all of the instances."""
        missing = {self._key(self.mask(node), i): i for i in instances if self._found(node, i) is None}
        if not missing:
            return
        mask = self.mask(node)
        level = self.level(mask)
        condition, x, y = node.src
        frames, self.frames = self.frames, self.frames[: level + 1]
        conditions = [self._known(condition, i) for i in missing.values()]
        some = conditions[0]
        for other in conditions[1:]:
            some = self.put(level, or_(some, other))
        if some.shape:
            some = self.put(level, make(Across("max"), some))
        self.frames.append(Frame())
        around, self.guard = self.guard, level + 1
        values = self.emit_all(x, list(missing.values()))
        usually = [self._known(y, i) for i in missing.values()]
        chosen = [
            value if test is some and value.shape == other.shape else self.put(level + 1, where(test, value, other))
            for test, value, other in zip(conditions, values, usually, strict=True)
        ]
        self.guard = around
        code = self.frames.pop().code
        if any(c.shape != u.shape for c, u in zip(chosen, usually, strict=True)):
            usually = [_splat(self, level, u, () if u.shape else c.shape) for u, c in zip(usually, chosen, strict=True)]
        start = make(If(next(self._numbers)), some, *usually)
        end = make(END_IF, start, *chosen)
        frame = self.frames[level]
        frame.code += [start, *code, end]
        frame.memo.update({(node, key): make(FinalValue(k), end) for k, key in enumerate(missing)})
        self.frames = frames

    def _range(self, r: Node, instance: Instance) -> Node:
        """The value of a range: a counter, or a vector of neighbours."""
        binding = self.bound[r]
        base = self.first(binding, instance.get(r, 0))
        if not binding.lanes:
            return base
        return self.put(binding.frame, add(base, iota(binding.lanes)))

    def _quotient(self, node: Node, instance: Instance) -> Node | None:
        """The quotient of a vector range by a number, where that is one for all lanes; None where it is not."""
        r, divisor = node.src
        binding = self.bound.get(r)
        if binding is None or not binding.unit or not isinstance(divisor.op, Const):
            return None
        n, by = instance.get(r, 0), int(divisor.op.value)
        if not binding.lanes or by <= 0 or by % binding.lanes:
            return None
        if binding.unit % by and by % binding.unit:
            return self.put(binding.frame, floor_div(self.first(binding, n), divisor))
        quotient = self.put(binding.frame, floor_div(binding.base, divisor))
        return self.put(binding.frame, _plus(quotient, n * binding.lanes // by))

    def first(self, binding: Binding, n: int) -> Node:
        """The first element of an instance."""
        if not n:
            return binding.base
        if binding.apart is not None:
            return self.put(binding.frame, add(binding.base, binding.apart))
        return self.put(binding.frame, _plus(binding.base, n * max(binding.lanes, 1)))

    def tail(self, r: Node, instance: Instance) -> Node | None:
        """The mask of an instance's lanes that are in bounds, or None where all are."""
        binding = self.bound[r]
        if binding.bound is None or not binding.lanes:
            return None
        stop, rest = self.index.affine(binding.bound)
        first, terms = self.index.affine(binding.base)
        place = instance.get(r, 0)
        if not rest and not terms and first + (place + 1) * binding.lanes <= stop:
            return None
        return self.put(binding.frame, lt(self._range(r, instance), binding.bound))

    def vector(self, mask: int) -> Node | None:
        """The vector range among these ranges."""
        for r, binding in self.bound.items():
            if binding.lanes and self.bits[r] & mask:
                return r
        return None

    def address(self, place: Node, instance: Instance) -> tuple[Node, Node | None]:
        """An element index: (its scalar part, the vector range it steps along by one), or (a vector, None)."""
        constant, terms = self.index.affine(place)
        v = self.vector(self.mask(place))
        if v is not None:
            step = terms.get(v)
            nonlinear = any(t is not v and self.mask(t) & self.bits[v] for t in terms)
            if nonlinear or step is None:
                return self._sum(constant, terms, instance), None
            rest = {t: c for t, c in terms.items() if t is not v}
            binding = self.bound[v]
            if step == 1:
                base = {**rest}
                total = self._sum(constant + instance.get(v, 0) * binding.lanes, base, instance, (binding, 1))
                return total, v
            scalar = self._sum(constant, rest, instance)
            lanes = self._range(v, instance)
            level = self.level(self.mask(place))
            return self.put(level, add(self.put(level, mul(lanes, self.index.number(step))), scalar)), None
        return self._sum(constant, terms, instance), None

    def _sum(self, constant: int, terms: Terms, instance: Instance, extra: tuple[Binding, int] | None = None) -> Node:
        """A sum whose parts are added as far out as they are known; the constant goes last, into the address."""
        parts: list[tuple[int, Node]] = []
        for term, coefficient in terms.items():
            binding = self.bound.get(term)
            if binding is not None and binding.apart is not None:
                level, value = binding.frame, self.first(binding, instance.get(term, 0))
            elif binding is not None and not binding.lanes:
                constant += coefficient * instance.get(term, 0)
                level, value = binding.frame, binding.base
            else:
                value = self.emit(term, instance)
                level = self.level(self.mask(term))
            shift, rest = self.index.affine(value)
            if not rest:
                constant += self.index.times(shift, coefficient)
                continue
            parts.append(
                (level, value if coefficient == 1 else self.put(level, mul(value, self.index.number(coefficient))))
            )
        if extra is not None:
            binding, step = extra
            shift, rest = self.index.affine(binding.base)
            if rest:
                base = binding.base if step == 1 else self.put(binding.frame, mul(binding.base, number(step)))
                parts.append((binding.frame, base))
            else:
                constant += shift * step
        parts.sort(key=lambda part: part[0])
        if not parts:
            return self.index.number(constant)
        level, total = parts[0]
        for inner, value in parts[1:]:
            level = max(level, inner)
            total = self.put(level, add(total, value))
        return self.put(level, add(total, self.index.number(constant))) if constant else total

    def _load(self, node: Node, op: Load, instance: Instance, level: int) -> Node:
        """A load: scalar, of neighbours, or gathered; masked by its gate and the loop's tail."""
        pointer, place = node.src[0], node.src[1]
        step = self.stride(place, self.vector(self.mask(place))) if len(node.src) == 2 else 0
        if 2 <= step <= STRIDED:
            return self._strided(node, op, step, instance, level)
        if node in self.ahead:
            self._ask(node, instance, level)
        index, along = self.address(place, instance)
        gate = self.emit(node.src[2], instance) if len(node.src) > 2 else None
        lanes = self.bound[along].lanes if along is not None else 0
        v = self.vector(self.mask(place)) if along is None else along
        shape = (lanes,) if lanes else index.shape
        if v is not None and shape:
            tail = self.tail(v, instance)
            if tail is not None:
                gate = tail if gate is None else self.put(level, and_(tail, gate))
        if gate is None:
            return self.put(level, load(pointer, index, lanes=lanes, epoch=op.epoch))
        if shape and shape == gate.shape:
            return self.put(level, load(pointer, index, gate, lanes=lanes, epoch=op.epoch))
        if shape:  # one gate for all lanes
            full = self.put(level, make(ADD, iota(shape[0]), number(0)))
            wide = self.put(level, and_(gate, self.put(level, lt(full, number(shape[0])))))
            return self.put(level, load(pointer, index, wide, lanes=lanes, epoch=op.epoch))
        if gate.shape:  # the place is one for all lanes, the gate is not: load where any place is safe
            return self.put(level, load(pointer, index, lanes=lanes, epoch=op.epoch))
        safe = self.put(level, where(gate, index, number(0)))
        raw = self.put(level, load(pointer, safe, epoch=op.epoch))
        return self.put(level, where(gate, raw, const(node.dtype, 0)))

    def _ask(self, node: Node, instance: Instance, level: int) -> None:
        """Ask for the line that a load will read, once for each line."""
        pointer, place = node.src[:2]
        v = self.vector(self.mask(place))
        if v is not None and self.stride(place, v) != 1:  # a line for each lane
            return
        before = instance.get(v, 0) * self.bound[v].lanes * node.dtype.itemsize if v is not None else 0
        if before % LINE == 0:
            ahead = self.ahead[node]
            if ahead.along is None:
                place = self.index.add(place, number(ahead.further))
            else:
                instance = {**instance, ahead.along: instance.get(ahead.along, 0) + ahead.further}
            index, _ = self.address(place, instance)
            self.frames[level].code.append(make(PREFETCH, pointer, index))

    def stride(self, place: Node, v: Node | None) -> int:
        """How far an index steps along a range, evenly; 0 if it does not, or not evenly."""
        if v is None:
            return 0
        _, terms = self.index.affine(place)
        even = not any(t is not v and self.mask(t) & self.bit(v) for t in terms)
        return terms.get(v, 0) if even else 0

    def _strided(self, node: Node, op: Load, step: int, instance: Instance, level: int) -> Node:
        """A load of every `step`-th element: as many whole vectors, whose lanes are then put together.

        The last vector ends with the last element that is asked for, so that nothing past it is read.
        """
        pointer, place = node.src
        v = self.vector(self.mask(place))
        assert v is not None
        binding = self.bound[v]
        lanes, number_of = binding.lanes, instance.get(v, 0)
        constant, terms = self.index.affine(place)
        rest = {t: c for t, c in terms.items() if t is not v}
        last = step * (lanes - 1) + 1 - lanes
        starts = [min(k * lanes, last) for k in range(step - 1)] + [last]
        left: Node | None = None
        if self.tail(v, instance) is not None:
            assert binding.bound is not None
            left = self.put(binding.frame, sub(binding.bound, self.first(binding, number_of)))
            left = self.put(binding.frame, mul(left, number(step)))
        read: list[Node] = []
        for start in starts:
            at = self._sum(constant + number_of * lanes * step + start, rest, instance, (binding, step))
            if left is None:
                read.append(self.put(level, load(pointer, at, lanes=lanes, epoch=op.epoch)))
                continue
            ends = self.put(binding.frame, make(ADD, iota(lanes), number(start + step - 1)))
            inside = self.put(binding.frame, lt(ends, left))
            read.append(self.put(level, load(pointer, at, inside, lanes=lanes, epoch=op.epoch)))
        home = [min(step * j // lanes, step - 1) for j in range(lanes)]  # the vector that has a lane's element
        value = read[0]
        for k in range(1, step):
            kept = [(step if k == 1 else 1) * j if home[j] < k else 0 for j in range(lanes)]
            places = [lanes + step * j - starts[k] if home[j] == k else kept[j] for j in range(lanes)]
            value = self.put(level, make(Shuffle(tuple(places)), value, read[k]))
        return value

    # -- reductions

    def _fold(self, node: Node, op: Fold, level: int) -> None:
        """A reduction, for all instances of the ranges that it depends on at once."""
        mask = self.mask(node)
        free = [r for r, b in self.bound.items() if self.bits[r] & mask and b.instances > 1]
        free.sort(key=lambda r: self.bound[r].lanes)  # vectors change fastest: a number is spread, used and forgotten
        instances: list[Instance] = [
            dict(zip(free, p, strict=True)) for p in product(*(range(self.bound[r].instances) for r in free))
        ]
        outer = self.vector(mask)
        frames, self.frames = self.frames, self.frames[: level + 1]
        hidden = {r: self.bound.pop(r) for r in list(self.bound) if self.bound[r].frame > level}
        body, ranges = node.src[0], list(node.src[1:])
        own = all(self.bound[r].apart is not None for r in free)  # whether each has the accumulators that one alone has
        position = position_of(node) if outer is None and own else None
        found = self._position(position, instances) if position is not None else None
        if found is not None:
            values = found
        elif outer is None:
            values = self._fold_along(op.kind, body, ranges, instances, ACCUMULATORS if own else 1, single=not mask)
        else:
            shape = (self.bound[outer].lanes,)
            start = COMBINES[op.kind].identity(node.dtype)
            inits = [_splat(self, level, start, shape)] * len(instances)
            blocks = blocks_across(op.kind, body, tuple(self.mask(s) for s in body.src), self.bit(outer))
            values = self._fold_loops(op.kind, body, ranges, instances, inits, blocks=blocks)
        self.bound.update(hidden)
        self.frames = frames
        frame = self.frames[level]
        for instance, value in zip(instances, values, strict=True):
            frame.memo[node, self._key(mask, instance)] = value

    def _position(self, position: Position, instances: list[Instance]) -> list[Node] | None:
        """The positions of extremes, which are known as well then; None where one was known before."""
        best = position.best
        if any(self._found(best, instance) is not None for instance in instances):
            return None
        found = emit_position(self, position, COMBINES[position.kind].identity(best.dtype), instances)
        if found is None:
            return None
        for instance, (_, extreme) in zip(instances, found, strict=True):
            self.frames[-1].memo[best, self._key(self.mask(best), instance)] = extreme
        return [place for place, _ in found]

    def _fold_loops(
        self,
        kind: str,
        body: Node,
        ranges: list[Node],
        instances: list[Instance],
        inits: list[Node],
        *,
        blocks: tuple[int, ...],
    ) -> list[Node]:
        """Plain nested loops over the ranges. `blocks`: as a sum in blocks of blocks, if there are any."""
        if not ranges:
            return [self.combine(kind, acc, body, instance) for acc, instance in zip(inits, instances, strict=True)]
        r = ranges[0]
        extent, rest = self.index.affine(r.src[0])
        spans = spans_of(self.index, ranges, blocks)

        def turn(_: Node, carried: list[Node]) -> list[Node]:
            return self._fold_loops(kind, body, ranges[1:], instances, carried, blocks=blocks)

        def bind(frame: int, counter: Node) -> tuple[Node, Binding]:
            return r, Binding(frame, counter)

        if len(ranges) > 1 or rest or r in self.stops or extent * len(instances) > WRITTEN_OUT:

            def turns(start: Node, stop: Node, carried: list[Node]) -> list[Node]:
                return self.loop(start, stop, 1, carried, turn, bind)

            run = self.with_beside(*self.beside[r], turns) if r in self.beside else turns
            return self.in_blocks(spans, number(0), self.stops.get(r, r.src[0]), inits, run)

        def written_out(spans: list[int], start: int, stop: int, carried: list[Node]) -> list[Node]:
            for k in range(start, stop, spans[0] if spans else 1):
                if spans:
                    zero = [self.zero(a) for a in carried]
                    own = written_out(spans[1:], k, min(k + spans[0], stop), zero)
                    carried = self.joined(carried, own)
                else:
                    carried = self.loop(number(k), number(k + 1), 1, carried, turn, bind, once=True)
            return carried

        return written_out(spans, 0, extent, inits)

    def combine(self, kind: str, accumulator: Node, body: Node, instance: Instance) -> Node:
        """One more value taken into an accumulator; a product summed is one fused instruction."""
        level = len(self.frames) - 1
        of = body.src[:2] if isinstance(body.op, Dot) or _is_fused(kind, body) else (body,)
        values = [self.emit(s, instance) for s in of]
        kept = self.kept.get(body)
        if kept is not None:  # once the body has read what it may write over
            value, place, pointer = kept
            self.store(pointer, place, self.emit(value, instance), instance)
        self.flops += 1
        if isinstance(body.op, Dot):
            return self.put(level, make(body.op, *values, accumulator))
        if _is_fused(kind, body):
            x, y = values
            return self.put(level, fma(x, y, accumulator))
        return self.put(level, make(COMBINES[kind].op, accumulator, *values))

    def _fold_along(
        self, kind: str, body: Node, ranges: list[Node], instances: list[Instance], count: int, *, single: bool
    ) -> list[Node]:
        """A reduction with no vector around it: its own best range is the vector, of which each instance has some.

        Args:
            single: Whether it is one for the whole kernel.
        """
        v = self._along(body, ranges)
        dtype = body.dtype
        blocks = blocks_of(kind, body)
        if v is None:
            inits = [COMBINES[kind].identity(dtype)] * len(instances)
            return self._fold_loops(kind, body, ranges, instances, inits, blocks=blocks)
        others = [r for r in ranges if r is not v]
        lanes = self.lanes_of(body)
        extent = self.index.affine(v.src[0])[0]
        while count > 1 and 2 * extent <= lanes * count:  # fewer vectors than that give the same bits
            count //= 2
        start = _splat(self, len(self.frames) - 1, COMBINES[kind].identity(dtype), (lanes,))
        inits = [start] * (count * len(instances))

        def nest(outer: list[Node], accumulators: list[Node]) -> list[Node]:
            if not outer:
                return self._run_vector(kind, body, v, extent, lanes, count, instances, accumulators)
            r = outer[0]

            def turn(_: Node, carried: list[Node]) -> list[Node]:
                if not blocks:
                    return nest(outer[1:], carried)
                return self.joined(carried, nest(outer[1:], [self.zero(a) for a in carried]))

            def run(first: Node, stop: Node, carried: list[Node]) -> list[Node]:
                return self.loop(first, stop, 1, carried, turn, lambda frame, counter: (r, Binding(frame, counter)))

            spans = spans_along(self.index, SPAN, r, blocks)
            return self.in_blocks(spans, number(0), r.src[0], accumulators, run)

        accumulators = nest(others, inits)
        level = len(self.frames) - 1
        values: list[Node] = []
        for place in range(len(instances)):
            own = accumulators[place * count : (place + 1) * count]
            values.append(across(self, level, kind, own, v, single=single))
        return values

    def _run_vector(
        self,
        kind: str,
        body: Node,
        v: Node,
        extent: int,
        lanes: int,
        count: int,
        instances: list[Instance],
        accumulators: list[Node],
    ) -> list[Node]:
        """One pass along a vector range: whole blocks in a loop, then what is left, masked."""
        step = lanes * count
        if self.index.varies(extent):
            return self._run_sized(kind, body, v, lanes, count, instances, accumulators)
        whole = extent // step * step
        if whole:
            spans = spans_along(self.index, step * SPAN, v, blocks_of(kind, body))
            accumulators = self.in_blocks(
                spans, number(0), number(whole), accumulators, self._vectors(kind, body, v, lanes, count, instances)
            )
        left = extent - whole
        if left:
            vectors = -(-left // lanes)

            def bind_tail(frame: int, counter: Node) -> tuple[Node, Binding]:
                return v, Binding(frame, counter, vectors, lanes, number(extent), unit=step)

            def take_tail(_: Node, carried: list[Node]) -> list[Node]:
                following = list(carried)
                for i, instance in enumerate(instances):
                    for u in range(vectors):
                        place = {**instance, v: u}
                        slot = i * count + u % count
                        tail = self.tail(v, place)
                        taken = self.combine(kind, following[slot], body, place)
                        if tail is not None:
                            taken = self.put(len(self.frames) - 1, where(tail, taken, following[slot]))
                        following[slot] = taken
                return following

            accumulators = self.loop(number(whole), number(extent), step, accumulators, take_tail, bind_tail, once=True)
        return accumulators

    def _vectors(
        self, kind: str, body: Node, v: Node, lanes: int, count: int, instances: list[Instance]
    ) -> Callable[[Node, Node, list[Node]], list[Node]]:
        """What takes whole vectors between two places, `count` at once, into the accumulators of each instance."""

        def some(body: Node, start: Node, stop: Node, accumulators: list[Node], unit: int = 0) -> list[Node]:
            def take(_: Node, carried: list[Node]) -> list[Node]:
                return [
                    self.combine(kind, carried[i * count + u], body, {**instance, v: u})
                    for i, instance in enumerate(instances)
                    for u in range(count)
                ]

            (first, rest), (last, more) = self.index.affine(start), self.index.affine(stop)
            once = rest == more and last - first == lanes * count
            return self.loop(
                start,
                stop,
                lanes * count,
                accumulators,
                take,
                lambda frame, counter: (v, Binding(frame, counter, count, lanes, unit=unit)),
                once=once,
            )

        def run(start: Node, stop: Node, accumulators: list[Node]) -> list[Node]:
            cut = self.cuts.get(v)
            if cut is None:
                return some(body, start, stop, accumulators, lanes * count)
            level = len(self.frames) - 1
            below = (self.put(level, maximum(n, start)) for n in (cut.low, cut.high))
            low, high = (self.put(level, minimum(n, stop)) for n in below)
            accumulators = some(cut.before, start, low, accumulators)
            accumulators = some(body, low, high, accumulators)
            return some(cut.beyond, high, stop, accumulators)

        return run

    def _run_sized(
        self,
        kind: str,
        body: Node,
        v: Node,
        lanes: int,
        count: int,
        instances: list[Instance],
        accumulators: list[Node],
    ) -> list[Node]:
        """One pass along a vector range whose extent is known when it runs: whole blocks, then a masked one.

        The order is that of a known extent: what differs are loops of one turn, and lanes that keep what they have.
        """
        step = lanes * count
        whole = self.whole(v.src[0], step)

        def take_tail(_: Node, carried: list[Node]) -> list[Node]:
            following = list(carried)
            for i, instance in enumerate(instances):
                for u in range(count):
                    place, slot = {**instance, v: u}, i * count + u
                    tail = self.tail(v, place)
                    assert tail is not None
                    taken = self.combine(kind, carried[slot], body, place)
                    following[slot] = self.put(len(self.frames) - 1, where(tail, taken, carried[slot]))
            return following

        spans = spans_along(self.index, step * SPAN, v, blocks_of(kind, body))
        accumulators = self.in_blocks(
            spans, number(0), whole, accumulators, self._vectors(kind, body, v, lanes, count, instances)
        )
        return self.loop(
            whole, v.src[0], step, accumulators, take_tail, lambda f, c: (v, Binding(f, c, count, lanes, v.src[0]))
        )

    def whole(self, extent: Node, unit: int) -> Node:
        """How far whole units reach into an extent that is known when the kernel runs."""
        return extent if unit == 1 else self.put(0, mul(self.put(0, floor_div(extent, number(unit))), number(unit)))

    def with_beside(
        self, every: int, beside: Callable[[Node], None], run: Callable[[Node, Node, list[Node]], list[Node]]
    ) -> Callable[[Node, Node, list[Node]], list[Node]]:
        """What runs some turns of a range, with something written beside them: before every so many of them."""

        def whole(start: Node, stop: Node, carried: list[Node]) -> list[Node]:
            def some(counter: Node, carried: list[Node]) -> list[Node]:
                beside(counter)
                return run(counter, self.end(counter, every, stop), carried)

            return self.loop(start, stop, every, carried, some)

        return whole

    def in_blocks(
        self,
        spans: list[int],
        start: Node,
        stop: Node,
        accumulators: list[Node],
        run: Callable[[Node, Node, list[Node]], list[Node]],
    ) -> list[Node]:
        """A sum in blocks of blocks, each from zero: `run` takes what lies between two places into accumulators."""
        if not spans:
            return run(start, stop, accumulators)
        zero = [self.zero(a) for a in accumulators]

        def block(counter: Node, carried: list[Node]) -> list[Node]:
            end = self.end(counter, spans[0], stop)
            return self.joined(carried, self.in_blocks(spans[1:], counter, end, zero, run))

        return self.loop(start, stop, spans[0], accumulators, block)

    def end(self, start: Node, span: int, stop: Node) -> Node:
        """Where a block ends."""
        level = len(self.frames) - 1
        following = self.put(level, _plus(start, span))
        return following if span == 1 else self.put(level, minimum(following, stop))

    def joined(self, totals: list[Node], others: list[Node]) -> list[Node]:
        """The sums of pairs."""
        level = len(self.frames) - 1
        return [self.put(level, add(a, b)) for a, b in zip(totals, others, strict=True)]

    def zero(self, like: Node) -> Node:
        """Zero in every lane."""
        return _splat(self, len(self.frames) - 1, const(like.dtype, 0), like.shape)

    def _along(self, body: Node, ranges: list[Node]) -> Node | None:
        """The range along which most loads are of neighbours, or a long one."""
        loads = [n for n in toposort((body,)) if isinstance(n.op, Load)]
        best: tuple[int, Node] | None = None
        for r in ranges if self.target.vector_bytes else ():
            extent, rest = self.index.affine(r.src[0])
            if rest or extent < 4:
                continue
            score = 0
            for n in loads:
                step = self.index.step(n.src[1], r)
                inner = any(isinstance(s.op, Load) for s in toposort((n.src[1],)))
                score += 4 if step == 1 else 1 if step == 0 and not inner else -3
            if extent >= min(self.lanes_of(body), SPAN) and (best is None or score >= best[0]):
                best = score, r
        if best is None:
            return None
        long = self.index.affine(best[1].src[0])[0] >= 4 * self.lanes_of(body)  # then gathers pay, but not for rows
        long = long and not any(isinstance(n.op, Fold) for n in walk((body,)))
        return best[1] if best[0] > 0 or not loads or long else None

    def lanes_of(self, body: Node) -> int:
        """How many lanes suit the widest number in an expression (indices and their comparisons apart)."""
        widest = 1
        for node in usual((body,), enter=lambda n: not isinstance(n.op, (Load, Range)) and not _compares_places(n)):
            if not isinstance(node.op, Range) and not (node.dtype is dtypes.int64 and isinstance(node.op, Const)):
                widest = max(widest, node.dtype.itemsize)
        return max(1, self.target.vector_bytes // widest)


def usual(roots: Sequence[Node], enter: Callable[[Node], bool] = lambda _: True) -> list[Node]:
    """Every node that the roots usually need, inputs before users; `enter` says whether to go into one's inputs."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[Node | None] = [*reversed(roots)]
    while stack:
        node = stack.pop()
        if node is None:  # as in `toposort`
            done = stack.pop()
            assert done is not None
            order.append(done)
        elif node not in seen:
            seen.add(node)
            if node.src and enter(node):
                needed = (node.src[0], node.src[2]) if isinstance(node.op, Rarely) else node.src
                stack += (node, None)
                stack += needed[::-1]
            else:
                order.append(node)
    return order


def _is_fused(kind: str, body: Node) -> bool:
    """Whether a value is taken into a sum by one fused multiply-add."""
    return kind == "sum" and isinstance(body.op, Mul) and body.dtype in (dtypes.float32, dtypes.float64)


def _compares_places(node: Node) -> bool:
    """Whether a node compares integers that follow from ranges alone."""
    if not isinstance(node.op, (Lt, Le, Eq, Ne)) or node.src[0].dtype is not dtypes.int64:
        return False
    return all(isinstance(n.op, (Const, Arg, Range, Elementwise)) for n in walk(node.src))


def _splat(emitter: Emitter, level: int, value: Node, shape: tuple[int, ...]) -> Node:
    """A constant in every lane."""
    return emitter.put(level, expand(value, shape)) if shape else value


def _plus(x: Node, c: int) -> Node:
    """x + c, of numbers and counters."""
    if isinstance(x.op, Const):
        return number(int(x.op.value) + c)
    return add(x, number(c)) if c else x
