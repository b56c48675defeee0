"""Examine a model file: recognize its format, and read its specs in a child process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.cli.bundle import jobs, readers
from edgekit.cli.bundle import options as state_pairs
from edgekit.cli.bundle.tensor_specs import ModelTensor
from edgekit.core import file_type
from edgekit.core.errors import ModelError
from edgekit.runner.bundle.manifest import StateSpec
from edgekit.runner.bundle.sha256 import hexdigest

MULTI_OUTPUT_TASKS, ALL_OUTPUTS_OPTION = ("detection", "raw"), "--task raw"
"""Tasks for models with several outputs, and the option that accepts any outputs as they are."""


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a model file.

    `files` are the files as they will ship, `origin` describes the original file, and `changes` lists the changes
    between the two. `integers` says whether any of its arithmetic is quantized. `classes` are the names of the classes
    in a classic model (for example a decision tree) in ONNX form, and `is_regressor` says whether such a model returns
    values. `inputs` and `outputs` exclude the `states`, which are fed back from one sample to the next.
    """

    target: str
    files: dict[str, bytes]
    origin: dict[str, str]
    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]
    changes: list[str]
    integers: bool
    classes: tuple[str, ...] = ()
    is_regressor: bool = False
    states: tuple[StateSpec, ...] = ()

    @property
    def input(self) -> ModelTensor:
        """The first input, which for most models is the only one."""
        return self.inputs[0]

    @property
    def output(self) -> ModelTensor:
        """The first output, which for most models is the only one."""
        return self.outputs[0]


def examine_model(
    path: Path,
    working_folder: Path,
    size: tuple[int, ...] | None = None,
    two_classes: bool = False,
    states: state_pairs.Pairs = (),
    task: str = "auto",
) -> ModelFacts:
    """Examine the model at `path` in `working_folder`.

    Parameters
    ----------
    path
        The model file.
    working_folder
        Folder for the child process.
    size
        Height and width of the pictures that the model receives, if the file leaves them open.
    two_classes
        Whether the model is meant to distinguish two classes.
    states
        Pairs of an input and the output that is fed back into it.
    task
        The task, which decides how many outputs the model may have.

    Raises
    ------
    ModelError
        No bundle can be made from the model.
    BackendError
        The model crashes its interpreter.
    """
    target, files = _read_files(path)
    data = files[path.suffix.lower()]
    for suffix, content in files.items():
        (working_folder / f"{jobs.MODEL}{suffix}").write_bytes(content)
    facts = jobs.run_job("inspect", path, working_folder, name=str(path), size=size, two_classes=two_classes)
    state_specs = state_pairs.split_off_states(path, facts, states)
    _check_outputs(path, facts, task)
    if not facts["inputs"]:
        raise ModelError(f"{path}: has no input besides its states, but a model in a bundle must take a sample")
    inputs, outputs = ([_tensor(item) for item in facts[key]] for key in ("inputs", "outputs"))
    origin = {"source": path.name, "sha256": hexdigest(data)}
    if ".bin" in files:
        origin["bin_sha256"] = hexdigest(files[".bin"])
    return ModelFacts(
        target=target,
        files={
            f"model/{name}": (working_folder / name).read_bytes()
            for name in (f"{jobs.MODEL}{suffix}" for suffix in files)
        },
        origin=origin,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        changes=facts["changes"],
        integers=facts["integers"],
        classes=tuple(facts.get("classes", ())),
        is_regressor=facts.get("regressor", False),
        states=state_specs,
    )


def _check_outputs(path: Path, facts: dict[str, Any], task: str) -> None:
    """Check the number of outputs against the task.

    Raises
    ------
    ModelError
        The task does not allow this number of outputs, or some of them look like states.
    """
    outputs, names = facts["outputs"], [output.get("title") or output["name"] for output in facts["outputs"]]
    shapes = [(output["shape"], output["dtype"]) for output in facts["inputs"]]
    look_like_states = len(shapes) > 1 and any((output["shape"], output["dtype"]) in shapes for output in outputs)
    if len(outputs) == 1 or (
        outputs and task in MULTI_OUTPUT_TASKS and not facts.get("instead") and not look_like_states
    ):
        return
    hint = (
        ""
        if task in MULTI_OUTPUT_TASKS
        else f"; use --task detection for boxes with their logits, and {ALL_OUTPUTS_OPTION} for any others"
    )
    raise ModelError(
        f"{path}: has {len(outputs)} outputs ({', '.join(names) or 'none'}); a bundle's model has one output"
        f"{facts.get('instead') or f', besides states: name those with --state INPUT=OUTPUT{hint}'}"
    )


def _tensor(facts: dict[str, Any]) -> ModelTensor:
    return ModelTensor(**{**facts, "shape": tuple(facts["shape"])})


def _read_files(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return the target, and the bytes of the model's files by suffix."""
    if not path.is_file():
        problem = "a folder" if path.is_dir() else "no such file"
        raise ModelError(f"{path}: {problem}; name a .tflite, .onnx or .xml file")
    data, suffix = path.read_bytes(), path.suffix.lower()
    if suffix not in readers.TARGETS:
        raise ModelError(
            f"{path}: {file_type.describe(data)}; a bundle is made of a .tflite, .onnx or OpenVINO .xml file"
        )
    if (suffix == ".tflite" and data[4:8] != b"TFL3") or (suffix == ".xml" and b"<net" not in data[:65536]):
        raise ModelError(f"{path}: not a {suffix} model; it looks like {file_type.describe(data)}")
    files = {suffix: data}
    if suffix == ".xml":
        weights = path.with_suffix(".bin")
        if not weights.is_file():
            raise ModelError(f"{path}: its weights are missing; put {weights.name} beside the file")
        files[".bin"] = weights.read_bytes()
    return readers.TARGETS[suffix], files
