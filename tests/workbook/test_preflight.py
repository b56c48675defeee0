"""What a run can know before a kernel starts is reported before one starts."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file
from typer.testing import CliRunner

from edgekit.cli.app import app
from edgekit.core.errors import DataError, EdgekitError, ModelError, to_json
from edgekit.models import dry_run
from edgekit.runner.errors import BackendError, RunnerError
from edgekit.workbook import preflight, preflight_worker
from edgekit.workbook.plan import load_plan
from edgekit.workbook.stage import open_stage
from tests.broken import broken_nets

FEW = "quantize.calibration_samples=20"
BROKEN = str(Path(broken_nets.__file__).parent)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Vectors of 6 and 3 classes, and a network for them."""
    monkeypatch.syspath_prepend(BROKEN)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(120, 6)).astype(np.float32)
    np.savez(tmp_path / "samples.npz", x_train=x, y_train=np.arange(120) % 3)
    values = {
        "name": "mine",
        "data": {"source": "npz", "path": "samples.npz", "calibration_samples": 20},
        "model": {"builder": "broken_nets:valid"},
        "targets": ["onnx"],
        "profile": {"epochs": 1},
        "convert": {"calibration_samples": 20},
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def answer(config: Path, *settings: str) -> dict[str, Any]:
    """As the child has it, in this process: `found`, or the error's fields."""
    try:
        return {"found": preflight_worker.check_plan(load_plan(config, list(settings)), config.parent)}
    except (EdgekitError, RunnerError) as error:
        return to_json(error)


@pytest.mark.parametrize("value", ["auto", "{method: mean, windows: 5}"])
def test_samples_that_come_in_no_stream_are_not_smoothed(value: str, config: Path) -> None:
    done = CliRunner().invoke(app, ["run", str(config), "--set", f"bundle.smoothing={value}", "--dry-run"])
    assert done.exit_code == 2
    assert "bundle.smoothing: a sample of the kind vector cannot be part of a stream, only one of" in done.output
    assert "found" in answer(config)


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        (["profile.batch_size=4"], "profile."),
        (["distill.batch_size=4"], "distill."),
        (["distill.batch_size=4", "distill.teachers=[{builder: 'edgekit.models.mlp:mlp'}]"], "distill."),
        (
            ["distill.teachers=[{builder: 'edgekit.models.mlp:mlp', training: {batch_size: 4}}]"],
            "distill.teachers.0.training.",
        ),
    ],
)
def test_batches_of_an_embedding_that_hold_no_two_of_a_label_are_reported(
    settings: list[str], where: str, config: Path
) -> None:
    arrays = np.load(config.parent / "samples.npz")
    np.savez(config.parent / "samples.npz", x_train=arrays["x_train"], y_train=np.arange(120) % 20)
    student = "distill.student={builder: 'edgekit.models.mlp:mlp'}"
    shared = ["task=embedding", "model.builder=edgekit.models.mlp:mlp", student, FEW]
    message = answer(config, *shared, *settings)
    assert message["exit_code"] == 2 and message["error"].startswith(
        f"{where}batch_size: got 4; an embedding learns from pairs"
    )
    enough = [each.replace("=4", "=64").replace(": 4", ": 64") for each in settings]
    assert "found" in answer(config, *shared, *enough)
    divided = answer(config, *shared, *enough, "training.shares=16")
    assert divided["exit_code"] == 2
    assert divided["error"].startswith(
        "profile: training.shares: got 16, and an embedding compares only the samples within a shard. batch_size"
    )


def test_valid_parts_of_a_plan_are_shown(config: Path) -> None:
    result = answer(config)["found"]
    assert result["Samples"] == "vector 6 float32: 52 train, 20 calibration, 24 validation; 3 classes"
    assert result["Network"] == "83 parameters, to be trained; answers these samples"


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        (["data.path=nowhere.npz"], 4, "nowhere.npz"),
        (["task=regression"], 4, "must return values of shape (1, 1), returned shape (1, 3)"),
        (["task=multi_label"], 4, "it must be 0 or 1"),
        (["model.builder=broken_nets:validd"], 4, 'did you mean "valid"'),
        (["model.builder=broken_netts:sound"], 4, "there is no module 'broken_netts'"),
        (["model.kwargs={width: 3}"], 4, "broken_nets:valid: takes no 'width'"),
        (["model.builder=broken_nets:outputs", "model.kwargs={name: several}"], 4, "returned a tuple of 2"),
        (["model.builder=broken_nets:outputs", "model.kwargs={name: one_too_many}"], 4, "returned shape (1, 4)"),
        (["model.builder=broken_nets:on_the_way", "model.kwargs={name: Unreached}"], 4, "choose with torch.where"),
        (["preprocess=[{step: resize, height: 4, width: 4}]"], 2, "preprocess: "),
        (["distill.student={builder: 'broken_nets:raises'}", FEW], 4, "distill.student: broken_nets:raises()"),
        (
            ["distill.candidates=[{builder: 'broken_nets:valid'}, {builder: 'broken_nets:wants_more'}]", FEW],
            4,
            "distill.candidates.1: broken_nets:wants_more: needs width",
        ),
    ],
)
def test_what_is_wrong_with_data_or_networks(settings: list[str], code: int, message: str, config: Path) -> None:
    result = answer(config, *settings)
    assert message in result["error"] and result["exit_code"] == code


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["profile.optimizer_options={momentun: 0.5}"], "profile.optimizer_options.momentun: torch.optim.SGD has no"),
        (
            ["distill.teachers=[{builder: 'edgekit.models.mlp:mlp', training: {optimizer_options: {lr: 0.1}}}]"],
            "distill.teachers.0.training.optimizer_options.lr: got 0.1, but set learning_rate instead",
        ),
        (["task=embedding", "profile.label_smoothing=0.1"], "profile.label_smoothing: got 0.1, but task is embedding"),
    ],
)
def test_options_that_no_training_takes_are_refused(settings: list[str], message: str, config: Path) -> None:
    student = ["distill.student={builder: 'edgekit.models.mlp:mlp'}", "model.builder=edgekit.models.mlp:mlp", FEW]
    result = answer(config, *student, *settings)
    assert result["exit_code"] == 2 and result["error"].startswith(message)


@pytest.mark.parametrize(
    ("place", "setting"),
    [
        ("distill.student", "distill.student={}"),
        ("distill.candidates.0", "distill.candidates=[{}, {builder: 'edgekit.models.mlp:mlp'}]"),
        ("distill.teachers.0", "distill.teachers=[{}]"),
    ],
)
def test_students_and_teachers_give_vectors_as_long_as_the_baselines(place: str, setting: str, config: Path) -> None:
    network = "{builder: 'edgekit.models.mlp:mlp', kwargs: {dimensions: 4}}"
    settings = ["task=embedding", "model.builder=edgekit.models.mlp:mlp", "model.kwargs={dimensions: 8}", FEW]
    if place == "distill.teachers.0":
        settings.append("distill.student={builder: 'edgekit.models.mlp:mlp', kwargs: {dimensions: 8}}")
    result = answer(config, *settings, setting.replace("{}", network))
    assert result["exit_code"] == 2, result
    assert result["error"].startswith(
        f"{place}: edgekit.models.mlp:mlp gives outputs of shape (4,), but the baseline gives (8,)"
    )


def test_only_errors_of_the_steps_are_blamed_on_the_steps(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BackendError("no interpreter for that")

    monkeypatch.setattr(dry_run, "check_network", refuse)
    result = answer(config)
    assert (result["error"], result["exit_code"]) == ("no interpreter for that", 5)


def test_weights_are_held_against_the_network_by_the_name_that_the_user_gave(config: Path) -> None:
    save_file({"first.weight": torch.ones(8, 6)}, config.parent / "theirs.safetensors")
    output = answer(config, "model.weights=theirs.safetensors")["error"]
    assert output == (
        f"{config.parent / 'theirs.safetensors'}: does not fit the network: missing first.bias, head.bias, head.weight"
    )


def onnx_file(path: Path, network: torch.nn.Module, *inputs: torch.Tensor) -> Path:
    torch.onnx.export(network, inputs, str(path), dynamo=False)
    return path


class Two(torch.nn.Module):
    """Two inputs and two outputs."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + y, x - y


@pytest.mark.parametrize(
    ("network", "inputs", "message"),
    [
        (Two(), (torch.zeros(1, 6), torch.zeros(1, 6)), "has 2 outputs; a model file must have one"),
        (torch.nn.Linear(7, 3), (torch.zeros(1, 7),), "takes [1, 7], but the samples are [6]"),
        (torch.nn.Linear(6, 5), (torch.zeros(1, 6),), "gives [5] for each sample; the data have 3 classes"),
        (torch.nn.Linear(6, 3).double(), (torch.zeros(1, 6, dtype=torch.float64),), "tensor(double); a model file"),
    ],
    ids=["two inputs", "another shape", "other classes", "another type"],
)
@pytest.mark.filterwarnings("ignore")
def test_a_file_that_does_not_fit(network: Any, inputs: Any, message: str, config: Path) -> None:
    path = onnx_file(config.parent / "theirs.onnx", network, *inputs)
    result = answer(config, "model={source: theirs.onnx}")
    assert result["error"].startswith(f"{path}: ") and message in result["error"]
    assert result["exit_code"] == 4


def test_a_lambda_layer(config: Path) -> None:
    """As Keras writes one; the code in it is never looked at."""
    code = {"class_name": "__lambda__", "config": {"code": "4wAA", "defaults": None, "closure": None}}
    layers = [
        {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [None, 6], "name": "x"}},
        {"module": "keras.layers", "class_name": "Lambda", "config": {"name": "y", "function": code, "arguments": {}}},
    ]
    model = {"module": "keras", "class_name": "Sequential", "config": {"name": "z", "layers": layers}}
    with zipfile.ZipFile(config.parent / "theirs.keras", "w") as created:
        created.writestr("config.json", json.dumps(model))
        created.writestr("metadata.json", json.dumps({"keras_version": "3.15.1"}))
        created.writestr("model.weights.h5", b"")
    result = answer(config, "model={source: theirs.keras}")
    assert result["error"].startswith(f"{config.parent / 'theirs.keras'}: has a Lambda layer, which is code")


@pytest.mark.parametrize("values", ["theirs.onnx", "theirs.safetensors"])
@pytest.mark.filterwarnings("ignore")
def test_a_notebook_alone_names_the_file_that_the_user_gave(values: str, config: Path, tmp_path: Path) -> None:
    """And not the copy that the run keeps of it."""
    onnx_file(config.parent / "theirs.onnx", torch.nn.Linear(7, 3), torch.zeros(1, 7))
    save_file({"first.weight": torch.ones(8, 6)}, config.parent / "theirs.safetensors")
    model = (
        f"{{source: {values}}}" if values.endswith("onnx") else f"{{builder: 'broken_nets:valid', weights: {values}}}"
    )
    parameters = {"config": str(config), "out": str(tmp_path / "runs"), "settings": f"model={model}"}
    with pytest.raises(ModelError) as caught:
        open_stage("profile", parameters).run()
    assert str(caught.value).startswith(f"{config.parent / values}: ") and "origin" not in str(caught.value)


def test_a_text_for_a_model_is_refused_by_the_config_alone(config: Path) -> None:
    (config.parent / "theirs.onnx").write_text("404: not found")
    with pytest.raises(ModelError, match="theirs.onnx: looks like text that begins with '404: not found'"):
        load_plan(config, ["model={source: theirs.onnx}"])


@pytest.mark.parametrize("dry", [["--dry-run"], []], ids=["dry run", "run"])
def test_no_kernel_starts_for_what_could_be_known(dry: list[str], config: Path, tmp_path: Path) -> None:
    wrong = ["--set", "model.builder=broken_nets:validd", "--out", str(tmp_path / "runs"), *dry]
    done = CliRunner().invoke(app, ["run", str(config), *wrong])
    assert done.exit_code == 4 and 'did you mean "valid"' in done.output
    assert not list(tmp_path.rglob("*.ipynb"))


def test_a_missing_mlflow_is_reported_by_the_dry_run(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    done = CliRunner().invoke(app, ["run", str(config), "--dry-run", "--mlflow", "sqlite:///none.db"])
    assert done.exit_code == 2 and "--mlflow sqlite:///none.db: no module 'mlflow' here" in done.output


@pytest.mark.parametrize(
    ("body", "raised", "message"),
    [
        ("import os\nos.abort()\n", DataError, "data: crashes Python (SIGABRT)"),
        ("import sys\nsys.exit(3)\n", DataError, "samples_of_mine:make failed with {} (SystemExit: 3)"),
        ("import time\ntime.sleep(60)\n", None, "took over 2 s"),
    ],
    ids=["crash", "exit", "too slow"],
)
def test_a_look_that_dies_or_takes_long_harms_nobody(
    body: str, raised: type[Exception] | None, message: str, config: Path
) -> None:
    (config.parent / "samples_of_mine.py").write_text(f"def make():\n    {body.replace(chr(10), chr(10) + '    ')}")
    plan = load_plan(config, ["data={source: python, function: 'samples_of_mine:make'}"])
    if raised:
        with pytest.raises(raised) as caught:
            preflight.check(plan)
        assert message in str(caught.value)
    else:
        assert message in str(preflight.check(plan, limit_s=2))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyboardInterrupt('ours')", "ended with exit code 1; its last output was: KeyboardInterrupt: ours"),
        (
            "raise type('Odd', (BaseException,), {})('ours')",
            "exit code 1; its last output was: nets_of_mine.Odd: ours",
        ),
        ("import os; os._exit(0)", None),
    ],
    ids=["interrupt", "no Exception", "_exit"],
)
def test_what_cannot_be_checked_in_advance_is_called_unchecked(body: str, message: str | None, config: Path) -> None:
    (config.parent / "nets_of_mine.py").write_text(f"def make():\n    {body}\n")
    dry = CliRunner().invoke(app, ["run", str(config), "--dry-run", "--set", "model.builder=nets_of_mine:make"])
    if message:
        assert "\nNot checked: the preflight process " in dry.stdout and dry.stdout.rstrip().endswith(message)
    else:
        assert dry.exit_code == 4
        assert re.search(r"nets_of_mine:make: ends Python with exit code 0.*os\._exit", dry.output), dry.output
