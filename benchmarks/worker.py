"""A process that times work: `python -m benchmarks.worker ROUNDS SECONDS CALLS`, told what to do line by line.

It reads {"work", "peers"} and answers with {"trying": peer} before each first call, and with what came of the work. So
whoever asked knows which peer hangs or ends the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import limits
from benchmarks.overheads import OVERHEADS
from benchmarks.peers import OWN, PEERS
from benchmarks.table import LINES
from benchmarks.threads import settle
from intaglio import GlobalCounters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.overheads import Overhead
    from benchmarks.works import Work

Inputs = list[tuple[np.ndarray, ...]]
WARM = 1  # calls that warm up, beside that whose result is checked: the second is the first compiled one, for some
LONG = 0.1  # seconds from which the first call of a round needs none before it that warms up, but in the first round
MOST = 1000  # calls in a round
SLOW = 3.0  # seconds of a call that is made once: in no further round
TRIES = 10  # of an overhead in each round
BY_NAME = {work.name: work for work in LINES}
COSTS = {line.name: line for line in OVERHEADS}


def main() -> None:
    """Answer each line."""
    rounds, seconds, calls = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages print goes elsewhere

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    for line in sys.stdin:
        asked = json.loads(line)
        if asked["work"] == "limits":
            say(asdict(limits.measure(int(os.environ["OMP_NUM_THREADS"]))))
        elif asked["work"] in COSTS:
            say(cost(COSTS[asked["work"]], asked["peers"], rounds))
        else:
            say(timed(BY_NAME[asked["work"]], asked["peers"], rounds, seconds, calls, say))


def timed(
    work: Work, peers: Sequence[str], rounds: int, seconds: float, calls: int, say: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Seconds of each peer by round, peers in turn, on fresh numbers in each round."""
    draw = np.random.default_rng()
    answer: dict[str, Any] = {"seconds": {}, "failures": {}, "kernels": 0}
    runners = {name: PEERS[name].runner(work) for name in peers}
    for number in range(rounds):
        inputs: Inputs = [work.draw(draw) for _ in range(work.count)]
        expected = exact(work, inputs) if not number else None
        slow = {name for name, times in answer["seconds"].items() if times[0] > SLOW}
        for name in [n for n in runners if n not in answer["failures"] and n not in slow]:
            say({"trying": name})
            try:
                run = runners[name](inputs)
                if run is None:
                    answer["failures"][name] = "n/a"
                    continue
                GlobalCounters.reset()
                started = time.perf_counter()
                results = run()
                took = time.perf_counter() - started
                if name == OWN:
                    answer["kernels"] = GlobalCounters.kernel_count
                if expected is not None:
                    check(work, results, expected)
                del results
                settle()
                times = [took] if number and took > LONG and not PEERS[name].anew else []
                answer["seconds"].setdefault(name, []).append(median_of_calls(run, times, seconds, calls))
            except Exception as error:
                answer["failures"][name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
                answer["seconds"].pop(name, None)
    return answer


def cost(line: Overhead, peers: Sequence[str], rounds: int) -> dict[str, Any]:
    """Seconds of an overhead by try."""
    try:
        return {"seconds": line.measure(TRIES * rounds, peers), "failures": {}, "kernels": 0}
    except Exception as error:
        return {"seconds": {}, "failures": {OWN: f"{type(error).__name__}: {str(error).splitlines()[0]}"}, "kernels": 0}


def exact(work: Work, inputs: Inputs) -> list[np.ndarray]:
    """The results in double precision, of the first operations."""
    program = work.arrays or work.reference
    assert program is not None
    wide = [tuple(a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays) for arrays in inputs[:2]]
    return [np.asarray(program(np, *arrays)) for arrays in wide]


def check(work: Work, results: Sequence[Any], expected: list[np.ndarray]) -> None:
    """Compare the first results with the reference."""
    for result, want in zip(results, expected, strict=False):
        got = np.asarray(result.numpy() if hasattr(result, "numpy") else result, np.float64)
        error = float(np.max(np.abs(got - want))) / max(float(np.max(np.abs(want))), 1e-30)
        if got.shape != want.shape or not error <= work.tolerance:
            raise ArithmeticError(f"wrong by {error:.2g}")


def median_of_calls(run: Callable[[], object], times: list[float], seconds: float, least: int) -> float:
    """Seconds of a call: the median of those that fit in some time, and of some at least; one if slow.

    Args:
        times: What calls took that have been timed already; if there are none, the next one warms up.
    """
    warm = 0 if times else WARM
    while not times or (times[-1] <= SLOW and len(times) < MOST and (len(times) < least or sum(times) < seconds)):
        started = time.perf_counter()
        run()
        took = time.perf_counter() - started
        if not warm or took > SLOW:
            times.append(took)
        warm = max(warm - 1, 0)
    return float(np.median(times))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
