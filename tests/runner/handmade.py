"""Model files made by hand: seeds for the doctor, and what interpreters are probed with.

Imports nothing but the standard library, so that it also runs in the bare environments of the interpreters.
"""

from __future__ import annotations

import struct

EMPTY = bytes.fromhex(
    "1800000054464c3300000e00140010000c000800000004000e000000100000001c0000005000000003000000010000000800000004000400"
    "04000000010000001000"
    "00000c00140010000c00080004000c000000100000001000000010000000100000000000000000000000000000000000000001000000100000000c000c0000000000080004000c000000"
)
"""A `.tflite` file with one empty graph and one operator code, less that code's last two fields."""


def tflite(code: int, version: int) -> bytes:
    """A `.tflite` file that asks for one builtin operator, by its number, at a version."""
    return EMPTY + struct.pack("<ii", code, version)


def field(number: int, value: int | bytes) -> bytes:
    """One field of a Protocol Buffers message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def onnx(opset: int, ir_version: int, operator: str = "Identity", domain: str = "") -> bytes:
    """An `.onnx` file with one operator, from a float "x" [1] to "y" [1]."""

    def port(name: bytes) -> bytes:
        shape = field(1, field(1, 1))  # TensorShapeProto.dim.dim_value
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))

    node = field(1, b"x") + field(2, b"y") + field(4, operator.encode()) + field(7, domain.encode())
    graph = field(1, node) + field(2, b"g") + field(11, port(b"x")) + field(12, port(b"y"))
    imports = field(8, field(1, b"") + field(2, opset))
    if domain:
        imports += field(8, field(1, domain.encode()) + field(2, 1))
    return field(1, ir_version) + field(7, graph) + imports


def ir(*layers: tuple[str, str], version: int = 11) -> bytes:
    """An OpenVINO `.xml` of layers, (type, opset) each."""
    body = "".join(f'<layer id="{i}" name="l{i}" type="{kind}" version="{o}"/>' for i, (kind, o) in enumerate(layers))
    return f'<?xml version="1.0"?><net name="m" version="{version}"><layers>{body}</layers></net>'.encode()
