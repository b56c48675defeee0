"""Run several samples in one call of a bundle's model.

A bundle's model takes one sample. If its file does not fix the batch size, an interpreter can open another instance of
it for more samples. Such an instance is validated before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner.backends import open_backend
from edgekit.runner.errors import BackendError, InputError, RunnerError
from edgekit.runner.selftest import compare_outputs

if TYPE_CHECKING:
    from edgekit.runner.model import Model

MAX_BATCH = 1024
READY_MADE_PREFIX = "ready-made-"
"""The prefix of the variant names in bundles from `edgekit bundle`."""
FIXED_BATCH_HINT = "`edgekit bundle` sets the batch of an ONNX file to 1, even if you run it again"
REBUILD_HINT = (
    "if you build it again, an ONNX bundle of a PyTorch network has a free batch, unless the network or the precision "
    "fixes it; a bundle of a model file keeps a batch of 1"
)
"""Advice for bundles that a pipeline run made."""

Call = Callable[[np.ndarray], np.ndarray]


def open_batch(model: Model, size: int) -> BatchedModel:
    """Open another instance of a model that takes `size` samples per call, on the same interpreter, threads and device.

    For size 1, the model itself is used.

    Raises
    ------
    InputError
        The size is not a whole number from 1 to 1,024.
    BackendError
        The model cannot take that many samples, or does not reproduce the golden answers when it does.
    """
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_BATCH:
        raise InputError(f"batch: got {size!r}; use a whole number from 1 to {MAX_BATCH}")
    if model.manifest.states and size > 1:
        raise BackendError(f"{size} samples at once: the model has states, so it takes one sample at a time")
    batch = BatchedModel(
        size, _single_call(model) if size == 1 else _batched_call(model, size), _input_shape(model, size)
    )
    if not model.manifest.states:  # with states, the self-test validates the golden samples as one stream
        _validate(model, batch)
    return batch


def split_into_batches(count: int, sizes: Sequence[int]) -> list[int]:
    """Split `count` samples into batches of the given sizes, largest first, without padding.

    Raises InputError if samples remain, which cannot happen when the sizes include 1.
    """
    batches: list[int] = []
    for size in sorted(set(sizes), reverse=True):
        batches += [size] * ((count - sum(batches)) // size)
    if sum(batches) != count:
        raise InputError(f"sizes: got {list(sizes)}, which leave {count - sum(batches)} of {count} samples; add size 1")
    return batches


class BatchedModel:
    """A model that takes `size` samples per call. It is not thread-safe."""

    def __init__(self, size: int, call: Call, shape: tuple[int, ...]) -> None:
        self.size = size
        self._call, self._shape = call, shape

    def execute(self, x: np.ndarray) -> np.ndarray:
        """Run the model and return its outputs (size, …) as float32, each as `Model.execute` returns it.

        Parameters
        ----------
        x
            Inputs (size, …) from `Model.prepare`, concatenated along their first axis.

        Raises
        ------
        InputError
            The inputs have another shape.
        BackendError
            The interpreter failed.
        """
        if x.shape != self._shape:
            raise InputError(f"batch: got an array of {list(x.shape)}, but this model takes {list(self._shape)}")
        return self._call(x)


def _input_shape(model: Model, size: int) -> tuple[int, ...]:
    return (size, *model.manifest.input.shape[1:])


def _single_call(model: Model) -> Call:
    execute = model.execute
    return lambda x: execute(x)[None]


def _batched_call(model: Model, size: int) -> Call:
    """Open the same file once more on the same interpreter, for `size` samples."""
    manifest, name = model.manifest, model.backend.name
    files = model.bundle.model_files()
    specs, head = (manifest.inputs, manifest.outputs), manifest.head
    try:
        backend = open_backend(manifest.target, files, *specs, model.threads, name, model.device, size, head=head)
    except RunnerError as error:
        advice = FIXED_BATCH_HINT if manifest.variant.startswith(READY_MADE_PREFIX) else REBUILD_HINT
        hint = f"; {advice}" if manifest.target == "onnx" else ""
        raise BackendError(f"{size} samples at once: {error}{hint}") from None
    invoke, decode = backend.invoke, backend.decode

    def call(x: np.ndarray) -> np.ndarray:
        try:
            y = invoke(x)
        except RunnerError:
            raise
        except Exception as error:  # interpreters share no base class for their errors
            raise BackendError(f"{name} failed while running {size} samples at once: {error}") from error
        return y if decode is None else decode(y)

    return call


def _validate(model: Model, batch: BatchedModel) -> None:
    """Raise BackendError unless every golden sample gives its recorded outputs at every position of a batch.

    Batches wrap around to the first sample, and each batch is rotated by one more position than the one before.
    """
    inputs, expected = model.golden()
    prepared = [model.prepare(raw) for raw in inputs]
    size, count = batch.size, len(inputs)
    for rotation in range(max(2, ceil(count / size)) if size > 1 else count):
        indices = np.roll((np.arange(size) + rotation * size) % count, rotation)
        outputs = batch.execute(np.concatenate([prepared[index] for index in indices]))
        comparison = compare_outputs(outputs, expected[indices], model.manifest.golden)
        if not comparison.ok:
            raise BackendError(
                f"{size} samples at once: {model.backend.name} does not reproduce the outputs of the golden samples: "
                f"max |Δ| {comparison.max_abs_delta:.3g}, allowed {model.manifest.golden['atol']:.3g}; "
                f"{comparison.top1_agreement:.0%} of the answers as recorded"
            )
