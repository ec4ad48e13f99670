"""Random programs of views and writes, run on tensors and on NumPy arrays side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from intaglio import Tensor

if TYPE_CHECKING:
    import random

STATEMENTS = (
    *("view",) * 3, *("write_number",) * 2, *("write_value",) * 2, *("in_place",) * 2, "advanced", "mask", "overlap",
    *("compute",) * 2, "read", "forget", "make", *("loop",) * 2, "assign", "reduce", "swap", "recurrence", "bits",
    "take", "lazy_index",
)  # fmt: skip
# Apart from the others, since the numbers of programs that were wrong once stand for programs of those.
WITH_TURNS = (*STATEMENTS, *("turns",) * 8)
DTYPES = (np.int32, np.int64, np.float32, np.uint8, np.int16)


class Programs:
    """One program in the making: pairs of a tensor and the array that it must equal."""

    statements: ClassVar[tuple[str, ...]] = STATEMENTS
    extents: ClassVar[tuple[int, ...]] = (1, 2, 3, 4, 5, 6, 8)

    def __init__(self, rng: random.Random, steps: int = 14) -> None:
        self.rng = rng
        self.steps = steps
        self.pairs: list[tuple[Tensor, Any]] = []  # the other is an array, or what behaves as one
        self.log: list[str] = []

    def run(self) -> None:
        """Make, step, then compare everything in another order."""
        with np.errstate(all="ignore"):  # integers wrap, as tensors' do
            for _ in range(self.rng.randint(1, 2)):
                self.make()
            for _ in range(self.rng.randint(1, self.steps)):
                self.step()
        self.rng.shuffle(self.pairs)
        for tensor, array in self.pairs:
            self.compare(tensor, array)

    def compare(self, tensor: Tensor, array: np.ndarray[Any, Any]) -> None:
        """The tensor must equal the array."""
        got = tensor.numpy()
        assert got.shape == array.shape, self.told(f"shape {got.shape}, expected {array.shape}")
        assert got.dtype == array.dtype, self.told(f"dtype {got.dtype}, expected {array.dtype}")
        assert np.array_equal(got, array), self.told(f"got\n{got}\nexpected\n{array}")

    def told(self, what: str) -> str:
        """A failure with the program that led to it."""
        return "\n".join([*self.log, what])

    def pick(self) -> tuple[int, Tensor, Any]:
        """A pair at random."""
        k = self.rng.randrange(len(self.pairs))
        return k, *self.pairs[k]

    def target(self) -> tuple[int, Tensor, Any]:
        """A pair at random that may be written."""
        return self.pick()

    def keep(self, tensor: Tensor, array: Any, text: str) -> None:
        """Remember a pair."""
        self.log.append(f"p{len(self.pairs)} = {text}")
        self.pairs.append((tensor, _array(array)))

    def make(self) -> None:
        """A new tensor."""
        rank = self.rng.choice((1, 1, 2, 2, 3))
        shape = tuple(self.rng.choice(self.extents) for _ in range(rank))
        if self.rng.random() < 0.04:
            shape = (*shape[:-1], 0)
        dtype = self.rng.choice(DTYPES)
        kind = self.rng.randrange(4)
        size = int(np.prod(shape))
        if kind == 0:
            array = np.zeros(shape, dtype)
            tensor = Tensor(array)
        elif kind == 1:
            array = np.arange(size).astype(dtype).reshape(shape)
            tensor = Tensor(array)
        elif kind == 2:
            from intaglio import dtypes

            array = np.arange(size).astype(dtype).reshape(shape)
            tensor = Tensor.arange(size, dtype=dtypes.from_numpy(np.dtype(dtype))).reshape(shape)
        else:
            from intaglio import dtypes

            array = np.full(shape, 3, dtype)
            tensor = Tensor.full(shape, 3, dtype=dtypes.from_numpy(np.dtype(dtype)))
        self.keep(tensor, array, f"kind {kind} {np.dtype(dtype).name}{shape}")

    def slices(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """A basic index."""
        parts: list[Any] = []
        for n in shape:
            what = self.rng.randrange(5)
            if what == 0 and n:
                parts.append(self.rng.randrange(-n, n))
            elif what <= 2:
                parts.append(slice(None))
            elif what == 3:
                a, b = sorted((self.rng.randint(0, n), self.rng.randint(0, n)))
                parts.append(slice(a, b, self.rng.choice((1, 1, 2))))
            else:
                parts.append(slice(None, None, self.rng.choice((-1, -2, 2))))
        if self.rng.random() < 0.1:
            parts.insert(self.rng.randint(0, len(parts)), None)
        return tuple(parts)

    def step(self) -> None:
        """One random statement."""
        getattr(self, self.rng.choice(self.statements))()

    def view(self) -> None:
        """A view of something."""
        k, tensor, array = self.pick()
        what = self.rng.randrange(7)
        if what <= 2:
            index = self.slices(array.shape)
            self.keep(tensor[index], array[(*index, ...)], f"p{k}[{index}]")
        elif what == 3:
            order = list(range(array.ndim))
            self.rng.shuffle(order)
            self.keep(tensor.permute(order), array.transpose(order), f"p{k}.permute({order})")
        elif what == 4 and array.ndim:
            axis = self.rng.randrange(array.ndim)
            self.keep(
                tensor.flip(axis), array[(slice(None),) * axis + (slice(None, None, -1), ...)], f"p{k}.flip({axis})"
            )
        elif what == 5 and array.size:
            shape = self.rng.choice(((-1,), (1, -1), (-1, 1)))
            moved = array.reshape(shape)
            self.keep(tensor.reshape(*shape), moved, f"p{k}.reshape({shape})")
        elif what == 6 and array.ndim >= 2:
            self.keep(tensor.diagonal(), _writable(array.diagonal()), f"p{k}.diagonal()")

    def bits(self) -> None:
        """The same bytes as another dtype."""
        k, tensor, array = self.pick()
        other = self.rng.choice(DTYPES)
        if array.ndim == 0 or other == np.float32 or array.dtype == np.float32:
            return
        try:
            moved = array.view(other)
        except ValueError:
            return
        if array.dtype.itemsize != np.dtype(other).itemsize and (
            array.strides[-1] != array.itemsize and array.shape[-1] != 1
        ):
            return
        from intaglio import dtypes

        try:
            cast = tensor.bitcast(dtypes.from_numpy(np.dtype(other)))
        except TypeError:
            return
        self.keep(cast, moved, f"p{k}.bitcast({np.dtype(other).name})")

    def number(self, array: np.ndarray[Any, Any]) -> int:
        """A number that every dtype holds."""
        return self.rng.randint(0, 9)

    def write_number(self) -> None:
        """A number into a view."""
        k, tensor, array = self.target()
        index = self.slices(array.shape)
        value = self.number(array)
        self.log.append(f"p{k}[{index}] = {value}")
        tensor[index] = value
        array[index] = value

    def write_value(self) -> None:
        """A value computed from something into a view."""
        k, tensor, array = self.target()
        index = self.slices(array.shape)
        target = array[index] if index else array[...]
        for _ in range(4):
            j, source, values = self.pick()
            fits = _broadcasts(values.shape, target.shape)
            if fits:
                add = self.number(values)
                self.log.append(f"p{k}[{index}] = p{j} + {add}")
                tensor[index] = source + add
                with np.errstate(all="ignore"):
                    array[index] = (values + np.asarray(add).astype(values.dtype)).astype(array.dtype)
                return

    def in_place(self) -> None:
        """An in-place operator on a view."""
        k, tensor, array = self.target()
        index = self.slices(array.shape)
        value = self.rng.randint(0, 3)
        what = self.rng.randrange(3)
        self.log.append(f"p{k}[{index}] {('+=', '*=', '-=')[what]} {value}")
        number = array.dtype.type(value)
        if what == 0:
            tensor[index] += value
            array[index] += number
        elif what == 1:
            tensor[index] *= value
            array[index] *= number
        else:
            tensor[index] -= value
            array[index] -= number

    def advanced(self) -> None:
        """A write at positions given as a list; the last of equals wins."""
        k, tensor, array = self.target()
        if not array.ndim or not array.shape[0]:
            return
        count = self.rng.randint(1, 4)
        places = [self.rng.randrange(-array.shape[0], array.shape[0]) for _ in range(count)]
        values = np.arange(count) * 3 + self.rng.randint(0, 5)
        shape = (count,) + (1,) * (array.ndim - 1)
        self.log.append(f"p{k}[{places}] = {values.tolist()}")
        tensor[places] = Tensor(values.reshape(shape))
        array[places] = values.reshape(shape).astype(array.dtype)

    def lazy_index(self) -> None:
        """A write at positions that are themselves computed."""
        k, tensor, array = self.target()
        if not array.ndim or not array.shape[0]:
            return
        n = array.shape[0]
        places = np.array([self.rng.randrange(n) for _ in range(3)])
        shift = self.rng.randint(0, 3)
        self.log.append(f"p{k}[(Tensor({places.tolist()}) + {shift}) % {n}] = 7")
        tensor[(Tensor(places) + shift) % n] = 7
        array[(places + shift) % n] = 7

    def take(self) -> None:
        """A read at positions."""
        k, tensor, array = self.pick()
        if not array.ndim or not array.shape[0]:
            return
        places = [self.rng.randrange(array.shape[0]) for _ in range(3)]
        self.keep(tensor[places], array[places].copy(), f"p{k}[{places}]")

    def mask(self) -> None:
        """A number where a condition holds."""
        k, tensor, array = self.target()
        if not array.ndim:
            return
        limit, value = self.rng.randint(0, 9), self.number(array)
        self.log.append(f"p{k}[p{k} > {limit}] = {value}")
        tensor[tensor > limit] = value
        array[array > limit] = value

    def overlap(self) -> None:
        """A copy of a tensor onto a shifted part of itself."""
        k, tensor, array = self.target()
        if not array.ndim or array.shape[0] < 2:
            return
        what = self.rng.randrange(4)
        self.log.append(f"overlap {what} on p{k}")
        if what == 0:
            tensor[1:] = tensor[:-1]
            array[1:] = array[:-1].copy()
        elif what == 1:
            tensor[:-1] = tensor[1:]
            array[:-1] = array[1:].copy()
        elif what == 2:
            tensor[:] = tensor.flip(0)
            array[:] = array[::-1].copy()
        elif array.ndim == 2 and array.shape[0] == array.shape[1]:
            tensor += tensor.permute(1, 0)
            array += array.T.copy()

    def compute(self) -> None:
        """A value that must stay what it is now."""
        k, tensor, array = self.pick()
        add = self.number(array)
        made = (array * array.dtype.type(2) + array.dtype.type(add)).astype(array.dtype)
        self.keep(tensor * 2 + add, _row_major(made), f"p{k} * 2 + {add}")

    def reduce(self) -> None:
        """A sum that must stay what it is now."""
        k, tensor, array = self.pick()
        if not array.ndim:
            return
        axis = self.rng.randrange(array.ndim)
        total = array.astype(np.int64).sum(axis) if array.dtype.kind in "iu" else array.sum(axis)
        if array.dtype.kind == "f" and np.abs(np.asarray(array)).sum() > 1e6:
            return
        self.keep(tensor.sum(axis), _row_major(total), f"p{k}.sum({axis})")

    def read(self) -> None:
        """Look at a value in the middle."""
        k, tensor, array = self.pick()
        self.log.append(f"read p{k}")
        self.compare(tensor, array)

    def forget(self) -> None:
        """Drop a handle."""
        if len(self.pairs) > 2:
            k = self.rng.randrange(len(self.pairs))
            self.log.append(f"forget p{k}")
            self.pairs[k] = self.pairs[-1] if k != len(self.pairs) - 1 else self.pairs[0]

    def assign(self) -> None:
        """One tensor assigned to another of its shape."""
        k, tensor, array = self.target()
        j, source, values = self.pick()
        if values.shape == array.shape:
            self.log.append(f"p{k}.assign(p{j})")
            tensor.assign(source)
            array[...] = values.copy().astype(array.dtype)

    def swap(self) -> None:
        """Two rows exchanged through views."""
        k, tensor, array = self.target()
        if not array.ndim or array.shape[0] < 2:
            return
        i, j = self.rng.sample(range(array.shape[0]), 2)
        self.log.append(f"swap rows {i} {j} of p{k}")
        kept, held = tensor[i] + 0, array[i] + array.dtype.type(0)
        tensor[i] = tensor[j]
        array[i] = array[j]
        tensor[j] = kept
        array[j] = held

    def loop(self) -> None:
        """Elements written one by one."""
        k, tensor, array = self.target()
        if array.ndim not in (1, 2) or max(array.shape) > 100:  # numbers up to the extent must fit every dtype
            return
        what = self.rng.randrange(4)
        step = self.rng.choice((1, 1, 2))
        j, source, values = self.pick()
        self.log.append(f"loop {what} by {step} over p{k} from p{j}")
        with np.errstate(all="ignore"):
            if array.ndim == 1:
                for i in range(0, array.shape[0], step):
                    if what == 0:
                        tensor[i] = i
                        array[i] = i
                    elif what == 1 and values.ndim == 1 and values.shape[0] >= array.shape[0]:
                        tensor[i] = source[i] * 2 + i
                        array[i] = (values[i] * values.dtype.type(2) + values.dtype.type(i)).astype(array.dtype)
                    elif what == 2:
                        tensor[i] += i
                        array[i] += array.dtype.type(i)
                    else:
                        tensor[-1 - i] = 5
                        array[-1 - i] = 5
            else:
                for i in range(0, array.shape[0], step):
                    if what <= 1:
                        for m in range(array.shape[1]):
                            tensor[i, m] = i + m
                            array[i, m] = i + m
                    elif what == 2:
                        tensor[i] = i
                        array[i] = i
                    else:
                        tensor[i] = tensor[i] + i
                        array[i] = array[i] + array.dtype.type(i)

    def recurrence(self) -> None:
        """Each element from the one before."""
        k, tensor, array = self.target()
        if array.ndim != 1 or array.shape[0] < 2:
            return
        coin = self.rng.random() < 0.4
        self.log.append(f"recurrence on p{k} coin {coin}")
        with np.errstate(all="ignore"):
            for i in range(1, array.shape[0]):
                if coin and self.rng.random() < 0.5:
                    tensor[i] = tensor[i - 1] * 2
                    array[i] = array[i - 1] * array.dtype.type(2)
                else:
                    tensor[i] = tensor[i - 1] + 1
                    array[i] = array[i - 1] + array.dtype.type(1)

    def turns(self) -> None:
        """A loop whose turns make temporaries: rows exchanged, compared, copied, cut in parts."""
        k, tensor, array = self.pick()
        if not array.ndim or array.shape[0] < 3:
            return
        what, n = self.rng.randrange(7), array.shape[0]
        order = [(i, i + 1) for i in range(n - 1)]
        if self.rng.random() < 0.4:
            order = [(self.rng.randrange(n), self.rng.randrange(n)) for _ in range(self.rng.randint(2, 12))]
        self.log.append(f"turns {what} of p{k} over {order}")
        kept: list[Tensor] = []
        held: list[Any] = []
        for i, j in order:
            a, b = array[i].copy(), array[j].copy()
            if what == 0:
                row = tensor[i].clone()
                tensor[i] = tensor[j]
                tensor[j] = row
            elif what == 1:
                row = tensor[i] + 0
                tensor[i] = tensor[j]
                tensor[j] = row
            elif what == 2:
                first, second = tensor[i], tensor[j]
                row = first.clone()
                first.assign(second)
                second.assign(row)
            else:
                low, high = tensor[i].minimum(tensor[j]), tensor[i].maximum(tensor[j])
                a, b = np.maximum(a, b), np.minimum(a, b)
                if what == 3:
                    row = low.clone()
                elif what == 4:
                    row = low + high
                    row -= high
                elif what == 5:
                    row = low.reshape(-1)[:].reshape(array.shape[1:])
                else:
                    row = low
                if self.rng.random() < 0.1:
                    kept.append(low)
                    held.append(b)
                tensor[i] = row
                tensor[j] = high
            array[i] = b
            array[j] = a
        for value, expected in zip(kept, held, strict=True):
            self.keep(value, expected, "what a turn kept")


class Wide(Programs):
    """Programs of axes that take whole vectors and something more."""

    extents = (1, 3, 9, 16, 17, 33, 65)


class Turning(Programs):
    """Programs whose loops make temporaries."""

    statements = WITH_TURNS


class Buffering(Programs):
    """Programs whose loops make buffers in each turn, write them in place, and use them."""

    statements = (*("buffers",) * 6, "view", "write_value", "in_place", "compute", "read", "forget", "make", "reduce")
    parts = (
        "cloned", "computed", "zeros", "carried", "add", "scale", "first", "element", "shift", "flip", "row", "number",
        "from_table", "into_table", "into_table", "onto_table", "turn_table", "exchange", "copy", "cover", "keep",
    )  # fmt: skip

    def buffers(self) -> None:
        """A loop over the rows of a table, or over neighbours of a vector: some parts, nearly the same in each turn."""
        k, tensor, array = self.pick()
        if not array.ndim or array.shape[0] < 2 or not array.size:
            return
        names = ["cloned", *self.rng.choices(self.parts, k=self.rng.randint(1, 5)), "into_table"]
        n = self.rng.randint(2, 9)
        regular = self.rng.random() < 0.7
        turns = [m if regular else self.rng.randrange(9) for m in range(n)]
        self.log.append(f"buffers of p{k}: {names} in turns {turns}")
        old: list[tuple[Tensor, Any]] = []
        for m in turns:
            i, j = m % (array.shape[0] - 1), (m + 1) % array.shape[0]
            made = [self._row(tensor, array, i)]
            made[0] = made[0][0].clone(), made[0][1].copy()
            for name in names[1:]:
                if self.rng.random() < 0.03:
                    self.log.append(f"turn {m} leaves out {name}")
                    continue
                self._part(name, tensor, array, (i, j, m), made, old)
            old = made

    def _row(self, tensor: Tensor, array: Any, i: int) -> tuple[Tensor, Any]:
        """A row, or two neighbours."""
        return (tensor[i], array[i]) if array.ndim > 1 else (tensor[i : i + 2], array[i : i + 2])

    def _part(
        self, name: str, tensor: Tensor, array: Any, turn: tuple[int, int, int], made: list[Any], old: list[Any]
    ) -> None:
        """One statement of a turn, on the buffers that it has made, and those of the turn before."""
        i, j, m = turn
        j = min(j, array.shape[0] - 2) if array.ndim == 1 else j
        r, a = made[-1]
        row, values = self._row(tensor, array, i)
        number = array.dtype.type
        match name:
            case "cloned":
                made.append((row.clone(), values.copy()))
            case "computed":
                made.append((row * 2 + m, values * number(2) + number(m)))
            case "zeros":
                made.append((r * 0, a * number(0)))
            case "carried":
                before, known = old[-1] if old else made[0]
                made.append((before + 1, known + number(1)))
            case "copy":
                made.append((r.clone(), a.copy()))
            case "add":
                r += m
                a += number(m)
            case "scale":
                r *= 2
                a *= number(2)
            case "cover":
                r[...] = row + r
                a[...] = values + a
            case "row":
                other, others = self._row(tensor, array, j)
                r += other
                a += others
            case "shift" if a.shape[0] > 1:
                r[1:] += r[:-1]
                a[1:] += a[:-1].copy()
            case "flip":
                r[:] = r.flip(0)
                a[:] = a[::-1].copy()
            case "first":
                r[0] = m
                a[0] = m
            case "element":
                r[-1] = r[0] * 2
                a[-1] = a[0] * number(2)
            case "number":
                for place in range(a.shape[0]):
                    r[place] = m + place
                    a[place] = m + place
            case "from_table":
                r[0] = row[-1] + r[-1]
                a[0] = values[-1] + a[-1]
            case "into_table":
                row[...] = r
                values[...] = a
            case "onto_table":
                other, others = self._row(tensor, array, j)
                other += r
                others += a
            case "turn_table":
                row[...] = row.flip(0) + 1
                values[...] = values[::-1] + number(1)
            case "exchange":
                row[0] = r[-1]
                row[-1] = r[0]
                values[0] = a[-1]
                values[-1] = a[0]
            case "keep" if self.rng.random() < 0.2:
                self.keep(r, a, f"the buffer of turn {m}")
            case _:
                pass


class Overwriting(Programs):
    """Programs most of whose writes are overwritten: whole or in parts, with and without a reader between."""

    statements = (
        *("cover",) * 10, *("view",) * 2, "write_value", "write_number", "in_place", "overlap", "loop", "recurrence",
        "compute", "compute", "reduce", "read", *("forget",) * 3, "lazy_index", "swap", "mask", "advanced", "bits",
        "take",
    )  # fmt: skip

    def cover(self) -> None:
        """All of a tensor, in parts: from itself, from something that only this write reads, or from something else."""
        k, tensor, array = self.pick()
        if not array.ndim or not array.shape[0]:
            return
        n = array.shape[0]
        middle = self.rng.randint(0, n)
        parts = self.rng.choice(
            (
                [slice(None)],
                [slice(None, None, -1)],
                [slice(0, middle), slice(middle, n)],
                [slice(middle, n), slice(0, middle)],
                [slice(0, n, 2), slice(1, n, 2)],
                [slice(i, i + 1) for i in range(n)],
                [*range(n)],
                [slice(0, middle), slice(middle + 1, n)],
            )
        )
        what, add = self.rng.randrange(4), self.number(array)
        self.log.append(f"p{k}[part] = {('itself', 'a temporary', 'a number', 'a copy')[what]} + {add}, for {parts}")
        number = array.dtype.type(add)
        for part in parts:
            if what == 0:
                tensor[part] = tensor[part] * 2 + add
                array[part] = array[part] * array.dtype.type(2) + number
            elif what == 1:
                temporary, copy = (tensor + 1)[part], (array + array.dtype.type(1))[part]
                temporary[...] = temporary + add
                tensor[part] = temporary
                array[part] = copy + number
            elif what == 2:
                tensor[part] = add
                array[part] = add
            else:
                tensor[part] = tensor[part].clone() + add
                array[part] = array[part] + number


def _writable(array: Any) -> Any:
    """NumPy's diagonal, made writable."""
    if isinstance(array, np.ndarray):
        array.flags.writeable = True
    return array


def _row_major(array: Any) -> Any:
    """A fresh array laid out as a tensor's is: NumPy keeps the order of a permuted operand, so reshapes would copy."""
    return np.asarray(array, order="C") if isinstance(array, (np.ndarray, np.generic)) else array


def _array(value: Any) -> Any:
    """NumPy's scalar as an array."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether a value's shape goes into a target's."""
    if len(shape) > len(target):
        return False
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(target), strict=False))
