"""How many threads a process may keep busy: by its affinity, and by the quotas of the control groups that it is in.

A quota is time per period, of all processors together. Each group from the process's own up to the root may have one,
and the least counts. Groups of version 2 have theirs in `cpu.max`, those of version 1 in two files; a system may have
both hierarchies. Which groups there are `/proc/self/cgroup` says, and where their files are `/proc/self/mountinfo`.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path("/")
ESCAPED: Final = re.compile(r"\\([0-7]{3})")  # how mountinfo writes spaces in names


@cache
def process_threads(root: Path = ROOT) -> int:
    """How many threads this process may keep busy; `root` is the folder in which the system's files are looked up."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([count, *(max(1, round(quota)) for quota in _quotas(root))])


def _quotas(root: Path) -> Iterator[float]:
    """The quotas of the process's groups, in processors; what cannot be read limits nothing."""
    groups = _groups(root)
    for version, within, mount in _mounts(root):
        if version in groups:
            top = root / mount.lstrip("/")
            for folder in _upwards(top, within, groups[version]):
                quota = _quota(folder, version)
                if quota is not None:
                    yield quota


def _groups(root: Path) -> dict[int, str]:
    """The process's group in the hierarchies that may limit processors, by version: `0::/a` or `3:cpu,cpuacct:/a`."""
    groups: dict[int, str] = {}
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, group = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            groups[2] = group
        elif "cpu" in controllers.split(","):
            groups[1] = group
    return groups


def _mounts(root: Path) -> Iterator[tuple[int, str, str]]:
    """The places where those hierarchies are seen: the version, which group is seen there, and the folder."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        mount, system = before.split(), after.split()
        if len(mount) < 5 or len(system) < 3:
            continue
        version = {"cgroup2": 2, "cgroup": 1}.get(system[0], 0)
        if version == 2 or (version == 1 and "cpu" in system[2].split(",")):
            yield version, _plain(mount[3]), _plain(mount[4])


def _upwards(top: Path, within: str, group: str) -> Iterator[Path]:
    """The folders from a group up to `top`, which is of the group `within`; `top` alone if the group is not in that."""
    names = [name for name in group.split("/") if name]
    above = [name for name in within.split("/") if name]
    inside = names[len(above) :] if names[: len(above)] == above and ".." not in names else []
    for depth in range(len(inside), -1, -1):
        yield top.joinpath(*inside[:depth])


def _quota(folder: Path, version: int) -> float | None:
    """The processors that a group may use; None without a limit, which is `max` in version 2 and -1 in version 1."""
    if version == 2:
        words = " ".join(_lines(folder / "cpu.max")).split()
    else:
        words = [*_lines(folder / "cpu.cfs_quota_us"), *_lines(folder / "cpu.cfs_period_us")]
    try:
        quota, period = map(int, words)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None


def _lines(path: Path) -> list[str]:
    """The lines of a file; none if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except (OSError, ValueError):
        return []


def _plain(name: str) -> str:
    """A name as it was before mountinfo escaped it."""
    return ESCAPED.sub(lambda found: chr(int(found[1], 8)), name)
