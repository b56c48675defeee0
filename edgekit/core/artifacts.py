"""Sealed artifacts: the folders that finished stages leave, and the digests that tie each of them to its inputs.

A folder is finished when it holds `artifact.json`, which is written last and atomically. Files under `evidence/`
(figures, timings) are listed and hashed, but they do not count towards the content digest: a latency is evidence for
a decision, not content.
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
    """Measures the wall time and the processor time of a piece of work, from the start to now."""

    clock_s: float
    cpu_s: float

    @classmethod
    def start(cls) -> Stopwatch:
        """Return a stopwatch that starts now."""
        return cls(time.monotonic(), process_cpu_seconds())

    def elapsed(self) -> dict[str, float]:
        """Return `seconds` of wall time and `cpu_seconds` of processor time since the start."""
        end = Stopwatch.start()
        return {"seconds": round(end.clock_s - self.clock_s, 3), "cpu_seconds": round(end.cpu_s - self.cpu_s, 3)}


def process_cpu_seconds() -> float:
    """Return the processor seconds used by all threads of this process and by its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


RECORD = "artifact.json"
FORMAT = 2
EVIDENCE = "evidence"
"""The folder of figures and timings inside an artifact, which do not count towards its content digest."""
EVIDENCE_FILES = ("environment.lock", "sbom.cdx.json")
"""Files outside that folder that do not count either, because they describe the machine and not the result."""

_began: dict[Path, Stopwatch] = {}
"""The stopwatch of each folder that this process is working in."""


@dataclass(frozen=True)
class Artifact:
    """A sealed folder. `metrics` holds figures for display, and `config` the configuration with which the stage ran.

    `took` says when the folder was sealed, how long the work took, and how much processor time it used.
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
        """Everything that the artifact was made from."""
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
        """Return the path of a member after checking it against its recorded SHA-256.

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
        """Return the artifact of an earlier stage of the same run. The digest of every artifact in between is checked.

        Parameters
        ----------
        stage
            Name of the stage.

        Raises
        ------
        StageError
            The run has no such stage, or the stage has been run again since this artifact was made from it.
        """
        if self.stage == stage:
            return self
        if self.parent is None:
            raise StageError(f"{self.path}: has no ancestor {stage!r}; the pipeline begins with {self.stage!r}")
        parent = load(self.path.parent / self.parent["stage"])
        if parent.digest != self.parent["digest"]:
            raise StageError(
                f"{self.stage} was made from a different {parent.stage} than the one in {parent.path}; "
                f"run {self.stage} and the stages after it again"
            )
        return parent.ancestor(stage)

    def find_ancestor(self, stage: str) -> Artifact | None:
        """Return the artifact of an earlier stage like `ancestor`, or None if the run has no such stage.

        Parameters
        ----------
        stage : str
            The name of the stage, such as `"distill"`.
        """
        artifact = self
        while artifact.stage != stage:
            if artifact.parent is None:
                return None
            artifact = artifact.ancestor(artifact.parent["stage"])
        return artifact


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
        if (format_number := fields.pop("format")) != FORMAT:
            raise TrustError(
                f"{record}: has format {format_number}, but this edgekit writes {FORMAT}; run stage {path.name!r} again"
            )
        recorded = fields.pop("record_sha256")
        artifact = Artifact(path=path, **fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TrustError(f"{record}: not an artifact record ({error}); run stage {path.name!r} again") from None
    if digest(fields) != recorded or _content_digest(artifact) != artifact.digest:
        raise TrustError(f"{record}: its digest does not match its content; run stage {artifact.stage!r} again")
    return artifact


def verify(artifact: Artifact) -> None:
    """Hash every member, and raise TrustError for the first one that has changed."""
    for name in sorted(artifact.files):
        artifact.file(name)


def begin(out: Path) -> Path:
    """Create an empty folder to work in. Anything that an unfinished attempt left there is removed."""
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
    """Hash every file in `out` and write the record, last and atomically.

    Raises
    ------
    DataError
        `data_digest` is empty, so the result could not be traced to its data.
    """
    if not data_digest:
        raise DataError(f"{stage}: the data has no digest, so its result could not be traced")
    files = {
        path.relative_to(out).as_posix(): sha256_file(path)
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != RECORD
    }
    inputs = collect_inputs(
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
        key=inputs.key,
        digest="",
        parent={"stage": source.stage, "digest": source.digest} if source else None,
        config=config,
        metrics=metrics,
        files=files,
        versions=inputs.libraries,
        data_digest=data_digest,
        code=inputs.code,
        builders=inputs.builders,
        replayed=inputs.replayed,
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
    """Make the files of a folder durable, their bytes as well as their names.

    After a power cut, a synced file can still be missing if its folder was not synced.
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
    """Move a sealed working folder to its final place. The previous artifact is kept until the new one is in place.

    If the process is killed in between, the next run finishes the work with `recover`.
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
    """Finish the work of a process that was killed in or shortly before `publish`.

    If there is nothing at `final`, an intact folder is moved there: the finished working folder or the previous
    artifact, preferably one whose cache key is `key`. An artifact at `final` is replaced only if the working folder has
    this key and the artifact does not. All other leftovers are removed.
    """
    previous = _previous(final)
    if not (working.exists() or previous.exists()):
        return
    if not final.exists():
        intact = [path for path in (working, previous) if is_intact(path)]
        for path in sorted(intact, key=lambda path: load(path).key != key)[:1]:
            os.replace(path, final)
            sync_folder(final.parent)
    elif is_intact(working) and load(working).key == key and not (is_intact(final) and load(final).key == key):
        publish(working, final)
    for leftover in (working, previous):
        if leftover.exists():
            shutil.rmtree(leftover)


def is_intact(path: Path) -> bool:
    """Return whether this is a sealed folder in which no file has changed since it was sealed."""
    try:
        verify(load(path))
    except (StageError, TrustError):
        return False
    return True


def _previous(final: Path) -> Path:
    return final.with_name(f".{final.name}.previous")
