"""Several samples in one call of a bundle's model, by an instance of its own, proven before it is handed out.

A bundle's model takes one sample. An interpreter opens the same file for more, where that does not fix its batch.
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
"""How the variants of `edgekit bundle` begin."""
FIXED_BATCH_HINT = "`edgekit bundle` sets the batch of an ONNX file to 1, and does so again"
REBUILD_HINT = (
    "made again, an ONNX bundle of a PyTorch network has a free batch, unless its network or its precision fixes that; "
    "one of a model file has 1"
)
"""Of the bundles of a run."""

Call = Callable[[np.ndarray], np.ndarray]


def open_batch(model: Model, size: int) -> BatchedModel:
    """An instance of an opened bundle's model for `size` samples a call, on its interpreter, threads and device.

    Size 1 is the model itself.

    Raises
    ------
    InputError
        The size is no whole number from 1 to 1,024.
    BackendError
        The model cannot take so many, or does not give the golden answers then.
    """
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_BATCH:
        raise InputError(f"batch: got {size!r}; use a whole number from 1 to {MAX_BATCH}")
    if model.manifest.states and size > 1:
        raise BackendError(f"{size} samples at once: the model has states: one at a time")
    batch = BatchedModel(
        size, _single_call(model) if size == 1 else _batched_call(model, size), _input_shape(model, size)
    )
    if not model.manifest.states:  # else the selftest proves them, as one stream
        _validate(model, batch)
    return batch


def split_into_batches(count: int, sizes: Sequence[int]) -> list[int]:
    """`count` samples as batches of the given sizes, the largest first, none of them padded; InputError without a 1."""
    parts: list[int] = []
    for size in sorted(set(sizes), reverse=True):
        parts += [size] * ((count - sum(parts)) // size)
    if sum(parts) != count:
        raise InputError(f"sizes: got {list(sizes)}, which leave {count - sum(parts)} of {count} samples; add a 1")
    return parts


class BatchedModel:
    """A model that takes `size` samples a call. Not for use by several threads at once."""

    def __init__(self, size: int, call: Call, shape: tuple[int, ...]) -> None:
        self.size = size
        self._call, self._shape = call, shape

    def execute(self, x: np.ndarray) -> np.ndarray:
        """The outputs (size, …), float32, each as `Model.execute` gives it.

        Parameters
        ----------
        x
            Inputs (size, …) as `Model.prepare` makes them, joined along their first axis.

        Raises
        ------
        InputError
            They are of another shape.
        BackendError
            The interpreter fails.
        """
        if x.shape != self._shape:
            raise InputError(f"batch: got an array of {list(x.shape)}; this one takes {list(self._shape)}")
        return self._call(x)


def _input_shape(model: Model, size: int) -> tuple[int, ...]:
    return (size, *model.manifest.input.shape[1:])


def _single_call(model: Model) -> Call:
    execute = model.execute
    return lambda x: execute(x)[None]


def _batched_call(model: Model, size: int) -> Call:
    """The same file on the same interpreter once more, for `size` samples."""
    manifest, name = model.manifest, model.backend.name
    files = model.bundle.model_files()
    ends = manifest.inputs, manifest.outputs
    try:
        backend = open_backend(manifest.target, files, *ends, model.threads, name, model.device, size)
    except RunnerError as error:
        advice = FIXED_BATCH_HINT if manifest.variant.startswith(READY_MADE_PREFIX) else REBUILD_HINT
        more = f"; {advice}" if manifest.target == "onnx" else ""
        raise BackendError(f"{size} samples at once: {error}{more}") from None
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
    """BackendError unless every golden vector gives its recorded outputs, wherever in a batch it stands.

    Batches are filled by beginning anew, and each is turned by one place more than the one before.
    """
    inputs, expected = model.golden()
    prepared = [model.prepare(raw) for raw in inputs]
    size, count = batch.size, len(inputs)
    for number in range(max(2, ceil(count / size)) if size > 1 else count):
        places = np.roll((np.arange(size) + number * size) % count, number)
        outputs = batch.execute(np.concatenate([prepared[place] for place in places]))
        found = compare_outputs(outputs, expected[places], model.manifest.golden)
        if not found.ok:
            raise BackendError(
                f"{size} samples at once: {model.backend.name} does not give the outputs of the golden vectors: "
                f"max |Δ| {found.max_abs_delta:.3g}, allowed {model.manifest.golden['atol']:.3g}; "
                f"{found.top1_agreement:.0%} of the answers as recorded"
            )
