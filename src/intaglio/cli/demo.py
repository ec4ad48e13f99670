"""`intaglio demo`: a loop of writes as one kernel, then a transformer that searches text."""

from __future__ import annotations

import re
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from intaglio.core.errors import FileFormatError
from intaglio.core.trace import GlobalCounters
from intaglio.engine.devices import disk_cache
from intaglio.engine.explain import sources
from intaglio.tensor.tensor import Tensor

if TYPE_CHECKING:
    import argparse

PASSAGES: Final = 240
BEST: Final = 3


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
    GlobalCounters.reset()
    show_loop()
    search(str(options.query), str(options.corpus))
    return 0


def show_loop(n: int = 1000) -> None:
    """The loop of writes, its kernel count and source."""
    print(f"t = Tensor.empty({n})\nfor i in range({n}): t[i] = i\n")
    before = GlobalCounters.kernel_count
    t = Tensor.empty(n)
    for i in range(n):
        t[i] = i
    with sources() as seen:
        values = t.tolist()
    count = GlobalCounters.kernel_count - before
    print(f"{n} writes, {count} kernel{'s' * (count != 1)}: the values are {values[:4]} to {values[-1]}.\n")
    for source in seen:
        print(source)


def passages(corpus: str) -> list[str]:
    """Paragraphs to search in, each once, at most PASSAGES, from all over the corpus.

    Raises: FileFormatError if there are none.
    """
    if corpus == "docs":
        root = Path(__file__).parents[3]
        texts = [
            path.read_text() for path in (root / "README.md", *sorted((root / "docs").glob("*.md"))) if path.exists()
        ]
    else:
        from pydoc_data import topics

        texts = list(topics.topics.values())
    found: list[str] = []
    for text in texts:
        for paragraph in re.split(r"\n\s*\n", text):
            plain = " ".join(paragraph.split())
            if 80 <= len(plain) <= 700 and not plain.startswith(("*", "+", "|", ">>>", "#")):
                found.append(plain)
    if not found:
        raise FileFormatError(f"demo: the corpus {corpus!r} must have text; found none. Try --corpus topics.")
    found = [*dict.fromkeys(found)]  # some topics repeat one another
    step = -(-len(found) // PASSAGES)
    return found[::step]


def search(query: str, corpus: str) -> None:
    """The passages nearest in meaning to a query."""
    from intaglio.models.minilm import MiniLM

    texts = passages(corpus)
    print(f"Semantic search in {len(texts)} passages: {query!r}\n")
    kernels, run_seconds = GlobalCounters.kernel_count, GlobalCounters.run_seconds
    started = time.perf_counter()
    model = MiniLM()
    vectors, wanted = model.embed(texts), model.embed([query])[0]
    seconds = time.perf_counter() - started
    scores = vectors @ wanted
    for place in np.argsort(-scores)[:BEST]:
        print(textwrap.fill(f"{scores[place]:.3f}  {texts[place]}", 100, subsequent_indent=" " * 7, max_lines=3))
    print(
        f"\n{GlobalCounters.kernel_count - kernels} kernels run in {GlobalCounters.run_seconds - run_seconds:.2f} s, "
        f"{seconds:.2f} s in all."
    )
    print(compiled())


def compiled() -> str:
    """What was compiled, and whether another run will compile it again."""
    count = GlobalCounters.compile_count
    if not count:
        return "0 programs compiled: all came from the cache on disk."
    done = f"{count} program{'s' * (count != 1)} compiled in {GlobalCounters.compile_seconds:.2f} s"
    cache = disk_cache()
    if cache is None or not cache.is_open:
        return f"{done}; there is no cache on disk to keep them."
    return f"{done} and kept on disk: a second run compiles none."
