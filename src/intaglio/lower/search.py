"""A beam search over the decisions of lowering, by measured times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.lower.choice import Choice, choice_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from intaglio.lower.kernel import Lowered

GAIN: Final = 0.03  # of the model's time: what is won by less may be noise
STEP: Final = 0.01  # what a round must win for another to follow


def search(
    model: Lowered,
    lowered: Callable[[Choice], Lowered | None],
    measure: Callable[[Lowered], float | None],
    *,
    width: int,
    over: Callable[[], bool],
) -> tuple[Lowered, float]:
    """The best of what can be reached from the model's code, one decision at a time, and its time in the model's.

    Args:
        model: The code as the cost model has it.
        lowered: The code of a choice, or None if it has none.
        measure: Its time in parts of the model's, or None if it may not be used.
        width: How many candidates a round starts from.
        over: Whether the time for the search is over.
    """
    seen = {model.linear}
    beam = [(1.0, model)]
    improved = True
    while improved and not over():
        found: list[tuple[float, Lowered]] = []
        for choice in dict.fromkeys(c for _, parent in beam for c in neighbours(parent)):
            if over():
                break
            code = lowered(choice)
            if code is None or code.linear in seen:
                continue
            seen.add(code.linear)
            took = measure(code)
            if took is not None:
                found.append((took, code))
        before = beam[0][0]
        beam = sorted([*beam, *found], key=lambda pair: pair[0])[:width]
        improved = beam[0][0] < before - STEP
    best = beam[0][1]
    if best is model or beam[0][0] > 1 - GAIN:
        return model, 1.0
    again = measure(best)  # the best of many is often only the luckiest
    return (model, 1.0) if again is None or again > 1 - GAIN else (best, again)


def neighbours(code: Lowered) -> Iterator[Choice]:
    """The choices that differ from that of some code in one decision."""
    for decision in code.decisions:
        others = [d for d in code.decisions if d is not decision]
        for option in decision.options:
            if option != decision.value:
                rest = choice_of(others).answers
                own = () if option == decision.model else ((decision.nest, decision.name, option),)
                yield Choice(tuple(sorted((*rest, *own), key=lambda answer: answer[:2])))
