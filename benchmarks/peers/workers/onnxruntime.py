"""Runs in ONNX Runtime's environment: quantize_static and quantize_dynamic with default options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.peers import worker_protocol
from benchmarks.peers.worker_protocol import WorkerJob


class Samples(CalibrationDataReader):
    """Yields one sample after another, by the name of the file's input."""

    def __init__(self, name: str, x: np.ndarray) -> None:
        self._rows = iter([{name: x[position : position + 1]} for position in range(len(x))])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next sample, or None after the last."""
        return next(self._rows, None)


def work(job: WorkerJob) -> list[dict[str, Any]]:
    """Make three files: quantized statically, statically after preprocessing, and dynamically.

    The preprocessing is the one that the documentation advises.
    """
    port = onnx.load(job.model).graph.input[0]
    sides = [side.dim_value for side in port.type.tensor_type.shape.dim[1:]]

    def samples() -> Samples:
        return Samples(port.name, job.samples_for(sides))

    def quantize_prepared(path: Path) -> None:
        prepared_path = job.out / "prepared.onnx"
        quant_pre_process(str(job.model), str(prepared_path))
        quantize_static(str(prepared_path), str(path), samples())

    return [
        worker_protocol.make_file(
            job, "onnxruntime-static.onnx", "quantize_static", lambda path: quantize_static(job.model, path, samples())
        ),
        worker_protocol.make_file(
            job, "onnxruntime-prepared-static.onnx", "quant_pre_process, then quantize_static", quantize_prepared
        ),
        worker_protocol.make_file(
            job, "onnxruntime-dynamic.onnx", "quantize_dynamic", lambda path: quantize_dynamic(job.model, path)
        ),
    ]


if __name__ == "__main__":
    worker_protocol.run_worker(work)
