from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.runner import load
from edgekit.runner.bundle.manifest import RawSpec, TensorSpec
from edgekit.runner.errors import BackendError, BundleError, InputError, SelftestError
from edgekit.runner.postprocess.classification import softmax

from .conftest import LABELS, NCHW, SCORES, ModelFiles, WriteBundle, npy, onnx_model, reference, samples

KEYS = ["tflite", "tflite-int8", "openvino", "onnx"]


@pytest.mark.parametrize("key", KEYS)
def test_predict_gives_labels_probabilities_and_times(
    key: str, bundles: dict[str, Path], models: dict[str, ModelFiles]
) -> None:
    model = load(bundles[key])
    image = samples()[0]
    scores = reference(image[None])[0]
    found = model.predict(image, top_k=2)
    np.testing.assert_allclose(found.scores, scores, atol=models[key].atol)
    exact = np.exp(scores) / np.exp(scores).sum()
    assert found.index == int(scores.argmax())
    assert found.label == LABELS[found.index] == found.top[0][0]
    assert len(found.top) == 2
    for label, probability in found.top:
        assert probability == pytest.approx(exact[LABELS.index(label)], abs=0.1 if "int8" in key else 1e-4)
    assert set(found.timing_ms) == {"preprocess", "execute", "postprocess"}
    assert all(0 < value < 1000 for value in found.timing_ms.values())
    assert len(model.predict(image, top_k=99).top) == len(LABELS)


@pytest.mark.parametrize("key", KEYS)
def test_selftest_passes_on_what_was_recorded(
    key: str, bundles: dict[str, Path], models: dict[str, ModelFiles]
) -> None:
    report = load(bundles[key], threads=2).selftest()
    assert report.ok
    assert report.vectors == 16
    assert 0 < report.max_abs_delta <= models[key].atol
    assert report.to_dict()["interpreter"] == report.interpreter


def test_selftest_fails_on_another_model_with_the_same_shape(
    models: dict[str, ModelFiles], write_bundle: WriteBundle
) -> None:
    other = ModelFiles(
        "onnx", {"model.onnx": onnx_model(bias=np.array([9.0, 0.0, 0.0], np.float32))}, NCHW, SCORES, 1e-4
    )
    path = write_bundle(other)
    with pytest.raises(SelftestError, match="golden samples"):
        load(path)
    report = load(path, trial=False).selftest()
    assert not report.ok
    assert report.max_abs_delta > 5
    assert report.top1_agreement < 1


def test_a_changed_label_order_fails_even_within_the_tolerance(
    models: dict[str, ModelFiles], write_bundle: WriteBundle
) -> None:
    images = samples()
    scores = reference(images)
    flipped = scores.copy()
    flipped[0] = np.roll(flipped[0], 1)
    golden = {"inputs": "golden/inputs.npy", "outputs": "golden/outputs.npy", "atol": 1e3, "top1": True}
    assert not load(write_bundle(models["onnx"], scores=flipped, golden=golden), trial=False).selftest().ok
    assert load(write_bundle(models["onnx"], scores=flipped, golden={**golden, "top1": False})).selftest().ok


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (np.zeros((8, 8, 3), np.uint8), "[8, 8, 3]"),
        (np.zeros((1, 8, 8, 1), np.uint8), "[1, 8, 8, 1]"),
        (np.zeros((8, 8, 1), np.float32), "float32"),
        (np.zeros((8, 8, 1), np.int64), "int64"),
        ([[1, 2], [3, 4]], "list"),
    ],
)
def test_a_sample_that_is_not_as_promised_is_refused(raw: object, word: str, bundles: dict[str, Path]) -> None:
    with pytest.raises(InputError) as caught:
        load(bundles["onnx"]).predict(raw)  # type: ignore[arg-type]
    assert word in str(caught.value)
    assert "uint8[8, 8, 1]" in str(caught.value)


@pytest.mark.parametrize("top_k", [0, -1, True, 2.0])
def test_a_wrong_top_k_is_refused(top_k: object, bundles: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="top_k"):
        load(bundles["onnx"]).predict(samples(1)[0], top_k=top_k)  # type: ignore[arg-type]


@pytest.fixture
def vectors(write_bundle: WriteBundle) -> Path:
    """A classifier of float vectors: three scores that are the logarithms of the three features."""
    import onnx
    from onnx import helper

    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 3)) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Log", ["x"], ["y"])], "log", values[:1], values[1:])
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    spec = TensorSpec("x", (1, 3), "float32", "NC")
    made = ModelFiles("onnx", {"model.onnx": network.SerializeToString()}, spec, SCORES, 1e-5)
    inputs = np.array([[1, 2, 5], [3, 2, 1]], np.float32)
    return write_bundle(
        made, images=inputs, scores=np.log(inputs), raw=RawSpec("vector", (3,), "float32"), preprocess=[]
    )


def test_vectors_are_classified(vectors: Path) -> None:
    model = load(vectors)
    assert model.selftest().ok
    found = model.predict(np.array([1, 2, 5], np.float32))
    assert [label for label, _ in found.top] == ["star", "square", "circle"]
    assert [probability for _, probability in found.top] == pytest.approx([5 / 8, 2 / 8, 1 / 8])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused(vectors: Path, bad: float) -> None:
    with pytest.raises(InputError, match="NaN or infinity"):
        load(vectors).predict(np.array([1, bad, 5], np.float32))


@pytest.mark.parametrize("feature", [-1.0, 0.0])
def test_scores_that_are_no_numbers_are_never_an_answer(vectors: Path, feature: float) -> None:
    with pytest.raises(BackendError, match="NaN or infinite scores"):
        load(vectors).predict(np.array([1, feature, 5], np.float32))


@pytest.mark.parametrize(
    "outputs", [b"no array", npy(np.zeros((16, 4), np.float32)), npy(np.full((16, 3), np.nan, np.float32))]
)
def test_golden_vectors_that_make_no_sense_are_refused(
    outputs: bytes, models: dict[str, ModelFiles], tmp_path: Path
) -> None:
    from edgekit.runner import bundle

    from .conftest import manifest_for, members_for

    members = {**members_for(models["onnx"], samples(), reference(samples())), "golden/outputs.npy": outputs}
    bundle.write(tmp_path / "x.edge.zip", manifest_for(models["onnx"]), members)
    with pytest.raises(BundleError, match="golden"):
        load(tmp_path / "x.edge.zip").selftest()


def test_softmax_is_stable_and_sums_to_one() -> None:
    scores = np.array([1000.0, 1001.0, -1000.0], np.float32)
    probabilities = softmax(scores)
    assert probabilities.sum() == pytest.approx(1.0)
    assert probabilities.tolist() == pytest.approx([1 / (1 + np.e), np.e / (1 + np.e), 0.0])


def test_equal_scores_go_to_the_first_label(write_bundle: WriteBundle) -> None:
    nothing = {"dense": np.zeros((3, 4), np.float32), "bias": np.zeros(3, np.float32)}
    flat = ModelFiles("onnx", {"model.onnx": onnx_model(**nothing)}, NCHW, SCORES, 1e-4)
    assert [label for label, _ in load(write_bundle(flat), trial=False).predict(samples(1)[0]).top] == LABELS


def test_importing_the_runner_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\nimport edgekit.runner\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "assert new - {'edgekit'} <= sys.stdlib_module_names, new\n"
        "assert callable(edgekit.runner.load) and 'onnxruntime' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
