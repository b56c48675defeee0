"""Pipelines with a real fault, each made from the clean one, and what the checks must report.

`expected` is a pattern of the message: the boundary, and the layer or the cause. Where a file computes a convolution
and its batch norm in one operator, the layer is the convolution and the norm stands beside it.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from broken import OnnxFile, edit_onnx, edit_tflite
from broken import copy as copied
from clean_pipeline import CLASSES, STEPS, Clean, leaked_folder, leaked_npz
from torch import nn

from edgekit.core.errors import ConversionError
from edgekit.data import Split
from edgekit.models import store
from edgekit.stages.convert import ConvertConfig
from edgekit.stages.convert.checker import BoundaryChecker
from edgekit.stages.convert.plan import NetworkToConvert
from edgekit.stages.convert.stage import check_inputs_and_answers
from edgekit.targets import evaluate, launch
from edgekit.targets.jobs import ConversionJob, ConversionStep
from edgekit.targets.locate import first_divergence
from edgekit.targets.openvino import convert


@dataclass(frozen=True)
class Fault:
    """`check` runs edgekit's own checks on the broken pipeline: they must raise."""

    name: str
    check: Callable[[Clean], None]
    expected: str


def ends(clean: Clean, model: Path | None = None, data: Any = None, **options: Any) -> None:
    """What the convert stage checks before and behind the converters."""
    list(check_inputs_and_answers(_checker(clean, model or clean.model, ConvertConfig(**options)), data or clean.data))


def files(clean: Clean, target: str, precision: str, folder: Path | None, model: Path | None = None) -> None:
    """What the convert stage checks of its files: the float one and, if given, the one in `precision`.

    What it leaves out is raised here with the reason.
    """
    network = model or clean.model
    steps, made = [], []
    with tempfile.TemporaryDirectory() as home:  # of copies: the folder of a file that is left out goes
        for each in dict.fromkeys(("fp32", precision)):
            place, described = clean.files[target, each]
            source = folder if folder and each == precision else place
            steps.append(ConversionStep(each, "float", network, Path(shutil.copytree(source, Path(home) / each))))
            made.append(launch.ConvertedStep(each, described, 0.0))
        checker = _checker(clean, network, ConvertConfig())
        for record in checker.records(ConversionJob("varied", target, Path("unused"), tuple(steps)), list(made)):
            if "reason" in record:
                raise ConversionError(record["reason"])


def _checker(clean: Clean, model: Path, config: ConvertConfig) -> BoundaryChecker:
    compared = evaluate.network_inputs(
        evaluate.spread_samples(clean.data.validation, config.check_samples), clean.spec.preprocess
    )
    return BoundaryChecker(NetworkToConvert("varied", model), compared, config, first_divergence.find)


def _trained_by(function: str) -> Callable[[Clean], None]:
    return lambda clean: ends(clean, reference_preprocess=f"training:{function}")


def _with_steps(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Callable[[Clean], None]:
    """A config whose steps are not those of training."""

    def check(clean: Clean) -> None:
        spec = clean.spec.model_copy(update={"preprocess": change(copy.deepcopy(STEPS))})
        store.save(clean.scratch / "steps", clean.module, spec)
        ends(clean, clean.scratch / "steps", reference_preprocess="training:right")

    return check


def _onnx(edit: Callable[[OnnxFile], None], precision: str = "fp32") -> Callable[[Clean], None]:
    return lambda clean: files(
        clean, "onnx", precision, edit_onnx(clean.files["onnx", precision][0], clean.scratch / "onnx", edit)
    )


def _tflite(kind: str, place: int, edit: Callable[[list[Any], np.ndarray], None]) -> Callable[[Clean], None]:
    return lambda clean: files(
        clean,
        "tflite",
        "fp32",
        edit_tflite(clean.files["tflite", "fp32"][0], clean.scratch / "tflite", kind, place, edit),
    )


def _network(change: Callable[[nn.Module], Any], target: str = "openvino") -> Callable[[Clean], None]:
    """The file was made from another network than it is compared with: for OpenVINO converted anew, else as it lies."""

    def check(clean: Clean) -> None:
        other = copy.deepcopy(clean.module)
        with torch.no_grad():
            change(other)
        store.save(clean.scratch / "other", other, clean.spec)
        if target != "openvino":
            return files(clean, target, "fp32", None, clean.scratch / "other")
        convert.convert(clean.scratch / "other", "fp32", None, clean.scratch / "openvino")
        files(clean, "openvino", "fp32", clean.scratch / "openvino")

    return check


def _calibrated_with(change: Callable[[Split], Split]) -> Callable[[Clean], None]:
    return lambda clean: ends(clean, data=replace(clean.data, calibration=change(clean.data.calibration)))


def _wrapped(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Clean], None]:
    """Labels of the samples in another order than the weights were trained with."""

    def check(clean: Clean) -> None:
        splits = {
            name: Split(split.x, change(split.y))
            for name, split in (("calibration", clean.data.calibration), ("validation", clean.data.validation))
        }
        ends(clean, data=replace(clean.data, **splits))

    return check


def _double_softmax(clean: Clean) -> None:
    spec = clean.spec.model_copy(update={"builder": "nets:with_softmax"})
    module = store.build(spec)
    module.load_state_dict(clean.module.state_dict())
    store.save(clean.scratch / "softmax", module, spec)
    ends(clean, clean.scratch / "softmax")


def _clipped_ranges(clean: Clean) -> None:
    """The int8 file itself was calibrated on a tenth of the range."""
    from edgekit.targets.onnx import convert

    out = copied(clean.files["onnx", "int8"][0], clean.scratch / "clipped")
    content = (clean.files["onnx", "fp32"][0] / "model.onnx").read_bytes()
    samples = evaluate.network_inputs(clean.data.calibration.x[:20], STEPS)
    sources, _ = convert._read_ports(content)
    (out / "model.onnx").write_bytes(convert._quantize(content, "int8", sources, 0.1 * samples, convert.MINMAX, [], []))
    files(clean, "onnx", "int8", out)


def _stale(module: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        parameter += 0.2 * parameter.std().nan_to_num(0.1) * torch.randn(parameter.shape, generator=generator)


def _train_statistics(module: nn.Module) -> None:
    """Those of the last batch, as a network in train mode takes them."""
    norm = module.depthwise[1]
    norm.running_mean += 0.5 * norm.running_var.sqrt()
    norm.running_var *= 2.5


def _flip(views: list[Any], _: np.ndarray) -> None:
    views[1][:] = views[1][:, ::-1, ::-1].copy()


def _fill(place: int, value: Any) -> Callable[[list[Any], np.ndarray], None]:
    def edit(views: list[Any], _: np.ndarray) -> None:
        views[place][:] = value

    return edit


def _transpose(views: list[Any], _: np.ndarray) -> None:
    views[1][:] = views[1].T.copy()


def _swap(_: list[Any], inputs: np.ndarray) -> None:
    inputs[:2] = inputs[:2][::-1].copy()


def _exchange_channels(file: OnnxFile) -> None:
    file.change(file.node("first").input[1], lambda w: w.swapaxes(0, 1))


def _zero_channel(file: OnnxFile) -> None:
    def change(w: np.ndarray) -> np.ndarray:
        w = w.copy()
        w[np.abs(w).sum(axis=(1, 2, 3)).argmax()] = 0
        return w

    file.change(file.node("mix").input[1], change)


def _dilate(file: OnnxFile) -> None:
    file.attribute(file.node("first"), "dilations", [2, 2])
    file.attribute(file.node("first"), "pads", [2, 2, 2, 2])


def _without_relu(file: OnnxFile) -> None:
    relu = next(node for node in file.graph.node if node.input and node.input[0] == file.node("mix").output[0])
    file.replace(relu, "Identity", [relu.input[0]])


def _without_limit(file: OnnxFile) -> None:
    clip = file.only("Clip")
    file.replace(clip, "Relu", [clip.input[0]])


def _other_activation(file: OnnxFile) -> None:
    node = file.only("HardSwish")
    file.replace(node, "Relu", [node.input[0]])


def _without_residual(file: OnnxFile) -> None:
    add = file.only("Add")
    file.replace(add, "Identity", [add.input[0]])


def _highest_for_mean(file: OnnxFile) -> None:
    mean = file.only("AveragePool")
    file.replace(mean, "MaxPool", [mean.input[0]], kernel_shape=[2, 2], strides=[2, 2])


def _softmax_behind(file: OnnxFile) -> None:
    from onnx import helper

    head = file.node("head")
    head.output[0] = "logits"
    file.graph.node.append(helper.make_node("Softmax", ["logits"], ["output"], axis=1))


def _reordered_head(file: OnnxFile) -> None:
    head = file.node("head")
    file.change(head.input[1], lambda w: w[[1, 0, 2, 3]] if w.shape[0] == len(CLASSES) else w[:, [1, 0, 2, 3]])
    file.change(head.input[2], lambda b: b[[1, 0, 2, 3]])


def _shift_zero_point(file: OnnxFile) -> None:
    """Where a tensor becomes float again, not where it was made integers."""
    quantized = file.dequantizer(file.node("mix").input[0])
    name = quantized.input[2]
    from onnx import numpy_helper

    file.graph.initializer.append(numpy_helper.from_array(file.values(name) + np.uint8(40), "shifted"))
    quantized.input[2] = "shifted"


def _reverse_scales(file: OnnxFile) -> None:
    weights = file.dequantizer(file.node("second").input[1])
    file.change(weights.input[1], lambda scales: scales[::-1])


def _read_as_unsigned(file: OnnxFile) -> None:
    """int8 weights taken for uint8 with a zero point of 128."""
    weights = file.dequantizer(file.node("depthwise").input[1])
    file.set(weights.input[0], file.values(weights.input[0]).view(np.uint8))
    file.set(weights.input[2], np.full(file.values(weights.input[2]).shape, 128, np.uint8))


def _one_scale(file: OnnxFile) -> None:
    """One scale for all channels, set by an outlier sixty times as large as what is there."""
    weights = file.dequantizer(file.node("mix").input[1])
    scales, integers = file.values(weights.input[1]), file.values(weights.input[0])
    real = integers * scales.reshape(-1, *[1] * (integers.ndim - 1))
    coarse = np.float32(60 * np.abs(real).max() / 127)
    file.set(weights.input[0], np.rint(real / coarse).astype(np.int8))
    file.set(weights.input[1], np.full_like(scales, coarse))


def _halved(split: Split) -> Split:
    return Split(split.x // 2, split.y)


def _contrast(split: Split) -> Split:
    """A tenth of the contrast around grey."""
    return Split((128 + (split.x.astype(float) - 128) / 10).astype(np.uint8), split.y)


def _one_class(split: Split) -> Split:
    return split.take(np.flatnonzero(split.y == 0))


def _constant(split: Split) -> Split:
    return Split(np.full_like(split.x, 90) + np.arange(len(split), dtype=np.uint8)[:, None, None, None] % 4, split.y)


def _no_scale(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [step for step in steps if step["step"] != "scale"]


def _set(place: int, **options: Any) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    def change(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        steps[place].update(options)
        return steps

    return change


def _leaked_calibration(clean: Clean) -> None:
    leaked = Split(clean.data.calibration.x.copy(), clean.data.calibration.y)
    leaked.x[7] = clean.data.validation.x[3]
    ends(clean, data=replace(clean.data, calibration=leaked))


def _leaked(name: str, source: str) -> Callable[[Clean], None]:
    return lambda clean: leaked_npz(clean, name, source)


INPUT = r"^raw sample → network input: .*"
SCORES = r"^scores → answer: "
RANGES = r"^calibration → ranges: "


def boundary(target: str, precision: str, layer: str) -> str:
    """The pattern of a message: this boundary, this layer."""
    return rf"→ {target}-{precision} is .* diverge at {layer}"


FAULTS = (
    Fault("reshaped instead of transposed", _trained_by("reshaped"), INPUT + "layout: channels last"),
    Fault("channels last in training", _trained_by("channels_last"), INPUT + "its channels come last"),
    Fault("height and width exchanged", _trained_by("exchanged"), INPUT + "layout: height and width"),
    Fault("BGR for RGB", _trained_by("bgr"), INPUT + "channel order"),
    Fault("wrong resize filter", _trained_by("nearest"), INPUT + "resize"),
    Fault("crop off by one", _trained_by("off_by_one"), INPUT + "crop or shift: moved by 0 rows and -1 columns"),
    Fault("wrong mean", _with_steps(_set(2, mean=[0.3, 0.4, 0.5])), INPUT + "the mean of normalize"),
    Fault("wrong std", _with_steps(_set(2, std=[0.5, 0.5, 0.5])), INPUT + "a standard deviation"),
    Fault("1/255 missing", _with_steps(_no_scale), INPUT + "scale or normalize: a scale"),
    Fault("scaled twice", _with_steps(lambda steps: [*steps[:2], *steps[1:]]), INPUT + "scale or normalize: a scale"),
    Fault("stale weights", _network(_stale, "onnx"), boundary("onnx", "fp32", r"stem\.0 ")),
    Fault("stale weights, tflite", _network(_stale, "tflite"), boundary("tflite", "fp32", r"stem\.0 ")),
    Fault("convolution transposed", _onnx(_exchange_channels), boundary("onnx", "fp32", r"first\.0 ")),
    Fault("dense transposed", _tflite("FULLY_CONNECTED", 0, _transpose), boundary("tflite", "fp32", r"dense\.0 ")),
    Fault("kernel flipped", _tflite("CONV_2D", 3, _flip), boundary("tflite", "fp32", r"second\.0 ")),
    Fault("one channel zeroed", _onnx(_zero_channel), boundary("onnx", "fp32", r"mix\.0 ")),
    Fault("bias dropped", _tflite("CONV_2D", 2, _fill(2, 0)), boundary("tflite", "fp32", r"first\.0 .*with first\.1")),
    Fault(
        "wrong eps of a batch norm",
        _network(lambda net: net.down[1].running_var.add_(0.01)),
        boundary("openvino", "fp32", r"down\.0 .*with down\.1"),
    ),
    Fault(
        "batch norm with train-mode statistics",
        _network(_train_statistics),
        boundary("openvino", "fp32", r"depthwise\.0 .*with depthwise\.1"),
    ),
    Fault(
        "batch norm not folded",
        _network(lambda net: net.mix[1].weight.fill_(1)),
        boundary("openvino", "fp32", r"mix\.0 .*with mix\.1"),
    ),
    Fault(
        "padding off by one",
        _onnx(lambda file: file.attribute(file.node("down"), "pads", [0, 0, 1, 1])),
        boundary("onnx", "fp32", r"down\.0 "),
    ),
    Fault(
        "padding on one side",
        _tflite("PAD", 0, _fill(1, [[0, 0], [2, 0], [2, 0], [0, 0]])),
        boundary("tflite", "fp32", r"down\.0 "),
    ),
    Fault("wrong dilation", _onnx(_dilate), boundary("onnx", "fp32", r"first\.0 ")),
    Fault("activation missing", _onnx(_without_relu), boundary("onnx", "fp32", r"mix\.2 ")),
    Fault("ReLU for ReLU6", _onnx(_without_limit), boundary("onnx", "fp32", r"down\.2 ")),
    Fault("ReLU for hard-swish", _onnx(_other_activation), boundary("onnx", "fp32", r"depthwise\.2 ")),
    Fault("residual dropped", _onnx(_without_residual), boundary("onnx", "fp32", r"forward \(add\) ")),
    Fault("maximum for average pooling", _onnx(_highest_for_mean), boundary("onnx", "fp32", "mean ")),
    Fault(
        "concatenated in another order",
        _tflite("CONCATENATION", 0, _swap),
        boundary("tflite", "fp32", r"forward \(cat\) "),
    ),
    Fault("softmax in the file", _onnx(_softmax_behind), boundary("onnx", "fp32", "Softmax, an operator that the")),
    Fault("classes reordered in the file", _onnx(_reordered_head), boundary("onnx", "fp32", "head ")),
    Fault("double softmax", _double_softmax, SCORES + "double softmax"),
    Fault("labels permuted", _wrapped(lambda y: np.array([2, 1, 0, 3])[y]), SCORES + ".*output 0 means 'blue'"),
    Fault("argmax off by one", _wrapped(lambda y: (y + 1) % 4), SCORES + ".*every index is off by one"),
    Fault("calibration of a tenth of the contrast", _calibrated_with(_contrast), RANGES + ".*values of validation: "),
    Fault("calibration at half the brightness", _calibrated_with(_halved), RANGES + ".*values of validation: "),
    Fault("calibration of one class", _calibrated_with(_one_class), RANGES + ".* show 1 of 4 classes"),
    Fault("constant calibration", _calibrated_with(_constant), RANGES + ".*values of validation: "),
    Fault("ranges clipped in the file", _clipped_ranges, boundary("onnx", "int8", "the input .*lie outside")),
    Fault("zero point shifted", _onnx(_shift_zero_point, "int8"), boundary("onnx", "int8", r"forward \(cat\) ")),
    Fault("scales of the wrong channels", _onnx(_reverse_scales, "int8"), boundary("onnx", "int8", r"second\.0 ")),
    Fault("int8 read as uint8", _onnx(_read_as_unsigned, "int8"), boundary("onnx", "int8", r"depthwise\.0 ")),
    Fault("one scale for all, set by an outlier", _onnx(_one_scale, "int8"), boundary("onnx", "int8", r"mix\.0 ")),
    Fault("validation pictures in calibration", _leaked_calibration, r"^leak: 1 of 120 samples of validation"),
    Fault("test pictures in train", _leaked("train", "test"), "samples of train .* in test"),
    Fault("train pictures in validation", _leaked("train", "validation"), "samples of train .* in validation"),
    Fault("validation pictures in test", _leaked("validation", "test"), "samples of validation .* in test"),
    Fault("test pictures in train, encoded anew", leaked_folder, "samples of train .* in test"),
)
LEAKS = tuple(fault for fault in FAULTS if "pictures in" in fault.name)
