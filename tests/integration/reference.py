"""Reference vectors of MiniLM, by PyTorch and transformers: `python -m tests.integration.reference` writes the file."""

from __future__ import annotations

import json
from pathlib import Path

FILE = Path(__file__).parent / "data" / "minilm_reference.json"
SENTENCES = (
    "How do I slice a list?",
    "A",
    "",
    "An engraver cuts as many lines as the picture needs, then the press runs once.",
    "Übersetzungen, 日本語, emoji 🙂 and\ttabs are text like any other.",
    "The quick brown fox jumps over the lazy dog. " * 4,
    "Numbers 3.14159, -7, 1e-9; code: t[1:] = t[:-1] + x.sum(axis=0).",
    "Lazy writes are easy to get wrong. " * 60,  # longer than the model reads
)


def embed(folder: Path) -> list[list[float]]:
    """The vectors of the sentences, computed by transformers, one at a time: no padding."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True, attn_implementation="eager").eval()
    vectors: list[list[float]] = []
    with torch.no_grad():
        for sentence in SENTENCES:
            inputs = tokenizer(sentence, return_tensors="pt", truncation=True, max_length=256)
            mean = model(**inputs).last_hidden_state.mean(1)
            vectors.append(torch.nn.functional.normalize(mean)[0].tolist())
    return vectors


if __name__ == "__main__":
    from intaglio.models.minilm import weights_folder

    rounded = [[round(x, 7) for x in vector] for vector in embed(weights_folder())]
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(dict(zip(SENTENCES, rounded, strict=True)), separators=(",", ":")) + "\n")
