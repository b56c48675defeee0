"""Examine a model file: detect its format, and read its specs in a child process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.cli.bundle import jobs, readers
from edgekit.cli.bundle import options as state_pairs
from edgekit.cli.bundle.infer import Tensor
from edgekit.core import file_type
from edgekit.core.errors import ModelError
from edgekit.runner.bundle.manifest import StateSpec
from edgekit.runner.bundle.sha256 import hexdigest

SEVERAL, ALL = ("detection", "raw"), "--task raw"
"""Tasks of a model with several outputs, and the one whose answer is all of them."""


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
    outputs: tuple[Tensor, ...]
    changes: list[str]
    integers: bool
    classes: tuple[str, ...] = ()
    is_regressor: bool = False
    states: tuple[StateSpec, ...] = ()

    @property
    def input(self) -> Tensor:
        """The first input; of most models, the only one."""
        return self.inputs[0]

    @property
    def output(self) -> Tensor:
        """The first output; of most models, the only one."""
        return self.outputs[0]


def examine(
    path: Path,
    home: Path,
    size: tuple[int, ...] | None = None,
    two_classes: bool = False,
    states: state_pairs.Pairs = (),
    task: str = "auto",
) -> ModelFacts:
    """The model at `path`, worked on in the folder `home`; ModelError, or BackendError where it crashes.

    `size` is the height and width of the pictures that reach it. `two_classes`: it is meant to tell two classes apart.
    `states` names pairs of an input and an output. `task` says how many outputs it may have besides.
    """
    target, files = _read(path)
    data = files[path.suffix.lower()]
    for suffix, content in files.items():
        (home / f"{jobs.MODEL}{suffix}").write_bytes(content)
    facts = jobs.run("inspect", path, home, name=str(path), size=size, two_classes=two_classes)
    fed_back = state_pairs.take_states(path, facts, states)
    _check_outputs(path, facts, task)
    if not facts["inputs"]:
        raise ModelError(f"{path}: has no input besides its states; a bundle's model takes a sample")
    sources, results = ([_tensor(each) for each in facts[what]] for what in ("inputs", "outputs"))
    origin = {"source": path.name, "sha256": hexdigest(data)}
    if ".bin" in files:
        origin["bin_sha256"] = hexdigest(files[".bin"])
    return ModelFacts(
        target=target,
        files={f"model/{name}": (home / name).read_bytes() for name in (f"{jobs.MODEL}{suffix}" for suffix in files)},
        origin=origin,
        inputs=tuple(sources),
        outputs=tuple(results),
        changes=facts["changes"],
        integers=facts["integers"],
        classes=tuple(facts.get("classes", ())),
        is_regressor=facts.get("regressor", False),
        states=fed_back,
    )


def _check_outputs(path: Path, facts: dict[str, Any], task: str) -> None:
    """ModelError for a number of outputs that no bundle of the task has, and for some that look like states."""
    results, names = facts["outputs"], [each.get("title") or each["name"] for each in facts["outputs"]]
    shapes = [(each["shape"], each["dtype"]) for each in facts["inputs"]]
    like_states = len(shapes) > 1 and any((each["shape"], each["dtype"]) in shapes for each in results)
    if len(results) == 1 or (results and task in SEVERAL and not facts.get("instead") and not like_states):
        return
    other = "" if task in SEVERAL else f"; boxes with their logits take --task detection, any others {ALL}"
    raise ModelError(
        f"{path}: has {len(results)} outputs ({', '.join(names) or 'none'}); a bundle's model has one output"
        f"{facts.get('instead') or f', besides states: name those by --state INPUT=OUTPUT{other}'}"
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
        raise ModelError(f"{path}: not a {suffix} model; it looks like {file_type.describe(data)}")
    files = {suffix: data}
    if suffix == ".xml":
        weights = path.with_suffix(".bin")
        if not weights.is_file():
            raise ModelError(f"{path}: its weights are missing; put {weights.name} beside it")
        files[".bin"] = weights.read_bytes()
    return readers.TARGETS[suffix], files
