"""Compute the outputs of a network with PyTorch, and those of a converted model with the runner's backend."""

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

    from edgekit.data import Data, Split


def spread_samples(split: Split, count: int) -> np.ndarray:
    """Return at most `count` raw samples, spread evenly over the split so that no class is left out."""
    samples: np.ndarray = split.x[spread_indices(split, count)]
    return samples


def spread_indices(split: Split, count: int) -> np.ndarray:
    """Return the indices of at most `count` samples, spread evenly over the split, ascending."""
    return np.unique(np.linspace(0, len(split) - 1, min(count, len(split))).round().astype(np.int64))


def labelled_train_samples(data: Data, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return at most `most` raw samples of train and calibration with their labels, spread evenly over each of them."""
    chosen = [(split, spread_indices(split, most)) for split in (data.train, data.calibration)]
    x, y = (np.concatenate([getattr(split, name)[rows] for split, rows in chosen])[:most] for name in "xy")
    return x, y


def network_inputs(raw: np.ndarray, preprocess: Sequence[dict[str, Any]]) -> np.ndarray:
    """Preprocess raw samples to float32 for a network: (n, C, H, W), (n, F) or (n, time, channels)."""
    x = apply(preprocess, raw)
    return to_layout(x, "NCHW" if x.ndim == 4 else "ANY")


def torch_outputs(
    model_folder: Path, inputs: np.ndarray, change: Callable[[nn.Module], nn.Module] = lambda module: module
) -> np.ndarray:
    """Return the outputs (n, classes) of a saved network, computed on one thread so that they are reproducible.

    `change` is applied to the network after it is loaded.
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
            # one sample at a time, as for the converted models
            rows = [
                join_outputs(module(torch.from_numpy(inputs[index : index + 1]))).numpy()
                for index in range(len(inputs))
            ]
    finally:
        torch.set_num_threads(threads)
    return np.concatenate(rows)


def file_outputs(
    what: str, target: str, folder: Path, files: ConvertedFiles, inputs: np.ndarray, batch: int = 1
) -> np.ndarray:
    """Return the outputs (n, classes), float32, of a converted model, after the conversion of a detector's head.

    Parameters
    ----------
    what
        The name of the model, with which error messages begin.
    inputs
        Samples as the network takes them: (n, C, H, W) or (n, F).
    batch
        Samples for each call.

    Raises
    ------
    ConversionError
        The model does not run.
    """
    if files.input.layout == "NHWC":
        inputs = np.ascontiguousarray(inputs.transpose(0, 2, 3, 1))
    try:
        content = {name: (folder / name).read_bytes() for name in files.names}
        with quiet_native():
            model = open_backend(target, content, files.inputs, files.outputs, batch=batch, head=files.head)
        order = np.arange(-(-len(inputs) // batch) * batch) % len(inputs)  # the last batch is filled from the start
        rows = [model.run(inputs[order[start : start + batch]]) for start in range(0, len(order), batch)]
        return np.concatenate(rows)[: len(inputs)]
    except RunnerError as error:
        cause, *_ = str(error).split("; ")  # the rest is advice about a bundle, which is not made yet
        raise ConversionError(f"{what}: the converted model does not run: {cause}") from None
