"""Sealed artifacts: the folder a finished stage leaves, and the digests that tie it to what made it.

A folder is finished when it holds `artifact.json`, which is written last and atomically. Files under
`evidence/` (figures, timings) are listed and hashed but stay out of the content digest: a latency is evidence
for a decision, never content.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edgekit.core.cache_key import CacheInputs, collect_inputs
from edgekit.core.errors import DataError, StageError, TrustError
from edgekit.core.hashing import digest, sha256_file, write_json
from edgekit.runner.files import sync_file, sync_folder


@dataclass(frozen=True)
class Stopwatch:
    """When a piece of work began; seconds of two clocks that only differences mean something of."""

    clock_s: float
    cpu_s: float

    @classmethod
    def start(cls) -> Stopwatch:
        """This moment."""
        return cls(time.monotonic(), process_cpu_seconds())

    def elapsed(self) -> dict[str, float]:
        """`seconds` since then, and `cpu_seconds` that the processor has worked for it."""
        now = Stopwatch.start()
        return {"seconds": round(now.clock_s - self.clock_s, 3), "cpu_seconds": round(now.cpu_s - self.cpu_s, 3)}


def process_cpu_seconds() -> float:
    """What the processor has done for this process: all its threads, and its children that have ended."""
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system


RECORD = "artifact.json"
FORMAT = 2
EVIDENCE = "evidence"
EVIDENCE_FILES = ("environment.lock", "sbom.cdx.json")
"""Files that describe the machine, not the result."""

_began: dict[Path, Stopwatch] = {}
"""When this process began to work in a folder."""


@dataclass(frozen=True)
class Artifact:
    """A sealed folder. `metrics` are figures to show, `config` is the stage's as it ran.

    `took`: when it was sealed, how long that took, and the processor's seconds.
    """

    path: Path
    stage: str
    key: str
    digest: str
    parent: dict[str, str] | None
    config: dict[str, Any]
    metrics: dict[str, Any]
    files: dict[str, str]
    versions: dict[str, str]
    data_digest: str
    code: dict[str, str]
    builders: dict[str, str | None]
    replayed: dict[str, Any] | None
    took: dict[str, Any]

    @property
    def cache_inputs(self) -> CacheInputs:
        """What it was made of."""
        return CacheInputs(
            stage=self.stage,
            config=self.config,
            source=self.parent["digest"] if self.parent else None,
            data=self.data_digest,
            libraries=self.versions,
            code=self.code,
            builders=self.builders,
            replayed=self.replayed,
        )

    def file(self, name: str) -> Path:
        """Path of a member, checked against its recorded sha256.

        Parameters
        ----------
        name
            The member, relative to the folder, for example `"decision.json"`.

        Raises
        ------
        StageError
            There is no such member.
        TrustError
            The file has changed since it was sealed.
        """
        if name not in self.files:
            raise StageError(f"{self.stage}: no file {name!r} in {self.path}; it holds {', '.join(sorted(self.files))}")
        path = self.path / name
        if not path.is_file() or sha256_file(path) != self.files[name]:
            raise TrustError(f"{path}: changed or missing since stage {self.stage} sealed it; run that stage again")
        return path

    def ancestor(self, stage: str) -> Artifact:
        """The artifact of an earlier stage of the same run, every link checked by digest.

        Parameters
        ----------
        stage
            Name of the stage.

        Raises
        ------
        StageError
            The run has no such stage, or it was made again since.
        """
        if self.stage == stage:
            return self
        if self.parent is None:
            raise StageError(f"{self.path}: has no ancestor {stage!r}; the pipeline begins at {self.stage!r}")
        parent = load(self.path.parent / self.parent["stage"])
        if parent.digest != self.parent["digest"]:
            raise StageError(
                f"{self.stage} was made from another {parent.stage} than the one in {parent.path}; "
                f"run {self.stage} and what follows it again"
            )
        return parent.ancestor(stage)

    def find_ancestor(self, stage: str) -> Artifact | None:
        """The same; None where the run has no such stage."""
        found = self
        while found.stage != stage:
            if found.parent is None:
                return None
            found = found.ancestor(found.parent["stage"])
        return found


def load(path: Path) -> Artifact:
    """Open a sealed folder.

    Parameters
    ----------
    path
        The folder of a finished stage, for example `artifacts/digits/prune`.

    Raises
    ------
    StageError
        The stage has not finished.
    TrustError
        The record was edited.
    """
    record = path / RECORD
    if not record.is_file():
        raise StageError(f"{path}: no finished artifact of stage {path.name!r} here; run its notebook first")
    try:
        fields = json.loads(record.read_text(encoding="utf-8"))
        if (found := fields.pop("format")) != FORMAT:
            raise TrustError(f"{record}: format {found}, this edgekit writes {FORMAT}; run stage {path.name!r} again")
        recorded = fields.pop("record_sha256")
        artifact = Artifact(path=path, **fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TrustError(f"{record}: not an artifact record ({error}); run stage {path.name!r} again") from None
    if digest(fields) != recorded or _content_digest(artifact) != artifact.digest:
        raise TrustError(f"{record}: its digest does not match its content; run stage {artifact.stage!r} again")
    return artifact


def verify(artifact: Artifact) -> None:
    """Hash every member; TrustError names the first that differs."""
    for name in sorted(artifact.files):
        artifact.file(name)


def begin(out: Path) -> Path:
    """An empty folder to work in; what an unfinished attempt left there is removed."""
    if out.exists():
        shutil.rmtree(out)
    (out / EVIDENCE).mkdir(parents=True)
    _began[out] = Stopwatch.start()
    return out


def seal(
    out: Path,
    *,
    stage: str,
    source: Artifact | None,
    data_digest: str,
    config: dict[str, Any],
    metrics: dict[str, Any],
    libraries: Iterable[str] = (),
) -> Artifact:
    """Hash every file in `out` and write the record, last and atomically."""
    if not data_digest:
        raise DataError(f"{stage}: the data has no digest, so its result could not be traced")
    files = {
        path.relative_to(out).as_posix(): sha256_file(path)
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != RECORD
    }
    made_of = collect_inputs(
        stage,
        config,
        source.digest if source else None,
        data_digest,
        libraries,
        source.path.parent if source else None,
        source.builders if source else (),
    )
    artifact = Artifact(
        path=out,
        stage=stage,
        key=made_of.key,
        digest="",
        parent={"stage": source.stage, "digest": source.digest} if source else None,
        config=config,
        metrics=metrics,
        files=files,
        versions=made_of.libraries,
        data_digest=data_digest,
        code=made_of.code,
        builders=made_of.builders,
        replayed=made_of.replayed,
        took={
            "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            **_began.pop(out, Stopwatch.start()).elapsed(),
        },
    )
    fields = {name: value for name, value in vars(artifact).items() if name != "path"}
    fields["digest"] = _content_digest(artifact)
    sync_files(out, files)
    write_json(out / RECORD, {"format": FORMAT, "record_sha256": digest(fields), **fields})
    return load(out)


def sync_files(out: Path, files: Iterable[str]) -> None:
    """Make files of a folder durable, bytes and names both.

    A file that is synced in a folder that is not may be gone after a power cut.
    """
    for name in files:
        sync_file(out / name)
    for folder in (path for path in out.rglob("*") if path.is_dir()):
        sync_folder(folder)


def _content_digest(artifact: Artifact) -> str:
    content = {name: sha for name, sha in artifact.files.items() if not _is_evidence(name)}
    return digest(
        {
            "stage": artifact.stage,
            "parent": artifact.parent,
            "config": artifact.config,
            "data": artifact.data_digest,
            "files": content,
        }
    )


def _is_evidence(name: str) -> bool:
    return name.startswith(EVIDENCE + "/") or name in EVIDENCE_FILES


def publish(finished: Path, final: Path) -> Artifact:
    """Put a sealed working folder in its place; the earlier one stays until this one is whole.

    Killed between its steps, it leaves what `recover` puts right.
    """
    load(finished)
    previous = _previous(final)
    if previous.exists():
        shutil.rmtree(previous)
    if final.exists():
        os.replace(final, previous)
    os.replace(finished, final)
    sync_folder(final.parent)
    if previous.exists():
        shutil.rmtree(previous)
    return load(final)


def recover(working: Path, final: Path, key: str | None) -> None:
    """Put right what a kill in or before `publish` left: a sealed folder that is not in its place, or none there.

    Of what is whole, that with the wanted `key` goes to `final`; else what was there last.
    """
    previous = _previous(final)
    if not (working.exists() or previous.exists()):
        return
    if not final.exists():
        whole = [path for path in (working, previous) if is_intact(path)]
        for path in sorted(whole, key=lambda path: load(path).key != key)[:1]:
            os.replace(path, final)
            sync_folder(final.parent)
    elif is_intact(working) and load(working).key == key and not (is_intact(final) and load(final).key == key):
        publish(working, final)
    for left in (working, previous):
        if left.exists():
            shutil.rmtree(left)


def is_intact(path: Path) -> bool:
    """True for a sealed folder of which every byte is as it was sealed."""
    try:
        verify(load(path))
    except (StageError, TrustError):
        return False
    return True


def _previous(final: Path) -> Path:
    return final.with_name(f".{final.name}.previous")
