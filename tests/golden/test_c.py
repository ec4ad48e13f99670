"""Kernels as C: the text is kept, and a C compiler agrees with LLVM where there is one."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Tensor
from intaglio.core.target import Target
from intaglio.engine.explain import c_source, sources
from intaglio.ir.text import print_text
from intaglio.lower.kernel import lower

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEADER = "#include <stdint.h>\n#include <stdbool.h>\n#include <math.h>\n"


def loop_of_writes() -> Tensor:
    """Writes of an affine value."""
    t = Tensor.empty(1000)
    for i in range(1000):
        t[i] = i
    return t


def recurrence() -> Tensor:
    """A sequential loop."""
    t = Tensor.zeros(101)
    for i in range(100):
        t[i + 1] = t[i] * 0.5 + 3
    return t


def softmax() -> Tensor:
    """Two reductions and a store in one nest."""
    return Tensor(np.arange(600, dtype=np.float32).reshape(3, 200)).softmax(-1)


def product() -> Tensor:
    """A product with its epilogue."""
    x = Tensor(np.arange(200, dtype=np.float32).reshape(2, 100))
    return (x @ x.T + 1).relu()


def logarithm() -> Tensor:
    """What is rare under a condition of its own."""
    return Tensor(np.arange(12, dtype=np.float32)).log()


PROGRAMS = {"loop": loop_of_writes, "recurrence": recurrence, "softmax": softmax, "product": product, "log": logarithm}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_source_is_as_kept(name: str, golden: Callable[[str, str], None]) -> None:
    with sources() as seen:
        PROGRAMS[name]().realize()
    golden(f"{name}.c", "\n".join(seen))


def test_the_linear_form_is_as_kept(golden: Callable[[str, str], None]) -> None:
    kernels = loop_of_writes().schedule()
    linear = lower(kernels[0].ast, Target("golden", 16)).linear
    golden("loop.ir", print_text([linear]) + "\n")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("length", [1, 37])
def test_a_c_compiler_gives_what_llvm_gives(length: int, tmp_path: Path) -> None:
    x = Tensor(np.linspace(-3, 3, length, dtype=np.float32))
    result = (x * 1.5).exp() + x.floor() // 2
    (kernel,) = result.schedule()
    source = HEADER + c_source(kernel.ast)
    (tmp_path / "k.c").write_text(source)
    subprocess.run(
        ["gcc", "-O1", "-std=gnu11", "-ffp-contract=off", "-shared", "-fPIC", "k.c", "-o", "k.so", "-lm"], cwd=tmp_path, check=True
    )
    name = lower(kernel.ast, Target("c", 0)).name
    function = getattr(ctypes.CDLL(str(tmp_path / "k.so")), name)
    given, out = x.numpy(), np.zeros(length, np.float32)
    buffers = {True: out, False: given}
    arguments: list[object] = []
    for slot in kernel.slots:
        if isinstance(slot[1], int) and hasattr(slot[0], "nbytes"):
            arguments.append(buffers[slot[0] in kernel.written].ctypes.data_as(ctypes.c_void_p))
        else:
            dtype = slot[0]
            arguments.append((ctypes.c_float if dtype.is_float else ctypes.c_int64)(dtype.from_bits(slot[1])))
    function(*arguments)
    assert np.allclose(out, result.numpy(), rtol=1e-6)
