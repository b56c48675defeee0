"""Ranges that int8 counts in: clipped to percentiles, and spared from the -inf of masks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

OUTSIDE = 0.001
"""The share of a tensor's values that lies beyond either end of its range: the 0.1 and the 99.9 percentile."""


class Tails:
    """The two ends of a stream of arrays of one size."""

    def __init__(self, values: int) -> None:
        """`values`: how many will come in all."""
        self._keep = 1 + int(OUTSIDE * (values - 1))
        self._low = self._high = np.zeros(0, dtype=np.float32)

    def add(self, values: np.ndarray) -> None:
        """Take in the next array."""
        last = self._keep - 1
        low, high = np.append(self._low, values), np.append(self._high, values)
        self._low = np.partition(low, last)[: self._keep] if len(low) > self._keep else low
        self._high = -np.partition(-high, last)[: self._keep] if len(high) > self._keep else high

    def ends(self) -> tuple[np.float32, np.float32]:
        """The range that leaves out the given share at either end."""
        return self._low.max(), self._high.min()


def clip_ranges(
    content: bytes, samples: Sequence[Mapping[str, np.ndarray]], ranges: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Calibrated ranges (min and max by tensor name) with those of activations narrowed; weights keep theirs.

    `samples` are inputs of the float model in `content` by their tensors' names, batch 1 each.

    The few values beyond the percentiles no longer set the step of all others. Exact, over all samples at once: of each
    tensor only the largest and smallest values are kept, as many as may lie outside.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1, experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    constant = _constants(content)
    wanted = {
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
        for name, index in wanted.items():
            values = interpreter.get_tensor(index).ravel()
            tails.setdefault(name, Tails(len(samples) * values.size)).add(values)
    found = {name: dict(fields) for name, fields in ranges.items()}
    for name, tail in tails.items():
        for key, end in zip(("min", "max"), tail.ends(), strict=True):
            found[name][key] = np.full_like(found[name][key], end)
    return found


def _constants(content: bytes) -> set[str]:
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(content, 0)
    filled = {place for place, buffer in enumerate(model.buffers) if buffer.data is not None and len(buffer.data)}
    return {tensor.name.decode() for graph in model.subgraphs for tensor in graph.tensors if tensor.buffer in filled}


LOWEST_SCORE = -1e8
"""What is below is a mask."""
MARGIN = 16.0
"""exp(-16) is 1e-7; an int8 softmax counts in steps of 1/256."""


def mask_value(spreads: Iterable[float]) -> float:
    """The mask's new value, from maximum - minimum of the scores that it is added to.

    8 bits hold no -inf: TFLite's quantizer casts it and the interpreter dies, ONNX Runtime's stretches the range of the
    scores so far that none of them can be told apart. PyTorch's export writes float32's lowest number for some masks,
    and networks bring -1e9. A value below all that is let through by MARGIN is as good: softmax gives it less than an
    int8 output can hold.
    """
    return -MARGIN - max(spreads, default=0.0)
