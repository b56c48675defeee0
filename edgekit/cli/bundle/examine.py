"""Examine a model file: detect its format, and read its specs in a child process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.cli.bundle import jobs, readers, worker
from edgekit.cli.bundle import states as state_pairs
from edgekit.cli.bundle.infer import Tensor
from edgekit.core import file_type
from edgekit.core.errors import ModelError
from edgekit.runner.bundle.manifest import StateSpec
from edgekit.runner.bundle.sha256 import hexdigest


@dataclass(frozen=True)
class ModelFacts:
    """A model, examined: `files` as they will ship, `origin` what they were, `changes` what was done to them.

    `integers`: some of its arithmetic is on quantized numbers. `classes` are those that a classic model as ONNX names;
    `is_regressor` says that such a one gives values. `inputs` are those besides the `states`, which are fed back from
    sample to sample.
    """

    target: str
    files: dict[str, bytes]
    origin: dict[str, str]
    inputs: tuple[Tensor, ...]
    output: Tensor
    changes: list[str]
    integers: bool
    classes: tuple[str, ...] = ()
    is_regressor: bool = False
    states: tuple[StateSpec, ...] = ()

    @property
    def input(self) -> Tensor:
        """The first input; of most models, the only one."""
        return self.inputs[0]


def examine(
    path: Path,
    home: Path,
    size: tuple[int, ...] | None = None,
    two_classes: bool = False,
    states: state_pairs.Pairs = (),
) -> ModelFacts:
    """The model at `path`, worked on in the folder `home`; ModelError, or BackendError where it crashes.

    `size` is the height and width of the pictures that reach it. `two_classes`: it is meant to tell two classes apart.
    `states` names pairs of an input and an output.
    """
    target, files = _read(path)
    data = files[path.suffix.lower()]
    for suffix, content in files.items():
        (home / f"{jobs.MODEL}{suffix}").write_bytes(content)
    try:
        facts = worker.run_job("inspect", path, home, name=str(path), size=size, two_classes=two_classes)
    except worker.NoAnswer as error:
        raise ModelError(f"{error}; {file_type.explain_mismatch(target, data)}") from None
    fed_back = state_pairs.take(path, facts, states)
    if len(facts["outputs"]) != 1:
        names = ", ".join(each["name"] for each in facts["outputs"]) or "none"
        raise ModelError(
            f"{path}: has {len(facts['outputs'])} outputs ({names}); a bundle's model has one output"
            f"{facts.get('instead') or ', besides states: name those by --state INPUT=OUTPUT'}"
        )
    if not facts["inputs"]:
        raise ModelError(f"{path}: has no input besides its states; a bundle's model takes a sample")
    sources, [result] = ([_tensor(each) for each in facts[what]] for what in ("inputs", "outputs"))
    origin = {"source": path.name, "sha256": hexdigest(data)}
    if ".bin" in files:
        origin["bin_sha256"] = hexdigest(files[".bin"])
    return ModelFacts(
        target=target,
        files={f"model/{name}": (home / name).read_bytes() for name in (f"{jobs.MODEL}{suffix}" for suffix in files)},
        origin=origin,
        inputs=tuple(sources),
        output=result,
        changes=facts["changes"],
        integers=facts["integers"],
        classes=tuple(facts.get("classes", ())),
        is_regressor=facts.get("regressor", False),
        states=fed_back,
    )


def _tensor(facts: dict[str, Any]) -> Tensor:
    return Tensor(**{**facts, "shape": tuple(facts["shape"])})


def _read(path: Path) -> tuple[str, dict[str, bytes]]:
    """Target, and the files' bytes by suffix."""
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        raise ModelError(f"{path}: {what}; name a .tflite, .onnx or .xml file")
    data, suffix = path.read_bytes(), path.suffix.lower()
    if suffix not in readers.TARGETS:
        raise ModelError(
            f"{path}: {file_type.describe(data)}; a bundle is made of a .tflite, .onnx or OpenVINO .xml file"
        )
    if (suffix == ".tflite" and data[4:8] != b"TFL3") or (suffix == ".xml" and b"<net" not in data[:65536]):
        raise ModelError(f"{path}: no {suffix} model; it looks like {file_type.describe(data)}")
    files = {suffix: data}
    if suffix == ".xml":
        weights = path.with_suffix(".bin")
        if not weights.is_file():
            raise ModelError(f"{path}: its weights are missing; put {weights.name} beside it")
        files[".bin"] = weights.read_bytes()
    return readers.TARGETS[suffix], files
