"""A network with branches in a pipeline: trained with them; pruned, quantized and shipped without; and recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from edgekit.core.artifacts import Artifact
from edgekit.models.from_artifact import open_model
from edgekit.report.sections import conversion
from edgekit.workbook.stage import open_stage

pytestmark = pytest.mark.numerics
STAGES = ("profile", "distill", "prune", "quantize", "convert")
BRANCHES = {"alpha": 0.125, "top": 0.03125, "blocks": [1, 1, 1, 1], "reduction": 4}
REPVGG = "edgekit.models.repvgg:repvgg"
TUNING = {"epochs": 1, "batch_size": 32}
CONFIG: dict[str, Any] = {
    "name": "branches",
    "data": {"source": "digits", "limit": 400, "calibration_samples": 40},
    "model": {"builder": REPVGG, "kwargs": BRANCHES},
    "preprocess": [{"step": "scale", "factor": 0.00392156862745098}],
    "budget": {"accuracy_drop_pp": 100},
    "targets": ["onnx"],
    "threads": 1,
    "profile": {"epochs": 2, "batch_size": 32, "latency_calls": 20, "compiling": False, "runtimes": False},
    "distill": {"student": {"builder": REPVGG, "kwargs": {**BRANCHES, "top": 0.015625}}, "lone_student": False,
                "epochs": 2, "batch_size": 32},
    "prune": {**TUNING, "ratio": 0.3, "steps": 1, "sparsity_steps": 1, "measure": False},
    "quantize": {**TUNING, "recipes": ["minmax"], "calibration_samples": 40, "sensitivity_samples": 40,
                 "study_sizes": [8, 30]},
    "convert": {"calibration_samples": 40, "check_samples": 40, "models": ["baseline", "pruned"],
                "precisions": ["fp32", "int8"], "int8_min_snr_db": 0.0, "int8_min_top1_agreement": 0.0},
}  # fmt: skip


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    home: Path = tmp_path_factory.mktemp("branches")
    path = home / "branches.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return {name: open_stage(name, {"config": str(path), "out": str(home / "runs")}).run() for name in STAGES}


@pytest.mark.parametrize("stage", STAGES[:4])
def test_every_stage_leaves_a_network_without_branches(pipeline: dict[str, Artifact], stage: str) -> None:
    network, spec = open_model(pipeline[stage])
    assert spec.reparameterized
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in network.modules())
    assert sum(isinstance(part, torch.nn.Conv2d) for part in network.modules()) == 5


def test_the_merged_network_is_the_one_that_is_pruned(pipeline: dict[str, Artifact]) -> None:
    before, after = (open_model(pipeline[stage])[0] for stage in ("distill", "prune"))
    sizes = [sum(each.numel() for each in network.parameters()) for network in (before, after)]
    assert sizes[1] < 0.8 * sizes[0]
    assert pipeline["prune"].metrics["structured_steps"][0]["parameters"] == sizes[0]


def test_merged_branches_are_recorded_by_their_stage_and_in_the_numerics(pipeline: dict[str, Artifact]) -> None:
    for stage in ("profile", "distill"):
        record = pipeline[stage].metrics["reparameterized"]
        assert 0 < record["max_abs"] < 1e-4 * record["largest"] and record["samples"] == 64
        assert record["parameters"] < record["parameters_before"]
    assert "reparameterized" not in pipeline["prune"].metrics
    rows = [row for row in pipeline["convert"].metrics["ends"] if row["to"] == "merged"]
    assert [row["model"] for row in rows] == ["baseline", "pruned"]
    assert rows[1]["max_abs"] == pipeline["distill"].metrics["reparameterized"]["max_abs"]
    table = conversion.ends_table(pipeline["convert"])
    assert ("baseline", "branches → merged") in [row[:2] for row in table.rows]
    assert "parameters became" in next(row[3] for row in table.rows if row[1] == "branches → merged")
    assert any("branches → merged" in line.cells for line in conversion.ends_grid(pipeline["convert"]).lines)


def test_the_files_say_what_the_merged_networks_say(pipeline: dict[str, Artifact]) -> None:
    rows = {row["name"]: row for row in conversion.boundary_rows(pipeline["convert"])}
    assert set(rows) == {f"{model}-{precision}-onnx" for model in ("baseline", "pruned")
                         for precision in ("fp32", "int8")}  # fmt: skip
    assert all(rows[f"{model}-fp32-onnx"]["snr_db"] > 60 for model in ("baseline", "pruned"))
