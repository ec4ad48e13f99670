"""Files as memory: mapped to be read or written, their room taken beforehand, and watched for being cut off.

A mapped byte that the file does not have ends the process where it is touched. So a file that is to be written gets all
of its bytes when it is opened (a full disk is an error there), no file is cut below what this process has mapped, and
what others cut off is found before the bytes are used.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import threading
import weakref
from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.core.errors import FileFormatError, FileMissingError
from intaglio.core.locks import Level, across_forks
from intaglio.runtime.buffer import Buffer

if TYPE_CHECKING:
    from pathlib import Path

FileId: TypeAlias = tuple[int, int]  # device and inode: the same for every name of a file


class FileBuffer(Buffer):
    """The first `nbytes` bytes of a file, mapped. What is written there is in the file at once, for every process."""

    __slots__ = ("file", "path")

    def __init__(self, path: Path, file: FileId, nbytes: int, mapping: mmap.mmap | None, *, read_only: bool) -> None:
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapping)) if mapping is not None else 0
        super().__init__(address, nbytes, mapping, read_only=read_only)
        self.path: Final = path
        self.file: Final = file

    def check(self) -> None:
        """See that the file still has the bytes.

        Raises: FileFormatError if it was cut off.
        """
        if isinstance(self.owner, mmap.mmap) and (left := self.owner.size()) < self.nbytes:
            raise FileFormatError(
                f"file: {self.path} was cut off while it was in use; it has {left} of {self.nbytes} bytes. "
                "Open it again?"
            )


_mapped: Final[weakref.WeakSet[FileBuffer]] = weakref.WeakSet()
_lock: Final = across_forks(threading.Lock(), Level.LEAF)


def identify(path: Path) -> FileId | None:
    """The file that a path names; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def open_to_read(path: Path) -> FileBuffer:
    """All bytes of a file, mapped read-only: none is read before it is used.

    Raises: FileFormatError if it cannot be opened; FileMissingError if there is none.
    """
    with _lock:
        try:
            with path.open("rb") as opened:
                found = os.fstat(opened.fileno())
                size = found.st_size
                mapping = mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_COPY) if size else None
        except OSError as error:
            raise _refused(path, error) from error
        return _noted(FileBuffer(path, (found.st_dev, found.st_ino), size, mapping, read_only=True))


def open_to_write(path: Path, nbytes: int, *, exactly: bool = False) -> FileBuffer:
    """The first bytes of a file, mapped to be written; the file is made, or made longer, where there is need.

    Args:
        exactly: Whether a longer file loses what follows them.
    Raises: FileFormatError if that cannot be done; the file is then what it was.
    """
    with _lock:
        try:
            handle, fresh = _opened(path)
        except OSError as error:
            raise _refused(path, error) from error
        try:
            found = os.fstat(handle)
            file = found.st_dev, found.st_ino
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "It is no regular file")
            if exactly:
                _check_cut(path, file, nbytes)
            try:
                _take_room(handle, nbytes)
                mapping = mmap.mmap(handle, nbytes) if nbytes else None
            except (OSError, ValueError, OverflowError):
                if not fresh:
                    os.ftruncate(handle, found.st_size)
                raise
            if exactly and found.st_size > nbytes:
                os.ftruncate(handle, nbytes)
        except (OSError, ValueError, OverflowError) as error:
            if fresh:
                path.unlink(missing_ok=True)
            if isinstance(error, FileFormatError):
                raise
            raise _refused(path, error, f" with {nbytes} bytes") from error
        finally:
            os.close(handle)
        return _noted(FileBuffer(path, file, nbytes, mapping, read_only=False))


def _opened(path: Path) -> tuple[int, bool]:
    """(an open file, whether it was made)."""
    flags = os.O_RDWR | getattr(os, "O_BINARY", 0)
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666), True
    except FileExistsError:
        return os.open(path, flags), False


def _take_room(handle: int, nbytes: int) -> None:
    """Give a file its bytes on the disk, holes within it included, where the system can do so."""
    if not nbytes:
        return
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(handle, 0, nbytes)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
        else:
            return
    if os.fstat(handle).st_size < nbytes:
        os.ftruncate(handle, nbytes)


def _check_cut(path: Path, file: FileId, nbytes: int) -> None:
    """Raise where a file would be cut below what is mapped of it."""
    longest = max((known.nbytes for known in _mapped if known.file == file), default=0)
    if longest > nbytes:
        raise FileFormatError(
            f"file: {path} cannot be cut to {nbytes} bytes; a tensor is open on {longest} of them. Delete it first?"
        )


def _refused(path: Path, error: Exception, what: str = "") -> FileFormatError:
    """The error for a file that the system does not open."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    kind = FileMissingError if isinstance(error, FileNotFoundError) else FileFormatError
    return kind(f"file: {path} cannot be opened{what}; {reason}.{way_out(error)}")


def way_out(error: Exception) -> str:
    """What to try where the system refuses a file, as a question after an error."""
    ways: dict[type[Exception], str] = {
        FileNotFoundError: " Is the path right?",
        IsADirectoryError: " Name a file in it?",
        NotADirectoryError: " Is the path right?",
        PermissionError: " Choose another place, or change its permissions?",
    }
    return ways.get(type(error), "")


def _noted(made: FileBuffer) -> FileBuffer:
    """A mapping that counts as in use for as long as it lives."""
    _mapped.add(made)
    return made
