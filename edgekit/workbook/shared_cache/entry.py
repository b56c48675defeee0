"""What stands under a key: which record and files make the artifact, where they came from; and the executed notebook.

`cas/<sha256>` holds bytes by their own digest. `keys/<stage key>.<machine class>.json` is an entry.
`keys/<stage key>.<machine class>.<notebook>.json` names the executed copy of a notebook with its receipt, and
`keys/<digest of sources>.page.json` the page that is drawn from these.
An entry carries the digest of its own values, so a damaged one is told from a true one.
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
"""What must agree: all that decides about bits, or that and all that decides about times."""
OF_TIMES = ("profile", "benchmark")
"""Stages of which a machine takes nothing from one that is faster or slower: the first is all about this machine."""
SOMETIMES = ("distill", "prune")
"""Likewise where latencies chose the candidates, or what is cut."""


def scopes(stage: str) -> tuple[Scope, ...]:
    """Under which scopes an artifact of `stage` may lie.

    Two machines give the same bits where architecture, instruction sets and Python agree: a bundle records just these.
    A latency, and what was decided by it, holds for machines that have the same processor and as many cores besides.
    """
    if stage in OF_TIMES:
        return ("times",)
    return ("bits", "times") if stage in SOMETIMES else ("bits",)


def scope_of(artifact: Artifact) -> Scope:
    """The scope of this artifact."""
    if artifact.stage in SOMETIMES:
        return "times" if measured(artifact) is not None else "bits"
    return scopes(artifact.stage)[0]


def measured(artifact: Artifact) -> Any:
    """What latencies decided, as decision.json has it; None where they decided nothing."""
    if artifact.stage not in replay.DECISION_FIELDS or "decision.json" not in artifact.files:
        return None
    try:
        return json.loads(artifact.file("decision.json").read_text(encoding="utf-8")).get("measured")
    except (EdgekitError, OSError, ValueError, AttributeError):
        return None


@functools.cache
def facts(scope: Scope) -> dict[str, Any]:
    """What of this machine must agree."""
    from edgekit.stages.bundle.provenance import machine

    same_bits = machine()
    if scope == "bits":
        return same_bits
    return {**same_bits, "processor": cpu.name() or platform.processor(), "cores": cpu.usable_core_count()}


def name(scope: Scope) -> str:
    """A short name of this machine's class."""
    return f"{scope}-{digest(facts(scope))[:12]}"


def describe(found: dict[str, Any]) -> str:
    """A machine in a few words: `x86_64 avx2, Python 3.11, Intel Xeon, 2 cores`."""
    instructions = found.get("instructions") or []
    words = [
        " ".join([str(found.get("architecture")), *([str(instructions[-1])] if instructions else [])]),
        f"Python {found.get('python')}",
    ]
    if "processor" in found:
        words += [str(found["processor"]), f"{found.get('cores')} cores"]
    return ", ".join(words)


FORMAT = 1
MOST_BYTES = 4 << 20
"""Of an entry: more than any has."""
T = TypeVar("T", bound="Entry | NotebookEntry | PageEntry")
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Entry:
    """An artifact. `record` is the sha256 of its artifact.json, `sizes_bytes` by member, that of the record included.

    `measured` is the digest of what latencies decided, None where they decided nothing.
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
    def of(cls, artifact: Artifact) -> Entry:
        """That of a sealed artifact of this machine."""
        decided = measured(artifact)
        return cls(
            key=artifact.key,
            stage=artifact.stage,
            digest=artifact.digest,
            record=sha256_file(artifact.path / RECORD),
            sizes_bytes={name: (artifact.path / name).stat().st_size for name in (RECORD, *artifact.files)},
            measured=None if decided is None else digest(decided),
            host=socket.gethostname(),
            machine=facts(scope_of(artifact)),
        )

    @property
    def made_by(self) -> str:
        """The machine in words."""
        return f"{self.host} ({describe(self.machine)})"

    def check(self) -> None:
        """ValueError or TypeError where a field is not as `of` makes it."""
        if not all(SHA256.fullmatch(each) for each in (self.key, self.digest, self.record)):
            raise ValueError("a digest")
        if not all(type(size) is int and size >= 0 for size in self.sizes_bytes.values()):
            raise ValueError("sizes")
        if not all(isinstance(each, str) for each in (self.stage, self.host)) or not isinstance(self.machine, dict):
            raise ValueError("its origin")


@dataclass(frozen=True)
class NotebookEntry:
    """The executed copy of a notebook of `size_bytes`, and the receipt that names it."""

    key: str
    receipt: Receipt
    size_bytes: int
    format: int = FORMAT

    def check(self) -> None:
        """ValueError or TypeError where a field is not as it must be."""
        if not SHA256.fullmatch(self.receipt.executed_sha256) or type(self.size_bytes) is not int:
            raise ValueError("the executed copy")
        if self.receipt.exit_code not in (0, 3):
            raise ValueError("the receipt")


@dataclass(frozen=True)
class PageEntry:
    """The files of a run's page by their names: sha256 and size in bytes. `key`: digest of what it is drawn from."""

    key: str
    files: dict[str, tuple[str, int]]
    format: int = FORMAT

    def check(self) -> None:
        """ValueError or TypeError where a field is not as it must be."""
        for sha, size in self.files.values():
            if not SHA256.fullmatch(sha) or type(size) is not int or size < 0:
                raise ValueError("a file")


def path_of(key: str, scope: Scope) -> str:
    """Where this machine's class has the entry of a key."""
    return f"keys/{key}.{name(scope)}.json"


def notebook_path(key: str, scope: Scope, source: Path) -> str:
    """Where the executed copy of the notebook `source` is named; another text of it has another name."""
    return f"keys/{key}.{name(scope)}.{sha256_file(source)[:12]}.json"


def page_path(key: str) -> str:
    """Where the page that is drawn from these sources is named."""
    return f"keys/{key}.page.json"


def blob_path(sha256: str) -> str:
    """Where the bytes of this digest lie."""
    return f"cas/{sha256}"


def dump(entry: Entry | NotebookEntry | PageEntry) -> bytes:
    """As it is stored."""
    values = asdict(entry)
    return canonical_json({**values, "entry_sha256": digest(values)})


def parse(data: bytes, path: str) -> Entry:
    """An entry as it was stored; StoreError where it is not what `dump` made."""
    return _parse(data, path, lambda values: Entry(**values))


def parse_notebook(data: bytes, path: str) -> NotebookEntry:
    """The same for the entry of a notebook."""
    return _parse(data, path, lambda values: NotebookEntry(**{**values, "receipt": Receipt(**values["receipt"])}))


def parse_page(data: bytes, path: str) -> PageEntry:
    """The same for the entry of a page."""
    return _parse(data, path, lambda values: PageEntry(**values))


def _parse(data: bytes, path: str, make: Callable[[dict[str, Any]], T]) -> T:
    try:
        with bounded_recursion():
            values = json.loads(data)
        if digest({name: value for name, value in values.items() if name != "entry_sha256"}) != values["entry_sha256"]:
            raise ValueError("its own digest")
        if values["format"] != FORMAT:
            raise ValueError(f"format {values['format']}, this edgekit knows {FORMAT}")
        del values["entry_sha256"]
        made = make(values)
        made.check()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError("damaged", f"{path} is not an entry as edgekit writes it ({error})") from None
    return made
