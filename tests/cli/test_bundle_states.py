"""`edgekit bundle` of a model with states: from PyTorch to the answers to a stream; and what is refused."""

from __future__ import annotations

import io
import json
import wave
from pathlib import Path

import numpy as np
import pytest

from edgekit.runner import bundle as bundles
from edgekit.runner import load
from edgekit.runner.bundle.manifest import StateSpec
from edgekit.runner.preprocess.transform import apply
from tests.cli.test_bundle import edgekit, last_output
from tests.runner import stepped
from tests.runner.test_states import table, values


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    path = tmp_path / "stepped.onnx"
    path.write_bytes(stepped.onnx_model())
    return path


def test_states_are_found_by_their_names(onnx_file: Path, tmp_path: Path) -> None:
    golden = table(tmp_path / "golden.csv", stepped.steps(20))
    assert (
        edgekit("bundle", onnx_file, "--golden", golden, "--task", "raw", "--columns", "a,b,c", "--out", tmp_path) == 0
    )
    assert "state       echo float32[1, 2, 3], fed back from new_echo" in last_output()
    path = tmp_path / "stepped-onnx-1.0.0.edge.zip"
    manifest = bundles.read(path).manifest
    assert manifest.states == stepped.STATES
    assert manifest.raw.steps[-1] == {"step": "windows", "length": 2, "stride": 2, "fill": "none"}
    model = load(path, trial=False, interpreter="onnxruntime")
    inputs, outputs = model.golden()
    np.testing.assert_allclose(outputs, stepped.offline(stepped.steps(20)[:16]), atol=1e-5)
    assert model.selftest().ok and len(inputs) == 16
    result = [each.prediction for each in model.predict_file(golden)]
    np.testing.assert_allclose(values(result), stepped.offline(stepped.steps(20)), atol=1e-5)


def test_samples_of_several_files_are_recorded_as_one_stream(onnx_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "golden"
    folder.mkdir()
    for number, window in enumerate(stepped.steps(3)):
        np.save(folder / f"{number}.npy", window)
    assert edgekit("bundle", onnx_file, "--golden", folder, "--task", "raw", "--out", tmp_path) == 0
    model = load(tmp_path / "stepped-onnx-1.0.0.edge.zip", trial=False, interpreter="onnxruntime")
    np.testing.assert_allclose(model.golden()[1], stepped.offline(stepped.steps(3)), atol=1e-5)


def test_other_names_are_reported(tmp_path: Path) -> None:
    import onnx

    model = onnx.load_from_string(stepped.onnx_model())
    for each in (*model.graph.output, *model.graph.node):
        for name, other in (("new_echo", "heard_last"), ("new_count", "counted")):
            if isinstance(each, onnx.ValueInfoProto):
                each.name = other if each.name == name else each.name
            else:
                each.output[0] = other if each.output[0] == name else each.output[0]
    path, golden = tmp_path / "other.onnx", table(tmp_path / "golden.csv", stepped.steps(4))
    path.write_bytes(model.SerializeToString())
    common = ("bundle", path, "--golden", golden, "--task", "raw", "--columns", "a,b,c", "--out", tmp_path)
    assert edgekit(*common) == 4
    assert (
        "has 3 outputs (heard_last, output, counted); a bundle's model has one output, besides states" in last_output()
    )
    assert edgekit(*common, "--state", "count=counted", "--state", "echo=heard_last") == 0
    states = bundles.read(tmp_path / "other-onnx-1.0.0.edge.zip").manifest.states
    assert states == (StateSpec("count", (3,), "float32", "count", "counted"),
                      StateSpec("echo", (1, 2, 3), "float32", "echo", "heard_last"))  # fmt: skip


@pytest.mark.parametrize(
    ("states", "code", "message"),
    [
        (["count"], 2, "--state: got 'count'; write INPUT=OUTPUT"),
        (["counter=new_count"], 2, "the model has no input counter; it has count, input, echo"),
        (["count=counter"], 2, "the model has no output counter; it has new_echo, output, new_count"),
        (["count=new_echo"], 4, "the state count is float32[3], and new_echo float32[1, 2, 3]"),
    ],
)
def test_pairs_that_are_none_are_refused(
    states: list[str], code: int, message: str, onnx_file: Path, tmp_path: Path
) -> None:
    golden = table(tmp_path / "golden.csv", stepped.steps(4))
    options = [word for each in states for word in ("--state", each)]
    assert edgekit("bundle", onnx_file, "--golden", golden, "--task", "raw", "--out", tmp_path, *options) == code
    assert message in last_output()
    assert not list(tmp_path.glob("*.edge.zip"))


FRAMES, MELS = 4, 8
SPECTRUM = {
    "step": "log_mel", "rate_hz": 8000, "window_samples": 256, "hop_samples": 128, "fft_samples": 256, "mels": MELS,
    "low_hz": 100.0, "high_hz": 3800.0, "floor": 1e-6,
}  # fmt: skip


def summing() -> bytes:
    """ONNX: four frames of a spectrogram, added to a state (1, mels), which is the answer too."""
    import onnx
    from onnx import helper

    def end(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("ReduceSum", ["input", "axes"], ["heard"], keepdims=0),
        helper.make_node("Add", ["heard", "sum"], ["new_sum"]),
        helper.make_node("Mul", ["new_sum", "share"], ["output"]),
    ]
    constants = [
        helper.make_tensor("axes", onnx.TensorProto.INT64, [2], [1, 2]),
        helper.make_tensor("share", onnx.TensorProto.FLOAT, [], [0.01]),
    ]
    sources = [end("input", (1, 1, FRAMES, MELS)), end("sum", (1, MELS))]
    graph = helper.make_graph(nodes, "s", sources, [end("output", (1, MELS)), end("new_sum", (1, MELS))], constants)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    )


def test_spectra_of_a_sound_go_on_from_step_to_step(tmp_path: Path) -> None:
    """No frame of the whole spectrogram is missing at the edge of two windows, and none counts twice."""
    (tmp_path / "sum.onnx").write_bytes(summing())
    pcm = (np.random.default_rng(1).normal(0, 3000, 128 * FRAMES * 10 + 128)).astype("<i2")
    with wave.open(str(tmp_path / "sound.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(pcm.tobytes())
    options = ("--task", "raw", "--sample-rate", 8000, "--preprocess", json.dumps([SPECTRUM]), "--out", tmp_path)
    code = edgekit("bundle", tmp_path / "sum.onnx", "--golden", tmp_path / "sound.wav", "--layout", "NCHW", *options)
    assert code == 0, last_output()
    model = load(tmp_path / "sum-onnx-1.0.0.edge.zip", trial=False, interpreter="onnxruntime")
    assert model.manifest.raw.steps[-1] == {"step": "windows", "length": 640, "stride": 512, "fill": "none"}
    whole = apply([SPECTRUM], (pcm / np.float32(32768))[None].astype(np.float32))[0, ..., 0]
    expected = 0.01 * np.cumsum(whole.astype(np.float64), axis=0)[FRAMES - 1 :: FRAMES]
    stream = model.stream(io.BytesIO(pcm.tobytes()), "s16le")
    assert stream.new_frames == FRAMES
    result = np.stack([each.prediction.output for each in stream])
    assert len(result) == len(expected) == 10
    np.testing.assert_allclose(result, expected, rtol=1e-4)
    again = [each.prediction.output for each in model.predict_file(tmp_path / "sound.wav")]
    np.testing.assert_allclose(np.stack(again), result, rtol=1e-6)


@pytest.mark.parametrize("target", ["tflite", "openvino", "onnx"])
def test_a_recurrent_network_goes_from_pytorch_to_a_stream(target: str, tmp_path: Path) -> None:
    import torch

    from edgekit.targets import step
    from tests.targets.test_step import CHANNELS, TIME, TOLERANCE, GruStep

    torch.manual_seed(2)
    network = GruStep().eval()
    exported = step.export(network, (TIME, CHANNELS), tmp_path / "step", [target])
    rows = np.random.default_rng(9).normal(0, 1, (60, CHANNELS)).astype(np.float32)
    columns = [f"c{number}" for number in range(CHANNELS)]
    golden = tmp_path / "golden.csv"
    lines = [",".join(columns), *(",".join(f"{value:.9g}" for value in row) for row in rows)]
    golden.write_text("\n".join(lines) + "\n")
    options = ("--labels", "a,b,c", "--columns", ",".join(columns), "--name", "gru", "--out", tmp_path)
    assert edgekit("bundle", exported[target], "--golden", golden, *options) == 0, last_output()
    with torch.inference_mode():
        logits = network.offline(torch.from_numpy(rows)[None])[0, TIME - 1 :: TIME]
    expected = torch.softmax(logits, 1).numpy()
    model = load(tmp_path / f"gru-{target}-1.0.0.edge.zip", trial=False)
    answers = list(model.stream(iter([rows])))
    assert len(answers) == len(expected) == 30
    result = np.array([[dict(each.prediction.top)[label] for label in "abc"] for each in answers])
    np.testing.assert_allclose(result, expected, atol=TOLERANCE)
