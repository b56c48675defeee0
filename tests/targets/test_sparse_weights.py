"""Zeros stored as such: what LiteRT reads of them is what was there, and answers keep their bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgekit import data
from edgekit.models import store
from edgekit.models.files import flatbuffer
from edgekit.models.from_artifact import spec_for
from edgekit.stages.prune import unstructured
from edgekit.targets import evaluate
from edgekit.targets.jobs import ConvertedFiles
from edgekit.targets.tflite import convert, sparse_weights

SIZE = 16
INPUTS = np.random.default_rng(0).normal(size=(8, 3, SIZE, SIZE)).astype(np.float32)


def saved(folder: Path, zeros: float) -> Path:
    """A depthwise network with that share of each layer's weights zeroed, some of them as -0.0."""
    spec = store.ModelSpec(
        builder="edgekit.models.ds_cnn:ds_cnn",
        kwargs={"width": 64, "blocks": 2},
        input_shape=(3, SIZE, SIZE),
        num_classes=300,
        classes=tuple(f"c{number}" for number in range(300)),
        raw={"kind": "image", "shape": [SIZE, SIZE, 3], "dtype": "uint8"},
    )
    module, random = store.build(spec, seed=1), torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in unstructured.prunable_weights(module).values():
            weight.mul_(torch.rand(weight.shape, generator=random) >= zeros)
    store.save(folder, module, spec)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("sparse") / "model", 0.8)


def converted(folder: Path, precision: str, out: Path) -> tuple[ConvertedFiles, bytes]:
    files = convert.convert(folder, precision, INPUTS, out, sparse=True)
    return files, (out / convert.FILE).read_bytes()


def restored(weight: sparse_weights.SparseWeight) -> np.ndarray:
    """The array again, place by place."""
    moved = np.zeros([*np.delete(weight.shape, weight.axis), weight.shape[weight.axis]], weight.values.dtype)
    rows = moved.reshape(-1, weight.shape[weight.axis] // weight.block, weight.block)
    for number, row in enumerate(rows):
        span = slice(int(weight.segments[number]), int(weight.segments[number + 1]))
        row[weight.indices[span]] = weight.values[span]
    return np.moveaxis(moved, -1, weight.axis)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
@pytest.mark.parametrize(("axis", "block"), [(0, 1), (0, 4), (1, 1), (3, 1), (3, 4)])
def test_an_encoding_holds_every_value_and_its_place(axis: int, block: int, dtype: Any) -> None:
    random = np.random.default_rng(3)
    array = (random.integers(-9, 9, (8, 3, 3, 300)) * (random.random((8, 3, 3, 300)) > 0.7)).astype(dtype)
    array[2] = 0
    found = sparse_weights.encode_array(array, axis, block)
    assert np.array_equal(restored(found), array)
    assert found.indices.dtype == (np.uint16 if axis == 3 and block == 1 else np.uint8)


def test_minus_zero_is_a_zero_and_nan_is_none() -> None:
    found = sparse_weights.encode_array(np.array([[0.0, -0.0, np.nan, 1.0]], np.float32), 1)
    assert found.indices.tolist() == [2, 3]


def test_zeros_that_stand_in_blocks_are_listed_by_blocks() -> None:
    random = np.random.default_rng(4)
    kept = random.random((64, 1, 1, 16)) > 0.8
    blocked = np.repeat(kept, 4, axis=3) * random.normal(size=(64, 1, 1, 64))
    assert sparse_weights.smallest_encoding(blocked.astype(np.float32)).block == 4
    assert (
        sparse_weights.smallest_encoding((blocked * (random.random(blocked.shape) > 0.5)).astype(np.float32)).block == 1
    )


@pytest.mark.numerics
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8", "w8"])
def test_a_sparse_file_is_smaller_and_answers_the_same_bits(folder: Path, precision: str, tmp_path: Path) -> None:
    plain = convert.convert(folder, precision, INPUTS, tmp_path / "plain")
    files, content = converted(folder, precision, tmp_path / "sparse")
    assert files.sparse_weights.startswith("sparse: ") and plain.sparse_weights == ""
    assert len(content) < (tmp_path / "plain" / convert.FILE).stat().st_size
    others = np.random.default_rng(9).normal(size=(12, 3, SIZE, SIZE)).astype(np.float32)
    expected, found = (
        evaluate.file_outputs("", "tflite", tmp_path / name, each, others)
        for name, each in (("plain", plain), ("sparse", files))
    )
    assert np.array_equal(expected, found) and len(np.unique(found)) > 20


def test_a_file_that_litert_does_not_open_stays_dense_and_says_so(folder: Path, tmp_path: Path) -> None:
    """LiteRT has no kernel for int8 weights behind DENSIFY where the ranges of activations are found in each call."""
    convert.convert(folder, "dynamic", INPUTS, tmp_path / "plain")
    files, content = converted(folder, "dynamic", tmp_path / "sparse")
    assert content == (tmp_path / "plain" / convert.FILE).read_bytes()
    assert files.sparse_weights.startswith("kept dense: ") and "does not open it" in files.sparse_weights


def test_without_zeros_enough_the_file_stays_as_it_is(tmp_path: Path) -> None:
    files, content = converted(saved(tmp_path / "model", 0.1), "fp32", tmp_path / "out")
    assert files.sparse_weights == "kept dense: no weight has enough zeros to become smaller"
    assert all(tensor.sparsity is None for tensor in flatbuffer.parse(content).subgraphs[0].tensors)


def test_other_bits_keep_it_dense(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong rewriting, made on purpose, is found by the answers."""
    real = sparse_weights.encode_array

    def wrong(array: np.ndarray, axis: int, block: int = 1) -> sparse_weights.SparseWeight:
        return real(array * np.float32(1.5), axis, block)

    monkeypatch.setattr(sparse_weights, "encode_array", wrong)
    files, content = converted(folder, "fp32", tmp_path / "out")
    assert files.sparse_weights.startswith("kept dense: ") and "samples differ" in files.sparse_weights
    assert all(tensor.sparsity is None for tensor in flatbuffer.parse(content).subgraphs[0].tensors)


def test_without_samples_nothing_is_proven(folder: Path, tmp_path: Path) -> None:
    files = convert.convert(folder, "fp32", None, tmp_path / "out", sparse=True)
    assert files.sparse_weights == "kept dense: there is no sample on which the answers could be compared"


@pytest.mark.numerics
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_file_of_several_inputs_is_asked_by_their_names(precision: str, tmp_path: Path) -> None:
    section = {"source": "python", "function": "tests.joint_data:arrays", "calibration_samples": 60}
    found = data.load(data.parse(section, "classification"))
    spec = spec_for(found, "tests.joint_data:network", {"width": 256}, [])
    module, random = store.build(spec, seed=1), torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in unstructured.prunable_weights(module).values():
            weight.mul_(torch.rand(weight.shape, generator=random) >= 0.95)
    store.save(tmp_path / "model", module, spec)
    raw = evaluate.network_inputs(evaluate.spread_samples(found.calibration, 8), spec.preprocess)
    files = convert.convert(tmp_path / "model", precision, raw, tmp_path / "out", sparse=True)
    assert len(files.inputs) == 3
    assert files.sparse_weights.startswith("sparse: "), files.sparse_weights
