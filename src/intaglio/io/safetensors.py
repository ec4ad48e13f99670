"""The safetensors format: read through a mapped file, written to a temporary name that is then renamed.

Source: the format's description in the safetensors package, version 0.8.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from intaglio.core.dtypes import DType, dtypes
from intaglio.core.errors import DTypeError, FileFormatError, FileMissingError
from intaglio.runtime.files import way_out
from intaglio.tensor.tensor import Tensor

DTYPES: Final = {
    "BOOL": dtypes.bool, "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
    "U8": dtypes.uint8, "U16": dtypes.uint16, "U32": dtypes.uint32, "U64": dtypes.uint64,
    "F8_E4M3": dtypes.float8_e4m3, "F8_E5M2": dtypes.float8_e5m2, "F16": dtypes.float16, "BF16": dtypes.bfloat16,
    "F32": dtypes.float32, "F64": dtypes.float64,
}  # fmt: skip
LARGEST_HEADER: Final = 100_000_000


def safe_load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, on the DISK device: none is read until it is moved, with `.to("CPU")`.

    Args:
        path: Where the file is.
    Raises: FileMissingError if there is no file; FileFormatError if it is truncated, or the header does not fit it.
    Examples:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "weights.safetensors"
        >>> safe_save({"w": Tensor([1.0, 2.0])}, file)
        >>> safe_load(file)["w"].to("CPU").tolist()
        [1.0, 2.0]
    """
    file = _file("safe_load", path)
    data = Tensor(file)
    total = data.numel()
    if total < 8:
        raise _damaged(file, f"it has {total} bytes, and its header's length alone takes 8")
    length = int.from_bytes(bytes(data[:8].numpy()), "little")
    if length > min(total - 8, LARGEST_HEADER):
        raise _damaged(file, f"its header should have {length} bytes, and {total - 8} follow")
    header = _header(file, bytes(data[8 : 8 + length].numpy()))
    start = 8 + length
    spans = {name: _span(file, name, entry, total - start) for name, entry in header.items() if name != "__metadata__"}
    _check_filled(file, spans, total - start)
    found: dict[str, Tensor] = {}
    for name, (dtype, shape, first, end) in spans.items():
        raw = data[start + first : start + end]
        found[name] = (raw.bitcast(dtype) if end > first else Tensor.empty(0, dtype=dtype)).reshape(shape)
    return found


def _file(name: str, path: Any) -> Path:
    """The path that a named function is given."""
    try:
        return Path(path)
    except TypeError:
        raise DTypeError(
            f"{name}: a path is wanted; got {type(path).__name__}. Give text, or a pathlib.Path?"
        ) from None


def _damaged(file: Path, what: str) -> FileFormatError:
    """The error for a file that is not what it should be."""
    return FileFormatError(f"safe_load: {file.name} is no whole safetensors file; {what}. Was it copied completely?")


def _header(file: Path, raw: bytes) -> dict[str, Any]:
    """The header as a dictionary, each name once."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            raise _damaged(file, "its header has a name twice")
        return dict(pairs)

    try:
        header = json.loads(raw, object_pairs_hook=once)
    except FileFormatError:
        raise
    except (ValueError, RecursionError):  # of the text, the JSON or an endless number
        raise _damaged(file, "its header is no JSON") from None
    if not isinstance(header, dict):
        raise _damaged(file, "its header is no JSON object")
    return header  # pyright: ignore[reportUnknownVariableType] -- JSON


def _span(file: Path, name: str, entry: Any, available: int) -> tuple[DType, tuple[int, ...], int, int]:
    """(dtype, shape, first byte, end) of one tensor, checked."""
    try:
        kind, shape, (first, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        extents = tuple(shape)
        if not isinstance(kind, str) or not all(type(n) is int and n >= 0 for n in (*extents, first, end)):
            raise TypeError
    except (TypeError, KeyError, ValueError):
        raise _damaged(file, f"the entry of {name!r} is malformed") from None
    dtype = DTYPES.get(kind)
    if dtype is None:
        raise FileFormatError(f"safe_load: {file.name} has {name!r} of type {kind!r}; known are {', '.join(DTYPES)}.")
    count = dtype.itemsize
    for n in extents:
        count *= n
    if not first <= end <= available:
        raise _damaged(file, f"{name!r} lies at bytes {first} to {end} of {available}")
    if end - first != count:
        raise _damaged(file, f"{name!r} of shape {extents} needs {count} bytes and has {end - first}")
    return dtype, extents, first, end


def _check_filled(file: Path, spans: Mapping[str, tuple[DType, tuple[int, ...], int, int]], available: int) -> None:
    """The tensors must share no bytes and leave none between or after them."""
    last, owner = 0, ""
    for name, (_, _, first, end) in sorted(spans.items(), key=lambda pair: pair[1][2:]):
        if first < last and end > first:
            raise _damaged(file, f"{owner!r} and {name!r} share bytes")
        if first > last:
            raise _damaged(file, f"bytes {last} to {first}, before {name!r}, are no tensor's")
        last, owner = max(last, end), name
    if last != available:
        raise _damaged(file, f"its tensors end at byte {last} of {available}")


def safe_save(
    tensors: Mapping[str, Tensor], path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors to a safetensors file. The old file, if there is one, is whole until the new one is.

    Args:
        tensors: What to write, by name. It is computed, and moved to the CPU.
        path: Where the file goes.
        metadata: Text by name for the file's header.
    Raises: FileFormatError if a value is no tensor, a name is the format's own or metadata are no text, or the file
        cannot be written.
    Examples:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "weights.safetensors"
        >>> safe_save({"w": Tensor([1.0, 2.0])}, file, {"made by": "hand"})
        >>> list(safe_load(file))
        ['w']
    """
    if not isinstance(tensors, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] -- what callers give
        raise FileFormatError(
            f"safe_save: tensors by name and then a path are wanted; got {type(tensors).__name__} first. "
            'Write safe_save({"name": tensor}, path)?'
        )
    if metadata is not None and not isinstance(metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] -- as above
        raise FileFormatError(
            f'safe_save: metadata must be text by name; got {type(metadata).__name__}. Write {{"name": "text"}}?'
        )
    header, order = _layout(tensors, metadata or {})
    file = _file("safe_save", path)
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}", suffix=".part")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as out:
            out.write(len(header).to_bytes(8, "little") + header)
            for tensor in order:
                out.write(tensor.contiguous().numpy().tobytes())
        temporary.chmod(_mode(file))
        temporary.replace(file)
    except OSError as error:
        kind = FileMissingError if isinstance(error, FileNotFoundError) else FileFormatError
        raise kind(f"safe_save: {file} cannot be written; {error.strerror}.{way_out(error)}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _layout(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> tuple[bytes, list[Tensor]]:
    """The header, and the tensors in the order of their bytes: wide items first, so that each lies on its own size."""
    for name, tensor in tensors.items():
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- mappings hold anything
            raise FileFormatError(f"safe_save: the names of tensors must be text; got {name!r}. Use str(name)?")
        if name == "__metadata__":
            raise FileFormatError(
                "safe_save: a tensor cannot be called '__metadata__'; the format keeps that name. Rename it?"
            )
        if not isinstance(tensor, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance] -- mappings hold anything
            raise FileFormatError(
                f"safe_save: {name!r} must be a Tensor; got {type(tensor).__name__}. Make one with Tensor(...)?"
            )
    for key, value in metadata.items():
        if not (isinstance(key, str) and isinstance(value, str)):  # pyright: ignore[reportUnnecessaryIsInstance] -- as above
            raise FileFormatError(f"safe_save: metadata must be text by name; got {value!r} for {key!r}. Use str(...)?")
    kinds = {dtype: kind for kind, dtype in DTYPES.items()}
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    order = sorted(tensors.items(), key=lambda pair: (-pair[1].dtype.itemsize, pair[0]))
    end = 0
    for name, tensor in order:
        start, end = end, end + tensor.numel() * tensor.dtype.itemsize
        entries[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    try:
        text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        part = error.object[error.start : error.end]
        raise FileFormatError(
            f"safe_save: names and metadata must be Unicode text; {part!r} is no character. Leave it out?"
        ) from None
    return text + b" " * (-len(text) % 8), [tensor for _, tensor in order]


def _mode(file: Path) -> int:
    """The permissions of the file that is there, else those of a new one."""
    try:
        return stat.S_IMODE(file.stat().st_mode)
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
