"""The outputs that a boundary compares: the network's by PyTorch, a converted model's by the runner's own backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.runner.backends import open_backend
from edgekit.runner.errors import RunnerError
from edgekit.runner.native_stderr import quiet_native
from edgekit.runner.preprocess.transform import apply, to_layout
from edgekit.targets.jobs import ConvertedFiles

if TYPE_CHECKING:
    from torch import nn

    from edgekit.data import Split


def spread_samples(split: Split, count: int) -> np.ndarray:
    """At most `count` raw samples, evenly over the split, so that no class is left out."""
    samples: np.ndarray = split.x[spread_indices(split, count)]
    return samples


def spread_indices(split: Split, count: int) -> np.ndarray:
    """Where in the split these samples stand, ascending."""
    return np.unique(np.linspace(0, len(split) - 1, min(count, len(split))).round().astype(np.int64))


def network_inputs(raw: np.ndarray, preprocess: Sequence[dict[str, Any]]) -> np.ndarray:
    """Preprocessed float32 in the networks' order: (n, C, H, W), (n, F) or (n, time, channels)."""
    x = apply(preprocess, raw)
    return to_layout(x, "NCHW" if x.ndim == 4 else "ANY")


def torch_outputs(
    model_folder: Path, inputs: np.ndarray, change: Callable[[nn.Module], nn.Module] = lambda module: module
) -> np.ndarray:
    """(n, classes) of the saved network, on one thread: the figures are sealed, so they must not vary.

    `change` makes what is run of the network as it was loaded.
    """
    import torch

    from edgekit.models import store
    from edgekit.models.eager import join_outputs
    from edgekit.models.user_errors import reporting_failures

    module, spec = store.load(model_folder)
    module = change(module)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with reporting_failures(spec.called, "on a sample of validation", module), torch.inference_mode():
            # one by one, as the converted models see them
            rows = [
                join_outputs(module(torch.from_numpy(inputs[place : place + 1]))).numpy()
                for place in range(len(inputs))
            ]
    finally:
        torch.set_num_threads(threads)
    return np.concatenate(rows)


def file_outputs(
    what: str, target: str, folder: Path, files: ConvertedFiles, inputs: np.ndarray, batch: int = 1
) -> np.ndarray:
    """(n, classes) float32 of a converted model, `batch` samples a call; ConversionError where it does not run."""
    if files.input.layout == "NHWC":
        inputs = np.ascontiguousarray(inputs.transpose(0, 2, 3, 1))
    try:
        content = {name: (folder / name).read_bytes() for name in files.names}
        with quiet_native():
            model = open_backend(target, content, files.inputs, files.outputs, batch=batch)
        taken = np.arange(-(-len(inputs) // batch) * batch) % len(inputs)  # the last call is filled from the start
        rows = [model.run(inputs[taken[place : place + batch]]) for place in range(0, len(taken), batch)]
        return np.concatenate(rows)[: len(inputs)]
    except RunnerError as error:
        cause, *_ = str(error).split("; ")  # what it says to do is of a bundle, and there is none yet
        raise ConversionError(f"{what}: the converted model does not run: {cause}") from None
