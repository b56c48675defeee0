"""Masks of -inf, made finite before integers are made of them (`edgekit.targets.masks`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from edgekit.targets.masks import LOWEST, value

MASKING = ("Add", "Where")
"""Operators that put a mask's values in."""


def make_finite(model: Any, samples: Iterable[Mapping[str, np.ndarray]]) -> None:
    """In place; the samples show what scores the network computes."""
    masks = [(tensor, array) for tensor, array in _constants(model) if (array < LOWEST).any()]
    if masks:
        _fill(masks, 0.0)
        _fill(masks, value(_spreads(model, samples)))


def _constants(model: Any) -> Iterator[tuple[Any, np.ndarray]]:
    """Floats that a masking operator takes."""
    from onnx import numpy_helper

    tensors = {one.name: one for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensors[node.output[0]] = node.attribute[0].t
    taken = {name for node in model.graph.node if node.op_type in MASKING for name in node.input}
    for tensor in (tensors[name] for name in sorted(taken & tensors.keys())):
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            yield tensor, array


def _fill(masks: Iterable[tuple[Any, np.ndarray]], mask: float) -> None:
    from onnx import numpy_helper

    for tensor, array in masks:
        tensor.CopyFrom(numpy_helper.from_array(np.where(array < LOWEST, np.float32(mask), array), tensor.name))


def _spreads(model: Any, samples: Iterable[Mapping[str, np.ndarray]]) -> list[float]:
    """Maximum - minimum of each tensor that softmax takes, over all samples."""
    import onnx

    from edgekit.runner.backends.onnxruntime import session

    names = sorted({node.input[0] for node in model.graph.node if node.op_type == "Softmax"})
    if not names:
        return []
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names)
    opened = session(shown.SerializeToString(), None)
    seen = [[(found.min(), found.max()) for found in opened.run(None, dict(sample))] for sample in samples]
    lows, highs = np.moveaxis(np.array(seen), -1, 0)
    return [float(spread) for spread in highs.max(0) - lows.min(0)]
