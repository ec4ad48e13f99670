"""Object files loaded into this process: sections copied into shared arenas, relocations applied, then made executable.

LLVM's own linker maps memory for each object, of which a process may have some 30 000; arenas have no such limit.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from functools import cache
from typing import Final

from intaglio.runtime.pages import lasting

ARENA: Final = 1 << 22
PAGE: Final = mmap.PAGESIZE
STUB: Final = struct.Struct("<6sQ")  # jmp [rip + 0], then the address
READ_EXECUTE: Final = 5
ALLOCATED, NO_BITS = 2, 8


class UnsupportedError(Exception):
    """An object that this loader cannot place (the caller falls back to LLVM's linker)."""


class _Arena:
    """Pages that objects are placed in, one after the other."""

    def __init__(self, size: int) -> None:
        self.pages: Final[mmap.mmap]
        self.base: Final[int]
        self.pages, self.base = lasting(size)
        self.size: Final = size
        self.used: int = 0


_arenas: Final[list[_Arena]] = []


@cache
def _libc() -> ctypes.CDLL:
    """The C library, with the function that changes what pages allow."""
    library = ctypes.CDLL(None)
    library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    library.mprotect.restype = ctypes.c_int
    return library


@cache
def _external(name: str) -> int:
    """The address of a function of the C library."""
    for library in (_libc(), ctypes.CDLL("libm.so.6")):
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    raise UnsupportedError(name)


def is_supported() -> bool:
    """Whether objects of this machine are of the kind that the loader knows."""
    return sys.platform == "linux" and struct.calcsize("P") == 8 and _machine() == "x86_64"


@cache
def _machine() -> str:
    """The processor's name."""
    import platform

    return platform.machine()


def load(data: bytes, symbol: str) -> int:
    """The address of a function of an x86-64 ELF object, placed and ready to run.

    Raises: UnsupportedError if the object has relocations or symbols that are not known here; ValueError and others
        where it is no such object.
    """
    if data[:6] != b"\x7fELF\x02\x01" or data[16:20] != b"\x01\x00\x3e\x00":
        raise ValueError("not a relocatable 64-bit ELF object for x86-64")
    sections = _sections(data)
    image, places = _place(data, sections)
    names = _symbols(data, sections)
    stubs: dict[str, int] = {}
    externals = {n for n, (section, _) in names.values() if section == 0 and n}
    start = -(-len(image) // 16) * 16
    total = start + 16 * len(externals)
    base, arena = _reserve(total)
    image.extend(bytes(total - len(image)))
    for number, name in enumerate(sorted(externals)):
        stubs[name] = start + 16 * number
        STUB.pack_into(image, stubs[name], b"\xff\x25\x00\x00\x00\x00", _external(name))
    _relocate(data, sections, image, places, names, stubs, base)
    offset = base - arena.base
    arena.pages[offset : offset + total] = bytes(image)
    if _libc().mprotect(base, -(-total // PAGE) * PAGE, READ_EXECUTE):
        raise UnsupportedError("pages cannot be made executable")
    for name, (section, value) in names.values():
        if name == symbol and section in places:
            return base + places[section] + value
    raise UnsupportedError(symbol)


def _reserve(size: int) -> tuple[int, _Arena]:
    """Whole writable pages for an object: (address, their arena)."""
    needed = -(-size // PAGE) * PAGE
    if not _arenas or _arenas[-1].used + needed > _arenas[-1].size:
        _arenas.append(_Arena(max(ARENA, needed)))
    arena = _arenas[-1]
    address = arena.base + arena.used
    arena.used += needed
    return address, arena


Section = tuple[int, int, int, int, int, int, int, int]  # name, type, flags, offset, size, link, info, alignment


def _sections(data: bytes) -> list[Section]:
    """The section headers."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    found: list[Section] = []
    for number in range(count):
        name, kind, flags, _, offset, length, link, info, align = struct.unpack_from(
            "<IIQQQQIIQ", data, table + number * size
        )
        found.append((name, kind, flags, offset, length, link, info, align))
    return found


def _place(data: bytes, sections: list[Section]) -> tuple[bytearray, dict[int, int]]:
    """The loaded image, and where in it each section lies."""
    image = bytearray()
    places: dict[int, int] = {}
    for number, (_, kind, flags, offset, size, _, _, align) in enumerate(sections):
        if not flags & ALLOCATED or not size:
            continue
        step = max(align, 1)
        image.extend(bytes(-len(image) % step))
        places[number] = len(image)
        image.extend(bytes(size) if kind == NO_BITS else data[offset : offset + size])
    return image, places


def _symbols(data: bytes, sections: list[Section]) -> dict[int, tuple[str, tuple[int, int]]]:
    """Symbol number -> (name, (section, value))."""
    found: dict[int, tuple[str, tuple[int, int]]] = {}
    for _, kind, _, offset, size, link, _, _ in sections:
        if kind != 2:
            continue
        strings = sections[link][3]
        for number in range(size // 24):
            name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", data, offset + 24 * number)
            end = data.index(b"\0", strings + name)
            found[number] = data[strings + name : end].decode(), (section, value)
    return found


def _relocate(
    data: bytes,
    sections: list[Section],
    image: bytearray,
    places: dict[int, int],
    names: dict[int, tuple[str, tuple[int, int]]],
    stubs: dict[str, int],
    base: int,
) -> None:
    """Fill in the addresses that the code refers to."""
    for _, kind, _, offset, size, _, info, _ in sections:
        if kind != 4 or info not in places:
            continue
        for at, how, addend in struct.iter_unpack("<QQq", data[offset : offset + size]):
            name, (section, value) = names[how >> 32]
            target = places[section] + value if section in places else stubs.get(name)
            if target is None:
                raise UnsupportedError(name)
            place = places[info] + at
            match how & 0xFFFFFFFF:
                case 1:
                    struct.pack_into("<Q", image, place, (base + target + addend) & 0xFFFFFFFFFFFFFFFF)
                case 2 | 4:
                    struct.pack_into("<i", image, place, target + addend - place)
                case other:
                    raise UnsupportedError(f"relocation {other}")
