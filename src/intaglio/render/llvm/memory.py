"""Loads and stores: of one element, of neighbours, of scattered places, through the caches or past them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from intaglio.core.dtypes import dtypes
from intaglio.ops.elementwise import Add, Lt
from intaglio.ops.loop import Store
from intaglio.ops.memory import Const, Iota, Param
from intaglio.render.llvm.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.core.target import Target
    from intaglio.ir.node import Node


class Memory(Text):
    """The text of a function that loads and stores."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.block: str = "entry"
        self.past: Final[set[int]] = set()  # the slots of what is written past the caches

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")
        self.block = name

    def address(self, pointer: Node, index: Node) -> str:
        """The address of an element."""
        return self.fresh(
            f"getelementptr {self.memory(pointer.dtype)}, ptr {self.pointer(pointer)}, i64 {self.value(index)}"
        )

    def addresses(self, pointer: Node, index: Node) -> str:
        """The addresses of elements at a vector of places."""
        n = index.shape[0]
        kind = self.memory(pointer.dtype)
        return self.fresh(f"getelementptr {kind}, ptr {self.pointer(pointer)}, <{n} x i64> {self.value(index)}")

    def load(self, node: Node) -> str:
        """A load of one element, of neighbours, or of scattered places."""
        pointer, index = node.src[0], node.src[1]
        mask = node.src[2] if len(node.src) > 2 else None
        kind = self.memory(node.dtype, node.shape)
        if index.shape:
            n = index.shape[0]
            where = self.addresses(pointer, index)
            lanes = self.value(mask, (n,)) if mask is not None else "splat (i1 true)"
            suffix = self.suffix(dtypes.uint8 if node.dtype.is_bool else node.dtype, node.shape)
            raw = self.fresh(
                self.intrinsic(
                    f"llvm.masked.gather.{suffix}.v{n}p0",
                    kind,
                    (f"<{n} x ptr>", where),
                    ("i32", "1"),
                    (f"<{n} x i1>", lanes),
                    (kind, "zeroinitializer"),
                )
            )
        elif mask is not None and node.shape:
            n = node.shape[0]
            suffix = self.suffix(dtypes.uint8 if node.dtype.is_bool else node.dtype, node.shape)
            raw = self.fresh(
                self.intrinsic(
                    f"llvm.masked.load.{suffix}.p0",
                    kind,
                    ("ptr", self.address(pointer, index)),
                    ("i32", "1"),
                    (f"<{n} x i1>", self.value(mask, (n,))),
                    (kind, "zeroinitializer"),
                )
            )
        else:
            raw = self.fresh(f"load {kind}, ptr {self.address(pointer, index)}, align 1")
        if node.dtype.is_bool:
            zero = "zeroinitializer" if node.shape else "0"
            return self.fresh(f"icmp ne {kind} {raw}, {zero}")
        return raw

    def prefetch(self, node: Node) -> None:
        """A line of memory into the second cache: the first one may have to hold other things until it is read."""
        place = ("ptr", self.address(*node.src)), *(("i32", word) for word in "021")
        self.lines.append("  " + self.intrinsic("llvm.prefetch.p0", "void", *place))

    def store(self, node: Node) -> None:
        """A store of one element, of neighbours, or to scattered places."""
        pointer, index, value = node.src[:3]
        mask = node.src[3] if len(node.src) > 3 else None
        shape = value.shape
        kind = self.memory(pointer.dtype, shape)
        name = self.value(value)
        if pointer.dtype.is_bool:
            name = self.fresh(f"zext {self.type(dtypes.bool, shape)} {name} to {kind}")
        suffix = self.suffix(dtypes.uint8 if pointer.dtype.is_bool else pointer.dtype, shape)
        if index.shape:
            n = index.shape[0]
            lanes = self.value(mask, (n,)) if mask is not None else "splat (i1 true)"
            self.lines.append(
                "  "
                + self.intrinsic(
                    f"llvm.masked.scatter.{suffix}.v{n}p0",
                    "void",
                    (kind, name),
                    (f"<{n} x ptr>", self.addresses(pointer, index)),
                    ("i32", "1"),
                    (f"<{n} x i1>", lanes),
                )
            )
        elif mask is not None and _is_first_alone(mask):
            # LLVM makes a plain store of such a masked one, and forgets a truncation that it joined to it: as many
            # bytes as there were before it would be written.
            one = self.fresh(f"extractelement {kind} {name}, i32 0") if shape else name
            self.lines.append(
                f"  store {self.memory(pointer.dtype)} {one}, ptr {self.address(pointer, index)}, align 1"
            )
        elif mask is not None and shape:
            n = shape[0]
            self.lines.append(
                "  "
                + self.intrinsic(
                    f"llvm.masked.store.{suffix}.p0",
                    "void",
                    (kind, name),
                    ("ptr", self.address(pointer, index)),
                    ("i32", "1"),
                    (f"<{n} x i1>", self.value(mask, (n,))),
                )
            )
        else:
            self.lines.append(f"  store {kind} {name}, ptr {self.address(pointer, index)}, align 1")

    def goes_past(self, node: Node) -> bool:
        """Whether a node stores whole vectors past the caches."""
        if not isinstance(node.op, Store) or len(node.src) != 3:
            return False
        pointer, index, value = node.src
        return isinstance(pointer.op, Param) and pointer.op.slot in self.past and bool(value.shape) and not index.shape

    def stores_past(self, nodes: Sequence[Node]) -> None:
        """Stores of vectors past the caches where all begin at multiples of their sizes, else plain ones.

        One branch for all: LLVM moves what only one of them needs behind the branches before, where no other work is
        left to do while that waits.
        """
        stores: list[tuple[str, str, int]] = []
        rest = "0"
        for node in nodes:
            pointer, index, value = node.src[:3]
            kind = self.memory(pointer.dtype, value.shape)
            name = self.value(value)
            if pointer.dtype.is_bool:
                name = self.fresh(f"zext {self.type(dtypes.bool, value.shape)} {name} to {kind}")
            address, nbytes = self.address(pointer, index), value.shape[0] * pointer.dtype.itemsize
            odd = self.fresh(f"and i64 {self.fresh(f'ptrtoint ptr {address} to i64')}, {nbytes - 1}")
            rest = self.fresh(f"or i64 {rest}, {odd}")
            stores.append((f"{kind} {name}", address, nbytes))
        self.count += 1
        past, plain, done = (f"{word}{self.count}" for word in ("past", "plain", "stored"))
        self.lines.append(f"  br i1 {self.fresh(f'icmp eq i64 {rest}, 0')}, label %{past}, label %{plain}")
        self.metadata["!1"] = "!{i32 1}"
        for name, mark in ((past, ", !nontemporal !1"), (plain, "")):
            self.label(name)
            for value, address, nbytes in stores:
                self.lines.append(f"  store {value}, ptr {address}, align {nbytes if mark else 1}{mark}")
            self.lines.append(f"  br label %{done}")
        self.label(done)


def _is_first_alone(mask: Node) -> bool:
    """Whether a mask is known to hold for its first lane and no other."""
    if not isinstance(mask.op, Lt):
        return False
    lanes, stop = mask.src
    parts = lanes.src if isinstance(lanes.op, Add) else (lanes,)
    starts = [int(part.op.value) for part in parts if isinstance(part.op, Const)]
    counted = any(isinstance(part.op, Iota) for part in parts) and len(starts) == len(parts) - 1
    return counted and isinstance(stop.op, Const) and sum(starts) + 1 == int(stop.op.value)
