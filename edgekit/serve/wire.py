"""The Open Inference Protocol v2 as bytes: requests in JSON, in JSON with binary tensors, or as one raw tensor.

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
NAMES = {"uint8": "UINT8", "int8": "INT8", "float32": "FP32", "int32": "INT32", "int64": "INT64"}
"""The dtype of a sample, or of one of its tensors, in a manifest, and what the protocol calls it."""
MOST_SAMPLES = 256
"""In one request."""
MOST_TENSORS = 16
LONGEST_ID = 256
MOST_CONTAINERS = 1 << 19
"""Lists and objects in a request's JSON; a picture of 640 x 640 has 410,241, nested by its pixels."""


class RequestedOutput(NamedTuple):
    """One output that a request asks for. `classes` above 0: the classification extension, so many of them."""

    name: str
    binary: bool
    classes: int


class Request(NamedTuple):
    """A request, understood. `samples` (n, *raw); `outputs` None where all are wanted, in the form `binary`."""

    samples: np.ndarray
    id: str
    outputs: tuple[RequestedOutput, ...] | None
    binary: bool
    timeout_ms: float


class Tensor(NamedTuple):
    """An output: `values` float32, or, with datatype BYTES, a list of texts."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Any


class ModelInput(Protocol):
    """What a model takes: one `TensorInput`, or `SeveralInputs`."""

    @property
    def inputs(self) -> tuple[TensorInput, ...]:
        """Each tensor by its name."""

    def describe(self) -> str:
        """For people."""

    def of_bytes(self, body: Body) -> np.ndarray:
        """Samples (1, *raw) of a body that is nothing but bytes; RequestError (400)."""

    def of_tensors(self, tensors: Any, rest: memoryview) -> tuple[np.ndarray, int]:
        """Samples (n, *raw) of a request's `inputs`, and how many bytes of `rest` they took; RequestError (400)."""


class TensorInput(NamedTuple):
    """One tensor (n, *shape)."""

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

    def of_bytes(self, body: Body) -> np.ndarray:
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

    def of_tensors(self, tensors: Any, rest: memoryview) -> tuple[np.ndarray, int]:
        """See `ModelInput`."""
        if not isinstance(tensors, list) or not 0 < len(tensors) <= MOST_TENSORS:
            raise RequestError(400, f"inputs: got {show(tensors)}; the model takes one input, {self.name!r}")
        if len(tensors) != 1:
            raise RequestError(400, f"inputs: got {len(tensors)}; the model takes one input, {self.name!r}")
        tensor = as_object(tensors[0], "inputs[0]")
        if tensor.get("name") != self.name:
            raise RequestError(400, f"inputs[0].name: got {show(tensor.get('name'))}; use {self.name!r}")
        return self.read(tensor, rest)

    def read(
        self, tensor: Mapping[str, Any], rest: memoryview, where: str = "inputs[0]", start: int = 0
    ) -> tuple[np.ndarray, int]:
        """Samples (n, *shape) of a tensor of this name, and how many bytes of `rest` they took, from `start` on."""
        if tensor.get("datatype") != self.datatype:
            raise RequestError(
                400, f"{where}.datatype: got {show(tensor.get('datatype'))}; the sample is {self.datatype}"
            )
        shape = _shape(tensor.get("shape"), self, where)
        dtype, count = DATATYPES[self.datatype], math.prod(shape)
        size = as_object(tensor.get("parameters", {}), f"{where}.parameters").get("binary_data_size")
        if size is None:
            if "data" not in tensor:
                raise RequestError(
                    400, f"{where}: has no data; give data, or parameters.binary_data_size and the bytes"
                )
            return _from_json(tensor["data"], shape, dtype, where), 0
        if "data" in tensor:
            raise RequestError(400, f"{where}: has data and binary_data_size; give one of them")
        if type(size) is not int or size != count * dtype.itemsize:
            raise RequestError(
                400,
                f"{where}.parameters.binary_data_size: got {show(size)}; {list(shape)} takes {count * dtype.itemsize}",
            )
        if start + size > len(rest):
            raise RequestError(400, f"body: {len(rest)} binary bytes, binary_data_size says {start + size}")
        return np.frombuffer(rest[start : start + size], dtype).reshape(shape), size


def parse_raw(body: Body, wanted: ModelInput) -> Request:
    """A body that is one sample's bytes and nothing else (a JSON header of length 0)."""
    return Request(wanted.of_bytes(body), "", None, True, 0.0)


def parse(body: Body, header_bytes: int | None, wanted: ModelInput, outputs: Sequence[str]) -> Request:
    """A request with a JSON header; RequestError (400) says what was got and what is taken."""
    if header_bytes is not None and not 0 < header_bytes <= len(body):
        raise RequestError(400, f"Inference-Header-Content-Length: got {header_bytes}; the body has {len(body)} bytes")
    header = body if header_bytes is None else memoryview(body)[:header_bytes]
    rest = memoryview(b"") if header_bytes is None else memoryview(body)[header_bytes:]
    return understand(as_object(parse_json(header), "request"), rest, wanted, outputs)


def understand(values: Mapping[str, Any], rest: memoryview, wanted: ModelInput, outputs: Sequence[str]) -> Request:
    """A request whose JSON is read already; `rest` are the bytes of its binary tensors."""
    samples, used = wanted.of_tensors(values.get("inputs"), rest)
    if used != len(rest):
        raise RequestError(400, f"body: {len(rest) - used} bytes are left after the input's own {used}")
    parameters = as_object(values.get("parameters", {}), "parameters")
    name = values.get("id", "")
    if not isinstance(name, str) or len(name) > LONGEST_ID:
        raise RequestError(400, f"id: got {show(name)}; use text of at most {LONGEST_ID} characters")
    binary = _flag(parameters, "binary_data_output", False)
    return Request(samples, name, _outputs(values.get("outputs"), binary, outputs), binary, _timeout_ms(parameters))


def parse_json(text: Body) -> Any:
    """RequestError (400) for what is no JSON, nested too deep or not finite, (413) for too many lists and objects.

    Each takes eighty bytes, and time: a million of them would hold up all other requests.
    """
    if len(text) > 2 * MOST_CONTAINERS and (count := _containers(bytes(text))) > MOST_CONTAINERS:
        raise RequestError(
            413, f"body: {count} lists and objects in JSON, at most {MOST_CONTAINERS} are read; give data flat"
        )
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RequestError(400, f"body: not JSON ({error})") from None


def _containers(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


def as_object(value: Any, where: str) -> dict[str, Any]:
    """RequestError (400) for anything but an object."""
    if not isinstance(value, dict):
        raise RequestError(400, f"{where}: got {show(value)}; use an object")
    return value


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring, _SHORT.maxother = 3, 16, 8, 100, 100


def show(value: Any) -> str:
    """What was got, short. No more of it is looked at than is shown: it may be long, or nested as deep as JSON can."""
    return "nothing" if value is None else _SHORT.repr(value)[:100]


def _shape(value: Any, wanted: TensorInput, where: str) -> tuple[int, ...]:
    fits = isinstance(value, list) and len(value) == len(wanted.shape) + 1 and all(type(side) is int for side in value)
    if not fits or tuple(value[1:]) != wanted.shape:
        raise RequestError(400, f"{where}.shape: got {show(value)}; use [n, {', '.join(map(str, wanted.shape))}]")
    if not 1 <= value[0] <= MOST_SAMPLES:
        raise RequestError(400, f"{where}.shape: got {value[0]} samples; use 1 to {MOST_SAMPLES}")
    return tuple(value)


def _from_json(data: Any, shape: tuple[int, ...], dtype: np.dtype, where: str) -> np.ndarray:
    if not isinstance(data, list):
        raise RequestError(400, f"{where}.data: got {show(data)}; use a list of numbers")
    try:
        values = np.array(data)
    except (ValueError, OverflowError):
        raise RequestError(
            400, f"{where}.data: its lists differ in length; nest them like the shape, or not at all"
        ) from None
    if values.dtype.kind not in "iuf":
        raise RequestError(400, f"{where}.data: holds what is no number; use numbers alone")
    if values.shape not in (shape, (math.prod(shape),)):
        raise RequestError(
            400, f"{where}.data: got {list(values.shape)}; the shape {list(shape)} takes {math.prod(shape)} values"
        )
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if values.dtype.kind == "f" or values.min() < limits.min or values.max() > limits.max:
            raise RequestError(400, f"{where}.data: use whole numbers from {limits.min} to {limits.max}")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which the model refuses
        return np.ascontiguousarray(values.astype(dtype).reshape(shape))


def _outputs(value: Any, binary: bool, known: Sequence[str]) -> tuple[RequestedOutput, ...] | None:
    if value is None or value == []:  # an empty list is how generated clients leave the key out; Triton reads it so too
        return None
    if not isinstance(value, list) or len(value) > MOST_TENSORS:
        raise RequestError(400, f"outputs: got {show(value)}; list some of {', '.join(known)}, or leave the key out")
    found = []
    for number, each in enumerate(value):
        output = as_object(each, f"outputs[{number}]")
        name = output.get("name")
        if not isinstance(name, str) or name not in known:
            raise RequestError(400, f"outputs[{number}].name: got {show(name)}; the model gives {', '.join(known)}")
        parameters = as_object(output.get("parameters", {}), f"outputs[{number}].parameters")
        classes = parameters.get("classification", 0)
        if type(classes) is not int or classes < 0:
            raise RequestError(
                400, f"outputs[{number}].parameters.classification: got {show(classes)}; use a whole number"
            )
        found.append(RequestedOutput(name, _flag(parameters, "binary_data", binary), classes))
    return tuple(found)


def _flag(parameters: Mapping[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(400, f"parameters.{name}: got {show(value)}; use true or false")
    return value


def _timeout_ms(parameters: Mapping[str, Any]) -> float:
    """Triton's parameter `timeout`, microseconds; 0 where there is none."""
    value = parameters.get("timeout", 0)
    if type(value) is not int or value < 0:
        raise RequestError(400, f"parameters.timeout: got {show(value)}; use microseconds, a whole number")
    return value / 1e3


def encode(head: dict[str, Any], outputs: Sequence[tuple[Tensor, bool]]) -> tuple[bytes, int | None]:
    """An answer's body, and the length of its JSON header where binary tensors follow; `outputs` with "as binary?"."""
    described, blocks = [], []
    for tensor, binary in outputs:
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        if binary:
            block = raw_block(tensor)
            entry["parameters"] = {"binary_data_size": len(block)}
            blocks.append(block)
        else:
            entry["data"] = tensor.values if tensor.datatype == "BYTES" else tensor.values.ravel()
        described.append(entry)
    header = orjson.dumps({**head, "outputs": described}, option=orjson.OPT_SERIALIZE_NUMPY)
    if not blocks:
        return header, None
    return b"".join((header, *blocks)), len(header)


def raw_block(tensor: Tensor) -> bytes:
    """An output's bytes; each text as four bytes of length, little-endian, and its UTF-8."""
    if tensor.datatype != "BYTES":
        return tensor.values.tobytes()
    encoded = [text.encode() for text in tensor.values]
    return b"".join(len(each).to_bytes(4, "little") + each for each in encoded)


def model_input(raw: RawSpec) -> ModelInput:
    """What a model of such samples takes."""
    if raw.tensors is None:
        return TensorInput(raw.kind, NAMES[raw.dtype], raw.shape)
    inputs = [TensorInput(each["name"], NAMES[each["dtype"]], tuple(each["shape"])) for each in raw.tensors]
    return SeveralInputs(inputs, [each["range"] for each in raw.tensors])


class SeveralInputs:
    """Two inputs or more, in the model's order; those of whole numbers with their [lowest, highest]."""

    def __init__(self, inputs: Sequence[TensorInput], ranges: Sequence[Sequence[float] | None]) -> None:
        self.inputs = tuple(inputs)
        self._ranges = tuple(ranges)
        self._places = {each.name: place for place, each in enumerate(inputs)}
        self._names = ", ".join(repr(each.name) for each in inputs)
        self._wanted = f"the model takes {len(inputs)} inputs, {self._names}"

    def describe(self) -> str:
        """See `ModelInput`."""
        return ", ".join(f"{each.name} {each.describe()}" for each in self.inputs)

    def of_bytes(self, body: Body) -> np.ndarray:
        """See `ModelInput`: RequestError (400)."""
        raise RequestError(400, f"body: got {len(body)} bytes alone; {self._wanted}: name them in a JSON header")

    def of_tensors(self, tensors: Any, rest: memoryview) -> tuple[np.ndarray, int]:
        """See `ModelInput`."""
        if not isinstance(tensors, list):
            raise RequestError(400, f"inputs: got {show(tensors)}; {self._wanted}")
        if len(tensors) != len(self.inputs):
            names = [each.get("name") for each in tensors[: len(self.inputs) + 1] if isinstance(each, dict)]
            raise RequestError(
                400, f"inputs: got {len(tensors)}, {', '.join(map(show, names)) or 'none'}; {self._wanted}"
            )
        found: list[np.ndarray | None] = [None] * len(self.inputs)
        used = count = 0
        for number, each in enumerate(tensors):
            where = f"inputs[{number}]"
            tensor = as_object(each, where)
            place = self._place(tensor.get("name"), where)
            if found[place] is not None:
                raise RequestError(
                    400, f"{where}.name: got {show(tensor['name'])} once more; give each once: {self._names}"
                )
            values, size = self.inputs[place].read(tensor, rest, where, used)
            if number and len(values) != count:
                raise RequestError(
                    400, f"{where}.shape: got {len(values)} samples; inputs[0] has {count}, give as many"
                )
            self._check_whole(values, place, where)
            found[place], used, count = values, used + size, len(values)
        return join([each for each in found if each is not None]), used

    def _place(self, name: Any, where: str) -> int:
        place = self._places.get(name) if isinstance(name, str) else None
        if place is None:
            raise RequestError(400, f"{where}.name: got {show(name)}; use one of {self._names}")
        return place

    def _check_whole(self, values: np.ndarray, place: int, where: str) -> None:
        """Before they become float32, which would round large ones."""
        limits = self._ranges[place]
        if values.dtype.kind == "f" or limits is None:
            return
        low, high = int(values.min()), int(values.max())
        if low < limits[0] or high > limits[1]:
            raise RequestError(
                400,
                f"{where}: {show(self.inputs[place].name)} has values from {low} to {high}; "
                f"the bundle takes {limits[0]} to {limits[1]}",
            )
