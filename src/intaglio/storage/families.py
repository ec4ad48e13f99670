"""Histories that differ in one size: what they have in common, and how all their integers follow from the size.

Say that a form of any size (`engine/plan.py`) has served a history at two sizes. Then each of its integers lies on a
line, and a history whose integers all lie there at one other size is that form at that size: no program is made of it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from intaglio.schedule.sizes import line

if TYPE_CHECKING:
    from intaglio.engine.form import Form, Template
    from intaglio.schedule.sizes import Fit

FAMILIES: Final = 128  # that are remembered


class Member(NamedTuple):
    """A history taken apart.

    Attributes:
        skeleton: What is left without its integers.
        integers: All from which those of its structure follow: as they are, or as the difference of two.
        meets: For each pair of a write and a read of one storage, whether they touch a common byte.
        rests: For each buffer, how far behind where the history sees it the structure does.
    """

    skeleton: bytes
    integers: list[int]
    meets: list[bool]
    rests: list[int]


@dataclass(slots=True)
class _Family:
    """What is known of histories of one skeleton.

    Attributes:
        template: What serves them.
        key: That of the first.
        size: Of the first.
        member: The first.
        meets: Which pairs of views have met in any.
        fit: How the integers follow from the size, once there were two sizes.
    """

    template: Template
    key: bytes
    size: int
    member: Member
    meets: list[bool]
    fit: Fit | None = None


class Families:
    """The families that are remembered, the oldest forgotten first. Used under the engine's lock."""

    def __init__(self) -> None:
        self._known: Final[OrderedDict[bytes, _Family]] = OrderedDict()

    def learn(self, member: Member, key: bytes, form: Form) -> None:
        """Note which form serves a history."""
        if not form.size:
            return
        family = self._known.get(member.skeleton)
        if family is not None and family.template is form.template:
            family.fit = family.fit or line((family.size, family.member.integers), (form.size, member.integers))
            if family.fit is not None:
                family.meets = [a or b for a, b in zip(family.meets, member.meets, strict=True)]
                return
        self._known[member.skeleton] = _Family(form.template, key, form.size, member, member.meets)
        if len(self._known) > FAMILIES:
            self._known.popitem(last=False)

    def find(self, member: Member) -> tuple[bytes, Template, int] | None:
        """The key of a history that differs from this one in a size alone, what serves it, and the size of this one."""
        family = self._known.get(member.skeleton)
        if family is None or family.fit is None:
            return None
        n = family.fit.size(member.integers)
        if n is None or not family.template.least <= n <= family.template.most:
            return None
        meets_anew = any(now and not before for now, before in zip(member.meets, family.meets, strict=True))
        return None if meets_anew else (family.key, family.template, n)
