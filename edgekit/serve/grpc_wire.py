"""Encoding of the Open Inference Protocol v2 as protocol buffers, to and from the types of `wire`."""

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
"""The field that holds the typed contents of each datatype."""
MULTIPLE_CONTENTS = {**CONTENTS, "INT64": "int64_contents"}
"""The same for models with several inputs, which may have INT64 tensors as well."""
NO_BYTES = memoryview(b"")
MAX_DIMENSIONS = 32
MAX_PARAMETERS = 64
MAX_FIELDS = 256
"""The largest number of fields in a request, more than any valid request has."""
PLAIN_BYTES = 64 << 10
"""Messages up to this size are parsed without a check."""
LENGTH_DELIMITED = 2
"""The wire type of all fields of a request."""
RAW_FIELD = 7
"""The number of `raw_input_contents` in a ModelInferRequest."""


def check_size(body: bytes, is_infer_request: bool, limit_bytes: int) -> None:
    """Raise RequestError (400 or 413) if parsing a message would take much more memory than its bytes.

    Only the raw tensors of an inference request may be long. Other fields grow when they are parsed: a requested
    output, for example, may take two bytes in the message and thirty times as much afterwards.
    """
    if len(body) <= PLAIN_BYTES:
        return
    if not is_infer_request:
        raise RequestError(413, f"message: got {len(body)} bytes, but at most {PLAIN_BYTES} are accepted")
    other_bytes = _bytes_beside_raw_tensors(body)
    if other_bytes > limit_bytes:
        raise RequestError(
            413, f"message: got {other_bytes} bytes beside raw_input_contents, but at most {limit_bytes} are accepted"
        )


def _bytes_beside_raw_tensors(body: bytes) -> int:
    """Return the size of all fields except the raw tensors. Raises RequestError (400) if there are too many fields."""
    position = other_bytes = 0
    for _ in range(MAX_FIELDS):
        if position >= len(body):
            return other_bytes
        key, start = _varint(body, position)
        length, end = _varint(body, start) if key & 7 == LENGTH_DELIMITED else (len(body) - start, start)
        other_bytes += end - position if key >> 3 == RAW_FIELD else end + length - position
        position = end + length
    raise RequestError(400, f"message: got more than {MAX_FIELDS} fields")


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """Read a varint of the wire format, and return it with the position after it.

    A truncated number is not an error here, because the parser will refuse it.
    """
    value = shift = 0
    while position < len(body) and shift < 64:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, position


def parse(request: Any, model_input: wire.ModelInput, output_names: Sequence[str]) -> wire.InferRequest:
    """Parse a ModelInferRequest. Raises RequestError (400), whose message says what was expected."""
    raw = request.raw_input_contents
    count = len(model_input.inputs)
    if len(request.inputs) > wire.MAX_TENSORS:
        raise RequestError(400, f"inputs: got {len(request.inputs)}; the model takes {count} inputs")
    if len(request.outputs) > wire.MAX_TENSORS:
        raise RequestError(
            400, f"outputs: got {len(request.outputs)}; list some of {', '.join(output_names)}, or none for all"
        )
    inputs, binary_data = (
        _single_input(request.inputs, raw, model_input) if count == 1 else _multiple_inputs(request.inputs, raw, count)
    )
    values = {
        "id": request.id,
        "inputs": inputs,
        "parameters": {**_parameters(request.parameters), "binary_data_output": True},
    }
    if request.outputs:
        values["outputs"] = [_output_object(each) for each in request.outputs]
    return wire.parse_object(values, binary_data, model_input, output_names)


def _single_input(
    tensors: Sequence[Any], raw: Sequence[bytes], model_input: wire.ModelInput
) -> tuple[list[dict[str, Any]], memoryview]:
    """Return the only input in the form of the JSON request, and the binary data after it."""
    if len(tensors) != 1:
        raise RequestError(
            400, f"inputs: got {len(tensors)}; the model takes one input, {model_input.inputs[0].name!r}"
        )
    if len(raw) > 1:
        raise RequestError(400, f"raw_input_contents: got {len(raw)} for one input; give one")
    binary_data = memoryview(raw[0]) if raw else NO_BYTES
    return [_input_object(tensors[0], binary_data if raw else None)], binary_data


def _multiple_inputs(
    tensors: Sequence[Any], raw: Sequence[bytes], count: int
) -> tuple[list[dict[str, Any]], memoryview]:
    """Return several inputs in the form of the JSON request, and the binary data after it.

    Either all inputs have raw contents, or none.
    """
    if len(tensors) != count:
        return [{"name": each.name} for each in tensors], NO_BYTES  # refused later, with their names in the message
    if raw and len(raw) != count:
        raise RequestError(400, f"raw_input_contents: got {len(raw)} for {count} inputs; give one for each, or none")
    views: Sequence[memoryview | None] = [memoryview(each) for each in raw] or [None] * count
    pairs = enumerate(zip(tensors, views, strict=True))
    return [_input_object(*each, number, MULTIPLE_CONTENTS) for number, each in pairs], memoryview(b"".join(raw))


def _input_object(
    tensor: Any, raw: memoryview | None, number: int = 0, contents: Mapping[str, str] = CONTENTS
) -> dict[str, Any]:
    """Return an input in the form of the JSON request."""
    if len(tensor.shape) > MAX_DIMENSIONS:  # checked first, because the product of a huge shape takes minutes
        raise RequestError(400, f"inputs[{number}].shape: got {len(tensor.shape)} dimensions; see the model's metadata")
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
    contents_field = contents.get(tensor.datatype)
    if contents_field is not None and filled != [contents_field]:
        got = ", ".join(filled) or "nothing"
        raise RequestError(
            400,
            f"inputs[{number}].contents: got {got}; send {tensor.datatype} in {contents_field} or raw_input_contents",
        )
    return {**values, "data": list(getattr(tensor.contents, contents_field)) if contents_field is not None else None}


def _output_object(output: Any) -> dict[str, Any]:
    """Return an output in the form of the JSON request. Over gRPC, all outputs are raw."""
    return {"name": output.name, "parameters": {**_parameters(output.parameters), "binary_data": True}}


def _parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    if len(parameters) > MAX_PARAMETERS:
        raise RequestError(400, f"parameters: got {len(parameters)}, but at most {MAX_PARAMETERS} are accepted")
    values = {}
    for name, each in parameters.items():
        kind = each.WhichOneof("parameter_choice")
        values[name] = getattr(each, kind) if kind else None
    return values


def response(name: str, version: str, request_id: str, tensors: Sequence[tuple[wire.Tensor, bool]]) -> Any:
    """Return a ModelInferResponse with all outputs in raw_output_contents."""
    return ModelInferResponse(
        model_name=name,
        model_version=version,
        id=request_id,
        outputs=[InferOutputTensor(name=each.name, datatype=each.datatype, shape=each.shape) for each, _ in tensors],
        raw_output_contents=[wire.raw_block(each) for each, _ in tensors],
    )
