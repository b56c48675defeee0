"""Choose the interpreter and the number of threads: measured once per device and bundle, then cached.

Every load imports this module. `comparison.py` is imported only when a bundle is measured, to keep other loads fast.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from edgekit.device.autotune import choice_cache
from edgekit.device.autotune.choice_cache import Choice
from edgekit.runner.errors import BackendError, InputError

if TYPE_CHECKING:
    from edgekit.device.autotune.tuning_process import OnProgress
    from edgekit.runner.bundle import Bundle
    from edgekit.runner.model import Model
    from edgekit.runner.selftest import SelftestReport


LONGEST_SELFTEST_S = 1800.0
"""Time limit of the child process for a self-test with all golden samples."""


def open_best(
    path: str | os.PathLike[str],
    bundle: Bundle,
    threads: int | None,
    interpreter: str | None,
    device: str,
    on_progress: OnProgress | None = None,
) -> Model:
    """Open a verified bundle with the fastest interpreter and number of threads, which are measured the first time."""
    key = choice_cache.choice_key(bundle.identity, (interpreter, threads, device))
    chosen = _open_chosen(bundle, key)
    if chosen is not None:
        return chosen
    from edgekit.device.autotune import comparison

    winner = comparison.find_best(path, bundle, threads, interpreter, device, on_progress)
    return _open(bundle, key, comparison.store_winner(path, key, winner, bundle, device, on_progress))


def open_known(bundle: Bundle) -> Model:
    """Open a verified bundle as an earlier `open_best` chose, or else on the preferred interpreter with one thread."""
    from edgekit.runner.model import open_model

    chosen = _open_chosen(bundle, choice_cache.choice_key(bundle.identity, (None, None, "CPU")))
    return open_model(bundle) if chosen is None else chosen


def run_selftest(
    path: str | os.PathLike[str],
    bundle: Bundle,
    threads: int | None = None,
    interpreter: str | None = None,
    device: str = "CPU",
) -> SelftestReport:
    """Run all golden samples in a child process.

    The child uses the cached choice of `open_best`. If there is none, it uses the first installed interpreter, in order
    of preference, that can run the bundle.
    """
    from edgekit.runner import bundle as bundles
    from edgekit.runner.backends import check_threads, installed_interpreters

    bundles.check_architecture(bundle.manifest)
    check_threads(1 if threads is None else threads)
    choice = choice_cache.load_choice(choice_cache.choice_key(bundle.identity, (interpreter, threads, device)))
    if choice is not None:
        return _selftest_in_child(path, bundle.identity, choice)
    faults: list[str] = []
    for name in installed_interpreters(bundle.manifest.target, interpreter):
        try:
            return _selftest_in_child(path, bundle.identity, Choice(name, threads or 1, device, {}))
        except BackendError as error:
            faults.append(str(error))
    raise BackendError("; ".join(faults))


def _selftest_in_child(path: str | os.PathLike[str], identity: str, choice: Choice) -> SelftestReport:
    from edgekit.device.autotune.tuning_process import TuningProcess, prefix_fault
    from edgekit.runner.selftest import SelftestReport

    with TuningProcess(path, identity, limit_s=LONGEST_SELFTEST_S) as child:
        try:
            child.ask("open", interpreter=choice.interpreter, threads=choice.threads, device=choice.device)
            return SelftestReport(**child.ask("selftest"))
        except BackendError as error:
            raise BackendError(prefix_fault(choice.interpreter, str(error))) from None


def _open_chosen(bundle: Bundle, key: str) -> Model | None:
    """Open a bundle by its cached choice. Returns None if there is none, or if it no longer works."""
    choice = choice_cache.load_choice(key)
    if choice is None:
        return None
    try:
        return _open(bundle, key, choice)
    except (BackendError, InputError):  # NumPy or a library has changed
        choice_cache.remove_choice(key)
        return None


def _open(bundle: Bundle, key: str, choice: Choice) -> Model:
    from edgekit.runner.model import Model, open_model

    if choice.blob:
        restored = _import_compiled(bundle, key, choice)
        if restored is not None:
            return Model(bundle, restored, choice.threads, choice.device)
        choice_cache.remove_choice(key)
    return open_model(bundle, choice.threads, choice.interpreter, choice.device)


def _import_compiled(bundle: Bundle, key: str, choice: Choice) -> Any:
    """Open the model from OpenVINO's cached compiled form.

    Returns None if that form is missing, cannot be opened or no longer reproduces the first golden answer.
    """
    import numpy as np

    from edgekit.runner.backends import openvino
    from edgekit.runner.model import Model

    blob = choice_cache.load_compiled(key, choice)
    if blob is None:
        return None
    manifest = bundle.manifest
    try:
        specs, states = (manifest.inputs, manifest.outputs), manifest.states or ()
        backend = openvino.import_compiled(blob, *specs, choice.threads, choice.device, states)
        model = Model(bundle, backend, choice.threads, choice.device)
        inputs, outputs = model.golden()
        delta = np.abs(model.execute(model.prepare(inputs[0])).astype(np.float64) - outputs[0]).max()
    except BackendError:
        return None
    return backend if delta <= manifest.golden["atol"] else None
