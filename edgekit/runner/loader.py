"""A bundle, verified and opened the fastest way that this device has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from edgekit.runner import extension
from edgekit.runner.extension import LoadOptions, OnProgress

if TYPE_CHECKING:
    from edgekit.runner.model import Model


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    interpreter: str | None = None,
    device: str | None = None,
    trial: bool = True,
    on_progress: OnProgress | None = None,
    metrics: Any = None,
    monitor: Any = None,
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
    metrics
        Where Prometheus finds latencies by part, refusals, the process and the machine: a file that ends in `.prom`,
        `"127.0.0.1:9100"`, or `Metrics` that several models share. None: nothing is counted.
        `model.observers.close()` writes the last figures; the end of the interpreter does so too.
    monitor
        True, or a `Monitor` made for this bundle: watch whether inputs and answers still look like validation's.
        `model.monitor.verdict()` says it. None: nothing is watched.
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
    InputError
        `metrics` names no such place, or its port is taken; or the bundle has no reference for a monitor.
    ResourceError
        The folder of `keep` cannot be made or read.
    """
    options = LoadOptions(threads, interpreter, device or "CPU", trial, on_progress, metrics, monitor, keep)
    return extension.find().load(path, options)
