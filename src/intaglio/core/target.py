"""Targets: the names of devices, and what code generation must know of a machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from intaglio.core.dtypes import dtypes
from intaglio.core.errors import DeviceError
from intaglio.core.words import meant

DEVICES: Final = ("CPU", "DISK", "NPY", "NULL", "PYTHON")
FAR: Final = 1 << 22, 1 << 23  # bytes of a result from which it goes past the caches, the smallest and the largest


def canonical(name: str) -> str:
    """A device's name in its usual form: capitals, no ":0".

    Raises: DeviceError if there is no such device.
    """
    kind, _, rest = name.partition(":") if isinstance(name, str) else ("", "", "")  # pyright: ignore[reportUnnecessaryIsInstance] -- what callers give
    kind = kind.upper()
    if kind not in DEVICES or (rest and kind != "DISK" and not rest.isdigit()):
        raise _unknown(name)
    return kind if kind == "DISK" or rest in ("", "0") else f"{kind}:{int(rest)}"


def _unknown(name: object) -> DeviceError:
    """The error for what names no device."""
    known = ", ".join(device.lower() for device in DEVICES)
    if not isinstance(name, str):
        return DeviceError(f'device: a name is wanted; got {type(name).__name__}; there are {known}. Compute on "CPU"?')
    dtype = meant(name, [dtype.name for dtype in dtypes.all]).replace("Is", "Is the dtype")
    return DeviceError(f'device: no backend "{name}"; available here: {known}.' + (dtype or ' Compute on "CPU"?'))


@dataclass(frozen=True, slots=True)
class Target:
    """The limits and features of the machine that kernels are made for."""

    name: str = "generic"
    vector_bytes: int = 16
    features: frozenset[str] = frozenset()
    threads: int = 1
    level1: int = 32 << 10  # bytes of data cache by level
    level2: int = 1 << 20
    level3: int = 16 << 20
    near: int = 0  # bytes of all that a kernel reads and writes up to which its results stay in the third cache
    streams: int = 8  # places of memory that are read side by side
    followed: int = 1 << 14  # bytes of a row from which it is followed without being asked for

    @property
    def far(self) -> int:
        """Bytes of a result from which it goes past the caches: half as much again as those hold that are a core's own.

        What is left there of it, beside what it was computed from, is too little to pay for reading each of its lines
        before it is written. It is otherwise where the third cache takes results faster than memory: see `near`.
        """
        least, most = FAR
        return min(max(least, 3 * self.threads * self.level2 // 2), most)

    @property
    def vector_registers(self) -> int:
        """How many vectors are held at once."""
        return 32 if self.vector_bytes == 64 or "neon" in self.features else 16

    @property
    def has_fma(self) -> bool:
        """Whether a fused multiply-add is one instruction."""
        return "fma" in self.features or "neon" in self.features

    @property
    def has_words_of_bfloat16(self) -> bool:
        """Whether the products of two bfloat16 in each lane are summed by one instruction."""
        return self.vector_bytes == 64 and "avx512bf16" in self.features

    @property
    def has_words_of_bytes(self) -> bool:
        """Whether the products of four bytes in each lane are summed by one instruction."""
        return self.vector_bytes == 64 and "avx512vnni" in self.features

    @property
    def has_half(self) -> bool:
        """Whether float16 and float32 become one another in one instruction."""
        return "f16c" in self.features or "neon" in self.features
