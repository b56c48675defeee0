"""Masks of -inf, made finite before integers are made of them (`edgekit.targets.masks`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgekit.targets import float_ops
from edgekit.targets.masks import LOWEST, value

MASKING = ("ADD", "SELECT", "SELECT_V2", "WHERE")
"""Operators that put a mask's values in; as an end of a range -inf has another meaning."""
BEHIND = "SOFTMAX"


def finite(content: bytes, ranges: Callable[[bytes], Mapping[str, Any]]) -> bytes:
    """The model with finite masks, as it is where it has none; `ranges` are min and max of a model's tensors."""
    unmasked = _replaced(content, 0.0)
    if unmasked is content:
        return content
    seen = ranges(unmasked)
    ends = [seen[name] for name in _masked(content) if name in seen]
    return _replaced(content, value(float(np.max(each["max"]) - np.min(each["min"])) for each in ends))


def _replaced(content: bytes, mask: float) -> bytes:
    from edgekit.models.files import flatbuffer

    places: dict[int, np.ndarray] = {}
    model = None
    for model, graph, op, kind in float_ops.tflite_operators(content):
        for tensor in (graph.tensors[place] for place in op.inputs if place >= 0 and kind in MASKING):
            data = _floats(model, tensor)
            if data is not None and (data < LOWEST).any():
                places[tensor.buffer] = data
    if model is None or not places:
        return content
    for place, data in places.items():
        model.buffers[place].data = np.where(data < LOWEST, np.float32(mask), data).view(np.uint8)
    return flatbuffer.write(model)


def _floats(model: Any, tensor: Any) -> np.ndarray | None:
    from ai_edge_litert import schema_py_generated as schema

    data = model.buffers[tensor.buffer].data
    is_float = tensor.type == schema.TensorType.FLOAT32 and data is not None and len(data)
    return data.view(np.float32) if is_float else None


def _masked(content: bytes) -> list[str]:
    """Tensors that a mask is in: what softmax takes, and what the masking operators give."""
    found = []
    for _, graph, op, kind in float_ops.tflite_operators(content):
        places = op.inputs if kind == BEHIND else op.outputs if kind in MASKING else ()
        found += [graph.tensors[place].name.decode() for place in places]
    return found
