"""An ONNX file is the same model after its long names, remarks and unused operator sets are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgekit.models import store
from edgekit.runner.operators import onnx as operators
from edgekit.targets import evaluate, profile
from edgekit.targets.jobs import ConvertedFiles
from edgekit.targets.locate import first_divergence
from edgekit.targets.onnx import convert, slim_names
from tests.targets import slim_models

MODELS = tuple(slim_models.BODIES)
EXACT = "session.x64quantprecision"
KINDS = {"tensor(float)": "float32", "tensor(bool)": "bool"}


def session(content: bytes, exact: str = "0") -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry(EXACT, exact)
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def answers(content: bytes, seed: int) -> dict[str, np.ndarray]:
    opened = session(content)
    ports = [
        (each.name, tuple(side if isinstance(side, int) else 2 for side in each.shape), KINDS[each.type])
        for each in opened.get_inputs()
    ]
    found = opened.run(None, slim_models.random_inputs(ports, seed))
    return dict(zip([each.name for each in opened.get_outputs()], found, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_what_a_file_may_hold_gives_the_same_bits(name: str) -> None:
    content = slim_models.onnx_model(name)
    short = slim_names.shorten(content)
    onnx.checker.check_model(onnx.load_model_from_string(short), full_check=True)
    for seed in (0, 1):
        before, after = answers(content, seed), answers(short, seed)
        assert list(before) == list(after)
        assert all(np.array_equal(before[each], after[each]) and before[each].any() for each in before)
    assert slim_names.shorten(short) == short == slim_names.shorten(content)
    assert b"_tensor" in content and b"long_name" in content and b"_tensor" not in short and b"long_name" not in short


@pytest.mark.parametrize("name", MODELS)
def test_the_ends_stay_as_they_are(name: str) -> None:
    before, after = (
        onnx.load_model_from_string(each).graph
        for each in (slim_models.onnx_model(name), slim_names.shorten(slim_models.onnx_model(name)))
    )
    for side in ("input", "output"):
        assert list(getattr(before, side)) == list(getattr(after, side))  # names, types, free axes


def test_operator_sets_that_no_operator_is_of_are_not_asked_for() -> None:
    content = slim_models.onnx_model("loop")
    assert dict(operators.read(content).opsets).keys() == {"ai.onnx", "com.microsoft", "ai.onnx.ml"}
    assert operators.read(slim_names.shorten(content)).opsets == (("ai.onnx", 18),)


def test_names_stay_apart_however_many_there_are() -> None:
    """Two digits are needed, and an input already has a short name."""
    from onnx import TensorProto, helper

    count = 200
    names = ["a", *(f"tensor_{place}" for place in range(count)), "b"]
    nodes = [helper.make_node("Neg", [one], [other]) for one, other in zip(names, names[1:], strict=False)]
    ends = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [1, 3]) for each in ("a", "b")]
    model = helper.make_model(
        helper.make_graph(nodes, "chain", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    )
    graph = onnx.load_model_from_string(slim_names.shorten(model.SerializeToString())).graph
    made = [node.output[0] for node in graph.node]
    assert len(set(made)) == len({node.name for node in graph.node}) == count + 1 and "a" not in made
    assert {len(each) for each in made} == {1, 2}


def test_a_models_own_functions_keep_what_they_say() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18, "own" : 1]>
        named_graph (float[1, 3] x) => (float[1, 3] y) { inner_tensor = own.twice(x)  y = Relu(inner_tensor) }
        <domain: "own", opset_import: ["" : 18]>
        twice (given_tensor) => (result_tensor) { result_tensor = Add(given_tensor, given_tensor) }"""
    content = onnx.parser.parse_model(text).SerializeToString()
    short = slim_names.shorten(content)
    x = np.array([[1, -2, 3]], dtype=np.float32)
    assert np.array_equal(session(short).run(None, {"x": x})[0], [[2, 0, 6]])
    assert b"given_tensor" in short and b"inner_tensor" not in short


@pytest.fixture(scope="module", params=convert.PRECISIONS)
def both(
    request: Any, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ConvertedFiles, Path, Path]:
    """A network's file with its names, and as it ships, each in its folder."""
    inputs = np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32)
    home = tmp_path_factory.mktemp("names")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slim_names, "shorten", lambda content: content)
        files = convert.convert(tiny_folder, request.param, inputs, home / "long")
    assert convert.convert(tiny_folder, request.param, inputs, home / "short") == files
    return request.param, files, home / "long", home / "short"


def test_a_network_gives_the_same_bits_from_fewer_bytes(both: tuple[str, ConvertedFiles, Path, Path]) -> None:
    _, files, *folders = both
    inputs = np.random.default_rng(1).normal(size=(20, 3, 8, 8)).astype(np.float32)
    for batch in (1, 4) if files.free_batch else (1,):
        long, short = (evaluate.file_outputs("it", "onnx", each, files, inputs, batch) for each in folders)
        assert np.array_equal(long, short) and len(np.unique(long)) > 20
    long_bytes, short_bytes = ((folder / convert.FILE).read_bytes() for folder in folders)
    assert len(short_bytes) < len(long_bytes) - 300
    assert b"stem.0" in long_bytes and b"stem.0" not in short_bytes


def test_a_processor_whose_sums_would_overflow_opens_the_short_one(
    both: tuple[str, ConvertedFiles, Path, Path],
) -> None:
    """There ONNX Runtime writes the weights anew, and stumbles over zero points that several operators share."""
    session((both[3] / convert.FILE).read_bytes(), exact="1")


def test_tools_that_look_into_a_file_take_the_short_one(
    both: tuple[str, ConvertedFiles, Path, Path], tiny_folder: Path, tmp_path: Path
) -> None:
    precision, files, long, short = both
    inputs = np.random.default_rng(1).normal(size=(8, 3, 8, 8)).astype(np.float32)
    kinds = [
        {(row["operator"], row["calls"]) for row in profile.measure("onnx", each, files, inputs[:1], 5, 120.0)}
        for each in (long, short)
    ]
    assert kinds[0] == kinds[1] != set()
    if precision in ("fp32", "int8"):
        module, spec = store.load(tiny_folder)
        module.get_parameter("deep.0.weight").data.mul_(-1)
        store.save(tmp_path / "wrong", module, spec)
        found = first_divergence.find(tmp_path / "wrong", "onnx", short, files, inputs, precision)
        assert found.layer == "deep.0", found.message
