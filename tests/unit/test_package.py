"""The package as a whole: what importing it costs, and that its parts agree."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import intaglio

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "intaglio"


def test_importing_loads_no_compiler_and_reads_no_setting() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); import intaglio; from intaglio.core import config; "
        "heavy = {'llvmlite', 'torch', 'ml_dtypes', 'safetensors', 'tokenizers'} & set(sys.modules); "
        "print(sorted(heavy), config._process.config)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[] None", "")


def test_the_version_is_the_one_of_the_project() -> None:
    assert intaglio.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_every_file_opens_with_one_line_that_names_its_topic() -> None:
    files = [path for path in SOURCE.rglob("*.py") if path.read_text().strip()]
    assert len(files) > 20
    for path in files:
        assert path.read_text().startswith('"""'), path


def test_every_public_name_is_exported_as_itself() -> None:
    for line in (SOURCE / "__init__.py").read_text().splitlines():
        if line.startswith("from "):
            name, alias = line.rsplit(" import ", 1)[1].split(" as ")
            assert name == alias, line


def test_every_error_can_be_caught_by_a_public_name() -> None:
    from intaglio.core import errors

    tree = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert {name for name in tree if getattr(intaglio, name, None) is not getattr(errors, name)} == set()
