"""The options of `edgekit bundle`, parsed from the command line."""

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
class BundleOptions:
    """Facts that a model file does not contain. None means that the fact is inferred from the model.

    `golden` names files and folders of real inputs. `size` is the (height, width) or (height, width, channels) of a raw
    picture. `tolerance` is a share of the outputs' range. `columns` name the features of a vector, or the channels of a
    window, in tables. `states` are pairs of an input and the output that is fed back into it. `input_ranges` are the
    ranges of several inputs, by name. `fit` says how pictures are brought to the size of a sample. `boxes` names the
    output with the boxes of a detection, and `threshold` is the lowest probability of a box.
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
                raise ConfigError(
                    f"--{option}: applies only to detection, and the task is {self.task}; use --task detection"
                )
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise ConfigError(f"--threshold: got {self.threshold:g}; use a probability between 0 and 1, such as 0.3")
        for machine in self.architectures:
            if not re.fullmatch(r"\w+", machine):
                raise ConfigError(f"--architecture: got {machine!r}; write it as `uname -m` does: aarch64, x86_64")

    @property
    def bundle_name(self) -> str:
        """The value of `--name`, or a name derived from the file's."""
        return self.name or re.sub(r"[^A-Za-z0-9._-]+", "-", self.model.stem).lstrip("._-") or "model"


def parse_labels(text: str | None, option: str = "--labels", noun: str = "class") -> tuple[str, ...]:
    """Parse names from a text file with one on each line, or from text with commas.

    Empty lines at the end are dropped.
    """
    if text is None:
        return ()
    path = Path(text)
    if _is_file(path):
        try:
            parts = path.read_text(encoding="utf-8-sig").rstrip().splitlines()
        except UnicodeDecodeError:
            raise ConfigError(
                f"{option}: {path} is not UTF-8 text; write one {option.strip('-').removesuffix('s')} a line"
            ) from None
    elif "," not in text and path.suffix in (".txt", ".csv", ".names", ".labels"):
        raise ConfigError(f"{option}: {path}: no such file")
    else:
        parts = text.split(",")
    names, item = tuple(name.strip() for name in parts), option.strip("-").removesuffix("s")
    if not all(names):
        raise ConfigError(f"{option}: {item} {names.index('') + 1} of {len(names)} is empty; every {noun} needs a name")
    if duplicates := [name for name in names if names.count(name) > 1]:
        positions = " and ".join(str(position) for position, name in enumerate(names, 1) if name == duplicates[0])
        raise ConfigError(f"{option}: {duplicates[0]!r} is {item} {positions}; give each value a name of its own")
    return names


def parse_preprocess(text: str | None) -> tuple[dict[str, Any], ...]:
    """Parse steps from a YAML file or from YAML text such as [{step: scale, factor: 0.0039}]."""
    if text is None:
        return ()
    path = Path(text)
    try:
        parsed = yaml.load(path.read_text(encoding="utf-8") if _is_file(path) else text, UniqueKeyLoader)
        json.dumps(parsed, allow_nan=False)
        if isinstance(parsed, dict) and "preprocess" in parsed:
            parsed = parsed["preprocess"]
        if not isinstance(parsed, list):
            raise ConfigError(
                f"--preprocess: {text!r} is neither a file nor a list of steps; write [{{step: scale, factor: 0.0039}}]"
            )
        steps.check_keys(parsed)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ConfigError(f"--preprocess: not valid YAML: {' '.join(str(error).split())}") from None
    except InputError as error:
        raise ConfigError(f"--{error}") from None
    return tuple(parsed)


def parse_size(text: str | None) -> tuple[int, ...] | None:
    """Parse (height, width) or (height, width, channels)."""
    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) not in (2, 3) or not all(side.isdecimal() and 0 < int(side) <= steps.LARGEST_SIDE for side in sides):
        raise ConfigError(f"--size: got {text!r}; use HEIGHTxWIDTH, such as 480x640, or HEIGHTxWIDTHxCHANNELS")
    return tuple(map(int, sides))


def parse_range(text: str | None) -> tuple[float, float] | None:
    """Parse (lowest, highest)."""
    if text is None:
        return None
    pair = _parse_pair(text)
    if pair is None or pair[0] == pair[1]:
        raise ConfigError(f"--range: got {text!r}; use LOWEST,HIGHEST, such as 0,1 (or --range=-1,1)")
    return pair


def parse_input_ranges(texts: Sequence[str]) -> tuple[tuple[str, tuple[float, float]], ...]:
    """Parse each `NAME=LOWEST,HIGHEST` into (name, (lowest, highest))."""
    ranges: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, _, limits = text.rpartition("=")
        pair = _parse_pair(limits)
        if not name or pair is None:
            raise ConfigError(f"--input-range: got {text!r}; use NAME=LOWEST,HIGHEST, such as input_ids=0,30521")
        if name in ranges:
            raise ConfigError(f"--input-range: {name} has two ranges; give it one")
        ranges[name] = pair
    return tuple(ranges.items())


def _parse_pair(text: str) -> tuple[float, float] | None:
    """Return (lowest, highest) from two numbers separated by a comma, or None for other text."""
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        return None
    return (low, high) if low <= high and math.isfinite(low) and math.isfinite(high) else None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # the text is too long for a file name
        return False


STATE_OUTPUT_PREFIX = "new_"
"""A state's output has the name of its input with this prefix, as `edgekit.targets.step` writes it."""
Facts = dict[str, Any]
Pairs = Sequence[tuple[str, str]]


def parse_states(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parse pairs of an input and an output from `--state INPUT=OUTPUT`."""
    pairs = []
    for text in texts:
        input_name, _, output_name = text.partition("=")
        if not input_name or not output_name:
            raise ConfigError(f"--state: got {text!r}; write INPUT=OUTPUT, the names of two tensors of the model")
        pairs.append((input_name, output_name))
    return tuple(pairs)


def split_off_states(path: Path, facts: Facts, requested: Pairs) -> tuple[StateSpec, ...]:
    """Remove the states from a model's inputs and outputs and return their specs.

    Without `requested` pairs, every NAME with an output new_NAME is a state.
    """
    inputs, outputs = ({tensor["name"]: tensor for tensor in facts[role]} for role in ("inputs", "outputs"))
    pairs = list(requested) or [
        (name, f"{STATE_OUTPUT_PREFIX}{name}") for name in inputs if f"{STATE_OUTPUT_PREFIX}{name}" in outputs
    ]
    states = tuple(_state_spec(path, *pair, inputs, outputs) for pair in pairs)
    for role, names in (
        ("inputs", {tensor.input for tensor in states}),
        ("outputs", {tensor.output for tensor in states}),
    ):
        facts[role] = [tensor for tensor in facts[role] if tensor["name"] not in names]
    return states


def _state_spec(
    path: Path, input_name: str, output_name: str, inputs: dict[str, Facts], outputs: dict[str, Facts]
) -> StateSpec:
    for name, tensors, role in ((input_name, inputs, "input"), (output_name, outputs, "output")):
        if name not in tensors:
            raise ConfigError(
                f"--state {input_name}={output_name}: the model has no {role} {name}; it has {', '.join(tensors)}"
            )
    input_facts, output_facts = inputs[input_name], outputs[output_name]
    shape, dtype = input_facts["shape"], input_facts["dtype"]
    if (shape, dtype) != (output_facts["shape"], output_facts["dtype"]):
        raise ModelError(
            f"{path}: the state {input_name} is {dtype}{shape}, and {output_name} "
            f"{output_facts['dtype']}{output_facts['shape']}; an output that is fed back must match its input"
        )
    if not shape or min(shape) < 1:
        raise ModelError(
            f"{path}: the state {input_name} has an open shape, {shape}; export the model with a fixed one"
        )
    if dtype not in STATE_DTYPES:
        raise ModelError(
            f"{path}: the state {input_name} is {dtype}; states must be {', '.join(STATE_DTYPES)}; keep them in float"
        )
    return StateSpec(input_name, tuple(shape), dtype, input_name, output_name)
