"""Runs in ONNX Runtime's environment: quantize_static and quantize_dynamic, no option set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.peers import given
from benchmarks.peers.given import Given


class Samples(CalibrationDataReader):
    """One sample after another, by the name of the file's input."""

    def __init__(self, name: str, x: np.ndarray) -> None:
        self._rows = iter([{name: x[place : place + 1]} for place in range(len(x))])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next sample, None after the last."""
        return next(self._rows, None)


def work(to: Given) -> list[dict[str, Any]]:
    """Static as it is called, static after the preparation that its documentation advises, and dynamic."""
    port = onnx.load(to.model).graph.input[0]
    sides = [side.dim_value for side in port.type.tensor_type.shape.dim[1:]]

    def samples() -> Samples:
        return Samples(port.name, to.samples_for(sides))

    def prepared(path: Path) -> None:
        ready = to.out / "prepared.onnx"
        quant_pre_process(str(to.model), str(ready))
        quantize_static(str(ready), str(path), samples())

    return [
        given.made(
            to, "onnxruntime-static.onnx", "quantize_static", lambda path: quantize_static(to.model, path, samples())
        ),
        given.made(to, "onnxruntime-prepared-static.onnx", "quant_pre_process, then quantize_static", prepared),
        given.made(to, "onnxruntime-dynamic.onnx", "quantize_dynamic", lambda path: quantize_dynamic(to.model, path)),
    ]


if __name__ == "__main__":
    given.answer(work)
