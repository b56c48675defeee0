"""What the interpreters share: an opened model, held against the specs of its bundle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

import numpy as np

from edgekit.runner.backends import INTERPRETERS
from edgekit.runner.errors import BackendError, BundleError, InputError
from edgekit.runner.input_vector import split, width
from edgekit.runner.operators import check_closed
from edgekit.runner.output_vector import join

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import StateSpec, TensorSpec

    Spec = Union[TensorSpec, StateSpec]

Convert = Optional[Callable[[np.ndarray], np.ndarray]]
Decode = Optional[Callable[[Any], np.ndarray]]
IDS = ("int32", "int64")
"""Types of an input that takes token ids."""


class BaseBackend:
    """A model on an interpreter. `invoke` takes and gives the model's own dtypes, `run` float32, or takes int32 ids.

    `encode` and `decode` are the conversions between the two; None where there is nothing to convert. Several inputs
    are taken as one vector, float32 (`input_vector.py`), and converted by `invoke`.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorSpec],
        encodes: Sequence[Convert],
        decode: Decode,
        batch: int = 1,
        states: Sequence[StateSpec] = (),
    ) -> None:
        self.name = name
        self.decode = decode
        self._shapes = [each.shape[1:] for each in inputs]
        self._encodes = [_converter_from_float(convert, each.dtype) for convert, each in zip(encodes, inputs)]
        if len(inputs) == 1:
            [self.encode], dtype = encodes, inputs[0].dtype
            self.shape, self.dtype = (batch, *self._shapes[0]), np.dtype(dtype)
            self._taken = np.dtype(np.int32 if dtype in IDS else np.float32)
        else:
            self.encode = None
            self.shape, self.dtype = (batch, width(self._shapes)), np.dtype(np.float32)
            self._taken = self.dtype
        self.states = tuple(states)

    @property
    def version(self) -> str:
        """Version of the interpreter's distribution."""
        return version(INTERPRETERS[self.name].distribution)

    def invoke(self, x: np.ndarray) -> Any:
        """The model's output for its input, both as the model stores them; a list where it has several outputs.

        The arrays are the caller's own. A model with states begins with zeros.
        """
        raise NotImplementedError

    def tensors(self, x: np.ndarray) -> list[np.ndarray]:
        """The model's several inputs, each in its own dtype, of the vector that joins them."""
        parts = zip(self._encodes, split(x, self._shapes))
        return [np.ascontiguousarray(part) if convert is None else convert(part) for convert, part in parts]

    def zeros(self) -> list[np.ndarray]:
        """The states before the first sample."""
        return [np.zeros(each.shape, each.dtype) for each in self.states]

    def step(self, x: np.ndarray, states: list[np.ndarray]) -> tuple[Any, list[np.ndarray]]:
        """What `invoke` gives, beginning with these states, and the states behind it."""
        raise NotImplementedError

    def run(self, x: np.ndarray) -> np.ndarray:
        """Outputs float32, joined, for one float32 input, or int32 token ids, shaped as the input spec.

        The array is the caller's own.
        """
        if x.shape != self.shape or x.dtype != self._taken:
            wanted = f"{self._taken}{list(self.shape)}"
            raise InputError(f"model input: got {x.dtype}{list(x.shape)}, the model takes {wanted}")
        y = self.invoke(x if self.encode is None else self.encode(x))
        result: np.ndarray = y if self.decode is None else self.decode(y)
        return result


def cast_to(dtype: Any) -> Convert:
    """A conversion to another format, each value as it is."""
    return lambda x: x.astype(dtype)


def _converter_from_float(convert: Convert, dtype: str) -> Convert:
    """Of a tensor among several, which comes as float32 even where it is whole numbers."""
    return cast_to(dtype) if convert is None and dtype != "float32" else convert


def input_converter(dtype: str) -> Convert:
    """What makes a model's input, where it is not quantized, of float32, or of token ids in int32."""
    return None if dtype in ("float32", "int32") else cast_to(dtype)


def copy_input(held: np.ndarray, x: np.ndarray) -> None:
    """Copy an input to the array that a model reads; InputError where numpy would stretch or cast it without a word."""
    if x.shape != held.shape or x.dtype != held.dtype:
        raise InputError(f"model input: got {x.dtype}{list(x.shape)}, the model takes {held.dtype}{list(held.shape)}")
    held[...] = x


def version(distribution: str) -> str:
    """Installed version of a distribution; imported late, `importlib.metadata` costs milliseconds."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def closed_model_file(files: Mapping[str, bytes], suffix: str, name: str) -> bytes:
    """The one model file with this suffix, which opens no other file: the interpreter `name` gets its model here.

    BackendError for another. This is what keeps an interpreter inside the bundle. A working directory without files
    would help too, but it is the whole process's, and other threads open files by relative names meanwhile. The shipped
    units and the image begin in an empty one.
    """
    data = single_file(files, suffix)
    try:
        check_closed(suffix, data)
    except BundleError as error:
        raise open_error(name, error) from None
    return data


def single_file(files: Mapping[str, bytes], suffix: str) -> bytes:
    """The one file with this suffix, unchecked."""
    found = [name for name in files if name.endswith(suffix)]
    if len(found) != 1:
        raise BackendError(f"model files: got {sorted(files)}; exactly one must end in {suffix}")
    return files[found[0]]


def check_tensor(what: str, spec: Spec, shape: Sequence[Any], dtype: str, batch: int = 1) -> None:
    """BackendError when the model's own tensor is not what the bundle says, at `batch` samples a call.

    A side that is no number is free; only the batch may be.
    """
    sides = tuple(shape)
    if sides and not isinstance(sides[0], int):
        sides = (batch, *sides[1:])
    if sides == (batch, *spec.shape[1:]) and dtype == spec.dtype:
        return
    if sides == spec.shape and dtype == spec.dtype:
        raise BackendError(f"{what}: the model file fixes its batch at 1")
    raise BackendError(
        f"{what}: the model has {dtype}{list(shape)}, the bundle says {spec.dtype}{[batch, *spec.shape[1:]]}; "
        "the model file declares another shape than it gives, or the bundle was put together wrongly; correct the "
        "file, and build the bundle again"
    )


class TensorPositions(NamedTuple):
    """Places among a file's inputs and outputs; of each state, in both."""

    sources: list[int]
    results: list[int]
    states: list[tuple[int, int]]


def match_tensors(
    names: Sequence[Sequence[Collection[str]]],
    wanted: Sequence[TensorSpec],
    expected: Sequence[TensorSpec],
    states: Sequence[StateSpec] = (),
) -> TensorPositions:
    """A model's ends by their names; BackendError unless so many inputs and outputs are beside its states.

    A single input may have any name. Outputs keep the file's order unless it has them all by these names.
    """
    inputs, outputs = names
    pairs = [(_place(each.input, inputs), _place(each.output, outputs)) for each in states]
    sources = match_inputs(inputs, wanted, states)
    results = [place for place in range(len(outputs)) if all(place != taken for _, taken in pairs)]
    if len(results) != len(expected):
        raise BackendError(
            f"the model has {len(results)} outputs, the bundle says {len(expected)}; build the bundle again"
        )
    return TensorPositions(sources, _by_name(results, expected, outputs), pairs)


def match_inputs(
    inputs: Sequence[Collection[str]], wanted: Sequence[TensorSpec], states: Sequence[StateSpec] = ()
) -> list[int]:
    """Of `find_ends`, the places of the inputs."""
    taken = [_place(each.input, inputs) for each in states]
    sources = [place for place in range(len(inputs)) if place not in taken]
    if len(sources) != len(wanted):
        raise BackendError(
            f"the model has {len(sources)} inputs, the bundle says {len(wanted)}; build the bundle again"
        )
    if len(wanted) > 1:
        named = [_place(each.name, inputs, "an input") for each in wanted]
        if sorted(named) != sources:  # OpenVINO's tensors may have several names
            raise BackendError("two inputs of the bundle are one tensor of the model; build the bundle again")
        sources = named
    return sources


def _by_name(results: list[int], expected: Sequence[TensorSpec], ports: Sequence[Collection[str]]) -> list[int]:
    found = [place for each in expected for place in results if each.name in ports[place]]
    return found if sorted(found) == results else results


def _place(name: str, ports: Sequence[Collection[str]], what: str = "a state") -> int:
    for place, names in enumerate(ports):
        if name in names:
            return place
    raise BackendError(f"the model has no tensor {name}, which the bundle calls {what}; build the bundle again")


def check_state_tensors(
    states: Sequence[StateSpec], ends: TensorPositions, facts: Sequence[Sequence[tuple[Any, str]]]
) -> None:
    """BackendError when the tensors of a state, by their (shape, dtype) in the file, are not what the bundle says."""
    inputs, outputs = facts
    for state, (source, result) in zip(states, ends.states):
        for shape, dtype in (inputs[source], outputs[result]):
            check_tensor(f"state {state.name}", state, shape, dtype, state.shape[0])


def output_decoder(converts: Sequence[Convert], outputs: Sequence[TensorSpec]) -> Callable[[Any], np.ndarray] | None:
    """The outputs' own conversions, then all of them as one array; None for one output that needs no conversion."""
    converts = [_channels_first(convert) if each.layout == "NHWC" else convert
                for convert, each in zip(converts, outputs)]  # fmt: skip
    if len(converts) == 1:
        return converts[0]

    def decode(given: Sequence[np.ndarray]) -> np.ndarray:
        return join([y if convert is None else convert(y) for convert, y in zip(converts, given)])

    return decode


def _channels_first(convert: Convert) -> Convert:
    """Answers have the channels of a picture in front, whatever its file does."""
    return lambda y: (y if convert is None else convert(y)).transpose(0, 3, 1, 2)


def require_cpu(name: str, device: str) -> None:
    """BackendError when an interpreter of the CPU is asked for another device."""
    if device != "CPU":
        raise BackendError(f"device: got {device}, {name} runs on the CPU; leave --device out, or use openvino")


def open_error(name: str, error: Exception) -> BackendError:
    """The error for a model that the interpreter refuses."""
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return BackendError(f"{name} cannot open the model: {reason}")
