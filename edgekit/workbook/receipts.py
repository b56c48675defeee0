"""Receipts: which notebook completed on which artifact, and with which exit code.

A sealed artifact says that a stage's work is done; the cells after it hold the checks. A notebook counts as finished
only with a receipt that names this very artifact, this notebook's source and the executed copy, each by its sha256.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.core.hashing import sha256_file, write_json
from edgekit.runner.files import move


@dataclass(frozen=True)
class Receipt:
    """`executed` is the copy's file name; `exit_code` 0, or 3 where the notebook found the budget missed."""

    key: str
    digest: str
    source_sha256: str
    executed: str
    executed_sha256: str
    exit_code: int
    seconds: float


def write(notebooks: Path, artifact: Artifact, source: Path, executed: Path, exit_code: int, seconds: float) -> None:
    """Write the receipt of a notebook that completed on `artifact`."""
    receipt = Receipt(
        artifact.key,
        artifact.digest,
        sha256_file(source),
        executed.name,
        sha256_file(executed),
        exit_code,
        round(seconds, 3),
    )
    write_json(_path(notebooks, artifact.stage), asdict(receipt))


def find(notebooks: Path, artifact: Artifact, source: Path) -> Receipt | None:
    """The receipt that holds for this artifact and this notebook, its executed copy unchanged; else None."""
    try:
        receipt = Receipt(**json.loads(_path(notebooks, artifact.stage).read_text(encoding="utf-8")))
        same = (receipt.key, receipt.digest) == (artifact.key, artifact.digest)
        whole = sha256_file(notebooks / receipt.executed) == receipt.executed_sha256
        return receipt if same and whole and receipt.source_sha256 == sha256_file(source) else None
    except (OSError, ValueError, TypeError):
        return None


def restore(notebooks: Path, stage: str, receipt: Receipt, executed: Path) -> None:
    """Put an executed copy and its receipt in their places: the copy first, for a receipt vouches for it."""
    remove(notebooks, stage)
    move(executed, notebooks / receipt.executed)
    write_json(_path(notebooks, stage), asdict(receipt))


def remove(notebooks: Path, stage: str) -> None:
    """Before a notebook is executed again."""
    _path(notebooks, stage).unlink(missing_ok=True)


def _path(notebooks: Path, stage: str) -> Path:
    return notebooks / f".{stage}.receipt.json"
