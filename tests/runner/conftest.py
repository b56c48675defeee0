"""A tiny real network as a bundle for every target: 8x8 grey image, 3x3 convolution, ReLU, mean, dense to 3 classes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.runner import bundle, telemetry
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from tests import requirements

telemetry.disable()  # tests import interpreters themselves

LABELS = ["circle", "square", "star"]
SIDE = 8
NHWC = TensorSpec("input", (1, SIDE, SIDE, 1), "float32", "NHWC")
NCHW = TensorSpec("input", (1, 1, SIDE, SIDE), "float32", "NCHW")
SCORES = TensorSpec("scores", (1, len(LABELS)), "float32", "NC")


@dataclass(frozen=True)
class ModelFiles:
    """A converted network with its specs, and how far its scores may lie from the float64 reference."""

    target: str
    files: dict[str, bytes]
    input: TensorSpec
    output: TensorSpec
    atol: float


def weights() -> dict[str, np.ndarray]:
    """Seeded weights, wide enough that the three classes all occur."""
    rng = np.random.default_rng(339)
    shapes = {"kernel": (4, 1, 3, 3), "offset": (4,), "dense": (3, 4), "bias": (3,)}
    return {name: rng.normal(0, 1.5, shape).astype(np.float32) for name, shape in shapes.items()}


def reference(images: np.ndarray) -> np.ndarray:
    """Scores (n, 3) of raw images (n, 8, 8, 1) uint8 in float64, written out by hand."""
    w = {name: value.astype(np.float64) for name, value in weights().items()}
    windows = np.lib.stride_tricks.sliding_window_view(images[..., 0] / 255.0, (3, 3), axis=(1, 2))
    hidden = np.maximum(np.einsum("nhwij,cij->nhwc", windows, w["kernel"][:, 0]) + w["offset"], 0.0)
    return hidden.mean(axis=(1, 2)) @ w["dense"].T + w["bias"]


def samples(count: int = 16) -> np.ndarray:
    """Seeded raw images (count, 8, 8, 1) of differing brightness."""
    rng = np.random.default_rng(11)
    brightness = rng.uniform(0.1, 1.0, (count, 1, 1, 1))
    return (rng.integers(0, 256, (count, SIDE, SIDE, 1)) * brightness).astype(np.uint8)


def onnx_model(**changes: np.ndarray) -> bytes:
    """The network as ONNX; `changes` replace weights."""
    import onnx
    from onnx import helper, numpy_helper

    nodes = [
        helper.make_node("Conv", ["input", "kernel", "offset"], ["convolved"], name="conv"),
        helper.make_node("Relu", ["convolved"], ["hidden"], name="relu"),
        helper.make_node("ReduceMean", ["hidden"], ["mean"], name="mean", axes=[2, 3], keepdims=0),
        helper.make_node("Gemm", ["mean", "dense", "bias"], ["scores"], name="dense", transB=1),
    ]
    values = [numpy_helper.from_array(value, name) for name, value in {**weights(), **changes}.items()]
    source = helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT, NCHW.shape)
    result = helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, SCORES.shape)
    graph = helper.make_graph(nodes, "tiny", [source], [result], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def openvino_model(folder: Path) -> dict[str, bytes]:
    import openvino

    model = openvino.Core().read_model(onnx_model(), b"")
    openvino.save_model(model, folder / "model.xml", compress_to_fp16=False)
    return {name: (folder / name).read_bytes() for name in ("model.xml", "model.bin")}


def tflite_models(folder: Path) -> dict[str, bytes]:
    """The network in float, and in int8 from input to output."""
    import litert_torch
    import torch
    from ai_edge_quantizer import calibrator, quantizer, recipe, recipe_manager
    from ai_edge_quantizer.utils import qsv_utils

    class Tiny(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.dense = torch.nn.Conv2d(1, 4, 3), torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.dense(torch.relu(self.conv(x)).mean(dim=(2, 3)))

    network, w = Tiny().eval(), {name: torch.from_numpy(value) for name, value in weights().items()}
    names = {"kernel": "conv.weight", "offset": "conv.bias", "dense": "dense.weight", "bias": "dense.bias"}
    network.load_state_dict({names[name]: value for name, value in w.items()})
    floating, integer = folder / "float.tflite", folder / "int8.tflite"
    litert_torch.convert(litert_torch.to_channel_last_io(network, args=[0]), (torch.zeros(NHWC.shape),)).export(
        str(floating)
    )
    # the tool's own calibrate() follows a moving average and clips the brightest samples; this takes the true range
    ranges = calibrator.Calibrator(str(floating), qsv_update_func=qsv_utils.min_max_update)
    rules = recipe_manager.RecipeManager()
    rules.load_quantization_recipe(recipe.static_wi8_ai8())
    scaled = (samples(64) / 255.0).astype(np.float32)
    calibration = {"serving_default": [{"args_0": image[None]} for image in scaled]}
    ranges.calibrate(calibration, rules)
    tool = quantizer.Quantizer(str(floating), recipe.static_wi8_ai8())
    tool.quantize(ranges.get_model_qsvs()).export_model(str(integer), overwrite=True)
    return {"float": floating.read_bytes(), "int8": integer.read_bytes()}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelFiles]:
    """The network, converted for every target; tflite also with integer input and output."""
    folder = tmp_path_factory.mktemp("tiny")
    lite = tflite_models(folder)
    integer_in = TensorSpec("input", NHWC.shape, "int8", "NHWC")
    integer_out = TensorSpec("scores", SCORES.shape, "int8", "NC")
    return {
        "tflite": ModelFiles("tflite", {"model.tflite": lite["float"]}, NHWC, SCORES, 1e-4),
        "tflite-int8": ModelFiles("tflite", {"model.tflite": lite["int8"]}, integer_in, integer_out, 0.1),
        "openvino": ModelFiles("openvino", openvino_model(folder), NCHW, SCORES, 1e-4),
        "onnx": ModelFiles("onnx", {"model.onnx": onnx_model()}, NCHW, SCORES, 1e-4),
    }


def npy(value: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, value)
    return buffer.getvalue()


def manifest_for(model: ModelFiles, **changes: object) -> Manifest:
    """A manifest that fits a converted network; `changes` replace fields, `input` and `output` its only tensors."""
    fields: dict[str, object] = {
        "name": "tiny",
        "version": "1.2.0",
        "target": model.target,
        "variant": f"baseline-{model.input.dtype}-{model.target}",
        "raw": RawSpec("image", (SIDE, SIDE, 1), "uint8"),
        "input": model.input,
        "output": model.output,
        "preprocess": [{"step": "scale", "factor": 1 / 255}],
        "labels": list(LABELS),
        "model_files": sorted(model.files),
        "golden": {
            "inputs": "golden/inputs.npy",
            "outputs": "golden/outputs.npy",
            "atol": model.atol,
            "top1": model.input.dtype == "float32",
        },
        "budget": {"accuracy_drop_pp": 1.0},
        "verdict": {"accuracy_drop_pp": 0.2},
        "provenance": {"data_digest": "0" * 64},
        "requirements": ["numpy"],
    }
    values = {**fields, **changes}
    for one, several in (("input", "inputs"), ("output", "outputs")):  # of a network with one of each
        values.setdefault(several, (values.pop(one),))
    return Manifest(**values)  # type: ignore[arg-type]


def members_for(model: ModelFiles, images: np.ndarray, scores: np.ndarray) -> dict[str, bytes]:
    golden = {"golden/inputs.npy": npy(images), "golden/outputs.npy": npy(scores.astype(np.float32))}
    return {**model.files, **golden, "README.md": b"A tiny network.\n"}


WriteBundle = Callable[..., Path]


@pytest.fixture
def write_bundle(tmp_path: Path) -> WriteBundle:
    """`write_bundle(model, images=, scores=, **manifest fields)` gives the path of a bundle."""

    def write(
        model: ModelFiles, images: np.ndarray | None = None, scores: np.ndarray | None = None, **changes: object
    ) -> Path:
        images = samples() if images is None else images
        scores = reference(images) if scores is None else scores
        path = tmp_path / "made.edge.zip"
        bundle.write(path, manifest_for(model, **changes), members_for(model, images, scores))
        return path

    return write


@pytest.fixture(scope="session")
def bundles(models: Mapping[str, ModelFiles], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One bundle for every converted network, its golden scores from the float64 reference."""
    folder, images = tmp_path_factory.mktemp("bundles"), samples()
    paths = {}
    for key, model in models.items():
        paths[key] = folder / f"tiny-{key}-1.2.0.edge.zip"
        bundle.write(paths[key], manifest_for(model), members_for(model, images, reference(images)))
    return paths


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and models."""
    return requirements.data()


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """A picture of twice the width of samples of 64×48 pixels, so that there are bars above and below."""
    Image.new("RGB", (128, 64), (40, 40, 40)).save(tmp_path / "12.png")
    return tmp_path / "12.png"
