"""Find the first layer where a file and its network diverge, in a fresh process.

The process is separate because an interpreter may crash when it reads the inner tensors of a wrong file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgekit.core import subprocesses
from edgekit.core.errors import ConversionError, EdgekitError
from edgekit.targets import launch
from edgekit.targets.jobs import ConvertedFiles

if TYPE_CHECKING:
    from edgekit.targets.locate.bisect import Divergence

SAMPLES = 8
TIMEOUT_S = 300.0
INPUTS = "inputs.npy"
NOWHERE = (
    "no single layer diverges: the loss is spread over all, or the interpreter's fastest kernels, which keep no inner "
    "tensors, compute something else"
)


class LocatedLayer(NamedTuple):
    """A description of the divergence, and its layer; the layer is empty if none was found."""

    message: str
    layer: str = ""


def find(
    model_folder: Path, target: str, folder: Path, files: ConvertedFiles, inputs: np.ndarray, precision: str
) -> LocatedLayer:
    """Locate the layer in this process, with a few of the `inputs` (n, C, H, W) or (n, F)."""
    try:
        divergence = find_divergence(model_folder, target, folder, files, inputs, precision)
    except ConversionError as error:
        return LocatedLayer(f"the layer was not found: {error}")
    return LocatedLayer(divergence.describe(), divergence.layer) if divergence else LocatedLayer(NOWHERE)


def find_divergence(
    model_folder: Path,
    target: str,
    folder: Path,
    files: ConvertedFiles,
    inputs: np.ndarray,
    precision: str,
    min_loss_db: float | None = None,
) -> Divergence | None:
    """Return the first layer with a large loss of similarity; None if no loss reaches `min_loss_db`.

    Raises ConversionError if the inner tensors of the file cannot be read.
    """
    from edgekit.models import store
    from edgekit.models.reparameterize import deployment_network
    from edgekit.targets import model_file, tensors
    from edgekit.targets.locate import bisect

    if source := model_file.read(model_folder):
        raise ConversionError(f"{source.source.file} has no layers that PyTorch could look into")

    samples = inputs[np.unique(np.linspace(0, len(inputs) - 1, min(SAMPLES, len(inputs))).round().astype(np.int64))]
    operators = tensors.read(target, folder, files, samples)
    limit_db = bisect.MIN_LOSS_DB if min_loss_db is None else min_loss_db
    network = deployment_network(*store.load(model_folder))
    return bisect.find_divergence(network, samples, operators, precision, limit_db)


def find_in_process(
    model_folder: Path, target: str, folder: Path, files: ConvertedFiles, inputs: np.ndarray, precision: str
) -> LocatedLayer:
    """Locate the layer in a fresh process. If that process fails, the message of the result says so."""
    with tempfile.TemporaryDirectory(prefix="edgekit-divergence-") as scratch:
        home = Path(scratch)
        np.save(home / INPUTS, inputs, allow_pickle=False)
        job = {
            "model_folder": str(model_folder),
            "target": target,
            "folder": str(folder),
            "precision": precision,
            "files": files.to_json(),
            "inputs": str(home / INPUTS),
        }
        try:
            return LocatedLayer(
                *subprocesses.call(f"{__name__}:find_in_child", job, home, TIMEOUT_S, launch.environment(home))
            )
        except EdgekitError as error:
            cause = str(error)
        except subprocesses.ChildDied as died:
            ended = died.ended
            cause = f"not finished after {TIMEOUT_S:g} s" if ended.timed_out else ended.describe("the interpreter")
    return LocatedLayer(f"the layer was not found: {cause}")


def find_in_child(
    model_folder: str, target: str, folder: str, precision: str, files: dict[str, Any], inputs: str
) -> list[str]:
    """Call `find` with JSON values; runs in the child process."""
    x = np.load(inputs, allow_pickle=False)
    return list(find(Path(model_folder), target, Path(folder), ConvertedFiles.from_json(files), x, precision))
