"""Runs in NNCF's environment: nncf.quantize and nncf.compress_weights, with only the number of samples set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nncf
import numpy as np
import onnx
import openvino

from benchmarks.peers import worker_protocol
from benchmarks.peers.worker_protocol import WorkerJob


def work(job: WorkerJob) -> list[dict[str, Any]]:
    """Quantize and compress the OpenVINO model, and quantize the ONNX file.

    All samples are used for calibration; by default NNCF would stop at 300.
    """
    port = onnx.load(job.model).graph.input[0]
    x = job.samples_for([side.dim_value for side in port.type.tensor_type.shape.dim[1:]])
    rows = [x[position : position + 1] for position in range(len(x))]

    def read() -> Any:
        model = openvino.Core().read_model(job.model)
        model.reshape([1, *x.shape[1:]])
        return model

    def quantized(path: Path) -> None:
        openvino.save_model(nncf.quantize(read(), nncf.Dataset(rows), subset_size=len(rows)), path)

    def compressed(path: Path) -> None:
        openvino.save_model(nncf.compress_weights(read()), path)

    def quantized_onnx(path: Path) -> None:
        named_rows: list[dict[str, np.ndarray]] = [{port.name: row} for row in rows]
        model = nncf.quantize(onnx.load(job.model), nncf.Dataset(named_rows), subset_size=len(rows))
        onnx.save(model, path)

    return [
        worker_protocol.make_file(job, "nncf-quantize.xml", "nncf.quantize of the OpenVINO model", quantized),
        worker_protocol.make_file(
            job, "nncf-compress-weights.xml", "nncf.compress_weights of the OpenVINO model", compressed
        ),
        worker_protocol.make_file(job, "nncf-quantize.onnx", "nncf.quantize of the ONNX file", quantized_onnx),
    ]


if __name__ == "__main__":
    worker_protocol.run_worker(work)
