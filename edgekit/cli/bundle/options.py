"""Options of `edgekit bundle`: text of the command line, parsed into values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from edgekit.core.errors import ConfigError, ModelError
from edgekit.core.yaml_file import UniqueKeyLoader
from edgekit.runner.bundle.manifest import StateSpec
from edgekit.runner.bundle.manifest_rules import STATE_DTYPES, is_member
from edgekit.runner.errors import InputError
from edgekit.runner.preprocess import steps


@dataclass(frozen=True)
class Options:
    """What cannot be read out of a model file. None: inferred from the model.

    `golden` names files and folders of real inputs; `size` is a raw picture's (height, width) or (height, width,
    channels); `tolerance` is a share of the outputs' range. `columns` name the features of a vector, or a window's
    channels, in tables. `states` are pairs of an input and the output that it is fed back from. `input_ranges` are
    those of a model's several inputs, by name. `fit` says how pictures are brought to the sample's size. `boxes` names
    the output with the boxes of a detection, `threshold` is the least probability of one.
    """

    model: Path
    golden: tuple[Path, ...]
    labels: tuple[str, ...] = ()
    preprocess: tuple[dict[str, Any], ...] = ()
    samples: int = 16
    name: str | None = None
    version: str = "1.0.0"
    task: str = "auto"
    activation: str = "auto"
    kind: str | None = None
    dtype: str | None = None
    size: tuple[int, ...] | None = None
    layout: str | None = None
    sample_rate_hz: int | None = None
    range: tuple[float, float] | None = None
    architectures: tuple[str, ...] = ()
    tolerance: float | None = None
    columns: tuple[str, ...] = ()
    states: tuple[tuple[str, str], ...] = ()
    input_ranges: tuple[tuple[str, tuple[float, float]], ...] = ()
    fit: str | None = None
    boxes: str | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.name is not None and ("/" in self.name or not is_member(self.name)):
            raise ConfigError(f"--name: got {self.name!r}; use letters, digits, '.', '_' and '-'")
        if not re.fullmatch(r"\d+\.\d+\.\d+", self.version):
            raise ConfigError(f"--version: got {self.version!r}; write it as 1.0.0")
        if self.tolerance is not None and not 0 < self.tolerance <= 1:
            raise ConfigError(f"--tolerance: got {self.tolerance:g}; use a share of the outputs' range, such as 0.005")
        if self.task not in ("auto", "classification") and self.activation == "softmax":
            raise ConfigError(f"--activation softmax: a {self.task} has no softmax; leave it out")
        if self.task == "detection" and self.activation != "auto":
            raise ConfigError(f"--activation {self.activation}: a detection gives logits; leave it out")
        if self.task in ("raw", "embedding") and self.labels:
            raise ConfigError(f"--labels: a {self.task} output has no labels; leave them out, or use --task regression")
        for option in ("boxes", "threshold"):
            if self.task != "detection" and getattr(self, option) is not None:
                raise ConfigError(f"--{option}: a detection has it, the task is {self.task}; give --task detection")
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise ConfigError(f"--threshold: got {self.threshold:g}; use a probability between 0 and 1, such as 0.3")
        for machine in self.architectures:
            if not re.fullmatch(r"\w+", machine):
                raise ConfigError(f"--architecture: got {machine!r}; write it as `uname -m` does: aarch64, x86_64")

    @property
    def bundle_name(self) -> str:
        """The value of `--name`, else a name made from the file's."""
        return self.name or re.sub(r"[^A-Za-z0-9._-]+", "-", self.model.stem).lstrip("._-") or "model"


def labels(text: str | None, option: str = "--labels", each: str = "class") -> tuple[str, ...]:
    """One name a line from a text file, or several with commas between them; empty lines at the end are dropped."""
    if text is None:
        return ()
    path = Path(text)
    if _is_file(path):
        try:
            found = path.read_text(encoding="utf-8-sig").rstrip().splitlines()
        except UnicodeDecodeError:
            raise ConfigError(
                f"{option}: {path} is not UTF-8 text; write one {option.strip('-').removesuffix('s')} a line"
            ) from None
    elif "," not in text and path.suffix in (".txt", ".csv", ".names", ".labels"):
        raise ConfigError(f"{option}: {path}: no such file")
    else:
        found = text.split(",")
    names, what = tuple(name.strip() for name in found), option.strip("-").removesuffix("s")
    if not all(names):
        raise ConfigError(f"{option}: {what} {names.index('') + 1} of {len(names)} is empty; every {each} needs a name")
    if twice := [name for name in names if names.count(name) > 1]:
        places = " and ".join(str(place) for place, name in enumerate(names, 1) if name == twice[0])
        raise ConfigError(f"{option}: {twice[0]!r} is {what} {places}; give each value a name of its own")
    return names


def preprocess(text: str | None) -> tuple[dict[str, Any], ...]:
    """Steps from a YAML file, or as YAML themselves: [{step: scale, factor: 0.0039}]."""
    if text is None:
        return ()
    path = Path(text)
    try:
        found = yaml.load(path.read_text(encoding="utf-8") if _is_file(path) else text, UniqueKeyLoader)
        json.dumps(found, allow_nan=False)
        if isinstance(found, dict) and "preprocess" in found:
            found = found["preprocess"]
        if not isinstance(found, list):
            raise ConfigError(
                f"--preprocess: {text!r} is neither a file nor a list of steps; write [{{step: scale, factor: 0.0039}}]"
            )
        steps.check_keys(found)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ConfigError(f"--preprocess: not valid YAML: {' '.join(str(error).split())}") from None
    except InputError as error:
        raise ConfigError(f"--{error}") from None
    return tuple(found)


def size(text: str | None) -> tuple[int, ...] | None:
    """(height, width) or (height, width, channels)."""
    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) not in (2, 3) or not all(side.isdecimal() and 0 < int(side) <= steps.LARGEST_SIDE for side in sides):
        raise ConfigError(f"--size: got {text!r}; use HEIGHTxWIDTH, such as 480x640, or HEIGHTxWIDTHxCHANNELS")
    return tuple(map(int, sides))


def value_range(text: str | None) -> tuple[float, float] | None:
    """(lowest, highest)."""
    if text is None:
        return None
    found = _pair(text)
    if found is None or found[0] == found[1]:
        raise ConfigError(f"--range: got {text!r}; use LOWEST,HIGHEST, such as 0,1 (or --range=-1,1)")
    return found


def input_ranges(texts: Sequence[str]) -> tuple[tuple[str, tuple[float, float]], ...]:
    """(name, (lowest, highest)) of each `NAME=LOWEST,HIGHEST`."""
    ranges: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, _, limits = text.rpartition("=")
        found = _pair(limits)
        if not name or found is None:
            raise ConfigError(f"--input-range: got {text!r}; use NAME=LOWEST,HIGHEST, such as input_ids=0,30521")
        if name in ranges:
            raise ConfigError(f"--input-range: {name} has two ranges; give it one")
        ranges[name] = found
    return tuple(ranges.items())


def _pair(text: str) -> tuple[float, float] | None:
    """(lowest, highest) of a text with a comma between them; None where it is something else."""
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        return None
    return (low, high) if low <= high and math.isfinite(low) and math.isfinite(high) else None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a text too long to be a name
        return False


NEW = "new_"
"""In front of a state's name, it makes that of its output, as `edgekit.targets.step` writes it."""
Facts = dict[str, Any]
Pairs = Sequence[tuple[str, str]]


def parse_states(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Pairs of an input and an output, out of `--state INPUT=OUTPUT`."""
    found = []
    for text in texts:
        before, _, after = text.partition("=")
        if not before or not after:
            raise ConfigError(f"--state: got {text!r}; write INPUT=OUTPUT, the names of two tensors of the model")
        found.append((before, after))
    return tuple(found)


def take_states(path: Path, facts: Facts, asked: Pairs) -> tuple[StateSpec, ...]:
    """Take the states out of a model's `inputs` and `outputs`: those asked for, else every NAME that has a new_NAME."""
    inputs, outputs = ({each["name"]: each for each in facts[what]} for what in ("inputs", "outputs"))
    pairs = list(asked) or [(name, f"{NEW}{name}") for name in inputs if f"{NEW}{name}" in outputs]
    states = tuple(_state(path, *pair, inputs, outputs) for pair in pairs)
    for what, taken in (("inputs", {each.input for each in states}), ("outputs", {each.output for each in states})):
        facts[what] = [each for each in facts[what] if each["name"] not in taken]
    return states


def _state(path: Path, before: str, after: str, inputs: dict[str, Facts], outputs: dict[str, Facts]) -> StateSpec:
    for name, known, what in ((before, inputs, "input"), (after, outputs, "output")):
        if name not in known:
            raise ConfigError(f"--state {before}={after}: the model has no {what} {name}; it has {', '.join(known)}")
    facts, behind = inputs[before], outputs[after]
    shape, dtype = facts["shape"], facts["dtype"]
    if (shape, dtype) != (behind["shape"], behind["dtype"]):
        raise ModelError(
            f"{path}: the state {before} is {dtype}{shape}, and {after} {behind['dtype']}{behind['shape']}; "
            "what is fed back must be what is taken"
        )
    if not shape or min(shape) < 1:
        raise ModelError(f"{path}: the state {before} has an open shape, {shape}; export the model with a fixed one")
    if dtype not in STATE_DTYPES:
        raise ModelError(
            f"{path}: the state {before} is {dtype}; states are {', '.join(STATE_DTYPES)}: leave them in float"
        )
    return StateSpec(before, tuple(shape), dtype, before, after)
