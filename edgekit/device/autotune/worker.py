"""The child process in which an interpreter is tried, where it may crash, hang or leak without harm.

It reads one JSON command per line from standard input and answers each with one line of JSON on standard output.
Whatever the interpreter prints is redirected to standard error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from edgekit.runner.errors import RunnerError, TrustError

if TYPE_CHECKING:
    from edgekit.runner.bundle import Bundle


def main(path: str, identity: str) -> None:
    """Handle commands about the bundle with this identity at `path`, until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    state: dict[str, Any] = {}
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if not state:
                state.update(bundle=_read(path, identity), model=None)
            answer = _COMMANDS[command.pop("do")](state, **command)
        except RunnerError as error:
            answer = {"error": str(error), "kind": type(error).__name__}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _read(path: str, identity: str) -> Bundle:
    from edgekit.runner import bundle

    opened = bundle.read(path)
    if opened.identity != identity:
        raise TrustError(f"{path}: the file has changed since it was first read; load it again")
    return opened


def _open(state: dict[str, Any], **options: Any) -> dict[str, Any]:
    from edgekit.runner.model import open_model

    before = perf_counter_ns()
    model = state["model"] = open_model(state["bundle"], **options)
    opened_ms = (perf_counter_ns() - before) / 1e6
    state["x"] = model.prepare(model.golden()[0][0])
    return {"interpreter": model.backend.name, "version": model.backend.version, "open_ms": opened_ms}


def _selftest(state: dict[str, Any], most_s: float | None = None) -> dict[str, Any]:
    report: dict[str, Any] = state["model"].selftest(most_s).to_dict()
    return report


def _time(state: dict[str, Any], calls: int, warmup: int, most_ms: float) -> dict[str, Any]:
    """Return the milliseconds of each call, for `calls` calls or as many as start within `most_ms`."""
    execute, x = state["model"].execute, state["x"]
    started = perf_counter_ns()
    for _ in range(warmup):
        execute(x)
        if perf_counter_ns() - started > most_ms * 1e6:
            break
    times_ns: list[int] = []
    started = perf_counter_ns()
    gc.disable()
    while len(times_ns) < calls and (not times_ns or perf_counter_ns() - started < most_ms * 1e6):
        before = perf_counter_ns()
        execute(x)
        times_ns.append(perf_counter_ns() - before)
    gc.enable()
    return {"ms": [each / 1e6 for each in times_ns]}


def _peak(state: dict[str, Any]) -> dict[str, Any]:
    from edgekit.device.hardware import health

    return {"peak_bytes": health.peak_bytes()}


def _write_compiled(state: dict[str, Any], threads: int, device: str, into: str, rounds: int = 3) -> dict[str, Any]:
    """Write OpenVINO's compiled model to the file `into`.

    Returns the median times to open the model file and the compiled model, which are opened in turns.
    """
    from edgekit.runner.backends import openvino

    bundle = state["bundle"]
    files, manifest = bundle.model_files(), bundle.manifest
    specs, states = (manifest.inputs, manifest.outputs), manifest.states or ()
    blob = openvino.export_compiled(files, manifest.inputs, threads, device, states)
    times_ms: dict[str, list[float]] = {"open_ms": [], "restore_ms": []}
    for _ in range(rounds):
        before = perf_counter_ns()
        openvino.open(files, *specs, threads, device, states=states)
        between = perf_counter_ns()
        openvino.import_compiled(blob, *specs, threads, device, states)
        times_ms["open_ms"].append((between - before) / 1e6)
        times_ms["restore_ms"].append((perf_counter_ns() - between) / 1e6)
    with open(into, "wb") as stream:
        stream.write(blob)
    return {name: sorted(values)[rounds // 2] for name, values in times_ms.items()}


_COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {
    "open": _open,
    "selftest": _selftest,
    "time": _time,
    "peak": _peak,
    "compiled": _write_compiled,
}
