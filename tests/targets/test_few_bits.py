"""4-bit weights and 16-bit activations: what each target's file holds, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from convert_runs import spec_of

from edgekit.core.errors import ConfigError, ConversionError
from edgekit.models import store
from edgekit.runner import bundle, load
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.stages.convert import ConvertConfig, numerics
from edgekit.targets import LOW_BIT_PRECISIONS, evaluate, precisions
from edgekit.targets.jobs import ConvertedFiles
from edgekit.targets.onnx import convert as onnx_target
from edgekit.targets.openvino import convert as openvino_target
from edgekit.targets.tflite import convert as tflite_target
from tests.runner.conftest import ModelFiles, manifest_for, members_for

CONVERT = {"tflite": tflite_target.convert, "openvino": openvino_target.convert, "onnx": onnx_target.convert}
INPUTS = np.random.default_rng(0).normal(size=(60, 64)).astype(np.float32)
IMAGES = np.random.default_rng(0).normal(size=(20, 3, 24, 24)).astype(np.float32)


def saved(folder: Path, builder: str, shape: tuple[int, ...]) -> Path:
    spec = spec_of(builder, shape=shape)
    store.save(folder, store.build(spec, seed=1), spec)
    return folder


def convert_and_compare(
    folder: Path, target: str, precision: str, inputs: np.ndarray
) -> tuple[ConvertedFiles, int, numerics.Agreement]:
    """The file, its bytes, and how near its answers are to the network's."""
    out = folder / f"{precision}-{target}"
    files = CONVERT[target](folder, precision, inputs, out)
    outputs = evaluate.file_outputs(precision, target, out, files, inputs)
    size = sum((out / name).stat().st_size for name in files.names)
    return files, size, numerics.compare(evaluate.torch_outputs(folder, inputs), outputs)


def test_int4_dense_is_smaller_on_every_target_and_still_answers(tmp_path: Path) -> None:
    folder = saved(tmp_path / "wide", "wide", (64,))
    for target, eight in (("tflite", "int8"), ("openvino", "w8"), ("onnx", "int8")):
        _, before, _ = convert_and_compare(folder, target, eight, INPUTS)
        _, after, agreement = convert_and_compare(folder, target, "int4_dense", INPUTS)
        assert after < 0.75 * before, target
        assert agreement.snr_db > 12, target


def test_int4_of_tflite_reaches_convolutions_and_int4_dense_leaves_them(tmp_path: Path) -> None:
    folder = saved(tmp_path / "tiny", "tiny", (3, 24, 24))
    kinds = {precision: weights(folder, precision) for precision in ("int8", "int4", "int4_dense")}
    assert set(kinds["int8"]) == {"INT8"}
    assert set(kinds["int4"]) == {"INT4"}
    assert set(kinds["int4_dense"]) == {"INT8", "INT4"} and kinds["int4_dense"]["INT4"] == 1


def weights(folder: Path, precision: str) -> Counter[str]:
    """Types of the weights of convolutions and dense layers."""
    from ai_edge_litert import schema_py_generated as schema

    from edgekit.targets import float_ops

    convert_and_compare(folder, "tflite", precision, IMAGES)
    content = (folder / f"{precision}-tflite" / "model.tflite").read_bytes()
    names = {value: name for name, value in vars(schema.TensorType).items() if not name.startswith("_")}
    operators = float_ops.tflite_operators(content)
    return Counter(
        names[graph.tensors[op.inputs[1]].type] for _, graph, op, kind in operators if kind in float_ops.TFLITE_WEIGHTED
    )


def test_int16x8_takes_and_gives_int16_and_is_nearer_to_float_than_int8(tmp_path: Path) -> None:
    folder = saved(tmp_path / "tiny", "tiny", (3, 24, 24))
    files, _, fine = convert_and_compare(folder, "tflite", "int16x8", IMAGES)
    _, _, coarse = convert_and_compare(folder, "tflite", "int8", IMAGES)
    assert {files.inputs[0].dtype, files.outputs[0].dtype} == {"int16"}
    assert fine.snr_db > coarse.snr_db


def test_onnx_keeps_convolutions_in_int8_beside_a_dense_layer_in_4_bits(tmp_path: Path) -> None:
    folder = saved(tmp_path / "tiny", "tiny", (3, 24, 24))
    convert_and_compare(folder, "onnx", "int4_dense", IMAGES)
    graph = onnx.load(folder / "int4_dense-onnx" / "model.onnx").graph
    kinds = Counter(node.op_type for node in graph.node)
    assert kinds["MatMulNBits"] == 1 and kinds["QuantizeLinear"] > 0 and not kinds["Gemm"]


@pytest.mark.parametrize("precision", ["int8", *LOW_BIT_PRECISIONS])
def test_a_file_of_every_precision_becomes_a_bundle_that_answers(precision: str, tmp_path: Path) -> None:
    folder = saved(tmp_path, "dense", (64,))
    files, _, _ = convert_and_compare(folder, "tflite", precision, INPUTS)
    content = {name: (tmp_path / f"{precision}-tflite" / name).read_bytes() for name in files.names}
    scores = evaluate.torch_outputs(folder, INPUTS[:8])
    model = ModelFiles("tflite", content, files.input, files.outputs[0], float(np.ptp(scores)) / 4)
    raw, labels = RawSpec("vector", (64,), "float32"), [str(place) for place in range(scores.shape[1])]
    manifest = manifest_for(model, raw=raw, preprocess=[], labels=labels)
    bundle.write(tmp_path / "made.edge.zip", manifest, members_for(model, INPUTS[:8], scores))
    assert load(tmp_path / "made.edge.zip", trial=False).selftest().max_abs_delta <= model.atol


def test_its_tool_turns_on_no_log_of_the_process() -> None:
    code = (
        "from edgekit.targets.onnx.rewrites import store_in_4_bits; from tests.runner.conftest import onnx_model; "
        "assert b'MatMulNBits' in store_in_4_bits(onnx_model())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "INFO" not in done.stderr + done.stdout


@pytest.mark.parametrize("target", ["tflite", "openvino", "onnx"])
def test_a_network_without_a_dense_layer_is_refused(tmp_path: Path, target: str) -> None:
    folder = saved(tmp_path / "convolutions", "convolutions", (3, 24, 24))
    with pytest.raises(ConversionError, match=r"leave\s+int4_dense\s+out of convert.precisions"):
        CONVERT[target](folder, "int4_dense", IMAGES, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("precision", ["int4", "int16x8"])
def test_targets_without_kernels_are_refused_by_name(precision: str) -> None:
    config = ConvertConfig(targets=["onnx", "openvino"], precisions=["fp32", precision])
    with pytest.raises(ConfigError, match=f"got {precision}, and no interpreter of targets onnx, openvino .* tflite"):
        config.check_consistency()
    ConvertConfig(targets=["onnx", "tflite"], precisions=["fp32", precision]).check_consistency()


def test_none_of_them_is_made_unless_it_is_named() -> None:
    assert not set(ConvertConfig().precisions) & set(LOW_BIT_PRECISIONS)
    assert {each for target in CONVERT for each in precisions(target)} >= set(LOW_BIT_PRECISIONS)
