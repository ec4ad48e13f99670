"""The public docstrings have the sections that the house style asks for, in its order."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest

import intaglio
from intaglio import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

SECTIONS = ("Args", "Shape", "Dtype", "Raises", "Source", "Examples")


def functions() -> dict[str, Callable[..., Any]]:
    """What the package exports, and the methods and properties of `Tensor`, as plain functions by name."""
    found: dict[str, Any] = {n: v for n, v in vars(intaglio).items() if inspect.isfunction(v)}
    for name in dir(Tensor):
        if not name.startswith("_"):
            member = inspect.getattr_static(Tensor, name)
            member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if inspect.isfunction(member):
                found[f"Tensor.{name}"] = inspect.unwrap(member)
    return found


PUBLIC = functions()


def sections(doc: str) -> dict[str, str]:
    """The text of each section of a docstring."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):", doc, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def arguments(name: str) -> list[str]:
    """The parameters that a caller gives."""
    given = list(inspect.signature(PUBLIC[name]).parameters.values())
    free = not name.startswith("Tensor.") or isinstance(vars(Tensor).get(name.removeprefix("Tensor.")), staticmethod)
    bound = not free and given[0].kind is not inspect.Parameter.VAR_POSITIONAL  # `cat(*given)` takes itself for one
    return [parameter.name for parameter in given[bound:]]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_docstring_has_its_sections(name: str) -> None:
    doc = inspect.getdoc(PUBLIC[name])
    assert doc is not None
    found = sections(doc)
    assert list(found) == [section for section in SECTIONS if section in found]
    first = doc.splitlines()[0]
    assert first.endswith((".", ":"))
    assert not first.startswith(("This function", "This method"))
    described = re.findall(r"^    (\w+): ", found.get("Args", ""), flags=re.MULTILINE)
    assert described == arguments(name)
    assert ">>> " in found.get("Examples", ""), "an example"
    if re.search(r"^ +raise ", inspect.getsource(PUBLIC[name]), flags=re.MULTILINE):
        assert "Raises" in found


@pytest.mark.parametrize("name", [n for n, v in vars(intaglio).items() if inspect.isclass(v)])
def test_a_public_class_has_a_docstring_of_its_own(name: str) -> None:
    made = vars(intaglio)[name]
    assert vars(made).get("__doc__"), name
    if not issubclass(made, Exception):
        assert ">>> " in sections(inspect.cleandoc(made.__doc__)).get("Examples", ""), "an example"


def test_what_is_found_is_the_whole_interface() -> None:
    assert len(PUBLIC) > 290
    assert {"Tensor.sum", "Tensor.einsum", "Tensor.zeros", "Tensor.T", "safe_load", "getenv"} <= set(PUBLIC)
