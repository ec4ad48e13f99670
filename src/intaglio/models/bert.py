"""The BERT encoder, for sentence embeddings.

Source: Devlin, Chang, Lee & Toutanova, BERT, NAACL 2019; Reimers & Gurevych, Sentence-BERT, EMNLP 2019.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from intaglio.io.safetensors import safe_load

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from intaglio.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class BertConfig:
    """The sizes of an encoder."""

    layers: int
    width: int
    heads: int
    epsilon: float

    @staticmethod
    def from_json(text: str) -> BertConfig:
        """The sizes that a model's config.json gives."""
        raw: dict[str, Any] = json.loads(text)
        return BertConfig(
            raw["num_hidden_layers"], raw["hidden_size"], raw["num_attention_heads"], raw["layer_norm_eps"]
        )


class BertEncoder:
    """Token numbers to vectors: embeddings, then layers of attention and two linear maps, each with a residual."""

    def __init__(self, config: BertConfig, weights: Mapping[str, Tensor]) -> None:
        """Take weights under PyTorch's names."""
        self.config: Final = config
        self.weights: Final = dict(weights)

    @staticmethod
    def from_folder(folder: Path, device: str = "CPU") -> BertEncoder:
        """The encoder whose config.json and model.safetensors lie in a folder."""
        config = BertConfig.from_json((folder / "config.json").read_text())
        weights = {
            name: t.to(device) for name, t in safe_load(folder / "model.safetensors").items() if t.dtype.is_float
        }
        return BertEncoder(config, weights)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        """One linear map."""
        return x.linear(self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        """One layer norm."""
        return x.layer_norm(
            self.config.width, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], self.config.epsilon
        )

    def _heads(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) -> (batch, heads, tokens, width / heads)."""
        batch, tokens, width = x.shape
        return x.reshape(batch, tokens, self.config.heads, width // self.config.heads).permute(0, 2, 1, 3)

    def _attention(self, x: Tensor, mask: Tensor, name: str) -> Tensor:
        """What each token takes from the others."""
        query, key, value = (self._heads(self._linear(x, f"{name}.self.{part}")) for part in ("query", "key", "value"))
        scores = (query @ key.transpose(-1, -2)) * (1 / math.sqrt(query.shape[-1])) + mask
        mixed = (scores.softmax(-1) @ value).permute(0, 2, 1, 3).reshape(x.shape)
        return self._norm(x + self._linear(mixed, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The vectors of all tokens.

        Args:
            tokens: Token numbers, int64 (batch, length).
            mask: 1 for tokens, 0 for padding, (batch, length).
        Shape: (batch, length) -> (batch, length, width).
        """
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][tokens]
        x = (
            x
            + w["embeddings.position_embeddings.weight"][: tokens.shape[1]]
            + w["embeddings.token_type_embeddings.weight"][0]
        )
        x = self._norm(x, "embeddings.LayerNorm").realize()
        hidden = ((1 - mask.cast(x.dtype)) * -1e9).reshape(mask.shape[0], 1, 1, mask.shape[1])
        for layer in range(self.config.layers):
            name = f"encoder.layer.{layer}"
            x = self._attention(x, hidden, f"{name}.attention")
            inner = self._linear(x, f"{name}.intermediate.dense").gelu()
            x = self._norm(x + self._linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        return x

    def embed(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Sentence vectors of length 1: the mean over tokens, scaled.

        Shape: (batch, length) -> (batch, width).
        """
        x = self.forward(tokens, mask)
        weight = mask.cast(x.dtype).unsqueeze(-1)
        return ((x * weight).sum(1) / weight.sum(1)).normalize()
