"""Raw samples from what a device has: arrays, pictures, sounds, tables in files, folders of them, frames in a pipe.

One file a kind; only the one that is needed is imported. Whatever cannot become exactly the sample that the bundle
promises is an InputError with the fix, never a sample that merely looks like one.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.runner.manifest import RawSpec

READERS = {".npy": "array", ".png": "picture", ".jpg": "picture", ".jpeg": "picture", ".wav": "wav",
           ".csv": "table"}  # fmt: skip
"""Which file here reads a suffix: it has `read(path, raw)`."""
KINDS = {"image": ("array", "picture"), "audio": ("array", "wav"), "vector": ("array",), "window": ("array", "table")}
"""What can hold a sample of each kind: these are looked for in a folder."""


def files(name: str, raw: RawSpec) -> list[str]:
    """The files that an argument means: itself, or those of a folder; a folder that holds none stands for itself."""
    if not os.path.isdir(name):
        return [name]
    from edgekit.runner.inputs import folder

    return folder.files(name, _suffixes(raw)) or [name]


def read(path: str, raw: RawSpec) -> np.ndarray:
    """One raw sample; InputError when the file cannot be read as one."""
    if os.path.isdir(path):
        raise InputError(f"{path}: a folder that holds no {' or '.join(_suffixes(raw))} file")
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in READERS:
        known = ", ".join(_suffixes(raw))
        raise InputError(f"{path}: cannot read {suffix or 'a file without suffix'}; this bundle takes {known}")
    if not os.path.isfile(path):
        raise InputError(f"{path}: {'not a plain file' if os.path.exists(path) else 'no such file'}")
    sample: np.ndarray = importlib.import_module(f"{__name__}.{READERS[suffix]}").read(path, raw)
    return sample


def _suffixes(raw: RawSpec) -> list[str]:
    readers = [reader for reader in KINDS[raw.kind] if reader != "table" or raw.columns]
    return [suffix for suffix, reader in READERS.items() if reader in readers]
