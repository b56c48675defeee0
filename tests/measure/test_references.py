"""Reference models of relative limits: one that crashes or rejects the samples is reported before it is timed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.core.config import Budget
from edgekit.core.errors import EdgekitError, ModelError
from edgekit.data import load
from edgekit.measure import references
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY

LIMIT = "budget.latency_p50={ratio: 0.6, of: theirs.onnx}"


def linear(path: Path, *shape: int) -> Path:
    """A linear classifier of ten classes for samples (1, *shape)."""
    weights = np.random.default_rng(0).normal(size=(int(np.prod(shape)), 10)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def rivals_of(path: Path) -> dict[str, references.ReferenceFile]:
    plan = load_plan(TINY, [f"benchmark.rivals=[{{path: {path}}}]", LIMIT])
    budget: Budget = plan.run.budget
    return references.open_reference_files(budget, ["onnx"], load(plan.data).withhold_test())


def test_a_reference_model_is_opened_as_its_limit_names_it(tmp_path: Path) -> None:
    path = linear(tmp_path / "theirs.onnx", 1, 32, 32)
    [(name, result)] = rivals_of(path).items()
    assert (name, result.path, result.kind, result.classes) == ("theirs.onnx", str(path), "onnx", 10)


def test_a_file_that_is_no_model_is_reported_by_a_process_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "theirs.onnx"
    path.write_bytes(b"\x08\x07\x12\x04none" + bytes(99))
    with pytest.raises(ModelError, match=r"theirs\.onnx"):
        rivals_of(path)


def test_a_reference_model_of_other_samples_is_reported(tmp_path: Path) -> None:
    with pytest.raises(EdgekitError, match=r"theirs\.onnx.*9, 9"):
        rivals_of(linear(tmp_path / "theirs.onnx", 1, 9, 9))
