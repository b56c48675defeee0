"""What fewer bits than int8's cost and give: accuracy, bytes and time of a network on every target.

    python -m benchmarks.bits make CONFIG MODEL OUT    # MODEL: a folder with model.json; writes files and answers.json
    python -m benchmarks.bits time OUT [OUT …]         # a quiet machine: rounds of all files of one network

Accuracy is of the validation split, its drop that of pairs below the float network by PyTorch, at 95 % confidence.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from edgekit import data
from edgekit.core import tasks
from edgekit.core.errors import ConfigError, ConversionError, EdgekitError
from edgekit.models import store
from edgekit.runner.backends import open_backend
from edgekit.runner.errors import RunnerError
from edgekit.runner.measure.bench import interleaved
from edgekit.runner.measure.execution import execution
from edgekit.runner.measure.intervals import p50, ratio
from edgekit.targets import evaluate
from edgekit.targets.jobs import Files
from edgekit.workbook.plan import load_plan, make_importable

TARGETS = ("tflite", "openvino", "onnx")
PRECISIONS = ("fp32", "int8", "w8", "dynamic", "int4_dense", "int4", "int16x8")
CALIBRATION, CONFIDENCE = 200, 0.95
ROUNDS, CALLS, WARMUP = 30, 20, 3
FOUND = "answers.json"


def make(config: Path, model: Path, out: Path, targets: list[str]) -> None:
    """Convert to every precision of every target, and let each file answer the validation split."""
    plan = load_plan(config)
    make_importable(plan)
    preprocess = store.load(model)[1].preprocess
    found = data.load(plan.data)
    inputs = evaluate.network_inputs(found.validation.x, preprocess)
    calibration = evaluate.network_inputs(evaluate.spread(found.calibration, CALIBRATION), preprocess)
    right = tasks.named(found.task).score_samples(evaluate.torch_outputs(model, inputs), inputs, found.validation.y)
    rows: list[dict[str, Any]] = [{"name": "float", "accuracy": tasks.accuracy(right)}]
    for target in targets:
        rows += [
            row
            for precision in PRECISIONS
            if (row := _made(model, target, precision, calibration, out, inputs, found, right))
        ]
        out.mkdir(parents=True, exist_ok=True)
        np.save(out / "sample.npy", inputs[:1])
        (out / FOUND).write_text(json.dumps(rows, indent=1))


def _made(
    model: Path,
    target: str,
    precision: str,
    calibration: np.ndarray,
    out: Path,
    inputs: np.ndarray,
    found: data.Data,
    right: Any,
) -> dict[str, Any] | None:
    from importlib import import_module

    writer = import_module(f"edgekit.targets.{target}.convert")
    if precision not in writer.PRECISIONS:
        return None
    folder = out / f"{precision}-{target}"
    try:
        files: Files = writer.convert(model, precision, calibration, folder)
        outputs = evaluate.file_outputs(precision, target, folder, files, inputs)
    except ConversionError as error:
        print(f"{precision}-{target}: {error}", flush=True)
        return {"name": folder.name, "reason": str(error)}
    answered = tasks.named(found.task).score_samples(outputs, inputs, found.validation.y)
    drop = tasks.drop(right, answered, CONFIDENCE)
    row = {
        "name": folder.name,
        "target": target,
        "bytes": sum((folder / name).stat().st_size for name in files.names),
        "accuracy": tasks.accuracy(answered),
        **asdict(drop),
        "files": files.to_json(),
    }
    print(f"{row['name']}: {row['bytes']:,} bytes, {row['accuracy']:.2%}, at most {drop.bound_pp:.2f} pp", flush=True)
    return row


def made(out: Path) -> list[dict[str, Any]]:
    """The rows of the files that `make` left in `out`; ConfigError where there are none."""
    if not (out / FOUND).is_file():
        raise ConfigError(f"{out}: has no {FOUND}; run python -m benchmarks.bits make CONFIG MODEL {out} first")
    rows = [row for row in json.loads((out / FOUND).read_text()) if "files" in row]
    if not rows:
        raise ConfigError(
            f"{out / FOUND}: names no file; it has the reasons, so make files of another MODEL or of other --targets"
        )
    return rows


def measure(out: Path, rows: list[dict[str, Any]]) -> None:
    """Rounds of every file of one network, and a row for each: p50, and its ratio to that target's int8."""
    sample = np.load(out / "sample.npy")
    calls = {}
    for row in rows:
        files = Files.from_json(row["files"])
        content = {name: (out / row["name"] / name).read_bytes() for name in files.names}
        backend = open_backend(row["target"], content, files.inputs, files.outputs)
        x = sample.transpose(0, 2, 3, 1).copy() if files.input.layout == "NHWC" else sample
        calls[row["name"]] = execution(backend, x)
    taken = interleaved(calls, ROUNDS, CALLS, WARMUP)
    print(f"{out.name}: {ROUNDS} rounds of {CALLS} calls")
    for row in rows:
        mine, eight = taken[row["name"]], taken.get(f"int8-{row['target']}", taken[row["name"]])
        beside = ratio(mine, eight, ROUNDS, 0.99)
        cells = (
            row["name"],
            f"{row['bytes']:,}",
            f"{row['accuracy']:.2%}",
            f"{row['drop_pp']:+.2f} ({row['bound_pp']:+.2f})",
            f"{1000 * p50(mine, ROUNDS, 0.99).p50_ms:.1f}",
            f"{beside.ratio:.2f} ({beside.low:.2f}–{beside.high:.2f})",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make files, or time those that are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("make")
    for name in ("config", "model", "out"):
        making.add_argument(name, type=Path)
    making.add_argument("--targets", nargs="+", default=list(TARGETS), choices=TARGETS)
    verbs.add_parser("time").add_argument("out", type=Path, nargs="+")
    given = parser.parse_args(arguments)
    try:
        if given.verb == "make":
            make(given.config, given.model, given.out, given.targets)
        else:
            for out, rows in [(out, made(out)) for out in given.out]:  # all are looked at before any is timed
                measure(out, rows)
    except (EdgekitError, RunnerError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
