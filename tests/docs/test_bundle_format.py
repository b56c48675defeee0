"""The page of the bundle format is enough to write a reader: `bundle_reader.py` agrees with edgekit's own."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs.generate import manifest as words
from edgekit.runner import bundle, input_path, load
from edgekit.runner.box_heads import BoxHead
from edgekit.runner.boxes import BoxOptions
from edgekit.runner.bundle import manifest_rules as rules
from edgekit.runner.bundle import smoothing_rules
from edgekit.runner.bundle.manifest import RawSpec, TensorSpec
from edgekit.runner.errors import InputError
from edgekit.runner.preprocess import steps, transform
from tests.docs import bundle_reader
from tests.docs.bundle_reader import Bundle, Refused
from tests.runner import several, stepped
from tests.runner.bundle.test_bundle import repack
from tests.runner.conftest import NCHW, NHWC, SCORES, ModelFiles, WriteBundle

NOTHING = ModelFiles("onnx", {"model.onnx": b"never opened"}, NCHW, SCORES, 1e-4)


def test_the_reader_knows_nothing_of_edgekit() -> None:
    source = Path(bundle_reader.__file__).read_text()
    assert not re.findall(r"^\s*(?:import|from) edgekit", source, re.MULTILINE)


def test_a_strangers_reader_prepares_samples_and_proves_the_bundle(bundles: dict[str, Path]) -> None:
    import onnxruntime

    read, own = Bundle(bundles["onnx"]), load(bundles["onnx"], trial=False)
    assert read.identity == own.bundle.identity
    session = onnxruntime.InferenceSession(read.members[read.manifest["model_files"][0]])
    samples, recorded = read.golden()
    assert len(samples) > 1
    for sample, expected in zip(samples, recorded):
        x = read.tensor(sample)
        np.testing.assert_array_equal(x, own.prepare(sample))
        (scores,) = session.run([read.manifest["outputs"][0]["name"]], {read.manifest["inputs"][0]["name"]: x})
        assert np.abs(scores[0] - expected).max() <= read.manifest["golden"]["atol"]
        assert read.manifest["labels"][scores[0].argmax()] == own.predict(sample).label


def test_a_stranger_feeds_states_back_as_the_page_says(tmp_path: Path) -> None:
    import onnxruntime

    read = Bundle(stepped.write(tmp_path, "onnx"))
    session = onnxruntime.InferenceSession(read.members[read.manifest["model_files"][0]])
    described, found = read.manifest["states"], []
    states = {each["input"]: np.zeros(each["shape"], each["dtype"]) for each in described}
    samples, recorded = read.golden()
    for sample in samples:
        output_names = [read.manifest["outputs"][0]["name"], *(each["output"] for each in described)]
        output, *after = session.run(output_names, {read.manifest["inputs"][0]["name"]: read.tensor(sample), **states})
        states = dict(zip(states, after, strict=True))
        found.append(output[0])
    assert np.abs(np.stack(found) - recorded).max() <= read.manifest["golden"]["atol"]
    assert np.abs(recorded - samples).max() > 0.1


def test_a_stranger_takes_the_vector_of_several_inputs_apart_as_the_page_says(tmp_path: Path) -> None:
    import onnxruntime

    read = Bundle(several.write(tmp_path, "onnx"))
    session = onnxruntime.InferenceSession(read.members[read.manifest["model_files"][0]])
    samples, recorded = read.golden()
    for sample, expected in zip(samples, recorded, strict=True):
        [found] = session.run([read.manifest["outputs"][0]["name"]], read.tensors(sample))
        assert np.abs(found[0] - expected).max() <= read.manifest["golden"]["atol"]
    for place, value in ((6, 0.5), (6, 10), (10, 5), (0, np.inf)):  # the ids, the zoom, the picture
        with pytest.raises(Refused):
            read.tensors(np.concatenate([samples[0][:place], np.float32([value]), samples[0][place + 1 :]]))


def test_a_stranger_quantizes_each_of_several_inputs_as_the_page_says(tmp_path: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    sources = (replace(several.PICTURE, stored="int8", scaled=(0.05, -3)), several.IDS)
    golden = {"inputs": "i.npy", "outputs": "o.npy", "atol": 1.0, "top1": False}
    path = several.write(tmp_path, "tflite", sources, golden=golden)
    read, own = Bundle(path), load(path, trial=False, interpreter="litert")
    interpreter = Interpreter(model_content=read.members["model.tflite"])
    interpreter.allocate_tensors()
    details = {each["name"]: each for each in interpreter.get_input_details()}
    scales = {name: each["quantization"] for name, each in details.items() if each["quantization"][0]}
    assert list(scales) == ["picture"]
    for sample in read.golden()[0]:
        for name, x in read.tensors(sample, scales).items():
            interpreter.set_tensor(details[name]["index"], x)
        interpreter.invoke()
        [result] = interpreter.get_output_details()
        np.testing.assert_array_equal(interpreter.get_tensor(result["index"])[0], own.predict(sample).output)


def test_the_table_of_a_samples_tensors_has_every_key() -> None:
    assert list(words.RAW_TENSOR) == list(rules.RAW_TENSOR)


def test_integers_are_quantized_as_the_page_says(bundles: dict[str, Path]) -> None:
    from ai_edge_litert.interpreter import Interpreter

    read, own = Bundle(bundles["tflite-int8"]), load(bundles["tflite-int8"], trial=False)
    (detail,) = Interpreter(model_content=read.members["model.tflite"]).get_input_details()
    scale, zero_point = detail["quantization"]
    for sample in read.golden()[0]:
        x = read.tensor(sample, scale, zero_point)
        assert x.dtype == np.int8
        np.testing.assert_array_equal(x, own.prepare(sample))


@pytest.mark.parametrize("target", ["tflite", "openvino"])
def test_every_target_has_the_same_archive(bundles: dict[str, Path], target: str) -> None:
    read, own = Bundle(bundles[target]), bundle.read(bundles[target])
    assert read.members == own.members and read.identity == own.identity


PICTURE = RawSpec("image", (13, 9, 3), "uint8")
SOUND = RawSpec("audio", (4000,), "float32", (-1.0, 1.0), 8000)
MEL = {"step": "log_mel", "rate_hz": 8000, "window_samples": 200, "hop_samples": 80, "fft_samples": 256, "mels": 20,
       "low_hz": 60.0, "high_hz": 3800.0, "floor": 1e-6}  # fmt: skip
GREY = [{"step": "channels", "count": 1}, {"step": "scale", "factor": 1 / 255}]
NORMALIZED = {"step": "normalize", "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}


@pytest.mark.parametrize(
    ("raw", "listed", "spec"),
    [
        (PICTURE, [{"step": "resize", "height": 5, "width": 4}, *GREY],
         TensorSpec("x", (1, 5, 4, 1), "float32", "NHWC")),
        (PICTURE, [{"step": "resize", "height": 31, "width": 20}, NORMALIZED],
         TensorSpec("x", (1, 3, 31, 20), "float32", "NCHW")),
        (PICTURE, [{"step": "resize", "height": 8, "width": 8}], TensorSpec("x", (1, 8, 8, 3), "uint8", "NHWC")),
        (PICTURE, [NORMALIZED, {"step": "bgr"}], TensorSpec("x", (1, 3, 13, 9), "float32", "NCHW")),
        (PICTURE, [{"step": "bgr"}], TensorSpec("x", (1, 13, 9, 3), "uint8", "NHWC")),
        (RawSpec("image", (4, 4, 1), "uint8"), [{"step": "channels", "count": 3}],
         TensorSpec("x", (1, 4, 4, 3), "float16", "NHWC")),
        (SOUND, [MEL], TensorSpec("x", (1, 48, 20, 1), "float32", "NHWC")),
        (RawSpec("window", (16, 3), "float32", columns=("x", "y", "z")), [NORMALIZED],
         TensorSpec("x", (1, 16, 3), "float32", "ANY")),
    ],
)  # fmt: skip
def test_every_step_computes_what_the_page_says(
    write_bundle: WriteBundle, raw: RawSpec, listed: list[dict[str, Any]], spec: TensorSpec
) -> None:
    rng = np.random.default_rng(7)
    if raw.dtype == "uint8":
        samples = rng.integers(0, 256, (3, *raw.shape)).astype(np.uint8)
    else:
        samples = rng.uniform(-1, 1, (3, *raw.shape)).astype(np.float32)
    made = ModelFiles("onnx", NOTHING.files, spec, SCORES, 1e-4)
    read = Bundle(write_bundle(made, samples, np.zeros((3, 3)), raw=raw, preprocess=listed))
    for sample in read.golden()[0]:
        x = transform.to_layout(transform.apply(listed, sample[None]), spec.layout)
        expected = np.rint(x) if spec.dtype == "uint8" else x.astype(spec.dtype)
        assert read.tensor(sample).shape == spec.shape and read.tensor(sample).dtype == spec.dtype
        np.testing.assert_allclose(read.tensor(sample), expected, rtol=1e-4, atol=1e-4)


def test_the_steps_of_the_table_are_those_that_were_tried() -> None:
    assert set(bundle_reader.STEPS) == set(words.STEPS) == set(steps.STEPS)


@pytest.mark.parametrize("fault", ["changed", "added", "unsorted", "compressed"])
def test_both_readers_refuse_what_was_changed(bundles: dict[str, Path], tmp_path: Path, fault: str) -> None:
    import zipfile

    path = tmp_path / "x.edge.zip"
    path.write_bytes(bundles["onnx"].read_bytes())
    changes = {
        "changed": lambda entries: [(entry, data.replace(b"A tiny", b"A tidy", 1)) for entry, data in entries],
        "added": lambda entries: [*entries, (zipfile.ZipInfo("zz", (1980, 1, 1, 0, 0, 0)), b"new")],
        "unsorted": lambda entries: [entries[0], *reversed(entries[1:])],
        "compressed": list,
    }  # fmt: skip
    Bundle(path)
    repack(path, changes[fault], zipfile.ZIP_DEFLATED if fault == "compressed" else zipfile.ZIP_STORED)
    with pytest.raises(Refused):
        Bundle(path)
    with pytest.raises((bundle.TrustError, bundle.BundleError)):
        bundle.read(path)


@pytest.mark.parametrize("name", ["manifest", "raw", "state", "tensor"])
def test_the_tables_have_every_key(name: str) -> None:
    described, kind = words.TABLES[name]
    assert set(described) == words.known(kind)


def test_the_page_has_every_member_of_a_real_manifest(bundles: dict[str, Path]) -> None:
    found = Bundle(bundles["onnx"]).manifest
    assert set(found) == set(words.MANIFEST) - {
        "threshold", "boxes", "head", "keypoints", "smoothing", "states", "reference",
    }  # fmt: skip
    assert set(found["golden"]) == set(words.GOLDEN)
    assert set(found["inputs"][0]) == set(found["outputs"][0]) == set(words.TENSOR)
    assert set(words.BOXES) == set(BoxOptions._fields) and set(words.HEAD) == set(BoxHead._fields)
    assert set(words.KEYPOINTS) == set(rules.KEYPOINTS)
    assert set(found["raw"]) == set(words.RAW) - {"columns", "tensors"}


@pytest.mark.parametrize(
    ("described", "known"),
    [
        (words.STEPS, steps.STEPS),
        (
            words.INPUT_PATH,
            {name: {**each, **input_path.OPTIONAL.get(name, {})} for name, each in input_path.STEPS.items()},
        ),
        (words.SMOOTHING, smoothing_rules.METHODS),
    ],
)
def test_the_tables_have_every_step_and_option(described: dict[str, Any], known: dict[str, Any]) -> None:
    assert {step: set(options) for step, options in described.items()} == {
        step: set(options) for step, options in known.items()
    }


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"step": "resize", "height": 1, "width": 16384}, {"height": 0}),
        ({"step": "resize", "height": 1, "width": 16384}, {"width": 16385}),
        ({"step": "channels", "count": 1}, {"count": 2}),
        ({"step": "scale", "factor": -2}, {"factor": 0}),
        ({"step": "normalize", "mean": [-1], "std": [0.1]}, {"std": [0]}),
        ({"step": "normalize", "mean": [1, 2, 3], "std": [1, 2, 3]}, {"mean": [1, 2]}),
    ],
)
def test_a_value_outside_the_stated_range_is_refused(good: dict[str, Any], bad: dict[str, Any]) -> None:
    steps.check([good], (8, 8, 3), "uint8")
    with pytest.raises(InputError):
        steps.check([{**good, **bad}], (8, 8, 3), "uint8")


@pytest.mark.parametrize(
    "bad",
    [
        {"window_samples": 4001, "fft_samples": 8192}, {"fft_samples": 300}, {"fft_samples": 128},
        {"fft_samples": 32768}, {"mels": 0}, {"low_hz": -1}, {"low_hz": 3800.0}, {"high_hz": 4000.1},
        {"floor": 0}, {"hop_samples": 0},
    ],
)  # fmt: skip
def test_a_spectrogram_outside_the_stated_range_is_refused(bad: dict[str, Any]) -> None:
    steps.check([{**MEL, "fft_samples": 16384, "low_hz": 0, "high_hz": 4000}], SOUND.shape, "float32")
    with pytest.raises(InputError):
        steps.check([{**MEL, **bad}], SOUND.shape, "float32")


def test_the_page_names_every_task_and_activation() -> None:
    page = Path(words.__file__).parents[1]
    text = (page / "reference" / "bundle-format.md").read_text()
    for word in (*rules.TASKS, *rules.ACTIVATIONS, *rules.KINDS, *rules.LAYOUTS, *rules.TENSOR_DTYPES):
        assert f"`{word}`" in text


def test_nhwc_needs_no_move(bundles: dict[str, Path]) -> None:
    read = Bundle(bundles["tflite"])
    assert read.tensor(read.golden()[0][0]).shape == NHWC.shape
