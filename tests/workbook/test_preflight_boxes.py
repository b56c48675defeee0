"""Pictures with boxes: what a run would not print is reported before it starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml
from torch import Tensor, nn
from typer.testing import CliRunner

from edgekit.cli.app import app
from edgekit.data import load
from edgekit.models import output_check
from edgekit.models.detector import detector
from edgekit.models.eager import join_outputs
from edgekit.models.spec import ModelSpec
from edgekit.report.sections import samples
from edgekit.workbook import preflight_worker
from edgekit.workbook.plan import load_plan
from tests.data.boxed import coco, scenes

JOINING = """
import torch
from torch import nn

from edgekit.models.detector import detector


class Joining(nn.Module):
    def __init__(self, apart):
        super().__init__()
        self.apart = apart

    def forward(self, x):
        return torch.cat(self.apart(x), dim=-1)


def joining(input_shape, num_classes):
    return Joining(detector(input_shape, num_classes, width=4, depth=1))
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """COCO with a crowd and a box outside its picture, and a network whose two outputs are one tensor."""
    coco(tmp_path / "data", scenes(60))
    listed = tmp_path / "data/annotations/instances_train2017.json"
    values = json.loads(listed.read_text())
    values["annotations"][0]["bbox"] = [60, 40, 30, 30]
    values["annotations"][1]["iscrowd"] = 1
    listed.write_text(json.dumps(values))
    (tmp_path / "joining.py").write_text(JOINING)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "mine.yaml"
    data = {"source": "boxes", "path": "data", "annotations": "coco", "height": 48, "width": 64}
    path.write_text(
        yaml.safe_dump(
            {
                "name": "mine",
                "task": "detection",
                "data": {**data, "calibration_samples": 10, "cache": str(tmp_path / "cache")},
                "preprocess": [{"step": "scale", "factor": 0.0039}],
                "model": {"builder": "joining:joining"},
                "convert": {"calibration_samples": 10},
                "budget": {"accuracy_drop_pp": 50.0},
            }
        )
    )
    return path


def test_the_plan_reports_skipped_data_and_that_int8_has_one_scale_for_two_outputs(config: Path) -> None:
    done = CliRunner().invoke(app, ["run", str(config), "--dry-run"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    started = next(place for place, line in enumerate(lines) if line.startswith("Notes:"))
    assert lines[started : started + 2] == [
        "Notes:    left out 1 boxes that mark crowds",
        f"          {lines[started + 1].strip()}",
    ]
    assert lines[started + 1].strip().startswith("skipped 1 boxes, empty or outside: train2017/scene")
    assert next(line for line in lines if line.startswith("Network:")).endswith(output_check.SHARED_SCALE)


def test_separate_outputs_get_no_note_about_scales(config: Path) -> None:
    plan = load_plan(config, ["model.builder=edgekit.models.detector:detector"])
    result = preflight_worker.check_plan(plan, config.parent)
    assert result["Network"].endswith("to be trained; answers these samples")


def test_a_notebook_shows_what_was_skipped_and_nothing_where_nothing_was(config: Path) -> None:
    data = load(load_plan(config).data)
    table = samples.notes_table(data)
    assert table is not None and [row[0] for row in table.rows] == list(data.notes)
    coco(config.parent / "data", scenes(60))  # whole again
    assert samples.notes_table(load(load_plan(config).data)) is None


class Joining(nn.Module):
    """A detector with both outputs in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.apart = detector((3, 32, 32), 2, width=4, depth=1)

    def forward(self, x: Tensor) -> Tensor:
        return join_outputs(self.apart(x))


def test_one_output_is_distinguished_from_two_and_the_network_stays_in_its_mode() -> None:
    spec = ModelSpec(
        builder="nets:net",
        input_shape=(3, 32, 32),
        num_classes=2,
        task="detection",
        classes=("a", "b"),
        raw={"kind": "image", "shape": [32, 32, 3], "dtype": "uint8"},
    )
    both, x = Joining().train(), torch.zeros(2, 3, 32, 32)
    before = {name: value.clone() for name, value in both.state_dict().items()}
    assert output_check.shared_scale_note(both, spec, x) == output_check.SHARED_SCALE
    assert both.training and all(torch.equal(value, before[name]) for name, value in both.state_dict().items())
    assert output_check.shared_scale_note(both.apart, spec, x) == ""
    assert output_check.shared_scale_note(nn.Flatten(), spec.model_copy(update={"task": "classification"}), x) == ""
