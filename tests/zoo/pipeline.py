"""A network of the zoo through the whole pipeline: trained, distilled, pruned, quantized, converted, measured, bundled.

The stages are opened as the notebooks open them, in this process, on a few samples and for one epoch each. The network
is its own teacher. `python -m tests.zoo.pipeline NAME FOLDER` does so in a process of its own and leaves `RESULT`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from edgekit.core.artifacts import Artifact
from edgekit.core.errors import EdgekitError
from edgekit.measure import lane
from edgekit.runner.errors import RunnerError
from edgekit.workbook.plan import load_plan
from edgekit.workbook.preflight_worker import check_plan
from edgekit.workbook.stage import open_stage
from tests.conftest import ROOT
from tests.zoo.entries import ENTRIES, Entry

RESULT = "pipeline.json"
LEAST_INT8_DB = 3.0
SAMPLES = {"train": 60, "validation": 20, "test": 20}
LIMIT_S = 900.0
ONE_EPOCH = {"epochs": 1, "batch_size": 10, "learning_rate": 0.01, "augment": "none"}
OPTIONS: dict[str, Any] = {
    "threads": 1,
    "budget": {"accuracy_drop_pp": 100.0},
    "profile": {**ONE_EPOCH, "latency_calls": 20, "warmup_calls": 1, "operator_calls": 1, "compiling": False,
                "runtimes": False},
    "prune": {**ONE_EPOCH, "steps": 1, "sparsity_steps": 1, "measure": False},
    "quantize": {**ONE_EPOCH, "recipes": ["minmax"], "study_sizes": [], "sensitivity_samples": 4,
                 "max_float_layers": 0},
    "convert": {"precisions": ["fp32", "int8"], "models": ["pruned"], "int8_min_snr_db": LEAST_INT8_DB,
                "int8_min_top1_agreement": 0.0, "int8_max_layer_loss_db": 200.0, "calibration_max_outside": 1.0,
                "calibration_min_used": 0.0},
    "benchmark": {"rounds": 10, "most_rounds": 10, "calls_per_round": 5, "warmup_per_round": 1, "load_s": 0},
    "bundle": {"golden_samples": 4},
}  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """What became of a network: `word` stands in the table, `note` under it; seconds of each stage."""

    word: str
    note: str
    seconds: dict[str, float]


def arrays(entry: Entry) -> dict[str, np.ndarray]:
    """Samples of the entry's shape as a user's .npz has them, from a seed; classes differ by a pattern of their own."""
    random = np.random.default_rng(0)
    shape = entry.shape if len(entry.shape) < 3 else (*entry.shape[1:], entry.shape[0])
    patterns = random.normal(size=(entry.classes, *shape))
    found: dict[str, np.ndarray] = {}
    for split, count in SAMPLES.items():
        y = np.arange(count) % entry.classes
        x = patterns[y] + random.normal(0, 0.5, (count, *shape))
        if entry.task == "anomaly":
            x, y = random.normal(size=(count, *shape)), (np.arange(count) % 5 == 4) * (split != "train")
        if entry.task == "segmentation":
            bright = x.mean(axis=-1)
            y = np.digitize(bright, np.quantile(bright, np.arange(1, entry.classes) / entry.classes)).astype(np.uint8)
        is_picture = len(shape) == 3
        found[f"x_{split}"] = (128 + 40 * x).clip(0, 255).astype(np.uint8) if is_picture else x.astype(np.float32)
        found[f"y_{split}"] = y if y.dtype == np.uint8 else y.astype(np.int64)
    if entry.task != "anomaly":
        found["classes"] = np.array([str(number) for number in range(entry.classes)])
    return found


def config(entry: Entry, folder: Path) -> Path:
    """A config for that network, its data beside it."""
    np.savez(folder / "data.npz", allow_pickle=False, **arrays(entry))
    network = {"builder": entry.builder, "kwargs": entry.kwargs}
    is_picture = len(entry.shape) == 3
    values = {
        "name": "zoo",
        "task": entry.task,
        "data": {"source": "npz", "path": "data.npz", "calibration_samples": 20},
        "model": network,
        "preprocess": [{"step": "scale", "factor": 1 / 255}] if is_picture else [],
        "distill": {**ONE_EPOCH, "student": network, "lone_student": False},
        **OPTIONS,
    }
    path = folder / "zoo.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def run(entry: Entry, folder: Path) -> Ended:
    """The network through all stages in this process; what edgekit refuses is an end like others."""
    path = config(entry, folder)
    found: dict[str, Artifact] = {}
    stage = "preflight"
    try:
        plan = load_plan(path)
        try:
            check_plan(plan, folder)
        except (EdgekitError, RunnerError) as error:
            return Ended("refused", str(error), {})
        for stage in plan.pipeline:
            found[stage] = open_stage(stage, {"config": str(path), "out": str(folder / "runs"), "settings": ""}).run()
    except EdgekitError as error:
        return Ended(f"{stage} fails", str(error), _seconds(found))
    return Ended(*_summary(found), _seconds(found))


def _seconds(artifacts: dict[str, Artifact]) -> dict[str, float]:
    return {stage: round(artifact.took["seconds"], 1) for stage, artifact in artifacts.items()}


def _summary(artifacts: dict[str, Artifact]) -> tuple[str, str]:
    """How many bundles there are, what was cut, and the reasons for all that is missing."""
    pruned, convert, bundle = (artifacts[stage].metrics for stage in ("prune", "convert", "bundle"))
    proven = [target for target, proof in bundle["selftest"].items() if proof["vectors"]]
    steps, structured = pruned["structured_steps"], pruned["structured"]
    share = 1 - structured["parameters"] / steps[0]["parameters"]
    cut = f"cut by {share:.0%}" if share else "left whole"
    notes = pruned["notes"] if share else [f"prune: {structured['reason']}"]
    notes = [*notes, *(f"{row['name']} left out: {row['reason']}" for row in convert["left_out"])]
    return f"{len(proven)} {'bundle' if len(proven) == 1 else 'bundles'}, {cut}", "; ".join(notes)


def in_process(entry: Entry, folder: Path) -> Ended:
    """As `run`, in a process of its own: a native crash, a hang or an error that is no sentence ends that alone."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.zoo.pipeline", entry.name, str(folder)]
    alone = {**os.environ, lane.FOLDER_VARIABLE: str(folder / "lane")}  # nothing here is about how fast a network is
    with (folder / "log").open("w") as log:
        done = subprocess.run(command, stdout=log, stderr=log, cwd=ROOT, env=alone, timeout=LIMIT_S, check=False)
    if done.returncode:
        last = (folder / "log").read_text().strip().splitlines()[-1:]
        return Ended("crashed", f"exit code {done.returncode}: {' '.join(last)}", {})
    return Ended(**json.loads((folder / RESULT).read_text()))


def main(name: str, folder: Path) -> None:
    """One network; the folder holds everything, with `RESULT`."""
    [entry] = [entry for entry in ENTRIES if entry.name == name]
    (folder / RESULT).write_text(json.dumps(asdict(run(entry, folder))))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
