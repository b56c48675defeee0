"""Encoding of the Open Inference Protocol v2: JSON, JSON with binary tensors, or one raw tensor.

Source: github.com/kserve/open-inference-protocol, and Triton's extensions for binary tensors and classification.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import orjson

from edgekit.runner.input_vector import join
from edgekit.serve.errors import RequestError
from edgekit.serve.request import Body

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec

DATATYPES: dict[str, np.dtype[Any]] = {
    "UINT8": np.dtype("u1"),
    "INT8": np.dtype("i1"),
    "FP32": np.dtype("<f4"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
}
DATATYPE_NAMES = {"uint8": "UINT8", "int8": "INT8", "float32": "FP32", "int32": "INT32", "int64": "INT64"}
"""The protocol's name for each dtype that a manifest may have for a sample or one of its tensors."""
MAX_SAMPLES = 256
"""The largest number of samples in a request."""
MAX_TENSORS = 16
MAX_ID_LENGTH = 256
MAX_CONTAINERS = 1 << 19
"""The largest number of lists and objects in a request's JSON. A picture of 640 x 640, nested by pixel, has 410,241."""


class RequestedOutput(NamedTuple):
    """One output that a request asks for. If `classes` is above 0, that many classes are returned instead of values."""

    name: str
    is_binary: bool
    classes: int


class InferRequest(NamedTuple):
    """A parsed request.

    `samples` has the shape (n, *raw). `outputs` is None if the request asks for all outputs; `is_binary` then says
    whether they are sent as binary or as JSON. `timeout_ms` is 0 if the request sets no deadline.
    """

    samples: np.ndarray
    id: str
    outputs: tuple[RequestedOutput, ...] | None
    is_binary: bool
    timeout_ms: float


class Tensor(NamedTuple):
    """An output. `values` is a float32 array, or a list of strings if the datatype is BYTES."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Any


class ModelInput(Protocol):
    """The inputs of a model: one `TensorInput`, or `MultipleInputs`."""

    @property
    def inputs(self) -> tuple[TensorInput, ...]:
        """The input tensors in the model's order."""

    def describe(self) -> str:
        """Describe the inputs in a form for people."""

    def parse_bytes(self, body: Body) -> np.ndarray:
        """Parse a body that is the bytes of one sample into an array (1, *raw). Raises RequestError (400)."""

    def parse_tensors(self, tensors: Any, binary_data: memoryview) -> tuple[np.ndarray, int]:
        """Parse the `inputs` of a request.

        Returns the samples (n, *raw), and how many bytes of `binary_data` they used. Raises RequestError (400).
        """


class TensorInput(NamedTuple):
    """An input tensor with samples of shape (n, *shape)."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def inputs(self) -> tuple[TensorInput, ...]:
        """See `ModelInput`."""
        return (self,)

    def describe(self) -> str:
        """See `ModelInput`."""
        return f"{self.datatype} {list(self.shape)}"

    def parse_bytes(self, body: Body) -> np.ndarray:
        """See `ModelInput`."""
        count = math.prod(self.shape)
        dtype = DATATYPES[self.datatype]
        if len(body) != count * dtype.itemsize:
            raise RequestError(
                400,
                f"body: got {len(body)} bytes; one sample is {self.datatype}{list(self.shape)}, "
                f"{count * dtype.itemsize} bytes",
            )
        return np.frombuffer(body, dtype).reshape(1, *self.shape)

    def parse_tensors(self, tensors: Any, binary_data: memoryview) -> tuple[np.ndarray, int]:
        """See `ModelInput`."""
        if not isinstance(tensors, list) or not 0 < len(tensors) <= MAX_TENSORS:
            raise RequestError(400, f"inputs: got {shorten(tensors)}; the model takes one input, {self.name!r}")
        if len(tensors) != 1:
            raise RequestError(400, f"inputs: got {len(tensors)}; the model takes one input, {self.name!r}")
        tensor = as_object(tensors[0], "inputs[0]")
        if tensor.get("name") != self.name:
            raise RequestError(400, f"inputs[0].name: got {shorten(tensor.get('name'))}; use {self.name!r}")
        return self.parse_tensor(tensor, binary_data)

    def parse_tensor(
        self, tensor: Mapping[str, Any], binary_data: memoryview, where: str = "inputs[0]", start: int = 0
    ) -> tuple[np.ndarray, int]:
        """Parse one tensor of a request.

        Returns the samples (n, *shape), and how many bytes of `binary_data`, from `start` on, they used. `where` is
        the tensor's place in the request, for messages.
        """
        if tensor.get("datatype") != self.datatype:
            raise RequestError(
                400, f"{where}.datatype: got {shorten(tensor.get('datatype'))}; the sample is {self.datatype}"
            )
        shape = _shape(tensor.get("shape"), self, where)
        dtype, value_count = DATATYPES[self.datatype], math.prod(shape)
        size = as_object(tensor.get("parameters", {}), f"{where}.parameters").get("binary_data_size")
        if size is None:
            if "data" not in tensor:
                raise RequestError(
                    400, f"{where}: has no data; give data, or parameters.binary_data_size and the bytes"
                )
            return _from_json(tensor["data"], shape, dtype, where), 0
        if "data" in tensor:
            raise RequestError(400, f"{where}: has data and binary_data_size; give one of them")
        if type(size) is not int or size != value_count * dtype.itemsize:
            raise RequestError(
                400,
                f"{where}.parameters.binary_data_size: got {shorten(size)}; "
                f"{list(shape)} takes {value_count * dtype.itemsize}",
            )
        if start + size > len(binary_data):
            raise RequestError(400, f"body: {len(binary_data)} binary bytes, but binary_data_size says {start + size}")
        return np.frombuffer(binary_data[start : start + size], dtype).reshape(shape), size


def parse_raw(body: Body, model_input: ModelInput) -> InferRequest:
    """Parse a body that consists of the bytes of one sample (a JSON header of length 0)."""
    return InferRequest(model_input.parse_bytes(body), "", None, True, 0.0)


def parse(body: Body, header_bytes: int | None, model_input: ModelInput, output_names: Sequence[str]) -> InferRequest:
    """Parse a request with a JSON header. Raises RequestError (400), whose message says what was expected."""
    if header_bytes is not None and not 0 < header_bytes <= len(body):
        raise RequestError(400, f"Inference-Header-Content-Length: got {header_bytes}; the body has {len(body)} bytes")
    header = body if header_bytes is None else memoryview(body)[:header_bytes]
    binary_data = memoryview(b"") if header_bytes is None else memoryview(body)[header_bytes:]
    return parse_object(as_object(parse_json(header), "request"), binary_data, model_input, output_names)


def parse_object(
    values: Mapping[str, Any], binary_data: memoryview, model_input: ModelInput, output_names: Sequence[str]
) -> InferRequest:
    """Parse a request whose JSON has already been read; `binary_data` holds the bytes of its binary tensors."""
    samples, used = model_input.parse_tensors(values.get("inputs"), binary_data)
    if used != len(binary_data):
        raise RequestError(400, f"body: {len(binary_data) - used} bytes remain after the {used} bytes of the inputs")
    parameters = as_object(values.get("parameters", {}), "parameters")
    request_id = values.get("id", "")
    if not isinstance(request_id, str) or len(request_id) > MAX_ID_LENGTH:
        raise RequestError(400, f"id: got {shorten(request_id)}; use text of at most {MAX_ID_LENGTH} characters")
    is_binary = _flag(parameters, "binary_data_output", False)
    return InferRequest(
        samples,
        request_id,
        _outputs(values.get("outputs"), is_binary, output_names),
        is_binary,
        _timeout_ms(parameters),
    )


def parse_json(text: Body) -> Any:
    """Parse JSON.

    Raises RequestError (400) if the text is not JSON, is nested too deeply or has numbers that are not finite, and
    RequestError (413) if it has too many lists and objects. Each of them takes 80 bytes and some time, so that a
    million would delay all other requests.
    """
    if len(text) > 2 * MAX_CONTAINERS and (count := _containers(bytes(text))) > MAX_CONTAINERS:
        raise RequestError(
            413, f"body: {count} lists and objects in JSON, but at most {MAX_CONTAINERS} are read; give data flat"
        )
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RequestError(400, f"body: not JSON ({error})") from None


def _containers(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


def as_object(value: Any, where: str) -> dict[str, Any]:
    """Return the value if it is a JSON object. Raises RequestError (400) otherwise."""
    if not isinstance(value, dict):
        raise RequestError(400, f"{where}: got {shorten(value)}; use an object")
    return value


_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxlist, _REPR.maxdict, _REPR.maxstring, _REPR.maxother = 3, 16, 8, 100, 100


def shorten(value: Any) -> str:
    """Return a short representation of a received value for messages.

    Only the part that is shown is read, because the value may be long or deeply nested.
    """
    return "nothing" if value is None else _REPR.repr(value)[:100]


def _shape(value: Any, model_input: TensorInput, where: str) -> tuple[int, ...]:
    has_expected_form = (
        isinstance(value, list)
        and len(value) == len(model_input.shape) + 1
        and all(type(side) is int for side in value)
    )
    if not has_expected_form or tuple(value[1:]) != model_input.shape:
        raise RequestError(
            400, f"{where}.shape: got {shorten(value)}; use [n, {', '.join(map(str, model_input.shape))}]"
        )
    if not 1 <= value[0] <= MAX_SAMPLES:
        raise RequestError(400, f"{where}.shape: got {value[0]} samples; use 1 to {MAX_SAMPLES}")
    return tuple(value)


def _from_json(data: Any, shape: tuple[int, ...], dtype: np.dtype, where: str) -> np.ndarray:
    if not isinstance(data, list):
        raise RequestError(400, f"{where}.data: got {shorten(data)}; use a list of numbers")
    try:
        values = np.array(data)
    except (ValueError, OverflowError):
        raise RequestError(
            400, f"{where}.data: its lists differ in length; nest them like the shape, or not at all"
        ) from None
    if values.dtype.kind not in "iuf":
        raise RequestError(400, f"{where}.data: must contain only numbers")
    if values.shape not in (shape, (math.prod(shape),)):
        raise RequestError(
            400, f"{where}.data: got {list(values.shape)}; the shape {list(shape)} takes {math.prod(shape)} values"
        )
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if values.dtype.kind == "f" or values.min() < limits.min or values.max() > limits.max:
            raise RequestError(400, f"{where}.data: use whole numbers from {limits.min} to {limits.max}")
    with np.errstate(over="ignore"):  # numbers that are too large become infinite, which the model refuses
        return np.ascontiguousarray(values.astype(dtype).reshape(shape))


def _outputs(value: Any, is_binary: bool, output_names: Sequence[str]) -> tuple[RequestedOutput, ...] | None:
    if value is None or value == []:  # generated clients send an empty list for no value; Triton accepts it as well
        return None
    if not isinstance(value, list) or len(value) > MAX_TENSORS:
        raise RequestError(
            400, f"outputs: got {shorten(value)}; list some of {', '.join(output_names)}, or leave the key out"
        )
    requested_outputs = []
    for number, each in enumerate(value):
        output = as_object(each, f"outputs[{number}]")
        name = output.get("name")
        if not isinstance(name, str) or name not in output_names:
            raise RequestError(
                400, f"outputs[{number}].name: got {shorten(name)}; the model gives {', '.join(output_names)}"
            )
        parameters = as_object(output.get("parameters", {}), f"outputs[{number}].parameters")
        classes = parameters.get("classification", 0)
        if type(classes) is not int or classes < 0:
            raise RequestError(
                400, f"outputs[{number}].parameters.classification: got {shorten(classes)}; use a whole number"
            )
        requested_outputs.append(RequestedOutput(name, _flag(parameters, "binary_data", is_binary), classes))
    return tuple(requested_outputs)


def _flag(parameters: Mapping[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(400, f"parameters.{name}: got {shorten(value)}; use true or false")
    return value


def _timeout_ms(parameters: Mapping[str, Any]) -> float:
    """Return Triton's parameter `timeout`, which is in microseconds, in ms; 0 if there is none."""
    value = parameters.get("timeout", 0)
    if type(value) is not int or value < 0:
        raise RequestError(400, f"parameters.timeout: got {shorten(value)}; use microseconds, a whole number")
    return value / 1e3


def encode(answer_header: dict[str, Any], outputs: Sequence[tuple[Tensor, bool]]) -> tuple[bytes, int | None]:
    """Encode an answer.

    `outputs` are tensors, each with a flag that says whether it is sent as binary. Returns the body, and the length of
    the JSON header if binary tensors follow it, else None.
    """
    output_entries, blocks = [], []
    for tensor, is_binary in outputs:
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        if is_binary:
            block = raw_block(tensor)
            entry["parameters"] = {"binary_data_size": len(block)}
            blocks.append(block)
        else:
            entry["data"] = tensor.values if tensor.datatype == "BYTES" else tensor.values.ravel()
        output_entries.append(entry)
    header = orjson.dumps({**answer_header, "outputs": output_entries}, option=orjson.OPT_SERIALIZE_NUMPY)
    if not blocks:
        return header, None
    return b"".join((header, *blocks)), len(header)


def raw_block(tensor: Tensor) -> bytes:
    """Return an output's bytes. Strings are encoded as UTF-8, each after its length in four bytes, little-endian."""
    if tensor.datatype != "BYTES":
        return tensor.values.tobytes()
    encoded = [text.encode() for text in tensor.values]
    return b"".join(len(each).to_bytes(4, "little") + each for each in encoded)


def input_of(raw: RawSpec) -> ModelInput:
    """Return the inputs of a model that takes these raw samples."""
    if raw.tensors is None:
        return TensorInput(raw.kind, DATATYPE_NAMES[raw.dtype], raw.shape)
    inputs = [TensorInput(each["name"], DATATYPE_NAMES[each["dtype"]], tuple(each["shape"])) for each in raw.tensors]
    return MultipleInputs(inputs, [each["range"] for each in raw.tensors])


class MultipleInputs:
    """Two or more inputs, in the model's order.

    `ranges` has one item per input: the range [lowest, highest] that the bundle declares, or None.
    """

    def __init__(self, inputs: Sequence[TensorInput], ranges: Sequence[Sequence[float] | None]) -> None:
        self.inputs = tuple(inputs)
        self._ranges = tuple(ranges)
        self._indices = {each.name: index for index, each in enumerate(inputs)}
        self._names = ", ".join(repr(each.name) for each in inputs)
        self._expectation = f"the model takes {len(inputs)} inputs, {self._names}"

    def describe(self) -> str:
        """See `ModelInput`."""
        return ", ".join(f"{each.name} {each.describe()}" for each in self.inputs)

    def parse_bytes(self, body: Body) -> np.ndarray:
        """Raise RequestError (400), because bytes alone cannot tell the inputs apart."""
        raise RequestError(400, f"body: got {len(body)} bytes alone; {self._expectation}: name them in a JSON header")

    def parse_tensors(self, tensors: Any, binary_data: memoryview) -> tuple[np.ndarray, int]:
        """See `ModelInput`."""
        if not isinstance(tensors, list):
            raise RequestError(400, f"inputs: got {shorten(tensors)}; {self._expectation}")
        if len(tensors) != len(self.inputs):
            names = [each.get("name") for each in tensors[: len(self.inputs) + 1] if isinstance(each, dict)]
            raise RequestError(
                400, f"inputs: got {len(tensors)}, {', '.join(map(shorten, names)) or 'none'}; {self._expectation}"
            )
        arrays: list[np.ndarray | None] = [None] * len(self.inputs)
        used = count = 0
        for number, each in enumerate(tensors):
            where = f"inputs[{number}]"
            tensor = as_object(each, where)
            index = self._index_of(tensor.get("name"), where)
            if arrays[index] is not None:
                raise RequestError(
                    400, f"{where}.name: got {shorten(tensor['name'])} twice; give each once: {self._names}"
                )
            values, size = self.inputs[index].parse_tensor(tensor, binary_data, where, used)
            if number and len(values) != count:
                raise RequestError(
                    400, f"{where}.shape: got {len(values)} samples; inputs[0] has {count}, give as many"
                )
            self._check_range(values, index, where)
            arrays[index], used, count = values, used + size, len(values)
        return join([each for each in arrays if each is not None]), used

    def _index_of(self, name: Any, where: str) -> int:
        index = self._indices.get(name) if isinstance(name, str) else None
        if index is None:
            raise RequestError(400, f"{where}.name: got {shorten(name)}; use one of {self._names}")
        return index

    def _check_range(self, values: np.ndarray, index: int, where: str) -> None:
        """Check the range of integers before they become float32, which would round large ones."""
        limits = self._ranges[index]
        if values.dtype.kind == "f" or limits is None:
            return
        low, high = int(values.min()), int(values.max())
        if low < limits[0] or high > limits[1]:
            raise RequestError(
                400,
                f"{where}: {shorten(self.inputs[index].name)} has values from {low} to {high}; "
                f"the bundle takes {limits[0]} to {limits[1]}",
            )
