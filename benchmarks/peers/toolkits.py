"""The toolkits that edgekit is compared with. `workers/NAME.py` runs each of them in an environment of its own."""

from __future__ import annotations

from benchmarks.peers.peer import OutputFile, Peer


def pareto_front(files: list[OutputFile]) -> list[OutputFile]:
    """Return the files that no other file beats in accuracy, p50 and bytes, the most accurate first."""
    return sorted((file for file in files if not any(_dominates(other, file) for other in files)), key=_figures)


def _dominates(file: OutputFile, other: OutputFile) -> bool:
    figures, other_figures = _figures(file), _figures(other)
    return figures != other_figures and all(a <= b for a, b in zip(figures, other_figures, strict=True))


def _figures(file: OutputFile) -> tuple[float, float, int]:
    """Return figures of which less is better."""
    if file.accuracy is None or file.p50_ms is None:
        raise ValueError(f"{file.path.name}: Olive measured no accuracy or no p50; search again")
    return -file.accuracy, file.p50_ms, file.bytes


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            name="ai_edge_quantizer",
            what="ai-edge-quantizer's stock recipes, calibrated as it does by default",
            packages=("ai-edge-quantizer==0.10.0", "ai-edge-litert==2.3.0"),
        ),
        Peer(
            name="nncf",
            what="NNCF's quantize and compress_weights at their defaults",
            packages=("nncf==3.4.0", "openvino==2026.4.1", "onnx==1.23.2", "onnxruntime==1.31.1"),
        ),
        Peer(
            name="olive",
            what="Olive's search over every option of its quantization, its front by accuracy, p50 and bytes",
            packages=("olive-ai==0.13.0", "onnxruntime==1.32.0", "onnx", "requests", "pandas"),
            first=("torch==2.13.0",),
            select=pareto_front,
        ),
        Peer(
            name="onnxruntime",
            what="ONNX Runtime's quantizer at its defaults, static and dynamic",
            packages=("onnxruntime[quantization,symbolic]==1.31.1", "onnx==1.23.2"),
        ),
        Peer(
            name="tensorflow",
            what="TensorFlow's converter, on the Keras model that onnx2tf made of the ONNX file",
            packages=(
                *("tensorflow==2.21.0", "ai-edge-litert==2.3.0", "onnx==1.23.2", "onnxruntime==1.31.1"),
                *("psutil", "requests"),
            ),
            without_dependencies=(
                "onnx2tf==1.29.24",
                "onnx-graphsurgeon==0.6.1",
                "sng4onnx==2.0.1",
                "tf-keras==2.21.0",
            ),
        ),
    )
}
