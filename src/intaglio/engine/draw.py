"""Graphs as pictures: DOT text in the current folder, and SVG beside it where `dot` is installed."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from intaglio.ir.node import toposort
from intaglio.ops.memory import BufferRef, Param
from intaglio.schedule.kernels import Copy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intaglio.ir.node import Node
    from intaglio.schedule.kernels import PlannedKernel

_numbers: Final = itertools.count(1)
HEAD: Final = "  node [shape=box style=filled fillcolor=whitesmoke fontname=monospace];"
COLORS: Final = {
    "buffer": "lightgrey", "param": "lightgrey", "window": "white", "reduce": "lightsalmon", "store": "lightblue"
}  # fmt: skip


def graph_lines(roots: Sequence[Node]) -> list[str]:
    """A graph of nodes as the lines of a DOT file."""
    order = toposort(roots)
    return [f'digraph "graph of {len(order)} nodes" {{', HEAD, *_nodes(order, _names(order, "n")), "}"]


def schedule_lines(kernels: Sequence[PlannedKernel | Copy]) -> list[str]:
    """A schedule as the lines of a DOT file: kernels in order, each a box of its own, and the buffers between them."""
    lines = [f'digraph "schedule of {len(kernels)} kernels" {{', HEAD, "  compound=true;"]
    buffers = {ref: f"b{k}" for k, ref in enumerate(dict.fromkeys(r for kernel in kernels for r in kernel.buffers))}
    for ref, name in buffers.items():
        lines.append(f'  {name} [label="buffer {name[1:]}\\n{ref.nbytes} bytes" shape=cylinder fillcolor=lightyellow];')
    ends: list[tuple[str, str]] = []  # a node of each box, and the box: arrows between them show the order
    for k, kernel in enumerate(kernels):
        if isinstance(kernel, Copy):
            lines.append(f'  k{k} [label="{k + 1}. copy\\n{kernel.view.nbytes} bytes" fillcolor=lightblue];')
            lines.append(f"  {buffers[kernel.source]} -> k{k} -> {buffers[kernel.target]};")
            ends.append((f"k{k}", ""))
            continue
        order = toposort((kernel.ast,))
        names = _names(order, f"k{k}n")
        label = f"{k + 1}. {', '.join(kernel.metadata)}"
        lines += [f"  subgraph cluster_{k} {{", f'  label="{label}";', *_nodes(order, names), "  }"]
        lines += _buffer_edges(kernel, order, names, buffers)
        ends.append((names[kernel.ast], f"cluster_{k}"))
    for (before, tail), (after, head) in itertools.pairwise(ends):
        clusters = [f"{end}={cluster}" for end, cluster in (("ltail", tail), ("lhead", head)) if cluster]
        lines.append(f"  {before} -> {after} [style=dotted {' '.join(clusters)}];")
    return [*lines, "}"]


def _names(order: Sequence[Node], prefix: str) -> dict[Node, str]:
    """Names for the nodes of one box: a node that several boxes have is drawn in each."""
    return {node: f"{prefix}{k}" for k, node in enumerate(order)}


def _nodes(order: Sequence[Node], names: dict[Node, str]) -> list[str]:
    """Nodes and the arrows between them."""
    lines: list[str] = []
    for node in order:
        shape = f"[{', '.join(str(n) for n in node.shape)}]"
        color = COLORS.get(node.op.name, "whitesmoke")
        lines.append(f'  {names[node]} [label="{node.op.name}\\n{node.dtype.name}{shape}" fillcolor={color}];')
        lines.extend(f"  {names[source]} -> {names[node]};" for source in node.src)
    return lines


def _buffer_edges(
    kernel: PlannedKernel, order: Sequence[Node], names: dict[Node, str], buffers: dict[BufferRef, str]
) -> list[str]:
    """The arrows from buffers to the parameters that stand for them, and from a kernel to what it writes."""
    lines: list[str] = []
    for node in order:
        if isinstance(node.op, Param):
            ref, _ = kernel.slots[node.op.slot]
            if isinstance(ref, BufferRef):
                lines.append(f"  {buffers[ref]} -> {names[node]};")
    return lines + [f"  {names[kernel.ast]} -> {buffers[ref]};" for ref in kernel.written]


def draw(lines: Sequence[str], kind: str) -> Path:
    """Write a picture to intaglio_<kind>_<number>.dot (and .svg); gives the DOT file's path.

    Raises: OSError if it cannot be written.
    """
    path = Path(f"intaglio_{kind}_{next(_numbers)}.dot").absolute()
    path.write_text("\n".join(lines))
    program = shutil.which("dot")
    if program is not None:
        subprocess.run([program, "-Tsvg", path, "-o", path.with_suffix(".svg")], check=False)
    return path
