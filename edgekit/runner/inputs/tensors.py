"""Samples of several tensors: an `.npz` file that holds one sample's tensors by their names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner.errors import InputError
from edgekit.runner.input_vector import KIND, of_names
from edgekit.runner.inputs.array import LARGEST_HEADER_BYTES
from edgekit.runner.inputs.windows import Sample

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec


def samples(path: str, raw: RawSpec, strict: bool = False) -> Iterator[Sample]:
    """The one sample of a file; InputError where its tensors are not those of the bundle."""
    if raw.kind != KIND:
        raise InputError(f"{path}: holds several arrays; this bundle takes one, save a sample with numpy.save")
    tensors = raw.tensors or ()
    most = 8 * raw.shape[0] + LARGEST_HEADER_BYTES * (len(tensors) + 1)
    if (size := os.path.getsize(path)) > most:
        raise InputError(f"{path}: has {size} bytes; one sample has at most {most}, save each in a file of its own")
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files if _fits(archive, name, most)}
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except Exception as error:  # of zip files, of damaged headers and of what is no archive
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path}: not an .npz of plain arrays ({reason}); save one with numpy.savez") from None
    try:
        return iter((Sample(of_names(found, tensors)),))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _fits(archive: np.lib.npyio.NpzFile, name: str, most: int) -> bool:
    """Whether a member is no larger than a sample may be, before it is unpacked; InputError where it is."""
    for member in (name, f"{name}.npy"):
        if member in archive.zip.namelist() and archive.zip.getinfo(member).file_size > most:
            raise InputError(f"{name}: too large for one sample of this bundle")
    return True
