"""Canonical JSON, digests, and atomic writing of records."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from edgekit.runner.files import write_atomically


def sha256_file(path: Path) -> str:
    """Return the hex SHA-256 of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def canonical_json(value: Any) -> bytes:
    """Return the canonical JSON encoding, which all digests are computed from."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(value: Any) -> str:
    """Return the hex SHA-256 of a value that JSON can hold."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically: the file is either the old one or the complete new one, whatever happens."""
    text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
    write_atomically(path, text.encode())
