"""Targets that a config does not name are a wish: what cannot be made is left out, and the rest ships."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from edgekit.core.errors import BudgetMissed, ConfigError, ConversionError
from edgekit.workbook.plan import load_plan
from tests.conftest import ROOT

QUICK: dict[str, Any] = {
    "profile": {
        "epochs": 3,
        "compiling": False,
        "runtimes": False,
        "latency_calls": 20,
        "warmup_calls": 1,
        "operator_calls": 1,
    },
    "convert": {"precisions": ["fp32"]},
    "benchmark": {"rounds": 10, "most_rounds": 10, "calls_per_round": 5, "warmup_per_round": 1, "load_s": 0},
}
NETWORK = """
import torch

class Guarded(torch.nn.Module):
    def __init__(self, num_classes, input_shape):
        super().__init__()
        self.dense = torch.nn.Linear(input_shape[0], num_classes)

    def forward(self, x):
        x = self.dense(x)
        return x if float(x.abs().sum()) >= 0 else -x

def make(num_classes, input_shape):
    return Guarded(num_classes, input_shape)
"""
"""A network that the exporters to TFLite and ONNX cannot follow; OpenVINO's can."""


def config(folder: Path, **more: Any) -> Path:
    """A run without a student on 60 rows of three classes."""
    y = np.arange(60) % 3
    x = 2 * y[:, None] + np.random.default_rng(0).normal(size=(60, 6))
    np.savez(folder / "rows.npz", allow_pickle=False, x_train=x.astype(np.float32), y_train=y)
    values = {
        "name": "rows",
        "data": {"source": "npz", "path": "rows.npz"},
        "model": {"builder": "edgekit.models.mlp:mlp", "kwargs": {"width": 8}},
        "budget": {"accuracy_drop_pp": 100.0},
        **QUICK,
        **more,
    }
    (folder / "rows.yaml").write_text(yaml.safe_dump(values))
    return folder / "rows.yaml"


def run(path: Path, *settings: str, python: Path = Path(sys.executable)) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", "edgekit", "run", str(path), "--out", str(path.parent / "runs")]
    command += [word for setting in settings for word in ("--set", setting)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=path.parent, env=environment, capture_output=True, text=True, check=False)


def result(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((path.parent / "runs/rows/result.json").read_text())
    return content


def without(package: str, home: Path) -> Path:
    """The Python of an environment that has every package of this one but that."""
    venv.create(home, symlinks=True)
    there = Path(sysconfig.get_path("purelib"))
    here = home / there.relative_to(sys.prefix)
    for each in there.iterdir():
        if re.split(r"[-.]", each.name)[0] != package and not (here / each.name).exists():
            (here / each.name).symlink_to(each)
    return home / "bin/python"


@pytest.mark.processes
def test_an_operator_that_two_targets_cannot_take(tmp_path: Path) -> None:
    (tmp_path / "guarded.py").write_text(NETWORK)
    path = config(tmp_path, model={"builder": "guarded:make"})
    done = run(path)
    assert done.returncode == 0, done.stdout + done.stderr
    for target in ("tflite", "onnx"):
        assert f"No bundle for {target}: baseline-fp32-{target} left out: " in done.stdout
    assert set(result(path)["bundles"]) == {"openvino"} and set(result(path)["targets_left_out"]) == {"tflite", "onnx"}
    demanded = run(path, "targets=[openvino, onnx]")
    assert demanded.returncode == ConversionError.exit_code, demanded.stdout + demanded.stderr
    assert "convert: no variant for onnx: baseline-fp32-onnx left out: " in demanded.stderr
    assert "openvino can be made: take onnx out of targets" in demanded.stderr


@pytest.mark.processes
@pytest.mark.parametrize(("package", "target"), [("openvino", "openvino"), ("litert_torch", "tflite")])
def test_a_package_of_one_target_that_is_not_installed(package: str, target: str, tmp_path: Path) -> None:
    python = without(package, tmp_path / "environment")
    missing = subprocess.run([python, "-c", f"import {package}"], capture_output=True, text=True, check=False)
    assert f"No module named '{package}'" in missing.stderr
    path = config(tmp_path)
    others = [each for each in ("tflite", "openvino", "onnx") if each != target]
    done = run(path, python=python)
    assert done.returncode == 0, done.stdout + done.stderr
    reason = f"baseline-fp32-{target} left out: ModuleNotFoundError: No module named '{package}'; install the package"
    assert f"No bundle for {target}: {reason}" in done.stdout
    created = result(path)
    assert set(created["bundles"]) == set(others) and set(created["unmet"]) == {target}
    assert created["targets_left_out"][target].startswith(reason)
    again = run(path, python=python)
    assert (
        again.returncode == 0 and f"No bundle for {target}: " in again.stdout and "Nothing has changed" in again.stdout
    )
    demanded = run(path, "targets=[tflite, openvino, onnx]", python=python)
    assert demanded.returncode == ConversionError.exit_code, demanded.stdout + demanded.stderr
    assert f"{', '.join(others)} can be made: take {target} out of targets" in demanded.stderr


@pytest.mark.processes
@pytest.mark.parametrize("names", [False, True])
def test_a_target_whose_budget_is_missed(names: bool, tmp_path: Path) -> None:
    """It costs its own bundle alone, whether it is named or not; a run without any bundle ends with 3 as ever."""
    budget = {"accuracy_drop_pp": 100.0, "targets": {"openvino": {"size_bytes": 1}}}
    path = config(tmp_path, budget=budget, **({"targets": ["openvino", "onnx"]} if names else {}))
    done = run(path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No bundle for openvino: no variant meets the budget" in done.stdout
    assert "openvino" not in result(path)["bundles"] and "targets_left_out" not in result(path)
    missed = run(path, "budget={accuracy_drop_pp: 100, size_bytes: 1}")
    assert missed.returncode == BudgetMissed.exit_code, missed.stdout + missed.stderr


def test_precisions_that_one_target_has_are_enough(tmp_path: Path) -> None:
    only = {"convert": {"precisions": ["int4"]}}
    assert load_plan(config(tmp_path, **only)).run.targets_named is False
    with pytest.raises(ConfigError, match=r"precisions .* and targets disagree: onnx offers"):
        load_plan(config(tmp_path, **only, targets=["tflite", "onnx"]))
