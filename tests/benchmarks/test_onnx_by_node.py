"""Every operator of an ONNX file as ONNX Runtime runs it gets its row, and the cuts compute what the whole does."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks import onnx_by_node
from edgekit.models import store
from edgekit.runner.backends import onnxruntime as runner
from edgekit.targets.onnx import convert

SIDES = 3, 8, 8


@pytest.fixture(scope="module", params=["fp32", "int8"])
def content(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    home = tmp_path_factory.mktemp(request.param)
    spec = store.ModelSpec(
        builder="edgekit.models.resnet:resnet",
        kwargs={"depth": 8, "width": 8},
        input_shape=SIDES,
        num_classes=4,
        classes=tuple("abcd"),
        raw={"kind": "image", "shape": [8, 8, 3], "dtype": "uint8"},
    )
    store.save(home / "model", store.build(spec, seed=1), spec)
    inputs = np.random.default_rng(0).normal(size=(8, *SIDES)).astype(np.float32)
    convert.convert(home / "model", request.param, inputs, home / "out")
    return (home / "out" / convert.FILE).read_bytes()


def test_each_operator_has_a_row(content: bytes) -> None:
    model, _ = onnx_by_node.optimised(content)
    rows, beside_us = onnx_by_node.measure(content, None, rounds=3)
    assert [row.kind for row in rows] == [node.op_type for node in model.graph.node] and beside_us is None
    assert rows[-1].until_us == pytest.approx(sum(row.adds_us for row in rows)) and rows[-1].until_us > 0


def test_the_last_cut_is_the_whole_and_others_end_sooner(content: bytes) -> None:
    model, x = onnx_by_node.optimised(content)
    count = len(model.graph.node)
    whole, last = (
        runner.session(each, onnxruntime.SessionOptions()).run(None, {"input": x})[0]
        for each in (content, onnx_by_node.cut(model, count))
    )
    assert np.allclose(last, whole)
    for places in range(1, count):
        part = onnx.load_model_from_string(onnx_by_node.cut(model, places))
        assert len(part.graph.node) == places and model.graph.node[places - 1].output[0] in {
            one.name for one in part.graph.output
        }
