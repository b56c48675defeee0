"""The operators of an `.onnx` file, read with just enough Protocol Buffers to walk its nodes.

ModelProto           ir_version (1), graph (7), opset_import (8), functions (25)
OperatorSetIdProto   domain (1), version (2)
GraphProto           node (1)
FunctionProto        name (1), node (7), domain (10)
NodeProto            op_type (4), attribute (5), domain (7)
AttributeProto       g (6), graphs (11): the bodies of If, Loop and Scan

TENSOR_PATHS lists the other fields that lead to a TensorProto, whose external_data (13) and data_location (14) name a
file.
"""

from __future__ import annotations

from collections.abc import Iterator

from edgekit.runner.errors import BundleError
from edgekit.runner.operators import ModelRequirements, Operator

STANDARD = "ai.onnx"
DEEPEST = 32
TENSOR_PATHS = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
"""For each message type, the field numbers that lead to tensors."""
EXTERNAL_DATA_FIELDS = (13, 14)
ORT_FORMAT = b"ORTM"
"""Bytes 4 to 8 of ONNX Runtime's own format. It is recognised under any file name, and may refer to other files too."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
RELEASES: tuple[tuple[tuple[int, int], int, int], ...] = (
    ((1, 17), 20, 9),
    ((1, 18), 21, 10),
    ((1, 19), 21, 10),
    ((1, 20), 21, 10),
    ((1, 21), 22, 10),
    ((1, 22), 22, 10),
    ((1, 23), 23, 11),
    ((1, 24), 25, 13),
    ((1, 25), 26, 13),  # the same for all releases up to the next line
    ((1, 31), 26, 13),
    ((1, 32), 28, 14),
)
"""The newest opset of the standard domain, and the newest IR version, that each release of ONNX Runtime opens.

Measured by `tests/runner/probe_operators.py` with a model of one Identity operator and one version after another.
"""


def read(data: bytes) -> ModelRequirements:
    """Return the format version, operator sets and operators.

    A model's own functions do not count as operators, but the operators in their bodies do.
    """
    ir_version, graphs, functions, opsets = 0, [], [], {}
    for number, value in _fields(memoryview(data)):
        if number == 1 and isinstance(value, int):
            ir_version = value
        elif number == 7 and not isinstance(value, int):
            graphs.append(value)
        elif number == 8 and not isinstance(value, int):
            domain, version = _opset(value)
            opsets[domain] = version
        elif number == 25 and not isinstance(value, int):
            functions.append(value)
    if not ir_version or not graphs:
        raise BundleError("not an ONNX model: it has no format version or no graph; build the bundle again")
    own_functions = {_function_name(each) for each in functions}
    used = {pair for graph in graphs for pair in _nodes(graph, 1, 0)}
    used |= {pair for body in functions for pair in _nodes(body, 7, 0)}
    operators = {Operator(domain, name, opsets.get(domain, 0)) for domain, name in used - own_functions}
    return ModelRequirements(tuple(sorted(operators)), tuple(sorted(opsets.items())), ir_version)


def newest_supported(release: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the newest (opset, IR version) that a release of ONNX Runtime opens, or None if it was not measured."""
    for measured, opset, ir_version in RELEASES:
        if release[:2] <= measured:
            return opset, ir_version
    return None


def check_closed(data: bytes) -> None:
    """Raise BundleError for a model with tensors in other files, wherever in the model they are.

    ONNX Runtime and OpenVINO look for these files below the working directory.
    """
    if data[4:8] == ORT_FORMAT:
        raise BundleError("in ONNX Runtime's own format, which may name other files; build the bundle again from ONNX")
    messages, is_model = [("model", memoryview(data))], False
    while messages:
        kind, message = messages.pop()
        parts = TENSOR_PATHS[kind]
        for number, value in _fields(message):
            if kind == "tensor" and number in EXTERNAL_DATA_FIELDS and value != 0:
                raise BundleError("has a tensor in another file (external data); save the model as one file")
            if number in parts and not isinstance(value, int):
                messages.append((parts[number], value))
                is_model = is_model or parts[number] == "graph"
    if not is_model:
        raise BundleError("not an ONNX model: it has no graph; build the bundle again")


def _nodes(message: memoryview, slot: int, depth: int) -> Iterator[tuple[str, str]]:
    """Yield (domain, operator) of every node in a graph or function, including nested graphs."""
    if depth > DEEPEST:
        raise BundleError(f"malformed ONNX model: graphs nested deeper than {DEEPEST}; convert the model again")
    for number, node in _fields(message):
        if number != slot or isinstance(node, int):
            continue
        name, domain = "", ""
        for inner, value in _fields(node):
            if isinstance(value, int):
                continue
            if inner == 4:
                name = _text(value)
            elif inner == 7:
                domain = _text(value)
            elif inner == 5:
                for each, graph in _fields(value):
                    if each in (6, 11) and not isinstance(graph, int):
                        yield from _nodes(graph, 1, depth + 1)
        yield domain or STANDARD, name


def _opset(message: memoryview) -> tuple[str, int]:
    domain, version = "", 0
    for number, value in _fields(message):
        if number == 1 and not isinstance(value, int):
            domain = _text(value)
        elif number == 2 and isinstance(value, int):
            version = value
    return domain or STANDARD, version


def _function_name(message: memoryview) -> tuple[str, str]:
    texts = {
        number: _text(value) for number, value in _fields(message) if number in (1, 10) and not isinstance(value, int)
    }
    return texts.get(10, "") or STANDARD, texts.get(1, "")


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield (number, value) of every field: integers, or slices for fields with a length."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == VARINT:
            value, position = _varint(message, position)
            yield key >> 3, value
            continue
        if kind == BYTES:
            length, position = _varint(message, position)
        elif kind in (FIXED32, FIXED64):
            length = 4 if kind == FIXED32 else 8
        else:
            raise BundleError(f"malformed ONNX model: wire type {kind}; convert the model again")
        if length > len(message) - position:
            raise BundleError("malformed ONNX model: a field reaches past its end; convert the model again")
        yield key >> 3, message[position : position + length]
        position += length


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise BundleError("malformed ONNX model: a number without an end; convert the model again")


def _text(value: memoryview) -> str:
    return bytes(value).decode("utf-8", errors="replace")
