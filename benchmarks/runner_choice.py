"""How much is lost by trusting the choice of a first load? Each reference network, float and int8, every target.

    python -m benchmarks.runner_choice [--rounds 30]

The choice is made as on a device, with nothing remembered. Then every fixed way to run the bundle is timed anew, in a
child process each, in rounds that take turns. Regret is the chosen way's p50 over that of the way that turned out
best; the interval is a bootstrap over the rounds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from statistics import median

import numpy as np

from benchmarks.networks import NETWORKS, make
from edgekit.runner import load
from edgekit.runner.autotune import compare
from edgekit.runner.autotune.launch import Child
from edgekit.runner.measure.intervals import ratio


def main() -> None:
    """A row for each bundle, the worst at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--targets", default="tflite,openvino,onnx")
    options = parser.parse_args()
    worst = 0.0
    print(f"{'bundle':<28}{'chosen':<18}{'best fixed':<18}{'p50_ms':>9}{'best_ms':>9}   regret (99 % interval)")
    for network in NETWORKS:
        for precision in ("fp32", "int8"):
            for target in options.targets.split(","):
                worst = max(worst, row(network, precision, target, options.rounds))
    print(f"worst regret: {worst:+.1%}")


def row(network: str, precision: str, target: str, rounds: int) -> float:
    path = make(network, precision, target)
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = name
        model = load(path)
    chosen = (model.backend.name, model.threads)
    ways = compare.candidates(target, None, None)
    taken = timed(path, [(way.interpreter, way.threads) for way in ways], rounds)
    middle = {way: median(np.median(samples, axis=1)) for way, samples in taken.items()}
    best = min(middle, key=lambda way: middle[way])
    share = ratio(taken[chosen].ravel(), taken[best].ravel(), rounds, 0.99) if chosen != best else None
    regret = share.ratio - 1 if share else 0.0
    loss = f"{regret:+.1%} ({share.low - 1:+.1%} to {share.high - 1:+.1%})" if share else "none: it is the best"
    names = ["{} x{}".format(*way) for way in (chosen, best)]
    print(
        f"{path.name.split('.')[0]:<28}{names[0]:<18}{names[1]:<18}{middle[chosen]:>9.4f}{middle[best]:>9.4f}   {loss}",
        flush=True,
    )
    return regret


def timed(path: os.PathLike[str], ways: list[tuple[str, int]], rounds: int) -> dict[tuple[str, int], np.ndarray]:
    """Milliseconds (rounds, calls) of every way that gives the golden answers."""
    children: dict[tuple[str, int], Child] = {}
    taken: dict[tuple[str, int], list[list[float]]] = {}
    calls = 0
    try:
        for way in ways:
            child = children[way] = Child(path)
            child.ask("open", interpreter=way[0], threads=way[1], device="CPU")
            if not child.ask("selftest")["ok"]:
                children.pop(way).close()
                continue
            taken[way] = []
        for child in children.values():
            pace = median(child.ask("time", calls=5, warmup=3, most_ms=1000)["ms"])
            calls = max(calls, min(200, int(20 / max(pace, 0.02))), 5)
        names = list(children)
        for turn in range(rounds):
            start = turn % len(names)
            for way in names[start:] + names[:start]:
                taken[way].append(children[way].ask("time", calls=calls, warmup=calls // 5 + 1, most_ms=5000)["ms"])
    finally:
        for child in children.values():
            child.close()
    return {way: np.array(values) for way, values in taken.items()}


if __name__ == "__main__":
    main()
