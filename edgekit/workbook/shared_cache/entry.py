"""The contents of a shared cache: entries for artifacts, executed notebooks and pages, and the paths of all objects.

- `cas/<sha256>` is a blob: the bytes of a file, under their own digest.
- `keys/<stage key>.<machine class>.json` is the entry of an artifact.
- `keys/<stage key>.<machine class>.<notebook>.json` is the entry of an executed notebook, with its receipt.
  `<notebook>` is the beginning of the digest of the notebook before its execution.
- `keys/<digest of sources>.page.json` is the entry of the report's page that was drawn from these sources.

An entry contains the digest of its own values, so damage is detected.
"""

from __future__ import annotations

import functools
import json
import platform
import re
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from edgekit import __version__
from edgekit.core import replay
from edgekit.core.artifacts import RECORD, Artifact
from edgekit.core.errors import EdgekitError
from edgekit.core.hashing import canonical_json, digest, sha256_file
from edgekit.runner import cpu
from edgekit.runner.errors import bounded_recursion
from edgekit.workbook.shared_cache.stores import StoreError
from edgekit.workbook.state import Receipt

Scope = Literal["bits", "times"]
"""The machines that can share an artifact: all that compute the same bits, or only those that are also equally fast."""
TIMED_STAGES = ("profile", "benchmark")
"""Stages whose artifacts are shared only between machines of the same speed, because they contain latencies."""
SOMETIMES_TIMED_STAGES = ("distill", "prune")
"""Stages that contain latencies only if latencies decided which candidates are trained or what is pruned.

Such an artifact is shared like those of `TIMED_STAGES`, and any other between all machines that compute the same bits.
"""


def scopes(stage: str) -> tuple[Scope, ...]:
    """Return the scopes under which an artifact of `stage` can be stored.

    Two machines produce the same bits if their architecture, instruction sets and Python agree. A latency, and a
    decision based on it, is valid only for machines that also have the same processor and number of cores.
    """
    if stage in TIMED_STAGES:
        return ("times",)
    return ("bits", "times") if stage in SOMETIMES_TIMED_STAGES else ("bits",)


def scope_of(artifact: Artifact) -> Scope:
    """Return the scope of an artifact."""
    if artifact.stage in SOMETIMES_TIMED_STAGES:
        return "times" if measured_decision(artifact) is not None else "bits"
    return scopes(artifact.stage)[0]


def measured_decision(artifact: Artifact) -> Any:
    """Return the decisions that rest on latencies, as decision.json records them, or None if there are none."""
    if artifact.stage not in replay.DECISION_FIELDS or "decision.json" not in artifact.files:
        return None
    try:
        return json.loads(artifact.file("decision.json").read_text(encoding="utf-8")).get("measured")
    except (EdgekitError, OSError, ValueError, AttributeError):
        return None


@functools.cache
def machine_facts(scope: Scope) -> dict[str, Any]:
    """Return the properties that this machine shares with all machines of its class."""
    from edgekit.stages.bundle.provenance import machine_record

    same_bits = machine_record()
    if scope == "bits":
        return same_bits
    return {**same_bits, "processor": cpu.name() or platform.processor(), "cores": cpu.usable_core_count()}


def machine_class(scope: Scope) -> str:
    """Return a short name of this machine's class."""
    return f"{scope}-{digest(machine_facts(scope))[:12]}"


def describe_machine(machine: dict[str, Any]) -> str:
    """Describe a machine in a few words: `x86_64 avx2, Python 3.11, Intel Xeon, 2 cores`."""
    instructions = machine.get("instructions") or []
    parts = [
        " ".join([str(machine.get("architecture")), *([str(instructions[-1])] if instructions else [])]),
        f"Python {machine.get('python')}",
    ]
    if "processor" in machine:
        parts += [str(machine["processor"]), f"{machine.get('cores')} cores"]
    return ", ".join(parts)


FORMAT = 1
MAX_ENTRY_BYTES = 4 << 20
"""Limit of an entry's size. Entries that edgekit writes are smaller."""
T = TypeVar("T", bound="Entry | NotebookEntry | PageEntry")
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Entry:
    """The entry of an artifact.

    `record` is the sha256 of its artifact.json. `sizes_bytes` has the size of each member and of the record. `measured`
    is the digest of the decisions that rest on latencies, or None if there are none.
    """

    key: str
    stage: str
    digest: str
    record: str
    sizes_bytes: dict[str, int]
    measured: str | None
    host: str
    machine: dict[str, Any]
    edgekit: str = __version__
    format: int = FORMAT

    @classmethod
    def from_artifact(cls, artifact: Artifact) -> Entry:
        """Return the entry of an artifact that was sealed on this machine."""
        decision = measured_decision(artifact)
        return cls(
            key=artifact.key,
            stage=artifact.stage,
            digest=artifact.digest,
            record=sha256_file(artifact.path / RECORD),
            sizes_bytes={name: (artifact.path / name).stat().st_size for name in (RECORD, *artifact.files)},
            measured=None if decision is None else digest(decision),
            host=socket.gethostname(),
            machine=machine_facts(scope_of(artifact)),
        )

    @property
    def made_by(self) -> str:
        """The machine that made the artifact, in words."""
        return f"{self.host} ({describe_machine(self.machine)})"

    def check(self) -> None:
        """Raise ValueError or TypeError if a field is invalid."""
        if not all(SHA256.fullmatch(value) for value in (self.key, self.digest, self.record)):
            raise ValueError("a digest")
        if not all(type(size) is int and size >= 0 for size in self.sizes_bytes.values()):
            raise ValueError("sizes")
        if not all(isinstance(value, str) for value in (self.stage, self.host)) or not isinstance(self.machine, dict):
            raise ValueError("its origin")


@dataclass(frozen=True)
class NotebookEntry:
    """The entry of a notebook's executed copy: the receipt that names it, and its size."""

    key: str
    receipt: Receipt
    size_bytes: int
    format: int = FORMAT

    def check(self) -> None:
        """Raise ValueError or TypeError if a field is invalid."""
        if not SHA256.fullmatch(self.receipt.executed_sha256) or type(self.size_bytes) is not int:
            raise ValueError("the executed copy")
        if self.receipt.exit_code not in (0, 3):
            raise ValueError("the receipt")


@dataclass(frozen=True)
class PageEntry:
    """The files of a run's page with their sha256 and size in bytes.

    `key` is the digest of the sources from which the page is drawn.
    """

    key: str
    files: dict[str, tuple[str, int]]
    format: int = FORMAT

    def check(self) -> None:
        """Raise ValueError or TypeError if a field is invalid."""
        for sha, size in self.files.values():
            if not SHA256.fullmatch(sha) or type(size) is not int or size < 0:
                raise ValueError("a file")


def entry_path(key: str, scope: Scope) -> str:
    """Return the path of the entry of a key for this machine's class."""
    return f"keys/{key}.{machine_class(scope)}.json"


def notebook_path(key: str, scope: Scope, source: Path) -> str:
    """Return the path of the entry for an executed notebook, which depends on the content of the file `source`."""
    return f"keys/{key}.{machine_class(scope)}.{sha256_file(source)[:12]}.json"


def page_path(key: str) -> str:
    """Return the path of the entry for a page. `key` is the digest of the sources from which it is drawn."""
    return f"keys/{key}.page.json"


def blob_path(sha256: str) -> str:
    """Return the path of the bytes with this digest."""
    return f"cas/{sha256}"


def dump(entry: Entry | NotebookEntry | PageEntry) -> bytes:
    """Return the bytes of an entry as they are stored."""
    values = asdict(entry)
    return canonical_json({**values, "entry_sha256": digest(values)})


def parse(data: bytes, path: str) -> Entry:
    """Parse a stored entry.

    Raises
    ------
    StoreError
        The bytes are not an entry that `dump` wrote.
    """
    return _parse(data, path, lambda values: Entry(**values))


def parse_notebook(data: bytes, path: str) -> NotebookEntry:
    """Parse the stored entry of a notebook; raises like `parse`."""
    return _parse(data, path, lambda values: NotebookEntry(**{**values, "receipt": Receipt(**values["receipt"])}))


def parse_page(data: bytes, path: str) -> PageEntry:
    """Parse the stored entry of a page; raises like `parse`."""
    return _parse(data, path, lambda values: PageEntry(**values))


def _parse(data: bytes, path: str, build: Callable[[dict[str, Any]], T]) -> T:
    try:
        with bounded_recursion():
            values = json.loads(data)
        if digest({name: value for name, value in values.items() if name != "entry_sha256"}) != values["entry_sha256"]:
            raise ValueError("its own digest")
        if values["format"] != FORMAT:
            raise ValueError(f"format {values['format']}, but this edgekit reads {FORMAT}")
        del values["entry_sha256"]
        entry = build(values)
        entry.check()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError("damaged", f"{path} is not an entry as edgekit writes it ({error})") from None
    return entry
