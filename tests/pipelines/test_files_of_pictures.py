"""The whole pipeline of detectors and segmenters that came as files, to bundles that answer in pictures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from edgekit.core.config import TARGETS
from edgekit.data import load
from edgekit.models import store
from edgekit.models.from_artifact import spec_for
from edgekit.training.fit import fit
from edgekit.workbook.plan import load_plan
from tests.conftest import run_edgekit
from tests.data import boxed, masked

pytestmark = pytest.mark.long

QUICKLY: dict[str, Any] = {
    "profile": {"latency_calls": 20, "warmup_calls": 3, "operator_calls": 3, "compiling": False, "runtimes": False},
    "convert": {"calibration_samples": 16, "check_samples": 8, "precisions": ["fp32", "int8"]},
    "benchmark": {"rounds": 10, "calls_per_round": 5, "warmup_per_round": 2, "most_rounds": 10, "load_s": 0,
                  "tie_margin": 1.0},
    "bundle": {"golden_samples": 4},
    "budget": {"accuracy_drop_pp": 60.0},
}  # fmt: skip


class Turned(nn.Module):
    """The network with its outputs in another order: scores before boxes, a grid with its classes behind."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        y = self.inner(x)
        return y.permute(0, 2, 3, 1) if isinstance(y, torch.Tensor) else (y[1], y[0])


def started(folder: Path, data: Path) -> dict[str, Any]:
    """The config that `edgekit init` writes for the data."""
    done = run_edgekit("init", "seen", "--data", str(data), "--out", str(folder))
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = yaml.safe_load((folder / "seen.yaml").read_text())
    return values


def exported(config: Path, kwargs: dict[str, Any], path: Path) -> None:
    """The config's network, trained here for a little while, as an ONNX file with its outputs turned."""
    plan = load_plan(config)
    data = load(plan.data)
    spec = spec_for(data, plan.run.model.builder, kwargs, plan.run.preprocess)
    network = store.build(spec, 0)
    options: Any = plan.stages["profile"]
    fit(network, data, plan.run.preprocess, options, seed=0, device="cpu", threads=1)
    example = (torch.zeros(1, *spec.input_shape),)
    torch.onnx.export(Turned(network).eval(), example, path, dynamo=True, verbose=False, external_data=False)


def run_with_file(
    folder: Path, values: dict[str, Any], path: Path, models: Sequence[str] = ("baseline",), **student: Any
) -> dict[str, Any]:
    """The result of a run with the file in place of the network."""
    kept = {key: value for key, value in values.items() if key not in ("distill", "prune", "quantize")}
    changed = {**kept, **QUICKLY, **student, "name": "given", "model": {"source": str(path)}}
    changed["convert"] = {**QUICKLY["convert"], "models": list(models)}
    (folder / "given.yaml").write_text(yaml.safe_dump(changed))
    done = run_edgekit("run", str(folder / "given.yaml"), "--out", str(folder), timeout_s=1800)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "given/result.json").read_text())
    return found


def predicted(folder: Path, entry: dict[str, Any], picture: Path) -> dict[str, Any]:
    """A bundle's answer to the picture, drawn too."""
    runner = folder / "given/bundles/edgerun.pyz"
    drawn = folder / f"{entry['file']}.png"
    command = [sys.executable, "-I", runner, "predict", runner.with_name(entry["file"]), picture, "--json"]
    done = subprocess.run([*map(str, command), "--draw", str(drawn)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and drawn.is_file(), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_detector_with_its_scores_first_becomes_every_target_and_teaches(tmp_path: Path) -> None:
    boxed.WRITERS["yolo"](tmp_path / "data", boxed.scenes(90))
    values = started(tmp_path, tmp_path / "data")
    exported(tmp_path / "seen.yaml", {"width": 8, "depth": 1}, tmp_path / "detector.onnx")
    student = {"builder": "edgekit.models.detector:detector", "kwargs": {"width": 4, "depth": 1}}
    loss = {"loss": "soft_targets", "temperature": 1.0, "alpha": 0.5}
    distill = {"student": student, "losses": [loss], "epochs": 2, "batch_size": 8}
    prune = {"measure": False, "epochs": 1, "batch_size": 8, "channel_multiple": 2, "steps": 1, "ratio": 0.2}
    quantize = {"epochs": 1, "batch_size": 8, "calibration_samples": 16, "sensitivity_samples": 8, "study_sizes": []}
    trained = {"distill": distill, "prune": prune, "quantize": {**quantize, "recipes": ["minmax"]}}
    result = run_with_file(tmp_path, values, tmp_path / "detector.onnx", ["baseline", "pruned"], **trained)
    baseline, *variants = result["variants"]
    assert baseline["accuracy_validation"] > 0.3
    made = {row["target"]: row for row in variants if row["name"].startswith("baseline-fp32")}
    assert set(made) == set(TARGETS)
    for row in made.values():
        assert row["accuracy_validation"] == pytest.approx(baseline["accuracy_validation"], abs=0.02)
    picture = next((tmp_path / "data").rglob("*.png"))
    for entry in result["bundles"].values():
        assert set(predicted(tmp_path, entry, picture)) == {"boxes", "drawn", "input", "timing_ms"}


def test_a_segmenter_with_its_classes_last_becomes_every_target(tmp_path: Path) -> None:
    masked.WRITERS["folders"](tmp_path / "data", masked.scenes(90))
    values = started(tmp_path, tmp_path / "data")
    exported(tmp_path / "seen.yaml", {"width": 8, "depth": 1}, tmp_path / "masks.onnx")
    result = run_with_file(tmp_path, values, tmp_path / "masks.onnx")
    baseline, *variants = result["variants"]
    assert baseline["accuracy_validation"] > 0.4
    made = {row["target"]: row for row in variants if row["precision"] == "fp32"}
    assert set(made) == set(TARGETS)
    for row in made.values():
        assert row["accuracy_validation"] == pytest.approx(baseline["accuracy_validation"], abs=0.02)
    picture = next((tmp_path / "data/images").rglob("*.png"))
    answers = [predicted(tmp_path, entry, picture) for entry in result["bundles"].values()]
    assert all(sum(each["shares"].values()) == pytest.approx(1) for each in answers)
