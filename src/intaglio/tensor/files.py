"""Files as storages: bytes that are mapped, so that kernels of the CPU write them in place."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Final

from intaglio.core.errors import DeviceError, FileFormatError
from intaglio.engine import realize as engine
from intaglio.ops.memory import BufferRef
from intaglio.runtime.files import FileBuffer, FileId, identify, open_to_read, open_to_write
from intaglio.storage.storage import Storage

_written: Final[weakref.WeakValueDictionary[FileId, Storage]] = weakref.WeakValueDictionary()


def path_of(name: str, device: str | None) -> Path | None:
    """The path in a device's name, of the form DISK:<path>; None if it is another device.

    Raises: DeviceError if the path is missing.
    """
    kind, _, rest = device.partition(":") if isinstance(device, str) else ("", "", "")
    if kind.upper() != "DISK":
        return None
    if not rest:
        raise DeviceError(f'{name}: a file needs a path; got device "{device}". Write "DISK:<path>"?')
    return Path(rest)


def to_read(path: Path) -> Storage:
    """A file's bytes: nothing is read before it is used, and writing is an error.

    What is pending on tensors that write the file is not seen until they are realized.

    Raises: FileFormatError if it cannot be opened.
    """
    with engine.lock:
        return _storage(open_to_read(path))


def to_write(path: Path, nbytes: int, *, exactly: bool = False) -> Storage:
    """The first bytes of a file, which is made (or made longer) where there is need: one storage for each file.

    Args:
        exactly: Whether a longer file loses what follows them.
    Raises: FileFormatError if that cannot be done, or a living tensor writes another number of bytes of it.
    """
    with engine.lock:
        file = identify(path)
        known = _written.get(file) if file is not None else None
        if known is None:
            buffer = open_to_write(path, nbytes, exactly=exactly)
            made = _storage(buffer)
            _written[buffer.file] = made
            return made
        if known.nbytes != nbytes:
            raise FileFormatError(
                f"file: {path} is open for writing by a tensor of {known.nbytes} bytes; it cannot be opened with "
                f"{nbytes}. Delete that tensor first?"
            )
        if exactly:
            open_to_write(path, nbytes, exactly=True)  # cut, if it is longer
        return known


def _storage(buffer: FileBuffer) -> Storage:
    """The storage of a file. The name of its bytes says CPU, for whose kernels they are memory like any other."""
    ref = BufferRef(buffer.nbytes, "CPU")
    engine.adopt(ref, buffer)
    storage = Storage(buffer.nbytes, "DISK", ref=ref)
    storage.read_only, storage.path = buffer.read_only, str(buffer.path)
    return storage
