"""The contract of the input path: a file of the data folder, as it lies there, gets the evaluation's own scores.

Every source that reads files must hold to it, to the last bit, on every interpreter. A new one brings a folder of odd
files, in `odd_files.py`, and a line in `ODD`.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.data import Data, config_class, load, parse, source_names
from edgekit.data.texts import TextSourceConfig
from edgekit.device import pyz
from edgekit.models.from_artifact import spec_for
from edgekit.runner import bundle, input_path, inputs
from edgekit.runner.backends import open_backend
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.runner.preprocess import transform

from . import odd_files

ODD: dict[str, Callable[[Path], dict[str, object]]] = {
    "wav_folder": lambda home: odd_files.sounds(home, 300),
    "image_folder": lambda home: odd_files.pictures(home, 300),
    "csv_windows": lambda home: odd_files.recordings(home, 60),
    "csv_rows": lambda home: odd_files.rows(home, 90),
    "wav_track": lambda home: odd_files.tracks(home, 80),
    "text_folder": lambda home: odd_files.texts(home, 300),
    "text_table": lambda home: odd_files.text_table(home, 120),
}
OF_THEIR_OWN = {"boxes", "instance_masks", "keypoints", "masks", "webdataset"}
"""Boxes and masks are no scores, and a shard is no file of one sample; their own tests in `sources` hold them."""
STEPS: dict[str, list[dict[str, Any]]] = {
    "image": [{"step": "scale", "factor": 1 / 255}],
    "window": [{"step": "normalize", "mean": [0.1, 0.2, 3.0], "std": [1.1, 9.0, 99.0]}],
    "vector": [],
    "text": [],
    "audio": [
        {
            "step": "log_mel", "rate_hz": 8000, "window_samples": 200, "hop_samples": 150, "fft_samples": 256,
            "mels": 10, "low_hz": 20.0, "high_hz": 4000.0, "floor": 1e-6,
        }
    ],
}  # fmt: skip
IN_FOLDERS = ("csv_windows", "image_folder", "wav_folder")
"""Sources whose files lie in folders that are called as their classes."""
INTERPRETERS = {"onnx": "onnxruntime", "openvino": "openvino", "tflite": "litert", "tflite-int8": "litert"}


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runner") / "edgerun.pyz"
    pyz.build(path)
    return path


@pytest.fixture(scope="module", params=sorted(ODD))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Data]:
    """A source, a folder of odd files, and what training reads in it."""
    home = tmp_path_factory.mktemp(request.param) / "data"
    return request.param, home, load(parse(ODD[request.param](home)))


def all_of(data: Data) -> tuple[np.ndarray, np.ndarray]:
    splits = (data.train, data.calibration, data.validation, data.test)
    return np.concatenate([split.x for split in splits]), np.concatenate([split.y for split in splits])


def onnx_file(dense: np.ndarray, shape: tuple[int, ...], dtype: str) -> bytes:
    """One dense layer on (1, *shape)."""
    import onnx
    from onnx import helper, numpy_helper

    nodes = [
        helper.make_node("Cast", ["input"], ["numbers"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Flatten", ["numbers"], ["flat"]),
        helper.make_node("MatMul", ["flat", "dense"], ["scores"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, kind, sides)
        for name, kind, sides in (
            ("input", getattr(onnx.TensorProto, {"int32": "INT32"}.get(dtype, "FLOAT")), (1, *shape)),
            ("scores", onnx.TensorProto.FLOAT, (1, dense.shape[1])),
        )
    ]
    graph = helper.make_graph(nodes, "flat", ends[:1], ends[1:], [numpy_helper.from_array(dense, "dense")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(made.SerializeToString())


def tflite_file(dense: np.ndarray, x: np.ndarray, *, int8: bool) -> bytes:
    """The same from Keras; in int8 calibrated on `x`."""
    import tensorflow as tf

    source = tf.keras.Input(x.shape[1:], batch_size=1, dtype=str(x.dtype))
    network = tf.keras.Sequential([source, tf.keras.layers.Rescaling(1.0), tf.keras.layers.Flatten()])
    network.add(tf.keras.layers.Dense(dense.shape[1], use_bias=False))
    network.layers[-1].set_weights([dense])
    converter = tf.lite.TFLiteConverter.from_keras_model(network)
    if int8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([row[None]] for row in x[:20])
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    return bytes(converter.convert())


def network(name: str, classes: int, x: np.ndarray, folder: Path) -> dict[str, bytes]:
    """The files of a network for `x`, by the interpreter's target or `tflite-int8`."""
    size = int(np.prod(x.shape[1:]))
    dense = (np.random.default_rng(size).normal(0, 1, (size, classes)) / np.sqrt(size)).astype(np.float32)
    if name.startswith("tflite"):
        return {"model.tflite": tflite_file(dense, x, int8=name == "tflite-int8")}
    made = onnx_file(dense, x.shape[1:], str(x.dtype))
    if name == "onnx":
        return {"model.onnx": made}
    import openvino

    openvino.save_model(openvino.Core().read_model(made, b""), folder / "model.xml", compress_to_fp16=False)
    return {file: (folder / file).read_bytes() for file in ("model.xml", "model.bin")}


def evaluated(target: str, files: dict[str, bytes], ends: tuple[TensorSpec, TensorSpec], x: np.ndarray) -> np.ndarray:
    """The scores (n, classes) that an evaluation gets: the runner's own interpreter on training's arrays."""
    backend = open_backend(target, files, ends[:1], ends[1:], 1, None, "CPU")
    return np.concatenate([backend.run(x[place : place + 1]) for place in range(len(x))])


def test_every_source_that_reads_files_is_held_to_the_contract() -> None:
    decoders = set(input_path.DECODERS.values())
    reading = {
        name
        for name in source_names()
        if any(
            decoder in Path(importlib.import_module(f"edgekit.data.sources.{name}").__file__ or "").read_text()
            for decoder in decoders
        )
        or hasattr(config_class(name), "input_path")
        or issubclass(config_class(name), TextSourceConfig)
    }
    assert reading == {*ODD, *OF_THEIR_OWN}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "onnx" else [pytest.mark.numerics]) for name in INTERPRETERS]
)
def test_every_file_gets_the_evaluations_own_scores(
    name: str, case: tuple[str, Path, Data], runner: Path, tmp_path: Path
) -> None:
    """What is read is the same whatever runs it, so one interpreter shows it in `make test`."""
    source, home, data = case
    raw = RawSpec(**spec_for(data, "edgekit.models.mlp:mlp", {}, STEPS[data.kind]).raw)
    samples, labels = all_of(data)
    x = transform.to_layout(transform.apply(STEPS[data.kind], samples), "ANY")
    if name == "tflite-int8" and x.dtype == np.int32:
        return  # ids are no numbers to quantize
    files = network(name, len(data.classes), x, tmp_path)
    target = name.partition("-")[0]
    ends = (
        TensorSpec("input", (1, *x.shape[1:]), str(x.dtype), "NHWC" if x.ndim == 4 else "ANY"),
        TensorSpec("scores", (1, 3), "float32", "NC"),
    )
    scores = evaluated(target, files, ends, x)
    assert len(np.unique(scores, axis=0)) > 0.7 * len(scores)  # otherwise equality would show little
    path = packed(tmp_path / f"{name}.edge.zip", target, raw, ends, files, samples[:2], scores[:2], data)
    options = ("--json", "--no-trial", "--threads", "1", "--interpreter", INTERPRETERS[name])
    done = subprocess.run(
        [sys.executable, str(runner), "predict", str(path), str(home), *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    named = source in IN_FOLDERS
    found = Counter(
        (Path(each["input"]).parent.name if named else "", *each["scores"])
        for each in answers
        if of_training(each, data)
    )
    expected = Counter(
        (data.classes[label] if named else "", *row.tolist()) for label, row in zip(labels, scores, strict=True)
    )
    assert found == expected
    tracks = set(home.rglob("*.txt")) if source == "wav_track" else set()  # which are no samples
    assert {each["input"] for each in answers} == {str(path) for path in set(home.rglob("*.*")) - tracks}


def of_training(answer: dict[str, Any], data: Data) -> bool:
    """Of sounds that are filled up, training takes the first window alone; the device answers for the others too."""
    cut = input_path.find_step(data.input_path or (), "windows")
    return cut is None or cut["fill"] == "none" or answer["window"]["start_s"] == 0


def packed(
    path: Path, target: str, raw: RawSpec, ends: tuple[TensorSpec, TensorSpec], files: dict[str, bytes],
    samples: np.ndarray, scores: np.ndarray, data: Data,
) -> Path:  # fmt: skip
    from tests.runner.conftest import npy

    golden = {"inputs": "golden/inputs.npy", "outputs": "golden/outputs.npy", "atol": 0.0, "top1": True}
    variant, labels = f"baseline-{target}", list(data.classes)
    manifest = Manifest(
        "odd", "1.0.0", target, variant, raw, ends[:1], ends[1:], STEPS[data.kind], labels, sorted(files), golden
    )
    bundle.write(
        path, manifest, {**files, **data.members, golden["inputs"]: npy(samples), golden["outputs"]: npy(scores)}
    )
    return path


@pytest.mark.parametrize("fit", ["stretch", "crop"])
@pytest.mark.parametrize("orientation", ["apply", "ignore"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_way_to_read_a_picture_is_the_devices(fit: str, orientation: str, channels: int, tmp_path: Path) -> None:
    options = {"fit": fit, "orientation": orientation, "channels": channels}
    data = load(parse(odd_files.pictures(tmp_path / "data", 90, **options)))
    raw = RawSpec("image", (12, 12, channels), "uint8", input_path=data.input_path)
    found = Counter(inputs.read_first_sample(str(path), raw).tobytes() for path in (tmp_path / "data").rglob("*.*"))
    assert found == Counter(sample.tobytes() for sample in all_of(data)[0])


@pytest.mark.parametrize("source", sorted(set(source_names()) - {*ODD, *OF_THEIR_OWN}))
def test_arrays_are_taken_as_they_lie_in_the_data(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a source of arrays was given, saved sample by sample; not what became of it."""
    module = importlib.import_module(f".sources.test_{source}", __package__)
    data = load(parse({"source": source, **module.section(tmp_path, monkeypatch)}))
    raw = RawSpec(**spec_for(data, "edgekit.models.mlp:mlp", {}, []).raw)
    for sample in all_of(data)[0][:20]:
        np.save(tmp_path / "x.npy", sample)
        assert inputs.read_first_sample(str(tmp_path / "x.npy"), raw).tobytes() == sample.tobytes()


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("uint8", (9, 7)), ("float64", (5,)), ("float16", (5,)), ("float64", (6, 3)), ("float32", (5,))],
)
def test_arrays_of_another_form_become_what_training_made_of_them(
    dtype: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    random = np.random.default_rng(4)
    x = (random.random((40, *shape)) * 200).astype(dtype)
    np.savez(tmp_path / "data.npz", x_train=x, y_train=np.arange(40) % 2)
    data = load(parse({"source": "npz", "path": str(tmp_path / "data.npz"), "calibration_samples": 4}))
    raw = RawSpec(**spec_for(data, "edgekit.models.mlp:mlp", {}, []).raw)
    found = Counter()
    for sample in x:
        np.save(tmp_path / "x.npy", sample)
        read = inputs.read_first_sample(str(tmp_path / "x.npy"), raw)
        assert (read.shape, str(read.dtype)) == (raw.shape, raw.dtype)
        found[read.tobytes()] += 1
    assert found == Counter(sample.tobytes() for sample in all_of(data)[0])
