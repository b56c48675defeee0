"""What the outputs mean: every file of `edgekit/runner/postprocess/`, on real models."""

from __future__ import annotations

import importlib
import json
import pkgutil
from typing import Any

import numpy as np
import pytest

from edgekit.runner import bundle, input_path, load, postprocess
from edgekit.runner.bundle import manifest_json
from edgekit.runner.bundle.manifest import RawSpec, TensorSpec
from edgekit.runner.bundle.manifest_rules import TASKS
from edgekit.runner.cli import main
from edgekit.runner.errors import BundleError
from edgekit.runner.postprocess import multi_label
from edgekit.runner.preprocess import transform

from .conftest import ModelFiles, WriteBundle

X = np.array([0.7, 0.2, 0.1], np.float32)
GOLDEN = {"inputs": "golden/inputs.npy", "outputs": "golden/outputs.npy", "atol": 1e-5, "top1": False}


def scaled(shape: tuple[int, ...], factor: float) -> ModelFiles:
    """A network that multiplies three numbers by `factor`, its output shaped (1, *shape); its batch is free."""
    import onnx
    from onnx import helper, numpy_helper

    source = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ("batch", 3))
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ("batch", *shape))
    constants = [
        numpy_helper.from_array(np.array([factor], np.float32), "factor"),
        numpy_helper.from_array(np.array((-1, *shape), np.int64), "shape"),
    ]
    nodes = [helper.make_node("Mul", ["x", "factor"], ["z"]), helper.make_node("Reshape", ["z", "shape"], ["y"])]
    graph = helper.make_graph(nodes, "scaled", [source], [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    layout = "NC" if len(shape) == 1 else "ANY"
    specs = TensorSpec("x", (1, 3), "float32", "NC"), TensorSpec("y", (1, *shape), "float32", layout)
    return ModelFiles("onnx", {"model.onnx": model.SerializeToString()}, *specs, 1e-5)


def opened(write_bundle: WriteBundle, shape: tuple[int, ...] = (3,), factor: float = 1.0, **changes: Any) -> Any:
    raw = RawSpec("vector", (3,), "float32", (0.0, 1.0))
    fields = {"raw": raw, "preprocess": [], "golden": GOLDEN, **changes}
    path = write_bundle(scaled(shape, factor), X[None], (factor * X).reshape(1, *shape), **fields)
    return path, load(path, trial=False)


def test_every_task_has_a_file_and_every_file_is_a_task() -> None:
    assert {found.name for found in pkgutil.iter_modules(postprocess.__path__)} == set(TASKS)
    for task in TASKS:
        assert callable(importlib.import_module(f"edgekit.runner.postprocess.{task}").make_postprocessor)


def test_probabilities_are_left_as_they_are_and_logits_become_some(write_bundle: WriteBundle) -> None:
    _, model = opened(write_bundle, activation="none")
    assert [share for _, share in model.predict(X).top] == pytest.approx([0.7, 0.2, 0.1])
    _, model = opened(write_bundle, activation="softmax")
    exact = np.exp(X) / np.exp(X).sum()
    assert [share for _, share in model.predict(X).top] == pytest.approx(exact.tolist())


def test_a_regression_gives_named_values(
    write_bundle: WriteBundle, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    names = ["width_mm", "height_mm", "mass_g"]
    path, model = opened(write_bundle, factor=10.0, task="regression", activation="none", labels=names)
    assert model.predict(X).values == pytest.approx(dict(zip(names, [7.0, 2.0, 1.0], strict=True)))
    assert model.selftest().ok
    np.save(tmp_path / "x.npy", X)
    assert main(["predict", str(path), str(tmp_path / "x.npy"), "--no-trial"]) == 0
    assert "height_mm  2" in capsys.readouterr().out
    assert main(["predict", str(path), str(tmp_path / "x.npy"), "--no-trial", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["values"]["mass_g"] == pytest.approx(1.0)


def test_an_embedding_is_a_vector_of_length_one_and_a_json_list(
    write_bundle: WriteBundle, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    fields = {"task": "embedding", "activation": "none", "labels": []}
    path, model = opened(write_bundle, factor=10.0, **fields)
    exact = X.astype(np.float64) / np.linalg.norm(X.astype(np.float64))
    assert model.predict(X).embedding == pytest.approx(exact.tolist(), abs=1e-7)
    assert model.predict(X).embedding == model.predict(X / 2).embedding  # a power of two changes no digit
    assert model.selftest().ok
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "silent.npy", np.zeros(3, np.float32))
    assert main(["predict", str(path), str(tmp_path / "x.npy"), "--no-trial"]) == 0
    name, _, listed = capsys.readouterr().out.partition(": ")
    assert name.endswith("x.npy") and json.loads(listed) == model.predict(X).embedding
    assert main(["predict", str(path), str(tmp_path / "x.npy"), "--no-trial", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["embedding"] == model.predict(X).embedding
    assert main(["predict", str(path), str(tmp_path / "silent.npy"), "--no-trial"]) == 4
    message = capsys.readouterr().err
    assert message.startswith(
        f"edgerun: {tmp_path / 'silent.npy'}: the model gave a vector of zeros, which has no direct"
    )
    for wrong in ({"labels": ["a", "b", "c"]}, {"activation": "softmax"}, {"shape": (3, 1)}):
        with pytest.raises(BundleError):
            opened(write_bundle, **{**fields, **wrong})


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("batch", [[], ["--batch", "1"], ["--batch", "2"], ["--batch", "16"]])
def test_a_file_without_an_embedding_keeps_no_other_from_its_own(
    batch: list[str], options: list[str], write_bundle: WriteBundle, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    """Also of a table, whose rows behind one without an answer are not answered, as behind one that cannot be read."""
    columns = ("a", "b", "c")
    of_table = tuple(input_path.default_steps("vector", (3,), "float32", columns))
    raw = RawSpec("vector", (3,), "float32", (0.0, 1.0), None, columns, of_table)
    path, _ = opened(write_bundle, task="embedding", activation="none", labels=[], raw=raw)
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in/1.npy", X)
    np.save(tmp_path / "in/2-silent.npy", np.zeros(3, np.float32))
    (tmp_path / "in/3.csv").write_text("a,b,c\n1,0,0\n0,0,0\n0,0,0\n0,1,0\n")
    np.save(tmp_path / "in/4.npy", X)
    assert main(["predict", str(path), str(tmp_path / "in"), "--no-trial", *batch, *options]) == 4
    out, err = capsys.readouterr()
    answered = [line for line in out.splitlines() if '"error"' not in line]
    assert [name in line for name, line in zip(("1.npy", "3.csv", "4.npy"), answered, strict=True)] == 3 * [True]
    first, second, last = err.splitlines()
    assert first.startswith(f"edgerun: {tmp_path / 'in/2-silent.npy'}: the model gave a vector of zeros, ")
    assert second.startswith(f"edgerun: {tmp_path / 'in/3.csv'}, row 2: the model gave a vector of zeros, ")
    assert last == "edgerun: 2 of 4 inputs got no answer"
    assert len(out.splitlines()) == (5 if options else 3)


def test_several_labels_are_given_from_a_probability_of_one_half(
    write_bundle: WriteBundle, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    names = ["dog", "cat", "bird"]
    path, model = opened(write_bundle, factor=1.0, task="multi_label", activation="none", labels=names)
    assert model.predict(X).labels == ["dog"]
    assert model.predict(X).probabilities == pytest.approx(dict(zip(names, X.tolist(), strict=True)))
    path, model = opened(write_bundle, factor=-10.0, task="multi_label", activation="sigmoid", labels=names)
    exact = 1 / (1 + np.exp(10.0 * X.astype(np.float64)))
    assert list(model.predict(X).probabilities.values()) == pytest.approx(exact.tolist(), rel=1e-5)
    assert model.predict(X).labels == []
    assert model.selftest().ok
    np.save(tmp_path / "x.npy", X)
    assert main(["predict", str(path), str(tmp_path / "x.npy"), "--no-trial"]) == 0
    assert "none\n" in capsys.readouterr().out


@pytest.mark.parametrize("logit", [-1000.0, -1.0, 0.0, 1.0, 1000.0])
def test_a_sigmoid_is_stable(logit: float) -> None:
    with np.errstate(all="raise", under="ignore"):
        found = multi_label.sigmoid(np.array([logit], np.float32))
    assert found[0] == pytest.approx({-1000.0: 0.0, -1.0: 0.2689414, 0.0: 0.5, 1.0: 0.7310586, 1000.0: 1.0}[logit])


def test_what_is_given_back_badly_is_an_anomaly(
    write_bundle: WriteBundle, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    """A network that halves what it is given: the error is a quarter of the mean square, after preprocess."""
    steps = [{"step": "scale", "factor": 10.0}]
    fields = {"task": "anomaly", "activation": "none", "labels": ["normal", "anomaly"], "preprocess": steps}
    fields["raw"] = RawSpec("vector", (3,), "float32", (0.0, 1.0))
    made = scaled((3,), 0.5)
    path = write_bundle(made, X[None], 5 * X[None], golden=GOLDEN, threshold=4.0, **fields)
    model = load(path, trial=False)
    exact = float(np.square(5 * X.astype(np.float64)).mean())
    answer = model.predict(X)
    assert (answer.is_anomaly, answer.label) == (True, "anomaly")
    assert answer.score == pytest.approx(exact) and answer.threshold == 4.0
    assert model.predict(X / 2).is_anomaly is False
    assert model.selftest().ok
    np.save(tmp_path / "x.npy", X)
    assert main(["predict", str(path), str(tmp_path / "x.npy"), "--no-trial", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["is_anomaly"] is True and printed["score"] == pytest.approx(exact)
    assert main(["predict", str(path), str(tmp_path / "x.npy"), "--no-trial"]) == 0
    assert "mean squared error, an anomaly above 4" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["--batch", "2"]])
def test_a_sample_of_an_anomaly_task_is_preprocessed_once(
    words: list[str], write_bundle: WriteBundle, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Both the network and its answer take what the steps give."""
    counted: list[np.ndarray] = []
    make = transform._MAKERS["scale"]

    def counting(step: dict[str, Any]) -> transform.Transform:
        scale = make(step)
        return lambda x: (counted.append(x), scale(x))[1]

    monkeypatch.setitem(transform._MAKERS, "scale", counting)
    fields: dict[str, Any] = {"task": "anomaly", "activation": "none", "labels": ["normal", "anomaly"]}
    fields["raw"] = RawSpec("vector", (3,), "float32", (0.0, 1.0))
    fields["preprocess"] = [{"step": "scale", "factor": 10.0}]
    path = write_bundle(scaled((3,), 0.5), X[None], 5 * X[None], golden=GOLDEN, threshold=4.0, **fields)
    files = [str(tmp_path / f"{name}.npy") for name in "abcd"]
    for file in files:
        np.save(file, X)
    calls = []
    for some in (files[:2], files):
        counted.clear()
        assert main(["predict", str(path), *some, "--no-trial", *words]) == 0
        calls.append(len(counted))
    assert calls[1] - calls[0] == 2  # the others are those of golden samples


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"threshold": None}, "threshold"),
        ({"threshold": -1.0}, "threshold"),
        ({"labels": ["normal"]}, "labels"),
        ({"activation": "sigmoid"}, "activation"),
        ({"task": "regression", "labels": ["a", "b", "c"]}, "threshold"),
        ({"task": "multi_label", "labels": ["a", "b", "c"], "activation": "softmax", "threshold": None}, "activation"),
    ],
)
def test_a_manifest_whose_task_does_not_fit(write_bundle: WriteBundle, changes: dict[str, Any], word: str) -> None:
    fields = {"task": "anomaly", "activation": "none", "labels": ["normal", "anomaly"], "threshold": 1.0, **changes}
    with pytest.raises(BundleError, match=word):
        opened(write_bundle, **fields)


def test_only_an_anomaly_has_a_threshold_in_its_manifest(write_bundle: WriteBundle) -> None:
    path, model = opened(write_bundle)
    assert model.manifest.threshold is None
    assert b"threshold" not in manifest_json.to_json(bundle.read(path).manifest)


def test_a_raw_output_keeps_its_shape(
    write_bundle: WriteBundle, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    path, model = opened(write_bundle, shape=(3, 1), factor=2.0, task="raw", activation="none", labels=[])
    assert model.predict(X).output.shape == (3, 1)
    np.save(tmp_path / "x.npy", X)
    assert main(["predict", str(path), str(tmp_path / "x.npy"), "--no-trial", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["shape"] == [3, 1] and np.array(found["output"]).ravel() == pytest.approx([1.4, 0.4, 0.2])
    assert main(["predict", str(path), str(tmp_path / "x.npy"), "--no-trial"]) == 0
    assert "float32[3, 1], from 0.2 to 1.4" in capsys.readouterr().out
