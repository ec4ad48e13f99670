"""Random programs of odd sizes and of every kind of dtype, run on tensors and on NumPy arrays side by side.

The numbers are whole and small, so that sums and products are exact in any order. A bfloat16 stands in NumPy as the
float32 that it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from intaglio import DType, DTypeError, Tensor, dtypes

if TYPE_CHECKING:
    import random

Array: TypeAlias = "np.ndarray[Any, Any]"
Pair: TypeAlias = tuple[Tensor, Array]

SIZES: Final = (1, 2, 3, 5, 7, 17, 33, 65)
LARGEST: Final = 20_000  # elements of a tensor
EXACT: Final = 1 << 14  # what magnitudes stay below where a sum must be exact
DTYPES: Final = (
    dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint64,
    dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64,
)  # fmt: skip
COMPUTED: Final = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "lt": np.less, "ge": np.greater_equal, "eq": np.equal,
}  # fmt: skip
REDUCED: Final = ("sum", "max", "min", "any", "all", "prod", "argmax", "argmin", "cumsum")
STATEMENTS: Final = (
    *("view",) * 3, *("write",) * 2, "number", *("in_place",) * 2, *("reduce",) * 3, *("multiply",) * 3,
    *("compute",) * 3, "accumulate", "convert", "mask", "take", "put", "join", "order", "make", "read",
)  # fmt: skip


def host(dtype: DType) -> type[np.generic]:
    """The NumPy scalar type that stands for a dtype."""
    return np.float32 if dtype is dtypes.bfloat16 else np.dtype(dtype.name).type


def fit(values: Any, dtype: DType) -> Array:
    """Values as a dtype has them: rounded to nearest even, or wrapped."""
    values = np.asarray(values)
    if dtype.is_bool:
        return values != 0
    if dtype.is_int and values.dtype.kind == "f":
        values = values.astype(np.int64)
    if dtype is dtypes.bfloat16:
        bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    return values.astype(host(dtype))


def wide(values: Array) -> Array:
    """Values in a dtype in which nothing of them is lost."""
    return values if values.dtype == np.uint64 else values.astype(np.float64 if values.dtype.kind == "f" else np.int64)


def is_exact(values: Any) -> bool:
    """Whether floats are whole and small."""
    values = np.asarray(values)
    if values.dtype.kind != "f":
        return True
    return bool(np.all(np.isfinite(values)) and np.all(np.abs(values) < EXACT) and np.all(values == np.rint(values)))


class OddPrograms:
    """One program in the making: pairs of a tensor and the array that it must equal."""

    def __init__(self, rng: random.Random, steps: int = 12) -> None:
        self.rng: Final = rng
        self.steps: Final = steps
        self.pairs: Final[list[Pair]] = []
        self.log: Final[list[str]] = []

    def run(self) -> None:
        """Make, step, then compare everything in another order."""
        with np.errstate(all="ignore"):  # integers wrap, as tensors' do
            self.make()
            for _ in range(self.rng.randint(2, self.steps)):
                getattr(self, self.rng.choice(STATEMENTS))()
        order = list(range(len(self.pairs)))
        self.rng.shuffle(order)
        for number in order:
            self.compare(number)

    def compare(self, number: int) -> None:
        """A tensor must equal its array."""
        tensor, array = self.pairs[number]
        got = (tensor.cast(dtypes.float32) if tensor.dtype is dtypes.bfloat16 else tensor).numpy()
        told = "\n".join([*self.log, f"p{number} is\n{got}\nexpected\n{array}"])
        assert (got.shape, got.dtype) == (array.shape, array.dtype), told
        assert np.array_equal(got, array), told

    def keep(self, tensor: Tensor, array: Any, text: str) -> None:
        """Remember a pair, if its numbers are exact."""
        if is_exact(array):
            self.log.append(f"p{len(self.pairs)} = {text}  # {tensor.dtype.name}{list(tensor.shape)}")
            self.pairs.append((tensor, array if isinstance(array, np.ndarray) else np.array(array)))

    def fresh(self, shape: tuple[int, ...], dtype: DType) -> Pair:
        """A new tensor, remembered."""
        draw = np.random.default_rng(self.rng.randrange(1 << 30))
        raw = draw.integers(0 if dtype.is_bool or dtype.kind == "uint" else -3, 2 if dtype.is_bool else 4, shape)
        self.keep(Tensor(raw, dtype=dtype), fit(raw, dtype), "make")
        return self.pairs[-1]

    def make(self) -> None:
        """A tensor of some shape and dtype; some are empty."""
        shape = [self.rng.choice(SIZES) for _ in range(self.rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)))]
        while np.prod(shape, dtype=int) > LARGEST:
            shape.pop()
        if shape and self.rng.random() < 0.1:
            shape[self.rng.randrange(len(shape))] = 0
        self.fresh(tuple(shape), self.rng.choice(DTYPES))

    def spread(self, shape: tuple[int, ...], dtype: DType) -> Pair:
        """A new tensor that broadcasts to a shape."""
        own = [n if self.rng.random() < 0.75 else 1 for n in shape]
        return self.fresh(tuple(own[self.rng.randint(0, len(own)) if self.rng.random() < 0.2 else 0 :]), dtype)

    def pick(self, least: int = 0) -> tuple[int, Tensor, Array]:
        """A pair at random, of so many axes at least."""
        if all(tensor.ndim < least for tensor, _ in self.pairs):
            self.fresh((5, 3), dtypes.float32)
        number = self.rng.choice([k for k, (tensor, _) in enumerate(self.pairs) if tensor.ndim >= least])
        return number, *self.pairs[number]

    def seen(self, tensor: Tensor, array: Array) -> Pair:
        """A view of a pair, or the pair."""
        rng = self.rng
        for _ in range(rng.randint(0, 2)):
            kind = rng.choice(("slice", "slice", "permute", "flip", "diagonal", "unfold", "unsqueeze"))
            self.log.append(f"  of {kind}, {tensor.shape}")
            if kind == "slice" and tensor.ndim:
                index = tuple(self.part(n) for n in tensor.shape[: rng.randint(1, tensor.ndim)])
                tensor, array = tensor[index], array[(*index, ...)]
                self.log.append(f"  {index}")
            elif kind == "permute":
                axes = rng.sample(range(tensor.ndim), tensor.ndim)
                tensor, array = tensor.permute(*axes), array.transpose(axes)
            elif kind == "flip" and tensor.ndim:
                axis = rng.randrange(tensor.ndim)
                tensor, array = tensor.flip(axis), np.flip(array, axis)
            elif kind == "diagonal" and tensor.ndim > 1:
                shape, steps = array.shape, array.strides
                shape = (*shape[2:], min(shape[:2]))
                tensor = tensor.diagonal()
                array = np.lib.stride_tricks.as_strided(array, shape, (*steps[2:], steps[0] + steps[1]))
            elif kind == "unfold" and tensor.ndim and tensor.shape[-1] > 1:
                size = rng.randint(1, min(3, tensor.shape[-1]))
                step = size + rng.randint(0, 2)
                tensor = tensor.unfold(-1, size, step)
                windows = np.lib.stride_tricks.sliding_window_view(array, size, axis=-1, writeable=True)
                array = windows[..., ::step, :]
            elif kind == "unsqueeze":
                tensor, array = tensor.unsqueeze(0), array[None]
        return tensor, array

    def part(self, n: int) -> int | slice:
        """An index of an axis; steps go either way."""
        if n and self.rng.random() < 0.2:
            return self.rng.randrange(-n, n)
        ends = [self.rng.choice((None, self.rng.randint(-n - 1, n + 1))) for _ in range(2)]
        return slice(*ends, self.rng.choice((1, 1, 2, 3, -1, -1, -2, -3)))

    # -- statements

    def view(self) -> None:
        number, tensor, array = self.pick()
        self.keep(*self.seen(tensor, array), f"a view of p{number}")

    def read(self) -> None:
        number, _, _ = self.pick()
        self.log.append(f"read p{number}")
        self.compare(number)

    def number(self) -> None:
        number, tensor, array = self.pick()
        target, into = self.seen(tensor, array)
        value = bool(self.rng.randint(0, 1)) if tensor.dtype.is_bool else self.rng.randint(0, 3)
        self.log.append(f"p{number} view[...] = {value}")
        target[...] = value
        into[...] = value

    def write(self) -> None:
        number, tensor, array = self.pick()
        target, into = self.seen(tensor, array)
        unsigned = tensor.dtype.kind == "uint"
        dtype = tensor.dtype if unsigned else self.rng.choice((tensor.dtype, dtypes.int8, dtypes.float32))
        value, given = self.spread(target.shape, dtype)
        self.log.append(f"p{number} view[...] = p{len(self.pairs) - 1}")
        target[...] = value
        into[...] = fit(given, tensor.dtype)

    def in_place(self) -> None:
        number, tensor, array = self.pick()
        if tensor.dtype.is_bool:
            return
        target, into = self.seen(tensor, array)
        value, given = self.spread(target.shape, tensor.dtype)
        name = self.rng.choice(("add", "sub", "mul"))
        result = fit(COMPUTED[name](into, given), tensor.dtype)
        if is_exact(result):
            self.log.append(f"p{number} view {name}= p{len(self.pairs) - 1}")
            target[...] = getattr(target, name)(value)
            into[...] = result

    def reduce(self) -> None:
        number, tensor, array = self.pick(1)
        tensor, array = self.seen(tensor, array)
        name = self.rng.choice(REDUCED)
        axis: Any = None
        if tensor.ndim and (name == "cumsum" or self.rng.random() < 0.8):
            axis = tuple(self.rng.sample(range(tensor.ndim), self.rng.randint(1, tensor.ndim)))
            axis = axis[0] if name in ("prod", "argmax", "argmin", "cumsum") else axis
        of = range(tensor.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        size = int(np.prod([tensor.shape[a] for a in of], dtype=int))
        if (name in ("max", "min", "argmax", "argmin") and not size) or (name == "prod" and size > 8):
            return
        kept = {} if name == "cumsum" else {"keepdims": self.rng.random() < 0.4}
        if name == "cumsum" and axis is None:
            return
        got = getattr(tensor, name)(axis, **kept)
        exact = array if tensor.dtype.is_bool and name in ("max", "min") else wide(array)
        self.keep(got, fit(getattr(np, name)(exact, axis=axis, **kept), got.dtype), f"{name} of p{number}, {axis}")

    def compute(self) -> None:
        number, tensor, array = self.pick()
        tensor, array = self.seen(tensor, array)
        other, given = self.spread(tensor.shape, self.rng.choice(DTYPES))
        name = self.rng.choice([*COMPUTED])
        try:
            got = getattr(tensor, name)(other)
            common = tensor.maximum(other).dtype
        except DTypeError:  # no difference of bools, no dtype for int64 with uint64
            return
        want = fit(COMPUTED[name](fit(array, common), fit(given, common)), got.dtype)
        self.keep(got, want, f"p{number} view {name} p{len(self.pairs) - 1}")

    def convert(self) -> None:
        number, tensor, array = self.pick()
        dtype = self.rng.choice(DTYPES)
        if dtype.kind == "uint" and tensor.dtype.is_float and (array < 0).any():
            return
        self.keep(tensor.cast(dtype), fit(array, dtype), f"p{number}.cast({dtype.name})")

    def mask(self) -> None:
        number, tensor, array = self.pick(1)
        value = bool(self.rng.randint(0, 1)) if tensor.dtype.is_bool else self.rng.randint(0, 1)
        self.log.append(f"p{number}[p{number} > 1] = {value}")
        tensor[tensor > 1] = value
        array[array.astype(np.float64) > 1] = value

    def take(self) -> None:
        number, tensor, array = self.pick(1)
        if tensor.shape[0]:
            places = [self.rng.randrange(-tensor.shape[0], tensor.shape[0]) for _ in range(self.rng.choice(SIZES))]
            index = self.rng.choice((places, Tensor(places), Tensor(places) * 1))
            self.keep(tensor[index], array[places], f"p{number}[{places}]")

    def put(self) -> None:
        number, tensor, array = self.pick(1)
        if tensor.shape[0]:
            places = [self.rng.randrange(tensor.shape[0]) for _ in range(self.rng.choice((1, 2, 3, 5)))]
            value, given = self.spread((len(places), *tensor.shape[1:]), tensor.dtype)
            self.log.append(f"p{number}[{places}] = p{len(self.pairs) - 1}")
            tensor[Tensor(places)] = value
            for place, row in zip(places, np.broadcast_to(given, (len(places), *array.shape[1:])), strict=True):
                array[place] = row

    def join(self) -> None:
        number, tensor, array = self.pick(1)
        axis = self.rng.randrange(tensor.ndim)
        shape = [*tensor.shape]
        shape[axis] = self.rng.choice((0, 1, 3, 5))
        other, given = self.fresh(tuple(shape), tensor.dtype)
        self.keep(Tensor.cat(tensor, other, dim=axis), np.concatenate([array, given], axis), f"cat p{number}, {axis}")

    def order(self) -> None:
        number, tensor, array = self.pick(1)
        axis = self.rng.randrange(tensor.ndim)
        self.keep(tensor.sort(axis)[0], np.sort(array, axis), f"sort p{number}, {axis}")

    # -- products

    def factor(self, shape: tuple[int, ...], dtype: DType) -> Pair:
        """A matrix, by one of some ways of seeing another."""
        *batch, rows, columns = shape
        match self.rng.randrange(6):
            case 0:
                tensor, array = self.fresh((*batch, columns, rows), dtype)
                return tensor.transpose(-1, -2), array.swapaxes(-1, -2)
            case 1:
                tensor, array = self.fresh((*batch, rows, 2 * columns), dtype)
                return tensor[..., ::2], array[..., ::2]
            case 2:
                tensor, array = self.fresh(shape, dtype)
                return tensor.flip(-1), np.flip(array, -1)
            case 3:
                tensor, array = self.fresh((*batch, rows + 3, columns + 2), dtype)
                return tensor[..., 2:-1, 1:-1], array[..., 2:-1, 1:-1]
            case 4:
                tensor, array = self.fresh((*batch, rows, 1), dtype)
                return tensor.expand(*shape), np.broadcast_to(array, shape)
            case _:
                return self.fresh(shape, dtype)

    def product(self) -> tuple[Tensor, Array] | None:
        """A product of some matrices; None where it is not exact."""
        sizes = [self.rng.choice(SIZES) for _ in range(3)]
        if self.rng.random() < 0.05:
            sizes[self.rng.randrange(3)] = 0
        rows, columns, depth = sizes
        dtype = self.rng.choice(DTYPES[1:])
        batch = self.rng.choice(((), (), (2,), (3,), (5, 1)))
        x, left = self.factor((*batch, rows, depth), dtype)
        y, right = self.factor((*self.rng.choice(((), batch)), depth, columns), dtype)
        if self.rng.random() < 0.25:
            x, left = x * 2 + 1, fit(left * 2 + 1, dtype)
        want = wide(left) @ wide(right)
        return (x @ y, fit(want, dtype)) if is_exact(want) else None

    def multiply(self) -> None:
        found = self.product()
        if found is None:
            return
        got, want = found
        match self.rng.randrange(4):
            case 0:
                bias, given = self.spread(got.shape[-1:], got.dtype)
                got, want = (got + bias).maximum(0), np.maximum(fit(want + given, got.dtype), 0)
            case 1 if got.shape[0]:
                got, want = got.max(0), want.max(0)
            case 2:
                got, want = got.transpose(-1, -2), want.swapaxes(-1, -2)
            case _:
                pass
        self.keep(got, want.astype(host(got.dtype)), "a product")

    def accumulate(self) -> None:
        """A product added to a part of a tensor."""
        found = self.product()
        if found is None:
            return
        got, want = found
        target, into = self.fresh(tuple(n + 2 for n in got.shape), got.dtype)
        inside = (slice(1, -1),) * got.ndim
        result = fit(into[inside] + want, got.dtype)
        if is_exact(result):
            self.log.append(f"p{len(self.pairs) - 1} inside += a product")
            target[inside] += got
            into[inside] = result
