"""The first layer where a file and its network diverge, found in a fresh process.

`python -m edgekit.targets.locate.first_divergence JOB.json`.

The process is separate because an interpreter may crash when it reads the inner tensors of a wrong file.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.core.hashing import write_json
from edgekit.core.subprocesses import leave_with_parent
from edgekit.targets import launch
from edgekit.targets.jobs import Files

if TYPE_CHECKING:
    from edgekit.targets.locate.bisect import Divergence

SAMPLES = 8
TIMEOUT_S = 300.0
FOUND = "found.json"
NOWHERE = (
    "no single layer diverges: the loss is spread over all, or the interpreter's fastest kernels, which keep no inner "
    "tensors, compute something else"
)


class Located(NamedTuple):
    """A sentence for a person, and the layer that it names; empty where none was found."""

    message: str
    layer: str = ""


def find(model_folder: Path, target: str, folder: Path, files: Files, inputs: np.ndarray, precision: str) -> Located:
    """The layer, looked for in this process; `inputs` (n, C, H, W) or (n, F), of which a few are taken."""
    try:
        found = divergence(model_folder, target, folder, files, inputs, precision)
    except ConversionError as error:
        return Located(f"the layer was not found: {error}")
    return Located(found.describe(), found.layer) if found else Located(NOWHERE)


def divergence(
    model_folder: Path,
    target: str,
    folder: Path,
    files: Files,
    inputs: np.ndarray,
    precision: str,
    least_loss_db: float | None = None,
) -> Divergence | None:
    """The layer that loses most, if it loses so much; ConversionError where the file's inner tensors cannot be read."""
    from edgekit.models import store
    from edgekit.models.reparameterize import deployed
    from edgekit.targets import model_file, tensors
    from edgekit.targets.locate import bisect

    if source := model_file.read(model_folder):
        raise ConversionError(f"{source.source.file} has no layers that PyTorch could look into")

    few = inputs[np.unique(np.linspace(0, len(inputs) - 1, min(SAMPLES, len(inputs))).round().astype(np.int64))]
    operators = tensors.read(target, folder, files, few)
    least = bisect.LEAST_LOSS_DB if least_loss_db is None else least_loss_db
    return bisect.divergence(deployed(*store.load(model_folder)), few, operators, precision, least)


def find_in_process(
    model_folder: Path, target: str, folder: Path, files: Files, inputs: np.ndarray, precision: str
) -> Located:
    """The same in a fresh process. If that process fails, the result says so: it must not hide the error at hand."""
    with tempfile.TemporaryDirectory(prefix="edgekit-divergence-") as scratch:
        path = Path(scratch) / "job.json"
        np.save(path.with_name("inputs.npy"), inputs, allow_pickle=False)
        job = {"model_folder": str(model_folder), "target": target, "folder": str(folder), "precision": precision}
        write_json(path, {**job, "files": files.to_json()})
        ended = launch.start("edgekit.targets.locate.first_divergence", path, TIMEOUT_S)
        if (path.with_name(FOUND)).is_file():
            return Located(*json.loads(path.with_name(FOUND).read_text(encoding="utf-8")))
        cause = f"not finished after {TIMEOUT_S:g} s" if ended.late else ended.cause("the interpreter")
        return Located(f"the layer was not found: {cause}")


def main(path: Path) -> int:
    """Write the result to `found.json` beside the job."""
    leave_with_parent()
    job = json.loads(path.read_text(encoding="utf-8"))
    inputs = np.load(path.with_name("inputs.npy"), allow_pickle=False)
    files = Files.from_json(job["files"])
    found = find(Path(job["model_folder"]), job["target"], Path(job["folder"]), files, inputs, job["precision"])
    write_json(path.with_name(FOUND), list(found))
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(code)  # as in `edgekit.targets.worker`
