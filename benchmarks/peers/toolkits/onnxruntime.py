"""ONNX Runtime's own quantizer, in the release that the workbook has."""

from __future__ import annotations

from benchmarks.peers.peer import Peer

PEER = Peer(
    name="onnxruntime",
    what="ONNX Runtime's quantizer at its defaults, static and dynamic",
    packages=("onnxruntime[quantization,symbolic]==1.31.1", "onnx==1.23.2"),
)
