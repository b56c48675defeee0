"""The model repository: finds bundles, validates them, and assigns the names under which they are served.

A bundle is valid if its file is intact and its golden answers are reproduced on this machine. Its batch latencies are
measured at the same time. This happens in a child process, `python -m edgekit.serve.repository PATH THREADS
INTERPRETER`, so that a crash of an interpreter cannot harm the server.
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
from edgekit.serve.batcher import BatchCurve, measure_curve


@dataclass(frozen=True)
class ValidatedBundle:
    """A bundle that passed its self-test on this machine, and may be served.

    `ms` is its latency by batch size, and `refused` says which batch sizes could not be run, and why. `copy` is the
    path of a copy of the validated bytes, which is unaffected by changes to the file at `path`; empty if there is none.
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
        """The path from which the bundle is read."""
        return self.copy or self.path

    @property
    def curve(self) -> BatchCurve:
        """The latency by batch size."""
        return BatchCurve(self.ms)

    def to_json(self) -> str:
        """Serialize the bundle for another process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> ValidatedBundle:
        """Restore a bundle from the parsed output of `to_json`.

        The batch sizes become integers again, because JSON keys are strings.
        """
        by_size = {key: {int(size): each for size, each in values[key].items()} for key in ("ms", "refused")}
        return ValidatedBundle(**{**values, **by_size})


def validate(path: str, threads: int, interpreter: str | None) -> ValidatedBundle:
    """Verify a bundle, run its self-test, and measure its batch latencies or read them from the cache.

    Raises RunnerError if any of this fails.
    """
    model = load(path, threads=threads, interpreter=interpreter)
    report = model.selftest()
    if not report.ok:
        raise SelftestError(
            f"{path}: the answers to its golden samples are off by {report.max_abs_delta:.3g}, allowed "
            f"{report.atol:.3g}, on {report.interpreter} {report.version}; it is not served. Run `edgerun doctor` on "
            "this machine"
        )
    ms, refused = _cached_curve(model) or _measure_and_cache(model)
    manifest = model.manifest
    return ValidatedBundle(
        path, model.bundle.identity, manifest.name, manifest.version, manifest.target, model.backend.name,
        model.backend.version, model.threads, ms, refused,
    )  # fmt: skip


def open_batches(model: Model, sizes: tuple[int, ...]) -> dict[int, BatchedModel]:
    """Open an instance of the model for each batch size above 1."""
    return {size: open_batch(model, size) for size in sizes if size > 1}


def _measure_and_cache(model: Model) -> tuple[dict[int, float], dict[int, str]]:
    import numpy as np

    samples, _ = model.golden()
    x = np.concatenate([model.prepare(raw) for raw in samples])
    refused: dict[int, str] = {}

    def call(size: int) -> Any:
        batch_inputs = np.ascontiguousarray(np.resize(x, (size, *x.shape[1:])))
        if size == 1:
            return lambda: model.execute(batch_inputs)
        try:
            batch = open_batch(model, size)
        except BackendError as error:
            refused[size] = str(error)
            return None
        return lambda: batch.execute(batch_inputs)

    ms = dict(measure_curve(call).ms)
    _write_cached_curve(model, ms, refused)
    return ms, refused


def _curve_path(model: Model) -> str:
    key = choice_cache.choice_key(
        model.bundle.identity, ("curve", model.backend.name, model.backend.version, model.threads)
    )
    return os.path.join(cache_folder(), f"curve-{key}.json")


def _write_cached_curve(model: Model, ms: Mapping[int, float], refused: Mapping[int, str]) -> None:
    """Write measured latencies to the cache folder. If that fails, the next start measures them again."""
    path = Path(_curve_path(model))
    try:
        if cache_folder() and is_private(str(path.parent)):
            write_atomically(path, json.dumps({"ms": ms, "refused": refused}).encode())
    except OSError:
        pass


def _cached_curve(model: Model) -> tuple[dict[int, float], dict[int, str]] | None:
    try:
        if not is_private(cache_folder()):
            return None
        with open(_curve_path(model), encoding="utf-8") as stream:
            values = json.load(stream)
        ms = {int(size): float(each) for size, each in values["ms"].items()}
        refused = {int(size): str(each) for size, each in values["refused"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return (ms, refused) if 1 in ms and all(each > 0 for each in ms.values()) else None


def main(path: str, threads: int, interpreter: str | None) -> dict[str, Any]:
    """Validate a bundle, and return what the child process prints: the bundle, or the error and its exit code."""
    from edgekit.runner.native_stderr import quiet_native

    try:
        with quiet_native():
            return {"bundle": asdict(validate(path, threads, interpreter))}
    except RunnerError as error:
        return {"error": str(error), "exit_code": error.exit_code}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] or None)))


SUFFIX = ".edge.zip"
VALIDATION_TIMEOUT_S = 1800


class InvalidBundle(RunnerError):
    """A bundle that failed its validation. `exit_code` is that of the original error."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


@dataclass(frozen=True)
class RepositoryEntry:
    """A served bundle.

    The first of `names` is the name that the server reports for it; the others are aliases. `slot` is the place of its
    counters in the shared memory.
    """

    names: tuple[str, ...]
    slot: int
    bundle: ValidatedBundle

    def to_dict(self) -> dict[str, Any]:
        """Serialize the entry for a worker."""
        return {"names": self.names, "slot": self.slot, "bundle": asdict(self.bundle)}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> RepositoryEntry:
        """Restore an entry from the output of `to_dict` after it was sent as JSON."""
        return RepositoryEntry(tuple(values["names"]), values["slot"], ValidatedBundle.from_json(values["bundle"]))


def find_bundles(paths_or_folders: Sequence[str]) -> list[str]:
    """Return the paths of all bundles: the given files, and the bundles in the given folders, sorted by name.

    Raises BundleError if a path does not exist or a folder holds no bundle.
    """
    bundle_paths: list[str] = []
    for given_path in paths_or_folders:
        if os.path.isdir(given_path):
            in_folder = sorted(str(path) for path in Path(given_path).glob(f"*{SUFFIX}"))
            if not in_folder:
                raise BundleError(f"{given_path}: a folder that holds no {SUFFIX} file")
            bundle_paths += in_folder
        elif not os.path.exists(given_path):
            raise BundleError(f"{given_path}: no such file or folder")
        else:
            bundle_paths.append(given_path)
    return list(dict.fromkeys(os.path.abspath(path) for path in bundle_paths))


async def validate_in_child(path: str, threads: int, interpreter: str) -> ValidatedBundle:
    """Validate a bundle in a child process, so that a crash of an interpreter cannot harm the server.

    Raises InvalidBundle if the bundle is not valid, and BackendError if the process dies.
    """
    command = (sys.executable, "-P", "-m", "edgekit.serve.repository", path, str(threads), interpreter)
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        output, _ = await asyncio.wait_for(child.communicate(), VALIDATION_TIMEOUT_S)
    except BaseException:
        child.kill()
        raise
    if child.returncode != 0 or not output.strip():
        raise BackendError(f"{path}: the process that ran its golden samples ended with {child.returncode}")
    reply = json.loads(output.splitlines()[-1])
    if "error" in reply:
        raise InvalidBundle(reply["error"], reply["exit_code"])
    return ValidatedBundle.from_json(reply["bundle"])


def assign_names(bundles_to_serve: Iterable[ValidatedBundle], slots: dict[str, int]) -> list[RepositoryEntry]:
    """Assign names and slots to bundles.

    Bundles with the same name and version but different targets are called NAME-TARGET. NAME alone then refers to the
    one that is fastest on this machine. If a name refers to several versions, requests that give no version get the
    highest. `slots` maps the identities of bundles to the slots in use, and new slots are added to it.

    Raises BundleError for two different bundles of one name, version and target, or for too many models.
    """
    groups: dict[tuple[str, str], list[ValidatedBundle]] = {}
    for bundle in {each.identity: each for each in bundles_to_serve}.values():
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
            is_alone = len(group) == 1
            names = (name,) if is_alone else (f"{name}-{each.target}", *((name,) if each is fastest else ()))
            entries.append(RepositoryEntry(names, _assign_slot(slots, each.identity), each))
    return sorted(entries, key=lambda entry: (entry.bundle.name, version_key(entry.bundle.version), entry.names))


def version_key(version: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts versions: numbers by their value, other parts as text and before numbers."""
    parts = re.findall(r"\d+|[^\d._-]+", version)
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]


def _assign_slot(slots: dict[str, int], identity: str) -> int:
    from edgekit.serve.counters import MAX_MODELS

    if identity not in slots:
        free = set(range(MAX_MODELS)) - set(slots.values())
        if not free:
            raise BundleError(f"more than {MAX_MODELS} models; serve fewer, or start another server")
        slots[identity] = min(free)
    return slots[identity]


def name_and_version(path: str) -> tuple[str, str]:
    """Return the name and version of a bundle. If it cannot be read, return the file's name and an empty version."""
    try:
        manifest = bundles.read(path).manifest
    except RunnerError:
        return os.path.basename(path)[: -len(SUFFIX)], ""
    return manifest.name, manifest.version
