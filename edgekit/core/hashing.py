"""One spelling of JSON, one way to hash, one way to write a record."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from edgekit.runner.files import write_atomically


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def canonical_json(value: Any) -> bytes:
    """The one JSON spelling that digests are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(value: Any) -> str:
    """Hex sha256 of a JSON-able value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write JSON so that the file is either the old one or the whole new one, whatever happens."""
    text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
    write_atomically(path, text.encode())
