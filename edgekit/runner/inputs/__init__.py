"""Raw samples from files and folders with arrays, pictures, sounds, tables or texts, and from video frames in a pipe.

There is one module per kind of file, and only the one that is needed is imported. The bundle declares how a file
becomes a sample (`edgekit/runner/input_path.py`). A file that cannot become the declared sample raises InputError with
a fix, instead of giving a wrong sample that looks right.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from edgekit.runner import input_path
from edgekit.runner.errors import InputError
from edgekit.runner.input_vector import KIND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np

    from edgekit.runner.bundle.manifest import RawSpec
    from edgekit.runner.inputs.windows import Sample

NO_MEMBERS: Mapping[str, bytes] = {}
READERS = {".npy": "array", ".png": "picture", ".jpg": "picture", ".jpeg": "picture", ".webp": "picture",
           ".wav": "wav", ".csv": "table", ".txt": "text", ".tsv": "text_table",
           ".npz": "tensors"}  # fmt: skip
"""The module that reads files with a suffix.

Each has a function `samples(path, raw, strict)`, which for texts also takes the bundle's members.
"""
DECODE_STEPS = {"picture": "decode_picture", "wav": "decode_wav", "table": "decode_csv", "text": "decode_text",
              "text_table": "decode_text_table", "tensors": "read_tensors"}  # fmt: skip
"""The step that an input path needs before a reader may be used. Arrays need none."""
TEXT_READERS = ("text", "text_table")
"""Readers that need the bundle's vocabulary."""


def input_files(name: str, raw: RawSpec) -> list[str]:
    """Return the files that an argument names: the file itself, or those in a folder that may hold samples.

    A folder without any is returned as it is.
    """
    if not os.path.isdir(name):
        return [name]
    return files_in_folder(name, suffixes(raw)) or [name]


def files_in_folder(name: str, suffixes: Sequence[str]) -> list[str]:
    """Return the files in a folder and its subfolders, sorted. Hidden files and linked folders are skipped."""
    files = []
    for folder, folders, names in os.walk(name, onerror=_refuse):
        folders[:] = [each for each in folders if not each.startswith(".")]
        matching = [each for each in names if not each.startswith(".") and each.lower().endswith(tuple(suffixes))]
        files += [os.path.join(folder, each) for each in matching]
    return sorted(files, key=lambda path: path.split(os.sep))


def _refuse(error: OSError) -> None:
    """Raise for errors that `os.walk` would ignore, because samples would be missing from the answers."""
    raise InputError(f"{error.filename}: cannot be listed: {error.strerror or error}; check the folder's permissions")


def samples(
    path: str, raw: RawSpec, strict: bool = False, members: Mapping[str, bytes] = NO_MEMBERS
) -> Iterator[Sample]:
    """Yield the raw samples of a file: one, or one for each window of a recording.

    `strict` accepts only a file that already has the form of the sample: nothing is turned, resized, mixed, resampled
    or cut. A text needs the bundle's `members`, which include its vocabulary. Raises InputError if the file cannot be
    read.
    """
    if os.path.isdir(path):
        raise InputError(f"{path}: a folder that holds no {' or '.join(suffixes(raw))} file")
    suffix = os.path.splitext(path)[1].lower()
    reader_names = readers(raw)
    if suffix not in reader_names or ((raw.kind == KIND or suffix == ".tsv") and suffix not in suffixes(raw)):
        raise InputError(f"{path}: {unsupported_file_message(suffix, raw)}")
    if not os.path.isfile(path):
        raise InputError(f"{path}: {'not a plain file' if os.path.exists(path) else 'no such file'}")
    reader = importlib.import_module(f"{__name__}.{reader_names[suffix]}")
    extra = (members,) if reader_names[suffix] in TEXT_READERS else ()
    file_samples: Iterator[Sample] = reader.samples(path, raw, strict, *extra)
    return file_samples


def read_first_sample(
    path: str, raw: RawSpec, strict: bool = False, members: Mapping[str, bytes] = NO_MEMBERS
) -> np.ndarray:
    """Return the first raw sample of a file: the whole file, or its first window."""
    return next(samples(path, raw, strict, members)).raw


def read_bytes(path: str, max_bytes: int) -> bytes:
    """Return the first `max_bytes` bytes of a file. Raises InputError if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(max_bytes)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def unsupported_file_message(suffix: str, raw: RawSpec) -> str:
    """Return the message for a file whose suffix no reader supports."""
    return f"cannot read {suffix or 'a file without suffix'}; this bundle takes {', '.join(suffixes(raw))}"


def readers(raw: RawSpec) -> Mapping[str, str]:
    """Return the reader of each suffix for a bundle. A .csv holds texts if the bundle takes a table of texts."""
    return {**READERS, ".csv": "text_table"} if input_path.find_step(raw.steps, "decode_text_table") else READERS


def suffixes(raw: RawSpec) -> list[str]:
    """Return the suffixes of files that can hold a sample."""
    declared = {"array", *(reader for reader, step in DECODE_STEPS.items() if input_path.find_step(raw.steps, step))}
    return [suffix for suffix, reader in readers(raw).items() if reader in declared]
