"""Every setting, in one frozen dataclass, read alike by environment, by `Context` and by code."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

Value = int | str | bool
T = TypeVar("T", int, str, bool)


def _setting(default: T, text: str, short: str = "") -> T:
    """A field with its help text and the short environment name that is accepted beside INTAGLIO_NAME."""
    return field(default=default, metadata={"help": text, "short": short})


@dataclass(frozen=True, slots=True)
class Config:
    """The settings. Each is read from INTAGLIO_<NAME> (some also from a short name), `Context(name=...)` or `config.set`."""

    debug: int = _setting(0, "1 devices and schedules, 2 kernels, 3 schedule, 4 source, 5 graphs, 6 linear, 7 machine code", "DEBUG")
    beam: int = _setting(0, "candidates kept by the search over tiles; 0 uses the cost model alone", "BEAM")
    track_match_stats: int = _setting(0, "1 prints rewrite counts by ruleset, 2 by rule", "TRACK_MATCH_STATS")
    device: str = _setting("CPU", "the device of tensors that name none", "DEVICE")
    graph: int = _setting(0, "1 draws the tensor graph with its schedule", "GRAPH")
    graphuops: int = _setting(0, "1 draws each kernel's linear form", "GRAPHUOPS")
    dump: str = _setting("", "prints the IR before and after the pass of this name", "DUMP")
    threads: int = _setting(0, "native threads; 0 takes what the process may use")
    cache: bool = _setting(True, "whether compiled kernels are kept on disk")
    cache_dir: str = _setting("", "where compiled kernels are kept; empty is the user's cache folder")
    cache_size_mb: int = _setting(512, "bytes of compiled kernels kept, in MB")
    journal_entries: int = _setting(1 << 18, "pending writes after which the journal flushes itself")
    journal_nodes: int = _setting(1 << 16, "living nodes after which pending values are computed")
    verify: bool = _setting(False, "whether the IR is verified between passes")


_current: ContextVar[Config | None] = ContextVar("intaglio_config", default=None)
_NAMES: Final = {f.name: f for f in fields(Config)}


def _parse(name: str, text: str) -> Value:
    """A setting's value from its environment text."""
    default = _NAMES[name].default
    if isinstance(default, bool):
        return text.strip().lower() not in ("", "0", "false", "no", "off")
    if isinstance(default, int):
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"config: {name} must be an integer; got {text!r}.") from None
    return text


def from_environment(environment: Mapping[str, str]) -> Config:
    """The settings that an environment gives."""
    found: dict[str, Value] = {}
    for name, f in _NAMES.items():
        for key in (f"INTAGLIO_{name.upper()}", str(f.metadata["short"])):
            if key and key in environment:
                found[name] = _parse(name, environment[key])
                break
    return replace(Config(), **found)  # pyright: ignore[reportArgumentType] -- each parsed by its field's type


class _Settings:
    """The settings in force: of the current context, else of the process."""

    __slots__ = ("_base",)

    def __init__(self) -> None:
        self._base: Config | None = None

    @property
    def now(self) -> Config:
        """The settings in force here."""
        found = _current.get()
        if found is not None:
            return found
        if self._base is None:
            self._base = from_environment(os.environ)
        return self._base

    def set(self, **settings: Value) -> None:
        """Change settings of the process (and of the current context, if it has its own)."""
        changed = _checked(settings)
        here = _current.get()
        self._base = replace(self._base or from_environment(os.environ), **changed)  # pyright: ignore[reportArgumentType]
        if here is not None:
            _current.set(replace(here, **changed))  # pyright: ignore[reportArgumentType]

    def __getattr__(self, name: str) -> Value:
        if name in _NAMES:
            return getattr(self.now, name)
        raise AttributeError(f"config: no setting {name!r}; there are {', '.join(_NAMES)}.")


def _checked(settings: Mapping[str, Value]) -> dict[str, Value]:
    """Settings by field name; capitals and short names are accepted."""
    changed: dict[str, Value] = {}
    for key, value in settings.items():
        name = key.lower()
        if name not in _NAMES:
            raise AttributeError(f"config: no setting {key!r}; there are {', '.join(_NAMES)}.")
        default = _NAMES[name].default
        changed[name] = bool(value) if isinstance(default, bool) else value
    return changed


config: Final = _Settings()


class Context(ContextDecorator):
    """Settings for the duration of a block or function: `with Context(DEBUG=2): ...`.

    Examples:
        >>> from intaglio import Context, config
        >>> with Context(DEBUG=2):
        ...     config.debug
        2
    """

    def __init__(self, **settings: Value) -> None:
        self._settings: Final = _checked(settings)
        self._tokens: Final[list[Token[Config | None]]] = []

    def __enter__(self) -> Context:
        """Put the settings in force."""
        self._tokens.append(_current.set(replace(config.now, **self._settings)))  # pyright: ignore[reportArgumentType]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Restore what was in force."""
        _current.reset(self._tokens.pop())


def getenv(name: str, default: Value = 0) -> Value:
    """A setting by its environment name, or any environment variable, with the type of `default`."""
    if name.lower() in _NAMES:
        return getattr(config, name.lower())
    text = os.environ.get(name)
    if text is None:
        return default
    convert: Callable[[str], Value] = type(default)
    return convert(text)
