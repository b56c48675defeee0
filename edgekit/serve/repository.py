"""Which bundles there are, under which names they are served, and which of several a bare name means."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgekit.runner import bundle as bundles
from edgekit.runner.errors import BackendError, BundleError, RunnerError
from edgekit.serve.proven import Proven

SUFFIX = ".edge.zip"
LONGEST_PROOF_S = 1800


class NotProven(RunnerError):
    """A bundle that may not be served; `exit_code` is that of what was wrong."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Entry:
    """A bundle in its place: the first of `names` is its own, the others are those that mean it for now."""

    names: tuple[str, ...]
    slot: int
    proven: Proven

    def to_dict(self) -> dict[str, Any]:
        """For a worker."""
        return {"names": self.names, "slot": self.slot, "proven": asdict(self.proven)}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Entry:
        """What `to_dict` gave, after JSON."""
        return Entry(tuple(values["names"]), values["slot"], Proven.from_json(values["proven"]))


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


async def prove(path: str, threads: int, interpreter: str) -> Proven:
    """Proven by a process of its own, so that what an interpreter does there cannot harm the server."""
    command = (sys.executable, "-P", "-m", "edgekit.serve.proven", path, str(threads), interpreter)
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        text, _ = await asyncio.wait_for(child.communicate(), LONGEST_PROOF_S)
    except BaseException:
        child.kill()
        raise
    if child.returncode != 0 or not text.strip():
        raise BackendError(f"{path}: the process that ran its golden vectors ended with {child.returncode}")
    said = json.loads(text.splitlines()[-1])
    if "error" in said:
        raise NotProven(said["error"], said["exit_code"])
    return Proven.from_json(said["proven"])


def assign(proofs: Iterable[Proven], slots: dict[str, int]) -> list[Entry]:
    """Names and slots. Bundles of one name and version but several targets are called NAME-TARGET.

    The bare NAME then means the fastest of them on this machine, in its highest version. `slots` are those in use, by
    identity, and is filled up.
    """
    groups: dict[tuple[str, str], list[Proven]] = {}
    for proven in {each.identity: each for each in proofs}.values():
        groups.setdefault((proven.name, proven.version), []).append(proven)
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
    return sorted(entries, key=lambda entry: (entry.proven.name, version_key(entry.proven.version), entry.names))


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
