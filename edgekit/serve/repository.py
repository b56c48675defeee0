"""Which bundles there are, that each is valid here, under which names they are served, and which a bare name means.

A bundle is valid where it is whole and gave its golden answers on this machine; its speed is measured then. A process
of its own does that, `python -m edgekit.serve.repository PATH THREADS INTERPRETER`, so that what an interpreter does
there cannot harm the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgekit.device.autotune import choice_cache
from edgekit.runner import bundle as bundles
from edgekit.runner._start import cache_folder, is_private
from edgekit.runner.batch import BatchedModel, open_batch
from edgekit.runner.errors import BackendError, BundleError, RunnerError, SelftestError
from edgekit.runner.files import write_atomically
from edgekit.runner.loader import load
from edgekit.runner.model import Model
from edgekit.serve.batcher import Curve, measure


@dataclass(frozen=True)
class ValidatedBundle:
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
    def from_json(values: Mapping[str, Any]) -> ValidatedBundle:
        """What `to_json` gave, parsed; JSON has turned sizes into text."""
        by_size = {key: {int(size): each for size, each in values[key].items()} for key in ("ms", "refused")}
        return ValidatedBundle(**{**values, **by_size})


def validate(path: str, threads: int, interpreter: str | None) -> ValidatedBundle:
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
    return ValidatedBundle(
        path, model.bundle.identity, manifest.name, manifest.version, manifest.target, model.backend.name,
        model.backend.version, model.threads, ms, refused,
    )  # fmt: skip


def open_batches(model: Model, sizes: tuple[int, ...]) -> dict[int, BatchedModel]:
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
    key = choice_cache.choice_key(
        model.bundle.identity, ("curve", model.backend.name, model.backend.version, model.threads)
    )
    return os.path.join(cache_folder(), f"curve-{key}.json")


def _put(model: Model, ms: Mapping[int, float], refused: Mapping[int, str]) -> None:
    """Into the folder of the measured choices; where that cannot be written, the next start measures again."""
    place = Path(_place(model))
    try:
        if cache_folder() and is_private(str(place.parent)):
            write_atomically(place, json.dumps({"ms": ms, "refused": refused}).encode())
    except OSError:
        pass


def _recalled(model: Model) -> tuple[dict[int, float], dict[int, str]] | None:
    try:
        if not is_private(cache_folder()):
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
            return {"bundle": asdict(validate(path, threads, interpreter))}
    except RunnerError as error:
        return {"error": str(error), "exit_code": error.exit_code}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] or None)))


SUFFIX = ".edge.zip"
LONGEST_PROOF_S = 1800


class InvalidBundle(RunnerError):
    """A bundle that may not be served; `exit_code` is that of what was wrong."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Entry:
    """A bundle in its place: the first of `names` is its own, the others are those that mean it for now."""

    names: tuple[str, ...]
    slot: int
    bundle: ValidatedBundle

    def to_dict(self) -> dict[str, Any]:
        """For a worker."""
        return {"names": self.names, "slot": self.slot, "bundle": asdict(self.bundle)}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Entry:
        """What `to_dict` gave, after JSON."""
        return Entry(tuple(values["names"]), values["slot"], ValidatedBundle.from_json(values["bundle"]))


def find(places: Sequence[str]) -> list[str]:
    """Paths of bundles: those that are named, and those that lie in the folders that are named, sorted."""
    found: list[str] = []
    for place in places:
        if os.path.isdir(place):
            inside = sorted(str(path) for path in Path(place).glob(f"*{SUFFIX}"))
            if not inside:
                raise BundleError(f"{place}: a folder that holds no {SUFFIX} file")
            found += inside
        elif not os.path.exists(place):
            raise BundleError(f"{place}: no such file or folder")
        else:
            found.append(place)
    return list(dict.fromkeys(os.path.abspath(path) for path in found))


async def validate_in_child(path: str, threads: int, interpreter: str) -> ValidatedBundle:
    """Proven by a process of its own, so that what an interpreter does there cannot harm the server."""
    command = (sys.executable, "-P", "-m", "edgekit.serve.repository", path, str(threads), interpreter)
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        text, _ = await asyncio.wait_for(child.communicate(), LONGEST_PROOF_S)
    except BaseException:
        child.kill()
        raise
    if child.returncode != 0 or not text.strip():
        raise BackendError(f"{path}: the process that ran its golden vectors ended with {child.returncode}")
    answer = json.loads(text.splitlines()[-1])
    if "error" in answer:
        raise InvalidBundle(answer["error"], answer["exit_code"])
    return ValidatedBundle.from_json(answer["bundle"])


def assign(proofs: Iterable[ValidatedBundle], slots: dict[str, int]) -> list[Entry]:
    """Names and slots. Bundles of one name and version but several targets are called NAME-TARGET.

    The bare NAME then means the fastest of them on this machine, in its highest version. `slots` are those in use, by
    identity, and is filled up.
    """
    groups: dict[tuple[str, str], list[ValidatedBundle]] = {}
    for bundle in {each.identity: each for each in proofs}.values():
        groups.setdefault((bundle.name, bundle.version), []).append(bundle)
    entries = []
    for (name, version), group in groups.items():
        targets = [each.target for each in group]
        if len(set(targets)) != len(targets):
            raise BundleError(
                f"{name} {version}: two different bundles for {max(targets, key=targets.count)}; keep one"
            )
        fastest = min(group, key=lambda each: each.ms[1])
        for each in group:
            alone = len(group) == 1
            names = (name,) if alone else (f"{name}-{each.target}", *((name,) if each is fastest else ()))
            entries.append(Entry(names, _slot(slots, each.identity), each))
    return sorted(entries, key=lambda entry: (entry.bundle.name, version_key(entry.bundle.version), entry.names))


def version_key(version: str) -> list[tuple[int, int, str]]:
    """Versions in their order: numbers by value, other parts as text, and before numbers."""
    parts = re.findall(r"\d+|[^\d._-]+", version)
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]


def _slot(slots: dict[str, int], identity: str) -> int:
    from edgekit.serve.counters import MOST_MODELS

    if identity not in slots:
        free = set(range(MOST_MODELS)) - set(slots.values())
        if not free:
            raise BundleError(f"more than {MOST_MODELS} models; serve fewer, or start another server")
        slots[identity] = min(free)
    return slots[identity]


def name_of(path: str) -> tuple[str, str]:
    """Name and version from a bundle's manifest; of what is no bundle, its file's name and nothing."""
    try:
        manifest = bundles.read(path).manifest
    except RunnerError:
        return os.path.basename(path)[: -len(SUFFIX)], ""
    return manifest.name, manifest.version
