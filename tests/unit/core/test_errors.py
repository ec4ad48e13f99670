"""The error tree: what each error also is, and what it keeps."""

from __future__ import annotations

import pickle

import pytest

from intaglio.core import errors
from intaglio.core.errors import CompileError, IntaglioError, InternalError

BUILTIN = {
    "ShapeError": ValueError, "DTypeError": TypeError, "ValueRangeError": ValueError, "IndexRangeError": IndexError,
    "OverlapError": ValueError, "ReadOnlyError": ValueError, "DeviceError": RuntimeError, "FileFormatError": ValueError,
    "FileMissingError": FileNotFoundError,
    "GradError": RuntimeError, "CompileError": RuntimeError, "ConfigError": ValueError, "InternalError": AssertionError,
}  # fmt: skip


def test_the_tree_is_complete_and_each_error_is_a_builtin_one_too() -> None:
    found = {n: c for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, IntaglioError)}
    assert set(found) - {"IntaglioError"} == set(BUILTIN)
    for name, builtin in BUILTIN.items():
        assert issubclass(found[name], builtin)


@pytest.mark.parametrize("name", BUILTIN)
def test_an_error_survives_pickling(name: str) -> None:
    error = getattr(errors, name)("add: shapes must agree.")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)


def test_a_compile_error_keeps_source_and_log() -> None:
    error = pickle.loads(pickle.dumps(CompileError("llvm: refused.", source="define", log="line 1")))
    assert (str(error), error.source, error.log) == ("llvm: refused.", "define", "line 1")


def test_an_internal_error_asks_to_be_reported_and_shows_the_ir() -> None:
    assert str(InternalError("lower: no rule for X.", ir="x = add")) == (
        "lower: no rule for X.\nThis is a bug in Intaglio: please report it with this message.\nx = add"
    )
