"""The Open Inference Protocol v2 as protocol buffers: requests and answers in the terms of `wire`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.serve import wire
from edgekit.serve.errors import RequestError
from edgekit.serve.protocol_buffers import message

ModelInferResponse = message("ModelInferResponse")
InferOutputTensor = message("ModelInferResponse.InferOutputTensor")

CONTENTS = {"UINT8": "uint_contents", "INT8": "int_contents", "FP32": "fp32_contents", "INT32": "int_contents"}
"""Where typed contents of a datatype stand."""
OF_SEVERAL = {**CONTENTS, "INT64": "int64_contents"}
"""The same for the tensors of a model of several inputs, which may be of one datatype more."""
NOTHING = memoryview(b"")
MOST_DIMENSIONS = 32
MOST_PARAMETERS = 64
MOST_FIELDS = 256
"""Of a request: more than all that any takes."""
PLAIN_BYTES = 64 << 10
"""A message that is no longer is parsed without another look."""
LENGTH_DELIMITED = 2
"""The wire type of all fields of a request."""
RAW_FIELD = 7
"""The number of `raw_input_contents` in a ModelInferRequest."""


def check_size(body: bytes, is_request: bool, most: int) -> None:
    """RequestError (400 or 413) for a message that would take much more memory, once it is parsed, than its bytes do.

    Only raw tensors of a request to a model may be long. Two bytes may be an output, which takes thirty times as many.
    """
    if len(body) <= PLAIN_BYTES:
        return
    if not is_request:
        raise RequestError(413, f"message: got {len(body)} bytes, at most {PLAIN_BYTES} are taken")
    described = _described_bytes(body)
    if described > most:
        raise RequestError(413, f"message: got {described} bytes beside raw_input_contents, at most {most} are taken")


def _described_bytes(body: bytes) -> int:
    """Bytes of a message's fields beside its raw tensors; RequestError (400) for too many fields."""
    at = described = 0
    for _ in range(MOST_FIELDS):
        if at >= len(body):
            return described
        key, start = _varint(body, at)
        length, end = _varint(body, start) if key & 7 == LENGTH_DELIMITED else (len(body) - start, start)
        described += end - at if key >> 3 == RAW_FIELD else end + length - at
        at = end + length
    raise RequestError(400, f"message: got more than {MOST_FIELDS} fields")


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A number of the wire format, and where it ends; one that is cut off is for the parser to refuse."""
    value = shift = 0
    while at < len(body) and shift < 64:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, at


def parse(request: Any, wanted: wire.ModelInput, outputs: Sequence[str]) -> wire.Request:
    """A ModelInferRequest; RequestError (400) says what was got and what is taken."""
    raw = request.raw_input_contents
    count = len(wanted.inputs)
    if len(request.inputs) > wire.MOST_TENSORS:
        raise RequestError(400, f"inputs: got {len(request.inputs)}; the model takes {count} inputs")
    if len(request.outputs) > wire.MOST_TENSORS:
        raise RequestError(
            400, f"outputs: got {len(request.outputs)}; list some of {', '.join(outputs)}, or none for all"
        )
    inputs, rest = _one(request.inputs, raw, wanted) if count == 1 else _several(request.inputs, raw, count)
    values = {
        "id": request.id,
        "inputs": inputs,
        "parameters": {**_parameters(request.parameters), "binary_data_output": True},
    }
    if request.outputs:
        values["outputs"] = [_output(each) for each in request.outputs]
    return wire.understand(values, rest, wanted, outputs)


def _one(
    tensors: Sequence[Any], raw: Sequence[bytes], wanted: wire.ModelInput
) -> tuple[list[dict[str, Any]], memoryview]:
    """As it would stand in JSON, and the bytes behind it."""
    if len(tensors) != 1:
        raise RequestError(400, f"inputs: got {len(tensors)}; the model takes one input, {wanted.inputs[0].name!r}")
    if len(raw) > 1:
        raise RequestError(400, f"raw_input_contents: got {len(raw)} for one input; give one")
    rest = memoryview(raw[0]) if raw else NOTHING
    return [_input(tensors[0], rest if raw else None)], rest


def _several(tensors: Sequence[Any], raw: Sequence[bytes], count: int) -> tuple[list[dict[str, Any]], memoryview]:
    """As they would stand in JSON, and the bytes behind it: raw contents are of all inputs, or of none."""
    if len(tensors) != count:
        return [{"name": each.name} for each in tensors], NOTHING  # refused by their names
    if raw and len(raw) != count:
        raise RequestError(400, f"raw_input_contents: got {len(raw)} for {count} inputs; give one for each, or none")
    views: Sequence[memoryview | None] = [memoryview(each) for each in raw] or [None] * count
    pairs = enumerate(zip(tensors, views, strict=True))
    return [_input(*each, number, OF_SEVERAL) for number, each in pairs], memoryview(b"".join(raw))


def _input(
    tensor: Any, raw: memoryview | None, number: int = 0, contents: Mapping[str, str] = CONTENTS
) -> dict[str, Any]:
    """As it would stand in JSON."""
    if len(tensor.shape) > MOST_DIMENSIONS:  # before any work on it: a product of many sides takes minutes
        raise RequestError(400, f"inputs[{number}].shape: got {len(tensor.shape)} sides; see the model's metadata")
    shape = list(tensor.shape)
    values = {"name": tensor.name, "datatype": tensor.datatype, "shape": shape}
    filled = [field.name for field, _ in tensor.contents.ListFields()]
    if raw is not None:
        if filled:
            raise RequestError(400, f"inputs[{number}]: has contents and raw_input_contents; give one of them")
        is_known = tensor.datatype in contents
        size = math.prod(shape) * wire.DATATYPES[tensor.datatype].itemsize if is_known else len(raw)
        if size != len(raw) and min(shape, default=0) > 0:
            raise RequestError(
                400, f"raw_input_contents[{number}]: got {len(raw)} bytes; {shape} of {tensor.datatype} takes {size}"
            )
        return {**values, "parameters": {"binary_data_size": len(raw)}}
    place = contents.get(tensor.datatype)
    if place is not None and filled != [place]:
        got = ", ".join(filled) or "nothing"
        raise RequestError(
            400, f"inputs[{number}].contents: got {got}; {tensor.datatype} stands in {place}, or in raw_input_contents"
        )
    return {**values, "data": list(getattr(tensor.contents, place)) if place is not None else None}


def _output(output: Any) -> dict[str, Any]:
    """As it would stand in JSON; over gRPC all outputs are raw."""
    return {"name": output.name, "parameters": {**_parameters(output.parameters), "binary_data": True}}


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    if len(given) > MOST_PARAMETERS:
        raise RequestError(400, f"parameters: got {len(given)}; at most {MOST_PARAMETERS} are taken")
    found = {}
    for name, each in given.items():
        kind = each.WhichOneof("parameter_choice")
        found[name] = getattr(each, kind) if kind else None
    return found


def response(name: str, version: str, request_id: str, tensors: Sequence[tuple[wire.Tensor, bool]]) -> Any:
    """A ModelInferResponse, every output in raw_output_contents."""
    return ModelInferResponse(
        model_name=name,
        model_version=version,
        id=request_id,
        outputs=[InferOutputTensor(name=each.name, datatype=each.datatype, shape=each.shape) for each, _ in tensors],
        raw_output_contents=[wire.raw_block(each) for each, _ in tensors],
    )
