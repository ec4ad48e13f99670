"""The whole models as graphs of ONNX, which ONNX Runtime runs: its own fused operators where it has them."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.models import weights_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.models import Transformer

FUSED = "com.microsoft"  # the domain of operators that only ONNX Runtime has


class Graph:
    """Nodes in order; each value is a name, and weights are constants."""

    def __init__(self, model: Transformer) -> None:
        from onnx import numpy_helper

        self.model = model
        self.nodes: list[Any] = []
        weights = {**model.named(weights_of(model)), "first": np.array([0])}
        self.constants = [numpy_helper.from_array(a, name) for name, a in weights.items()]

    def add(self, op: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any) -> str:
        """One node; its first output."""
        from onnx import helper

        names = outputs or [f"value{len(self.nodes)}"]
        domain = FUSED if op in ("MultiHeadAttention", "FastGelu") else ""
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **attributes))
        return names[0]

    def norm(self, x: str, name: str) -> str:
        """A layer norm."""
        return self.add("LayerNormalization", x, f"{name}.scale", f"{name}.bias", epsilon=1e-5)

    def linear(self, x: str, name: str) -> str:
        """A linear map."""
        return self.add("Add", self.add("MatMul", x, f"{name}.weight"), f"{name}.bias")

    def attend(self, x: str, k: int, *, cached: bool) -> str:
        """What each token takes from the others; those before are in a cache, perhaps."""
        parts = [f"{k}.{part}" for part in "qkv"]
        self.add("Split", self.linear(x, f"{k}.qkv"), outputs=parts, axis=-1, num_outputs=3)
        before = ["", "", "", f"{k}.keys", f"{k}.values"] if cached else []
        after = [f"{k}.keys.after", f"{k}.values.after"] if cached else []
        mixed = self.add("MultiHeadAttention", *parts, *before, outputs=[f"{k}.mixed", *after],
                         num_heads=self.model.heads, unidirectional=int(self.model.before))  # fmt: skip
        return self.linear(mixed, f"{k}.mix")

    def feed_forward(self, x: str, k: int) -> str:
        """The part of a layer that looks at one token."""
        wide = self.add("FastGelu", self.add("MatMul", x, f"{k}.wide.weight"), f"{k}.wide.bias")
        return self.linear(wide, f"{k}.narrow")

    def forward(self, *, cached: bool = False) -> str:
        """The model, from `tokens` and their `at` to the last value."""
        x = self.add("Add", self.add("Gather", "words", "tokens"), self.add("Gather", "places", "at"))
        if not self.model.before:
            x = self.norm(x, "norm")
        for k in range(self.model.layers):
            if self.model.before:
                x = self.add("Add", x, self.attend(self.norm(x, f"{k}.norm1"), k, cached=cached))
                x = self.add("Add", x, self.feed_forward(self.norm(x, f"{k}.norm2"), k))
            else:
                x = self.norm(self.add("Add", x, self.attend(x, k, cached=cached)), f"{k}.norm1")
                x = self.norm(self.add("Add", x, self.feed_forward(x, k)), f"{k}.norm2")
        if not self.model.before:
            return x
        return self.add("Gemm", self.add("Squeeze", self.norm(x, "norm"), "first"), "words", transB=1)

    def session(self, out: str, inputs: Sequence[Any], outputs: Sequence[Any] = ()) -> Any:
        """The graph, ready to run."""
        import onnxruntime
        from onnx import TensorProto, helper

        used = {name for node in self.nodes for name in node.input}
        constants = [c for c in self.constants if c.name in used]
        results = [helper.make_tensor_value_info(out, TensorProto.FLOAT, None), *outputs]
        graph = helper.make_graph(self.nodes, "model", inputs, results, constants)
        versions = [helper.make_opsetid("", 18), helper.make_opsetid(FUSED, 1)]
        made = helper.make_model(graph, opset_imports=versions, ir_version=10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
        return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


def whole_numbers(name: str, *shape: int) -> Any:
    """An input of integers."""
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, TensorProto.INT64, shape)


@functools.cache
def forward_session(model: Transformer, batch: int, length: int) -> Any:
    """A model of some tokens."""
    graph = Graph(model)
    return graph.session(graph.forward(), [whole_numbers("tokens", batch, length), whole_numbers("at", length)])


def forward_graph(model: Transformer, tokens: np.ndarray) -> Callable[[], np.ndarray]:
    """A call that runs a model on some tokens."""
    feed = {"tokens": np.atleast_2d(tokens), "at": np.arange(tokens.shape[-1])}
    session = forward_session(model, *feed["tokens"].shape)
    return lambda: session.run(None, feed)[0]


def cache_names(model: Transformer) -> list[str]:
    """The names of the caches of all layers."""
    return [f"{k}.{part}" for k in range(model.layers) for part in ("keys", "values")]


@functools.cache
def step_session(model: Transformer) -> Any:
    """A model of one more token; it gives caches that have grown by it."""
    from onnx import TensorProto, helper

    def caches(suffix: str) -> list[Any]:
        shape = 1, model.heads, None, model.width // model.heads
        names = [name + suffix for name in cache_names(model)]
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names]

    graph = Graph(model)
    inputs = [whole_numbers("tokens", 1, 1), whole_numbers("at", 1), *caches("")]
    return graph.session(graph.forward(cached=True), inputs, caches(".after"))


def steps_graph(model: Transformer, tokens: np.ndarray) -> Callable[[], np.ndarray]:
    """A call that decodes tokens one by one; of each the best word is looked at."""
    session, names = step_session(model), cache_names(model)
    empty = np.zeros((1, model.heads, 0, model.width // model.heads), np.float32)

    def run() -> np.ndarray:
        caches, logits = [empty] * len(names), empty
        for place in range(len(tokens)):
            feed = {"tokens": tokens[None, place : place + 1], "at": np.array([place])}
            logits, *caches = session.run(None, feed | dict(zip(names, caches, strict=True)))
            logits.argmax()
        return logits[0]

    return run
