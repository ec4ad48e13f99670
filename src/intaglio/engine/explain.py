"""Kernels as readable source, for people."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.core.target import Target
from intaglio.lower.kernel import lower
from intaglio.render import c

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from intaglio.ir.node import Node

Kernel: TypeAlias = "tuple[Node, int | None]"  # an AST, and the slot of its size if it is at the nominal size
_seen: Final[ContextVar[list[Kernel] | None]] = ContextVar("intaglio_sources", default=None)


def c_source(ast: Node, size_slot: int | None = None) -> str:
    """A kernel as scalar C: the same loops, without vectors and tiles."""
    return c.render(lower(ast, Target("c", 0), size_slot).linear)


def is_asked() -> bool:
    """Whether somebody wants to know which kernels run."""
    return _seen.get() is not None


def note(ast: Node, size_slot: int | None) -> None:
    """Remember a kernel that is about to run, where somebody asked."""
    seen = _seen.get()
    if seen is not None:
        seen.append((ast, size_slot))


class Sources:
    """The C sources of the kernels that ran, each once."""

    def __init__(self, seen: list[Kernel]) -> None:
        self._seen: Final = seen

    def __iter__(self) -> Iterator[str]:
        return (c_source(*kernel) for kernel in dict.fromkeys(self._seen))


@contextlib.contextmanager
def sources() -> Generator[Sources]:
    """Collect the C sources of the kernels that run in a block."""
    seen: list[Kernel] = []
    token = _seen.set(seen)
    try:
        yield Sources(seen)
    finally:
        _seen.reset(token)
