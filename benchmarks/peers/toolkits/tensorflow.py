"""TensorFlow's converter with its own post-training quantization; onnx2tf makes the Keras model that it reads."""

from __future__ import annotations

from benchmarks.peers.peer import Peer

PEER = Peer(
    name="tensorflow",
    what="TensorFlow's converter, on the Keras model that onnx2tf made of the ONNX file",
    packages=(
        "tensorflow==2.21.0",
        "ai-edge-litert==2.3.0",
        "onnx==1.23.2",
        "onnxruntime==1.31.1",
        "psutil",
        "requests",
    ),
    alone=("onnx2tf==1.29.24", "onnx-graphsurgeon==0.6.1", "sng4onnx==2.0.1", "tf-keras==2.21.0"),
)
