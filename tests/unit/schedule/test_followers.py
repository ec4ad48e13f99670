"""Values are forgotten with the buffers that they are computed from, and only those."""

from __future__ import annotations

from intaglio.core.dtypes import dtypes
from intaglio.ir.view import View
from intaglio.ops.elementwise import add
from intaglio.ops.memory import BufferRef
from intaglio.schedule.followers import Followers
from intaglio.schedule.program import read_at


def test_values_of_a_buffer_are_forgotten_once() -> None:
    a, b = BufferRef(16, "CPU"), BufferRef(16, "CPU")
    whole = View.contiguous(dtypes.float32, (4,))
    x, y = read_at(a, whole, 0), read_at(b, whole, 0)
    both, double = add(x, y), add(y, y)
    followers = Followers()
    for node in (x, y, both, double):
        followers.note(node)
    assert set(followers.forget(a)) == {x, both}
    assert set(followers.forget(a)) == set()
    assert set(followers.forget(b)) == {y, both, double}
    followers.note(x)
    followers.note(both)
    assert set(followers.forget(a)) == {x, both}
