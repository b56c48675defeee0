"""A manifest as canonical JSON: sorted keys, two-space indent, ASCII, no NaN, so that each manifest has one spelling.

Parsing is strict: an unknown, missing or mistyped key raises BundleError, and so does a newer `format`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from edgekit.runner import bounded_json
from edgekit.runner.bundle.manifest import FORMAT, Manifest, RawSpec, StateSpec, TensorSpec
from edgekit.runner.bundle.manifest_rules import check_manifest
from edgekit.runner.errors import BundleError, InputError
from edgekit.runner.rules import SHAPE, check_keys, is_integer, require
from edgekit.runner.rules import check_rules as check_values

OPTIONAL = ("threshold", "boxes", "head", "keypoints", "smoothing", "states", "reference")
"""Keys that are absent unless they apply."""
RAW_OPTIONAL = ("columns", "tensors")
"""Keys of `raw` that are absent unless they apply."""
LISTS: dict[str, Any] = {"inputs": TensorSpec, "outputs": TensorSpec, "states": StateSpec}
"""Keys whose values are lists of objects, and the type of these objects."""


def to_json(manifest: Manifest) -> bytes:
    """Return the canonical bytes. Raises BundleError if a value cannot be represented in JSON."""
    try:
        values = {**vars(manifest), "raw": vars(manifest.raw)}
        values |= {key: [vars(each) for each in getattr(manifest, key)] for key in LISTS if values[key] is not None}
        absent = [key for key in RAW_OPTIONAL if values["raw"][key] is None]
        values["raw"] = {key: value for key, value in values["raw"].items() if key not in absent}
        for key in OPTIONAL:
            if values[key] is None:
                del values[key]
        text = json.dumps(values, indent=2, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BundleError(f"manifest: {error}; use numbers, text, lists and mappings only") from None
    return text.encode("ascii") + b"\n"


def parse(data: bytes) -> Manifest:
    """Parse a manifest. Raises BundleError, which names the offending key."""
    values = _object(data)
    _check_format(values)
    try:
        manifest = _manifest(values)
        check_manifest(manifest)
    except InputError as error:
        raise BundleError(f"manifest.json: {error}") from None
    return manifest


def _manifest(values: dict[str, Any]) -> Manifest:
    field_names = [each.name for each in fields(Manifest)]
    check_keys("manifest", values, [key for key in field_names if key in values or key not in OPTIONAL])
    for key in ("head", "keypoints", "smoothing", "states", "reference"):
        require(values.get(key, {}) is not None, key, None, "leave the key out")
    values["raw"] = _spec(RawSpec, "raw", values["raw"])
    for key in [each for each in LISTS if each in values]:
        entries = values[key]
        require(isinstance(entries, list) and entries, key, entries, "must list at least one tensor")
        values[key] = tuple(_spec(LISTS[key], f"{key}[{position}]", each) for position, each in enumerate(entries))
    return Manifest(**values)


def check_format(data: bytes) -> None:
    """Raise BundleError unless the bytes are a manifest of this format version."""
    _check_format(_object(data))


def _object(data: bytes) -> dict[str, Any]:
    try:
        values = bounded_json.loads(data, _no_duplicates)
    except ValueError as error:
        raise BundleError(f"manifest.json: not a manifest ({error})") from None
    if not isinstance(values, dict):
        raise BundleError(f"manifest.json: holds {type(values).__name__}, but a manifest must be an object")
    return values


def _check_format(values: Mapping[str, Any]) -> None:
    value = values.get("format")
    if is_integer(value) and value > FORMAT:
        raise BundleError(f"format: the bundle has format {value}, but this runner reads {FORMAT}; update the runner")
    if is_integer(value) and 0 < value < FORMAT:
        raise BundleError(
            f"format: the bundle has format {value}, but this runner reads {FORMAT}; make the bundle again"
        )
    if not is_integer(value) or value != FORMAT:
        raise BundleError(f"manifest.json: format: got {str(value)[:200]!r}; use {FORMAT}")


def _spec(spec_type: Any, where: str, values: Any) -> Any:
    require(isinstance(values, dict), where, values, "must be an object")
    optional = set(RAW_OPTIONAL) - set(values)
    check_keys(where, values, [each.name for each in fields(spec_type) if each.name not in optional])
    for key in RAW_OPTIONAL:
        require(values.get(key, ()) is not None, f"{where}.{key}", None, "leave the key out")
    for key, plural in (("input_path", "steps"), ("tensors", "objects")):
        entries = values.get(key, [])
        require(isinstance(entries, list), f"{where}.{key}", entries, f"must be a list of {plural}")
    check_values(where, values, {"shape": SHAPE})
    return spec_type(**values)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key occurs twice")
    return values
