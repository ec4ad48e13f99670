"""How many threads a process may keep busy: by its affinity, and by the quotas of its control groups."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from intaglio.runtime.processors import process_threads

if TYPE_CHECKING:
    from pathlib import Path

UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
LEGACY = """\
31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
33 31 0:31 / /sys/fs/cgroup/cpuset rw shared:10 - cgroup cgroup rw,cpuset
"""


def system(root: Path, groups: str, mounts: str, **limits: str) -> Path:
    """A folder with the files of a system: groups and mounts of the process, and the text of each limit by its path."""
    files = {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts, **limits}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.fixture(autouse=True)
def eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("limit", "processors", "threads"),
    [
        ("max 100000", 4, 4),
        ("200000 100000", 4, 2),
        ("150000 100000", 4, 2),
        ("50000 100000", 4, 1),
        ("800000 100000", 4, 4),
        ("none of it", 4, 4),
        ("200000", 4, 4),
        ("200000 0", 4, 4),
        ("-1 100000", 4, 4),
        ("", 4, 4),
        (None, 3, 3),
    ],
)
def test_threads_follow_from_affinity_and_the_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str | None, processors: int, threads: int
) -> None:
    files = {} if limit is None else {"sys/fs/cgroup/cpu.max": limit}
    root = system(tmp_path, "0::/\n", UNIFIED, **files)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)), raising=False)
    assert process_threads(root) == threads


@pytest.mark.parametrize(
    ("own", "middle", "top", "threads"),
    [
        ("300000 100000", "max 100000", None, 3),
        ("max 100000", "500000 100000", None, 5),
        ("600000 100000", "400000 100000", "700000 100000", 4),
        ("600000 100000", "max 100000", "200000 100000", 2),
        (None, "100000 50000", None, 2),
    ],
)
def test_the_least_quota_of_a_group_and_those_above_it_counts(
    tmp_path: Path, own: str | None, middle: str | None, top: str | None, threads: int
) -> None:
    limits = {"outer/inner/cpu.max": own, "outer/cpu.max": middle, "cpu.max": top}
    files = {f"sys/fs/cgroup/{path}": text for path, text in limits.items() if text is not None}
    root = system(tmp_path, "0::/outer/inner\n", UNIFIED, **files, **{"sys/fs/cgroup/beside/cpu.max": "1000 1000"})
    assert process_threads(root) == threads


def test_quotas_of_version_1_are_read_where_its_cpu_controller_is_mounted(tmp_path: Path) -> None:
    cpu = "sys/fs/cgroup/cpu,cpuacct"
    limits = {
        f"{cpu}/a/b/cpu.cfs_quota_us": "500000\n",
        f"{cpu}/a/b/cpu.cfs_period_us": "100000\n",
        f"{cpu}/a/cpu.cfs_quota_us": "150000\n",
        f"{cpu}/a/cpu.cfs_period_us": "50000\n",
        f"{cpu}/cpu.cfs_quota_us": "-1\n",
        f"{cpu}/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpuset/a/cpu.cfs_quota_us": "100000\n",
        "sys/fs/cgroup/cpuset/a/cpu.cfs_period_us": "100000\n",
    }
    root = system(tmp_path, "7:cpuset:/a\n4:cpu,cpuacct:/a/b\n1:name=systemd:/\n0::/a/b\n", LEGACY, **limits)
    assert process_threads(root) == 3


def test_with_both_versions_the_least_quota_counts(tmp_path: Path) -> None:
    mounts = LEGACY + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    limits = {
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "600000",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/unified/x/cpu.max": "400000 100000",
    }
    assert process_threads(system(tmp_path, "1:cpu,cpuacct:/\n0::/x\n", mounts, **limits)) == 4


def test_a_mount_that_shows_a_part_of_the_hierarchy_is_read_from_there(tmp_path: Path) -> None:
    mounts = r"30 23 0:26 /pods/one /mnt/control\040groups rw - cgroup2 cgroup2 rw" + "\n"
    limits = {
        "mnt/control groups/cpu.max": "500000 100000",
        "mnt/control groups/two/cpu.max": "300000 100000",
        "mnt/control groups/pods/one/two/cpu.max": "100000 100000",
    }
    assert process_threads(system(tmp_path, "0::/pods/one/two\n", mounts, **limits)) == 3


@pytest.mark.parametrize("group", ["/../beside", "/pods/other"])
def test_of_a_group_that_is_not_seen_only_the_mount_is_read(tmp_path: Path, group: str) -> None:
    mounts = "30 23 0:26 /pods/one /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    limits = {"sys/fs/cgroup/cpu.max": "500000 100000", "sys/fs/beside/cpu.max": "100000 100000"}
    assert process_threads(system(tmp_path, f"0::{group}\n", mounts, **limits)) == 5


@pytest.mark.parametrize(("groups", "mounts"), [("", ""), ("0::/\n", "nothing of it - \n"), ("broken", UNIFIED)])
def test_what_cannot_be_read_limits_nothing(tmp_path: Path, groups: str, mounts: str) -> None:
    root = system(tmp_path, groups, mounts, **{"sys/fs/cgroup/cpu.max": "100000 100000"})
    assert process_threads(root) == 8
    assert process_threads(tmp_path / "no such folder") == 8
