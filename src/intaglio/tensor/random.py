"""Random tensors: Threefry-2x32 on counters, so that the numbers depend on the seed and the statement alone.

Source: Salmon, Moraes, Dror & Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Final

import numpy as np

from intaglio.core.dtypes import DType, DTypeLike, dtypes
from intaglio.core.errors import DTypeError, ShapeError, ValueRangeError
from intaglio.core.locks import Level, across_forks
from intaglio.ops import elementwise as ops
from intaglio.ops.memory import const, iota
from intaglio.ops.movement import reshape
from intaglio.tensor.arguments import flag, integer, is_listed, not_negative, number
from intaglio.tensor.creation import device_name, wanting
from intaglio.tensor.movement import flat_ints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.ir.node import Node
    from intaglio.tensor.tensor import Tensor

u32: Final = dtypes.uint32
ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY: Final = 0x1BD11BDA


class Generator:
    """The seed, and how many numbers have been taken since it was set."""

    def __init__(self) -> None:
        self.seed: int = 0
        self.counter: int = 0
        self._lock: Final = across_forks(threading.Lock(), Level.LEAF)

    def take(self, count: int) -> tuple[int, int]:
        """(seed, first counter) for numbers that nobody else gets."""
        with self._lock:
            first = self.counter
            self.counter += count
            return self.seed, first

    def restart(self, seed: int) -> None:
        """Set the seed and start over."""
        with self._lock:
            self.seed, self.counter = seed, 0


generator: Final = Generator()


def manual_seed(seed: int = 0) -> None:
    """Start the random numbers over from a seed.

    Args:
        seed: Any integer.
    Raises: DTypeError if it is none.
    Examples:
        >>> Tensor.manual_seed(1)
        >>> a = Tensor.rand(3).tolist()
        >>> Tensor.manual_seed(1)
        >>> a == Tensor.rand(3).tolist()
        True
    """
    generator.restart(integer("manual_seed", "the seed", seed))


def _number(value: int) -> Node:
    """A uint32 constant."""
    return const(u32, value & 0xFFFFFFFF)


def threefry(first: Node, second: Node, key: tuple[int, int]) -> tuple[Node, Node]:
    """Two uint32 counters enciphered by twenty rounds."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ PARITY)
    x = ops.add(first, _number(keys[0]))
    y = ops.add(second, _number(keys[1]))
    for block in range(5):
        for turn in ROTATIONS[block % 2]:
            x = ops.add(x, y)
            y = ops.or_(ops.shl(y, _number(turn)), ops.shr(y, _number(32 - turn)))
            y = ops.xor(y, x)
        x = ops.add(x, _number(keys[(block + 1) % 3]))
        y = ops.add(y, _number(keys[(block + 2) % 3] + block + 1))
    return x, y


def _bits(count: int) -> tuple[Node, Node]:
    """Two words of 32 random bits for each of `count` numbers."""
    seed, start = generator.take(count)
    place = ops.add(iota(count), const(dtypes.int64, start))
    low = ops.cast(place, u32)
    high = ops.cast(ops.shr(place, const(dtypes.int64, 32)), u32)
    return threefry(low, high, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF))


def _unit(words: Node, dtype: DType, more: Node | None = None) -> Node:
    """Words as numbers in [0, 1): as many upper bits as the dtype holds (of float64: 32, or 53 with further words)."""
    if dtype is dtypes.float64:
        if more is None:
            return ops.mul(ops.cast(words, dtype), const(dtype, 2.0**-32))
        upper = ops.mul(ops.cast(ops.shr(words, _number(5)), dtype), const(dtype, 2.0**26))
        return ops.mul(ops.add(upper, ops.cast(ops.shr(more, _number(6)), dtype)), const(dtype, 2.0**-53))
    kept = {dtypes.float16: 11, dtypes.bfloat16: 8}.get(dtype, 24)
    wide = ops.mul(ops.cast(ops.shr(words, _number(32 - kept)), dtypes.float32), const(dtypes.float32, 2.0**-kept))
    return ops.cast(wide, dtype)


def rand(
    cls: type[Tensor],
    *shape: object,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers uniform in [0, 1).

    Args:
        shape: Extents, one by one or as one sequence.
        dtype: The element type; by default the default float, float32.
        device: Where; by default the configured device.
        requires_grad: Whether gradients are wanted for it.
    Raises: ShapeError if an extent is negative; DTypeError if it is no integer.
    Examples:
        >>> t = Tensor.rand(100)
        >>> t.min().item() >= 0, t.max().item() < 1
        (True, True)
    """
    return wanting(_rand("rand", cls, flat_ints("rand", shape), dtype, device), "rand", requires_grad)


def _rand(name: str, cls: type[Tensor], shape: tuple[int, ...], dtype: DTypeLike | None, device: str | None) -> Tensor:
    """Numbers uniform in [0, 1), for a named op."""
    chosen = dtypes.of(dtype, dtypes.default_float, name)
    _check_float(name, chosen)
    first, second = _bits(_count(name, shape))
    return cls._from_node(reshape(_unit(first, chosen, second), shape), device_name(device))


def _count(name: str, shape: tuple[int, ...]) -> int:
    """How many numbers a shape takes.

    Raises: ShapeError if an extent is negative.
    """
    if any(n < 0 for n in shape):
        raise ShapeError(f"{name}: extents must not be negative; got {shape}. Give 0 or more?")
    return math.prod(shape)


def randn(
    cls: type[Tensor],
    *shape: object,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers of the normal distribution with mean 0 and variance 1, by Box and Muller.

    Args:
        shape: Extents, one by one or as one sequence.
        dtype: The element type; by default the default float, float32.
        device: Where; by default the configured device.
        requires_grad: Whether gradients are wanted for it.
    Raises: ShapeError if an extent is negative; DTypeError if it is no integer.
    Source: Box & Muller, A note on the generation of random normal deviates, Ann. Math. Stat. 29, 1958.
    Examples:
        >>> Tensor.manual_seed(0)
        >>> abs(Tensor.randn(1000).mean().item()) < 0.1
        True
    """
    return wanting(_randn("randn", cls, flat_ints("randn", shape), dtype, device), "randn", requires_grad)


def _randn(name: str, cls: type[Tensor], shape: tuple[int, ...], dtype: DTypeLike | None, device: str | None) -> Tensor:
    """Numbers of the normal distribution, for a named op."""
    chosen = dtypes.of(dtype, dtypes.default_float, name)
    _check_float(name, chosen)
    first, second = _bits(_count(name, shape))
    inner = dtypes.float64 if chosen is dtypes.float64 else dtypes.float32
    radius = ops.sqrt(ops.mul(ops.log(ops.sub(const(inner, 1), _unit(first, inner))), const(inner, -2)))
    angle = ops.mul(_unit(second, inner), const(inner, 2 * math.pi))
    return cls._from_node(reshape(ops.cast(ops.mul(radius, ops.cos(angle)), chosen), shape), device_name(device))


def randint(
    cls: type[Tensor],
    *shape: object,
    low: int = 0,
    high: int = 10,
    size: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """Whole numbers uniform in [low, high), int64: `randint(2, low=0, high=9)`, or PyTorch's `randint(0, 9, (2,))`.

    Args:
        shape: Extents; or high, or low and high, before a sequence of extents (which may also be named `size`).
        low: The least number.
        high: What they are less than.
        size: The extents, if they are not given before.
        dtype: The element type; by default int64.
        device: Where; by default the configured device.
    Raises: ValueRangeError if the range is empty, or the dtype cannot hold it.
    Examples:
        >>> Tensor.randint(10, 11, (2, 2)).tolist(), Tensor.randint(2, low=5, high=6).tolist()
        ([[10, 10], [10, 10]], [5, 5])
    """
    ends: tuple[object, ...] = (low, high)
    if size is None and len(shape) in (2, 3) and is_listed(shape[-1]):
        shape, size = shape[:-1], shape[-1]
    if size is not None:
        if len(shape) not in (1, 2):
            raise ShapeError(
                f"randint: before the size, high or low and high are wanted; got {shape}. "
                "Write randint(low, high, (2, 3))?"
            )
        ends, shape = (0, *shape)[-2:], (size,)
    low, high = integer("randint", "low", ends[0]), integer("randint", "high", ends[1])
    extents = flat_ints("randint", shape)
    chosen = dtypes.of(dtype, dtypes.int64, "randint")
    if high <= low:
        raise ValueRangeError(f"randint: high must be above low; got [{low}, {high}). Exchange or widen them?")
    if not (chosen.fits(low) and chosen.fits(high - 1)):
        raise ValueRangeError(
            f"randint: the dtype must hold the range; {chosen.name} cannot hold [{low}, {high}). Give a wider dtype?"
        )
    first, second = _bits(_count("randint", extents))
    wide = ops.or_(
        ops.shl(ops.cast(ops.shr(first, _number(1)), dtypes.int64), const(dtypes.int64, 32)),
        ops.cast(second, dtypes.int64),
    )
    node = ops.add(ops.mod(wide, const(dtypes.int64, high - low)), const(dtypes.int64, low))
    return cls._from_node(reshape(ops.cast(node, chosen), extents), device_name(device))


def uniform(
    cls: type[Tensor],
    *shape: object,
    low: float = 0.0,
    high: float = 1.0,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers uniform in [low, high).

    Args:
        shape: Extents, one by one or as one sequence.
        low: The lower bound, which may come.
        high: The upper bound, which does not.
        dtype: The element type; by default the default float, float32.
        device: Where; by default the configured device.
        requires_grad: Whether gradients are wanted for it.
    Raises: ShapeError if an extent is negative; DTypeError if it is no integer.
    Examples:
        >>> t = Tensor.uniform(100, low=2.0, high=3.0)
        >>> t.min().item() >= 2, t.max().item() <= 3
        (True, True)
    """
    first, last = number("uniform", "low", low), number("uniform", "high", high)
    if first > last:
        raise ValueRangeError(f"uniform: high must not be below low; got [{first}, {last}). Exchange them?")
    return _uniform("uniform", cls, flat_ints("uniform", shape), first, last, dtype, device, requires_grad)


def scaled_uniform(
    cls: type[Tensor],
    *shape: object,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers uniform within 1 / sqrt(the number of elements) of 0, as tinygrad's.

    Args:
        shape: Extents, one by one or as one sequence.
        dtype: The element type; by default the default float, float32.
        device: Where; by default the configured device.
        requires_grad: Whether gradients are wanted for it.
    Raises: ShapeError if an extent is negative; DTypeError if it is no integer.
    Examples:
        >>> Tensor.scaled_uniform(4, 4).abs().max().item() <= 0.25
        True
    """
    extents = flat_ints("scaled_uniform", shape)
    bound = max(1, math.prod(extents)) ** -0.5
    return _uniform("scaled_uniform", cls, extents, -bound, bound, dtype, device, requires_grad)


def glorot_uniform(
    cls: type[Tensor],
    *shape: object,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers uniform within sqrt(6 / (in + out)) of 0; out is the first axis, in the product of the others.

    Args:
        shape: Extents, one by one or as one sequence.
        dtype: The element type; by default the default float, float32.
        device: Where; by default the configured device.
        requires_grad: Whether gradients are wanted for it.
    Raises: ShapeError if an extent is negative; DTypeError if it is no integer.
    Source: Glorot & Bengio, Understanding the difficulty of training deep feedforward neural networks, AISTATS 2010.
    Examples:
        >>> Tensor.glorot_uniform(2, 4).abs().max().item() <= 1.0
        True
    """
    extents = flat_ints("glorot_uniform", shape)
    bound = math.sqrt(6 / max(1, math.prod(extents[:1]) + math.prod(extents[1:])))
    return _uniform("glorot_uniform", cls, extents, -bound, bound, dtype, device, requires_grad)


def kaiming_uniform(
    cls: type[Tensor],
    *shape: object,
    a: float = 0.01,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers uniform within sqrt(6 / ((1 + a * a) * in)) of 0; in is the product of all axes but the first.

    Args:
        shape: Extents, one by one or as one sequence.
        a: The slope below 0 of the leaky ReLU that follows.
        dtype: The element type; by default the default float, float32.
        device: Where; by default the configured device.
        requires_grad: Whether gradients are wanted for it.
    Raises: ShapeError if an extent is negative; DTypeError if it is no integer.
    Source: He, Zhang, Ren & Sun, Delving deep into rectifiers, ICCV 2015.
    Examples:
        >>> Tensor.kaiming_uniform(5, 6, a=0).abs().max().item() <= 1.0
        True
    """
    extents = flat_ints("kaiming_uniform", shape)
    slope = number("kaiming_uniform", "a", a)
    bound = math.sqrt(6 / ((1 + slope * slope) * max(1, math.prod(extents[1:]))))
    return _uniform("kaiming_uniform", cls, extents, -bound, bound, dtype, device, requires_grad)


def _uniform(
    name: str,
    cls: type[Tensor],
    shape: tuple[int, ...],
    low: float,
    high: float,
    dtype: DTypeLike | None,
    device: str | None,
    requires_grad: bool,
) -> Tensor:
    """Numbers uniform in [low, high), for a named op."""
    return wanting(_rand(name, cls, shape, dtype, device) * (high - low) + low, name, requires_grad)


def normal(
    cls: type[Tensor],
    *shape: object,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """Numbers of a normal distribution.

    Args:
        shape: Extents, one by one or as one sequence.
        mean: Their mean.
        std: Their standard deviation.
        dtype: The element type; by default the default float, float32.
        device: Where; by default the configured device.
    Raises: ShapeError if an extent is negative; DTypeError if it is no integer; ValueRangeError if `std` is negative.
    Examples:
        >>> Tensor.normal(3, mean=5.0, std=0.0).tolist()
        [5.0, 5.0, 5.0]
    """
    width, center = number("normal", "std", std), number("normal", "mean", mean)
    if width < 0:
        raise ValueRangeError(f"normal: std must not be negative; got {width}. Is {-width} meant?")
    return _randn("normal", cls, flat_ints("normal", shape), dtype, device) * width + center


def _check_float(name: str, dtype: DType) -> None:
    """Raise unless a dtype is a float that can be computed with."""
    if not dtype.is_float or dtype in (dtypes.float8_e4m3, dtypes.float8_e5m2):
        raise DTypeError(
            f"{name}: the dtype must be a float that can be computed with; got {dtype.name}. Use randint, or cast?"
        )


def rand_like(self: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """Numbers uniform in [0, 1), of this tensor's shape.

    Args:
        dtype: The element type; by default this tensor's.
    Examples:
        >>> Tensor.zeros(2, 3).rand_like().shape
        (2, 3)
    """
    return _rand("rand_like", self.__class__, self.shape, dtypes.of(dtype, self.dtype, "rand_like"), self._near)


def randn_like(self: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """Numbers of the normal distribution, of this tensor's shape.

    Args:
        dtype: The element type; by default this tensor's.
    Examples:
        >>> Tensor.zeros(2, 3).randn_like().shape
        (2, 3)
    """
    return _randn("randn_like", self.__class__, self.shape, dtypes.of(dtype, self.dtype, "randn_like"), self._near)


def bernoulli(self: Tensor, p: float | None = None) -> Tensor:
    """1 with a probability, else 0, in this tensor's shape and dtype.

    Args:
        p: The probability of each; by default, each element is its own.
    Raises: ValueRangeError if it is given outside [0, 1]; DTypeError if the elements are to be it and are no floats.
    Examples:
        >>> Tensor([0.0, 1.0]).bernoulli().tolist()
        [0.0, 1.0]
    """
    if p is None:
        if not self.dtype.is_float:
            raise DTypeError(f"bernoulli: probabilities must be floats; they are {self.dtype.name}. Give p?")
        return (rand_like(self, dtypes.float32) < self).cast(self.dtype)
    chance = number("bernoulli", "p", p)
    if not 0 <= chance <= 1:
        raise ValueRangeError(f"bernoulli: the probability must be in [0, 1]; got {chance}. Is it in percent?")
    return (rand_like(self, dtypes.float32) < chance).cast(self.dtype)


def randperm(cls: type[Tensor], n: int, *, device: str | None = None) -> Tensor:
    """The numbers 0 .. n-1 in random order, int64. Computes the order.

    Args:
        n: How many.
        device: Where; by default the configured device.
    Raises: ShapeError if n is negative.
    Examples:
        >>> sorted(Tensor.randperm(5).tolist())
        [0, 1, 2, 3, 4]
    """
    count = integer("randperm", "n", n)
    return _rand("randperm", cls, (count,), dtypes.float64, device).argsort()


def multinomial(self: Tensor, num_samples: int = 1, replacement: bool = False) -> Tensor:
    """Positions drawn by weights (of one vector, or of each row), int64. Computes the weights.

    Args:
        num_samples: How many for each row.
        replacement: Whether a position may be drawn twice.
    Raises: ShapeError unless there is a vector or rows; ValueRangeError where a weight is negative, infinite or NaN, or
        fewer of a row are above 0 than are to be drawn.
    Examples:
        >>> sorted(Tensor([1.0, 0.0, 2.0]).multinomial(2).tolist())
        [0, 2]
    """
    count = integer("multinomial", "the number of samples", num_samples)
    if self.ndim not in (1, 2):
        raise ShapeError(
            f"multinomial: the weights must be a vector or rows; got shape {self.shape}. Reshape them to (-1, "
            f"{self.shape[-1] if self.shape else 1})?"
        )
    not_negative("multinomial", "the number of samples", count)
    weights = self.cast(dtypes.float64).numpy()
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueRangeError("multinomial: weights must be finite and not negative; some are not. Use softmax first?")
    needed = min(count, 1) if flag("multinomial", "replacement", replacement) else count
    fewest = int((weights > 0).sum(-1).min(initial=weights.shape[-1]))
    if not 0 <= needed <= fewest:
        raise ValueRangeError(
            f"multinomial: as many weights must be above 0 as are drawn; {count} drawn, {fewest} above 0. "
            f"{'Give a weight above 0' if replacement else 'Draw fewer, or with replacement=True'}?"
        )
    if not replacement and count > 1:
        draws = _exponential(self)
        return (self / draws).topk(count, -1)[1]
    rows = self if self.ndim == 2 else self.unsqueeze(0)
    running = rows.cast(dtypes.float64).cumsum(-1)
    draws = self.__class__.rand(rows.shape[0], count, 1, dtype=dtypes.float64, device=self._device)
    below = running.unsqueeze(1) <= draws * running[:, -1:].unsqueeze(1)
    found = below.sum(-1).minimum(rows.shape[1] - 1)
    return found if self.ndim == 2 else found[0]


def _exponential(self: Tensor) -> Tensor:
    """Numbers of the exponential distribution, of this tensor's shape."""
    return -((1 - rand_like(self, dtypes.float64)).log())
