"""Samples of several tensors: an `.npz` file with one sample's tensors by name."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from edgekit.runner.errors import InputError
from edgekit.runner.input_vector import KIND, check_names, check_type, join_named
from edgekit.runner.inputs.array import LARGEST_HEADER_BYTES
from edgekit.runner.inputs.windows import Sample

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec

NPY = ".npy"
COMPRESSION_TYPES = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The compression methods of `numpy.savez` and `numpy.savez_compressed`."""
ENCRYPTED = 1
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
"""Header readers by version of the `.npy` format. Version 3 is for arrays of records."""


def samples(path: str, raw: RawSpec, strict: bool = False) -> Iterator[Sample]:
    """Yield the single sample of a file. Raises InputError if its tensors are not those of the bundle.

    Names, sizes, shapes and dtypes are checked before memory is allocated for any tensor.
    """
    if raw.kind != KIND:
        raise InputError(f"{path}: holds several arrays; this bundle takes one, save a sample with numpy.save")
    tensors = {member["name"]: member for member in raw.tensors or ()}
    max_bytes = 8 * raw.shape[0] + LARGEST_HEADER_BYTES * (len(tensors) + 1)
    if (size := os.path.getsize(path)) > max_bytes:
        raise InputError(
            f"{path}: has {size} bytes; one sample has at most {max_bytes}, save each in a file of its own"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            names = [
                member.filename[: -len(NPY)] if member.filename.endswith(NPY) else member.filename for member in members
            ]
            check_names(names, list(tensors.values()))
            arrays = {name: _read(archive, member, tensors[name], max_bytes) for name, member in zip(names, members)}
        return iter((Sample(join_named(arrays, list(tensors.values()))),))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except Exception as error:  # raised for damaged archives and headers, and for other files
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path}: not an .npz of plain arrays ({reason}); save one with numpy.savez") from None


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, tensor: Mapping[str, Any], max_bytes: int) -> np.ndarray:
    if member.file_size > max_bytes:
        raise InputError(f"tensor {tensor['name']}: has {member.file_size} bytes; one sample has at most {max_bytes}")
    if member.compress_type not in COMPRESSION_TYPES or member.flag_bits & ENCRYPTED:
        raise ValueError("encrypted, or compressed in another way")
    with archive.open(member) as stream:
        check_type(tensor, *_header(stream))
    with archive.open(member) as stream:
        value: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
        if stream.read(1):
            raise ValueError("bytes behind an array")
    return value


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and dtype of the array that begins here."""
    version = np.lib.format.read_magic(stream)
    if version not in HEADERS:
        raise ValueError(f"version {version} of the .npy format")
    shape, _, dtype = HEADERS[version](stream)
    return shape, dtype
