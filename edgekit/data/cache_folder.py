"""The cache on disk, which has a folder for each key, with a record of the folder's files.

A folder is filled under a temporary name and renamed when it is complete, so two processes that create the same folder
do not disturb each other. A folder whose files do not match the digests in its record is created again.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import ResourceError
from edgekit.core.hashing import sha256_file, write_json
from edgekit.runner.files import sync_file

RECORD = "record.json"
_STALE_SECONDS = 24 * 3600


def default_folder() -> Path:
    """Return ~/.cache/edgekit, or the folder below XDG_CACHE_HOME if that is set."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "edgekit"


def checked_record(folder: Path) -> dict[str, Any] | None:
    """Check every file of a folder and return its record, or None if there is no record or a file is damaged."""
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        is_intact = all(sha256_file(folder / name) == sha for name, sha in record["files"].items())
        return record if is_intact else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@contextmanager
def new_folder(root: Path, key: str) -> Iterator[Path]:
    """Yield a folder to fill, and move it into the cache at the end. After an error, the folder is removed."""
    folder = root / f".{key}.{os.getpid()}.tmp"
    try:
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root)
        folder.mkdir()
        yield folder
        _place(folder, root / key)
    except OSError as error:
        raise ResourceError(
            f"data.cache: cannot write to {root} ({error.strerror or error}); free some space there, "
            "or set data.cache to another folder"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write the record with the digests of all arrays, after the arrays themselves are on disk."""
    files = {}
    for path in sorted(folder.glob("*.npy")):
        sync_file(path)
        files[path.name] = sha256_file(path)
    write_json(folder / RECORD, {**record, "files": files})


def write_rows(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], parts: Iterable[np.ndarray]) -> None:
    """Write an .npy file of the given shape part by part. Raises OSError if the disk fails."""
    with open(path, "wb") as stream:
        head = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, head)
        for part in parts:
            stream.write(np.ascontiguousarray(part, dtype).data)


def _place(folder: Path, final: Path) -> None:
    try:
        os.replace(folder, final)
    except OSError:
        # The folder exists. Either another process was faster, or the folder is damaged and must be replaced.
        if checked_record(final) is None:
            shutil.rmtree(final)
            os.replace(folder, final)


def _sweep(root: Path) -> None:
    """Remove the temporary folders that killed processes have left."""
    for old in root.glob(".*.tmp"):
        if time.time() - old.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
