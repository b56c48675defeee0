"""NNCF at its defaults, on an OpenVINO model and on an ONNX file."""

from __future__ import annotations

from benchmarks.peers.peer import Peer

PEER = Peer(
    name="nncf",
    what="NNCF's quantize and compress_weights at their defaults",
    packages=("nncf==3.4.0", "openvino==2026.4.1", "onnx==1.23.2", "onnxruntime==1.31.1"),
)
