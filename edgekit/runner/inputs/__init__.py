"""Raw samples from what a device has: arrays, pictures, sounds, tables and texts in files, folders, frames in a pipe.

One file a kind; only the one that is needed is imported. What happens on the way is the input path that the bundle
declares (`edgekit/runner/input_path.py`). Whatever it cannot turn into the sample that the bundle promises is an
InputError with the fix, never a sample that merely looks like one.
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
"""Which file here reads a suffix: it has `samples(path, raw, strict)`, of texts with the bundle's members."""
DECODE_STEPS = {"picture": "decode_picture", "wav": "decode_wav", "table": "decode_csv", "text": "decode_text",
              "text_table": "decode_text_table", "tensors": "read_tensors"}  # fmt: skip
"""The step of an input path that lets a reader's files in; arrays need none."""
TEXT_READERS = ("text", "text_table")
"""Readers that need the bundle's vocabulary."""


def input_files(name: str, raw: RawSpec) -> list[str]:
    """The files that an argument means: itself, or those of a folder; a folder that holds none stands for itself."""
    if not os.path.isdir(name):
        return [name]
    return files_in_folder(name, suffixes(raw)) or [name]


def files_in_folder(name: str, suffixes: Sequence[str]) -> list[str]:
    """Files of a folder and of those below it, sorted; hidden ones are left out, links to folders not followed."""
    found = []
    for here, folders, names in os.walk(name, onerror=_refuse):
        folders[:] = [each for each in folders if not each.startswith(".")]
        wanted = [each for each in names if not each.startswith(".") and each.lower().endswith(tuple(suffixes))]
        found += [os.path.join(here, each) for each in wanted]
    return sorted(found, key=lambda path: path.split(os.sep))


def _refuse(error: OSError) -> None:
    """What `os.walk` would pass over in silence: samples would be missing from the answers."""
    raise InputError(f"{error.filename}: cannot be listed: {error.strerror or error}; check the folder's permissions")


def samples(
    path: str, raw: RawSpec, strict: bool = False, members: Mapping[str, bytes] = NO_MEMBERS
) -> Iterator[Sample]:
    """The raw samples of a file, one or, of a recording, one for each window; InputError when it cannot be read as one.

    With `strict`, only a file that is the sample already: nothing is turned, resized, mixed, resampled or cut. A text
    needs the bundle's `members`, for its vocabulary is one of them.
    """
    if os.path.isdir(path):
        raise InputError(f"{path}: a folder that holds no {' or '.join(suffixes(raw))} file")
    suffix = os.path.splitext(path)[1].lower()
    known = readers(raw)
    if suffix not in known or ((raw.kind == KIND or suffix == ".tsv") and suffix not in suffixes(raw)):
        raise InputError(f"{path}: {unsupported_file_message(suffix, raw)}")
    if not os.path.isfile(path):
        raise InputError(f"{path}: {'not a plain file' if os.path.exists(path) else 'no such file'}")
    reader = importlib.import_module(f"{__name__}.{known[suffix]}")
    more = (members,) if known[suffix] in TEXT_READERS else ()
    found: Iterator[Sample] = reader.samples(path, raw, strict, *more)
    return found


def read_first_sample(
    path: str, raw: RawSpec, strict: bool = False, members: Mapping[str, bytes] = NO_MEMBERS
) -> np.ndarray:
    """The file's first raw sample: all of it, or its first window."""
    return next(samples(path, raw, strict, members)).raw


def read_bytes(path: str, most: int) -> bytes:
    """The first `most` bytes of a file; InputError where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(most)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def unsupported_file_message(suffix: str, raw: RawSpec) -> str:
    """What is said of a file whose suffix nothing here reads."""
    return f"cannot read {suffix or 'a file without suffix'}; this bundle takes {', '.join(suffixes(raw))}"


def readers(raw: RawSpec) -> Mapping[str, str]:
    """Which file here reads a suffix for a bundle: a .csv holds texts where it takes a table of them."""
    return {**READERS, ".csv": "text_table"} if input_path.find_step(raw.steps, "decode_text_table") else READERS


def suffixes(raw: RawSpec) -> list[str]:
    """The endings of files that can hold a sample."""
    declared = {"array", *(reader for reader, step in DECODE_STEPS.items() if input_path.find_step(raw.steps, step))}
    return [suffix for suffix, reader in readers(raw).items() if reader in declared]
