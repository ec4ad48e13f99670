"""The tree of errors that Intaglio raises."""

from __future__ import annotations

from typing import Final


class IntaglioError(Exception):
    """The base of every error that Intaglio raises on purpose."""


class ShapeError(IntaglioError, ValueError):
    """Shapes or axes that do not fit together."""


class DTypeError(IntaglioError, TypeError):
    """A dtype that an operation does not take."""


class ValueRangeError(IntaglioError, ValueError):
    """A number that a dtype cannot hold."""


class IndexRangeError(IntaglioError, IndexError):
    """An index outside its axis."""


class OverlapError(IntaglioError, ValueError):
    """A write through a view two of whose positions share a byte."""


class ReadOnlyError(IntaglioError, ValueError):
    """A write to memory that is shared read-only."""


class DeviceError(IntaglioError, RuntimeError):
    """A device that is missing, full or unable."""


class FileFormatError(IntaglioError, ValueError):
    """A file that is truncated, damaged or not of the format that was asked for."""


class FileMissingError(FileFormatError, FileNotFoundError):
    """A path at which there is no file."""


class GradError(IntaglioError, RuntimeError):
    """A gradient that cannot be taken."""


class ConfigError(IntaglioError, ValueError):
    """A setting that does not exist, or a value that it cannot have."""


class CompileError(IntaglioError, RuntimeError):
    """Source that a compiler refused; `source` and `log` keep both sides."""

    def __init__(self, message: str, source: str = "", log: str = "") -> None:
        super().__init__(message)
        self.source: Final = source
        self.log: Final = log


class InternalError(IntaglioError, AssertionError):
    """A bug in Intaglio, not in the user's program; `ir` keeps the graph or code where it showed."""

    def __init__(self, message: str = "", ir: str = "") -> None:
        super().__init__(message)
        self.ir: Final = ir

    def __str__(self) -> str:
        where = f"\n{self.ir}" if self.ir else ""
        return f"{super().__str__()}\nThis is a bug in Intaglio: please report it with this message.{where}"
