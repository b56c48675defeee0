from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.runner.bundle import manifest, manifest_json
from edgekit.runner.errors import BundleError
from tests.runner.conftest import NCHW, SCORES, ModelFiles, manifest_for

MODEL = ModelFiles("onnx", {"model.onnx": b"model"}, NCHW, SCORES, 1e-4)
FACTS = {"bytes": 5, "sha256": "0" * 64}
MEMBERS = {name: FACTS for name in ("model.onnx", "golden/inputs.npy", "golden/outputs.npy")}


RAW = {"kind": "image", "shape": [8, 8, 1], "dtype": "uint8", "range": None, "sample_rate_hz": None, "input_path": []}
WINDOW = {**RAW, "kind": "window", "shape": [8, 3], "dtype": "float32"}


def values(**changes: Any) -> dict[str, Any]:
    return {**json.loads(manifest_json.to_json(manifest_for(MODEL, members=MEMBERS))), **changes}


def parse(fields: dict[str, Any]) -> manifest.Manifest:
    return manifest_json.parse(json.dumps(fields).encode())


def test_round_trip_is_exact_and_canonical() -> None:
    made = manifest_for(MODEL, members=MEMBERS, labels=["é", "ü", "日"])
    text = manifest_json.to_json(made)
    again = manifest_json.parse(text)
    assert again == made
    assert manifest_json.to_json(again) == text
    shuffled = dict(reversed(list(json.loads(text).items())))
    assert manifest_json.to_json(manifest_json.parse(json.dumps(shuffled).encode())) == text


@pytest.mark.parametrize("columns", [None, ("ax", "ay", "é")])
def test_windows_may_name_their_channels(columns: tuple[str, ...] | None) -> None:
    raw = manifest.RawSpec("window", (8, 3), "float32", columns=columns)
    source = manifest.TensorSpec("x", (1, 8, 3), "float32", "ANY")
    text = manifest_json.to_json(manifest_for(MODEL, members=MEMBERS, raw=raw, input=source))
    assert manifest_json.parse(text).raw == raw and manifest_json.to_json(manifest_json.parse(text)) == text
    assert (b'"columns"' in text) is (columns is not None)


def test_shapes_may_come_from_numpy() -> None:
    spec = manifest.TensorSpec("x", tuple(np.array([1, 3])), "float32", "NC")
    assert spec == manifest.TensorSpec("x", (1, 3), "float32", "NC")
    assert [type(side) for side in spec.shape] == [int, int]
    with pytest.raises(TypeError):
        manifest.TensorSpec("x", (1, 3.5), "float32", "NC")  # type: ignore[arg-type]


def test_a_newer_format_asks_for_a_newer_runner() -> None:
    with pytest.raises(BundleError, match="update the runner"):
        parse({"format": manifest.FORMAT + 1, "novelty": True})
    for older in range(1, manifest.FORMAT):
        with pytest.raises(BundleError, match="make the bundle again"):
            parse({"format": older})


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"format": 0}, "format"),
        ({"format": True}, "format"),
        ({"surprise": 1}, "surprise"),
        ({"name": "../x"}, "name"),
        ({"version": 1}, "version"),
        ({"target": "tensorrt"}, "tensorrt"),
        ({"task": "tracking"}, "detection"),
        ({"labels": ["a", "b"]}, "labels"),
        ({"labels": [1, 2, 3]}, "labels"),
        ({"budget": []}, "budget"),
        ({"requirements": "numpy"}, "requirements"),
        ({"raw": {**RAW, "shape": [8, 8]}}, "raw.shape"),
        ({"raw": {**RAW, "kind": ["image"]}}, "raw.kind"),
        ({"raw": {**RAW, "dtype": "int64"}}, "int64"),
        ({"raw": {**RAW, "range": [0, 1]}}, "raw.range"),
        ({"raw": {**RAW, "dtype": "float32", "range": [1, 0]}}, "raw.range"),
        ({"raw": {**RAW, "dtype": "float32", "range": [0]}}, "raw.range"),
        ({"raw": {**RAW, "sample_rate_hz": 16000}}, "sample_rate_hz"),
        ({"raw": {**RAW, "kind": "audio", "shape": [64], "dtype": "float32"}}, "sample_rate_hz"),
        ({"raw": {**RAW, "kind": "audio", "shape": [64], "sample_rate_hz": 16000}}, "raw.dtype"),
        ({"raw": {**RAW, "kind": "window", "shape": [8, 3]}}, "raw.dtype"),
        ({"raw": {**WINDOW, "shape": [8, 3, 1]}}, "raw.shape"),
        ({"raw": {**WINDOW, "columns": None}}, "raw.columns"),
        ({"raw": {**WINDOW, "columns": ["a", "b"]}}, "raw.columns"),
        ({"raw": {**WINDOW, "columns": ["a", "b", "b"]}}, "raw.columns"),
        ({"raw": {**WINDOW, "columns": ["a", "b", ""]}}, "raw.columns"),
        ({"raw": {**WINDOW, "columns": ["a", "b", 3]}}, "raw.columns"),
        ({"raw": {**WINDOW, "columns": "abc"}}, "raw.columns"),
        ({"raw": {**RAW, "columns": ["a"]}}, "raw.columns"),
        ({"activation": "relu"}, "relu"),
        ({"architectures": "aarch64"}, "architectures"),
        ({"task": "regression"}, "activation"),
        ({"task": "regression", "activation": "none"}, "golden.top1"),
        ({"task": "raw", "activation": "none"}, "labels"),
        ({"raw": {"kind": "image", "shape": [8, 8, 1]}}, "dtype"),
        ({"raw": None}, "raw"),
        ({"inputs": [{"name": "x", "shape": [2, 1, 8, 8], "dtype": "float32", "layout": "NCHW"}]}, "inputs[0].shape"),
        ({"inputs": [{"name": "x", "shape": [1, 1, 8, 8], "dtype": "float32", "layout": []}]}, "inputs[0].layout"),
        ({"inputs": [{"name": "x", "shape": [1, 1, 9, 8], "dtype": "float32", "layout": "NCHW"}]}, "preprocess"),
        ({"inputs": []}, "inputs"),
        ({"inputs": {"name": "x"}}, "inputs"),
        ({"outputs": [None]}, "outputs[0]"),
        ({"inputs": [{"name": "x", "shape": [1, 8, 8, 1], "dtype": "bool", "layout": "NHWC"}]}, "inputs[0].dtype"),
        ({"preprocess": [{"step": "blur"}]}, "blur"),
        ({"preprocess": {}}, "preprocess"),
        ({"model_files": []}, "model_files"),
        ({"model_files": ["other.onnx"]}, "other.onnx"),
        ({"model_files": ["/etc/passwd"]}, "/etc/passwd"),
        ({"golden": {"inputs": "a.npy", "outputs": "b.npy", "atol": -1, "top1": True}}, "atol"),
        ({"golden": {"inputs": "a.npy", "outputs": "b.npy", "atol": 0.1, "top1": 1}}, "top1"),
        ({"golden": {"inputs": "a.npy"}}, "golden"),
        ({"members": {"../model.onnx": FACTS}}, "../model.onnx"),
        ({"members": {"manifest.json": FACTS}}, "manifest.json"),
        ({"members": {"model.onnx": {"bytes": -1, "sha256": "0" * 64}}}, "bytes"),
        ({"members": {"model.onnx": {"bytes": 1, "sha256": "0" * 63}}}, "sha256"),
    ],
)
def test_what_does_not_hold_together_is_named(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(BundleError) as caught:
        parse(values(**changes))
    assert word in str(caught.value)


@pytest.mark.parametrize("key", sorted(values()))
def test_every_key_is_needed(key: str) -> None:
    fields = values()
    del fields[key]
    with pytest.raises(BundleError, match=key):
        parse(fields)


@pytest.mark.parametrize(
    ("data", "word"),
    [(b"", "manifest"), (b"[]", "list"), (b"\xff", "manifest"), (b'{"a": 1, "a": 2}', "twice"),
     (b'{"format": NaN}', "NaN"), (b"[" * 100_000, "manifest")],
)  # fmt: skip
def test_what_is_no_manifest_is_refused(data: bytes, word: str) -> None:
    with pytest.raises(BundleError, match=word):
        manifest_json.parse(data)


def test_endless_nesting_is_refused_where_pythons_limit_was_raised() -> None:
    """As converters do where they are imported; the parser of JSON is C, and its stack would overflow."""
    code = (
        "import sys; sys.setrecursionlimit(10**6)\n"
        "from edgekit.runner.bundle import manifest_json\n"
        "from edgekit.runner.errors import BundleError\n"
        "try: manifest_json.parse(b'[' * 1_000_000)\n"
        "except BundleError as error: print(error, sys.getrecursionlimit())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "not a manifest" in done.stdout and done.stdout.endswith(" 1000000\n")


def test_values_outside_json_are_refused() -> None:
    for bad in (float("inf"), b"bytes", {1, 2}):
        with pytest.raises(BundleError, match=r"JSON|serializable"):
            manifest_json.to_json(manifest_for(MODEL, verdict={"value": bad}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(key=st.sampled_from(sorted(values())), value=JSON)
def test_any_value_anywhere_parses_or_raises_bundle_error(key: str, value: Any) -> None:
    try:
        found = parse(values(**{key: value}))
    except BundleError:
        return
    assert manifest_json.parse(manifest_json.to_json(found)) == found


HUGE = (10**400, -(10**30), 10**20)


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("place", ["factor", "mean", "std", "shape", "atol", "format"])
def test_a_number_that_no_computer_counts_with_is_no_manifest(number: int, place: str) -> None:
    steps = {
        "factor": [{"step": "scale", "factor": number}],
        "mean": [{"step": "normalize", "mean": [number], "std": [1.0]}],
        "std": [{"step": "normalize", "mean": [0.0], "std": [number]}],
    }
    changes: dict[str, Any] = {"preprocess": steps[place]} if place in steps else {place: number}
    if place == "shape":
        changes = {"raw": {**RAW, "shape": [number, 8, 1]}}
    with pytest.raises(BundleError, match="whole number of"):
        parse(values(**changes))


@pytest.mark.parametrize("text", ["1e400", "-1e999", "NaN", "Infinity"])
def test_a_float_that_is_none_is_no_manifest(text: str) -> None:
    content = json.dumps(values(preprocess=[{"step": "scale", "factor": "HERE"}])).replace('"HERE"', text)
    with pytest.raises(BundleError, match=r"manifest\.json: not a manifest"):
        manifest_json.parse(content.encode())
