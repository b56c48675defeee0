"""Sealed artifacts: the folder a finished stage leaves, and the digests that tie it to what made it.

A folder is finished when it holds `artifact.json`, which is written last and atomically. Files under
`evidence/` (figures, timings) are listed and hashed but stay out of the content digest: a latency is evidence
for a decision, never content.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from edgekit.errors import DataError, StageError, TrustError
from edgekit.runner.files import sync_folder, write_atomically

RECORD = "artifact.json"
EVIDENCE = "evidence"
SHAPING_MODULES = ("artifact", "augment", "config", "eager", "quiet", "train", "variants")
SHAPING_FOLDERS = ("data", "losses", "models", "runner")


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def canonical(value: Any) -> bytes:
    """The one JSON spelling that digests are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(value: Any) -> str:
    """Hex sha256 of a JSON-able value."""
    return hashlib.sha256(canonical(value)).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write JSON so that the file is either the old one or the whole new one, whatever happens."""
    text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
    write_atomically(path, text.encode())


@dataclass(frozen=True)
class Artifact:
    """A sealed folder. `metrics` are figures to show; `config` is the stage's, as it ran."""

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

    def file(self, name: str) -> Path:
        """Path of a member, checked against its recorded sha256."""
        if name not in self.files:
            raise StageError(f"{self.stage}: no file {name!r} in {self.path}; it holds {', '.join(sorted(self.files))}")
        path = self.path / name
        if not path.is_file() or sha256_file(path) != self.files[name]:
            raise TrustError(f"{path}: changed or missing since stage {self.stage} sealed it; run that stage again")
        return path

    def ancestor(self, stage: str) -> Artifact:
        """The artifact of an earlier stage of the same run, every link checked by digest."""
        if self.stage == stage:
            return self
        if self.parent is None:
            raise StageError(f"{self.path}: has no ancestor {stage!r}; the walk begins at {self.stage!r}")
        parent = load(self.path.parent / self.parent["stage"])
        if parent.digest != self.parent["digest"]:
            raise StageError(
                f"{self.stage} was made from another {parent.stage} than the one in {parent.path}; "
                f"run {self.stage} and what follows it again"
            )
        return parent.ancestor(stage)


def load(path: Path) -> Artifact:
    """Open a sealed folder; StageError if it is unfinished, TrustError if its record was tampered with."""
    record = path / RECORD
    if not record.is_file():
        raise StageError(f"{path}: no finished artifact of stage {path.name!r} here; run its notebook first")
    try:
        fields = json.loads(record.read_text())
        fields.pop("format")
        recorded = fields.pop("record_sha256")
        artifact = Artifact(path=path, **fields)
    except (ValueError, TypeError, KeyError) as error:
        raise TrustError(f"{record}: not an artifact record ({error}); run stage {path.name!r} again") from None
    if digest(fields) != recorded or _content_digest(artifact) != artifact.digest:
        raise TrustError(f"{record}: its digest does not match its content; run stage {artifact.stage!r} again")
    return artifact


def verify(artifact: Artifact) -> None:
    """Hash every member; TrustError names the first that differs."""
    for name in sorted(artifact.files):
        artifact.file(name)


def stage_key(
    stage: str, config: dict[str, Any], source: Artifact | None, data_digest: str, libraries: Iterable[str]
) -> str:
    """Digest of everything a stage's result depends on: same key, same result."""
    return digest(
        {
            "stage": stage,
            "config": config,
            "source": source.digest if source else None,
            "data": data_digest,
            "libraries": library_versions(libraries),
            "code": code_digest(stage),
            "builders": {name: source_digest(name) for name in sorted(_builders(config))},
        }
    )


def library_versions(libraries: Iterable[str]) -> dict[str, str]:
    """Installed versions, by distribution name."""
    return {name: metadata.version(name) for name in sorted(libraries)}


def code_digest(stage: str) -> str:
    """Digest of the source that shapes a stage's result: its own, and that of the floors it stands on."""
    root = Path(__file__).parent
    files = [root / f"{name}.py" for name in SHAPING_MODULES]
    for folder in (f"stages/{stage}", *SHAPING_FOLDERS):
        files += (root / folder).rglob("*.py")
    return digest([[path.relative_to(root).as_posix(), sha256_file(path)] for path in sorted(files)])


def source_digest(builder: str) -> str | None:
    """Digest of the user's source behind `package.module:function`: the module, or its whole package; None if unknown.

    edgekit's own networks are covered by `code_digest`.
    """
    module = builder.partition(":")[0]
    top = module.partition(".")[0]
    if top == "edgekit":
        return None
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if found is None or found.origin is None:
        return None
    origin = Path(found.origin)
    files = sorted(origin.parent.rglob("*.py")) if found.submodule_search_locations else [origin]
    return digest([[path.relative_to(origin.parent).as_posix(), sha256_file(path)] for path in files])


def _builders(value: Any) -> set[str]:
    """Every `builder` named anywhere in a stage's config."""
    if isinstance(value, dict):
        own = {value["builder"]} if isinstance(value.get("builder"), str) else set()
        return own.union(*(_builders(inner) for inner in value.values()))
    return set().union(*(_builders(inner) for inner in value)) if isinstance(value, list) else set()


def begin(out: Path) -> Path:
    """An empty folder to work in; what an unfinished attempt left there is removed."""
    if out.exists():
        shutil.rmtree(out)
    (out / EVIDENCE).mkdir(parents=True)
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
    libraries = tuple(libraries)
    artifact = Artifact(
        path=out,
        stage=stage,
        key=stage_key(stage, config, source, data_digest, libraries),
        digest="",
        parent={"stage": source.stage, "digest": source.digest} if source else None,
        config=config,
        metrics=metrics,
        files=files,
        versions=library_versions(libraries),
        data_digest=data_digest,
    )
    fields = {name: value for name, value in vars(artifact).items() if name != "path"}
    fields["digest"] = _content_digest(artifact)
    for name in files:
        with open(out / name, "rb") as stream:
            os.fsync(stream.fileno())
    write_json(out / RECORD, {"format": 1, "record_sha256": digest(fields), **fields})
    return load(out)


def _content_digest(artifact: Artifact) -> str:
    content = {name: sha for name, sha in artifact.files.items() if not name.startswith(EVIDENCE + "/")}
    return digest(
        {
            "stage": artifact.stage,
            "parent": artifact.parent,
            "config": artifact.config,
            "data": artifact.data_digest,
            "files": content,
        }
    )


def publish(finished: Path, final: Path) -> Artifact:
    """Put a sealed working folder in its place; the earlier one stays until this one is whole."""
    load(finished)
    previous = final.with_name(f".{final.name}.previous")
    if previous.exists():
        shutil.rmtree(previous)
    if final.exists():
        os.replace(final, previous)
    os.replace(finished, final)
    sync_folder(final.parent)
    if previous.exists():
        shutil.rmtree(previous)
    return load(final)
