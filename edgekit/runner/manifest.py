"""A bundle's manifest: what it runs, on what input, how it proves itself and where it came from.

Canonical JSON (sorted keys, two-space indent, no NaN, ASCII), so that one manifest has one spelling. Parsing is strict:
an unknown, missing or mistyped key is a BundleError, and so is a newer `format`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from operator import index
from typing import Any

from edgekit.runner.errors import BundleError, InputError

FORMAT = 1
TARGETS = ("tflite", "openvino", "onnx")
TASKS = ("classification",)
KINDS = {"image": 3, "vector": 1}
LAYOUTS = {"NHWC": 4, "NCHW": 4, "NC": 2}
TENSOR_DTYPES = ("float32", "float16", "int8", "uint8")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MEMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
SHA256 = re.compile(r"[0-9a-f]{64}")


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
    """A sample as the device sees it: an "image" (height, width, channels) or a "vector" (features,)."""

    kind: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(index(side) for side in self.shape))


@dataclass(frozen=True)
class Manifest:
    """Everything a bundle says about itself. `members` is filled in by `bundle.write`.

    `golden` is {"inputs": member, "outputs": member, "atol": float, "top1": bool}: .npy arrays of raw samples
    (n, *raw.shape) and of the scores they gave (n, classes); `top1`: the first label must agree for every one.
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
    task: str = "classification"
    format: int = FORMAT


def to_json(manifest: Manifest) -> bytes:
    """Canonical bytes; BundleError when a value cannot stand in JSON."""
    try:
        text = json.dumps(asdict(manifest), indent=2, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BundleError(f"manifest: {error}; use numbers, text, lists and mappings only") from None
    return text.encode("ascii") + b"\n"


def parse(data: bytes) -> Manifest:
    """Manifest from JSON bytes; BundleError says which key is wrong."""
    try:
        values = json.loads(data.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constants)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"manifest.json: not a manifest ({error})") from None
    if not isinstance(values, dict):
        raise BundleError(f"manifest.json: got a {type(values).__name__}; a manifest is an object")
    _check_format(values.get("format"))
    _check_keys("manifest", values, [each.name for each in fields(Manifest)])
    values["raw"] = _spec(RawSpec, "raw", values["raw"])
    values["input"] = _spec(TensorSpec, "input", values["input"])
    values["output"] = _spec(TensorSpec, "output", values["output"])
    manifest = Manifest(**values)
    check(manifest)
    return manifest


def check(manifest: Manifest) -> None:
    """BundleError for the first thing that does not hold together."""
    for key in ("name", "version", "variant"):
        value = getattr(manifest, key)
        _need(isinstance(value, str) and NAME.fullmatch(value), key, value, "use letters, digits, '.', '_' and '-'")
    _need(manifest.target in TARGETS, "target", manifest.target, f"known: {', '.join(TARGETS)}")
    _need(manifest.task in TASKS, "task", manifest.task, f"known: {', '.join(TASKS)}")
    for key in ("budget", "verdict", "provenance"):
        _need(isinstance(getattr(manifest, key), dict), key, getattr(manifest, key), "must be an object")
    for key in ("labels", "model_files", "requirements"):
        value = getattr(manifest, key)
        _need(isinstance(value, list) and all(isinstance(each, str) for each in value), key, value, "must list text")
    _check_raw(manifest.raw)
    _check_tensor("input", manifest.input)
    _check_tensor("output", manifest.output)
    _check_members(manifest.members)
    _check_files(manifest)
    _check_fit(manifest)


def _check_format(value: Any) -> None:
    if _is_whole(value) and value > FORMAT:
        raise BundleError(f"format: the bundle has format {value}, this runner knows {FORMAT}; update the runner")
    _need(_is_whole(value) and value == FORMAT, "format", value, f"use {FORMAT}")


def _check_keys(where: str, values: Mapping[str, Any], known: list[str]) -> None:
    unknown, missing = sorted(set(values) - set(known)), sorted(set(known) - set(values))
    if unknown or missing:
        raise BundleError(f"manifest.json: {where}: unknown keys {unknown}, missing keys {missing}")


def _spec(kind: Any, where: str, values: Any) -> Any:
    _need(isinstance(values, dict), where, values, "must be an object")
    _check_keys(where, values, [each.name for each in fields(kind)])
    _need(_is_shape(values["shape"]), f"{where}.shape", values["shape"], "must list whole numbers above 0")
    return kind(**values)


def _check_raw(raw: RawSpec) -> None:
    _need(isinstance(raw.kind, str) and raw.kind in KINDS, "raw.kind", raw.kind, f"known: {', '.join(KINDS)}")
    _need(_is_shape(raw.shape) and len(raw.shape) == KINDS[raw.kind], "raw.shape", raw.shape, f"not a {raw.kind}")


def _check_tensor(where: str, spec: TensorSpec) -> None:
    _need(isinstance(spec.name, str), f"{where}.name", spec.name, "must be text")
    _need(spec.dtype in TENSOR_DTYPES, f"{where}.dtype", spec.dtype, f"known: {', '.join(TENSOR_DTYPES)}")
    _need(
        isinstance(spec.layout, str) and spec.layout in LAYOUTS,
        f"{where}.layout",
        spec.layout,
        f"known: {', '.join(LAYOUTS)}",
    )
    fits = _is_shape(spec.shape) and len(spec.shape) == LAYOUTS[spec.layout] and spec.shape[0] == 1
    _need(fits, f"{where}.shape", list(spec.shape), f"must be {spec.layout} with a batch of 1")


def _check_members(members: Any) -> None:
    _need(isinstance(members, dict), "members", members, "must be an object")
    for name, facts in members.items():
        _need(MEMBER.fullmatch(name), "members", name, "must be a plain relative name")
        _need(name != "manifest.json", "members", name, "the manifest cannot list itself")
        _need(isinstance(facts, dict), f"members.{name}", facts, "must be an object")
        _check_keys(f"members.{name}", facts, ["bytes", "sha256"])
        size, sha = facts["bytes"], facts["sha256"]
        _need(_is_whole(size) and size >= 0, f"{name}.bytes", size, "must be a size")
        _need(isinstance(sha, str) and SHA256.fullmatch(sha), f"{name}.sha256", sha, "must be 64 hex digits")


def _check_files(manifest: Manifest) -> None:
    """Model files and golden vectors are named well, and listed once the members are."""
    golden = manifest.golden
    _need(isinstance(golden, dict), "golden", golden, "must be an object")
    _check_keys("golden", golden, ["inputs", "outputs", "atol", "top1"])
    atol = golden["atol"]
    is_number = isinstance(atol, (int, float)) and not isinstance(atol, bool)
    _need(is_number and atol >= 0, "golden.atol", atol, "must be a number from 0")
    _need(isinstance(golden["top1"], bool), "golden.top1", golden["top1"], "must be true or false")
    _need(manifest.model_files, "model_files", manifest.model_files, "name at least one")
    for name in (*manifest.model_files, golden["inputs"], golden["outputs"]):
        _need(isinstance(name, str) and MEMBER.fullmatch(name), "member name", name, "must be a plain relative name")
        _need(not manifest.members or name in manifest.members, "members", name, "it is named but not listed")


def _check_fit(manifest: Manifest) -> None:
    """The steps turn the raw sample into the model's input, and there is one label for every score."""
    from edgekit.runner import preprocess

    _need(isinstance(manifest.preprocess, list), "preprocess", manifest.preprocess, "must be a list of steps")
    try:
        shape = preprocess.check(manifest.preprocess, manifest.raw.shape, manifest.raw.dtype)
    except InputError as error:
        raise BundleError(f"manifest.json: {error}") from None
    wanted = manifest.input.shape[1:]
    if manifest.input.layout == "NCHW":
        wanted = (*wanted[1:], wanted[0])
    _need(shape == wanted, "preprocess", list(shape), f"makes another shape than the model's input {list(wanted)}")
    classes = manifest.output.shape[-1]
    _need(manifest.output.layout == "NC", "output.layout", manifest.output.layout, "a classifier gives NC")
    _need(len(manifest.labels) == classes, "labels", len(manifest.labels), f"the model gives {classes} scores")


def _is_shape(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(_is_whole(each) and each > 0 for each in value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _need(holds: Any, key: str, value: Any, fix: str) -> None:
    if not holds:
        raise BundleError(f"manifest.json: {key}: got {str(value)[:200]!r}; {fix}")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key stands twice")
    return values


def _no_constants(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
