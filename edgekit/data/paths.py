"""Paths as a user writes them in a config: `~` and ${VARIABLE} are filled in when the path is used, never stored."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from edgekit.core.errors import ConfigError, DataError

_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def _variables_are_set(text: str) -> str:
    for name in _VARIABLE.findall(text):
        if not os.environ.get(name):
            raise ValueError(
                f"got {text!r}; environment variable {name!r} is not set: export it, or write out the path"
            )
    if not text.strip():
        raise ValueError(f"got {text!r}; a path is needed")
    return text


PathText = Annotated[str, AfterValidator(_variables_are_set)]
"""A path in a config; an unset variable is a fault of the config, found before anything is opened."""


def expand_path(text: str, key: str) -> Path:
    """The path meant by `text`; ConfigError for a user without a home, or a variable that has vanished meanwhile."""
    try:
        _variables_are_set(text)
        return Path(_VARIABLE.sub(lambda found: os.environ[found[1]], text)).expanduser()
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from None
    except RuntimeError:
        raise ConfigError(f"{key}: got {text!r}; {text.split('/')[0]} has no home folder; write out the path") from None


def existing_path(text: str, key: str) -> Path:
    """As `expand`; DataError if nothing is there."""
    path = expand_path(text, key)
    if not path.exists():
        shown = text if text == str(path) else f"{text} ({path})"
        raise DataError(f"{key}: nothing at {shown}; in a config, relative paths start at its folder")
    return path


def file_stamp(path: Path) -> list[object]:
    """Size, times and number of a file: as long as they stay, so do its bytes. `ctime` cannot be set by a user."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def file_stamps(path: Path) -> list[list[object]]:
    """The stamp of a file, or of every file below a folder, each behind its name."""
    files = sorted(found for found in path.rglob("*") if found.is_file()) if path.is_dir() else [path]
    return [[str(file.relative_to(path)), *file_stamp(file)] for file in files]
