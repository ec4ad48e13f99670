"""Tensors in files: writes are pending like any others, and in the file, in program order, once they are realized."""

from __future__ import annotations

import os
import pickle
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intaglio import Context, GlobalCounters, Tensor, dtypes
from intaglio.core.errors import DeviceError, FileFormatError, IndexRangeError, ReadOnlyError

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from intaglio import DType


def opened(path: Path, *shape: int, dtype: DType = dtypes.float32) -> Tensor:
    """A file opened to be written."""
    return Tensor.empty(*shape, dtype=dtype, device=f"DISK:{path}")


def test_a_file_is_made_with_its_bytes_and_written_when_realized(tmp_path: Path) -> None:
    path = tmp_path / "t"
    t = opened(path, 4)
    assert (t.device, path.stat().st_size) == ("DISK", 16)
    t[1:3] = Tensor([5.0, 6.0])
    t[3] = 7
    assert np.fromfile(path, np.float32).tolist() == [0, 0, 0, 0]
    t.realize()
    assert np.fromfile(path, np.float32).tolist() == [0, 5, 6, 7]


def test_reading_back_writes_first(tmp_path: Path) -> None:
    path = tmp_path / "t"
    t = opened(path, 3)
    t.assign(Tensor([1.0, 2.0, 3.0]))
    t[0] = 9
    assert t.tolist() == [9, 2, 3]
    assert np.fromfile(path, np.float32).tolist() == [9, 2, 3]
    assert t[1:].to("CPU").sum().item() == 5


def test_an_opened_file_keeps_what_it_holds_and_what_follows(tmp_path: Path) -> None:
    path = tmp_path / "t"
    np.arange(6, dtype=np.float32).tofile(path)
    opened(path, 4)[1:2].assign(-1.0).realize()
    assert np.fromfile(path, np.float32).tolist() == [0, -1, 2, 3, 4, 5]
    opened(path, 8)
    assert np.fromfile(path, np.float32).tolist() == [0, -1, 2, 3, 4, 5, 0, 0]


def test_to_a_path_writes_the_values_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(bytes(100))
    file = (Tensor([1.0, 2.0, 3.0]) * 2).to(f"disk:{path}")
    assert (np.fromfile(path, np.float32).tolist(), file.device) == ([2, 4, 6], "DISK")
    file[0] = 0
    assert file.to("DISK") is file
    other = file.flip(0).to(f"DISK:{tmp_path / 'other'}")
    assert (other.tolist(), np.fromfile(path, np.float32).tolist()) == ([6, 4, 0], [0, 4, 6])
    assert file.flip(0).to(f"DISK:{path}").tolist() == [6, 4, 0]
    assert Tensor(path).bitcast(dtypes.float32).flip(0).to(f"DISK:{path}").tolist() == [0, 4, 6]
    assert Tensor.empty(0).to(f"DISK:{path.parent / 'none'}").tolist() == []


def test_every_kind_of_view_writes_through(tmp_path: Path) -> None:
    array = np.zeros((4, 6), np.float32)
    t = opened(tmp_path / "t", 4, 6)
    for x in (t, array):
        y: Any = Tensor if x is t else np.array
        x[::2, ::-2] = y([[1.0, 2.0, 3.0]])
        x.T[1] = y([4.0, 5.0, 6.0, 7.0])
        x.reshape(24)[20:23] = 8
        x[1:] = x[:-1]
        x += 1
        x *= x
        x[[3, 0]] = y([[9.0] * 6, [10.0] * 6])
        x[x > 9.5] = -1
        for k in range(1, 4):
            x[k, 0] = x[k - 1, 0] * 2 + k
        for k in range(6):
            x[2, k] = k
    t.bitcast(dtypes.int32)[3, 5] = 1
    array.view(np.int32)[3, 5] = 1
    t.realize()
    assert np.array_equal(np.fromfile(tmp_path / "t", np.float32).reshape(4, 6), array)


def test_random_writes_agree_with_an_array(rng: random.Random, tmp_path: Path) -> None:
    for turn in range(12):
        path = tmp_path / f"t{turn}"
        t, array = opened(path, 24, dtype=dtypes.int16), np.zeros(24, np.int16)
        for _ in range(8):
            start, other, n = rng.randrange(12), rng.randrange(12), rng.randrange(1, 13)
            kind = rng.randrange(5)
            for x in (t, array):
                if kind == 0:
                    x[start : start + n] = x[other : other + n]
                elif kind == 1:
                    x[start : start + n] = x[other : other + n][::-1] + 1
                elif kind == 2:
                    x[start] = n
                elif kind == 3:
                    x[start : start + n] += other
                else:
                    x[start::3] *= 2
            if rng.random() < 0.2:
                t.realize()
        assert t.tolist() == array.tolist()
        assert np.fromfile(path, np.int16).tolist() == array.tolist()


def test_old_readers_keep_what_they_saw(tmp_path: Path) -> None:
    t = opened(tmp_path / "t", 3)
    t.assign(Tensor([1.0, 2.0, 3.0])).realize()
    other = opened(tmp_path / "other", 3)
    seen = t + 1
    t[:] = 0
    other[:] = seen
    t.realize()
    assert other.tolist() == [2, 3, 4]
    assert t.tolist() == [0, 0, 0]


def test_two_names_of_one_file_are_one_storage(tmp_path: Path) -> None:
    first = opened(tmp_path / "t", 4)
    (tmp_path / "link").symlink_to(tmp_path / "t")
    second = opened(tmp_path / "link", 2, 2)
    first[1] = 5
    second[1, 1] = 6
    assert first.tolist() == [0, 5, 0, 6]
    with pytest.raises(
        FileFormatError, match=r"is open for writing by a tensor of 16 bytes; it cannot be opened with 4"
    ):
        opened(tmp_path / "t", 1)
    del first, second
    assert opened(tmp_path / "t", 1).tolist() == [0]


def test_a_write_moves_only_its_bytes(tmp_path: Path) -> None:
    t = opened(tmp_path / "t", 1 << 22)
    t.realize()
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    t[5:9] = Tensor([1.0, 2.0, 3.0, 4.0])
    t[7:8] += 1
    t.realize()
    assert GlobalCounters.global_mem < 200
    assert GlobalCounters.peak - before < 4096
    assert t[5:9].tolist() == [1, 2, 4, 4]


def test_the_bound_writes_early(tmp_path: Path) -> None:
    t = opened(tmp_path / "t", 16)
    with Context(JOURNAL_ENTRIES=4):
        for k in range(16):
            t[k : k + 1] = Tensor([float(k)])
    assert np.fromfile(tmp_path / "t", np.float32)[:10].tolist() == list(range(10))


def test_a_copy_is_in_memory(tmp_path: Path) -> None:
    t = opened(tmp_path / "t", 2)
    t[1] = 3
    for copied in (deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert (copied.device, copied.tolist()) == ("CPU", [0, 3])


def test_gradients_pass_a_file_by_or_say_so(tmp_path: Path) -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    t = opened(tmp_path / "t", 2)
    t[:] = x * 3
    assert t.detach().tolist() == [3, 6]
    assert np.fromfile(tmp_path / "t", np.float32).tolist() == [3, 6]


# -- what goes wrong


def test_a_file_opened_to_be_read_says_what_to_write_to(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(bytes(4))
    with pytest.raises(ReadOnlyError) as caught:
        Tensor(path)[0] = 1
    assert str(caught.value) == (
        f'setitem: the tensor must be writable; {path} is open read-only. Write to a copy, .to("CPU")?'
    )


def test_a_file_that_cannot_be_opened_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, why in (
        (tmp_path / "no" / "t", "No such file or directory. Is the path right?"),
        (tmp_path, "Is a directory. Name a file in it?"),
    ):
        with pytest.raises(FileFormatError) as caught:
            opened(path, 1)
        assert str(caught.value) == f"file: {path} cannot be opened; {why}"
    with pytest.raises(FileFormatError, match=r"t cannot be opened with \d+ bytes; "):
        opened(tmp_path / "t", 1 << 58)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileFormatError, match=r"pipe cannot be opened with 4 bytes; It is no regular file"):
        opened(tmp_path / "pipe", 1)
    kept = tmp_path / "kept"
    kept.write_bytes(b"1234")
    with pytest.raises(FileFormatError, match=r"kept cannot be opened with \d+ bytes; "):
        opened(kept, 1 << 58)
    assert kept.read_bytes() == b"1234"

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(FileFormatError, match=r"kept cannot be opened; Permission denied"):
        opened(kept, 1)
    monkeypatch.undo()
    assert sorted(os.listdir(tmp_path)) == ["kept", "pipe"]


def test_a_disk_without_room_is_an_error_where_the_file_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, start: int, n: int) -> None:
        os.ftruncate(handle, n // 2)
        raise OSError(28, "No space left on device")

    kept = tmp_path / "kept"
    kept.write_bytes(b"12")
    monkeypatch.setattr(os, "posix_fallocate", full)
    for path in (kept, tmp_path / "t"):
        with pytest.raises(FileFormatError) as caught:
            Tensor([1.0, 2.0]).to(f"DISK:{path}")
        assert str(caught.value) == f"file: {path} cannot be opened with 8 bytes; No space left on device."
    assert (kept.read_bytes(), os.listdir(tmp_path)) == (b"12", ["kept"])


def test_a_value_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"1234")
    x = Tensor([1.0, 2.0])
    with pytest.raises(IndexRangeError):
        x[Tensor([0, 3]) * 2].to(f"DISK:{path}")
    assert path.read_bytes() == b"1234"


def test_a_file_cut_off_is_an_error_and_its_writes_stay_pending(tmp_path: Path) -> None:
    path, whole = tmp_path / "t", tmp_path / "whole"
    t, other = opened(path, 4), opened(whole, 4)
    t[3] = 5
    other[2] = 6
    os.truncate(path, 4)
    with pytest.raises(FileFormatError) as caught:
        t.realize(other)
    assert str(caught.value) == (f"file: {path} was cut off while it was in use; it has 4 of 16 bytes. Open it again?")
    with pytest.raises(FileFormatError, match="cut off"):
        t.numpy()
    assert np.fromfile(whole, np.float32).tolist() == [0, 0, 0, 0]
    os.truncate(path, 16)
    t.realize(other)
    assert np.fromfile(path, np.float32).tolist() == [0, 0, 0, 5]
    assert np.fromfile(whole, np.float32).tolist() == [0, 0, 6, 0]


def test_a_file_is_not_cut_below_what_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(bytes(100))
    held = Tensor(path)
    with pytest.raises(FileFormatError, match=r"cannot be cut to 4 bytes; a tensor is open on 100 of them"):
        Tensor([1.0]).to(f"DISK:{path}")
    assert held.tolist() == [0] * 100
    del held
    Tensor([1.0]).to(f"DISK:{path}")
    assert path.stat().st_size == 4


def test_values_that_no_path_names_are_refused(tmp_path: Path) -> None:
    t = opened(tmp_path / "t", 2)
    for make in (
        lambda: Tensor.zeros(2, device=f"DISK:{tmp_path}/q"),
        lambda: Tensor([1], device=f"DISK:{tmp_path}/q"),
    ):
        with pytest.raises(DeviceError, match=r"device: values are not made in a file; got \"DISK:.*Open it with"):
            make()
    with pytest.raises(DeviceError) as caught:
        Tensor.empty(2, device="DISK")
    assert str(caught.value) == 'empty: a file needs a path; got device "DISK". Write "DISK:<path>"?'
    with pytest.raises(DeviceError, match="operands must be on one device; they are on DISK and CPU"):
        t += Tensor([1.0, 2.0])
    with pytest.raises(DeviceError, match="disk: values cannot be computed on a file"):
        t.sum().item()
    assert os.listdir(tmp_path) == ["t"]
