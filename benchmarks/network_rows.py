"""What each reference network costs and gives: docs/results/networks.md.

    python -m benchmarks.network_rows train NETWORK [--epochs 5] [--threads 2] [--limit N]
    python -m benchmarks.network_rows make [NETWORK ...]
    python -m benchmarks.network_rows time TARGET [--rounds 30]
    python -m benchmarks.network_rows page

`train` learns CIFAR-10, goes on where it was stopped, saves the network and tells top-1 of the test split. `make`
converts the untrained networks. `time` times their float and int8 files on one target, all interleaved, on one thread.
They leave what they found in build/networks, and `page` writes the page of it.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import network_page
from benchmarks.network_page import HOME, PRECISIONS, SHOWN
from benchmarks.networks import EVERY, LABELS, make
from edgekit.core.config import TARGETS, TrainingOptions, TrainOptions

CONFIG = Path(__file__).parent.parent / "configs" / "cifar10.yaml"
CONFIDENCE = 0.99
CALLS, WARMUP = 40, 8
TAUGHT = {"batch_size": 128, "learning_rate": 0.1, "weight_decay": 1e-4, "augment": "shift_flip"}


def main() -> None:
    """One of the four steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    steps = parser.add_subparsers(dest="step", required=True)
    of_train = steps.add_parser("train")
    of_train.add_argument("network", choices=SHOWN[0])
    of_train.add_argument("--epochs", type=int, default=5)
    of_train.add_argument("--threads", type=int, default=2)
    of_train.add_argument("--limit", type=int, help="training samples; by default all")
    steps.add_parser("make").add_argument("networks", nargs="*")
    of_time = steps.add_parser("time")
    of_time.add_argument("target", choices=TARGETS)
    of_time.add_argument("--rounds", type=int, default=30)
    steps.add_parser("page")
    options = parser.parse_args()
    if options.step == "train":
        train(options.network, options.epochs, options.threads, options.limit)
    elif options.step == "make":
        for target in TARGETS:
            for network in options.networks or [name for group in SHOWN for name in group]:
                for precision in PRECISIONS:
                    print(make(network, precision, target), flush=True)
    elif options.step == "time":
        time(options.target, options.rounds)
    else:
        network_page.write()


def train(network: str, epochs: int, threads: int, limit: int | None) -> None:
    """Train by the labels as the walk does, merge branches, and write top-1 of the test split."""
    from edgekit.data import load
    from edgekit.models import store
    from edgekit.models.from_artifact import spec_for
    from edgekit.models.reparameterize import merge
    from edgekit.training.checkpoint import Checkpoint
    from edgekit.training.evaluate import evaluate
    from edgekit.training.fit import fit
    from edgekit.workbook.plan import load_plan

    plan = load_plan(CONFIG, [f"data.limit={limit}"] if limit else [])
    data, steps = load(plan.data), plan.run.preprocess
    builder, kwargs = EVERY[network]
    spec = spec_for(data, builder, kwargs, steps)
    module = store.build(spec, seed=0)
    name = f"{network}, {epochs} epochs of {len(data.train)}"
    history = fit(
        module,
        data,
        steps,
        TrainOptions.model_validate({**TAUGHT, "epochs": epochs}),
        seed=0,
        device="cpu",
        threads=threads,
        training=TrainingOptions(precision="auto"),
        resume=Checkpoint(HOME / f"{name}.checkpoint", name),
    )
    made, spec, _ = merge(module, spec, store.zeros(spec))
    store.save(HOME / network, made, spec)
    assert data.test is not None
    found = evaluate(made, data.test, steps)
    row = {
        "epochs": epochs,
        "train_samples": len(data.train),
        "validation_accuracy": history.best.validation_accuracy,
        "test_accuracy": found,
        "test_samples": len(data.test),
    }
    _write(f"train-{network}", row)
    print(name, row, flush=True)


def time(target: str, rounds: int) -> None:
    """Milliseconds of every file for the target, and its ratio to that of its group's first network."""
    from edgekit.runner import bundle
    from edgekit.runner.measure.bench import interleaved, machine
    from edgekit.runner.measure.intervals import p50, ratio
    from edgekit.runner.model import open_model

    calls, sizes = {}, {}
    for group in SHOWN:
        for network in group:
            for precision in PRECISIONS:
                made = bundle.read(make(network, precision, target))
                model = open_model(made)
                x = model.prepare(np.zeros(made.manifest.raw.shape, made.manifest.raw.dtype))
                assert model.execute(x).shape == (len(LABELS),)
                calls[f"{network} {precision}"] = partial(model.execute, x)
                sizes[f"{network} {precision}"] = sum(map(len, made.model_files().values()))
    taken = interleaved(calls, rounds, CALLS, WARMUP)
    rows = {}
    for group in SHOWN:
        for network in group:
            for precision in PRECISIONS:
                own, first = taken[f"{network} {precision}"], taken[f"{group[0]} {precision}"]
                rows[f"{network} {precision}"] = {
                    "bytes": sizes[f"{network} {precision}"],
                    "p50": asdict(p50(own, rounds, CONFIDENCE)),
                    "ratio": asdict(ratio(own, first, rounds, CONFIDENCE)),
                }
    _write(f"time-{target}", {"machine": machine(), "rounds": rounds, "calls": CALLS, "rows": rows})
    for name, row in rows.items():
        print(target, name, row["bytes"], row["p50"], row["ratio"])


def _write(name: str, row: Any) -> None:
    HOME.mkdir(parents=True, exist_ok=True)
    (HOME / f"{name}.json").write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
