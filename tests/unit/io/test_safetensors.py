"""Safetensors files: what is saved is loaded, here and by the format's own library, and nothing is read early."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from intaglio import GlobalCounters, Tensor
from intaglio.core.dtypes import DType, dtypes
from intaglio.io.safetensors import DTYPES, safe_load, safe_save

if TYPE_CHECKING:
    import random
    from pathlib import Path


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda d: d.name)
def test_every_dtype_comes_back_bit_for_bit(dtype: DType, tmp_path: Path) -> None:
    count = 24 // dtype.itemsize * dtype.itemsize
    raw = [k % 2 for k in range(count)] if dtype.is_bool else [(37 * k + 11) % 256 for k in range(count)]
    tensor = Tensor(raw, dtype=dtypes.uint8).bitcast(dtype).reshape(-1, 1)
    safe_save({"w": tensor}, tmp_path / "w.safetensors")
    back = safe_load(tmp_path / "w.safetensors")["w"]
    assert (back.dtype, back.shape, back.device) == (dtype, (count // dtype.itemsize, 1), "DISK")
    assert back.to("CPU").bitcast(dtypes.uint8).reshape(-1).tolist() == raw


def test_the_formats_own_library_reads_our_files_and_we_read_its(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    arrays = {
        "a": np.arange(12, dtype=np.float32).reshape(3, 4),
        "empty": np.zeros((0, 5), np.int16),
        "scalar": np.array(-7, np.int64),
        "b": np.arange(5, dtype=np.uint8) > 2,
    }
    save_file(arrays, theirs)
    loaded = safe_load(theirs)
    assert set(loaded) == set(arrays)
    safe_save({name: tensor.to("CPU") for name, tensor in loaded.items()}, ours, {"from": "a test"})
    again = load_file(ours)
    for name, array in arrays.items():
        assert again[name].dtype == array.dtype
        assert np.array_equal(again[name], array)
        assert again[name].shape == array.shape
    with safe_open(ours, "np") as file:
        assert file.metadata() == {"from": "a test"}


def test_opening_a_file_and_cutting_its_tensors_reads_and_launches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "big.safetensors"
    save_file({"w": np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)}, path)
    before = GlobalCounters.mem_used
    GlobalCounters.reset()
    part = safe_load(path)["w"][5:7, ::256]
    assert (GlobalCounters.launch_count, GlobalCounters.kernel_count) == (0, 0)
    assert GlobalCounters.mem_used - before < 1 << 16
    moved = part.to("CPU")
    assert moved.tolist() == [[5120.0, 5376.0, 5632.0, 5888.0], [6144.0, 6400.0, 6656.0, 6912.0]]
    assert GlobalCounters.mem_used - before < 1 << 16  # just those bytes, not the four million of the file


def test_views_and_pending_writes_are_saved_as_they_read(tmp_path: Path) -> None:
    t = Tensor.arange(6).reshape(2, 3)
    t[1, 0] = 50
    safe_save({"turned": t.T, "back": t.flip(0), "row": t[1]}, tmp_path / "v.safetensors")
    arrays = load_file(tmp_path / "v.safetensors")
    assert arrays["turned"].tolist() == [[0, 50], [1, 4], [2, 5]]
    assert arrays["back"].tolist() == [[50, 4, 5], [0, 1, 2]]
    assert arrays["row"].tolist() == [50, 4, 5]


def test_a_file_can_be_saved_over_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    safe_save({"w": Tensor([1.0, 2.0])}, path)
    opened = safe_load(path)["w"]
    safe_save({"w": opened.to("CPU") * 10, "old": opened}, path)
    assert opened.to("CPU").tolist() == [1.0, 2.0]
    assert {name: t.to("CPU").tolist() for name, t in safe_load(path).items()} == {"w": [10.0, 20.0], "old": [1.0, 2.0]}
    assert os.listdir(tmp_path) == ["w.safetensors"]


def test_a_saved_file_has_the_permissions_of_the_old_one_or_of_any_new_file(tmp_path: Path) -> None:
    path, plain = tmp_path / "w.safetensors", tmp_path / "plain"
    plain.touch()
    safe_save({"w": Tensor([1.0])}, path)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    path.chmod(0o640)
    safe_save({"w": Tensor([2.0])}, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_random_sets_of_tensors_come_back(rng: random.Random, tmp_path: Path) -> None:
    path = tmp_path / "r.safetensors"
    kinds = [d for d in DTYPES.values() if d.is_int or d in (dtypes.float32, dtypes.float64)]
    for _ in range(20):
        arrays = {
            f"t.{k}": np.array([[rng.randint(0, 100)] * 3 for _ in range(rng.randint(1, 4))], rng.choice(kinds).numpy)
            for k in range(rng.randint(0, 6))
        }
        safe_save({name: Tensor(array) for name, array in arrays.items()}, path)
        loaded = safe_load(path)
        assert set(loaded) == set(arrays)
        for name, array in arrays.items():
            assert np.array_equal(loaded[name].to("CPU").numpy(), array)
            assert loaded[name].dtype.numpy == array.dtype
