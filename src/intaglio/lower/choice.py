"""The decisions of lowering: each has the cost model's answer, and others that give the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

Value: TypeAlias = "int | tuple[int, ...]"  # bools are integers
Answer: TypeAlias = tuple[int, str, Value]  # the number of a nest, what is decided there, how
V = TypeVar("V", int, tuple[int, int], tuple[int, ...])


@dataclass(frozen=True, slots=True)
class Choice:
    """Where lowering is to decide otherwise than the cost model: small, and all that a search finds."""

    answers: tuple[Answer, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{name} {_spelled(value)}" for _, name, value in self.answers) or "as the model says"


MODEL: Final = Choice()


@dataclass(frozen=True, slots=True)
class Decision:
    """One that was taken: the model's answer, the one in force, and all that are right."""

    nest: int
    name: str
    model: Value
    value: Value
    options: tuple[Value, ...]


class Decisions:
    """Answers the questions of one lowering, and remembers them.

    An answer of the choice that is no option here is not taken: a choice is never wrong, at worst it is the model's.
    No option may change a bit of a result: the order of a reduction depends on nothing that is decided here.
    """

    def __init__(self, choice: Choice = MODEL) -> None:
        self._wanted: Final = {(nest, name): value for nest, name, value in choice.answers}
        self._taken: Final[dict[tuple[int, str], Decision]] = {}
        self._nest: int = -1

    def begin(self) -> None:
        """Begin the next nest of loops."""
        self._nest += 1

    def of(self, name: str, model: V, options: Iterable[V]) -> V:
        """The answer to one question; asked again in a nest, it is the same where it can be."""
        key = self._nest, name
        every = (model, *(o for o in dict.fromkeys(options) if o != model))
        before = self._taken.get(key)
        wanted = self._wanted.get(key) if before is None else before.value
        for option in every:
            if option == wanted:
                value = option
                break
        else:
            value = model
        if before is None:
            self._taken[key] = Decision(*key, model, value, every)
        return value

    @property
    def taken(self) -> tuple[Decision, ...]:
        """All decisions, in order."""
        return tuple(self._taken.values())


def about(value: int, least: int, most: int) -> list[int]:
    """Some numbers around one: half and double of it, and again."""
    return [n for n in (value // 4, value // 2, value * 2, value * 4) if least <= n <= most]


def choice_of(decisions: Iterable[Decision]) -> Choice:
    """What of some decisions is not the model's."""
    return Choice(tuple((d.nest, d.name, d.value) for d in decisions if d.value != d.model))


def _spelled(value: Value) -> str:
    """A value for people."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(int(value))
