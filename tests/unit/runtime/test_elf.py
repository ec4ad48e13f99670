"""The object loader gives what LLVM's own linker gives."""

from __future__ import annotations

import ctypes
import math

import pytest

from intaglio.runtime import elf
from intaglio.runtime.compiler import compile_text

SQUARE_ROOT_OF_SINE = """
declare double @sin(double)
@table = private constant [2 x double] [double 2.0, double 3.0]
define double @run(double %x, i64 %k) {
  %p = getelementptr double, ptr @table, i64 %k
  %c = load double, ptr %p
  %y = call double @sin(double %x)
  %z = fmul double %y, %c
  ret double %z
}
"""


@pytest.mark.skipif(not elf.is_supported(), reason="the loader knows x86-64 Linux only")
def test_constants_and_library_calls_are_relocated() -> None:
    address = elf.load(compile_text(SQUARE_ROOT_OF_SINE), "run")
    run = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int64)(address)
    assert run(0.5, 0) == 2.0 * math.sin(0.5)
    assert run(0.5, 1) == 3.0 * math.sin(0.5)


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="not a relocatable"):
        elf.load(b"not an object file at all, but long enough", "run")
