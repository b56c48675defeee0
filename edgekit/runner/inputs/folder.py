"""The files of a folder and of the folders below it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from edgekit.runner.errors import InputError


def files(name: str, suffixes: Sequence[str]) -> list[str]:
    """Files with one of the suffixes, sorted by name; hidden ones are left out, links to folders not followed."""
    found = []
    for here, folders, names in os.walk(name, onerror=_refuse):
        folders[:] = [each for each in folders if not each.startswith(".")]
        wanted = [each for each in names if not each.startswith(".") and each.lower().endswith(tuple(suffixes))]
        found += [os.path.join(here, each) for each in wanted]
    return sorted(found, key=lambda path: path.split(os.sep))


def _refuse(error: OSError) -> None:
    """What `os.walk` would pass over in silence: samples would be missing from the answers."""
    raise InputError(f"{error.filename}: cannot be listed: {error.strerror or error}; check the folder's permissions")
