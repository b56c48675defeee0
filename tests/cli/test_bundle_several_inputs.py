"""`edgekit bundle` of models with several inputs: from the frameworks' files to answers by names; what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgekit.runner import load
from edgekit.runner.errors import InputError
from tests.cli import several_inputs as models
from tests.cli.several_inputs import TOKENS, WORDS, Arrays, write
from tests.cli.test_bundle import bundle_in, edgekit, last_output
from tests.conftest import run_edgekit

pytestmark = pytest.mark.zoo

LABELS = ("--labels", "a,b,c")
TARGETS = ("onnx", "openvino", "tflite")
ENDS = {"input_ids": f"0,{WORDS - 1}", "attention_mask": "0,1"}


def names(target: str) -> tuple[str, str]:
    """litert-torch does not keep the names of a network's arguments."""
    return ("args_0", "args_1") if target == "tflite" else ("input_ids", "attention_mask")


def ranges(target: str) -> list[str]:
    return [
        word
        for name, ends in zip(names(target), ENDS.values(), strict=True)
        for word in ("--input-range", f"{name}={ends}")
    ]


def exact(network: torch.nn.Module, sample: Arrays) -> np.ndarray:
    with torch.inference_mode():
        scores: np.ndarray = network(*(torch.from_numpy(each)[None] for each in sample.values())).numpy()[0]
    return scores


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The text classifier as a file of each target."""
    folder = tmp_path_factory.mktemp("texts")
    return {target: models.text(target, folder) for target in TARGETS}


@pytest.fixture(scope="module")
def keras(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return models.keras(tmp_path_factory.mktemp("keras"), models.keras_samples())


@pytest.fixture(scope="module")
def packed(texts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A bundle of the text classifier for each target, all ranges given."""
    folder, bundles_by_name = tmp_path_factory.mktemp("packed"), {}
    for target, path in texts.items():
        golden = write(folder / f"golden-{target}", models.text_samples(20, names(target)))
        words = ("--golden", golden, *LABELS, *ranges(target), "--out", folder / target)
        assert edgekit("bundle", path, *words) == 0, last_output()
        bundles_by_name[target] = bundle_in(folder / target)
    return bundles_by_name


@pytest.mark.parametrize(
    ("target", "interpreter"),
    [("onnx", "onnxruntime"), ("onnx", "openvino"), ("openvino", "openvino"), ("tflite", "litert")],
)
def test_a_text_classifier_answers_as_in_pytorch(target: str, interpreter: str, packed: dict[str, Path]) -> None:
    model = load(packed[target], trial=False, interpreter=interpreter)
    assert model.selftest().ok and model.selftest().vectors == 16
    tensors = model.manifest.raw.tensors or ()
    kind = "int32" if target == "tflite" else "int64"
    assert [(each["name"], each["shape"], each["dtype"]) for each in tensors] == [
        (name, [TOKENS], kind) for name in names(target)
    ]
    assert [each["range"] for each in tensors] == [[0, WORDS - 1], [0, 1]]
    network = models.seeded(models.TextClassifier)
    for sample in models.text_samples(30):
        expected = exact(network, sample)
        answer = model.predict(dict(zip(names(target), sample.values(), strict=True)))
        assert answer.label == "abc"[expected.argmax()]
        result = np.array([dict(answer.top)[label] for label in "abc"])
        np.testing.assert_allclose(result, np.exp(expected) / np.exp(expected).sum(), atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_a_word_that_is_unknown_is_refused_before_the_model_runs(target: str, packed: dict[str, Path]) -> None:
    sample = models.text_samples(1, names(target))[0]
    sample[names(target)[0]][3] = WORDS
    with pytest.raises(
        InputError, match=f"tensor {names(target)[0]}: values from .* the bundle takes 0 to {WORDS - 1}"
    ):
        load(packed[target], trial=False).predict(sample)


def test_unknown_ranges_are_reported(texts: dict[str, Path], tmp_path: Path) -> None:
    golden = write(tmp_path / "golden", models.text_samples(6))
    words = ("--golden", golden, *LABELS, "--out", tmp_path / "out")
    assert edgekit("bundle", texts["onnx"], *words, "--input-range", "attention_mask=0,1") == 0, last_output()
    assert "changed     its open batch was set to 1" in last_output()
    assert "tensor      attention_mask int64[7] from 0 to 1\n" in last_output()
    [line] = [line for line in last_output().splitlines() if line.startswith("range ")]
    assert line == (
        "range       of input_ids is not known: ids outside the model's vocabulary are not refused, and some "
        "interpreters answer them without an error; if you know it, give --input-range input_ids=LOW,HIGH"
    )
    tensors = load(bundle_in(tmp_path / "out"), trial=False).manifest.raw.tensors or ()
    assert [each["range"] for each in tensors] == [[-(2**24), 2**24], [0, 1]]


def test_all_commands_of_a_device_take_the_bundle(packed: dict[str, Path], tmp_path: Path) -> None:
    bundle = packed["onnx"]
    samples = write(tmp_path / "samples", models.text_samples(5))

    def edgerun(*words: object) -> str:
        command = [sys.executable, "-I", bundle.parent / "edgerun.pyz", *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "from a file read_tensors" in edgerun("info", bundle)
    assert "No problem found" in edgerun("doctor", bundle)
    assert "golden/inputs.npy" in edgerun("verify", bundle)
    assert "of 16 golden samples" in edgerun("selftest", bundle)
    assert "p99_ms" in edgerun("bench", bundle, "--calls", 20)
    answers = [json.loads(line) for line in edgerun("predict", bundle, samples, "--json").splitlines()]
    network = models.seeded(models.TextClassifier)
    assert [each["label"] for each in answers] == [
        "abc"[exact(network, each).argmax()] for each in models.text_samples(5)
    ]
    loaded = run_edgekit("load", str(bundle), "--scenario", "single_stream", "--seconds", "0.2")
    assert loaded.returncode == 0 and "single_stream: " in loaded.stdout, loaded.stderr


def test_the_bundle_says_how_a_sample_is_written(packed: dict[str, Path]) -> None:
    from edgekit.runner import bundle as bundles

    text = bundles.read(packed["onnx"]).members["README.md"].decode()
    assert "- Input: tensors: `input_ids int64[7] from 0 to 49`, `attention_mask int64[7] from 0 to 1`\n" in text
    assert "numpy.savez(\"sample.npz\", **{'input_ids': …, 'attention_mask': …})" in text
    assert "predict text-onnx-1.0.0.edge.zip sample.npz" in text


def bare(path: Path, sample: Arrays) -> np.ndarray:
    """The answer of the bare interpreter, each input quantized by its own scale where it has one."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        x = sample["picture" if "picture" in detail["name"] else "meta"][None]
        scale, zero = detail["quantization"]
        if scale:
            x = np.clip(np.rint(x / np.float32(scale)) + zero, -128, 127).astype(np.int8)
        interpreter.set_tensor(detail["index"], x)
    interpreter.invoke()
    detail = interpreter.get_output_details()[0]
    y, (scale, zero) = interpreter.get_tensor(detail["index"])[0].astype(np.float32), detail["quantization"]
    return (y - np.float32(zero)) * np.float32(scale) if scale else y


@pytest.mark.parametrize("place", [0, 1], ids=["float", "int8"])
def test_a_keras_model_is_asked_by_its_own_names(place: int, keras: tuple[Path, Path], tmp_path: Path) -> None:
    path, samples = keras[place], models.keras_samples()
    golden = write(tmp_path / "golden", samples)
    words = ("--golden", golden, *LABELS, "--input-range", "picture=0,1", "--out", tmp_path / "out")
    assert edgekit("bundle", path, *words) == 0, last_output()
    model = load(bundle_in(tmp_path / "out"), trial=False, interpreter="litert")
    tensors = {each["name"]: each for each in model.manifest.raw.tensors or ()}
    assert {name: (each["dtype"], each["range"]) for name, each in tensors.items()} == {
        "picture": ("float32", [0, 1]), "meta": ("float32", None),
    }  # fmt: skip
    assert ("which the model takes as int8 from " in last_output()) == bool(place)
    for sample in samples:
        model.predict(sample)
        x = np.concatenate([sample[name].reshape(-1) for name in tensors])
        assert np.array_equal(model.execute(model.prepare(x)), bare(path, sample))
    dark = {**samples[0], "picture": samples[0]["picture"] - 1}
    with pytest.raises(InputError, match="tensor picture: values from .* the bundle takes 0 to 1"):
        model.predict(dark)


def test_samples_that_one_input_cannot_hold_are_reported(keras: tuple[Path, Path], tmp_path: Path) -> None:
    """The numbers fit, the pictures were left in bytes."""
    samples = [{**each, "picture": 255 * each["picture"]} for each in models.keras_samples()]
    words = ("--golden", write(tmp_path / "golden", samples), *LABELS, "--out", tmp_path / "out")
    assert edgekit("bundle", keras[1], *words) == 2
    assert "--golden: tensor picture: the model takes int8 in steps of 0.0039" in last_output()
    assert "and the samples hold 0" in last_output() and "scale the samples as they were" in last_output()
    assert not (tmp_path / "out").exists()


def test_plain_bytes_stay_bytes(tmp_path: Path) -> None:
    network, random = models.seeded(models.BytesAndNumbers), np.random.default_rng(1)
    example = (torch.zeros(1, 4, 4, 1, dtype=torch.uint8), torch.zeros(1, 3))
    path = models.onnx(tmp_path / "bytes.onnx", network, example, ("picture", "meta"), None)
    samples = [
        {"picture": random.integers(0, 256, (4, 4, 1)).astype(np.uint8), "meta": random.normal(0, 1, 3)}
        for _ in range(8)
    ]
    words = ("--golden", write(tmp_path / "golden", samples), "--task", "raw", "--out", tmp_path / "out")
    assert edgekit("bundle", path, *words) == 0, last_output()
    assert "tensor      picture uint8[4, 4, 1] from 0 to 255\n" in last_output() and "range " not in last_output()
    model = load(bundle_in(tmp_path / "out"), trial=False)
    for each in samples:
        expected = exact(network, {name: x.astype(x.dtype if name == "picture" else "f4") for name, x in each.items()})
        np.testing.assert_allclose(model.predict(each).output, expected, atol=1e-5)  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"tensor picture: got float64\[4, 4, 1\]; the bundle takes uint8"):
        model.predict({**samples[0], "picture": samples[0]["picture"] / 255})


def test_two_pictures_are_told_apart_by_their_names(tmp_path: Path) -> None:
    network, random = models.seeded(models.Siamese), np.random.default_rng(2)
    example = (torch.zeros(1, 1, 6, 6), torch.zeros(1, 1, 6, 6))
    path = models.onnx(tmp_path / "siamese.onnx", network, example, ("left", "right"), None)
    pairs = [{name: random.random((1, 6, 6), np.float32) for name in ("left", "right")} for _ in range(8)]
    turned = [{name: each[name] for name in ("right", "left")} for each in pairs]
    words = ("--golden", write(tmp_path / "golden", turned), "--task", "regression", "--labels", "distance")
    assert edgekit("bundle", path, *words, "--out", tmp_path / "out") == 0, last_output()
    model = load(bundle_in(tmp_path / "out"), trial=False)
    for pair, other in zip(pairs, turned, strict=True):
        expected = exact(network, pair)[0]
        for sample in (pair, other):
            assert model.predict(sample).values["distance"] == pytest.approx(expected, abs=1e-5)  # type: ignore[union-attr]


def test_states_stay_states_beside_several_inputs(tmp_path: Path) -> None:
    path = tmp_path / "sum.onnx"
    path.write_bytes(models.adding({"a": (1, 3), "b": (1, 3), "total": (1, 3)}))
    samples = [{"a": np.full(3, number, np.float32), "b": np.ones(3, np.float32)} for number in range(5)]
    golden = write(tmp_path / "golden", samples)
    assert edgekit("bundle", path, "--golden", golden, "--task", "raw", "--out", tmp_path / "out") == 0, last_output()
    assert "state       total float32[1, 3], fed back from new_total" in last_output()
    model = load(bundle_in(tmp_path / "out"), trial=False)
    expected = np.cumsum(np.arange(5) + 1)
    assert [each["name"] for each in model.manifest.raw.tensors or ()] == ["a", "b"]
    assert model.golden()[1][:, 0].tolist() == expected.tolist() and model.selftest().ok
    assert [model.step(each).output[0] for each in samples] == expected.tolist()  # type: ignore[union-attr]


def test_a_classic_model_with_an_input_for_each_column(tmp_path: Path) -> None:
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = np.random.default_rng(3).normal(0, 1, (60, 3)).astype(np.float32)
    y = np.where(x[:, 0] > x[:, 1], "hot", "cold")
    scaled = ColumnTransformer([("scaled", StandardScaler(), [0, 1])], remainder="passthrough")
    pipeline = make_pipeline(scaled, LogisticRegression()).fit(x, y)
    kinds = [(name, FloatTensorType([None, 1])) for name in "abc"]
    (tmp_path / "pipe.onnx").write_bytes(to_onnx(pipeline, initial_types=kinds, target_opset=17).SerializeToString())
    rows = [dict(zip("abc", row.reshape(3, 1), strict=True)) for row in x]
    words = ("--golden", write(tmp_path / "golden", rows), "--out", tmp_path / "out")
    assert edgekit("bundle", tmp_path / "pipe.onnx", *words) == 0, last_output()
    model = load(bundle_in(tmp_path / "out"), trial=False)
    assert [model.predict(row).label for row in rows] == pipeline.predict(x).tolist()


def test_inputs_without_names_get_those_of_their_nodes(tmp_path: Path) -> None:
    import openvino
    from openvino import opset13 as op

    remaining, right = (op.parameter([-1, 3], np.float32, name=name) for name in ("left", "right"))
    model = openvino.Model([op.subtract(remaining, right).output(0)], [remaining, right])
    for port in model.inputs:
        port.get_tensor().set_names(set())
    openvino.save_model(model, tmp_path / "bare.xml")
    samples = [{"left": np.full(3, number, np.float32), "right": np.ones(3, np.float32)} for number in range(4)]
    words = ("--golden", write(tmp_path / "golden", samples), "--task", "raw", "--out", tmp_path / "out")
    assert edgekit("bundle", tmp_path / "bare.xml", *words) == 0, last_output()
    model = load(bundle_in(tmp_path / "out"), trial=False)
    assert [model.predict(each).output[0] for each in samples] == [-1, 0, 1, 2]


def test_an_open_length_is_reported_with_a_line_that_fixes_it(tmp_path: Path) -> None:
    path = models.text("onnx", tmp_path, {0: "batch", 1: "sequence"})
    golden = write(tmp_path / "golden", models.text_samples(4))
    words = ("--golden", golden, *LABELS, "--out", tmp_path / "out")
    assert edgekit("bundle", path, *words) == 4
    assert "input input_ids: its shape [1, ?] is open; export the model with a fixed one" in last_output()
    assert "ovc MODEL --input input_ids[1,SIZE]" in last_output() and "--size" not in last_output()
    message = last_output().partition("(ONNX: ")[2].partition(";")[0].split()
    meant = {"python": sys.executable, "NAME": "sequence", "SIZE": str(TOKENS), "MODEL": str(path)}
    fixed = tmp_path / "fixed.onnx"
    subprocess.run(
        [{**meant, "FIXED": str(fixed)}.get(word, word) for word in message], check=True, capture_output=True
    )
    assert edgekit("bundle", fixed, *words) == 0, last_output()


def two(tmp_path: Path, shapes: dict[str, Any] | None = None, outputs: int = 1) -> tuple[object, ...]:
    """The words for a small model of two inputs, if not of others, with samples of two."""
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "sum.onnx"
    path.write_bytes(models.adding(shapes or {"a": (1, 3), "b": (1, 3)}, outputs))
    golden = write(tmp_path / "golden", [{"a": np.ones(3, np.float32), "b": np.ones(3, np.float32)}] * 2)
    return ("bundle", path, "--golden", golden, "--task", "raw", "--out", tmp_path / "out")


@pytest.mark.parametrize(
    "words",
    [
        ("--preprocess", "[{step: scale, factor: 0.1}]"),
        ("--kind", "image"),
        ("--size", "3x3"),
        ("--layout", "NHWC"),
        ("--sample-rate", "8000"),
        ("--columns", "a,b,c"),
        ("--dtype", "float32"),
        ("--range", "0,1"),
    ],
    ids=lambda words: words[0],
)
def test_options_of_a_single_input_are_refused_with_the_reason(words: tuple[str, str], tmp_path: Path) -> None:
    assert edgekit(*two(tmp_path), *words) == 2
    assert last_output().startswith(f"edgekit: {words[0]}") and last_output().count("\n") == 1
    assert "the model has 2 inputs (a, b)" in last_output() and "leave" in last_output()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["c=0,1"], "--input-range c: the model has no such input; it has a, b"),
        (["a"], "got 'a'; use NAME=LOWEST,HIGHEST, such as input_ids=0,30521"),
        (["a=1,0"], "got 'a=1,0'; use NAME=LOWEST,HIGHEST"),
        (["a=0,nan"], "got 'a=0,nan'; use NAME=LOWEST,HIGHEST"),
        (["=0,1"], "got '=0,1'; use NAME=LOWEST,HIGHEST"),
        (["a=0,1e39"], "got 0,1e+39; the largest range of float32 is -3.40282347e+38,3.40282347e+38"),
        (["a=0,1", "a=0,2"], "--input-range: a has two ranges; give it one"),
    ],
)
def test_ranges_that_are_none_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    assert edgekit(*two(tmp_path), *(word for each in words for word in ("--input-range", each))) == 2
    assert message in last_output() and last_output().count("\n") == 1


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ("0,0.5", "got 0,0.5; the input is int64, so use whole numbers"),
        ("0,99999999", "got 0,99999999; the largest range of int64 is -16777216,16777216"),
    ],
)
def test_integers_have_ranges_of_integers(limits: str, message: str, texts: dict[str, Path], tmp_path: Path) -> None:
    golden = write(tmp_path / "golden", models.text_samples(2))
    words = ("--golden", golden, *LABELS, "--out", tmp_path / "out", "--input-range", f"input_ids={limits}")
    assert edgekit("bundle", texts["onnx"], *words) == 2
    assert message in last_output()


def test_options_of_several_inputs_are_refused_for_one(tmp_path: Path) -> None:
    words = two(tmp_path, {"a": (1, 3)})
    assert edgekit(*words, "--input-range", "a=0,1") == 2
    assert "--input-range a: the model has one input; use --range LOW,HIGH" in last_output()
    assert edgekit(*words, "--kind", "tensors") == 2
    assert "--kind tensors: the model has one input; leave it out" in last_output()
    assert edgekit(*two(tmp_path / "again"), "--kind", "tensors") == 0, last_output()


@pytest.mark.parametrize(
    ("shapes", "outputs", "message"),
    [
        ({"a": (1, 3), "b": (1, 3)}, 2, "has 2 outputs (output_0, output_1); a bundle's model has one output"),
        ({"a": (1, 3), "b": ("n",)}, 1, "input b: takes [?]; each of several inputs must have a batch of 1"),
        ({"a": (4, 3), "b": (4, 3)}, 1, "input a: its shape is [4, 3]; export the model with a batch of 1"),
    ],
)
def test_models_that_a_bundle_cannot_hold(shapes: dict[str, Any], outputs: int, message: str, tmp_path: Path) -> None:
    assert edgekit(*two(tmp_path, shapes, outputs)) == 4
    assert message in last_output() and last_output().count("\n") == 1


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"a": np.ones(3, np.float32)}, "tensors: got a; give a, b"),
        ({"a": np.ones((1, 3), np.float32), "b": np.ones(3, np.float32)}, "tensor a: got float32[1, 3]; the bundle"),
        ({"a": np.ones(3, int), "b": np.ones(3, np.float32)}, "tensor a: got int64[3]; the bundle takes float32[3]"),
        ({"a": np.full(3, np.nan, np.float32), "b": np.ones(3, np.float32)}, "holds NaN or infinity"),
    ],
)
def test_samples_that_do_not_fit_are_named(sample: Arrays, message: str, tmp_path: Path) -> None:
    words = two(tmp_path)
    np.savez(tmp_path / "golden" / "01.npz", **sample)  # type: ignore[arg-type]
    assert edgekit(*words) == 4
    assert f"{tmp_path / 'golden' / '01.npz'}: " in last_output() and message in last_output()
    assert not (tmp_path / "out").exists()
