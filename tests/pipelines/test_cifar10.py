"""CIFAR-10 from its zip, with a limit, through the whole pipeline to bundles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.core.config import TARGETS
from tests import requirements
from tests.conftest import run_edgekit

QUICK = (
    "data.limit=600",
    "profile.compiling=false",
    "profile.runtimes=false",
    "benchmark.load_s=0",
    "benchmark.most_rounds=10",
    "data.calibration_samples=60",
    "budget={accuracy_drop_pp: 60}",
    "profile.epochs=3",
    "distill.epochs=3",
    "distill.candidates=[]",
    "distill.student={builder: edgekit.models.resnet:resnet8}",
    "prune.epochs=1",
    "prune.steps=1",
    "prune.measure=false",
    "prune.sparsity_steps=1",
    "quantize.epochs=1",
    "quantize.calibration_samples=60",
    "quantize.sensitivity_samples=20",
    "quantize.recipes=[minmax]",
    "quantize.study_sizes=[]",
    "convert.models=[baseline, pruned]",
    "convert.precisions=[fp32, int8]",
    "convert.calibration_samples=60",
    "convert.check_samples=50",
    "convert.int8_min_top1_agreement=0.5",
    "benchmark.rounds=10",
)


@pytest.mark.long
def test_a_limited_run_ends_with_bundles(tmp_path: Path) -> None:
    requirements.data("data/cifar10.zip")
    settings = [argument for setting in QUICK for argument in ("--set", setting)]
    done = run_edgekit(
        "run", "configs/cifar10.yaml", "--out", str(tmp_path), *settings, XDG_CACHE_HOME=str(tmp_path / "cache")
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "cifar10/result.json").read_text())
    assert set(result["winners"]) == set(TARGETS)
    assert result["config"]["data"]["path"] == "${EDGEKIT_SHARED}/data/cifar10.zip"
    [rival] = result["rivals"]
    assert (rival["name"], rival["bytes"]) == ("pretrainedResnet_quant.tflite", 98_496)
    assert 0.6 < rival["accuracy_test"] < 0.95, "77.3 % on all test pictures; few are left here"
    folder = tmp_path / "cifar10/bundles"
    for entry in result["bundles"].values():
        command = [sys.executable, "-I", str(folder / "edgerun.pyz"), "selftest", str(folder / entry["file"])]
        proof = subprocess.run(command, capture_output=True, text=True, check=False)
        assert proof.returncode == 0, proof.stderr
