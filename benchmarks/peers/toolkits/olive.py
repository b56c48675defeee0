"""Olive's own search over the quantization of an ONNX file: every option that it searches by default."""

from __future__ import annotations

from benchmarks.peers.peer import File, Peer


def beats(one: File, other: File) -> bool:
    """Whether one is at least as good in what Olive measured and in bytes, and better in one of the three."""
    mine, theirs = _figures(one), _figures(other)
    return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def front(files: list[File]) -> list[File]:
    """Those that no other beats, the most accurate first."""
    return sorted((one for one in files if not any(beats(other, one) for other in files)), key=_figures)


def _figures(file: File) -> tuple[float, float, int]:
    """Less is better in each."""
    if file.accuracy is None or file.p50_ms is None:
        raise ValueError(f"{file.path.name}: Olive measured no accuracy or no p50; search again")
    return -file.accuracy, file.p50_ms, file.bytes


PEER = Peer(
    name="olive",
    what="Olive's search over every option of its quantization, its front by accuracy, p50 and bytes",
    packages=("olive-ai==0.13.0", "onnxruntime==1.32.0", "onnx", "requests", "pandas"),
    first=("torch==2.13.0",),
    kept=front,
)
