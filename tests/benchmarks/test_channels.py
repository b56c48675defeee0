"""`python -m benchmarks.channels`: the arithmetic of its tables, and real files that are timed from their notes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.ablation.results import packed
from benchmarks.channels import timing
from benchmarks.channels.page import accuracies, speeds
from edgekit.core.errors import ConfigError
from edgekit.core.hashing import write_json
from edgekit.data import Data
from edgekit.models import store
from tests.stages.prune.test_structured import spec
from tests.targets.convert_runs import SHAPE, STEPS, colours


def test_a_share_is_the_speed_up_over_the_ratio_of_multiply_adds() -> None:
    about = {"student": {"to": "student", "macs": 4000}, "ratio": {"to": "student", "macs": 2000}}
    files = [
        {"model": name, "target": "tflite", "precision": "int8", "round_p50s_ms": [p50_ms] * 10}
        for name, p50_ms in (("student", 0.032), ("ratio", 0.02))
    ]
    lines = speeds({"about": about, "files": files}).splitlines()
    assert len(lines) == 3
    assert lines[-1] == "| ratio | 2.00× | 1.60× (1.60–1.60) · 0.80 · 20.0 µs |"


def test_accuracy_stands_beside_the_students_on_the_same_samples(tmp_path: Path) -> None:
    for name, right in (("student", 80), ("ratio", 70), ("ratio, from new weights", 85)):
        answers = packed(np.arange(100) < right)
        (tmp_path / "networks" / name).mkdir(parents=True)
        write_json(
            tmp_path / "networks" / name / "right.json",
            {"samples": [100, 100], "epochs": 4, "validation": answers, "test": answers},
        )
    about = {name: {"macs": 10, "parameters": 5} for name in ("student", "ratio")}
    rows = {line.split(" | ")[0][2:]: line for line in accuracies(tmp_path, about).splitlines()[2:]}
    assert "| 70.00% (" in rows["ratio"] and "| -10.00 (" in rows["ratio"]
    assert "| +5.00 (" in rows["ratio, from new weights"]


@pytest.mark.long
def test_files_are_made_once_and_timed_in_another_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    described = spec("ds_cnn:ds_cnn", width=8, blocks=1).model_copy(update={"input_shape": SHAPE, "preprocess": STEPS})
    data = Data(colours(8, 0), colours(8, 1), colours(8, 2), described.classes, "image", digest="synthetic")
    store.save(tmp_path / "networks" / "student", store.build(described), described)
    timing.convert(tmp_path, described, data, [4], ["onnx"])
    timing.time_all(tmp_path, 10, 5)
    found = json.loads((tmp_path / timing.TIMES).read_text())
    names = {"student", "width 4 of 4", "width 3 of 4", "width 2 of 4"}
    assert {row["model"] for row in found["files"]} == set(found["about"]) == names
    assert all(len(row["round_p50s_ms"]) == 10 and row["bytes"] > 0 for row in found["files"])
    assert found["about"]["width 2 of 4"]["macs"] < found["about"]["width 4 of 4"]["macs"]
    assert capsys.readouterr().out == ""


def test_a_network_without_a_width_is_refused_before_anything_is_trained() -> None:
    by_alpha = spec("mobilenet_v1:mobilenet_v1", alpha=0.25)
    with pytest.raises(
        ConfigError, match=r"^--widths: got 16 64, and .+: takes no 'width'; .+ with no number for none$"
    ):
        timing.check(by_alpha, [16, 64])
    timing.check(by_alpha, [])
    timing.check(spec("resnet:resnet", depth=8, width=8), [16, 64])
