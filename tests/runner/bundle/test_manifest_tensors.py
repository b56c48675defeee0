"""Manifests of several inputs: what is written is read again, and what does not hold together is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.runner import bundle
from edgekit.runner.bundle import manifest_json
from edgekit.runner.bundle.manifest import Manifest, RawSpec
from edgekit.runner.errors import BundleError
from tests.runner import several
from tests.runner.conftest import npy
from tests.runner.several import IDS, PICTURE, THREE, ZOOM

MEMBERS = {name: {"bytes": 0, "sha256": "0" * 64} for name in ("model.onnx", "i.npy", "o.npy")}


def manifest(target: str = "onnx", **changes: Any) -> Manifest:
    return several.manifest(target, {"model.onnx": b""}, THREE, members=MEMBERS, **changes)


def with_raw(**changes: Any) -> Manifest:
    found = manifest()
    return replace(found, raw=replace(found.raw, **changes))


def with_tensor(place: int = 1, *without: str, **changes: Any) -> Manifest:
    """One of the sample's tensors changed: the picture, the ids or the zoom."""
    tensors = [dict(each) for each in manifest().raw.tensors or ()]
    tensors[place].update(changes)
    for key in without:
        del tensors[place][key]
    return with_raw(tensors=tuple(tensors))


def with_model(stored: str, target: str = "onnx", place: int = 1, **changes: Any) -> Manifest:
    """Another type of the model's own tensor."""
    found = with_tensor(place, **changes)
    inputs = list(found.inputs)
    inputs[place] = replace(inputs[place], dtype=stored)
    return replace(found, target=target, inputs=tuple(inputs))


def test_a_manifest_is_read_as_it_was_written() -> None:
    text = manifest_json.to_json(manifest())
    assert manifest_json.parse(text) == manifest()
    assert manifest_json.to_json(manifest_json.parse(text)) == text
    raw = json.loads(text)["raw"]
    assert raw["tensors"] == [
        {"name": "picture", "shape": [2, 3, 1], "dtype": "float32", "range": None},
        {"name": "ids", "shape": [4], "dtype": "int32", "range": [0, 9]},
        {"name": "zoom", "shape": [1], "dtype": "float32", "range": [0.5, 4.0]},
    ]
    assert raw["kind"] == "tensors" and raw["shape"] == [11] and raw["input_path"] == [{"step": "read_tensors"}]


def test_several_inputs_are_one_vector_to_whoever_asks_for_one() -> None:
    joined = manifest().input
    assert (joined.shape, joined.dtype, joined.layout) == ((1, 11), "float32", "NC")


SOUND: list[tuple[str, Callable[[], Manifest]]] = [
    ("a range of one value", lambda: with_tensor(range=[3, 3])),
    ("the largest whole numbers", lambda: with_tensor(dtype="int64", range=[-(2**24), 2**24])),
    ("bytes", lambda: with_tensor(dtype="uint8", range=[0, 255])),
    ("a quantized input", lambda: with_model("int8", "tflite", 0)),
    ("a quantized input of whole numbers", lambda: with_model("int8", "tflite", range=[0, 255])),
    ("half precision", lambda: with_model("float16", "openvino", 0)),
    ("bytes for a network of floats", lambda: with_model("float32", "onnx", dtype="uint8", range=[0, 255])),
    ("no step from a file", lambda: with_raw(input_path=())),
    ("a name with spaces", lambda: with_tensor(name="ids of words, äöü")),
]


@pytest.mark.parametrize("make", [make for _, make in SOUND], ids=[name for name, _ in SOUND])
def test_what_holds_together_is_read(make: Callable[[], Manifest]) -> None:
    assert manifest_json.parse(manifest_json.to_json(make())) == make()


VECTOR = RawSpec("vector", (11,), "float32")
AT = r"raw.tensors\[1\]"
BROKEN: list[tuple[Callable[[], Manifest], str]] = [
    (lambda: manifest(raw=VECTOR), "raw.kind: got 'vector'; the model has 3 inputs: a sample is of kind tensors"),
    (lambda: manifest(raw=replace(VECTOR, tensors=tuple(each.described for each in THREE))), "raw.kind: got 'vector'"),
    (lambda: with_raw(tensors=None), "raw.tensors: got '0'; a sample of kind tensors has two or more"),
    (lambda: manifest(inputs=(PICTURE.spec,), raw=RawSpec("tensors", (6,), "float32", tensors=(PICTURE.described,))),
     "raw.tensors: got '1'; a sample of kind tensors has two or more"),
    (lambda: manifest(inputs=(PICTURE.spec,)), "raw.tensors: got '3'; the model has 1 inputs"),
    (lambda: manifest(inputs=(PICTURE.spec, IDS.spec)), "raw.tensors: got '3'; the model has 2 inputs"),
    (lambda: manifest(inputs=(IDS.spec, PICTURE.spec, ZOOM.spec)),
     r"raw.tensors\[0\].shape: got '\[2, 3, 1\]'; the model takes \[4\]"),
    (lambda: manifest(inputs=(PICTURE.spec, IDS.spec, replace(ZOOM.spec, name="ids"))),
     "inputs: got .* tensors need names of their own"),
    (lambda: with_tensor(name="zoom"), "raw.tensors: got .*'zoom', 'zoom'.*; tensors need names of their own"),
    (lambda: with_tensor(1, "range"), AT + r": unknown keys \[\], missing keys \['range'\]"),
    (lambda: with_tensor(scale=2), AT + r": unknown keys \['scale'\], missing keys \[\]"),
    (lambda: with_raw(tensors=(PICTURE.described, 7, ZOOM.described)), AT + ": got '7'; must be an object"),
    (lambda: with_tensor(name=""), AT + ".name: got ''; must be text"),
    (lambda: with_tensor(name=3), AT + ".name: got '3'; must be text"),
    (lambda: with_tensor(name="i\nds"), AT + ".name: got .*; must be text"),
    (lambda: with_tensor(shape=[]), AT + r".shape: got '\[\]'"),
    (lambda: with_tensor(shape=[0, 4]), AT + r".shape: got '\[0, 4\]'; must list whole numbers above 0"),
    (lambda: with_tensor(shape="4"), AT + ".shape: got '4'; must list whole numbers above 0"),
    (lambda: with_tensor(shape=[2, 2]), AT + r".shape: got '\[2, 2\]'; the model takes \[4\]"),
    (lambda: with_tensor(dtype="float64"), AT + ".dtype: got 'float64'; known: float32, uint8, int8, int32, int64"),
    (lambda: with_tensor(dtype=["int32"]), AT + ".dtype: got"),
    (lambda: with_tensor(range=None), AT + r".range: got 'None'; whole numbers need \[lowest, highest\]"),
    (lambda: with_tensor(range=[9, 0]), AT + r".range: got '\[9, 0\]'; must be \[lowest, highest\]"),
    (lambda: with_tensor(range=[0]), AT + r".range: got '\[0\]'; must be \[lowest, highest\]"),
    (lambda: with_tensor(range=9), AT + r".range: got '9'; must be \[lowest, highest\]"),
    (lambda: with_tensor(range=[False, True]), AT + r".range: got '\[False, True\]'; must be"),
    (lambda: with_tensor(range=[0, 9.5]), AT + r".range: got '\[0, 9.5\]'; must be whole numbers"),
    (lambda: with_tensor(range=[0, 2**24 + 1]), AT + ".range: got .*; int32 has -16777216 to 16777216 here"),
    (lambda: with_tensor(range=[-(2**24) - 1, 0]), AT + ".range: got .*; int32 has -16777216 to 16777216 here"),
    (lambda: with_tensor(range=[0, 10**400]), "a whole number of 401 characters; at most 20 are accepted"),
    (lambda: with_tensor(dtype="uint8", range=[0, 256]), AT + ".range: got .*; uint8 has 0 to 255 here"),
    (lambda: with_tensor(dtype="uint8", range=[-1, 255]), AT + ".range: got .*; uint8 has 0 to 255 here"),
    (lambda: with_tensor(dtype="int8", range=[0, 128]), AT + ".range: got .*; int8 has -128 to 127 here"),
    (lambda: with_tensor(2, range=[0, 1e39]), r"raw.tensors\[2\].range: got .*; must be numbers of float32"),
    (lambda: with_tensor(2, range=["a", "b"]), r"raw.tensors\[2\].range: got .*; must be \[lowest, highest\]"),
    (lambda: with_model("uint8", range=[0, 256]), AT + ".range: got .*; uint8 has 0 to 255 here"),
    (lambda: with_model("int32", dtype="float32"), AT + ".dtype: got 'float32'; the model takes whole numbers, int32"),
    (lambda: with_model("int64", "tflite", dtype="float32"), AT + ".dtype: got 'float32'; the model takes whole"),
    (lambda: with_model("uint8", "openvino", dtype="float32"), AT + ".dtype: got 'float32'; the model takes whole"),
    (lambda: with_model(["a"], "onnx"), r"inputs\[1\].dtype: got .*; known: float32"),  # type: ignore[arg-type]
    (lambda: with_raw(shape=(12,)), r"raw.shape: got '\[12\]'; the tensors have 11 numbers"),
    (lambda: with_raw(shape=(11, 1)), r"raw.shape: got '\[11, 1\]'; the tensors have 11"),
    (lambda: with_raw(dtype="uint8"), "raw.dtype: got 'uint8'; joined tensors are float32"),
    (lambda: with_raw(range=[0.0, 1.0]), "raw.range: got .*; each tensor has its own range"),
    (lambda: with_raw(sample_rate_hz=8000), "raw.sample_rate_hz: got '8000'; only audio has one"),
    (lambda: with_raw(columns=("a", "b")), "raw.columns: got .*; only vectors and windows have them"),
    (lambda: with_raw(input_path=({"step": "decode_csv"},)), "the steps for tensors are, in this order, read_tensors"),
    (lambda: with_raw(input_path=({"step": "read_tensors", "names": ["a"]},)), "read_tensors: has the options"),
    (lambda: manifest(preprocess=[{"step": "scale", "factor": 0.5}]),
     "preprocess: got .*; the network itself scales several tensors"),
    (lambda: manifest(task="detection"), "raw.kind: got 'tensors'; the task detection takes pictures"),
    (lambda: manifest(task="segmentation", labels=["a", "b", "c"]), "of pictures"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), BROKEN, ids=[message[:60] for _, message in BROKEN])
def test_what_does_not_hold_together_is_refused(make: Callable[[], Manifest], message: str) -> None:
    with pytest.raises(BundleError, match=message) as caught:
        manifest_json.parse(manifest_json.to_json(make()))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("tensors", [None, {}, "picture", 3])
def test_tensors_that_are_no_list_are_refused(tensors: Any) -> None:
    values = json.loads(manifest_json.to_json(manifest()))
    values["raw"]["tensors"] = tensors
    with pytest.raises(BundleError, match="raw.tensors: got"):
        manifest_json.parse(json.dumps(values).encode())


def test_nothing_is_written_of_a_bundle_that_does_not_hold_together(tmp_path: Path) -> None:
    golden = {"i.npy": npy(np.zeros((1, 11), np.float32)), "o.npy": npy(np.zeros((1, 3), np.float32))}
    wrong = replace(with_tensor(range=[0, 2**25]), members={})
    with pytest.raises(BundleError, match="raw.tensors"):
        bundle.write(tmp_path / "b.edge.zip", wrong, {"model.onnx": b"model", **golden})
    assert not list(tmp_path.iterdir())
