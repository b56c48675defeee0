"""Each task from `edgekit init` on files as users have them to bundles that answer on three interpreters.

What `init` writes is run as it is, with shorter trainings and measurements. The bundles stay in EDGEKIT_TASK_BUNDLES,
if it is set: `make aarch64` asks them the same on Arm (`tests/aarch64/test_tasks.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.generate import tasks
from edgekit.core.tasks import FILE_TASKS, TASKS, load_task
from tests.conftest import run_edgekit

from .cases import CASES, Data
from .correctness import RIGHT

pytestmark = pytest.mark.tasks
INTERPRETERS = {"tflite": "litert", "openvino": "openvino", "onnx": "onnxruntime"}
SHORT: dict[str, dict[str, Any]] = {
    "profile": {"latency_calls": 20, "warmup_calls": 1, "operator_calls": 1, "runtimes": False},
    "prune": {"ratio": 0.25, "steps": 1, "epochs": 1, "measure": False, "sparsity": 0.3, "sparsity_steps": 1},
    "quantize": {"epochs": 1, "recipes": ["minmax"], "study_sizes": []},
    "convert": {"models": ["pruned"], "precisions": ["fp32", "int8"]},
    "benchmark": {"rounds": 10, "most_rounds": 10, "calls_per_round": 5, "warmup_per_round": 1, "load_s": 0},
}
BESIDE = {"input", "timing_ms", "window", "row"}
"""Of every answer, whatever its task."""
MOST_EPOCHS = 20
"""Of the two trainings: enough that the networks have learnt something, for int8 of noise is noise."""


@pytest.fixture(scope="module", params=CASES)
def finished_case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Data]:
    """A case's name, its folder of bundles, and the files that they answer."""
    name: str = request.param
    home = tmp_path_factory.mktemp(name)
    data = CASES[name].write(home)
    done = run_edgekit("init", name, "--task", CASES[name].task, "--data", str(data.path), "--out", str(home))
    assert done.returncode == 0, done.stdout + done.stderr
    path = home / f"{name}.yaml"
    config = yaml.safe_load(path.read_text())
    for stage in ("profile", "distill"):
        config[stage]["epochs"] = min(config[stage]["epochs"], MOST_EPOCHS)
    for stage, options in SHORT.items():
        config[stage] = {**config.get(stage, {}), **options, **CASES[name].options.get(stage, {})}
    config["budget"] = {"accuracy_drop_pp": 100.0}
    path.write_text(yaml.safe_dump(config))
    done = run_edgekit("run", str(path), "--out", str(home / "runs"))
    assert done.returncode == 0, done.stdout + done.stderr
    return name, home / "runs" / name / "bundles", data


def test_every_task_has_a_pipeline_run() -> None:
    """Except for those for which no network is trained: `tests/cli/test_init_model.py` runs a file of each."""
    assert {case.task for case in CASES.values()} == set(TASKS) - {*FILE_TASKS} == set(RIGHT)


def test_its_bundles_answer_on_three_interpreters(finished_case: tuple[str, Path, Data]) -> None:
    name, folder, data = finished_case
    result = json.loads((folder.parent / "result.json").read_text())
    assert result["variants"][0]["accuracy_test"] > CASES[name].least
    second = getattr(load_task(CASES[name].task), "SECOND", None)
    metrics = {row.get("second_accuracy", {}).get("metric") for row in result["variants"]}
    assert metrics == {second.metric if second else None}
    kept = _save_for_aarch64(name, folder, data.files)
    found = {}
    for target, interpreter in INTERPRETERS.items():
        [path] = folder.glob(f"*-{target}-*.edge.zip")
        report = _run(folder, "selftest", path, "--interpreter", interpreter)
        assert report[0]["ok"] and report[0]["interpreter"] == interpreter and report[0]["vectors"] > 0
        answers = _run(folder, "predict", path, *data.files, "--interpreter", interpreter, "--no-trial")
        expected = set(tasks.WORDS[CASES[name].task].answers)
        assert all(set(answer) - BESIDE == expected for answer in answers)
        right = RIGHT[CASES[name].task](answers, data.truths)
        assert right >= CASES[name].right, (target, right)
        print(f"{name}: {right:.0%} of the answers on {interpreter} are right")
        found[path.name] = answers
    if kept is not None:
        (kept / "answers.json").write_text(json.dumps(found))


def _run(folder: Path, *arguments: object) -> list[dict[str, Any]]:
    """The JSON lines of a command of the runner beside the bundles, in a Python of its own."""
    command = [sys.executable, "-I", str(folder / "edgerun.pyz"), *map(str, arguments), "--threads", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _save_for_aarch64(name: str, folder: Path, files: list[Path]) -> Path | None:
    """Save the bundles, with the files that they answer, for the tests on aarch64."""
    if not os.environ.get("EDGEKIT_TASK_BUNDLES"):
        return None
    target = Path(os.environ["EDGEKIT_TASK_BUNDLES"]) / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    (target / "files").mkdir()
    for number, file in enumerate(files):
        shutil.copy(file, target / "files" / f"{number:02}-{file.name}")
    return target
