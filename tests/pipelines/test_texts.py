"""Texts through the whole pipeline: a table in, bundles on three interpreters out that answer a file of text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests import requirements
from tests.conftest import run_edgekit
from tests.data.sources.test_text_folder import texts

TARGETS = {"tflite", "openvino", "onnx"}
NETWORK = {"builder": "edgekit.models.text_transformer:text_transformer"}
SMALL = {"kwargs": {"width": 16, "layers": 1, "heads": 2}}
FEW = ("distill.epochs=8", "prune.steps=1", "prune.epochs=1", "prune.measure=false", "quantize.recipes=[minmax]",
       "convert.models=[baseline, pruned]", "convert.precisions=[fp32,int8]", "benchmark.rounds=10",
       "benchmark.most_rounds=10", "benchmark.load_s=0")  # fmt: skip


def table(path: Path, count: int) -> Path:
    """Texts of two classes that differ in their words."""
    path.write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in texts(count)), encoding="utf-8")
    return path


def tiny(task: str, folder: Path) -> dict[str, Any]:
    """The smallest run of texts that is still real."""
    more: dict[str, Any] = {"dimensions": 8} if task == "embedding" else {}
    network = {**NETWORK, "kwargs": {**SMALL["kwargs"], **more}}
    student = {**NETWORK, "kwargs": {**network["kwargs"], "width": SMALL["kwargs"]["width"] // 2}}
    return {
        "name": "texts", "task": task, "preprocess": [], "targets": sorted(TARGETS), "threads": 2,
        "data": {"source": "text_table", "path": str(table(folder / "texts.tsv", 400)), "tokens": 16,
                 "vocabulary": 150, "calibration_samples": 40},
        "model": network,
        "budget": {"accuracy_drop_pp": 40.0},
        "profile": {"epochs": 8, "batch_size": 32, "learning_rate": 0.05, "augment": "none", "latency_calls": 40,
                    "warmup_calls": 5, "operator_calls": 5, "compiling": False, "runtimes": False},
        "distill": {"student": student, "epochs": 4, "batch_size": 32, "learning_rate": 0.05, "augment": "none"},
        "prune": {"measure": False, "ratio": 0.3, "steps": 1, "epochs": 1, "batch_size": 32, "augment": "none",
                  "sparsity_steps": 1},
        "quantize": {"epochs": 1, "batch_size": 32, "augment": "none", "calibration_samples": 40,
                     "sensitivity_samples": 20, "recipes": ["minmax"], "study_sizes": [8]},
        "convert": {"models": ["baseline"], "precisions": ["fp32", "int8"], "calibration_samples": 40,
                    "check_samples": 40},
        "benchmark": {"rounds": 10, "most_rounds": 10, "calls_per_round": 5, "warmup_per_round": 2, "load_s": 0},
        "bundle": {"golden_samples": 4},
    }  # fmt: skip


def answers(bundles: Path, file: str, names: list[Path]) -> list[dict[str, Any]]:
    """Of the runner that a run leaves, in a fresh interpreter."""
    command = [sys.executable, "-I", str(bundles / "edgerun.pyz"), "predict", str(bundles / file), "--json"]
    done = subprocess.run([*command, *map(str, names)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
@pytest.mark.parametrize("task", ["classification", "embedding"])
def test_texts_become_bundles_for_three_interpreters(task: str, tmp_path: Path) -> None:
    path = tmp_path / "texts.yaml"
    path.write_text(yaml.safe_dump(tiny(task, tmp_path)))
    done = run_edgekit("run", str(path), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "texts/result.json").read_text())
    assert result["variants"][0]["accuracy_test"] > 0.8
    made = {(row["target"], row["precision"]) for row in result["variants"][1:]}
    assert made == {(target, precision) for target in TARGETS for precision in ("fp32", "int8")}, result["left_out"]
    assert set(result["bundles"]) == TARGETS
    files = []
    for number, text in enumerate(("win a free prize", "claim free cash now", "dinner at home", "love you, see you")):
        files.append(tmp_path / f"{number}.txt")
        files[-1].write_text(text, encoding="utf-8")
    for entry in result["bundles"].values():
        found = answers(tmp_path / "texts/bundles", entry["file"], files)
        if task == "classification":
            assert [each["label"] for each in found] == ["spam", "spam", "ham", "ham"]
        else:
            vectors = np.array([each["embedding"] for each in found])
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
            assert (vectors @ vectors.T - 2 * np.eye(4)).argmax(axis=1).tolist() == [1, 0, 3, 2]


@pytest.mark.long
def test_what_init_writes_for_messages_runs_to_bundles(tmp_path: Path) -> None:
    source = requirements.data("data/sms.tsv")
    rows = source.read_text(encoding="utf-8").splitlines()[:2500]
    (tmp_path / "messages.tsv").write_text("\n".join(rows), encoding="utf-8")
    done = run_edgekit("init", "messages", "--data", str(tmp_path / "messages.tsv"), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    options = [part for setting in FEW for part in ("--set", setting)]
    done = run_edgekit(
        "run", str(tmp_path / "messages.yaml"), "--out", str(tmp_path / "runs"), *options, timeout_s=3000
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "runs/messages/result.json").read_text())
    assert result["variants"][0]["accuracy_test"] > 0.93  # always saying ham would give 0.87
    made = {(row["target"], row["precision"]) for row in result["variants"][1:]}
    assert made == {(target, precision) for target in TARGETS for precision in ("fp32", "int8")}, result["left_out"]
    assert set(result["bundles"]) == TARGETS
    messages = {
        "spam": "Congratulations! You have won a free prize, call 09061234567 now to claim",
        "ham": "ok see you",
    }
    for label, text in messages.items():
        (tmp_path / f"{label}.txt").write_text(text, encoding="utf-8")
    for entry in result["bundles"].values():
        found = answers(
            tmp_path / "runs/messages/bundles", entry["file"], [tmp_path / f"{label}.txt" for label in messages]
        )
        assert [each["label"] for each in found] == list(messages)
