"""How much of the exact hypervolume the samplers of `edgekit search` find on the exhaustive table; prints Markdown.

    python -m benchmarks.search.table                      first: 720 trainings, half an hour or more
    python -m benchmarks.search [--seeds 10] [--batch 4]

Each study is one of `edgekit.search.study.search`, with its journal in build/bench/search, so a stopped comparison goes
on. The hypervolume is taken up to the worst accuracy, latency and size of the table. Shares are of its exact value.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.table import BITS, BLOCKS, EPOCHS, KINDS, LEARNING_RATES, RATIOS, TABLE, WIDTHS, rows
from edgekit.search.dimension import Dimension
from edgekit.search.objectives import Objective, hypervolume, nondominated
from edgekit.search.sampler import GP_FIRST
from edgekit.search.space import Space
from edgekit.search.study import Subject, search
from edgekit.search.trial import Context, Outcome, Trial

HOME = Path(__file__).parents[2] / "build" / "bench" / "search"
OPTIONS = {"kind": KINDS, "width": WIDTHS, "blocks": BLOCKS, "rate": LEARNING_RATES, "epochs": EPOCHS, "bits": BITS[::-1], "ratio": RATIOS}  # fmt: skip  # noqa: E501
OBJECTIVES = (Objective("accuracy"), Objective("p50_ms", "tflite"), Objective("bytes", "tflite"))
SPACE = Space(tuple(Dimension(key, key, choices=tuple(values)) for key, values in OPTIONS.items()), OBJECTIVES)
SHARES = (0.005, 0.01, 0.02)
STUDIES = (("random", 0.02), ("tpe", 0.02), ("gp", 0.005), ("gp+tpe", 0.02))
T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Student's t for a two-sided interval of 95 %, by the number of seeds."""


class Table:
    """All points as losses, and the hypervolume of all of them."""

    def __init__(self, path: Path, linear: bool) -> None:
        self.found, self.linear = rows(path), linear
        losses = np.array([self.losses(values) for values in self.found.values()])
        self.worst = losses.max(axis=0)
        distinct = np.unique(losses, axis=0)
        self.front = distinct[nondominated(distinct)]
        self.exact = hypervolume(self.front, self.worst)

    def losses(self, values: Sequence[float]) -> list[float]:
        if self.linear:
            return [-values[0], *values[1:]]
        return [each.loss(value) for each, value in zip(OBJECTIVES, values)]

    def share(self, trials: Sequence[dict[str, Any]]) -> float:
        """Of the exact hypervolume, by these trials."""
        return hypervolume(np.array([self.losses(trial["values"]) for trial in trials]), self.worst) / self.exact


def study(
    name: Any, seed: int, trials: int, batch: int, found: dict[Any, Any], begin: Sequence[Any] = ()
) -> tuple[list[Any], float]:
    """The trials of a study on the table, and the processor's seconds that asking has taken in this process.

    `begin`: trials of a study by GP with the same seed, behind which `gp+tpe` asks what TPE asks.
    """

    def evaluate(asked: Sequence[Trial], context: Context) -> list[Outcome]:
        return [_outcome(found[tuple(trial.parameters[key] for key in OPTIONS)]) for trial in asked]

    began = time.process_time()
    done = search(
        SPACE,
        OBJECTIVES,
        evaluate,
        subject=Subject("table", str(TABLE), {}, {}),
        folder=HOME / f"{name}-batch{batch}-seed{seed}",
        seed=seed,
        batch=batch,
        trials=trials,
        first=[trial["parameters"] for trial in begin[:GP_FIRST]],
        wanted="tpe" if begin else name,
    )
    return list(done.row["trials"]), time.process_time() - began


def _outcome(values: tuple[float, float, float]) -> Outcome:
    return {
        "state": "complete",
        "rung": "all",
        "reason": "",
        "values": list(values),
        "intervals": [[value, value] for value in values],
        "constraints": {},
        "variants": {},
        "took_s": {},
    }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its interval of 95 %, by Student's t."""
    return float(np.mean(values)), T_95[len(values)] * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def main() -> None:
    """Every study, then the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seeds", type=int, default=10, help="2 to 10")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--table", type=Path, default=TABLE)
    options = parser.parse_args()
    tables = [Table(options.table, linear) for linear in (False, True)]
    found, count = tables[0].found, len(tables[0].found)
    trials: dict[str, list[list[Any]]] = {}
    for name, share in STUDIES:
        for seed in range(options.seeds):
            begin = trials["gp"][seed] if name == "gp+tpe" else ()
            done, seconds = study(name, seed, round(share * count), options.batch, found, begin)
            trials.setdefault(name, []).append(done)
            print(
                f"{name}, seed {seed}: {tables[0].share(done):.4f} in {len(done)} trials, {seconds:.0f} s",
                flush=True,
            )
    report(tables, trials, count)


def report(tables: Sequence[Table], trials: dict[str, list[list[Any]]], count: int) -> None:
    """Shares with their intervals, and what each is above random, paired by seed."""
    print(f"\n{count:,} points, {len(tables[0].front)} on the front\n")
    for table in tables:
        print("accuracy, milliseconds, bytes" if table.linear else "accuracy, ln milliseconds, ln bytes", "\n")
        print("| sampler | " + " | ".join(f"{round(s * count)} points ({s:.1%})" for s in SHARES) + " |")
        print("|---|" + "--:|" * len(SHARES))
        for name, seeds in trials.items():
            print(f"| {name} | " + " | ".join(_cell(table, seeds, round(s * count)) for s in SHARES) + " |")
        for name, seeds in trials.items():
            for points in (round(s * count) for s in SHARES if name != "random"):
                if all(len(each) >= points for each in seeds):
                    above = [table.share(a[:points]) - table.share(b[:points]) for a, b in zip(seeds, trials["random"])]
                    mean, half = interval(above)
                    better = sum(each > 0 for each in above)
                    print(
                        f"\n{name} above random at {points}: {mean:+.4f} ± {half:.4f}, {better} of {len(above)} seeds"
                    )
        print()


def _cell(table: Table, seeds: Sequence[Sequence[Any]], points: int) -> str:
    if any(len(each) < points for each in seeds):
        return "–"
    mean, half = interval([table.share(each[:points]) for each in seeds])
    return f"{mean:.2%} ± {half:.2%}"


if __name__ == "__main__":
    main()
