"""The compiler: what LLVM refuses is an error that keeps both sides."""

from __future__ import annotations

import pytest

from intaglio.core.errors import CompileError
from intaglio.runtime.compiler import compile_text


def test_text_that_llvm_refuses_is_kept_with_what_it_says() -> None:
    source = "define i32 @run() { ret i64 0 }"
    with pytest.raises(CompileError, match=r"^llvm: the text of a kernel must be valid IR; LLVM says: ") as caught:
        compile_text(source)
    assert caught.value.source == source
    assert "i64" in caught.value.log
