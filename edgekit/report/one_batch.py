"""Apply the method of a stage to one batch, with the stage's own functions, for the visible cells of the notebooks.

Nothing here is sealed or decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.core.artifacts import Artifact
from edgekit.report.formatting import count, percent
from edgekit.report.tables import Table

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from edgekit.core.variants import Variant
    from edgekit.data import Data
    from edgekit.stages.distill.config import DistillConfig

BATCH = 32
"""Number of samples in the batch."""
Shapes = dict[str, tuple[int, ...]]


def student_and_teacher(profile: Artifact, data: Data, config: DistillConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs of the untrained student and of the baseline for one batch, and the batch's labels.

    The batch consists of training samples. If the task is to reconstruct its input, the inputs are returned as the
    labels. If there are candidates, the first of them is the student.
    """
    import torch

    from edgekit.core import tasks
    from edgekit.models import store
    from edgekit.models.eager import eager_input
    from edgekit.models.from_artifact import open_model, spec_for

    teacher, spec = open_model(profile)
    network = config.student or config.candidates[0]
    student = store.build(spec_for(data, network.builder, network.kwargs, spec.preprocess), config.seed)
    x = eager_input(data.train.x[:BATCH], spec.preprocess)
    targets = x if tasks.load_task(data.task).RECONSTRUCTS else torch.tensor(data.train.y[:BATCH])
    with torch.no_grad():
        from edgekit.models.eager import join_outputs

        return join_outputs(student(x)), join_outputs(teacher(x)), targets


def softened(outputs: Tensor, data: Data, temperatures: Sequence[float], max_classes: int = 4) -> Table:
    """Show the most probable classes of the first sample of `outputs` (N, classes), at each temperature."""
    if data.task != "classification":
        return Table(("classes",), [("none: the outputs of this task are not softened",)])
    order = outputs[0].argsort(descending=True).tolist()[:max_classes]
    shares = [(outputs[0] / temperature).softmax(dim=0).tolist() for temperature in dict.fromkeys(temperatures)]
    rows = [(data.classes[place], *(percent(share[place]) for share in shares)) for place in order]
    heads = [f"at T = {temperature:g}" for temperature in dict.fromkeys(temperatures)]
    return Table(("teacher's class", *heads), rows, "One sample: the teacher's most probable classes")


def weight_shapes(network: nn.Module) -> Shapes:
    """Return the shape of every weight with more than one axis, by layer: (outputs, inputs, *kernel)."""
    return {
        name.removesuffix(".weight"): tuple(weight.shape)
        for name, weight in network.named_parameters()
        if weight.ndim > 1
    }


def pruned_shapes(before: Shapes, after: Shapes, max_layers: int = 6) -> Table:
    """Show shapes and weights before and after pruning, for the first layers that became smaller and for all layers
    together.
    """
    sizes = [{name: _product(shape) for name, shape in shapes.items()} for shapes in (before, after)]
    smaller = [name for name in before if after[name] != before[name]]
    rows = [
        (name, _by(before[name]), _by(after[name]), *(count(size[name]) for size in sizes), _saved(*_of(sizes, name)))
        for name in smaller[:max_layers]
    ]
    totals = [sum(size.values()) for size in sizes]
    rows.append((f"all {len(before)} layers", "", "", *map(count, totals), _saved(*totals)))
    return Table(("layer", "shape before", "after", "weights before", "after", "saved"), rows)


@dataclass(frozen=True, eq=False)
class QuantizedWeight:
    """The float weights of a layer, and the same weights after its quantizer in the sealed network, both float32.

    `scale` is the step of each output channel. The integers run from `low` to `high`, and float 0 is at `zero_point`.
    """

    layer: str
    float32: np.ndarray
    int8: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray
    low: int
    high: int


def quantized_weight(quantize: Artifact) -> QuantizedWeight:
    """Return the weights of the most sensitive int8 layer of the network in a quantize artifact."""
    import json

    import torch

    from edgekit.models import store
    from edgekit.models.quantized import rebuild
    from edgekit.stages.quantize.ptq import quantized_layers

    network = rebuild(quantize.path / "model", quantize.path / "nncf")
    spec = store.read_spec(quantize.file("model/model.json").parent)
    layers = {layer.name: layer for layer in quantized_layers(network, store.zero_sample(spec))}
    worst_first = [
        row["layer"] for row in json.loads(quantize.file("sensitivity.json").read_text(encoding="utf-8"))["layers"]
    ]
    name = next(name for name in [*worst_first, *layers] if name in layers)
    quantizer: Any = network.get_submodule(layers[name].weights[0])
    weight = network.get_parameter(f"network.{name}.weight").detach()
    bottom, top = (end.detach().flatten() for end in quantizer.get_input_low_input_high())
    low, high = quantizer.level_low, quantizer.level_high
    scale = (top - bottom) / (high - low)
    with torch.no_grad():
        rounded = quantizer(weight).numpy()
    return QuantizedWeight(
        name, weight.numpy(), rounded, scale.numpy(), (low - bottom / scale).round().numpy(), low, high
    )


def by_precision(variants: list[Variant]) -> list[Variant]:
    """Return the variants of the same network and target as the first variant."""
    first = variants[0]
    return [variant for variant in variants if (variant.model, variant.target) == (first.model, first.target)]


def float_and_int8(variants: list[Variant]) -> list[Variant]:
    """Return the first variant, and the int8 variant or, if there is none, the last variant."""
    int8 = [variant for variant in variants if variant.precision == "int8"]
    other = (int8 or variants)[-1]
    return [variants[0]] if other is variants[0] else [variants[0], other]


def network_folder(convert: Artifact, variant: Variant) -> Path:
    """Return the folder of the PyTorch network that a float variant was converted from."""
    from edgekit.stages.convert.plan import ORIGINS

    stage, folder = ORIGINS[variant.model]
    return convert.ancestor(stage).path / folder


def one_call(convert: Artifact, variant: Variant, inputs: np.ndarray) -> Callable[[], np.ndarray]:
    """Run one network input (1, …) through the file of a variant, on the interpreter that the device will use."""
    from edgekit.core import variants

    ordered = inputs.transpose(0, 2, 3, 1).copy() if variant.input.layout == "NHWC" else inputs
    return variants.variant_call(convert, variant, ordered)


def _product(shape: tuple[int, ...]) -> int:
    size = 1
    for side in shape:
        size *= side
    return size


def _by(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def _of(sizes: list[dict[str, int]], name: str) -> tuple[int, int]:
    return sizes[0][name], sizes[1][name]


def _saved(before: int, after: int) -> str:
    return f"{1 - after / before:.0%}" if before else ""
