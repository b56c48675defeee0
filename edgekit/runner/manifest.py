"""A bundle's manifest: what it runs, on what input, how it proves itself and where it came from.

Canonical JSON (sorted keys, two-space indent, no NaN, ASCII), so that one manifest has one spelling. Parsing is strict:
an unknown, missing or mistyped key is a BundleError, and so is a newer `format`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import index
from typing import Any

from edgekit.runner import input_path
from edgekit.runner.errors import BundleError
from edgekit.runner.rules import check, check_keys, is_shape, is_whole, need

FORMAT = 3


@dataclass(frozen=True)
class TensorSpec:
    """One of the model's own tensors: `shape` with its batch of 1, `dtype` as the model stores it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(index(side) for side in self.shape))


@dataclass(frozen=True)
class RawSpec:
    """A sample as the device sees it: "image" (height, width, channels), "vector" (features,), "audio" (samples,) or
    "window" (time, channels).

    `dtype` is uint8, int8 or float32. Integers are numbers to the steps; where the model takes the same integers and no
    step but those of geometry stands before it, they are its own quantized values and reach it unchanged (`encode`).
    `range` is [lowest, highest], which float samples must lie in; audio is mono in [-1, 1] at `sample_rate_hz`; the
    channels of a window may have names, `columns`. Without any, the key is not written. `input_path` lists the steps
    from a file to the sample (`input_path.py`); None stands for those of samples that did not come out of files.
    """

    kind: str
    shape: tuple[int, ...]
    dtype: str
    range: tuple[float, float] | None = None
    sample_rate_hz: int | None = None
    columns: tuple[str, ...] | None = None
    input_path: tuple[dict[str, Any], ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(index(side) for side in self.shape))
        if self.input_path is None:
            steps = input_path.default(self.kind, self.shape, self.dtype, self.columns)
            object.__setattr__(self, "input_path", tuple(steps))
        for name in ("range", "columns", "input_path"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def steps(self) -> tuple[dict[str, Any], ...]:
        """The input path."""
        return self.input_path or ()


@dataclass(frozen=True)
class Manifest:
    """Everything a bundle says about itself. `members` is filled in by `bundle.write`.

    `golden` is {"inputs": member, "outputs": member, "atol": float, "top1": bool}: .npy arrays of raw samples
    (n, *raw.shape) and of what the model gave for them (n, *output.shape[1:]); `top1`: the first label must agree.
    `labels` name the classes of a classification, several labels at once, or the values of a regression. `activation`
    is what the runner applies to the model's outputs: "softmax" or "sigmoid" to logits, "none" where the model ends in
    it. `threshold` belongs to the task anomaly: the mean squared error of a reconstruction above which a sample is one;
    other manifests do not have the key. `architectures` are
    machines as `uname -m` calls them; none means all.
    """

    name: str
    version: str
    target: str
    variant: str
    raw: RawSpec
    input: TensorSpec
    output: TensorSpec
    preprocess: list[dict[str, Any]]
    labels: list[str]
    model_files: list[str]
    golden: dict[str, Any]
    budget: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    requirements: list[str] = field(default_factory=list)
    members: dict[str, dict[str, Any]] = field(default_factory=dict)
    architectures: list[str] = field(default_factory=list)
    task: str = "classification"
    activation: str = "softmax"
    threshold: float | None = None
    format: int = FORMAT


def to_json(manifest: Manifest) -> bytes:
    """Canonical bytes; BundleError when a value cannot stand in JSON."""
    try:
        values = {**vars(manifest), **{key: vars(getattr(manifest, key)) for key in ("raw", "input", "output")}}
        if manifest.raw.columns is None:
            values["raw"] = {key: value for key, value in values["raw"].items() if key != "columns"}
        if manifest.threshold is None:
            del values["threshold"]
        text = json.dumps(values, indent=2, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BundleError(f"manifest: {error}; use numbers, text, lists and mappings only") from None
    return text.encode("ascii") + b"\n"


def parse(data: bytes) -> Manifest:
    """Manifest from JSON bytes; BundleError says which key is wrong."""
    values = _object(data)
    _check_format(values)
    known = [each.name for each in fields(Manifest)]
    check_keys("manifest", values, known if "threshold" in values else [key for key in known if key != "threshold"])
    values["raw"] = _spec(RawSpec, "raw", values["raw"])
    values["input"] = _spec(TensorSpec, "input", values["input"])
    values["output"] = _spec(TensorSpec, "output", values["output"])
    manifest = Manifest(**values)
    check(manifest)
    return manifest


def check_format(data: bytes) -> None:
    """BundleError when the bytes are a manifest of another format, or none."""
    _check_format(_object(data))


def _object(data: bytes) -> dict[str, Any]:
    try:
        values = json.loads(data.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constants)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"manifest.json: not a manifest ({error})") from None
    if not isinstance(values, dict):
        raise BundleError(f"manifest.json: holds {type(values).__name__}; a manifest is an object")
    return values


def _check_format(values: Mapping[str, Any]) -> None:
    value = values.get("format")
    if is_whole(value) and value > FORMAT:
        raise BundleError(f"format: the bundle has format {value}, this runner knows {FORMAT}; update the runner")
    if is_whole(value) and 0 < value < FORMAT:
        raise BundleError(f"format: the bundle has format {value}, this runner knows {FORMAT}; make the bundle again")
    need(is_whole(value) and value == FORMAT, "format", value, f"use {FORMAT}")


def _spec(kind: Any, where: str, values: Any) -> Any:
    need(isinstance(values, dict), where, values, "must be an object")
    optional = {"columns"} - set(values)
    check_keys(where, values, [each.name for each in fields(kind) if each.name not in optional])
    need(values.get("columns", ()) is not None, f"{where}.columns", None, "leave the key out")
    path = values.get("input_path", [])
    need(isinstance(path, list), f"{where}.input_path", path, "must be a list of steps")
    need(is_shape(values["shape"]), f"{where}.shape", values["shape"], "must list whole numbers above 0")
    return kind(**values)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key stands twice")
    return values


def _no_constants(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
