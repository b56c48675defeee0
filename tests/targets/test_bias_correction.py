"""Rounding the weights of an edge detector moves the mean of its outputs, and its bias takes that back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from convert_runs import spec_of
from torch import nn

from edgekit.models import store
from edgekit.models.spec import Source
from edgekit.stages.convert import numerics
from edgekit.targets import bias_correction, evaluate
from edgekit.targets.bias_correction import GRIDS, PLAIN, Grid, correct, correct_jobs, rounding_error
from edgekit.targets.jobs import ConversionJob, ConversionStep, Quantization
from edgekit.targets.onnx import convert as onnx_convert

SHAPE = (3, 16, 16)
BRIGHT = np.random.default_rng(0).normal(3.0, 0.05, (20, *SHAPE)).astype(np.float32)
HALVED = GRIDS["openvino", "int8"]


def save(folder: Path, builder: str = "convolutions", edges: bool = True) -> Path:
    """Save a network whose first layer detects edges, which bright and even samples do not have."""
    spec = spec_of(builder, shape=SHAPE)
    module = store.build(spec, seed=1)
    if edges:
        first = next(part for part in module.modules() if isinstance(part, nn.Conv2d))
        with torch.no_grad():
            first.weight -= first.weight.mean((1, 2, 3), keepdim=True)
            first.weight *= 10
    store.save(folder, module, spec)
    return folder


def lost_db(folder: Path, float_folder: Path, grid: Grid = PLAIN) -> float:
    """The SNR of a network with rounded weights relative to that in `float_folder`."""

    def change(module: nn.Module) -> nn.Module:
        layers = [part for part in module.modules() if isinstance(part, (nn.Conv2d, nn.Linear))]
        for layer, levels in zip(layers, (grid[0], *[grid[1]] * len(layers)), strict=False):
            error = rounding_error(layer.weight.detach().numpy(), levels)
            layer.weight.data = layer.weight.data + torch.from_numpy(error)
        return module

    reference = evaluate.torch_outputs(float_folder, BRIGHT)
    return numerics.compare(reference, evaluate.torch_outputs(folder, BRIGHT, change)).snr_db


@pytest.mark.parametrize("grid", [PLAIN, HALVED])
@pytest.mark.parametrize("builder", ["convolutions", "tiny"], ids=["bias", "batch norm"])
def test_corrected_biases_take_back_what_rounding_shifts(tmp_path: Path, builder: str, grid: Grid) -> None:
    plain, corrected = save(tmp_path / "plain", builder), tmp_path / "corrected"
    assert correct(plain, BRIGHT, corrected, grid, min_shift=0.0) > 0
    assert lost_db(corrected, plain, grid) > lost_db(plain, plain, grid) + 6


def test_weights_stay_as_they_are(tmp_path: Path) -> None:
    correct(save(tmp_path / "plain"), BRIGHT, tmp_path / "corrected")
    before, after = (store.load(tmp_path / name)[0].state_dict() for name in ("plain", "corrected"))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"0.bias", "2.bias"}


def test_a_network_without_a_large_shift_is_left_alone(tmp_path: Path) -> None:
    even = BRIGHT - 3
    assert correct(save(tmp_path / "plain", edges=False), even, tmp_path / "corrected") == 0
    assert not (tmp_path / "corrected").exists()


def test_an_onnx_file_is_corrected_as_its_network_is(tmp_path: Path) -> None:
    network = save(tmp_path / "network")
    files = onnx_convert.convert(network, "fp32", None, tmp_path / "file")
    spec = store.read_spec(network)
    source = Source(kind="onnx", file=files.names[0])
    from_file = spec.model_copy(update={"builder": None, "kwargs": {}, "source": source})
    store.save_source(tmp_path / "saved", tmp_path / "file" / files.names[0], from_file)
    shares = [correct(tmp_path / name, BRIGHT, tmp_path / f"corrected-{name}", HALVED) for name in ("network", "saved")]
    assert shares[0] == pytest.approx(shares[1], rel=1e-3)
    outputs = [evaluate.torch_outputs(tmp_path / f"corrected-{name}", BRIGHT) for name in ("network", "saved")]
    np.testing.assert_allclose(*outputs, rtol=1e-3, atol=1e-4)


def test_only_files_whose_weights_are_all_rounded_alike_are_made_from_corrected_biases(tmp_path: Path) -> None:
    network = save(tmp_path / "network")
    kept = Quantization(keep_float=("0",))

    def job(target: str, **methods: str) -> ConversionJob:
        steps = [
            ConversionStep(name, method, network, tmp_path / f"{name}-{target}", quantization=kept)  # type: ignore[arg-type]
            for name, method in methods.items()
        ]
        return ConversionJob("baseline", target, tmp_path / "calibration.npy", tuple(steps))

    jobs = [
        job("openvino", fp32="float", int8="ptq", w8="ptq"),
        job("onnx", int8="mixed", dynamic="ptq"),
        job("tflite", int8="qat", w8="ptq", int4="ptq"),
    ]
    corrected = correct_jobs(jobs, BRIGHT, tmp_path)
    folders = {step.out.name: step.corrected for each in corrected.jobs for step in each.steps if step.corrected}
    assert corrected.note.startswith("baseline: rounding its weights to int8 moves the mean of a channel by up to ")
    assert set(folders) == {"int8-openvino", "w8-openvino", "w8-tflite"}
    assert len(set(folders.values())) == 3, "each of them rounds differently"
    assert all(store.read_spec(folder) == store.read_spec(network) for folder in folders.values())
    assert ConversionJob.from_json(corrected.jobs[0].to_json()) == corrected.jobs[0]


def test_a_step_that_corrects_biases_itself_is_left_alone(tmp_path: Path) -> None:
    network, own = save(tmp_path / "network"), Quantization(bias_correction=True)
    jobs = [
        ConversionJob(
            "baseline", target, tmp_path, (ConversionStep("int8", "ptq", network, tmp_path / target, quantization=own),)
        )
        for target in ("openvino", "tflite")
    ]
    openvino, tflite = correct_jobs(jobs, BRIGHT, tmp_path).jobs
    assert openvino == jobs[0] and tflite.steps[0].corrected, "TFLite offers no correction of its own"


def test_weights_that_a_grid_holds_exactly_need_no_folder(tmp_path: Path) -> None:
    network = save(tmp_path / "network")
    module, spec = store.load(network)
    with torch.no_grad():
        for layer in (part for part in module.modules() if isinstance(part, (nn.Conv2d, nn.Linear))):
            layer.weight.copy_((layer.weight / layer.weight.abs().max() * 127).round())
            layer.weight.flatten(1)[:, 0] = -128
    store.save(network, module, spec)
    step = ConversionStep("w8", "ptq", network, tmp_path / "out")
    [job] = correct_jobs([ConversionJob("baseline", "openvino", tmp_path, (step,))], BRIGHT, tmp_path).jobs
    assert job.steps == (step,)


class Norms(nn.Module):
    """Two convolutions without biases, and batch norms that do not follow only one of them."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order
        self.one, self.other = (nn.Conv2d(3, 8, 3, bias=False) for _ in range(2))
        self.norm, self.second = nn.BatchNorm2d(8), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.order == "activation in place":
            return self.norm(self.one(x).relu_())
        if self.order == "one norm":
            return self.norm(self.one(x)) + self.norm(self.other(x))
        return self.norm(self.one(x)) + self.second(self.one(x / 2))


@pytest.mark.parametrize("order", ["activation in place", "one norm", "two norms"])
def test_a_norm_that_does_not_follow_one_layer_only_is_left_alone(order: str) -> None:
    module = Norms(order).eval()
    assert bias_correction._correct_torch(module, BRIGHT, PLAIN, 0.0) == 0
    assert not module.norm.bias.any() and not module.second.bias.any()


def onnx_file(folder: Path, *nodes: onnx.NodeProto, dtype: int = onnx.TensorProto.FLOAT, more: str = "") -> Path:
    """Save a file with edge detectors `w` and `v`, and biases `b`."""
    random = np.random.default_rng(1)
    edges = {"w": random.normal(size=(4, 3, 3, 3)), "v": random.normal(size=(4, 4, 3, 3))}
    arrays = {name: 10 * (each - each.mean((1, 2, 3), keepdims=True)) for name, each in edges.items()}
    arrays["b"] = np.zeros(4)
    graph = onnx.helper.make_graph(
        list(nodes),
        "edges",
        [onnx.helper.make_tensor_value_info("x", dtype, ("n", *SHAPE[:1], "height", "width"))],
        [onnx.helper.make_empty_tensor_value_info(name) for name in ("y", *more)],
        [onnx.numpy_helper.from_array(each.astype(np.float32), name) for name, each in arrays.items()],
    )
    for value in graph.output:
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    folder.mkdir()
    path = folder / "edges.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), path)
    spec = spec_of("convolutions", shape=SHAPE)
    source = Source(kind="onnx", file=path.name)
    store.save_source(folder / "saved", path, spec.model_copy(update={"builder": None, "source": source}))
    return folder / "saved"


def test_an_onnx_file_may_have_open_sides_and_take_integers(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Conv", ["x", "w", "b"], ["y"])
    plain = correct(onnx_file(tmp_path / "plain", node), BRIGHT.round(), tmp_path / "1", min_shift=0.0)
    cast = onnx.helper.make_node("Cast", ["x"], ["f"], to=onnx.TensorProto.FLOAT)
    node = onnx.helper.make_node("Conv", ["f", "w", "b"], ["y"])
    network = onnx_file(tmp_path / "integers", cast, node, dtype=onnx.TensorProto.INT64)
    assert correct(network, BRIGHT.round(), tmp_path / "2", min_shift=0.0) == plain


def test_a_bias_that_is_an_output_stays(tmp_path: Path) -> None:
    network = onnx_file(tmp_path / "file", onnx.helper.make_node("Conv", ["x", "w", "b"], ["y"]), more="b")
    assert correct(network, BRIGHT, tmp_path / "corrected") == 0


def test_the_first_layer_of_a_file_may_have_no_bias(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["z"]),
        onnx.helper.make_node("Conv", ["z", "v", "b"], ["y"]),
    ]
    network = onnx_file(tmp_path / "file", *nodes)
    shares = [correct(network, BRIGHT, tmp_path / str(grid), grid, min_shift=0.0) for grid in (PLAIN, HALVED)]
    assert shares[0] == shares[1], "only the range of the first layer is halved"


def test_a_network_that_fails_is_converted_as_it_is(tmp_path: Path) -> None:
    step = ConversionStep("int8", "ptq", save(tmp_path / "network"), tmp_path / "out")
    job = ConversionJob("baseline", "onnx", tmp_path / "calibration.npy", (step,))
    corrected = correct_jobs([job], BRIGHT[:, :1], tmp_path)
    assert corrected.jobs == (job,)
    assert corrected.note.startswith("baseline: biases could not be corrected: RuntimeError: ")
