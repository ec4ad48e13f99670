"""The packages that are timed, and loops in C: whether each is there, how it takes arrays, how it runs a program."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks import loops

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.works import Work

    Runner = Callable[[Sequence[tuple[np.ndarray, ...]]], Callable[[], Sequence[Any]] | None]


@dataclass(frozen=True)
class Peer:
    """One package; C has none."""

    name: str
    package: str | None
    runner: Callable[[Work], Runner]  # of a work: from its inputs to a call that does it all, results ready
    needs: str = ""  # a program, or another package, that must be there as well
    anew: bool = False  # whether it compiles for the inputs of each round

    def missing(self) -> str:
        """Why it cannot run, or nothing."""
        if self.package is None:
            return "" if loops.compiler() else f"not installed (no {', '.join(loops.COMPILERS)})"
        if importlib.util.find_spec(self.package) is None:
            return "not installed"
        there = not self.needs or shutil.which(self.needs) or importlib.util.find_spec(self.needs)
        return "" if there else f"no {self.needs}"

    @property
    def about(self) -> str:
        """What is installed."""
        if self.package is None:
            return loops.about()
        return f"{self.package} {importlib.metadata.version(self.package)}"


def _numpy(work: Work) -> Runner:
    """NumPy, operation by operation."""
    program = work.arrays
    if program is None:
        return lambda _: None
    return lambda inputs: lambda: [program(np, *arrays) for arrays in inputs]


def _intaglio(work: Work) -> Runner:
    """Intaglio, all results realized together."""
    from intaglio import Tensor

    def prepare(inputs: Sequence[tuple[np.ndarray, ...]]) -> Callable[[], list[Tensor]]:
        own = [tuple(Tensor(a).realize() for a in arrays) for arrays in inputs]

        def run() -> list[Tensor]:
            results = [work.tensors(*tensors) for tensors in own]
            results[0].realize(*results[1:])
            return results

        return run

    return prepare


def _torch(work: Work, *, compiled: bool = False) -> Runner:
    """PyTorch without gradients, on the arrays' own memory."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    program = work.torch or work.tensors
    if compiled and work.by_steps:
        return lambda _: None
    if compiled:
        program = torch.compile(program)

    def prepare(inputs: Sequence[tuple[np.ndarray, ...]]) -> Callable[[], list[Any]]:
        own = [tuple(torch.from_numpy(a) for a in arrays) for arrays in inputs]

        def run() -> list[Any]:
            with torch.inference_mode():
                return [program(*tensors) for tensors in own]

        return run

    return prepare


def _jax(work: Work) -> Runner:
    """JAX, each program compiled once."""
    import jax

    if work.arrays is None:
        return lambda _: None
    arrays = work.arrays
    program = work.jax or jax.jit(lambda *inputs: arrays(jax.numpy, *inputs))

    def prepare(inputs: Sequence[tuple[np.ndarray, ...]]) -> Callable[[], list[Any]]:
        own = [tuple(jax.numpy.asarray(a) for a in given) for given in inputs]
        return lambda: jax.block_until_ready([program(*given) for given in own])

    return prepare


def _mlx(work: Work) -> Runner:
    """MLX on the processor, each program compiled once, but for what looks at results on its way."""
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    if work.arrays is None:
        return lambda _: None
    program = functools.partial(work.arrays, mx)
    if not work.by_steps:
        program = mx.compile(program)

    def prepare(inputs: Sequence[tuple[np.ndarray, ...]]) -> Callable[[], list[Any]]:
        own = [tuple(mx.array(a) for a in given) for given in inputs]

        def run() -> list[Any]:
            results = [program(*given) for given in own]
            mx.eval(results)
            return results

        return run

    return prepare


def _tinygrad(work: Work) -> Runner:
    """tinygrad, all recorded once and replayed, but for what looks at results on its way."""
    from tinygrad import Tensor, TinyJit

    def prepare(inputs: Sequence[tuple[np.ndarray, ...]]) -> Callable[[], list[Any]]:
        own = [tuple(Tensor(a).contiguous().realize() for a in given) for given in inputs]

        def run() -> list[Any]:
            results = [work.tensors(*tensors) for tensors in own]
            results[0].realize(*results[1:])
            return results

        return run if work.by_steps else TinyJit(run)

    return prepare


def _onnxruntime(work: Work) -> Runner:
    """ONNX Runtime, which is given whole graphs."""
    graph = work.graph
    if graph is None:
        return lambda _: None

    def prepare(inputs: Sequence[tuple[np.ndarray, ...]]) -> Callable[[], list[np.ndarray]]:
        calls = [graph(*given) for given in inputs]
        return lambda: [call() for call in calls]

    return prepare


def _c_loop(work: Work) -> Runner:
    """A loop in C."""
    return functools.partial(loops.prepare, work.c) if work.c else lambda _: None


OWN: Final = "intaglio"
LOOP: Final = "c loop"
PEERS: Final = {
    peer.name: peer
    for peer in (
        Peer(OWN, "intaglio", _intaglio),
        Peer("numpy", "numpy", _numpy),
        Peer("torch", "torch", _torch),
        Peer("torch.compile", "torch", lambda work: _torch(work, compiled=True), needs="c++"),
        Peer("jax", "jax", _jax),
        Peer("mlx", "mlx", _mlx),
        Peer("tinygrad", "tinygrad", _tinygrad, needs="clang", anew=True),
        Peer("onnxruntime", "onnxruntime", _onnxruntime, needs="onnx"),
        Peer(LOOP, None, _c_loop),
    )
}
