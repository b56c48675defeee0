"""The cache of measured choices in the user's cache folder: which interpreter, how many threads.

A choice holds for one bundle, one processor and the interpreters that were installed. Anything else is measured again.
If the folder cannot be written, nothing is cached.
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
    """A proven way to run a bundle.

    `blob` is the sha256 of OpenVINO's compiled model where that opens faster. `installed` is a sign of each package
    that was there to be tried, null for those that were not.
    """

    interpreter: str
    threads: int
    device: str
    installed: dict[str, Any]
    blob: str = ""


def choice_key(identity: str, pinned: Iterable[object]) -> str:
    """The key of a choice: the bundle, what was pinned, the processor, this runner and its environment."""
    facts = [FORMAT, __version__, identity, sys.version, sys.prefix, cpu.name(), cpu.usable_core_count(), *pinned]
    return sha256.hexdigest(json.dumps(facts).encode())[:32]


def load_choice(name: str) -> Choice | None:
    """The choice of this key; None where there is none, or the installed interpreters are no longer the same."""
    try:
        with open(_path(f"{name}.json"), encoding="utf-8") as stream:
            choice = Choice(**json.load(stream))
        sound = isinstance(choice.threads, int) and choice.threads > 0 and isinstance(choice.interpreter, str)
        sound = sound and all(build_id(package) == was for package, was in choice.installed.items())
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return choice if sound else None


def store_choice(name: str, choice: Choice, blob: bytes = b"") -> bool:
    """Store a choice; False if the folder cannot be written."""
    from pathlib import Path

    from edgekit.runner.files import make_folder, write_atomically

    home = Path(cache_folder())
    try:
        make_folder(home.parent)
        home.mkdir(mode=0o700, exist_ok=True)
        if not cache_folder() or not is_private(str(home)):
            return False
        if blob:
            write_atomically(home / f"{name}.blob", blob)
        write_atomically(home / f"{name}.json", json.dumps(choice._asdict()).encode())
    except OSError:
        return False
    return True


def load_compiled(name: str, choice: Choice) -> bytes | None:
    """The compiled model of a choice; None where it is not the one that was proven."""
    try:
        with open(_path(f"{name}.blob"), "rb") as stream:
            blob = stream.read()
    except OSError:
        return None
    return blob if sha256.hexdigest(blob) == choice.blob else None


def remove_choice(name: str) -> None:
    """Remove a choice and its compiled model."""
    for suffix in (".json", ".blob"):
        with suppress(OSError):
            os.unlink(_path(name + suffix))


def _path(name: str) -> str:
    """A file in the cache folder; OSError where somebody else could have put it there."""
    if not is_private(cache_folder()):
        raise PermissionError(f"{cache_folder()}: not this user's alone")
    return os.path.join(cache_folder(), name)


def build_id(package: str) -> list[Any] | None:
    """Identifies the build of a package that Python would import, without importing it; None if there is none."""
    for place in sys.path:
        path = os.path.join(place or ".", package, "__init__.py")
        try:
            found = os.stat(path)
        except OSError:
            continue
        return [path, found.st_mtime_ns, found.st_ino, found.st_size]
    return None
