"""A child after fork has memory and code of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from intaglio import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable


def in_child(work: Callable[[], bool]) -> bool:
    """Whether some work in a child process gives true."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_childs_writes_and_kernels_are_its_own() -> None:
    t = Tensor(np.arange(100_000, dtype=np.float32)).realize()

    def work() -> bool:
        t[0] = 42
        return t[0].item() == 42 and (t * 3.5 - 7)[2].item() == 0.0

    assert in_child(work)
    assert t[0].item() == 0
    assert (t * 2.25 + 11)[4].item() == 20.0
    assert ((t - 3) * (t + 5))[5].item() == 20.0
