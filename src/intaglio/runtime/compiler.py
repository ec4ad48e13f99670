"""LLVM IR text to machine code in this process, by llvmlite, which is loaded at the first kernel that no cache has."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import threading
from dataclasses import astuple, dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from intaglio.core.errors import CompileError
from intaglio.core.locks import Level, across_forks
from intaglio.core.target import Target
from intaglio.runtime import elf
from intaglio.runtime.streams import keeps_results

if TYPE_CHECKING:
    from collections.abc import Callable

    from intaglio.runtime.disk_cache import DiskCache

_lock: Final = across_forks(threading.RLock(), Level.COMPILER)
VARYING: Final = (b"processor", b"physical id", b"core id", b"apicid", b"initial apicid", b"cpu MHz", b"bogomips")
_keep: Final[list[object]] = []  # loaded libraries live as long as the process: kernels are never unloaded


class ObjectError(Exception):
    """An object file that cannot be loaded: of another machine, or no whole one."""


class _Host:
    """LLVM set up for the machine that this runs on."""

    def __init__(self) -> None:
        from llvmlite import binding

        llvm: Any = binding  # its annotations are partial: this class is the one place that calls it
        self.llvm: Final = llvm
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.cpu: Final[str] = llvm.get_host_cpu_name()
        self.features: Final[str] = llvm.get_host_cpu_features().flatten()
        triple = llvm.Target.from_default_triple()
        self.machine: Final[Any] = triple.create_target_machine(
            cpu=self.cpu, features=self.features + ",-prefer-256-bit", opt=2, reloc="pic", codemodel="small"
        )
        jit_machine = triple.create_target_machine(cpu=self.cpu, features=self.features, opt=2)
        self.jit: Final[Any] = llvm.create_lljit_compiler(jit_machine)
        self.loaded: int = 0


@cache
def _host() -> _Host:
    """LLVM, at first use."""
    return _Host()


@dataclass(frozen=True, slots=True)
class About:
    """What LLVM says of this machine, and of itself; and what was measured."""

    version: str
    cpu: str
    features: str
    keeps: bool  # whether results are better left in the third cache: see `runtime/streams.py`


class _Known:
    """What is known of the machine; asking LLVM takes longer than all else that a kernel from the cache needs."""

    about: About | None = None


def recall_host(disk: Callable[[], DiskCache | None]) -> None:
    """Take what LLVM once said of this machine from a cache; what it has yet to say, keep there."""
    if _Known.about is not None:
        return
    cache, machine = disk(), _machine()
    if cache is None or machine is None:
        return
    key = f"host:{machine}"
    try:
        version, cpu, features, keeps = json.loads(cache.get(key) or b"")
        _Known.about = About(str(version), str(cpu), str(features), bool(keeps))
    except (ValueError, TypeError):
        cache.put(key, json.dumps(astuple(_about_host())).encode())


def _about_host() -> About:
    """What is known of this machine, from LLVM if it was not recalled."""
    if _Known.about is None:
        import llvmlite

        host = _host()
        _Known.about = About(llvmlite.__version__, host.cpu, host.features, _keeps_results(host.features))
    return _Known.about


def _keeps_results(features: str) -> bool:
    """Whether results are better left in the third cache, where the machine can write past the caches at all."""
    names = _names(features)
    if "sse2" not in names:
        return False
    level3 = host_caches().get("level3", Target().level3)
    return keeps_results(lambda text, name: load_object(compile_text(text), name), _width(names), level3)


def _machine() -> str | None:
    """What tells this machine with its LLVM from others; None where the system does not say."""
    found = find_spec("llvmlite")
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            first, _, rest = file.read(1 << 14).partition(b"\n\n")
        if not rest or found is None or found.origin is None:
            return None
        llvm = os.stat(found.origin)
    except OSError:
        return None
    lines = [line for line in first.split(b"\n") if not line.startswith(VARYING)]
    text = b"\n".join(lines) + f"{os.uname().machine} {found.origin} {llvm.st_mtime_ns} {llvm.st_size}".encode()
    return hashlib.sha256(text).hexdigest()


@cache
def host_features() -> frozenset[str]:
    """The CPU's features, as LLVM names them."""
    return _names(_about_host().features)


def _names(features: str) -> frozenset[str]:
    """Those that a machine has, of features as LLVM lists them."""
    return frozenset(f[1:] for f in features.split(",") if f.startswith("+"))


def _width(features: frozenset[str]) -> int:
    """Bytes of the widest vectors."""
    return 64 if "avx512f" in features else 32 if "avx2" in features else 16


def compile_text(source: str) -> bytes:
    """IR text as an object file.

    Raises: CompileError if LLVM refuses the text.
    """
    with _lock:
        host = _host()
        llvm = host.llvm
        try:
            module = llvm.parse_assembly(source)
            module.verify()
        except RuntimeError as error:
            message = f"llvm: the text of a kernel must be valid IR; LLVM says: {error}. Please report it."
            raise CompileError(message, source, str(error)) from error
        return host.machine.emit_object(module)


def load_object(data: bytes, symbol: str) -> int:
    """The address of a function of an object file.

    Raises: ObjectError if it cannot be loaded.
    """
    try:
        return _load(data, symbol)
    except (RuntimeError, ValueError, LookupError, OverflowError, struct.error) as error:  # of LLVM, and of reading it
        raise ObjectError(f"{symbol}: {error}") from error


def _load(data: bytes, symbol: str) -> int:
    """The address of a function of an object file that is whole."""
    with _lock:
        if elf.is_supported():
            with contextlib.suppress(elf.UnsupportedError):  # LLVM's linker knows every relocation
                return elf.load(data, symbol)
        host = _host()
        host.loaded += 1
        builder = host.llvm.JITLibraryBuilder().add_object_img(data).export_symbol(symbol).add_current_process()
        library = builder.link(host.jit, f"kernel{host.loaded}")
        _keep.append(library)
        return library[symbol]


def cache_key(source: str) -> str:
    """What a compiled kernel is stored under: its text, and all else that its code depends on."""
    host = _about_host()
    text = f"{host.version}|pic small|{host.cpu}|{host.features}|{source}"
    return hashlib.sha256(text.encode()).hexdigest()


class Compiler:
    """Source text to addresses, through a cache on disk."""

    def __init__(self, disk: Callable[[], DiskCache | None]) -> None:
        """Compile through the cache that is in force when a kernel is asked for (None: there is none)."""
        self._disk: Final = disk

    def load(self, source: str, symbol: str) -> tuple[int, bool]:
        """(address, whether LLVM had to compile it). What the cache has and cannot be loaded is compiled anew."""
        disk = self._disk()
        if disk is None:
            return load_object(compile_text(source), symbol), True
        recall_host(lambda: disk)
        key = cache_key(source)
        kept = disk.get(key)
        if kept is not None:
            with contextlib.suppress(ObjectError):
                return load_object(kept, symbol), False
        data = compile_text(source)
        disk.put(key, data)
        return load_object(data, symbol), True


def assembly(source: str) -> str:
    """The machine code of IR text, as assembly (DEBUG=7)."""
    with _lock:
        host = _host()
        module = host.llvm.parse_assembly(source)
        return host.machine.emit_assembly(module)


def host_target(threads: int) -> Target:
    """The machine that this runs on."""
    features = host_features()
    if not _about_host().cpu.startswith("znver"):  # on Sapphire Rapids each takes 0.7 to 1.9 ns, an FMA 0.18
        features -= {"avx512bf16"}
    target = Target("cpu", _width(features), features, threads, **host_caches())
    if _about_host().cpu == "znver5":  # it reads single rows by 5 to 10 % faster so, on one thread
        target = replace(target, streams=4, followed=0)
    return replace(target, near=target.level3 // 2) if _about_host().keeps else target


@cache
def host_caches() -> dict[str, int]:
    """Bytes of the data caches that one core uses, by the name that `Target` has for them; empty if not known."""
    found: dict[str, int] = {}
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind, level, size = ((folder / name).read_text("ascii").strip() for name in ("type", "level", "size"))
            if kind != "Instruction" and level in "123":
                found[f"level{level}"] = int(size.removesuffix("K")) << 10
        except (OSError, ValueError):
            continue
    return found
