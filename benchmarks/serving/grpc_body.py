"""A ModelInferRequest of the Open Inference Protocol as bytes of gRPC, written by hand so that no client counts."""

from __future__ import annotations

import struct

import numpy as np

from benchmarks.serving.ours import DATATYPES

PATH = "/inference.GRPCInferenceService/ModelInfer"
HEADERS = {"content-type": "application/grpc", "te": "trailers"}


def body(model: str, sample: np.ndarray, kind: str) -> bytes:
    """One sample in raw_input_contents, asking for the output alone, framed as gRPC frames a message."""
    shape = b"".join(_varint(side) for side in (1, *sample.shape))
    tensor = _field(1, kind.encode()) + _field(2, DATATYPES[sample.dtype.name].encode()) + _field(3, shape)
    message = _field(1, model.encode()) + _field(5, tensor) + _field(6, _field(1, b"output"))
    message += _field(7, sample.tobytes())
    return struct.pack(">BI", 0, len(message)) + message


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
