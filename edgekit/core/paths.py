"""Paths as users write them in a config.

`~` and ${VARIABLE} are expanded only when a path is used, and never stored.
"""

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
            raise ValueError(f"got {text!r}; environment variable {name!r} is not set; set it, or write out the path")
    if not text.strip():
        raise ValueError(f"got {text!r}; a path is needed")
    return text


PathText = Annotated[str, AfterValidator(_variables_are_set)]
"""A path in a config. A variable that is not set is reported before anything is opened."""


def expand_path(text: str, key: str) -> Path:
    """Return the expanded path. Raises ConfigError for a user without a home folder or a variable that is not set."""
    try:
        _variables_are_set(text)
        return Path(_VARIABLE.sub(lambda match: os.environ[match[1]], text)).expanduser()
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from None
    except RuntimeError:
        raise ConfigError(f"{key}: got {text!r}; {text.split('/')[0]} has no home folder; write out the path") from None


def existing_path(text: str, key: str) -> Path:
    """Expand a path like `expand_path`. Raises DataError if the path does not exist."""
    path = expand_path(text, key)
    if not path.exists():
        shown = text if text == str(path) else f"{text} ({path})"
        raise DataError(f"{key}: {shown} does not exist; relative paths in a config start at the config's folder")
    return path


def file_stamp(path: Path) -> list[object]:
    """Return size, times and inode of a file.

    As long as these are unchanged, the file's bytes are unchanged as well, because nobody can set `ctime`.
    """
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def file_stamps(path: Path) -> list[list[object]]:
    """Return the stamp of a file, or the name and stamp of every file in a folder."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return [[str(file.relative_to(path)), *file_stamp(file)] for file in files]
