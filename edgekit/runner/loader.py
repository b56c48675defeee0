"""A bundle, verified and opened the fastest way that this device has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edgekit.runner.bundle import check_architecture, read
from edgekit.runner.model import Model, open_model

if TYPE_CHECKING:
    from edgekit.runner.autotune.launch import OnProgress


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    interpreter: str | None = None,
    device: str | None = None,
    trial: bool = True,
    on_progress: OnProgress | None = None,
) -> Model:
    """Verify a bundle and open its model.

    The first load measures what is left open. It tries the installed interpreters and numbers of threads in child
    processes, proves each with the golden vectors and caches the fastest.

    Parameters
    ----------
    path
        The `.edge.zip` file.
    threads
        Threads of the interpreter; None: measured.
    interpreter
        One of those installed, for example `"litert"`; None: measured.
    device
        OpenVINO's device, `"CPU"`, `"GPU"` or `"NPU"`; None: the CPU.
    trial
        False measures nothing: the usual interpreter and one thread, in this process.
    on_progress
        Called with a line for each step of the measurement, and whether it matters afterwards.

    Raises
    ------
    BundleError
        The file is no bundle, or is for other machines.
    TrustError
        A member of it was changed.
    BackendError
        No interpreter for its target is installed, or none can run the model.
    """
    bundle = read(path)
    check_architecture(bundle.manifest)
    if trial:
        from edgekit.runner import autotune

        return autotune.open_best(path, bundle, threads, interpreter, device or "CPU", on_progress)
    return open_model(bundle, 1 if threads is None else threads, interpreter, device or "CPU")
