"""The error of a converter, reported as operator, layer, cause and alternative."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.core.errors import ConversionError
from edgekit.models.files import onnx as source
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.targets import error_causes, jobs
from edgekit.targets.error_causes import ConversionFailure
from edgekit.targets.openvino import convert as openvino
from edgekit.targets.tflite import convert as tflite
from tests.zoo.entries import ENTRIES


def failed(name: str, target: object, tmp_path: Path) -> ConversionFailure:
    next(entry for entry in ENTRIES if entry.name == name).save(tmp_path / "model")
    with pytest.raises(Exception) as caught:
        target.convert(tmp_path / "model", "fp32", None, tmp_path / "made")  # type: ignore[attr-defined]
    return error_causes.classify(caught.value, tmp_path / "model")


def test_an_operator_that_a_target_has_not(tmp_path: Path) -> None:
    found = failed("Spectrum", tflite, tmp_path)
    assert (found.kind, found.operator) == ("operator", "_fft_r2c")
    assert found.layer == "the network's own forward" and found.place.startswith("networks.py:")
    assert "Only 1D FFT" in found.cause and "before the network" in found.alternative
    assert found.describe().startswith("_fft_r2c: NotImplementedError: Only 1D FFT")


def test_control_flow_that_depends_on_values(tmp_path: Path) -> None:
    found = failed("Branching", tflite, tmp_path)
    assert found.kind == "control flow" and found.place.startswith("networks.py:")
    assert "torch.where" in found.describe()


@pytest.mark.zoo
def test_a_window_that_is_too_large(tmp_path: Path) -> None:
    found = failed("EfficientNet, transformers", openvino, tmp_path)
    assert found.kind == "shape" and "AdaptiveAvgPool2d(1)" in found.describe()


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("No conversion rule found for operations: aten::linalg_svd", "operator"),
        ("Lowering not found: aten.special_bessel_j0.default", "operator"),
        ("Could not extract specialized integer from data-dependent expression u0", "control flow"),
        ("'tfl.batch_matmul' op found invalid output rank, expected 3 but got 4", "shape"),
        ("Cannot view a tensor with shape torch.Size([16, 16, 2, 8]) and strides (256, 8, 128, 1)", "shape"),
        ("Output tensors of a Functional model must be the output of a TensorFlow `Layer`", "operator"),
        ("Eager execution of tf.constant with unsupported shape. Tensor [[[0.1]]]", "operator"),
        ("Failed to find proper ai.onnx domain", "operator"),
        ("No module named 'onnx2tf.ops.TreeEnsembleRegressor'", "operator"),
        ("Quantization parameter shared mode is not supported for weight yet", "operator"),
        ("the moon is full", "other"),
    ],
)
def test_other_words(words: str, kind: str) -> None:
    found = error_causes.classify(RuntimeError(f"first line\n{words}\nlast line"))
    assert found.kind == kind
    assert "\n" not in found.describe() and found.alternative in found.describe()


def test_the_innermost_error_is_reported() -> None:
    try:
        try:
            raise KeyError("the cause")
        except KeyError as inner:
            raise RuntimeError("around it") from inner
    except RuntimeError as error:
        assert "KeyError: 'the cause'" in error_causes.classify(error).describe()


def test_a_row_for_a_record_holds_what_is_known() -> None:
    found = error_causes.classify(RuntimeError("No conversion rule found for operations: aten::linalg_svd"))
    row = found.row()
    assert (row["kind"], row["operator"], row["layer"], row["place"]) == ("operator", "linalg_svd", None, None)
    assert row["cause"] in row["reason"] and row["reason"].endswith(row["advice"] or "?")
    assert ConversionFailure.from_cause("process", "it died").row()["advice"] is None


@pytest.mark.parametrize(
    ("takes", "names", "instead"),
    [
        ("input Sub/y Sqrt/x", "", "the samples have one tensor; the converter made inputs of the network's own const"),
        ("a b c", "a b", "the converter made inputs of the network's own constants"),
        ("a", "a b", "let the network use every tensor"),
        ("", "", "let the network use every tensor"),
        ("a serving:b", "a b", "give the tensors shorter, plain names"),
    ],
)
def test_inputs_that_are_not_the_samples_are_reported_with_their_cause(takes: str, names: str, instead: str) -> None:
    found = [TensorSpec(name, (1, 2), "float32", "NC") for name in takes.split()]
    with pytest.raises(ConversionError, match=instead):
        jobs.inputs_in_order(found, names.split())


def forest(path: Path) -> None:
    """One tree of two leaves, as libraries of trees export it."""
    import onnx
    from onnx import TensorProto, helper

    nodes = {"nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0] * 3,
             "nodes_values": [0.5, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
             "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0]}  # fmt: skip
    leaves = {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 1], "target_weights": [1.0, 1.0]}
    tree = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=2, **nodes, **leaves)
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])] for name, size in (("x", 4), ("y", 2))]
    graph = helper.make_graph([tree], "forest", *ends)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)], ir_version=9), path)


def test_trees_in_an_onnx_file_are_reported_in_one_sentence(tmp_path: Path) -> None:
    forest(tmp_path / "forest.onnx")
    with pytest.raises(Exception) as caught:
        source.tflite(tmp_path / "forest.onnx", "fp32", None, (4,))
    found = error_causes.classify(caught.value)
    assert found.kind == "operator" and "not trees" in found.describe() and "\n" not in found.describe()
