"""What a bundle needs of the device, read without NumPy and without opening its model."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.runner import bundle, inputs, operators
from edgekit.runner.bundle import manifest
from edgekit.runner.errors import BundleError, bounded_recursion

HEADER = struct.Struct("<4s5H3I2H")
MOST_BYTES = 4 * 2**20


@dataclass(frozen=True)
class BundleRequirements:
    """What a bundle needs. `inputs` are the suffixes of the files that it accepts as samples.

    If `format` is newer than this runner supports, only `path` and `format` are set, because nothing else can be read.
    """

    path: str
    target: str | None
    needs: operators.ModelRequirements | None = None
    model_bytes: int = 0
    architectures: tuple[str, ...] = ()
    kind: str = ""
    inputs: tuple[str, ...] = ()
    format: int = manifest.FORMAT


def read_requirements(path: str) -> BundleRequirements:
    """Read a bundle's requirements.

    Raises BundleError or TrustError if it is not a bundle, or its model is malformed.
    """
    try:
        opened = bundle.read(path)
    except BundleError:
        newer_format = _newer_format(path)
        if newer_format is None:
            raise
        return BundleRequirements(path, None, format=newer_format)
    declared, files = opened.manifest, opened.model_files()
    return BundleRequirements(
        path,
        declared.target,
        operators.read(declared.target, files),
        sum(len(data) for data in files.values()),
        tuple(getattr(declared, "architectures", ())),
        declared.raw.kind,
        tuple(inputs.suffixes(declared.raw)),
        declared.format,
    )


def _newer_format(path: str) -> int | None:
    """Return the format in a bundle's manifest if it is newer than this runner supports, else None.

    A bundle of a newer format may differ in everything else, so nothing else is read.
    """
    try:
        with Path(path).open("rb") as stream:
            head = stream.read(HEADER.size)
            fields = HEADER.unpack(head)
            if fields[0] != b"PK\3\4" or stream.read(fields[9]) != bundle.MANIFEST.encode():
                return None
            stream.read(fields[10])
            with bounded_recursion():
                values: Any = json.loads(stream.read(min(fields[8], MOST_BYTES)))
    except (OSError, ValueError, RecursionError, struct.error):
        return None
    value = values.get("format") if isinstance(values, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > manifest.FORMAT else None
