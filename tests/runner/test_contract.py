"""What is outside the contract gets no answer; what is within becomes the same bits as in the notebook."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from edgekit.runner import inputs
from edgekit.runner.errors import InputError
from edgekit.runner.loader import load
from edgekit.runner.model import Model
from edgekit.runner.preprocess import transform

from . import flat
from .flat import PICTURE, SOUND, coded, form, predict, riff


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return flat.kinds(tmp_path_factory.mktemp("flat"))


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("kind", "sample", "word"),
    [
        ("vector", np.array([0.1, NAN, 0.3, 0.4, 0.5], np.float32), "NaN"),
        ("vector", np.array([0.1, INF, 0.3, 0.4, 0.5], np.float32), "NaN or infinity"),
        ("vector", np.array([0.1, -INF, 0.3, INF, 0.5], np.float32), "NaN or infinity"),
        ("vector", np.array([0, 255, 128, 3, 9], np.float32), "0 to 255"),
        ("vector", np.array([-0.01, 0.5, 0.5, 0.5, 0.5], np.float32), "-0.01"),
        ("vector", np.zeros(5, np.float64), "float64"),
        ("vector", np.zeros(5, np.float16), "float16"),
        ("vector", np.zeros(5, np.uint8), "uint8"),
        ("vector", np.zeros(5, ">f4"), ">f4"),
        ("vector", np.zeros(5, np.complex64), "complex64"),
        ("vector", np.zeros(6, np.float32), "[6]"),
        ("vector", np.zeros((1, 5), np.float32), "[1, 5]"),
        ("vector", np.float32(0.5), "[]"),
        ("vector", np.zeros(0, np.float32), "[0]"),
        ("pixels", np.full((4, 4, 1), 255, np.float32), "255"),
        ("pixels", np.full((4, 4, 1), 1.0001, np.float32), "1.0001"),
        ("pixels", np.full((4, 4, 1), NAN, np.float32), "NaN"),
        ("pixels", np.zeros((4, 4, 1), np.uint8), "uint8"),
        ("pixels", np.zeros((1, 4, 4), np.float32), "[1, 4, 4]"),
        ("image", np.zeros((10, 6, 3), np.uint8), "[10, 6, 3]"),
        ("image", np.zeros((6, 10, 4), np.uint8), "[6, 10, 4]"),
        ("image", np.zeros((6, 10), np.uint8), "[6, 10]"),
        ("image", np.zeros((6, 10, 3), np.int8), "int8"),
        ("image", np.zeros((6, 10, 3), bool), "bool"),
        ("image", np.zeros((6, 10, 3), np.float32), "float32"),
        ("audio", np.zeros(400, np.int16), "int16"),
        ("audio", np.full(400, 32767, np.float32), "32767"),
        ("audio", np.full(400, NAN, np.float32), "NaN"),
        ("audio", np.zeros((400, 1), np.float32), "[400, 1]"),
        ("window", np.zeros((3, 4), np.float32), "[3, 4]"),
        ("window", np.zeros((5, 3), np.float32), "[5, 3]"),
        ("window", np.zeros((4, 3), np.float64), "float64"),
        ("window", np.zeros((4, 3), np.uint8), "uint8"),
        ("window", np.full((4, 3), INF, np.float32), "NaN or infinity"),
    ],
)
def test_an_array_outside_the_contract_is_one_line_and_no_answer(
    kind: str, sample: np.ndarray, word: str, kinds: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", sample)
    for more in ([], ["--json"]):
        predict(kinds[kind], tmp_path / "x.npy", *more, code=4)
        captured = capsys.readouterr()
        assert not more or set(json.loads(captured.out)) == {"input", "error"}
        assert more or captured.out == ""
        (line,) = captured.err.strip().splitlines()
        assert line.startswith(f"edgerun: {tmp_path / 'x.npy'}: ") and word in line


@pytest.mark.parametrize(("values", "word"), [([2.0, 0.0], "2"), ([0.0, NAN], "NaN"), ([-INF, 0.0], "NaN or infinity")])
@pytest.mark.parametrize("bits", [32, 64])
def test_a_float_sound_outside_the_contract_is_no_answer(
    bits: int,
    values: list[float],
    word: str,
    kinds: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = np.zeros(400, f"<f{bits // 8}")
    data[:2] = values
    (tmp_path / "a.wav").write_bytes(riff(form(3, bits), data.tobytes()))
    predict(kinds["audio"], tmp_path / "a.wav", code=4)
    captured = capsys.readouterr()
    assert captured.out == "" and word in captured.err


def test_a_double_beyond_float32_is_no_answer(
    kinds: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.wav").write_bytes(riff(form(3, 64), np.full(400, 1e300).tobytes()))
    predict(kinds["audio"], tmp_path / "a.wav", code=4)
    assert "NaN or infinity" in capsys.readouterr().err


def test_the_loudest_whole_numbers_are_within_the_contract(kinds: dict[str, Path], tmp_path: Path) -> None:
    for bits in (8, 16, 24, 32):
        most = 2 ** (bits - 1)
        (tmp_path / "a.wav").write_bytes(riff(form(1, bits), coded([-most, most - 1] * 200, bits)))
        predict(kinds["audio"], tmp_path / "a.wav")


@pytest.fixture(scope="module")
def model(kinds: dict[str, Path]) -> Model:
    return load(kinds["vector"], trial=False)


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.floats(width=32), min_size=5, max_size=5))
def test_a_sample_is_answered_if_and_only_if_it_keeps_the_contract(values: list[float], model: Model) -> None:
    sample = np.array(values, np.float32)
    if np.isfinite(sample).all() and (sample >= 0).all() and (sample <= 1).all():
        assert model.predict(sample).label
    else:
        with pytest.raises(InputError):
            model.predict(sample)


STEPS = {
    "none": [],
    "scale": [{"step": "scale", "factor": 1 / 255}],
    "scale-normalize": [
        {"step": "scale", "factor": 1 / 255},
        {"step": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
    ],
    "normalize-one": [{"step": "normalize", "mean": [120.3], "std": [57.7]}, {"step": "scale", "factor": 0.3}],
    "grey": [{"step": "channels", "count": 1}, {"step": "scale", "factor": 1 / 127.5}],
    "resize": [{"step": "resize", "height": 5, "width": 7}, {"step": "scale", "factor": 1 / 255}],
    "all": [
        {"step": "resize", "height": 9, "width": 4},
        {"step": "channels", "count": 1},
        {"step": "scale", "factor": 1 / 255},
        {"step": "normalize", "mean": [0.45], "std": [0.22]},
    ],
}


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("name", STEPS)
def test_steps_on_the_device_equal_the_notebooks_to_the_bit(name: str, layout: str, tmp_path: Path) -> None:
    """The workbook applies them to the whole batch, the device to one sample out of a file."""
    bundle = flat.write(tmp_path / "x.edge.zip", PICTURE, STEPS[name], layout)
    model = load(bundle, trial=False)
    batch = flat.examples(PICTURE, 8)
    batch[0], batch[1] = 0, 255
    expected = transform.to_layout(transform.apply(STEPS[name], batch), layout)
    for number, sample in enumerate(batch):
        np.save(tmp_path / "x.npy", sample)
        Image.fromarray(sample).save(tmp_path / "x.png")
        for path in (tmp_path / "x.npy", tmp_path / "x.png"):
            x = model.prepare(inputs.read_first_sample(str(path), PICTURE))
            assert x.dtype == np.float32 and x.shape == (1, *expected.shape[1:])
            assert x.tobytes() == expected[number].tobytes()


def test_the_same_holds_for_sounds_and_vectors(tmp_path: Path) -> None:
    steps = [{"step": "scale", "factor": 1.7}, {"step": "normalize", "mean": [0.1], "std": [0.3]}]
    model = load(flat.write(tmp_path / "x.edge.zip", SOUND, steps), trial=False)
    whole = np.random.default_rng(2).integers(-32768, 32768, (6, 400)).astype("<i2")
    expected = transform.apply(steps, whole.astype(np.float32) / np.float32(32768))
    for row, sample in zip(expected, whole, strict=True):
        (tmp_path / "a.wav").write_bytes(riff(form(1, 16), sample.tobytes()))
        assert model.prepare(inputs.read_first_sample(str(tmp_path / "a.wav"), SOUND)).tobytes() == row.tobytes()


@pytest.mark.parametrize("key", ["tflite", "tflite-int8", "openvino", "onnx"])
def test_the_same_holds_for_every_target_quantized_or_not(key: str, bundles: dict[str, Path]) -> None:
    """A table of 256 answers may stand in for the steps; its answers are the steps'."""
    model = load(bundles[key], trial=False)
    batch = np.arange(256, dtype=np.uint8).repeat(4)[: 16 * 64].reshape(16, 8, 8, 1)
    x = transform.to_layout(transform.apply(model.manifest.preprocess, batch), model.manifest.input.layout)
    encode = model.backend.encode
    for number, sample in enumerate(batch):
        one = np.ascontiguousarray(x[number : number + 1])
        assert model.prepare(sample).tobytes() == (one if encode is None else encode(one)).tobytes()
