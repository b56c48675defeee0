"""Writes the exported folder completely or not at all, and never replaces anything but an earlier export."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from edgekit import __version__
from edgekit.core.errors import ConfigError
from edgekit.runner.files import make_folder, sync_folder, write_atomically

RECORD = "export.json"
EXECUTABLE = (".pyz", ".eim")


def check(out: Path) -> None:
    """Raise ConfigError unless `out` may be written: it is absent, empty, or an earlier export without changes."""
    if not out.exists() and not out.is_symlink():
        return
    if out.is_symlink() or not out.is_dir():
        raise ConfigError(f"--out {out}: exists and is not a folder; name another")
    if not any(out.iterdir()):
        return
    recorded = _recorded_digests(out)
    if recorded is None:
        raise ConfigError(f"--out {out}: is not empty and is not an earlier export; name another folder")
    if changed := sorted(name for name, digest in _digests(out).items() if recorded.get(name) != digest):
        raise ConfigError(
            f"--out {out}: {changed[0]} was changed after the earlier export; move it away, or name another folder"
        )


def write(out: Path, server: str, files: Mapping[str, bytes]) -> None:
    """Write all files into a temporary folder beside `out`, then rename it to `out`. An earlier export is replaced."""
    out = Path(os.path.abspath(out))
    make_folder(out.parent)
    new_folder, old_folder = (out.with_name(f".{out.name}.{os.getpid()}.{word}") for word in ("new", "old"))
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    record = {"edgekit": __version__, "server": server, "files": digests}
    try:
        for name, data in {**files, RECORD: json.dumps(record, indent=2).encode() + b"\n"}.items():
            path = new_folder / name
            make_folder(path.parent)
            write_atomically(path, data)
            if name.endswith(EXECUTABLE):
                path.chmod(0o755)
        _swap(new_folder, out, old_folder)
    finally:
        shutil.rmtree(new_folder, ignore_errors=True)
    sync_folder(out.parent)


def _swap(new_folder: Path, out: Path, old_folder: Path) -> None:
    """Replace `out` by the new folder. A folder with files must be moved away first, and is restored on failure."""
    check(out)  # again, because checking the bundles took a while
    if not out.exists():
        new_folder.rename(out)
        return
    out.rename(old_folder)
    try:
        new_folder.rename(out)
    except OSError:
        old_folder.rename(out)
        raise
    shutil.rmtree(old_folder)


def _recorded_digests(out: Path) -> dict[str, str] | None:
    """Return the digests that an earlier export recorded, by file name; None if there was no earlier export."""
    try:
        record = json.loads((out / RECORD).read_text(encoding="utf-8"))
        return {RECORD: _sha256(out / RECORD), **record["files"]}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _digests(out: Path) -> dict[str, str]:
    paths = sorted(path for path in out.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(out).as_posix(): "a link" if path.is_symlink() else _sha256(path) for path in paths}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
