"""Buffers: bytes on a device, allocated, or lent by somebody else and kept alive."""

from __future__ import annotations

import ctypes


class Buffer:
    """Bytes at an address of the host. `owner` keeps them alive; `read_only` bytes are never written."""

    __slots__ = ("__weakref__", "address", "nbytes", "owner", "read_only")

    address: int
    nbytes: int
    owner: object
    read_only: bool

    def __init__(self, address: int, nbytes: int, owner: object, *, read_only: bool = False) -> None:
        self.address = address
        self.nbytes = nbytes
        self.owner = owner
        self.read_only = read_only

    def view(self) -> memoryview:
        """The bytes, shared."""
        if self.nbytes == 0:
            return memoryview(b"")
        array = (ctypes.c_ubyte * self.nbytes).from_address(self.address)
        view = memoryview(array).cast("B")
        return view.toreadonly() if self.read_only else view

    def read(self, start: int, nbytes: int) -> bytes:
        """Some of the bytes, copied."""
        return ctypes.string_at(self.address + start, nbytes)

    def write(self, start: int, data: bytes) -> None:
        """Replace some of the bytes."""
        ctypes.memmove(self.address + start, data, len(data))

    @property
    def __array_interface__(self) -> dict[str, object]:
        """The bytes for NumPy, whose array keeps the buffer alive."""
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.address, self.read_only), "version": 3}

    def copy_in(self, data: bytes | memoryview) -> None:
        """Replace the bytes."""
        if len(data):
            self.view()[: len(data)] = data
