"""A bundle, verified and opened the fastest way that this device has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edgekit.runner import bundle as bundles
from edgekit.runner.model import Model, check_architecture, open_model

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

    What is left open is chosen by measuring: the first load tries the installed interpreters and numbers of threads in
    child processes, proves each with the golden vectors and remembers the fastest; `on_progress` is called with a line
    for what it does. Without `trial`: the usual interpreter, one thread, in this process.
    """
    bundle = bundles.read(path)
    check_architecture(bundle.manifest)
    if trial:
        from edgekit.runner import autotune

        return autotune.open_best(path, bundle, threads, interpreter, device or "CPU", on_progress)
    return open_model(bundle, 1 if threads is None else threads, interpreter, device or "CPU")
