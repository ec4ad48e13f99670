"""Random tensors: Threefry-2x32 on counters, so that the numbers depend on the seed and the statement alone.

Source: Salmon, Moraes, Dror & Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import DTypeError, ValueRangeError
from intaglio.ir.node import Node
from intaglio.ops import elementwise as ops
from intaglio.ops.memory import const, iota
from intaglio.ops.movement import reshape
from intaglio.tensor.creation import device_name
from intaglio.tensor.movement import flat_ints

if TYPE_CHECKING:
    from intaglio.tensor.tensor import Tensor

u32: Final = dtypes.uint32
ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY: Final = 0x1BD11BDA


class Generator:
    """The seed, and how many numbers have been taken since it was set."""

    def __init__(self) -> None:
        self.seed: int = 0
        self.counter: int = 0
        self._lock: Final = threading.Lock()

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

    Examples:
        >>> Tensor.manual_seed(1)
        >>> a = Tensor.rand(3).tolist()
        >>> Tensor.manual_seed(1)
        >>> a == Tensor.rand(3).tolist()
        True
    """
    generator.restart(int(seed))


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


def _unit(words: Node, dtype: DType) -> Node:
    """Words as numbers in [0, 1): the upper 24 bits (of float64: 32)."""
    if dtype is dtypes.float64:
        return ops.mul(ops.cast(words, dtype), const(dtype, 2.0**-32))
    kept = 8 if dtype in (dtypes.float16,) else 7 if dtype is dtypes.bfloat16 else 24
    wide = ops.mul(ops.cast(ops.shr(words, _number(32 - kept)), dtypes.float32), const(dtypes.float32, 2.0**-kept))
    return ops.cast(wide, dtype)


def rand(cls: type[Tensor], *shape: object, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """Numbers uniform in [0, 1)."""
    extents = flat_ints(shape)
    chosen = dtype or dtypes.default_float
    if not chosen.is_float:
        raise DTypeError(f"rand: the dtype must be a float; got {chosen.name}. Use randint?")
    node = reshape(_unit(_bits(math.prod(extents))[0], chosen), extents)
    made = cls._from_node(node, device_name(device))
    return made.requires_grad_() if requires_grad else made


def randn(cls: type[Tensor], *shape: object, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """Numbers of the normal distribution with mean 0 and variance 1, by Box and Muller."""
    extents = flat_ints(shape)
    chosen = dtype or dtypes.default_float
    first, second = _bits(math.prod(extents))
    f32 = dtypes.float32
    radius = ops.sqrt(ops.mul(ops.log(ops.sub(const(f32, 1), _unit(first, f32))), const(f32, -2)))
    angle = ops.mul(_unit(second, f32), const(f32, 2 * math.pi))
    made = cls._from_node(reshape(ops.cast(ops.mul(radius, ops.cos(angle)), chosen), extents), device_name(device))
    return made.requires_grad_() if requires_grad else made


def randint(cls: type[Tensor], *shape: object, low: int = 0, high: int = 10, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Whole numbers uniform in [low, high), int64.

    Raises: ValueRangeError if the range is empty.
    """
    extents = flat_ints(shape)
    if high <= low:
        raise ValueRangeError(f"randint: high must be above low; got [{low}, {high}).")
    first, second = _bits(math.prod(extents))
    wide = ops.or_(
        ops.shl(ops.cast(ops.shr(first, _number(1)), dtypes.int64), const(dtypes.int64, 32)), ops.cast(second, dtypes.int64)
    )
    node = ops.add(ops.mod(wide, const(dtypes.int64, high - low)), const(dtypes.int64, low))
    return cls._from_node(reshape(ops.cast(node, dtype or dtypes.int64), extents), device_name(device))


def uniform(cls: type[Tensor], *shape: object, low: float = 0.0, high: float = 1.0, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Numbers uniform in [low, high)."""
    return rand(cls, *shape, dtype=dtype, device=device) * (high - low) + low


def normal(cls: type[Tensor], *shape: object, mean: float = 0.0, std: float = 1.0, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Numbers of a normal distribution."""
    return randn(cls, *shape, dtype=dtype, device=device) * std + mean
