"""Every task through the whole walk: labels in, bundles out that answer, budgets held to the task's own accuracy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from edgekit.core import tasks
from tests.conftest import run_edgekit
from tests.core.tasks.made import MADE, config

pytestmark = pytest.mark.long
LEAST = {"regression": 0.75, "multi_label": 0.9, "anomaly": 0.85, "embedding": 0.9}
"""What the baselines must reach on test: far above guessing, well below what they do reach."""
TOLD = {
    "regression": {"values"},
    "multi_label": {"labels", "probabilities"},
    "anomaly": {"is_anomaly", "score"},
    "embedding": {"embedding"},
}


@pytest.mark.parametrize("task", MADE)
def test_a_task_walks_through_to_bundles_that_answer(tmp_path: Path, task: str) -> None:
    path = tmp_path / f"{task}.yaml"
    path.write_text(yaml.safe_dump(config(task, tmp_path)))
    done = run_edgekit("run", str(path), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    folder = tmp_path / task.replace("_", "-")
    result = json.loads((folder / "result.json").read_text())
    assert result["task"] == task
    baseline, *variants = result["variants"]
    assert baseline["accuracy_test"] > LEAST[task]
    assert {row["precision"] for row in variants} == {"fp32", "fp16", "int8", "w8", "dynamic"}
    for row in variants:
        assert row["drop_pp"] <= row["bound_pp"]
        assert row["drop_pp"] == pytest.approx(
            100 * (baseline["accuracy_validation"] - row["accuracy_validation"]), abs=1e-4
        )
    kind, by_class = tasks.named(task), result["by_class"]
    assert (by_class["group"], by_class["score"]) == (kind.GROUP, kind.SCORE)
    assert set(by_class["variants"]) == {"baseline-eager", *result["winners"].values()}
    assert sum(len(row["answers"]) for row in by_class["groups"]) == len(by_class["groups"]) * len(by_class["variants"])
    said = tasks.named(task).SAID
    assert said.split(":")[0] in (folder / "report.html").read_text()
    for entry in result["bundles"].values():
        _answers(folder / "bundles", entry["file"], tmp_path, task)


def _answers(bundles: Path, file: str, folder: Path, task: str) -> None:
    """In a fresh interpreter, for a sample that training saw, and rightly."""
    arrays = MADE[task]()
    place = 0 if task != "multi_label" else int(np.flatnonzero(arrays["y_train"].all(axis=1))[0])
    sample = arrays["x_train"][place]
    np.save(folder / "x.npy", sample[..., None] if sample.dtype == np.uint8 else sample)
    command = [sys.executable, "-I", str(bundles / "edgerun.pyz"), "predict", str(bundles / file)]
    found = subprocess.run([*command, str(folder / "x.npy"), "--json"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    answer: dict[str, Any] = json.loads(found.stdout)
    assert TOLD[task] <= set(answer)
    if task == "regression":
        assert list(answer["values"].values()) == pytest.approx(arrays["y_train"][place].tolist(), abs=1.0)
    elif task == "multi_label":  # one that has every label; of three, one may be a close call
        assert len(answer["labels"]) >= 2 and set(answer["labels"]) <= set(arrays["classes"].tolist())
        assert set(answer["probabilities"]) == set(arrays["classes"].tolist())
    elif task == "embedding":
        _near_its_like(command, folder, arrays)
    else:
        assert not answer["is_anomaly"]
        anomalous = arrays["x_train"][int(np.flatnonzero(arrays["y_train"])[0])]
        np.save(folder / "x.npy", anomalous)
        found = subprocess.run([*command, str(folder / "x.npy"), "--json"], capture_output=True, text=True, check=False)
        assert json.loads(found.stdout)["score"] > answer["score"]


def _near_its_like(command: list[str], folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """The nearest of a digit's vector is mostly one of its like; each is printed as a JSON list."""
    y = arrays["y_train"]
    places = [int(place) for digit in range(10) for place in np.flatnonzero(y == digit)[:8]]
    for place in places:
        np.save(folder / f"{place}.npy", arrays["x_train"][place][..., None])
    names = [str(folder / f"{place}.npy") for place in places]
    found = subprocess.run([*command, *names], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    vectors = np.array([json.loads(line.partition(": ")[2]) for line in found.stdout.splitlines()])
    assert vectors.shape == (80, 32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    cosines = vectors @ vectors.T - 2 * np.eye(80)
    assert np.mean(y[places][cosines.argmax(axis=1)] == y[places]) > 0.8
