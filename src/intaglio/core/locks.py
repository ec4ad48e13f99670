"""Locks that a fork waits for: a child finds what they guard whole, and none of them held by a thread that it lacks."""

from __future__ import annotations

import os
import weakref
from enum import IntEnum
from typing import Final, Protocol, TypeVar


class Lock(Protocol):
    """What `threading.Lock` and `threading.RLock` have in common."""

    def acquire(self) -> bool:
        """Take it."""
        ...

    def release(self) -> None:
        """Give it back."""
        ...


L = TypeVar("L", bound=Lock)


class Level(IntEnum):
    """Where a lock stands: a thread that holds one takes only those of later levels. A fork takes all in this order."""

    ENGINE = 0
    DEVICE = 1
    COMPILER = 2
    CACHE = 3
    LEAF = 4  # nothing else is taken while it is held


_known: Final[dict[weakref.ref[Lock], Level]] = {}
_held: Final[list[Lock]] = []


def across_forks(lock: L, level: Level) -> L:
    """A lock that is free in a child after fork; gives the lock itself."""
    _known[weakref.ref[Lock](lock, _forget)] = level
    return lock


def _forget(reference: weakref.ref[Lock]) -> None:
    """Drop a lock that is gone."""
    _known.pop(reference, None)


def _take_all() -> None:
    """Wait for what other threads are at (a flush ends whole), then hold every lock."""
    taken: list[Lock] = []
    for reference, _ in sorted(_known.items(), key=lambda pair: pair[1]):
        lock = reference()
        if lock is not None:
            lock.acquire()
            taken.append(lock)
    _held[:] = taken


def _give_back() -> None:
    """Release every lock, in the parent and in the child."""
    taken = list(_held)
    _held.clear()
    for lock in reversed(taken):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_take_all, after_in_parent=_give_back, after_in_child=_give_back)
