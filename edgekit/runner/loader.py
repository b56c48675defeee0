"""A bundle, verified and opened the fastest way that this device has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edgekit.runner import admission
from edgekit.runner.bundle import check_architecture, read_bytes
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
    keep: str | os.PathLike[str] | None = None,
) -> Model:
    """Verify a bundle and open its model.

    The first load measures what is left open. It tries the installed interpreters and numbers of threads in child
    processes, proves each with the golden vectors and caches the fastest.

    Parameters
    ----------
    path
        The `.edge.zip` file; or `"current"`, the release that is confirmed on this device. `model.release.changed()`
        then says whether another one is by now.
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
    keep
        A folder for the most doubtful samples: 100 a day and 100 MB at most. None: none is kept. For other limits add
        a `Doubtful` to `model.observers`.

    Raises
    ------
    BundleError
        The file is no bundle, or is for other machines.
    ReleaseError
        No release is confirmed here.
    TrustError
        A member of it was changed, the release is not the one that was installed, or this device is in signed mode
        and its policy does not trust the bundle.
    BackendError
        No interpreter for its target is installed, or none can run the model.
    ResourceError
        The folder of `keep` cannot be made or read.
    """
    release = None
    if path == "current":
        from edgekit.runner.releases import current

        release = current.find()
        path = release.path
        bundle = read_bytes(release.read(), path)
    else:
        bundle = admission.read(path)
    check_architecture(bundle.manifest)
    if trial:
        from edgekit.runner import autotune

        model = autotune.open_best(path, bundle, threads, interpreter, device or "CPU", on_progress)
    else:
        model = open_model(bundle, 1 if threads is None else threads, interpreter, device or "CPU")
    model.release = release
    if keep is not None:
        from edgekit.runner.monitor.doubtful import Doubtful

        model.observers.add(Doubtful.of(model, keep))
    return model
