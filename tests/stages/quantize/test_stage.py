"""The stage as the workbook runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import TrustError
from edgekit.report.formatting import percentage_points
from edgekit.report.sections import quantization
from edgekit.stages.quantize import run
from edgekit.stages.quantize.ptq import RECIPES
from edgekit.targets.jobs import Quantization

from .conftest import DATA, OPTIONS, PrunedRun, config

STUDIED = {"epochs": 1, "study_sizes": [4]}


@pytest.fixture(scope="module")
def by_ptq(pruned_run: PrunedRun, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return run(pruned_run.source, pruned_run.data, config(**STUDIED), tmp_path_factory.mktemp("ptq") / "quantize")


@pytest.fixture(scope="module")
def by_qat(pruned_run: PrunedRun, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """One calibration sample sets ranges that clip most others, so PTQ fails and training has to repair them."""
    options = config(calibration_samples=1, budget={"accuracy_drop_pp": 8.0})
    return run(pruned_run.source, pruned_run.data, options, tmp_path_factory.mktemp("qat") / "quantize")


def decision(result: Artifact) -> dict:
    return json.loads(result.file("decision.json").read_text())


def test_ptq_inside_the_budget_is_chosen_and_ships_the_source_weights(pruned_run: PrunedRun, by_ptq: Artifact) -> None:
    assert decision(by_ptq)["method"] == "ptq"
    assert decision(by_ptq)["inside_budget"] is True
    for name in ("model/model.json", "model/weights.safetensors"):
        assert by_ptq.files[name] == pruned_run.source.files[name]


def test_qat_repairs_what_ptq_spoils_and_ships_tuned_weights(pruned_run: PrunedRun, by_qat: Artifact) -> None:
    made = decision(by_qat)
    assert made["method"] == "qat" and made["inside_budget"] is True
    assert made["baseline_accuracy"] - made["ptq_accuracy"] > 0.05
    assert made["qat_drop"]["bound_pp"] <= 8.0 < made["ptq_drop"]["bound_pp"]
    assert by_qat.files["model/model.json"] == pruned_run.source.files["model/model.json"]
    assert by_qat.files["model/weights.safetensors"] != pruned_run.source.files["model/weights.safetensors"]


def test_tuning_takes_no_bias_correction_from_the_networks_that_are_not_tuned(
    pruned_run: PrunedRun, tmp_path: Path
) -> None:
    options = config(calibration_samples=1, budget={"accuracy_drop_pp": 8.0}, recipes=["minmax_bias"])
    made = decision(run(pruned_run.source, pruned_run.data, options, tmp_path / "quantize"))
    assert made["method"] == "qat"
    assert Quantization.from_json(made["quantization"]) == Quantization("minmax", False)
    assert Quantization.from_json(made["ptq_quantization"]) == Quantization("minmax", True)


@pytest.mark.parametrize("method", ["by_ptq", "by_qat"])
def test_the_saved_network_has_the_accuracy_it_was_chosen_for(
    pruned_run: PrunedRun, method: str, request: pytest.FixtureRequest
) -> None:
    from edgekit.models import quantized, store
    from edgekit.training import predict

    result: Artifact = request.getfixturevalue(method)
    rebuilt = quantized.rebuild(result.path / "model", result.path / "nncf")
    plain, spec = store.load(result.path / "model")
    made = decision(result)
    assert predict.evaluate(rebuilt, pruned_run.data.validation, spec.preprocess) == made[f"{made['method']}_accuracy"]
    if made["method"] == "qat":
        tuned, state = quantized.float_state(rebuilt), plain.state_dict()
        assert tuned.keys() == state.keys()
        assert all(tuned[name].equal(state[name]) for name in state)


def test_every_recipe_is_recorded_and_the_converters_get_the_selected_one(by_ptq: Artifact) -> None:
    made = decision(by_ptq)
    assert [row["recipe"] for row in made["recipes"]] == OPTIONS["recipes"]
    assert [row["recipe"] for row in made["recipes"] if row["kept"]] == [made["recipe"]]
    assert all(row["reason"] for row in made["recipes"])
    assert Quantization.from_json(made["quantization"]) == RECIPES[made["recipe"]]
    assert made["ptq_quantization"] == made["quantization"]
    assert made["mixed"] == [] and made["against_mixed"] == "not needed: PTQ is inside the budget"
    assert by_ptq.metrics["quantization"] == made["quantization"]


def test_the_table_lists_each_method_below_float(by_ptq: Artifact) -> None:
    rows = {row[0]: row for row in quantization.table(by_ptq).rows}
    below = decision(by_ptq)["ptq_below_float"]
    assert rows["PTQ int8"][4:6] == (percentage_points(below["drop_pp"]), percentage_points(below["bound_pp"]))
    assert rows["pruned, float"][4:6] == ("", "") and rows["PTQ int8"][6] == "chosen"
    assert by_ptq.metrics["qat_below_float"]["samples"] == below["samples"]


def test_both_studies_are_left(pruned_run: PrunedRun, tmp_path: Path) -> None:
    options = config(epochs=1, recipes=["minmax"], study_sizes=[4, 10_000], calibration_samples=20)
    result = run(pruned_run.source, pruned_run.data, options, tmp_path / "quantize")
    study = json.loads(result.file("calibration.json").read_text())
    assert [row["samples"] for row in study["sizes"]] == [4] and study["too_large"] == [10_000]
    assert study["validation_samples"] == len(pruned_run.data.validation)
    counted = json.loads(result.file("histograms.json").read_text())
    layers = [row["layer"] for row in json.loads(result.file("sensitivity.json").read_text())["layers"]]
    assert [row["layer"] for row in counted] == [layers[0], layers[0], layers[-1], layers[-1]]


def test_a_missed_budget_is_reported(pruned_run: PrunedRun, tmp_path: Path) -> None:
    options = config(epochs=1, learning_rate=1e-6, calibration_samples=1, budget={"accuracy_drop_pp": 0.1})
    made = decision(run(pruned_run.source, pruned_run.data, options, tmp_path / "quantize"))
    assert made["inside_budget"] is False
    assert made["mixed"] == [] and made["against_mixed"].startswith("not tried: the float network is outside")
    assert made["reason"].startswith("none is inside the 0.1 pp allowed")
    assert "samples cannot show less than 0.75 pp, even if every answer is the same as the baseline's" in made["reason"]


def test_the_artifact_is_whole_and_its_source_untouched(pruned_run: PrunedRun, by_ptq: Artifact) -> None:
    artifacts.verify(by_ptq)
    artifacts.verify(pruned_run.source)
    assert by_ptq.parent == {"stage": "prune", "digest": pruned_run.source.digest}
    assert by_ptq.metrics["calibration_samples"] == 200
    assert by_ptq.metrics["most_sensitive_layer"]
    assert len(json.loads(by_ptq.file("history.json").read_text())) == 1


@pytest.mark.long
def test_a_fresh_process_leaves_the_same_bytes(pruned_run: PrunedRun, by_ptq: Artifact, tmp_path: Path) -> None:
    """With a hash seed of its own: the order of a set must not reach the bytes."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom edgekit.core import artifacts\n"
        "from edgekit.core.config import validate\n"
        "from edgekit.data import load, parse\nimport edgekit.stages.quantize as stage\n"
        "heavy = {'torch', 'nncf', 'openvino', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        f"data = load(parse({DATA!r})).withhold_test()\n"
        f"config = validate(stage.QuantizeConfig, {{**{OPTIONS!r}, **{STUDIED!r}}}, 'quantize')\n"
        f"source = artifacts.load(Path({str(pruned_run.source.path)!r}))\n"
        "result = stage.run(source, data, config, Path(sys.argv[1]))\n"
    )
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "quantize")],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed, "PATH": "", "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")  # no progress bars, no log lines in a notebook
    assert artifacts.load(tmp_path / "quantize").files == by_ptq.files
    assert not list(tmp_path.rglob("*.so")), "nncf compiled an extension"


def test_a_changed_source_is_refused(pruned_run: PrunedRun, tmp_path: Path) -> None:
    shutil.copytree(pruned_run.source.path.parent, tmp_path / "run")
    weights = tmp_path / "run" / "prune" / "model" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(TrustError, match=r"weights\.safetensors"):
        run(artifacts.load(tmp_path / "run" / "prune"), pruned_run.data, config(), tmp_path / "run" / "quantize")
