"""The code that all interpreters share: an opened model, checked against the specs of its bundle."""

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
"""Dtypes of an input that takes token IDs."""


class BaseBackend:
    """A model on an interpreter.

    `invoke` takes and returns the model's own dtypes; `run` takes float32 or int32 token IDs, and returns float32.
    `encode` converts to the model's dtypes and `decode` from them; either is None if there is nothing to convert.
    Several inputs are passed as one float32 vector (`input_vector.py`), which `invoke` converts.
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
            self._run_dtype = np.dtype(np.int32 if dtype in IDS else np.float32)
        else:
            self.encode = None
            self.shape, self.dtype = (batch, width(self._shapes)), np.dtype(np.float32)
            self._run_dtype = self.dtype
        self.states = tuple(states)

    @property
    def version(self) -> str:
        """The version of the interpreter's distribution."""
        return version(INTERPRETERS[self.name].distribution)

    def invoke(self, x: np.ndarray) -> Any:
        """Run the model on an input and return its output, both in the model's own dtypes. Several outputs are a list.

        The arrays belong to the caller. A model with states starts from zeros.
        """
        raise NotImplementedError

    def tensors(self, x: np.ndarray) -> list[np.ndarray]:
        """Split the vector that joins a model's several inputs, and convert each input to its own dtype."""
        parts = zip(self._encodes, split(x, self._shapes))
        return [np.ascontiguousarray(part) if convert is None else convert(part) for convert, part in parts]

    def zeros(self) -> list[np.ndarray]:
        """Return the states before the first sample."""
        return [np.zeros(each.shape, each.dtype) for each in self.states]

    def step(self, x: np.ndarray, states: list[np.ndarray]) -> tuple[Any, list[np.ndarray]]:
        """Run the model from these states. Returns the output in the form of `invoke`, and the states after it."""
        raise NotImplementedError

    def run(self, x: np.ndarray) -> np.ndarray:
        """Return joined float32 outputs for one input (float32, or int32 token IDs) in the shape of the input spec.

        The array belongs to the caller.
        """
        if x.shape != self.shape or x.dtype != self._run_dtype:
            expected = f"{self._run_dtype}{list(self.shape)}"
            raise InputError(f"model input: got {x.dtype}{list(x.shape)}, but the model takes {expected}")
        y = self.invoke(x if self.encode is None else self.encode(x))
        result: np.ndarray = y if self.decode is None else self.decode(y)
        return result


def cast_to(dtype: Any) -> Convert:
    """Return a conversion to another dtype that keeps each value."""
    return lambda x: x.astype(dtype)


def _converter_from_float(convert: Convert, dtype: str) -> Convert:
    """Return the conversion for one of several tensors, which arrives as float32 even if it holds integers."""
    return cast_to(dtype) if convert is None and dtype != "float32" else convert


def input_converter(dtype: str) -> Convert:
    """Return the conversion from float32, or from int32 token IDs, to an input that is not quantized."""
    return None if dtype in ("float32", "int32") else cast_to(dtype)


def copy_input(buffer: np.ndarray, x: np.ndarray) -> None:
    """Copy an input into the array that a model reads.

    Raises InputError where NumPy would silently broadcast or cast.
    """
    if x.shape != buffer.shape or x.dtype != buffer.dtype:
        raise InputError(
            f"model input: got {x.dtype}{list(x.shape)}, but the model takes {buffer.dtype}{list(buffer.shape)}"
        )
    buffer[...] = x


def version(distribution: str) -> str:
    """Return the installed version of a distribution.

    The import is late, because `importlib.metadata` takes milliseconds.
    """
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def closed_model_file(files: Mapping[str, bytes], suffix: str, name: str) -> bytes:
    """Return the one model file with this suffix, after checking that it opens no other files.

    Every interpreter gets its model from here, so this check confines all models to their bundles. Raises BackendError
    if the model may open other files.

    An empty working directory would help too, but it applies to the whole process, and other threads may open files by
    relative names. The shipped service units and the container image do start in an empty directory.
    """
    data = single_file(files, suffix)
    try:
        check_closed(suffix, data)
    except BundleError as error:
        raise open_error(name, error) from None
    return data


def single_file(files: Mapping[str, bytes], suffix: str) -> bytes:
    """Return the one file with this suffix, without checks."""
    matches = [name for name in files if name.endswith(suffix)]
    if len(matches) != 1:
        raise BackendError(f"model files: got {sorted(files)}; exactly one must end in {suffix}")
    return files[matches[0]]


def check_tensor(label: str, spec: Spec, shape: Sequence[Any], dtype: str, batch: int = 1) -> None:
    """Raise BackendError if the model's own tensor differs from the bundle's spec, at `batch` samples per call.

    A dimension that is not an integer is dynamic. Only the batch may be dynamic.
    """
    sides = tuple(shape)
    if sides and not isinstance(sides[0], int):
        sides = (batch, *sides[1:])
    if sides == (batch, *spec.shape[1:]) and dtype == spec.dtype:
        return
    if sides == spec.shape and dtype == spec.dtype:
        raise BackendError(f"{label}: the model file fixes its batch at 1")
    raise BackendError(
        f"{label}: the model has {dtype}{list(shape)}, but the bundle says "
        f"{spec.dtype}{[batch, *spec.shape[1:]]}; the model file declares another shape than it "
        "returns, or the bundle was built incorrectly; correct the file, and build the bundle again"
    )


class TensorPositions(NamedTuple):
    """Positions of a model's tensors among a file's inputs and outputs. A state has a position in both."""

    sources: list[int]
    results: list[int]
    states: list[tuple[int, int]]


def match_tensors(
    names: Sequence[Sequence[Collection[str]]],
    input_specs: Sequence[TensorSpec],
    output_specs: Sequence[TensorSpec],
    states: Sequence[StateSpec] = (),
) -> TensorPositions:
    """Find a model's inputs, outputs and states by name.

    A single input may have any name. Outputs keep the file's order unless all of them are found by name. Raises
    BackendError if the numbers of inputs and outputs differ from the bundle's.
    """
    inputs, outputs = names
    pairs = [(_position(each.input, inputs), _position(each.output, outputs)) for each in states]
    sources = match_inputs(inputs, input_specs, states)
    results = [
        position for position in range(len(outputs)) if all(position != state_output for _, state_output in pairs)
    ]
    if len(results) != len(output_specs):
        raise BackendError(
            f"the model has {len(results)} outputs, but the bundle declares {len(output_specs)}; build the bundle again"
        )
    return TensorPositions(sources, _order_by_name(results, output_specs, outputs), pairs)


def match_inputs(
    inputs: Sequence[Collection[str]], input_specs: Sequence[TensorSpec], states: Sequence[StateSpec] = ()
) -> list[int]:
    """Return the positions of the inputs; see `match_tensors`."""
    state_positions = [_position(each.input, inputs) for each in states]
    sources = [position for position in range(len(inputs)) if position not in state_positions]
    if len(sources) != len(input_specs):
        raise BackendError(
            f"the model has {len(sources)} inputs, but the bundle declares {len(input_specs)}; build the bundle again"
        )
    if len(input_specs) > 1:
        by_name = [_position(each.name, inputs, "an input") for each in input_specs]
        if sorted(by_name) != sources:  # OpenVINO's tensors may have several names each
            raise BackendError("two inputs of the bundle are one tensor of the model; build the bundle again")
        sources = by_name
    return sources


def _order_by_name(results: list[int], expected: Sequence[TensorSpec], ports: Sequence[Collection[str]]) -> list[int]:
    ordered = [position for each in expected for position in results if each.name in ports[position]]
    return ordered if sorted(ordered) == results else results


def _position(name: str, ports: Sequence[Collection[str]], role: str = "a state") -> int:
    for position, names in enumerate(ports):
        if name in names:
            return position
    raise BackendError(f"the model has no tensor {name}, which the bundle calls {role}; build the bundle again")


def check_state_tensors(
    states: Sequence[StateSpec], positions: TensorPositions, tensor_types: Sequence[Sequence[tuple[Any, str]]]
) -> None:
    """Raise BackendError if the (shape, dtype) of a state's tensors in the file differ from the bundle's."""
    inputs, outputs = tensor_types
    for state, (source, result) in zip(states, positions.states):
        for shape, dtype in (inputs[source], outputs[result]):
            check_tensor(f"state {state.name}", state, shape, dtype, state.shape[0])


def output_decoder(converts: Sequence[Convert], outputs: Sequence[TensorSpec]) -> Callable[[Any], np.ndarray] | None:
    """Return a function that converts the outputs and joins them, or None for one output that needs no conversion."""
    converts = [_channels_first(convert) if each.layout == "NHWC" else convert
                for convert, each in zip(converts, outputs)]  # fmt: skip
    if len(converts) == 1:
        return converts[0]

    def decode(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return join([y if convert is None else convert(y) for convert, y in zip(converts, arrays)])

    return decode


def _channels_first(convert: Convert) -> Convert:
    """Return the conversion with channels moved first.

    Answers have a picture's channels first, whatever the format of the file.
    """
    return lambda y: (y if convert is None else convert(y)).transpose(0, 3, 1, 2)


def require_cpu(name: str, device: str) -> None:
    """Raise BackendError if an interpreter for the CPU is asked for another device."""
    if device != "CPU":
        raise BackendError(f"device: got {device}, but {name} runs on the CPU; leave --device out, or use openvino")


def open_error(name: str, error: Exception) -> BackendError:
    """Return the error for a model that the interpreter refuses."""
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return BackendError(f"{name} cannot open the model: {reason}")
