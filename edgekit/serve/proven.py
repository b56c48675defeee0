"""What is known of a bundle before it is served: it is whole, gave its golden answers here, and how fast it is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgekit.device.autotune import choices
from edgekit.runner._start import cache_folder, is_mine
from edgekit.runner.batch import Batch, open_batch
from edgekit.runner.errors import BackendError, RunnerError, SelftestError
from edgekit.runner.files import write_atomically
from edgekit.runner.loader import load
from edgekit.runner.model import Model
from edgekit.serve.curve import Curve, measure


@dataclass(frozen=True)
class Proven:
    """A bundle that may be served. `ms` is its curve, `refused` says which batches could not be run, and why.

    `copy` is where its proven bytes are, whatever becomes of the file at `path`; empty where they are only there.
    """

    path: str
    identity: str
    name: str
    version: str
    target: str
    interpreter: str
    interpreter_version: str
    threads: int
    ms: Mapping[int, float]
    refused: Mapping[int, str]
    copy: str = ""

    @property
    def source(self) -> str:
        """Where its bytes are read."""
        return self.copy or self.path

    @property
    def curve(self) -> Curve:
        """How long n samples take."""
        return Curve(self.ms)

    def to_json(self) -> str:
        """For another process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Proven:
        """What `to_json` gave, parsed; JSON has turned sizes into text."""
        by_size = {key: {int(size): each for size, each in values[key].items()} for key in ("ms", "refused")}
        return Proven(**{**values, **by_size})


def prove(path: str, threads: int, interpreter: str | None) -> Proven:
    """Verify a bundle, run all golden vectors, measure its curve or recall it; RunnerError where any of it fails."""
    model = load(path, threads=threads, interpreter=interpreter)
    report = model.selftest()
    if not report.ok:
        raise SelftestError(
            f"{path}: the golden vectors differ by {report.max_abs_delta:.3g}, allowed {report.atol:.3g}, on "
            f"{report.interpreter} {report.version}; it is not served. Run `edgerun doctor` on this machine"
        )
    ms, refused = _recalled(model) or _measured(model)
    manifest = model.manifest
    return Proven(
        path, model.bundle.identity, manifest.name, manifest.version, manifest.target, model.backend.name,
        model.backend.version, model.threads, ms, refused,
    )  # fmt: skip


def open_batches(model: Model, sizes: tuple[int, ...]) -> dict[int, Batch]:
    """An instance for each size above 1."""
    return {size: open_batch(model, size) for size in sizes if size > 1}


def _measured(model: Model) -> tuple[dict[int, float], dict[int, str]]:
    import numpy as np

    samples, _ = model.golden()
    x = np.concatenate([model.prepare(raw) for raw in samples])
    refused: dict[int, str] = {}

    def call(size: int) -> Any:
        many = np.ascontiguousarray(np.resize(x, (size, *x.shape[1:])))
        if size == 1:
            return lambda: model.execute(many)
        try:
            batch = open_batch(model, size)
        except BackendError as error:
            refused[size] = str(error)
            return None
        return lambda: batch.execute(many)

    ms = dict(measure(call).ms)
    _put(model, ms, refused)
    return ms, refused


def _place(model: Model) -> str:
    key = choices.key(model.bundle.identity, ("curve", model.backend.name, model.backend.version, model.threads))
    return os.path.join(cache_folder(), f"curve-{key}.json")


def _put(model: Model, ms: Mapping[int, float], refused: Mapping[int, str]) -> None:
    """Into the folder of the measured choices; where that cannot be written, the next start measures again."""
    place = Path(_place(model))
    try:
        if cache_folder() and is_mine(str(place.parent)):
            write_atomically(place, json.dumps({"ms": ms, "refused": refused}).encode())
    except OSError:
        pass


def _recalled(model: Model) -> tuple[dict[int, float], dict[int, str]] | None:
    try:
        if not is_mine(cache_folder()):
            return None
        with open(_place(model), encoding="utf-8") as stream:
            values = json.load(stream)
        ms = {int(size): float(each) for size, each in values["ms"].items()}
        refused = {int(size): str(each) for size, each in values["refused"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return (ms, refused) if 1 in ms and all(each > 0 for each in ms.values()) else None


def main(path: str, threads: int, interpreter: str | None) -> dict[str, Any]:
    """What a child process prints: the proof, or what was wrong and the exit code that it stands for."""
    from edgekit.runner.native_stderr import quiet_native

    try:
        with quiet_native():
            return {"proven": asdict(prove(path, threads, interpreter))}
    except RunnerError as error:
        return {"error": str(error), "exit_code": error.exit_code}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] or None)))
