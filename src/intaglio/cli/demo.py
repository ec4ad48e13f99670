"""`intaglio demo`: a loop of writes as one kernel, then a transformer that searches text."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio.core.trace import GlobalCounters
from intaglio.engine.explain import sources
from intaglio.tensor.tensor import Tensor

if TYPE_CHECKING:
    import argparse

PASSAGES = 240


def add_parser(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser("demo", help="one kernel from a loop of writes; semantic search by a real transformer")
    parser.add_argument("--query", default="how do I slice a list", help="what to search for")
    parser.add_argument(
        "--corpus", choices=("topics", "docs"), default="topics", help="Python's help topics, or this project's docs"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Both parts."""
    show_loop()
    search(options.query, options.corpus)
    return 0


def show_loop(n: int = 1000) -> None:
    """The loop of writes, its kernel count and source."""
    print(f"t = Tensor.empty({n})\nfor i in range({n}): t[i] = i\n")
    GlobalCounters.reset()
    t = Tensor.empty(n)
    for i in range(n):
        t[i] = i
    with sources() as seen:
        values = t.tolist()
    print(
        f"{n} writes, {GlobalCounters.kernel_count} kernel; the first values are {values[:5]}, the last is {values[-1]}.\n"
    )
    for source in seen:
        print(source)


def passages(corpus: str) -> list[str]:
    """Paragraphs to search in."""
    if corpus == "docs":
        folder = Path(__file__).parents[3] / "docs"
        texts = [p.read_text() for p in sorted(folder.glob("*.md"))]
    else:
        from pydoc_data import topics

        texts = list(topics.topics.values())
    found: list[str] = []
    for text in texts:
        for paragraph in re.split(r"\n\s*\n", text):
            plain = " ".join(paragraph.split())
            if 80 <= len(plain) <= 700 and not plain.startswith(("*", "+", "|", ">>>")):
                found.append(plain)
    step = max(1, len(found) // PASSAGES)
    return found[::step][:PASSAGES]


def search(query: str, corpus: str) -> None:
    """The passages nearest in meaning to a query."""
    from intaglio.models.minilm import MiniLM

    texts = passages(corpus)
    print(f"Semantic search in {len(texts)} passages: {query!r}\n")
    model = MiniLM()
    GlobalCounters.reset()
    started = time.perf_counter()
    vectors = model.embed([query, *texts])
    seconds = time.perf_counter() - started
    scores = vectors[1:] @ vectors[0]
    for place in np.argsort(-scores)[:3]:
        print(f"  {scores[place]:.3f}  {texts[place][:160]}")
    print(
        f"\n{GlobalCounters.kernel_count} kernels run, {GlobalCounters.compile_count} compiled in "
        f"{GlobalCounters.compile_seconds:.2f} s; {GlobalCounters.run_seconds:.2f} s in kernels, {seconds:.2f} s in all."
    )
