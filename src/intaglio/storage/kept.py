"""What histories keep: the reads of their rows whose bytes are about to be overwritten, as nodes that live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from intaglio.ir.view import View
from intaglio.storage.columns import integers
from intaglio.storage.history import History
from intaglio.storage.journal import Elements, first_of
from intaglio.storage.readers import LARGEST_TIMES, Times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intaglio.core.dtypes import DType
    from intaglio.ir.node import Node
    from intaglio.storage.columns import Integers
    from intaglio.storage.storage import Storage


def keep_overwritten(storage: Storage, stamp: int) -> list[Node]:
    """Make nodes of what histories need of a storage and its pending writes up to a stamp overwrite; gives them."""
    if not storage.followers:
        return []
    times = _last_writes(storage, stamp) if storage.nbytes <= LARGEST_TIMES else None
    return _keep(storage, times)


def keep_everything(storage: Storage) -> None:
    """Make nodes of all that histories need of a storage."""
    if storage.followers:
        _keep(storage, None)


def _last_writes(storage: Storage, stamp: int) -> Times:
    """For each byte of a storage, the number of its last pending write up to a stamp."""
    times = Times(storage.nbytes)
    for entry in storage.log:
        if first_of(entry) > stamp:
            break
        if isinstance(entry, Elements):
            part = entry.until(stamp)
            times.write_elements(part.dtype, np.array(part.offsets()), np.array(part.sequences()))
        else:
            times.write(entry.view, entry.sequence)
    return times


def _keep(storage: Storage, times: Times | None) -> list[Node]:
    """Make nodes of what rows read of a storage before its last writes (of all, where those are not known)."""
    found: list[Node] = []
    for history in list(storage.followers or ()):
        assert isinstance(history, History)
        for dtype, offsets, stamps in reads_of_rows(history, storage):
            lost = times.newest_of(dtype, offsets) > stamps if times is not None else stamps < storage.sequence
            for offset, seen in {*zip(offsets[lost].tolist(), stamps[lost].tolist(), strict=True)}:
                node = storage.read_past(View(dtype, (), (), offset), seen)
                history.kept[node] = None
                found.append(node)
    return found


def reads_of_rows(history: History, storage: Storage) -> Iterator[tuple[DType, Integers, Integers]]:
    """What a history's rows read of a storage: offsets and stamps."""
    for record in history.records:
        if not isinstance(record, Elements) or storage not in record.sources():
            continue
        for skeleton, _, _, columns in record.by_skeleton():
            for step, hole in skeleton.pattern().reads:
                if step.storage is storage:
                    offsets, stamps = integers(columns[hole]), integers(columns[hole + 1])
                    assert offsets is not None
                    assert stamps is not None
                    yield step.dtype, offsets, stamps
