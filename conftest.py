"""What all tests share: a printed seed, a cache of their own, golden files, the backends that conformance runs on."""

from __future__ import annotations

import ctypes
import os
import random
import tempfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import intaglio
from intaglio.ir.node import living
from intaglio.runtime.allocator import Allocator
from intaglio.storage.recomputed import recomputed
from intaglio.tensor.base import bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from intaglio.runtime.allocator import Block

POISONED = 1 << 20  # bytes of the largest buffer that is filled before a test gets it
SEED_VARIABLE = "INTAGLIO_TEST_SEED"
PUBLIC = [n for n, v in vars(intaglio).items() if not n.startswith("_") and not isinstance(v, ModuleType)]
GOLDEN = Path(__file__).parent / "tests" / "golden"

settings.register_profile("intaglio", deadline=None, print_blob=True, database=None)
settings.load_profile("intaglio")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this suite."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")
    parser.addoption("--backend", action="append", default=[], help="a device for conformance tests (may be repeated)")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed, for worker processes and Hypothesis as well; keep compiled kernels out of the user's cache."""
    seed = os.environ.setdefault(SEED_VARIABLE, str(random.SystemRandom().randrange(1 << 31)))
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = seed
    folder = tempfile.TemporaryDirectory(prefix="intaglio-tests-")
    config.add_cleanup(folder.cleanup)
    os.environ["INTAGLIO_CACHE_DIR"] = folder.name


def pytest_report_header() -> str:
    """Print the seed, with the way to repeat it."""
    return f"seed: {os.environ[SEED_VARIABLE]} (repeat with {SEED_VARIABLE}={os.environ[SEED_VARIABLE]})"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seed again beside failures."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"seed of this run: {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `backend` once on each."""
    if "backend" in metafunc.fixturenames:
        backends = metafunc.config.getoption("--backend") or ["CPU", "PYTHON"]
        if metafunc.definition.get_closest_marker("values"):
            backends = [backend for backend in backends if backend != "NULL"]
        metafunc.parametrize("backend", backends)


@pytest.fixture(autouse=True)
def public_names(doctest_namespace: dict[str, object]) -> None:
    """The package's public names, for the examples in docstrings."""
    doctest_namespace.update({name: getattr(intaglio, name) for name in PUBLIC})


@pytest.fixture(autouse=True)
def nothing_recomputed() -> None:
    """No kinds of values that other tests computed again: those would be stored by this one as well."""
    recomputed.clear()


@pytest.fixture(autouse=True, scope="session")
def poison() -> Iterator[None]:
    """Fill new memory with bits that are no number: a kernel that reads what nobody wrote is seen by its result."""
    plain = Allocator.allocate

    def allocate(self: Allocator, nbytes: int) -> Block:
        block = plain(self, nbytes)
        if nbytes <= POISONED:
            ctypes.memset(block.address, 0xFF, nbytes)
        return block

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Allocator, "allocate", allocate)
        yield


@pytest.fixture(autouse=True)
def nothing_pending() -> None:
    """Let the bound on nodes count from here: what other tests made, kernels above all, is not this one's."""
    bound.nodes, bound.calls = living(), 0


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A number that differs by test and by run, and is repeated by the seed that the run printed."""
    return random.Random(f"{os.environ[SEED_VARIABLE]} {request.node.nodeid}").randrange(1 << 31)


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Random numbers from the run's seed."""
    return random.Random(seed)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the golden file of a name (`make golden` rewrites it)."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no golden file {name}: `make golden` writes it"
        assert text == path.read_text()

    return compare
