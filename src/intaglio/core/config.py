"""Every setting, in one frozen dataclass, read alike by environment, by `Context` and by code."""

from __future__ import annotations

import os
from contextvars import ContextVar, Token
from dataclasses import Field, dataclass, field, fields, replace
from functools import wraps
from operator import attrgetter, index
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from intaglio.core.errors import ConfigError, DeviceError
from intaglio.core.locks import Level, across_forks
from intaglio.core.target import DEVICES, canonical
from intaglio.core.words import meant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

Value = int | str | bool
T = TypeVar("T", int, str, bool)
P = ParamSpec("P")
R = TypeVar("R")

_FALSE: Final = frozenset(("", "0", "false", "no", "off"))
_TRUE: Final = frozenset(("1", "true", "yes", "on"))


def _setting(default: T, text: str, short: str = "", least: int = 0, most: int | None = None) -> T:
    """A field with its help text, the short environment name accepted beside INTAGLIO_NAME, and its range."""
    return field(default=default, metadata={"help": text, "short": short, "least": least, "most": most})


@dataclass(frozen=True, slots=True)
class Config:
    """The settings, each read from INTAGLIO_<NAME> (or a short name), `Context(name=...)` or `config.set`."""

    debug: int = _setting(
        0,
        "1 devices and schedules, 2 kernels, 3 schedule, 4 source, 5 graphs, 6 linear, 7 machine code",
        "DEBUG",
        most=7,
    )
    beam: int = _setting(0, "candidates kept by the search over tiles; 0 uses the cost model alone", "BEAM")
    beam_seconds: int = _setting(20, "seconds that the search for one kernel may take", least=1)
    track_match_stats: int = _setting(0, "1 prints rewrite counts by ruleset, 2 by rule", "TRACK_MATCH_STATS", most=2)
    device: str = _setting("CPU", "the device of tensors that name none", "DEVICE")
    graph: int = _setting(0, "1 draws the tensor graph with its schedule", "GRAPH", most=1)
    graphuops: int = _setting(0, "1 draws each kernel's linear form", "GRAPHUOPS", most=1)
    threads: int = _setting(0, "native threads; 0 takes what the process may use")
    cache: bool = _setting(True, "whether compiled kernels are kept on disk")
    cache_dir: str = _setting("", "where compiled kernels are kept; empty is the user's cache folder")
    cache_size_mb: int = _setting(512, "size of the kernels kept on disk, in MB")
    journal_entries: int = _setting(1 << 18, "pending writes after which the journal flushes itself", least=1)
    journal_nodes: int = _setting(1 << 16, "living nodes after which pending values are computed", least=1)
    journal_bytes: int = _setting(1 << 30, "bytes held by pending work after which the journal flushes itself", least=1)
    memory_bytes: int = _setting(
        0, "bytes of living buffers on a device beyond which more are refused; 0 sets no bound"
    )
    kept_bytes: int = _setting(1 << 29, "bytes of freed memory that a device keeps for reuse at most")
    verify: bool = _setting(False, "whether the IR is verified between passes")


_FIELDS: Final[Mapping[str, Field[Any]]] = {f.name: f for f in fields(Config)}
_BY_KEY: Final = {
    **{str(f.metadata["short"]): name for name, f in _FIELDS.items() if f.metadata["short"]},
    **{f"INTAGLIO_{name.upper()}": name for name in _FIELDS},
}


@dataclass(slots=True)
class _Override:
    """What a context changes, and the settings in force there while the process's are `base`."""

    changed: dict[str, Value]
    base: Config
    now: Config


_here: ContextVar[_Override | None] = ContextVar("intaglio_config", default=None)
_setting_lock: Final = across_forks(Lock(), Level.LEAF)


class _Process:
    """The settings of the process: of the environment as it was at the first read, then as code set them."""

    __slots__ = ("config",)

    def __init__(self) -> None:
        self.config: Config | None = None


_process: Final = _Process()


def settings_now() -> Config:
    """All settings in force here: of the context, else of the process."""
    over = _here.get()
    if over is None:
        return _process.config or _load()
    base = _process.config or _load()
    if over.base is not base:
        over.base, over.now = base, _with(base, over.changed)
    return over.now


def _load() -> Config:
    """Read the environment, once."""
    with _setting_lock:
        if _process.config is None:
            _process.config = from_environment(os.environ)
        return _process.config


def from_environment(environment: Mapping[str, str]) -> Config:
    """The settings that an environment gives; INTAGLIO_NAME goes before the short name.

    Raises: ConfigError if a value cannot be read.
    """
    found = {name: _parse(key, name, environment[key]) for key, name in _BY_KEY.items() if key in environment}
    return _with(Config(), found)


def _with(base: Config, changed: Mapping[str, Value]) -> Config:
    """The settings with some changed."""
    return replace(base, **changed)


def _parse(key: str, name: str, text: str) -> Value:
    """The value of a setting from its text; `key` is how the user called it."""
    default = _FIELDS[name].default
    if isinstance(default, str):
        return _named_device(key, text) if name == "device" else text
    word = text.strip().lower()
    if isinstance(default, bool):
        if word not in _TRUE | _FALSE:
            raise _refusal(key, name, "be 0 or 1", text)
        return word in _TRUE
    try:
        value = int(word or "0")
    except ValueError:
        raise _refusal(key, name, "be a whole number", text) from None
    return _in_range(key, name, value)


def _named_device(key: str, text: str) -> str:
    """The name of a device, if there is such."""
    try:
        canonical(text)
    except DeviceError:
        known = ", ".join(name.lower() for name in DEVICES)
        hint = meant(text, DEVICES) or ' Compute on "CPU"?'
        raise ConfigError(f"config: {key} must name a device; got {text!r}; there are {known}.{hint}") from None
    return text


def _refusal(key: str, name: str, wanted: str, value: object) -> ConfigError:
    """The error for a value that a setting cannot have."""
    default = _FIELDS[name].default
    return ConfigError(f"config: {key} must {wanted}; got {value!r}. Leave it out for the default, {default!r}?")


def _in_range(key: str, name: str, value: int) -> int:
    """The value, if the setting may have it."""
    least, most = _FIELDS[name].metadata["least"], _FIELDS[name].metadata["most"]
    if most is None and value < least:
        raise _refusal(key, name, f"be at least {least}", value)
    if most is not None and not least <= value <= most:
        raise _refusal(key, name, f"be from {least} to {most}", value)
    return value


def _checked(settings: Mapping[str, Value]) -> dict[str, Value]:
    """Settings by field name, of their fields' types; names in capitals and text as in the environment are accepted."""
    changed: dict[str, Value] = {}
    for key, value in settings.items():
        name = _BY_KEY.get(key, key.lower())
        if name not in _FIELDS:
            raise ConfigError(f"config: no setting {key!r}; there are {', '.join(_FIELDS)}.{meant(key, _FIELDS)}")
        default = _FIELDS[name].default
        if isinstance(value, str):
            changed[name] = _parse(key, name, value)
        elif isinstance(default, str):
            raise _refusal(key, name, "be text", value)
        elif isinstance(default, bool):
            if value not in (0, 1):
                raise _refusal(key, name, "be 0 or 1", value)
            changed[name] = bool(value)
        else:
            try:
                changed[name] = _in_range(key, name, index(value))
            except TypeError:
                raise _refusal(key, name, "be a whole number", value) from None
    return changed


if TYPE_CHECKING:
    _Fields = Config  # so that `config.debug` has its field's type
else:
    _Fields = object


class Settings(_Fields):
    """The settings in force, as attributes: of the current context, else set by code, else of the environment."""

    __slots__ = ()

    def __init__(self) -> None:
        """Hold nothing: values live in the context and in the process."""

    def set(self, **settings: Value) -> None:
        """Change settings of the process, and of the current context if it has its own.

        Raises: ConfigError for an unknown name or a value of the wrong kind; then nothing is changed.
        """
        changed = _checked(settings)
        _load()
        with _setting_lock:
            base = _process.config = _with(_process.config or Config(), changed)
        over = _here.get()
        if over is not None:
            mine = {**over.changed, **{name: value for name, value in changed.items() if name in over.changed}}
            _here.set(_Override(mine, base, _with(base, mine)))

    def __getattr__(self, name: str) -> Value:
        raise AttributeError(f"config: no setting {name!r}; there are {', '.join(_FIELDS)}.{meant(name, _FIELDS)}")

    def __setattr__(self, name: str, value: Value) -> None:
        raise AttributeError(f"config: settings are changed by config.set({name}={value!r}) or Context(...).")

    def __repr__(self) -> str:
        return repr(settings_now())


def _reader(name: str) -> property:
    """A property that reads one setting: one look at the context, one at the process."""
    of: Callable[[Config], Value] = attrgetter(name)
    get, process, now = _here.get, _process, settings_now

    def read(_: Settings) -> Value:
        return of(process.config or now()) if get() is None else of(now())

    return property(read, doc=str(_FIELDS[name].metadata["help"]))


for _name in _FIELDS:
    setattr(Settings, _name, _reader(_name))

config: Final = Settings()


class Context:
    """Settings for the duration of a block or of a function's calls: `with Context(DEBUG=2): ...`.

    Examples:
        >>> from intaglio import Context, config
        >>> with Context(DEBUG=2):
        ...     config.debug
        2
        >>> @Context(beam=4)
        ... def tuned():
        ...     return config.beam
        >>> tuned(), config.beam
        (4, 0)
    """

    __slots__ = ("_changed", "_tokens")

    def __init__(self, **settings: Value) -> None:
        self._changed: Final = _checked(settings)
        self._tokens: Final[list[Token[_Override | None]]] = []

    def __enter__(self) -> Context:
        """Put the settings in force."""
        outer = _here.get()
        changed = self._changed if outer is None else {**outer.changed, **self._changed}
        base = _process.config or _load()
        self._tokens.append(_here.set(_Override(changed, base, _with(base, changed))))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore what was in force."""
        _here.reset(self._tokens.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function with the settings in force at each call, on whatever thread."""

        @wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            with Context(**self._changed):
                return function(*args, **kwargs)

        return inside


def getenv(name: str, default: Value = 0) -> Value:
    """A setting in force by its environment name; of any other environment variable its text, as the default's kind.

    Args:
        name: The name, such as "DEBUG".
        default: What an environment variable that is not set gives; its class is that of the result.
    Raises: ConfigError if the text cannot be read as the default's kind.
    Examples:
        >>> with Context(DEBUG=2):
        ...     getenv("DEBUG")
        2
        >>> getenv("NO_SUCH_VARIABLE", "nothing")
        'nothing'
    """
    setting = _BY_KEY.get(name, name.lower())
    if setting in _FIELDS:
        return getattr(settings_now(), setting)
    text = os.environ.get(name)
    if text is None or isinstance(default, str):
        return default if text is None else text
    if isinstance(default, bool):
        return text.strip().lower() not in _FALSE
    try:
        return int(text.strip() or "0")
    except ValueError:
        raise ConfigError(
            f"config: {name} must be a whole number; got {text!r}. Give text as the default to read text?"
        ) from None


def settings_table() -> str:
    """The table of all settings in Markdown: what docs/settings.md shows."""
    rows = ["| setting | environment | default | meaning |", "|---|---|---|---|"]
    for name, f in _FIELDS.items():
        short = f" or `{f.metadata['short']}`" if f.metadata["short"] else ""
        default = "(empty)" if f.default == "" else f"`{f.default}`"
        rows.append(f"| `{name}` | `INTAGLIO_{name.upper()}`{short} | {default} | {f.metadata['help']} |")
    return "\n".join(rows) + "\n"
