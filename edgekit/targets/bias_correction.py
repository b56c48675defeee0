"""Correct the biases of a network for the rounding of its weights to int8 (Nagel et al. 2019, "Data-Free Quantization
Through Weight Equalization and Bias Correction", section 4.2).

Rounding the weights of a channel moves the mean of its outputs by the rounding errors times the mean inputs. A channel
that detects edges has large weights whose sum is almost zero: where the input is bright and even, its outputs move by a
large share of their standard deviation. The depthwise layers of EfficientNet-Lite0 have such channels, and no choice of
ranges helps. The shift is measured in float on calibration samples, and subtracted from the bias, so that the network
is corrected alike for every target. Other networks are left as they are, and so are their files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.targets import layers, model_file
from edgekit.targets.jobs import ConversionJob, ConversionStep

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Grid = tuple[float, float]
"""The levels of one sign to which the weights of the first layer, and of all others, are rounded for each channel."""
PLAIN: Grid = (127, 127)
GRIDS: dict[tuple[str, str], Grid] = {
    ("openvino", "int8"): (63.5, 127),  # NNCF halves the range of the first layer: without VNNI, it would overflow
    ("openvino", "w8"): (128, 128),
}
"""The grids of targets and precisions that do not have the plain one."""
CORRECTED = ("int8", "w8", "dynamic", "int16x8")
PER_TENSOR = (("onnx", "dynamic"),)
"""ONNX Runtime gives the weights of a convolution one scale there, so that their errors are others."""
MIN_SHIFT = 0.1
"""A network is corrected if the shift of a channel is at least this share of the standard deviation of its outputs."""
DEAD = 1e-3
"""A channel whose standard deviation is less than this share of the layer's largest one does not count."""
MAX_SAMPLES = 32


@dataclass
class _Channels:
    """Sums over the outputs of a layer, for each channel."""

    values: int = 0
    change: np.ndarray = field(default_factory=lambda: np.zeros(1))
    total: np.ndarray = field(default_factory=lambda: np.zeros(1))
    squares: np.ndarray = field(default_factory=lambda: np.zeros(1))

    def add(self, outputs: np.ndarray, change: np.ndarray) -> None:
        """Add outputs (positions, channels), and how they change if the weights are rounded."""
        outputs, change = outputs.astype(np.float64), change.astype(np.float64)
        self.values += len(outputs)
        self.change = self.change + change.sum(0)
        self.total, self.squares = self.total + outputs.sum(0), self.squares + (outputs**2).sum(0)

    @property
    def shift(self) -> np.ndarray:
        """How far rounding moves the mean of each channel."""
        return self.change / self.values

    @property
    def largest_share(self) -> float:
        """The largest shift of a channel, as a share of its standard deviation."""
        deviation = np.sqrt(np.maximum(self.squares / self.values - (self.total / self.values) ** 2, 0))
        alive = deviation > DEAD * deviation.max()
        return float((np.abs(self.shift)[alive] / deviation[alive]).max(initial=0.0))


@dataclass(frozen=True)
class CorrectedJobs:
    """The jobs of a network, and a note on what was corrected, or why nothing could be; empty if nothing needed it."""

    jobs: tuple[ConversionJob, ...]
    note: str = ""


def correct_jobs(jobs: Sequence[ConversionJob], inputs: np.ndarray, folder: Path) -> CorrectedJobs:
    """Save corrected networks in `folder`, and let the steps that need them convert these.

    `jobs` are those of one network, and `inputs` its calibration samples as the network takes them, (n, …), float32.
    """
    chosen = [(job.target, step) for job in jobs for step in job.steps if _is_corrected(job.target, step)]
    if not chosen:
        return CorrectedJobs(tuple(jobs))
    network = chosen[0][1].model_folder
    grids = {step.out: GRIDS.get((target, step.precision), PLAIN) for target, step in chosen}
    folders = {
        grid: folder / f"{jobs[0].model}-biases-{number}"
        for number, grid in enumerate(dict.fromkeys((PLAIN, *grids.values())))
    }
    try:
        largest = correct(network, inputs, folders[PLAIN])
        if largest:
            for grid in list(folders)[1:]:
                correct(network, inputs, folders[grid], grid, min_shift=0.0)
    except Exception as error:  # a user's network may raise anything, and its files can be made without a correction
        reason, *_ = str(error).splitlines() or [""]
        note = f"{jobs[0].model}: biases could not be corrected: {type(error).__name__}: {reason}"
        return CorrectedJobs(tuple(jobs), note)
    if not largest:
        return CorrectedJobs(tuple(jobs))
    corrected = {out: folders[grid] for out, grid in grids.items() if folders[grid].exists()}  # none without errors
    changed = (
        replace(job, steps=tuple(replace(step, corrected=corrected.get(step.out)) for step in job.steps))
        for job in jobs
    )
    note = (
        f"{jobs[0].model}: rounding its weights to int8 moves the mean of a channel by up to "
        f"{100 * largest:.0f} % of its standard deviation; biases were corrected for this"
    )
    return CorrectedJobs(tuple(changed), note)


def _is_corrected(target: str, step: ConversionStep) -> bool:
    """Return whether all weights of the step's file are rounded to int8, and nothing else chooses its biases."""
    return (
        step.precision in CORRECTED
        and (target, step.precision) not in PER_TENSOR
        and step.method == "ptq"
        and not (target == "openvino" and step.quantization.bias_correction)
        and not layers.float_tail(step.model_folder)
    )


def correct(
    model_folder: Path, inputs: np.ndarray, out: Path, grid: Grid = PLAIN, min_shift: float = MIN_SHIFT
) -> float:
    """Save the network with biases for weights on `grid` in `out`, unless all shifts are less than `min_shift`.

    Returns the largest shift of a channel as a share of its standard deviation, or 0 if nothing was saved. Only
    networks of PyTorch and ONNX files are corrected.
    """
    from edgekit.models import store
    from edgekit.models.reparameterize import is_mergeable

    chosen = inputs[np.unique(np.linspace(0, len(inputs) - 1, min(len(inputs), MAX_SAMPLES)).round().astype(int))]
    source = model_file.read(model_folder)
    if source is not None:
        if source.source.kind != "onnx" or source.is_quantized or model_file.tensor_names(model_folder):
            return 0.0
        return _correct_onnx(source, chosen, out, grid, min_shift)
    module, spec = store.load(model_folder)
    if spec.source is not None or (is_mergeable(module) and not spec.reparameterized):
        return 0.0  # an exported graph, or branches that are merged, so that other weights are rounded
    share = _correct_torch(module, chosen, grid, min_shift)
    if share:
        store.save(out, module, spec)
    return share


def rounding_error(weights: np.ndarray, levels: float = 127) -> np.ndarray:
    """Return the change of weights (output channels, …) by symmetric rounding with a scale for each channel."""
    rows = weights.reshape(len(weights), -1).astype(np.float64)
    scale = np.abs(rows).max(1, keepdims=True) / levels
    scale[scale == 0] = 1
    error: np.ndarray = (np.floor(rows / scale + 0.5) * scale - rows).reshape(weights.shape).astype(weights.dtype)
    return error


def _largest(by_layer: Iterable[_Channels], min_shift: float) -> float:
    """Return the largest share of all layers if it is at least `min_shift`, otherwise 0."""
    largest = max((each.largest_share for each in by_layer), default=0.0)
    return largest if largest >= min_shift else 0.0


def _correct_torch(module: nn.Module, inputs: np.ndarray, grid: Grid, min_shift: float) -> float:
    """Correct a network in place: the bias of each layer, or that of the batch norm that follows it."""
    import torch

    from edgekit.models.eager import single_thread

    recorder = _Recorder(grid)
    with recorder.attached(module), single_thread(), torch.no_grad():  # inference_mode counts no versions
        for sample in inputs:
            module(torch.from_numpy(sample[None]))
    biases = ((recorder.bias(layer), channels) for layer, channels in recorder.layers.items())
    movable = [(bias, channels) for bias, channels in biases if bias is not None]
    largest = _largest((channels for _, channels in movable), min_shift)
    if largest:
        with torch.no_grad():
            for (bias, factor), channels in movable:
                bias -= factor * torch.from_numpy(channels.shift).to(bias.dtype)
    return largest


class _Recorder:
    """Records how rounding changes the outputs of convolutions and dense layers, and which batch norm follows each."""

    def __init__(self, grid: Grid) -> None:
        self.layers: dict[nn.Module, _Channels] = {}
        self._levels, self._other_levels = grid
        self._errors: dict[nn.Module, Tensor] = {}
        self._pairs: set[tuple[nn.Module | None, nn.Module]] = set()
        self._last: tuple[nn.Module, Tensor, int] | None = None

    def attached(self, module: nn.Module) -> ExitStack:
        """Return a context in which the recorder listens to `module`."""
        from torch import nn
        from torch.nn.modules.batchnorm import _BatchNorm

        stack = ExitStack()
        for part in module.modules():
            if isinstance(part, (nn.Conv1d, nn.Conv2d, nn.Linear)) and part._parameters.get("weight") is not None:
                stack.callback(part.register_forward_hook(self._record, with_kwargs=True).remove)
            elif isinstance(part, _BatchNorm) and part.affine and part.running_var is not None:
                stack.callback(part.register_forward_pre_hook(self._pair).remove)
        return stack

    def bias(self, layer: nn.Module) -> tuple[Tensor, Any] | None:
        """Return the tensor that moves the outputs of this layer only, and the factor for it; None if there is none."""
        import torch

        if layer.bias is not None:
            is_own = sum(each.bias is layer.bias for each in self.layers) == 1
            return (layer.bias, 1.0) if is_own else None  # type: ignore[return-value]
        pairs = [pair for pair in self._pairs if layer in pair]
        if len(pairs) != 1 or sum(pairs[0][1] in pair for pair in self._pairs) != 1:
            return None  # no norm follows, or several do, or the norm follows other layers too
        norm: Any = pairs[0][1]
        return norm.bias, norm.weight / torch.sqrt(norm.running_var + norm.eps)

    def _record(self, layer: Any, inputs: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor) -> None:
        if layer not in self._errors:
            import torch

            error = rounding_error(layer.weight.detach().numpy(), self._levels)
            self._errors[layer], self.layers[layer] = torch.from_numpy(error), _Channels()
            self._levels = self._other_levels
        weight, bias = layer.weight.data, layer.bias
        layer.weight.data, layer.bias = self._errors[layer], None
        try:
            change = layer.forward(*inputs, **named)
        finally:
            layer.weight.data, layer.bias = weight, bias
        self.layers[layer].add(_rows(layer, output), _rows(layer, change))
        self._last = layer, output, output._version

    def _pair(self, norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        last, follows = self._last, False
        if last is not None:  # an activation in place returns the same tensor in another version
            follows = last[1] is inputs[0] and last[2] == inputs[0]._version
        self._pairs.add((last[0] if last and follows else None, norm))


def _rows(layer: Any, outputs: torch.Tensor) -> np.ndarray:
    """Return the outputs of a layer as (positions, channels)."""
    last = outputs.movedim(1 - layer.weight.ndim, -1)  # samples may have no batch
    rows: np.ndarray = last.reshape(-1, last.shape[-1]).numpy()
    return rows


def _correct_onnx(source: model_file.ModelFile, inputs: np.ndarray, out: Path, grid: Grid, min_shift: float) -> float:
    """Correct the convolutions and dense layers of an ONNX file that have a bias."""
    import onnx
    from onnx import numpy_helper

    from edgekit.models import store

    model = onnx.load(source.path)
    constants = {each.name: each for each in model.graph.initializer}
    uses = Counter(name for node in model.graph.node for name in node.input)
    uses.update(each.name for each in model.graph.output)
    nodes = [node for node in model.graph.node if _has_own_bias(node, constants, uses)]
    if not nodes:
        return 0.0
    by_layer = _measure_onnx(model, nodes, source, inputs, grid)
    largest = _largest(by_layer, min_shift)
    if largest:
        for node, channels in zip(nodes, by_layer, strict=True):
            bias = constants[node.input[2]]
            array = numpy_helper.to_array(bias)
            bias.CopyFrom(numpy_helper.from_array((array - channels.shift).astype(array.dtype), bias.name))
        store.save_source(out, source.path, store.read_spec(source.path.parent))
        onnx.save(model, out / source.source.file)
    return largest


def _has_own_bias(node: Any, constants: Mapping[str, Any], uses: Mapping[str, int]) -> bool:
    """Return whether a node is a convolution or dense layer with constant weights and a bias that only it uses."""
    if node.op_type not in ("Conv", "Gemm") or len(node.input) < 3:
        return False
    _, weights, bias = node.input
    plain = node.op_type == "Conv" or all(each.f == 1.0 for each in node.attribute if each.name in ("alpha", "beta"))
    return plain and weights in constants and bias in constants and uses[bias] == 1


def _measure_onnx(
    model: Any, nodes: Sequence[Any], source: model_file.ModelFile, inputs: np.ndarray, grid: Grid
) -> list[_Channels]:
    """Run a copy of the model in which each node has a twin with the errors of its weights, and no bias."""
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    from edgekit.models.files import interface
    from edgekit.models.files import onnx as onnx_files

    twins = onnx.ModelProto()
    twins.CopyFrom(model)
    constants = {each.name: each for each in model.graph.initializer}
    names = []
    first = next(node.output[0] for node in model.graph.node if node.op_type in ("Conv", "Gemm"))
    for number, node in enumerate(nodes):
        weights = numpy_helper.to_array(constants[node.input[1]])
        axis = int(node.op_type == "Gemm" and not any(each.name == "transB" and each.i for each in node.attribute))
        error = np.moveaxis(rounding_error(np.moveaxis(weights, axis, 0), grid[node.output[0] != first]), 0, axis)
        twin = onnx.NodeProto()
        twin.CopyFrom(node)
        twin.name, (error_name, change) = f"twin_{number}", (f"{kind}_{number}" for kind in ("error", "change"))
        del twin.input[1:], twin.output[:]
        twin.input.append(error_name)
        twin.output.append(change)
        twins.graph.node.append(twin)
        twins.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(error), error_name))
        names += [node.output[0], change]
    own = {each.name for each in twins.graph.output}
    twins.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names if name not in own)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(twins.SerializeToString(), options, ["CPUExecutionProvider"])
    port = onnx_files.file_input(*session.get_inputs())
    samples = interface.cast_input(source.arrange(inputs, [1, *port.shape[1:]]), port.dtype)
    by_layer = [_Channels() for _ in nodes]
    for sample in samples:
        tensors = session.run(names, {port.name: sample[None]})
        for channels, outputs, change in zip(by_layer, tensors[::2], tensors[1::2], strict=True):
            channels.add(*(each.reshape(*each.shape[:2], -1).swapaxes(1, 2).reshape(-1, each.shape[1])
                           for each in (outputs, change)))  # fmt: skip
    return by_layer
