"""Random programs of views and writes have the gradients that their slopes say, and PyTorch's where it takes them."""

from __future__ import annotations

import random

import pytest

from intaglio import Tensor
from tests.property.gradient_programs import GradientPrograms, NestedGradients
from tests.property.traced import torch

PROGRAMS = 800  # a third of all random programs, the others of which are those of test_alias_programs

# Programs that once came out wrong, by what was wrong.
FOUND = {
    160: "a view that was taken inside no_grad had a gradient",
    7087: "a write at positions of the bits of a tracked tensor",
    21317: "a scatter in the body of a reversed loop",
    62081759286125: "a tensor that was given its own detached value kept its gradient",
    171183353930557: "the spread of a view of nothing",
    56226661561599: "elements that rows of a history read were dropped, as nobody else did",
    86927579187742: "the same",
    80002400022953: "an element of a detached tensor that nothing had tracked was written as if it were not detached",
    78918627060474: "an element that a history needs was lost where the write of it read it, too",
    123440573342047: "a number where a mask of the bits of a tracked tensor holds took the gradient of the others, too",
}


def check(number: int, kind: type[GradientPrograms] = GradientPrograms) -> GradientPrograms:
    """Run the program of a number."""
    program = kind(random.Random(number))
    try:
        program.run()
    except BaseException as error:
        error.add_note(f"{kind.__name__} of {number}: keep it in FOUND")
        raise
    return program


def test_random_programs_have_the_gradients_of_their_slopes_and_of_pytorch(rng: random.Random) -> None:
    programs = [check(rng.randrange(1 << 48)) for _ in range(PROGRAMS)]
    assert torch is None or sum(program.compared for program in programs) > PROGRAMS / 4


def test_random_programs_of_nests_have_the_gradients_of_their_slopes_and_of_pytorch(rng: random.Random) -> None:
    for _ in range(PROGRAMS // 8):
        check(rng.randrange(1 << 48), NestedGradients)


@pytest.mark.parametrize("number", FOUND)
def test_programs_that_were_wrong_once(number: int) -> None:
    check(number)


def test_a_read_between_two_rolled_writes_has_its_own_version() -> None:
    w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    t = Tensor.zeros(3)
    t[0:2] = w[0:2] * 3
    first = (t * t).sum()
    t[1:3] = w[1:3] * 3
    (first + (t * t).sum()).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [36.0, 72.0, 54.0]
