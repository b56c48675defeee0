"""Classic models as ONNX: the label and the ZipMap leave, the scores stay what the model's own library says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core.errors import ConfigError, ModelError
from edgekit.models.files import onnx as onnx_files
from edgekit.models.files import onnx_classic
from edgekit.runner.backends import open_backend
from edgekit.runner.errors import BackendError
from edgekit.workbook.plan import load_plan
from tests.models.files import classic

TOLERANCE = 1e-6
"""Of a probability: float32 sums over the trees, against the library's own, mostly in float64."""
LOOSER = {"support vectors": 1e-4, "naive Bayes": 2e-4, "line": 1e-5}


@pytest.fixture(params=classic.MAKERS)
def case(request: pytest.FixtureRequest) -> tuple[str, classic.ModelFile]:
    return request.param, classic.model_file(request.param)


def answers(path: Path, x: np.ndarray) -> np.ndarray:
    """What the runner's own ONNX Runtime gives for each row alone."""
    files, sources, [result] = onnx_files.on_device(path)
    backend = open_backend("onnx", files, sources, (result,))
    return np.concatenate([backend.run(row[None]) for row in x])


def test_a_thousand_rows_get_the_answers_of_the_models_own_library(
    case: tuple[str, classic.ModelFile], tmp_path: Path
) -> None:
    name, made = case
    path = tmp_path / "model.onnx"
    path.write_bytes(made.content)
    x = classic.samples(classic.ROWS, 2)
    found, own = answers(path, x), made.own(x)
    assert found.shape == own.shape and found.dtype == np.float32
    assert np.abs(found - own).max() <= LOOSER.get(name, TOLERANCE)
    if made.classes:
        clear = np.sort(own, axis=1)[:, -1] - np.sort(own, axis=1)[:, -2] > 2 * LOOSER.get(name, TOLERANCE)
        assert (found.argmax(axis=1) == own.argmax(axis=1))[clear].all()


def test_lightgbm_may_differ_where_a_value_lies_on_a_threshold(tmp_path: Path) -> None:
    """Of values with few decimals: LightGBM compares in float64, and its converter rounds thresholds to float32."""
    made = classic.lightgbm(3, decimals=4)
    path = tmp_path / "model.onnx"
    path.write_bytes(made.content)
    x = classic.samples(classic.ROWS, 2, decimals=4)
    off = np.abs(answers(path, x) - made.own(x)).max(axis=1)
    assert (off > TOLERANCE).mean() < 0.01


def test_removed_operators_are_reported_and_the_classes_are_named(case: tuple[str, classic.ModelFile]) -> None:
    name, made = case
    found = onnx_classic.read(made.content)
    assert found.classes == made.classes
    if name in classic.REGRESSORS:
        assert found.content == made.content and not found.changes and found.is_regressor
        return
    assert not found.is_regressor
    change = found.changes[0]
    assert change.startswith("its label (") and "removed" in change
    assert ("its ZipMap" in change) == ("no ZipMap" not in name and "XGBoost" not in name)


def test_read_twice_it_is_the_same(case: tuple[str, classic.ModelFile]) -> None:
    once = onnx_classic.read(case[1].content)
    again = onnx_classic.read(once.content)
    assert again.content == once.content and not again.changes


def test_openvino_and_tflite_are_refused_with_the_operators(tmp_path: Path) -> None:
    path = tmp_path / "forest.onnx"
    path.write_bytes(classic.model_file("forest").content)
    for target in ("openvino", "tflite"):
        assert "only ONNX Runtime runs TreeEnsembleClassifier (ai.onnx.ml)" in onnx_files.refusal(path, target)
    assert onnx_files.refusal(path, "onnx") == ""
    assert "no quantizer supports TreeEnsembleClassifier" in onnx_files.float_only(path)
    files, sources, [result] = onnx_files.on_device(path)
    with pytest.raises(BackendError, match="openvino cannot open the model"):
        open_backend("onnx", files, sources, (result,), interpreter="openvino")


def test_a_perceptron_is_left_with_standard_operators_alone(tmp_path: Path) -> None:
    path = tmp_path / "perceptron.onnx"
    path.write_bytes(classic.model_file("perceptron").content)
    assert onnx_files.refusal(path, "openvino") == onnx_files.float_only(path) == ""
    files, sources, [result] = onnx_files.on_device(path)
    x = classic.samples(20, 3)
    openvino = open_backend("onnx", files, sources, (result,), interpreter="openvino")
    given = np.concatenate([openvino.run(row[None]) for row in x])
    assert np.abs(given - classic.model_file("perceptron").own(x)).max() < 1e-5


def test_a_config_that_asks_for_other_targets_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "forest.onnx").write_bytes(classic.model_file("forest").content)
    text = "name: forest\ndata: {source: npz, path: d.npz}\nmodel: {source: forest.onnx}\n"
    config = tmp_path / "forest.yaml"
    for named in ("[openvino, tflite]", "[openvino, onnx]"):
        config.write_text(f"{text}targets: {named}\n")
        with pytest.raises(ConfigError, match=r"cannot be converted to any of \['openvino'.* TreeEnsembleClassifier"):
            load_plan(config)
    for rest in ("", "targets: [onnx]\n"):
        config.write_text(text + rest)
        assert load_plan(config).source == tmp_path / "forest.onnx"


def fitted(model: Any, y: np.ndarray) -> tuple[Any, bytes]:
    """A model of scikit-learn, fitted to `y`, and its file."""
    from skl2onnx import to_onnx

    x = classic.samples(400, 1)
    model.fit(x, y)
    return model, to_onnx(model, x[:1], target_opset={"": 17, "ai.onnx.ml": 3}).SerializeToString()


@pytest.mark.parametrize("name", ["SVC", "NuSVC"])
def test_support_vectors_of_two_classes_answer_as_their_label_does(name: str, tmp_path: Path) -> None:
    """Without probabilities, ONNX Runtime gives their two scores the opposite sign."""
    from sklearn import svm

    y = np.array(["no", "yes"])[classic.classes_of(classic.samples(400, 1), 2)]
    model, content = fitted(getattr(svm, name)(), y)
    (tmp_path / "model.onnx").write_bytes(content)
    rows = classic.samples(100, 2)
    read = onnx_classic.read(content)
    labels = np.array(read.classes)[answers(tmp_path / "model.onnx", rows).argmax(axis=1)]
    assert np.array_equal(labels, model.predict(rows)) and len(set(labels)) == 2
    assert any("negated" in change for change in read.changes)


def test_support_vectors_of_three_classes_say_that_ties_are_broken_otherwise(tmp_path: Path) -> None:
    """Of its votes, scikit-learn takes the first class of a tie, and the runner the largest score."""
    from sklearn.svm import SVC

    model, content = fitted(SVC(), classic.classes_of(classic.samples(400, 1), 3))
    (tmp_path / "model.onnx").write_bytes(content)
    rows = classic.samples(1000, 2)
    labels = answers(tmp_path / "model.onnx", rows).argmax(axis=1)
    assert (labels == model.predict(rows)).mean() >= 0.99
    assert any("because the model breaks ties differently" in each for each in onnx_classic.read(content).changes)


def by_least(above: float) -> bytes:
    """A file whose label is the class of the largest of three scores; above that first feature, of the least."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node(
            "LinearClassifier", ["x"], ["unused", "scores"], domain="ai.onnx.ml", classlabels_ints=[0, 1, 2],
            coefficients=[1.0, 0.0, 0.0, 1.0, -1.0, -1.0], intercepts=[0.0, 0.0, 0.0],
        ),
        helper.make_node("ArgMin", ["scores"], ["least"], axis=1, keepdims=0),
        helper.make_node("ArgMax", ["scores"], ["largest"], axis=1, keepdims=0),
        helper.make_node("Gather", ["x", "place"], ["first"], axis=1),
        helper.make_node("Greater", ["first", "above"], ["is_above"]),
        helper.make_node("Where", ["is_above", "least", "largest"], ["label"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "least",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, [None]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, 3]),
        ],
        [
            numpy_helper.from_array(np.array(0, np.int64), "place"),
            numpy_helper.from_array(np.array(above, np.float32), "above"),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return content


def test_scores_that_do_not_decide_the_label_are_refused() -> None:
    content = by_least(above=-np.inf)
    with pytest.raises(ModelError, match=r"differs from its label for \d+ of 1000 .*CalibratedClassifierCV"):
        onnx_classic.read(content)


@pytest.mark.parametrize("kind", ["forest", "one against the rest", "perceptron"])
def test_several_labels_at_once_are_refused(kind: str) -> None:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.neural_network import MLPClassifier

    models = {
        "forest": RandomForestClassifier(5, random_state=0),
        "one against the rest": OneVsRestClassifier(LogisticRegression(max_iter=2000)),
        "perceptron": MLPClassifier((4,), max_iter=20, random_state=0),
    }
    y = (classic.samples(400, 1)[:, :3] > 0).astype(int)
    with pytest.raises(ModelError, match="holds 3 labels for each sample, but a bundle answers with one"):
        onnx_classic.read(fitted(models[kind], y)[1])


def test_several_values_have_the_shape_that_comes_out(tmp_path: Path) -> None:
    """skl2onnx declares one value for a forest of several."""
    from sklearn.ensemble import RandomForestRegressor

    x = classic.samples(400, 1)
    model, content = fitted(RandomForestRegressor(5, random_state=0), np.c_[classic.values_of(x), x[:, 1]])
    (tmp_path / "model.onnx").write_bytes(content)
    rows = classic.samples(100, 2)
    assert np.abs(answers(tmp_path / "model.onnx", rows) - model.predict(rows)).max() < 1e-5


def one_column(classes: bool, sigmoid: bool) -> bytes:
    """A tree of one split, -0.3 below 0 and 1.5 above; `classes`: with the label of two classes."""
    from onnx import TensorProto, helper

    tree = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["margin"], domain="ai.onnx.ml", n_targets=1, nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_values=[0.0, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        nodes_missing_value_tracks_true=[0, 0, 0], nodes_hitrates=[1.0, 1.0, 1.0], target_treeids=[0, 0],
        target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[-0.3, 1.5],
    )  # fmt: skip
    end = helper.make_node("Sigmoid" if sigmoid else "Identity", ["margin"], ["score"])
    nodes, ends = [tree, end], [helper.make_tensor_value_info("score", TensorProto.FLOAT, [None, 1])]
    names = helper.make_tensor("names", TensorProto.STRING, [2], [b"no", b"yes"])
    zero = helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.5 if sigmoid else 0.0])
    if classes:
        nodes += [
            helper.make_node("Greater", ["score", "zero"], ["above"]),
            helper.make_node("Cast", ["above"], ["place"], to=TensorProto.INT64),
            helper.make_node("ArrayFeatureExtractor", ["names", "place"], ["label"], domain="ai.onnx.ml"),
        ]
        ends = [helper.make_tensor_value_info("label", TensorProto.STRING, None), *ends]
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])
    graph = helper.make_graph(nodes, "tree", [source], ends, [names, zero] if classes else [])
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.ml", 3)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


@pytest.mark.parametrize(("sigmoid", "change"), [(True, "its single probability p"), (False, "its single margin z")])
def test_one_column_of_two_classes_becomes_two(sigmoid: bool, change: str, tmp_path: Path) -> None:
    path = tmp_path / "tree.onnx"
    path.write_bytes(one_column(True, sigmoid))
    found = onnx_classic.read(path.read_bytes())
    assert found.classes == ("no", "yes")
    assert len(found.changes) == 2 and change in found.changes[1]
    scores = answers(path, np.array([[-1, 0], [1, 0]], np.float32))
    margins = np.array([-0.3, 1.5])
    share = 1 / (1 + np.exp(-margins))
    expected = np.stack([1 - share, share], 1) if sigmoid else np.stack([0 * margins, margins], 1)
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_a_regressors_probability_is_two_classes_only_where_it_is_asked() -> None:
    assert not onnx_classic.read(one_column(False, True)).changes
    [change] = onnx_classic.read(one_column(False, True), True).changes
    assert "[1 - p, p]" in change
    assert not onnx_classic.read(one_column(False, False), True).changes


def test_other_models_keep_their_bytes() -> None:
    from tests.runner.conftest import onnx_model

    content = onnx_model()
    found = onnx_classic.read(content, True)
    assert found.content is content and found == onnx_classic.ClassicModel(content)
