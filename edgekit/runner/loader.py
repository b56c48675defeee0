"""`load`: verify a bundle and open it on the fastest interpreter of this device."""

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

    The first load on a device tries the installed interpreters and thread counts in child processes, validates each
    with the golden samples, and caches the fastest. An interpreter or a number of threads that you specify is used as
    it is.

    Parameters
    ----------
    path : str or path-like
        The `.edge.zip` file, or `"current"` for the release that is confirmed on this device.
        `model.release.changed()` then says whether another release has been confirmed since.
    threads : int, optional
        Threads of the interpreter. Measured if None.
    interpreter : str, optional
        An installed interpreter, for example `"litert"`. Measured if None.
    device : str, optional
        OpenVINO's device, `"CPU"`, `"GPU"` or `"NPU"`. The CPU if None.
    trial : bool
        False skips the measurement: the preferred interpreter is opened with one thread, in this process.
    on_progress : callable, optional
        Called with a line for each step of the measurement, and whether that line still matters afterwards.
    metrics : str or Metrics, optional
        Where Prometheus finds latencies, refused samples and the state of process and machine: a file that ends in
        `.prom`, an address such as `"127.0.0.1:9100"`, or a `Metrics` object shared by several models. The last
        values are written by `model.observers.close()` or when Python exits.
    monitor : bool or Monitor, optional
        True, or a `Monitor` made for this bundle, watches whether inputs and answers still look like those of the
        validation. `model.monitor.verdict()` returns the result.
    keep : str or path-like, optional
        A folder for the most uncertain samples, at most 100 a day and 100 MB in total. To set other limits, add an
        `UncertainSamples` observer to `model.observers`.

    Returns
    -------
    Model
        The opened model. Models are not thread-safe, so open one per thread.

    Raises
    ------
    BundleError
        The file is not a bundle, or is for other machines.
    ReleaseError
        No release is confirmed on this device.
    TrustError
        A member was changed, the release is not the one that was installed, or the device is in signed mode and its
        policy does not trust the bundle.
    BackendError
        No interpreter for the bundle's target is installed, or none can run the model.
    InputError
        `metrics` is not a valid place or its port is in use, or the bundle has no reference for a monitor.
    ResourceError
        The folder `keep` cannot be created or read.

    Examples
    --------
    >>> import numpy as np
    >>> from edgekit.runner import load
    >>> model = load("digits-tflite-1.0.0.edge.zip", trial=False)
    >>> model.predict(np.load("sample.npy")).label
    '3'
    """
    options = LoadOptions(threads, interpreter, device or "CPU", trial, on_progress, metrics, monitor, keep)
    return extension.find().load(path, options)
