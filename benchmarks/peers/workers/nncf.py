"""Runs in NNCF's environment: nncf.quantize and nncf.compress_weights, told only how many samples there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nncf
import numpy as np
import onnx
import openvino

from benchmarks.peers import given
from benchmarks.peers.given import Given


def work(to: Given) -> list[dict[str, Any]]:
    """Both for OpenVINO, and the first for ONNX. By default NNCF would stop at 300 samples."""
    port = onnx.load(to.model).graph.input[0]
    x = to.samples_for([side.dim_value for side in port.type.tensor_type.shape.dim[1:]])
    rows = [x[place : place + 1] for place in range(len(x))]

    def read() -> Any:
        model = openvino.Core().read_model(to.model)
        model.reshape([1, *x.shape[1:]])
        return model

    def quantized(path: Path) -> None:
        openvino.save_model(nncf.quantize(read(), nncf.Dataset(rows), subset_size=len(rows)), path)

    def compressed(path: Path) -> None:
        openvino.save_model(nncf.compress_weights(read()), path)

    def quantized_onnx(path: Path) -> None:
        named: list[dict[str, np.ndarray]] = [{port.name: row} for row in rows]
        model = nncf.quantize(onnx.load(to.model), nncf.Dataset(named), subset_size=len(rows))
        onnx.save(model, path)

    return [
        given.made(to, "nncf-quantize.xml", "nncf.quantize of the OpenVINO model", quantized),
        given.made(to, "nncf-compress-weights.xml", "nncf.compress_weights of the OpenVINO model", compressed),
        given.made(to, "nncf-quantize.onnx", "nncf.quantize of the ONNX file", quantized_onnx),
    ]


if __name__ == "__main__":
    given.answer(work)
