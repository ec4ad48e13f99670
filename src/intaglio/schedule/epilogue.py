"""What is computed of a product's elements before they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from intaglio.ir.node import walk
from intaglio.ops.elementwise import Elementwise, Where
from intaglio.ops.memory import Buffer
from intaglio.ops.movement import Reshape
from intaglio.ops.reduce import Reduce, Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from intaglio.ir.node import Node

LONG: Final = 32  # ops beside the product's, for each of its elements


Users: TypeAlias = "dict[Node, list[Node]]"  # who uses each value


def raised(
    order: list[Node], users: Users, chosen: set[Node], fixed: Collection[Node], is_dot: Callable[[Node], bool]
) -> None:
    """Store, for each product that gets a buffer, what its only users make of it, up to where a value has more users.

    `h = x + (y @ w + b)` that is normed and added to: h is stored, not y @ w, so that nobody adds x and b again.

    Args:
        order: The values of a statement, inputs first.
        users: Who uses each of them.
        chosen: Those that get a buffer; changed.
        fixed: Those that are stored as they are, and the values that are there already.
        is_dot: Whether a value is a product, of matrices or of a matrix and a vector.
    """
    for product in [n for n in order if n in chosen and n not in fixed and is_dot(n)]:
        top = top_of(product, users, chosen, fixed)
        if top is not product:
            chosen.remove(product)
            chosen.add(top)


def choose_folded(
    order: list[Node], users: Users, chosen: set[Node], fixed: Collection[Node], is_dot: Callable[[Node], bool]
) -> None:
    """Store what products become before it is folded along an axis, as by a norm, and used at its own place as well.

    It needs a buffer in any case; whoever counts how deep a kernel is should know.
    """
    for product in [n for n in order if n not in chosen and n not in fixed and is_dot(n)]:
        top = top_of(product, users, chosen, fixed)
        if len(users.get(top, ())) > 1 and any(isinstance(u.op, Reduce) and not is_dot(u) for u in users[top]):
            chosen.add(top)


def users_of(order: list[Node]) -> Users:
    """Who uses each value."""
    users: Users = {}
    for node in order:
        for source in dict.fromkeys(node.src):
            users.setdefault(source, []).append(node)
    return users


def top_of(product: Node, users: Users, chosen: set[Node], fixed: Collection[Node]) -> Node:
    """What the only users of a product make of it."""
    top = product
    while (user := _only_user(top, users, chosen, fixed)) is not None and user.nbytes <= product.nbytes:
        top = user
    return top


def ends_product(value: Node, is_dot: Callable[[Node], bool]) -> bool:
    """Whether a value is computed element by element of those of a product, beside little else."""
    return next(products_below(value, is_dot), None) is not None


def products_below(
    value: Node, is_dot: Callable[[Node], bool], is_stored: Callable[[Node], bool] = lambda _: False
) -> Iterator[Node]:
    """The products of whose elements a value is computed, element by element, beside little else.

    What is computed of values that are stored is not followed further.
    """
    seen = {value}
    stack = [value] if isinstance(value.op, Elementwise) else []
    while stack and len(seen) <= LONG:
        for source in stack.pop().src:
            if source.size == value.size and source not in seen and not is_stored(source):
                seen.add(source)
                if is_dot(source):
                    yield source
                elif isinstance(source.op, (Elementwise, Reshape)):
                    stack.append(source)


def _only_user(value: Node, users: Users, chosen: Collection[Node], fixed: Collection[Node]) -> Node | None:
    """What is computed of a value alone, element by element, beside little else; None if there is no such."""
    if len(users.get(value, ())) != 1:
        return None
    (user,) = users[value]
    if user in chosen or user in fixed or user.size != value.size or not isinstance(user.op, (Elementwise, Reshape)):
        return None
    if isinstance(user.op, Where) and not any(isinstance(n.op, Buffer) for n in walk(user.src[:1])):
        return None  # a mask by positions stays with what reads it, which then leaves out what is masked
    seen: set[Node] = {value}
    stack = [user]
    while stack:
        for source in stack.pop().src:
            if source in seen or source in chosen or source in fixed:
                continue
            seen.add(source)
            stack.append(source)
            if isinstance(source.op, (Reduce, Scan)) or len(seen) > LONG:
                return None
    return user
