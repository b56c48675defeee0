"""Ranges for int8: clip them to percentiles, and replace the -inf of masks, which would widen them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

OUTSIDE = 0.001
"""The share of a tensor's values beyond each end of its range: the range is the 0.1 to the 99.9 percentile."""


class Tails:
    """Collects the smallest and the largest values of a stream of arrays, as many as a range may leave out."""

    def __init__(self, values: int) -> None:
        """`values` is the total number of values that will be added."""
        self._keep = 1 + int(OUTSIDE * (values - 1))
        self._low = self._high = np.zeros(0, dtype=np.float32)

    def add(self, values: np.ndarray) -> None:
        """Add the next array."""
        last = self._keep - 1
        low, high = np.append(self._low, values), np.append(self._high, values)
        self._low = np.partition(low, last)[: self._keep] if len(low) > self._keep else low
        self._high = -np.partition(-high, last)[: self._keep] if len(high) > self._keep else high

    def bounds(self) -> tuple[np.float32, np.float32]:
        """Return the range that leaves out the share OUTSIDE at each end."""
        return self._low.max(), self._high.min()


def clip_ranges(
    content: bytes, samples: Sequence[Mapping[str, np.ndarray]], ranges: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Clip the calibrated ranges of activations to percentiles; the ranges of weights do not change.

    Without clipping, a few extreme values would determine the quantization step of all others. The percentiles are
    exact and taken over all samples together. Only the smallest and largest values of each tensor are stored to compute
    them.

    Parameters
    ----------
    content
        The float model.
    samples
        Inputs of the model by the names of their tensors, each with a batch of 1.
    ranges
        min and max by the name of the tensor.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1, experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    constant = _constants(content)
    indices = {
        detail["name"]: detail["index"]
        for detail in interpreter.get_tensor_details()
        if detail["name"] in ranges and detail["name"] not in constant and detail["dtype"] == np.float32
    }
    sources = {detail["name"]: detail["index"] for detail in interpreter.get_input_details()}
    tails: dict[str, Tails] = {}
    for sample in samples:
        for name, tensor in sample.items():
            interpreter.set_tensor(sources[name], tensor)
        interpreter.invoke()
        for name, index in indices.items():
            values = interpreter.get_tensor(index).ravel()
            tails.setdefault(name, Tails(len(samples) * values.size)).add(values)
    clipped = {name: dict(fields) for name, fields in ranges.items()}
    for name, tail in tails.items():
        for key, bound in zip(("min", "max"), tail.bounds(), strict=True):
            clipped[name][key] = np.full_like(clipped[name][key], bound)
    return clipped


def _constants(content: bytes) -> set[str]:
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(content, 0)
    filled = {index for index, buffer in enumerate(model.buffers) if buffer.data is not None and len(buffer.data)}
    return {tensor.name.decode() for graph in model.subgraphs for tensor in graph.tensors if tensor.buffer in filled}


LOWEST_SCORE = -1e8
"""Values below this are masks."""
MARGIN = 16.0
"""Distance of a mask below all scores. exp(-16) is about 1e-7, while an int8 softmax has steps of 1/256."""


def mask_value(spreads: Iterable[float]) -> float:
    """Return a new value for a mask, from the spreads (maximum - minimum) of the scores to which it is added.

    8 bits cannot hold -inf: TFLite's quantizer casts it and the interpreter crashes, and ONNX Runtime's quantizer
    widens the range of the scores so far that they become equal. PyTorch's export writes float32's lowest number for
    some masks, and some networks use -1e9. A value that is MARGIN below all scores has the same effect, because its
    softmax is less than an int8 output can represent.
    """
    return -MARGIN - max(spreads, default=0.0)
