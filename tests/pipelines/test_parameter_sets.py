"""Every notebook with three parameter sets, by plain papermill: the given values are those that the artifact records.

The first set is that of the tiny run itself; the others start from a copy of it, each with one notebook run again.
Wrong parameters and a wrong order stop every road at the notebook's opening call.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import papermill
import pytest
from papermill.exceptions import PapermillExecutionError

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.config import STAGES
from edgekit.core.run_folder import notebook_name, stage_folder
from edgekit.workbook.plan import DEFAULT_CONFIG, load_plan
from tests.conftest import ROOT, TINY, FinishedRun

pytestmark = pytest.mark.long

PLAN = load_plan(TINY)
Parameters = dict[str, Any]


@dataclass(frozen=True)
class ParameterSet:
    """Values that differ from the tiny config's, and what must show that they took effect."""

    stage: str
    values: Parameters
    effect: Callable[[Artifact, Artifact], object]
    settings: str = ""
    config: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.stage}-{'-'.join([*self.values, *(part.partition('=')[0] for part in self.settings.split())])}"


def evidence(artifact: Artifact, name: str = "latency.json") -> dict[str, Any]:
    read: dict[str, Any] = json.loads((artifact.path / artifacts.EVIDENCE / name).read_text())
    return read


def variants(artifact: Artifact) -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = json.loads(artifact.file("variants.json").read_text())
    return read


def steps(artifact: Artifact, way: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = artifact.metrics[f"{way}_steps"]
    return found


SETS = [
    ParameterSet(
        "profile",
        {"epochs": 6, "augment": "none", "latency_calls": 25},
        lambda new, tiny: len(new.metrics["history"]) == 6 and new.digest != tiny.digest,
    ),
    ParameterSet(
        "profile",
        {"epochs": 5},
        lambda new, tiny: new.metrics["parameters"] < tiny.metrics["parameters"],
        settings="seed=1 threads=1 model.kwargs.width=4",
        config={"seed": 1, "threads": 1},
    ),
    ParameterSet(
        "distill",
        {"temperature": 1.0, "alpha": 0.5, "epochs": 3},
        lambda new, tiny: len(new.metrics["history"]["soft_targets"]) == 3 and new.digest != tiny.digest,
    ),
    ParameterSet(
        "distill",
        {"epochs": 2, "learning_rate": 0.08},
        lambda new, tiny: new.metrics["student_cost"]["macs"] < tiny.metrics["student_cost"]["macs"],
        settings="distill.student.kwargs.width=8",
        config={"student": {"builder": "edgekit.models.ds_cnn:ds_cnn", "kwargs": {"width": 8, "blocks": 2}}},
    ),
    ParameterSet(
        "prune",
        {"ratio": 0.6, "importance": "l1", "steps": 1, "epochs": 1},
        lambda new, tiny: (
            len(steps(new, "structured")) == 2
            and steps(new, "structured")[-1]["macs"] < steps(tiny, "structured")[-1]["macs"]
        ),
    ),
    ParameterSet(
        "prune",
        {"sparsity": 0.8, "sparsity_steps": 1, "channel_multiple": 1, "epochs": 1},
        lambda new, tiny: (
            abs(steps(new, "unstructured")[-1]["sparsity"] - 0.8) < 0.01
            and new.metrics["unstructured"]["kept_step"] == 1
        ),
        settings="budget.accuracy_drop_pp=100",
    ),
    ParameterSet(
        "quantize",
        {"calibration_samples": 20, "sensitivity_samples": 10},
        lambda new, tiny: new.metrics["calibration_samples"] == 20 and new.digest != tiny.digest,
    ),
    ParameterSet(
        "quantize",
        {"epochs": 2, "learning_rate": 0.005},
        lambda new, tiny: (new.metrics["method"], new.metrics["inside_budget"]) == ("ptq", True),
        settings="budget.accuracy_drop_pp=100",
    ),
    ParameterSet(
        "convert",
        {"check_samples": 10, "int8_min_top1_agreement": 0.5},
        lambda new, tiny: (
            {(row["model"], row["target"]) for row in variants(new)} == {("pruned", "onnx")}
            and new.metrics["check_samples"] == 10
        ),
        settings="targets=[onnx] convert.models=[pruned]",
        config={"targets": ["onnx"], "models": ["pruned"]},
    ),
    ParameterSet(
        "convert",
        {"fp32_max_abs": 0.1, "calibration_samples": 10},
        lambda new, tiny: (
            {(row["precision"], row["target"]) for row in variants(new)} == {("fp32", "openvino"), ("fp16", "openvino")}
        ),
        settings="targets=[openvino] convert.precisions=[fp32,fp16] convert.models=[pruned]",
        config={"precisions": ["fp32", "fp16"]},
    ),
    ParameterSet(
        "benchmark",
        {"rounds": 11, "most_rounds": 11, "calls_per_round": 6, "inference_threads": 2},
        lambda new, tiny: evidence(new)["conditions"]["threads"] == 2 and timed_calls(new) == {11 * 6},
    ),
    ParameterSet(
        "benchmark",
        {"warmup_per_round": 1},
        lambda new, tiny: (
            set(new.metrics["winners"]) == {"tflite", "onnx"}
            and all(row["bytes"] <= 60_000 for row in new.metrics["rows"] if row.get("inside_budget"))
        ),
        settings="targets=[tflite,onnx] budget.size_bytes=60000 budget.accuracy_drop_pp=100",
        config={"targets": ["tflite", "onnx"]},
    ),
    ParameterSet(
        "bundle",
        {"golden_samples": 2},
        lambda new, tiny: {proof["vectors"] for proof in new.metrics["selftest"].values()} == {2},
    ),
    ParameterSet(
        "bundle",
        {"golden_tolerance_float": 0.01, "golden_tolerance_int8": 0.1},
        lambda new, tiny: all("-2.0.1." in entry["file"] for entry in new.metrics["bundles"].values()),
        settings="version=2.0.1",
        config={"version": "2.0.1"},
    ),
]


def timed_calls(artifact: Artifact) -> set[int]:
    with np.load(artifact.path / artifacts.EVIDENCE / "samples_ms.npz") as samples:
        return {samples[name].size for name in samples}


def execute(notebook: Path, out: Path, parameters: Parameters) -> Any:
    """Plain papermill, into `out`; the executed notebook."""
    given = {"config": str(TINY), "out": str(out), **parameters}
    return papermill.execute_notebook(
        notebook, out / f"executed-{notebook.name}", given, cwd=out, kernel_name="python3", progress_bar=False
    )


def printed(notebook: Any) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.get("text", "") for output in outputs)


@pytest.fixture
def copy(tiny_run: FinishedRun, tmp_path: Path) -> Path:
    """The folder of a finished tiny run that a test may change; its parent is `out`."""
    return shutil.copytree(tiny_run.folder, tmp_path / PLAN.run.name)


def counting(stage: str) -> dict[str, bool | int | float | str]:
    """The stage's scalar options that count here: those of candidates do only where there are any."""
    sealed = PLAN.stages[stage].model_dump()
    return {name: value for name, value in PLAN.scalars(stage).items() if name in sealed}


@pytest.mark.parametrize("stage", STAGES)
def test_the_tiny_set_is_what_the_tiny_run_sealed(stage: str, tiny_run: FinishedRun) -> None:
    sealed = artifacts.load(stage_folder(tiny_run.folder, stage)).config
    assert {name: sealed[name] for name in counting(stage)} == counting(stage)


def test_every_notebook_has_three_sets_that_differ() -> None:
    """A value that is the workbook's own default would follow the config, and so test nothing."""
    untouched = load_plan(DEFAULT_CONFIG)
    for stage in STAGES:
        mine = [(each.values, each.settings) for each in SETS if each.stage == stage]
        assert len(mine) >= 2
        assert all(mine.count(each) == 1 for each in mine)
        for values, _ in mine:
            assert not set(values.items()) & {*PLAN.scalars(stage).items(), *untouched.scalars(stage).items()}


@pytest.mark.slow
@pytest.mark.parametrize("parameter_set", SETS, ids=str)
def test_a_parameter_set_takes_effect_in_the_sealed_artifact(parameter_set: ParameterSet, copy: Path) -> None:
    before = artifacts.load(stage_folder(copy, parameter_set.stage))
    parameters = {**PLAN.scalars(parameter_set.stage), **parameter_set.values, "settings": parameter_set.settings}
    done = execute(ROOT / "notebooks" / notebook_name(parameter_set.stage), copy.parent, parameters)

    sealed = artifacts.load(stage_folder(copy, parameter_set.stage))
    expected = {**counting(parameter_set.stage), **parameter_set.values, **parameter_set.config}
    assert {name: sealed.config[name] for name in expected} == expected
    assert parameter_set.effect(sealed, before), sealed.metrics
    assert f"{parameter_set.stage}: done in" in printed(done)
    for name, value in parameter_set.values.items():
        assert f"{parameter_set.stage}.{name} is {value} in this cell" in printed(done)


WRONG = {
    "a misspelt name": ("ration = 0.4", 'ration: stage prune has no such parameter, did you mean "ratio"?'),
    "a wrong type": ("steps = 2.0", "prune.steps: got 2.0"),
    "a number as text": ('ratio = "0.4"', "prune.ratio: got '0.4'"),
    "a list": ("ratio = [0.3]", "prune.ratio: got [0.3]"),
    "nothing": ("epochs = None", "prune.epochs: got None"),
    "a truth for a number": ("epochs = True", "prune.epochs: got True"),
    "out of its range": ("sparsity = 1.5", "prune.sparsity: got 1.5"),
    "an unknown choice": ('importance = "l3"', "prune.importance: got 'l3'"),
    "a secret": ('api_token = "x"', "api_token: looks like a secret"),
    "a secret in the settings": ('settings = "model.kwargs.password=x"', "model.kwargs.password: looks like a secret"),
    "a common one": ("out = 3", "out: got 3; give a string"),
}


def test_wrong_parameters_stop_at_the_opening_call(tmp_path: Path) -> None:
    """One kernel for all: each case is a parameters cell, as a person would edit it, and the opening call."""
    sources = []
    for line, _ in WRONG.values():
        sources.append(f'config = {str(TINY)!r}\nout = {str(tmp_path)!r}\nsettings = ""\n{line}')
        sources.append(attempt('open_stage("prune", globals())') + f"\ndel {line.partition(' =')[0]}")
    cells = execute(write(tmp_path / "wrong.ipynb", sources), tmp_path, {}).cells
    answers = [printed(nbformat.v4.new_notebook(cells=[cell])) for cell in cells if cell.source.startswith("try:")]
    for answer, (case, (_, message)) in zip(answers, WRONG.items(), strict=True):
        assert "ConfigError " in answer, (case, answer)
        assert message in answer, (case, answer)
    assert not (tmp_path / PLAN.run.name).exists()


def attempt(call: str) -> str:
    """The call, and what it raised or that it did not."""
    return (
        f"try:\n    {call}\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
        "else:\n    print('opened')"
    )


def write(path: Path, sources: list[str]) -> Path:
    """A notebook of these cells, behind a parameters cell."""
    first = nbformat.v4.new_code_cell('config: str = ""\nout: str = ""', metadata={"tags": ["parameters"]})
    importing = nbformat.v4.new_code_cell("from edgekit.workbook.stage import open_stage")
    cells = [first, importing, *map(nbformat.v4.new_code_cell, sources)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


def test_plain_papermill_stops_before_anything_runs_on_a_misspelt_parameter(copy: Path) -> None:
    before = artifacts.load(copy / "prune")
    with pytest.raises(PapermillExecutionError, match="ration: stage prune has no such parameter"):
        execute(ROOT / "notebooks" / notebook_name("prune"), copy.parent, {"ration": 0.4})
    executed = nbformat.read(copy.parent / f"executed-{notebook_name('prune')}", as_version=4)
    ran = [cell.source for cell in executed.cells if cell.cell_type == "code" and cell.execution_count]
    assert "open_stage(" in ran[-1]
    assert artifacts.load(copy / "prune") == before


def test_a_stage_whose_chain_was_broken_or_never_begun_does_not_open(copy: Path) -> None:
    """Prune was made anew and quantize was not, so convert has nothing that belongs together; one kernel for all."""
    shutil.rmtree(copy / "benchmark")
    sources = [
        'given = {"config": config, "out": out}\n'
        'open_stage("prune", {**given, "epochs": 1, "steps": 1, "sparsity_steps": 1, "ratio": 0.6}).run()',
        attempt('open_stage("convert", given)'),
        attempt('open_stage("bundle", given)'),
    ]
    output = printed(execute(write(copy.parent / "chain.ipynb", sources), copy.parent, {}))
    assert "StageError quantize was made from a different prune than the one in" in output
    assert "run quantize and the stages after it again" in output
    assert "no finished stage 'benchmark' here; run 06_benchmark.ipynb first" in output
