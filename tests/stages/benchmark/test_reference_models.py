"""A file made by others: its accuracy and its time are those of the file, and it wins nothing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.config import Budget
from edgekit.core.errors import ConfigError, ModelError
from edgekit.core.variants import read_variants
from edgekit.data import Split
from edgekit.data import load as load_data
from edgekit.report.sections import variants
from edgekit.stages import benchmark
from edgekit.stages.benchmark.reference_models import compare_with_winner, open_reference_models
from edgekit.training.teachers.config import ModelFile
from edgekit.workbook.config_file import parse_stage
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY, FinishedRun
from tests.stages.benchmark.synthetic import row, timings

PLAN = load_plan(TINY)
STEPS = PLAN.run.preprocess
ROOT = Path(__file__).parents[3]


def rival_of(run: FinishedRun, home: Path, variant: str = "baseline-fp32-onnx") -> Path:
    """A converted model of the run, as a file of somebody else's."""
    found = next(each for each in read_variants(artifacts.load(run.folder / "convert")) if each.name == variant)
    path = home / "rival.onnx"
    shutil.copyfile(run.folder / "convert" / found.files[0], path)
    return path


@pytest.fixture(scope="module")
def sealed(tiny_run: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The benchmark of the tiny run once more, against a file that is one of its own variants."""
    home = tmp_path_factory.mktemp("rivals")
    path = rival_of(tiny_run, home)
    options = PLAN.stages["benchmark"].model_dump() | {"rivals": [{"path": str(path), "preprocess": STEPS}]}
    config = benchmark.BenchmarkConfig.model_validate(options)
    return benchmark.run(artifacts.load(tiny_run.folder / "convert"), load_data(PLAN.data), config, home / "out")


def test_a_reference_model_is_answered_and_timed_like_the_variant_that_it_is(sealed: Artifact) -> None:
    [found] = sealed.metrics["rivals"]
    twin = next(each for each in sealed.metrics["rows"] if each["name"] == "baseline-fp32-onnx")
    assert found["accuracy_test"] == twin["accuracy_test"]
    assert found["bytes"] == twin["bytes"]
    [seen] = sealed.metrics["others_seen_validation"]
    assert seen["accuracy_validation"] == twin["accuracy_validation"] and not seen["known"]
    assert found["calls"] == twin["calls"]
    winner = next(each for each in sealed.metrics["rows"] if each["name"] == sealed.metrics["winner"])
    assert found["winner"] == winner["name"]
    assert found["winner_bytes_share"] == pytest.approx(winner["bytes"] / found["bytes"])
    assert found["winner_gain_pp"] == pytest.approx(100 * (winner["accuracy_test"] - found["accuracy_test"]))


def test_a_reference_model_wins_nothing_and_its_place_is_not_recorded(sealed: Artifact) -> None:
    names = {each["name"] for each in sealed.metrics["rows"]}
    assert "rival.onnx" not in names
    assert all(
        each["name"] != "rival.onnx" for decision in sealed.metrics["decisions"] for each in decision["candidates"]
    )
    assert [each["path"] for each in sealed.config["rivals"]] == ["rival.onnx"]
    assert "rival.onnx" in repr(variants.rivals_table(sealed))


def test_an_openvino_reference_model_is_its_xml_and_the_weights_beside_it(
    tiny_run: FinishedRun, tmp_path: Path
) -> None:
    found = next(
        each
        for each in read_variants(artifacts.load(tiny_run.folder / "convert"))
        if each.name == "baseline-fp32-openvino"
    )
    for name in found.files:
        shutil.copyfile(tiny_run.folder / "convert" / name, tmp_path / f"rival{Path(name).suffix}")
    named = ModelFile.model_validate({"path": str(tmp_path / "rival.xml"), "preprocess": STEPS})
    [opened] = open_reference_models([named], load_data(PLAN.data), 1)
    rows = artifacts.load(tiny_run.folder / "benchmark").metrics["rows"]
    twin = next(each for each in rows if each["name"] == "baseline-fp32-openvino")
    assert opened.row["accuracy_test"] == twin["accuracy_test"]
    assert opened.row["bytes"] == twin["bytes"]
    answer = opened.open()()
    assert isinstance(answer, np.ndarray) and answer.shape == (1, 10)


def test_without_a_winner_nothing_is_held_against_a_reference_model(tiny_run: FinishedRun, tmp_path: Path) -> None:
    named = ModelFile.model_validate({"path": str(rival_of(tiny_run, tmp_path)), "preprocess": STEPS})
    rivals = open_reference_models([named], load_data(PLAN.data), 1)
    [comparison] = compare_with_winner(rivals, None, timings({"rival.onnx": 0.5}))
    assert comparison["winner"] is comparison["winner_speedup"] is comparison["winner_gain_pp"] is None
    [comparison] = compare_with_winner(
        rivals, row("student-fp32-tflite", 0.9), timings({"rival.onnx": 0.5, "student-fp32-tflite": 0.1})
    )
    assert comparison["winner_speedup"] == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("rivals", "message"),
    [
        ([{"path": "nowhere.tflite"}], "no such file"),
        ([{"path": "README.md"}], "looks like"),
        ([{"path": "README.md", "preprocess": [{"step": "blur"}]}], "blur"),
    ],
)
def test_what_is_no_reference_model_is_refused_before_anything_runs(rivals: list[dict[str, Any]], message: str) -> None:
    placed = [{**each, "path": str(ROOT / each["path"])} for each in rivals]
    with pytest.raises(ConfigError, match=message):
        parse_stage("benchmark", {"rivals": placed}, {"budget": Budget.model_validate({}), "targets": ["onnx"]})


def test_another_file_than_the_recorded_is_refused(tiny_run: FinishedRun, tmp_path: Path) -> None:
    path = rival_of(tiny_run, tmp_path)
    with pytest.raises(ConfigError, match="has sha256"):
        parse_stage("benchmark", {"rivals": [{"path": str(path), "sha256": "0" * 64}]}, {})


def test_two_reference_models_of_one_name_are_refused(tiny_run: FinishedRun, tmp_path: Path) -> None:
    path = str(rival_of(tiny_run, tmp_path))
    with pytest.raises(ConfigError, match="twice"):
        parse_stage("benchmark", {"rivals": [{"path": path}, {"path": path}]}, {})


def test_a_file_that_does_not_fit_the_samples_is_reported(tiny_run: FinishedRun, tmp_path: Path) -> None:
    data = load_data(PLAN.data)
    other = replace(data, held_out=Split(data.test.x.repeat(2, axis=2), data.test.y))
    named = ModelFile.model_validate({"path": str(rival_of(tiny_run, tmp_path)), "preprocess": STEPS})
    with pytest.raises(ModelError, match="rival.onnx: takes"):
        open_reference_models([named], other, 1)
