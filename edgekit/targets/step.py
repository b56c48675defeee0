"""Export the step of a network with recurrent states: the files have an input and an output for each state.

In training, a network sees whole sequences. A device sees one sample at a time and feeds the states back. A network
must therefore compute one step as `forward(x, *states) -> (y, *new_states)`, and have an attribute `states` that maps
the name of each state to its shape.
"""

from __future__ import annotations

import importlib
import itertools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edgekit.core.errors import ConversionError, ModelError
from edgekit.runner.backends import open_backend
from edgekit.runner.bundle.manifest import StateSpec, TensorSpec
from edgekit.runner.files import write_atomically
from edgekit.targets.jobs import input_layout, output_layout

TARGETS = ("tflite", "openvino", "onnx")
INPUT, OUTPUT, NEW_PREFIX = "input", "output", "new_"
"""Names in the files. The input for a state has the state's name; its output has the same name with `new_` in front."""
STEPS = 8
TOLERANCE = 1e-3
"""How far a file may differ from PyTorch during `STEPS` steps, as a share of the outputs' range."""


@dataclass(frozen=True)
class NetworkStep:
    """A network's step: the module, the shape of its input, and the shapes of its states by name.

    `input_shape` is that of one sample without the batch; the shapes of the states and of the output have a batch of 1.
    """

    network: nn.Module
    input_shape: tuple[int, ...]
    states: Mapping[str, tuple[int, ...]]
    output_shape: tuple[int, ...]

    @property
    def example(self) -> tuple[torch.Tensor, ...]:
        """An input and initial states, all zeros."""
        return (torch.zeros(1, *self.input_shape), *(torch.zeros(shape) for shape in self.states.values()))

    @property
    def inputs(self) -> list[str]:
        """Names of the files' inputs, in the order of `forward`."""
        return [INPUT, *self.states]

    @property
    def outputs(self) -> list[str]:
        """Names of the files' outputs, in the order in which `forward` returns them."""
        return [OUTPUT, *(f"{NEW_PREFIX}{name}" for name in self.states)]

    @property
    def specs(self) -> tuple[StateSpec, ...]:
        """The specifications of the states for a manifest."""
        return tuple(
            StateSpec(name, shape, "float32", name, f"{NEW_PREFIX}{name}") for name, shape in self.states.items()
        )


def export(
    network: nn.Module, input_shape: Sequence[int], out: Path | str, targets: Sequence[str] = TARGETS
) -> dict[str, Path]:
    """Write the step of a network with states to a folder: model.tflite, model.xml with model.bin, and model.onnx.

    Each file is run for a few steps and compared with PyTorch.

    Parameters
    ----------
    network
        Its `forward(x, *states)` returns `(y, *new_states)`, all float32. Its attribute `states` maps the names of the
        states to their shapes, with a batch of 1.
    input_shape
        Shape of one sample without the batch: (features,), (time, channels) or (channels, height, width).
    out
        The folder. Nothing is written until the files of all targets match PyTorch; then the folder is created and
        existing files of the same names are replaced.
    targets
        Any of "tflite", "openvino" and "onnx".

    Returns
    -------
    dict
        The path of the model by target.

    Raises
    ------
    ModelError
        `network` does not meet the requirements above.
    ConversionError
        A target cannot convert the network, or a file's outputs differ from PyTorch's. Nothing is written then.

    Examples
    --------
    >>> from edgekit.models.streaming_conv import streaming_conv
    >>> network = streaming_conv((64, 3), num_classes=4)
    >>> paths = export(network.step(), (1, 3), "step", targets=["onnx"])
    >>> paths["onnx"].name
    'model.onnx'
    """
    for target in targets:
        if target not in TARGETS:
            raise ConversionError(f"targets: got {target!r}; known: {', '.join(TARGETS)}")
    step = read_step(network, tuple(input_shape))
    with tempfile.TemporaryDirectory(prefix="edgekit-step-") as draft:
        paths_by_target = {target: _write(step, target, Path(draft)) for target in targets}
        folder = _create(Path(out))
        for path in itertools.chain(*paths_by_target.values()):
            write_atomically(folder / path.name, path.read_bytes())
    return {target: folder / paths[0].name for target, paths in paths_by_target.items()}


def _write(step: NetworkStep, target: str, folder: Path) -> list[Path]:
    """Write the files of a target, and compare them with PyTorch."""
    writer: Any = importlib.import_module(f"edgekit.targets.{target}.convert")
    try:
        paths: list[Path] = writer.write_step(step, folder)
    except (ConversionError, ModelError):
        raise
    except Exception as error:  # the converters' errors have no common base class
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ConversionError(f"{target}: cannot convert the network's step: {reason}") from error
    _compare(step, target, paths)
    return paths


def _create(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ConversionError(f"out: got {str(folder)!r}, where a file is; name a folder") from None
    return folder


def read_step(network: nn.Module, input_shape: tuple[int, ...]) -> NetworkStep:
    """Read the step of a network; raise ModelError if its `states` and the outputs of `forward` do not agree."""
    kind = type(network).__name__
    states = getattr(network, "states", None)
    if not isinstance(states, Mapping) or not states:
        raise ModelError(f"{kind}: has no states; give it an attribute such as states = {{'hidden': (1, 1, 64)}}")
    reserved = {INPUT, OUTPUT, *(f"{NEW_PREFIX}{name}" for name in states)}
    for name in states:
        if not str(name).isidentifier() or name in reserved:
            raise ModelError(
                f"{kind}.states: got the name {name!r}; use a Python identifier other than '{INPUT}', '{OUTPUT}' or "
                f"'{NEW_PREFIX}' followed by the name of another state"
            )
    for name, shape in states.items():
        if not _is_shape(shape):
            raise ModelError(
                f"{kind}.states: {name} is {shape!r}; a shape is a tuple of positive integers, such as (1, 64)"
            )
    step = NetworkStep(network.eval(), input_shape, {str(name): tuple(shape) for name, shape in states.items()}, ())
    try:
        with torch.inference_mode():
            outputs = network(*step.example)
    except Exception as error:  # a user's code may raise anything
        raise ModelError(
            f"{kind}: forward(x, *states) fails with an all-zero input and all-zero states: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(outputs, (tuple, list)) or len(outputs) != 1 + len(states):
        got = f"{len(outputs)} values" if isinstance(outputs, (tuple, list)) else type(outputs).__name__
        raise ModelError(f"{kind}: forward gives {got}; it must give (y, {', '.join(step.outputs[1:])})")
    for name, value in zip(step.outputs, outputs, strict=True):
        if not isinstance(value, torch.Tensor):
            raise ModelError(f"{kind}: forward gives {type(value).__name__} for {name}; it must be a tensor")
    for name, shape, value in zip(step.outputs[1:], step.states.values(), outputs[1:], strict=True):
        if tuple(value.shape) != shape:
            raise ModelError(f"{kind}: {name} is {list(value.shape)}, but the state is {list(shape)}")
    for name, value in zip(step.outputs, outputs, strict=True):
        if value.dtype != torch.float32:
            raise ModelError(f"{kind}: {name} has dtype {value.dtype}; it must be torch.float32")
        if not value.isfinite().all():
            raise ModelError(f"{kind}: {name} contains NaN or infinity; all values must be finite")
    return NetworkStep(network, input_shape, step.states, tuple(outputs[0].shape))


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, (tuple, list)) and all(isinstance(size, (int, np.integer)) and size > 0 for size in shape)


def _compare(step: NetworkStep, target: str, paths: Sequence[Path]) -> None:
    """Raise ConversionError if the outputs of a file, fed with the states that it returns, differ from PyTorch's."""
    layout = input_layout(step.input_shape, "NHWC" if target == "tflite" else "NCHW")
    xs = np.random.default_rng(0).standard_normal((STEPS, 1, *step.input_shape)).astype(np.float32)
    arranged = xs.transpose(0, 1, 3, 4, 2) if layout == "NHWC" else xs
    source = TensorSpec(INPUT, arranged.shape[1:], "float32", layout)
    result = TensorSpec(OUTPUT, step.output_shape, "float32", output_layout(step.output_shape))
    files = {path.name: path.read_bytes() for path in paths}
    backend = open_backend(target, files, (source,), (result,), states=step.specs)
    states, outputs = backend.zeros(), []
    for x in arranged:
        y, states = backend.step(np.ascontiguousarray(x), states)
        outputs.append(y)
    expected = reference_outputs(step, xs)
    error = float(np.abs(np.stack(outputs) - expected).max())
    allowed = TOLERANCE * max(float(np.ptp(expected)), 1e-6)
    if not error <= allowed:
        raise ConversionError(
            f"{target}: the outputs of {STEPS} steps differ from PyTorch's by {error:.3g}, {allowed:.3g} is allowed"
        )


def reference_outputs(step: NetworkStep, xs: np.ndarray) -> np.ndarray:
    """Run the network on a sequence of inputs (n, 1, *input), feeding its states back. Returns outputs (n, *output)."""
    states, outputs = step.example[1:], []
    with torch.inference_mode():
        for x in xs:
            y, *states = step.network(torch.from_numpy(x), *states)
            outputs.append(y.numpy())
    return np.stack(outputs)
