"""Settings: environment, `Context` and code agree."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import timeit
from pathlib import Path

import pytest

from intaglio.core import config as module
from intaglio.core.config import Config, Context, config, from_environment, getenv, settings_table
from intaglio.core.errors import ConfigError

SOURCE = str(Path(module.__file__).parents[2])
DOCS = Path(__file__).parents[3] / "docs"


def in_fresh_python(program: str, **environment: str) -> str:
    """What a program prints in a new process with this environment."""
    kept = {name: value for name, value in os.environ.items() if name not in module._BY_KEY}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {SOURCE!r})\n{program}"],
        env={**kept, **environment}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


SHOW = (
    "from intaglio.core.config import config, getenv; print(config.debug, config.device, config.cache, getenv('DEBUG'))"
)


def test_the_environment_is_read_under_both_names_and_the_long_one_wins() -> None:
    assert in_fresh_python(SHOW, DEBUG="2", DEVICE="NULL", INTAGLIO_CACHE="off") == "2 NULL False 2"
    assert in_fresh_python(SHOW, DEBUG="2", INTAGLIO_DEBUG="3") == "3 CPU True 3"
    assert in_fresh_python(SHOW) == "0 CPU True 0"


def test_the_environment_counts_until_the_first_read_and_not_after() -> None:
    program = """
import os
from intaglio.core.config import config, Context
os.environ["DEBUG"] = "2"
print(config.debug, end=" ")
os.environ["DEBUG"] = "5"
print(config.debug)
"""
    assert in_fresh_python(program) == "2 2"


def test_setting_one_by_code_keeps_the_others_of_the_environment() -> None:
    program = "from intaglio.core.config import config; config.set(beam=2); print(config.beam, config.debug)"
    assert in_fresh_python(program, DEBUG="4", BEAM="9") == "2 4"


def test_an_unreadable_environment_is_a_clear_error() -> None:
    assert in_fresh_python(SHOW, DEBUG="two").endswith(
        "config: DEBUG must be a whole number; got 'two'. Leave it out for the default, 0?"
    )
    assert in_fresh_python(SHOW, INTAGLIO_VERIFY="maybe").endswith(
        "INTAGLIO_VERIFY must be 0 or 1; got 'maybe'. Leave it out for the default, False?"
    )
    with pytest.raises(ConfigError, match="INTAGLIO_THREADS must be at least 0; got -1"):
        from_environment({"INTAGLIO_THREADS": "-1"})


@pytest.mark.parametrize(("name", "most"), [("DEBUG", 7), ("TRACK_MATCH_STATS", 2), ("GRAPH", 1), ("GRAPHUOPS", 1)])
def test_a_setting_out_of_its_range_is_an_error_that_names_it(name: str, most: int) -> None:
    for value in (-1, most + 1, 99):
        text = f"config: {name} must be from 0 to {most}; got {value}. Leave it out for the default, 0?"
        for use in (
            lambda value=value: from_environment({name: str(value)}),
            lambda value=value: Context(**{name: value}),
            lambda value=value: config.set(**{name: value}),
        ):
            with pytest.raises(ConfigError) as found:
                use()
            assert str(found.value) == text
    with Context(**{name: most}):
        assert getattr(config, name.lower()) == most


def test_every_setting_is_seen_alike_by_environment_context_and_code() -> None:
    for name, f in module._FIELDS.items():
        number = 7 if f.metadata["most"] is None else f.metadata["most"]
        value = (not f.default) if isinstance(f.default, bool) else "NULL" if isinstance(f.default, str) else number
        assert (
            getattr(
                from_environment({f"INTAGLIO_{name.upper()}": str(int(value) if value in (True, False) else value)}),
                name,
            )
            == value
        )
        with Context(**{name: value}):
            assert getattr(config, name) == value
            assert getenv(f"INTAGLIO_{name.upper()}") == value
            with Context(**{name.upper(): f.default}):
                assert getattr(config, name) == f.default
            assert getattr(config, name) == value


def test_contexts_nest_and_restore_after_an_exception() -> None:
    before = config.debug

    @Context(DEBUG=before + 1)
    @Context(BEAM=3)
    def fail() -> None:
        assert (config.debug, config.beam) == (before + 1, 3)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert config.debug == before


def test_code_inside_a_context_is_obeyed_at_once_and_stays_after_it() -> None:
    before = config.beam
    try:
        with Context(beam=5):
            config.set(beam=6)
            assert config.beam == 6
        assert config.beam == 6
    finally:
        config.set(beam=before)


def test_what_another_thread_sets_shows_through_a_context_that_does_not_override_it() -> None:
    before = config.beam
    try:
        with Context(debug=1):
            worker = threading.Thread(target=lambda: config.set(beam=8))
            worker.start()
            worker.join()
            assert (config.debug, config.beam) == (1, 8)
    finally:
        config.set(beam=before)


def test_a_context_is_of_its_own_thread() -> None:
    seen: list[int] = []
    with Context(debug=config.debug + 3):
        worker = threading.Thread(target=lambda: seen.append(config.debug))
        worker.start()
        worker.join()
        assert seen == [config.debug - 3]


def test_a_decorated_function_may_run_on_many_threads_and_call_itself() -> None:
    @Context(beam=4)
    def depth(n: int) -> int:
        return config.beam if n == 0 else depth(n - 1)

    found: list[int] = []
    workers = [threading.Thread(target=lambda: found.append(depth(20))) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [4] * 8


def test_a_context_can_be_entered_again() -> None:
    again = Context(beam=2)
    with again, again:
        assert config.beam == 2
    with again:
        assert config.beam == 2
    assert config.beam == 0


def test_unknown_names_and_wrong_kinds_are_errors_that_change_nothing() -> None:
    before = (config.debug, config.device)
    for wrong in ({"debgu": 1}, {"device": 3}, {"debug": "x"}, {"debug": 1, "threads": -2}):
        with pytest.raises(ConfigError):
            config.set(**wrong)
        with pytest.raises(ConfigError):
            Context(**wrong)
    with pytest.raises(AttributeError, match=r"config.set\(debug=3\)"):
        config.debug = 3  # type: ignore[misc]
    with pytest.raises(AttributeError, match="no setting 'debgu'; there are debug"):
        _ = config.debgu
    assert not hasattr(config, "debgu")
    assert (config.debug, config.device) == before


def test_text_is_accepted_where_the_environment_would_take_it() -> None:
    with Context(DEBUG="3", cache="0", DEVICE="NULL"):
        assert (config.debug, config.cache, config.device) == (3, False, "NULL")


def test_getenv_reads_other_variables_as_the_kind_of_their_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_FLAG", "0")
    assert getenv("SOME_FLAG", True) is False
    assert getenv("SOME_FLAG", 5) == 0
    assert getenv("SOME_FLAG", "x") == "0"
    assert getenv("NOT_THERE", 5) == 5
    monkeypatch.setenv("SOME_FLAG", "many")
    with pytest.raises(ConfigError, match="SOME_FLAG must be a whole number"):
        getenv("SOME_FLAG", 1)


def test_reading_a_setting_takes_well_under_a_microsecond() -> None:
    assert min(timeit.repeat("config.debug", globals={"config": config}, number=2000, repeat=20)) / 2000 < 1e-6


def test_the_table_in_the_docs_is_the_one_made_from_the_fields() -> None:
    assert settings_table() in (DOCS / "settings.md").read_text(), "`make docs` rewrites it"


def test_the_defaults_are_those_of_the_dataclass() -> None:
    assert from_environment({}) == Config()
