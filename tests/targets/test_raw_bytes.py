"""OpenVINO's and ONNX's files that take bytes answer as those that take what the steps make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.models import store
from edgekit.runner import bundle as bundles
from edgekit.runner import load
from edgekit.runner.backends import interpreters_for, open_backend
from edgekit.runner.backends import openvino as openvino_backend
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.preprocess import transform
from edgekit.targets import fold_preprocess, profile, tensors
from edgekit.targets.jobs import ConvertedFiles
from edgekit.targets.onnx import convert as onnx_convert
from edgekit.targets.openvino import convert as openvino_convert
from edgekit.targets.openvino.rewrites import HALVED
from tests.runner.conftest import ModelFiles, manifest_for, members_for

CONVERT: dict[str, Any] = {"onnx": onnx_convert, "openvino": openvino_convert}
CHANNELS = [
    {"step": "scale", "factor": 1 / 255},
    {"step": "normalize", "mean": [0.49, 0.48, 0.45], "std": [0.25, 0.24, 0.26]},
]
SCALE = CHANNELS[:1]
PICTURES = np.random.default_rng(3).integers(0, 256, (12, 8, 8, 3)).astype(np.uint8)
SNR_DB = 100
MADE = [(target, precision) for target in CONVERT for precision in ("fp32", "int8")]


def saved(folder: Path, tiny_folder: Path, steps: list[dict[str, Any]]) -> Path:
    module, spec = store.load(tiny_folder)
    store.save(folder, module, spec.model_copy(update={"preprocess": steps}))
    return folder


def floats(steps: list[dict[str, Any]], pictures: np.ndarray = PICTURES) -> np.ndarray:
    return np.ascontiguousarray(transform.apply(steps, pictures).transpose(0, 3, 1, 2))


@pytest.fixture(scope="module", params=MADE, ids="-".join)
def both(
    request: Any, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ConvertedFiles, ConvertedFiles, Path]:
    """Of a network whose steps have numbers for each channel: the plain file, and the one that takes bytes."""
    (target, precision), home = request.param, tmp_path_factory.mktemp("bytes")
    folder = saved(home / "model", tiny_folder, CHANNELS)
    plain, folded = (
        CONVERT[target].convert(folder, precision, floats(CHANNELS), home / name, fold=name == "folded")
        for name in ("plain", "folded")
    )
    return target, plain, folded, home


def backends(target: str, files: ConvertedFiles, folder: Path, batch: int = 1) -> list[Any]:
    content = {name: (folder / name).read_bytes() for name in files.names}
    return [
        open_backend(target, content, files.inputs, files.outputs, interpreter=each, batch=batch)
        for each in interpreters_for(target)
    ]


@pytest.mark.parametrize("batch", [1, 3])
def test_bytes_give_the_answers_of_the_steps(
    batch: int, both: tuple[str, ConvertedFiles, ConvertedFiles, Path]
) -> None:
    target, plain, folded, home = both
    assert (plain.input.dtype, folded.input.dtype) == ("float32", "uint8")
    assert folded.folding == "folded: the input takes bytes, a scale for each of 3 channels" and not plain.folding
    x, raw = floats(CHANNELS), np.ascontiguousarray(PICTURES.transpose(0, 3, 1, 2))
    pairs = zip(*(backends(target, each, home / name, batch) for each, name in ((plain, "plain"), (folded, "folded"))))
    for before, after in pairs:
        found = []
        for run, given in ((before.run, x), (after.run, x), (after.invoke, raw)):
            found.append(np.concatenate([run(given[at : at + batch]) for at in range(0, 12, batch)]))
        error = np.square(found[0] - found[1]).sum() / np.square(found[0]).sum()
        assert error < 10 ** (-SNR_DB / 10), before.name
        assert np.array_equal(found[1], found[2]), "floats are the bytes that they were made of"
        assert len(np.unique(found[0])) > 12


def test_tools_that_look_into_a_file_give_it_bytes(both: tuple[str, ConvertedFiles, ConvertedFiles, Path]) -> None:
    target, plain, folded, home = both
    x = floats(CHANNELS)
    before, after = (
        tensors.read(target, home / name, each, x) for each, name in ((plain, "plain"), (folded, "folded"))
    )
    assert np.abs(before[-1].values - after[-1].values).max() < 1e-3
    assert profile.measure(target, home / "folded", folded, x[:1], 3, 120.0)


def test_a_compiled_model_still_takes_bytes(both: tuple[str, ConvertedFiles, ConvertedFiles, Path]) -> None:
    _, _, folded, home = both
    content = {name: (home / "folded" / name).read_bytes() for name in folded.names}
    blob = openvino_backend.export_compiled(content, folded.inputs, 1)
    opened = openvino_backend.open(content, folded.inputs, folded.outputs, 1)
    restored = openvino_backend.import_compiled(blob, folded.inputs, folded.outputs, 1)
    x = floats(CHANNELS)[:1]
    assert np.array_equal(opened.run(x), restored.run(x)) and np.unique(restored.run(x)).size > 1


def test_a_bundle_of_it_proves_itself_and_answers(
    both: tuple[str, ConvertedFiles, ConvertedFiles, Path], tmp_path: Path
) -> None:
    target, plain, folded, home = both
    [before] = backends(target, plain, home / "plain")[:1]
    x = floats(CHANNELS)
    scores = np.concatenate([before.run(each[None]) for each in x])
    content = {name: (home / "folded" / name).read_bytes() for name in folded.names}
    made = ModelFiles(target, content, folded.input, folded.outputs[0], 1e-3)
    fields = {"raw": RawSpec("image", PICTURES.shape[1:], "uint8"), "preprocess": CHANNELS}
    labels = [f"class {place}" for place in range(scores.shape[1])]
    manifest = manifest_for(made, labels=labels, **fields)
    bundles.write(tmp_path / "made.edge.zip", manifest, members_for(made, PICTURES, scores))
    model = load(tmp_path / "made.edge.zip", trial=False)
    assert model.selftest().ok
    for picture, expected in zip(PICTURES, scores):
        assert np.array_equal(model.prepare(picture), picture.transpose(2, 0, 1)[None])
        assert np.abs(model.predict(picture).scores - expected).max() < 1e-3


def test_a_file_with_one_scale_says_so(tiny_folder: Path, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", tiny_folder, SCALE)
    for target, module in CONVERT.items():
        files = module.convert(folder, "fp32", None, tmp_path / target, fold=True)
        assert files.folding == "folded: the input takes bytes, one scale for all"
        [backend] = backends(target, files, tmp_path / target)[:1]
        assert np.isfinite(backend.run(floats(SCALE)[:1])).all()


def test_fp16_keeps_the_numbers_of_the_steps(tiny_folder: Path, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", tiny_folder, CHANNELS)
    kept = openvino_convert.convert(folder, "fp16", None, tmp_path / "openvino", fold=True)
    assert (kept.folding, kept.input.dtype) == (HALVED, "float32")
    files = onnx_convert.convert(folder, "fp16", None, tmp_path / "onnx", fold=True)
    assert files.input.dtype == "uint8"  # its ends stay float32


def test_steps_that_cannot_be_folded_have_a_reason(tiny_folder: Path, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", tiny_folder, [{"step": "resize", "height": 8, "width": 8}, *CHANNELS])
    for target, module in CONVERT.items():
        files = module.convert(folder, "fp32", None, tmp_path / target, fold=True)
        assert files.folding == "not folded: resize is not an affine step" and files.input.dtype == "float32"


@pytest.mark.parametrize(
    ("steps", "raw", "reason"),
    [
        ([], {"dtype": "uint8", "shape": [4]}, "no step"),
        (SCALE, {"dtype": "float32", "shape": [4]}, "float32"),
        ([{"step": "normalize", "mean": [1, 2], "std": [1, 2]}], {"dtype": "uint8", "shape": [2]}, "each feature"),
        ([{"step": "scale", "factor": -1.0}], {"dtype": "uint8", "shape": [2]}, "do not increase"),
    ],
)
def test_what_is_no_scale_and_shift_is_refused(steps: list[dict[str, Any]], raw: dict[str, Any], reason: str) -> None:
    found = fold_preprocess.channel_affine(steps, {"kind": "vector", **raw})
    assert isinstance(found, str) and reason in found


def test_scale_and_shift_are_those_of_the_steps() -> None:
    found = fold_preprocess.channel_affine(CHANNELS, {"kind": "image", "shape": [8, 8, 3], "dtype": "uint8"})
    assert not isinstance(found, str)
    made = PICTURES * found.scale + found.shift
    assert np.abs(made - transform.apply(CHANNELS, PICTURES)).max() < 1e-6
