"""`edgekit init --model` for sounds and tables: their scale, their length and their spectrograms come from evidence."""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.runner.preprocess import transform
from edgekit.workbook.plan import load_plan
from tests.cli.test_init import edgekit, write_config

RATE_HZ, SECONDS = 8000, 0.25
LEVELS = {"soft": (500, 0.02), "middle": (500, 0.1), "loud": (500, 0.5), "high": (1500, 0.1)}
"""Frequency and amplitude of the tone of each class. Three of them differ in loudness only."""
TONES = {"a": (250, 0.3), "b": (325, 0.3), "c": (400, 0.3), "d": (480, 0.3)}
"""Tones so close that only the right bands distinguish them."""
COLUMNS = {"mass_g": 2000.0, "height_m": 0.1, "count": 7.0}
"""Features of a table, with their typical size."""


def save(path: Path, nodes: list[Any], shape: Sequence[int], constants: dict[str, np.ndarray], classes: int) -> Path:
    arrays = {
        name: values.astype(np.int64 if name.endswith("_shape") else np.float32) for name, values in constants.items()
    }
    graph = helper.make_graph(
        nodes,
        "nearest",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, classes])],
        [numpy_helper.from_array(values, name) for name, values in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def nearest(features: np.ndarray) -> dict[str, np.ndarray]:
    """Weights with which the highest score is that of the nearest of the features, (classes, numbers)."""
    return {"weights": 2 * features.T, "bias": -(features**2).sum(axis=1)}


def tone(frequency: float, level: float, phase: float) -> np.ndarray:
    samples = np.arange(round(RATE_HZ * SECONDS)) / RATE_HZ
    return (level * np.sin(2 * np.pi * frequency * samples + phase)).astype(np.float32)


def sounds_folder(home: Path, classes: dict[str, tuple[int, float]] = LEVELS, each: int = 16) -> Path:
    for split, count in (("train", each), ("test", each // 4)):
        for name, (frequency, level) in classes.items():
            folder = home / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                sound = tone(frequency, level, 0.1 * number + 0.05 * (split == "test"))
                with wave.open(str(folder / f"{number:02}.wav"), "wb") as file:
                    file.setnchannels(1)
                    file.setsampwidth(2)
                    file.setframerate(RATE_HZ)
                    file.writeframes(np.rint(32767 * sound).astype("<i2").tobytes())
    return home


def table(path: Path, rows: int = 120) -> np.ndarray:
    """Write a table of three classes that differ in size, and return their means after standardisation."""
    random = np.random.default_rng(0)
    kinds = np.arange(rows) % 3
    centres = np.array([[1.0], [1.2], [1.4]]) * list(COLUMNS.values())
    x = centres[kinds] * (1 + 0.02 * random.normal(size=(rows, 3)))
    lines = [",".join([*(f"{value:.5f}" for value in row), "abc"[kind]]) for row, kind in zip(x, kinds, strict=True)]
    path.write_text("\n".join([",".join([*COLUMNS, "label"]), *lines]))
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    return np.stack([z[kinds == kind].mean(axis=0) for kind in range(3)])


def test_a_table_is_standardised_if_the_model_needs_that(tmp_path: Path) -> None:
    means = table(tmp_path / "rows.csv")
    nodes = [helper.make_node("Gemm", ["x", "weights", "bias"], ["logits"])]
    save(tmp_path / "net.onnx", nodes, (1, 3), nearest(means), 3)
    values = write_config("--model", tmp_path / "net.onnx", "--data", tmp_path / "rows.csv", out=tmp_path)
    assert values["data"]["source"] == "csv_rows" and values["data"]["columns"] == list(COLUMNS)
    [step] = values["preprocess"]
    assert step["step"] == "normalize" and step["mean"] == pytest.approx([2400, 0.12, 8.4], rel=0.05)
    assert values["preprocess_tried"]["tried"][0]["input"] == "standardised"


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    table(tmp_path / "rows.csv")
    nodes = [helper.make_node("Gemm", ["x", "weights", "bias"], ["logits"])]
    save(tmp_path / "net.onnx", nodes, (1, 5), nearest(np.ones((3, 5))), 3)
    done = edgekit("init", "mine", "--model", tmp_path / "net.onnx", "--data", tmp_path / "rows.csv", "--out", tmp_path)
    assert done.exit_code == 2 and "takes [1, 5], but the table has 3 columns of numbers" in done.output, done.output


@pytest.mark.parametrize("scale", [1.0, 32768.0])
def test_the_scale_of_a_waveform_is_found(scale: float, tmp_path: Path) -> None:
    sounds_folder(tmp_path / "data")
    length = round(RATE_HZ * SECONDS)
    powers = np.array([(scale * tone(*each, 0.0)) ** 2 for each in LEVELS.values()]).mean(axis=1)
    crossings = np.array([(np.diff(np.sign(tone(*each, 0.1))) != 0).mean() for each in LEVELS.values()])
    features = np.stack([np.log10(powers), 20 * crossings], axis=1)
    order = np.argsort(list(LEVELS))  # classes are sorted by name
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["squares"]),
        helper.make_node("ReduceMean", ["squares", "axis_shape"], ["power"], keepdims=1),
        helper.make_node("Log", ["power"], ["log"]),
        helper.make_node("Mul", ["log", "to_ten"], ["level"]),
        helper.make_node("Sign", ["x"], ["signs"]),
        helper.make_node("Slice", ["signs", "first_shape", "last_shape", "axis_shape"], ["early"]),
        helper.make_node("Slice", ["signs", "second_shape", "end_shape", "axis_shape"], ["late"]),
        helper.make_node("Sub", ["late", "early"], ["jumps"]),
        helper.make_node("Abs", ["jumps"], ["sizes"]),
        helper.make_node("ReduceMean", ["sizes", "axis_shape"], ["rate"], keepdims=1),
        helper.make_node("Mul", ["rate", "ten"], ["crossings"]),
        helper.make_node("Concat", ["level", "crossings"], ["features"], axis=1),
        helper.make_node("Gemm", ["features", "weights", "bias"], ["logits"]),
    ]
    constants = {
        "axis_shape": np.array([1]),
        "first_shape": np.array([0]),
        "last_shape": np.array([length - 1]),
        "second_shape": np.array([1]),
        "end_shape": np.array([length]),
        "to_ten": np.array(1 / np.log(10)),
        "ten": np.array(10.0),
        **nearest(features[order]),
    }
    save(tmp_path / "net.onnx", nodes, (1, length), constants, len(LEVELS))
    values = write_config("--model", tmp_path / "net.onnx", "--data", tmp_path / "data", out=tmp_path)
    assert values["preprocess"] == ([] if scale == 1 else [{"step": "scale", "factor": 32768.0}])
    assert (values["data"]["rate_hz"], values["data"]["seconds"]) == (RATE_HZ, SECONDS)


def test_the_steps_of_a_spectrogram_are_found(tmp_path: Path) -> None:
    sounds_folder(tmp_path / "data", TONES)
    step = {
        "step": "log_mel", "rate_hz": RATE_HZ, "window_samples": 240, "hop_samples": 160, "fft_samples": 512,
        "mels": 20, "low_hz": 125.0, "high_hz": 4000.0, "floor": 1e-6,
    }  # fmt: skip
    pictures = transform.apply([step], np.stack([tone(*each, 0.0) for each in TONES.values()]))
    nodes = [
        helper.make_node("ReduceMean", ["x", "axis_shape"], ["spectrum"], keepdims=0),
        helper.make_node("Gemm", ["spectrum", "weights", "bias"], ["logits"]),
    ]
    constants = {"axis_shape": np.array([1, 3]), **nearest(pictures.mean(axis=(1, 3)))}
    save(tmp_path / "net.onnx", nodes, (1, *pictures.shape[1:]), constants, len(TONES))
    values = write_config("--model", tmp_path / "net.onnx", "--data", tmp_path / "data", out=tmp_path)
    assert load_plan(tmp_path / "mine.yaml").run.preprocess == [step]
    assert values["data"]["seconds"] == SECONDS


def test_an_input_that_no_sound_fills_is_refused(tmp_path: Path) -> None:
    sounds_folder(tmp_path / "data", each=4)
    nodes = [helper.make_node("Gemm", ["x", "weights", "bias"], ["logits"])]
    save(tmp_path / "net.onnx", nodes, (1, 13), nearest(np.ones((4, 13))), 4)
    done = edgekit("init", "mine", "--model", tmp_path / "net.onnx", "--data", tmp_path / "data", "--out", tmp_path)
    assert done.exit_code == 2 and "takes [1, 13], but 0.25 s at 8000 Hz" in done.output, done.output
