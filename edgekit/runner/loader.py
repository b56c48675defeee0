"""A bundle, verified and opened the fastest way that this device has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edgekit.runner import admission
from edgekit.runner.bundle import check_architecture, read_bytes
from edgekit.runner.errors import InputError
from edgekit.runner.model import Model, open_model

if TYPE_CHECKING:
    from edgekit.runner.autotune.launch import OnProgress
    from edgekit.runner.bundle import Bundle
    from edgekit.runner.monitor.doubtful import Doubtful
    from edgekit.runner.monitor.metrics import Metrics
    from edgekit.runner.monitor.monitor import Monitor


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    interpreter: str | None = None,
    device: str | None = None,
    trial: bool = True,
    on_progress: OnProgress | None = None,
    metrics: str | os.PathLike[str] | Metrics | None = None,
    monitor: bool | Monitor | None = None,
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
    wanted = (threads, interpreter, device or "CPU")
    if metrics is None:
        return _load(path, wanted, trial, on_progress, monitor, keep)
    from edgekit.runner.monitor.metrics import Metrics

    shared = isinstance(metrics, Metrics)
    told = metrics if isinstance(metrics, Metrics) else Metrics(metrics)  # first: what is wrong with it is soon said
    try:
        model = _load(path, wanted, trial, on_progress, monitor, keep)
    except BaseException:
        if not shared:
            told.close()
        raise
    told.add(model, is_last=not shared)
    return model


def _load(
    path: str | os.PathLike[str],
    wanted: tuple[int | None, str | None, str],
    trial: bool,
    on_progress: OnProgress | None,
    monitor: bool | Monitor | None,
    keep: str | os.PathLike[str] | None,
) -> Model:
    release = None
    if path == "current":
        from edgekit.runner.releases import current

        release = current.find()
        path = release.path
        bundle = read_bytes(release.read(), path)
    else:
        bundle = admission.read(path)
    check_architecture(bundle.manifest)
    kept, watching = _kept(bundle, keep), _watching(bundle, monitor)  # before the trial, which takes a while
    if trial:
        from edgekit.runner import autotune

        model = autotune.open_best(path, bundle, *wanted, on_progress)
    else:
        threads, interpreter, device = wanted
        model = open_model(bundle, 1 if threads is None else threads, interpreter, device)
    model.release = release
    if kept is not None:
        model.observers.add(kept)
    if watching is not None:
        watching.attach(model)
        model.monitor = watching
        model.observers.add(watching)
    return model


def _kept(bundle: Bundle, keep: str | os.PathLike[str] | None) -> Doubtful | None:
    if keep is None:
        return None
    from edgekit.runner.monitor.doubtful import Doubtful

    return Doubtful(bundle.manifest, bundle.identity, keep)


def _watching(bundle: Bundle, monitor: bool | Monitor | None) -> Monitor | None:
    if monitor is None or monitor is False:
        return None
    from edgekit.runner.monitor.monitor import Monitor

    if isinstance(monitor, Monitor):
        return monitor
    if monitor is not True:
        raise InputError(f"monitor: got {monitor!r}; use True or a Monitor")
    return Monitor.of_bundle(bundle)
