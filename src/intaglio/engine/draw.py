"""Graphs as pictures: DOT text in the current folder, and SVG beside it where `dot` is installed."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import toposort

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.ir.node import Node

_numbers: Final = itertools.count(1)
COLORS: Final = {
    "buffer": "lightgrey", "param": "lightgrey", "window": "white", "reduce": "lightsalmon", "store": "lightblue"
}  # fmt: skip


def dot(roots: Sequence[Node], title: str) -> str:
    """The DOT text of a graph."""
    lines = [f'digraph "{title}" {{', "  node [shape=box style=filled fillcolor=whitesmoke fontname=monospace];"]
    order = toposort(roots)
    names = {node: f"n{k}" for k, node in enumerate(order)}
    for node in order:
        shape = f"[{', '.join(str(n) for n in node.shape)}]"
        color = COLORS.get(node.op.name, "whitesmoke")
        lines.append(f'  {names[node]} [label="{node.op.name}\\n{node.dtype.name}{shape}" fillcolor={color}];')
        lines.extend(f"  {names[source]} -> {names[node]};" for source in node.src)
    return "\n".join([*lines, "}"])


def draw(roots: Sequence[Node], kind: str) -> Path:
    """Write a graph to intaglio_<kind>_<number>.dot (and .svg); gives the DOT file's path."""
    path = Path(f"intaglio_{kind}_{next(_numbers)}.dot")
    path.write_text(dot(roots, path.stem))
    program = shutil.which("dot")
    if program is not None:
        subprocess.run([program, "-Tsvg", path, "-o", path.with_suffix(".svg")], check=False)
    return path
