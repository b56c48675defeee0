"""The cache of tuning results in the user's cache folder: the interpreter and the number of threads for each bundle.

A choice is valid for one bundle, on one processor, with the interpreters that were installed when it was measured. If
one of these changes, the bundle is measured again. If the folder cannot be written, nothing is cached.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from edgekit import __version__
from edgekit.runner import cpu
from edgekit.runner._start import cache_folder, is_private
from edgekit.runner.bundle import sha256

FORMAT = 1


class Choice(NamedTuple):
    """An interpreter, a number of threads and a device with which a bundle passed its self-test.

    For each package that could have been tried, `installed` has its build (see `build_id`), or None if the package was
    missing. `blob` is the SHA-256 of OpenVINO's compiled model, if that opens faster than the model file.
    """

    interpreter: str
    threads: int
    device: str
    installed: dict[str, Any]
    blob: str = ""


def choice_key(identity: str, pinned: Iterable[object]) -> str:
    """Return the cache key: a digest of the bundle, the given options (`pinned`), processor, runner and Python."""
    facts = [FORMAT, __version__, identity, sys.version, sys.prefix, cpu.name(), cpu.usable_core_count(), *pinned]
    return sha256.hexdigest(json.dumps(facts).encode())[:32]


def load_choice(key: str) -> Choice | None:
    """Return the choice for a key, or None if there is none or the installed interpreters have changed."""
    try:
        with open(_path(f"{key}.json"), encoding="utf-8") as stream:
            choice = Choice(**json.load(stream))
        is_valid = isinstance(choice.threads, int) and choice.threads > 0 and isinstance(choice.interpreter, str)
        is_valid = is_valid and all(build_id(package) == build for package, build in choice.installed.items())
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return choice if is_valid else None


def store_choice(key: str, choice: Choice, blob: bytes = b"") -> bool:
    """Store a choice. Returns False if the folder cannot be written."""
    from pathlib import Path

    from edgekit.runner.files import make_folder, write_atomically

    folder = Path(cache_folder())
    try:
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        if not cache_folder() or not is_private(str(folder)):
            return False
        if blob:
            write_atomically(folder / f"{key}.blob", blob)
        write_atomically(folder / f"{key}.json", json.dumps(choice._asdict()).encode())
    except OSError:
        return False
    return True


def load_compiled(key: str, choice: Choice) -> bytes | None:
    """Return the compiled model of a choice, or None if it is missing or has another digest than the choice says."""
    try:
        with open(_path(f"{key}.blob"), "rb") as stream:
            blob = stream.read()
    except OSError:
        return None
    return blob if sha256.hexdigest(blob) == choice.blob else None


def remove_choice(key: str) -> None:
    """Remove a choice and its compiled model."""
    for suffix in (".json", ".blob"):
        with suppress(OSError):
            os.unlink(_path(key + suffix))


def _path(name: str) -> str:
    """Return the path of a file in the cache folder. Raises OSError if another user could have put it there."""
    if not is_private(cache_folder()):
        raise PermissionError(f"{cache_folder()}: other users can write there")
    return os.path.join(cache_folder(), name)


def build_id(package: str) -> list[Any] | None:
    """Identify the build of the package that Python would import, without importing it.

    Returns the path, modification time, inode and size of its `__init__.py`, or None if the package is not installed.
    """
    for folder in sys.path:
        path = os.path.join(folder or ".", package, "__init__.py")
        try:
            status = os.stat(path)
        except OSError:
            continue
        return [path, status.st_mtime_ns, status.st_ino, status.st_size]
    return None
