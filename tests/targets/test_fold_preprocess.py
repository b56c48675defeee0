"""Preprocess steps in a file's input scale: the same bits from the same bytes, or a reason why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgekit.models import store
from edgekit.models.files import flatbuffer
from edgekit.runner.backends import open_backend
from edgekit.runner.input_encoding import encoder
from edgekit.runner.preprocess import transform
from edgekit.runner.preprocess.steps import STEPS
from edgekit.targets import evaluate, fold_preprocess
from edgekit.targets.tflite import convert
from tests.runner import integers

SHAPE = (6, 5, 1)
IMAGE = {"kind": "image", "shape": list(SHAPE), "dtype": "uint8"}
COLOUR = {**IMAGE, "shape": [6, 5, 3]}
SCALE = {"step": "scale", "factor": 1 / 255}
DIGITS = [SCALE, {"step": "normalize", "mean": [0.3053], "std": [0.3238]}]
CHANNELS = [SCALE, {"step": "normalize", "mean": [0.49, 0.48, 0.45], "std": [0.25, 0.24, 0.26]}]
SOUND = {"rate_hz": 8, "window_samples": 4, "hop_samples": 2, "fft_samples": 4, "mels": 1, "low_hz": 0, "high_hz": 4,
         "floor": 1e-6}  # fmt: skip

OF_EACH_KIND: dict[str, tuple[dict[str, Any], str]] = {
    "resize": ({"height": 3, "width": 3}, "resize is not an affine step"),
    "channels": ({"count": 1}, "channels is not an affine step"),
    "bgr": ({}, "bgr is not an affine step"),
    "scale": ({"factor": 1 / 255}, ""),
    "normalize": ({"mean": [128], "std": [64]}, ""),
    "log_mel": (SOUND, "log_mel is not an affine step"),
}
"""A step's options, and why it cannot be folded; empty where it can."""


def test_every_kind_of_step_is_looked_at() -> None:
    assert set(OF_EACH_KIND) == set(STEPS)


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_a_kind_of_step_is_folded_or_says_why_not(kind: str) -> None:
    options, reason = OF_EACH_KIND[kind]
    found = fold_preprocess.byte_values([{"step": kind, **options}], IMAGE)
    if reason:
        assert found == reason
    else:
        assert isinstance(found, np.ndarray) and not isinstance(fold_preprocess.find_scale(found), str)


@pytest.mark.parametrize(
    ("steps", "raw", "reason"),
    [
        ([], IMAGE, "no step"),
        ([SCALE], {**IMAGE, "dtype": "float32"}, "the samples are float32"),
        ([{"step": "scale", "factor": -1.0}], IMAGE, "do not increase"),
        ([{"step": "normalize", "mean": [1e9], "std": [1.0]}], IMAGE, "do not increase"),
        (CHANNELS, COLOUR, "for each channel"),
        ([SCALE, {"step": "channels", "count": 3}], IMAGE, "channels"),
    ],
)
def test_steps_that_no_scale_can_say_have_a_reason(
    steps: list[dict[str, Any]], raw: dict[str, Any], reason: str
) -> None:
    found = fold_preprocess.byte_values(steps, raw)
    assert isinstance(found, str) and reason in found


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (DIGITS, "zero is byte 77.85"),
        ([{"step": "normalize", "mean": [127.5], "std": [127.5]}], "zero is byte 127.5"),
        ([{"step": "normalize", "mean": [-20], "std": [1]}], "zero is not a byte"),
        ([{"step": "normalize", "mean": [0], "std": [255]}], "other last bits"),
    ],
)
def test_steps_that_a_grid_says_otherwise_have_a_reason(steps: list[dict[str, Any]], reason: str) -> None:
    values = fold_preprocess.byte_values(steps, IMAGE)
    assert isinstance(values, np.ndarray)
    found = fold_preprocess.find_scale(values)
    assert isinstance(found, str) and reason in found


@pytest.mark.parametrize(
    "steps",
    [
        [SCALE],
        [{"step": "scale", "factor": 0.1}],
        [{"step": "normalize", "mean": [128], "std": [64]}],
        [{"step": "scale", "factor": 2}, {"step": "normalize", "mean": [100], "std": [8]}],
    ],
)
def test_a_grid_gives_each_byte_the_bits_of_the_steps(steps: list[dict[str, Any]]) -> None:
    every = fold_preprocess.BYTES[:, None]
    values = fold_preprocess.byte_values(steps, {**IMAGE, "shape": [1, 1, 1]})
    assert isinstance(values, np.ndarray) and np.array_equal(values[:, None], transform.apply(steps, every))
    found = fold_preprocess.find_scale(values)
    assert not isinstance(found, str)
    scale, zero = found
    assert np.array_equal((every.astype(np.float32) - np.float32(zero)) * np.float32(scale), values[:, None])


def float_file() -> bytes:
    """One dense layer over floats, without the operator that makes them of integers."""
    model = flatbuffer.parse(integers.tflite(SHAPE, "uint8", 1.0, 0))
    graph = model.subgraphs[0]
    graph.tensors.pop(0)
    dense = graph.operators.pop()
    dense.inputs, dense.outputs = [0, 1, -1], [2]
    graph.operators, graph.inputs, graph.outputs = [dense], [0], [2]
    return flatbuffer.with_names_and_signature(flatbuffer.serialize(model))


def saved(folder: Path, steps: list[dict[str, Any]]) -> Path:
    """The file as a user's model, with these steps before it."""
    folder.mkdir(exist_ok=True)
    (folder / "given.tflite").write_bytes(float_file())
    spec = store.ModelSpec(
        source=store.Source(kind="tflite", file="given.tflite"), input_shape=(1, 6, 5), num_classes=3,
        classes=("a", "b", "c"), raw=IMAGE, preprocess=steps,
    )  # fmt: skip
    store.save_source(folder / "model", folder / "given.tflite", spec)
    return folder / "model"


def opened(files: Any, folder: Path, steps: list[dict[str, Any]]) -> tuple[Any, Any]:
    """The file on the runner's interpreter, and the runner's own way from a raw sample to its input."""
    content = {convert.FILE: (folder / convert.FILE).read_bytes()}
    backend = open_backend("tflite", content, files.inputs, files.outputs)
    raw = SimpleNamespace(kind="image", shape=SHAPE, dtype="uint8")
    manifest: Any = SimpleNamespace(preprocess=steps, input=files.input, raw=raw)
    return backend, encoder(manifest, backend)


RAW = np.random.default_rng(4).integers(0, 256, (40, *SHAPE)).astype(np.uint8)


def test_a_float_file_takes_bytes_and_gives_the_same_bits(tmp_path: Path) -> None:
    model = saved(tmp_path, [SCALE])
    plain = convert.convert(model, "fp32", None, tmp_path / "plain")
    made = convert.convert(model, "fp32", None, tmp_path / "folded", fold=True)
    assert (plain.folding, plain.input.dtype, made.input.dtype) == ("", "float32", "uint8")
    assert made.folding.startswith("folded: the input takes bytes") and made.input.name == plain.input.name
    (before, steps), (after, given) = (
        opened(plain, tmp_path / "plain", [SCALE]),
        opened(made, tmp_path / "folded", [SCALE]),
    )
    for sample in RAW:
        assert given(sample).dtype == np.uint8 and np.array_equal(given(sample)[0], sample)
        assert np.array_equal(before.invoke(steps(sample)), after.invoke(given(sample)))
    x = evaluate.network_inputs(RAW, [SCALE])  # what the boundaries of the stage compare
    for batch in (1, 2):
        expected, found = (
            evaluate.file_outputs("", "tflite", tmp_path / name, files, x, batch)
            for name, files in (("plain", plain), ("folded", made))
        )
        assert np.array_equal(expected, found)


def test_a_float_file_whose_steps_round_otherwise_stays_as_it_is(tmp_path: Path) -> None:
    model = saved(tmp_path, DIGITS)
    plain = convert.convert(model, "fp32", None, tmp_path / "plain")
    made = convert.convert(model, "fp32", None, tmp_path / "folded", fold=True)
    assert made.folding.startswith("not folded: a single scale gives other last bits")
    assert replace(made, folding="") == plain
    assert (tmp_path / "plain" / convert.FILE).read_bytes() == (tmp_path / "folded" / convert.FILE).read_bytes()


@pytest.mark.parametrize("steps", [[SCALE], DIGITS])
def test_in_int8_each_byte_is_a_level_whatever_calibration_shows(steps: list[dict[str, Any]], tmp_path: Path) -> None:
    model, dim = saved(tmp_path, steps), (RAW // 3 + 20).astype(np.uint8)
    shown = evaluate.network_inputs(dim, steps)
    plain = convert.convert(model, "int8", shown, tmp_path / "plain")
    made = convert.convert(model, "int8", shown, tmp_path / "folded", fold=True)
    assert (made.input.dtype, plain.folding) == ("int8", "") and made.folding.startswith("folded: each byte is a level")
    every = np.resize(np.arange(256), (9, *SHAPE)).astype(np.uint8)
    (_, looked_up), (backend, given) = (
        opened(plain, tmp_path / "plain", steps),
        opened(made, tmp_path / "folded", steps),
    )
    assert all(np.array_equal(given(each)[0], each.astype(np.int16) - 128) for each in every)
    assert not np.array_equal(np.stack([looked_up(each)[0] for each in every]), every.astype(np.int16) - 128)
    real = transform.apply(steps, dim).reshape(len(dim), -1) @ integers.dense(SHAPE).T
    found = np.concatenate([backend.decode(backend.invoke(given(each))) for each in dim])
    assert np.abs(found - real).max() < 0.03 * np.ptp(real)


def test_in_int8_steps_whose_zero_is_between_two_bytes_say_so(tmp_path: Path) -> None:
    steps = [{"step": "normalize", "mean": [127.5], "std": [127.5]}]
    x = evaluate.network_inputs(RAW, steps)
    made = convert.convert(saved(tmp_path, steps), "int8", x, tmp_path / "made", fold=True)
    assert made.folding.startswith("not folded: by the input's scale") and "share a level" in made.folding
