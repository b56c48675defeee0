"""What a bundle proves itself with, golden vectors, and the machines that it is for."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner.errors import BundleError

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest


def check_architecture(manifest: Manifest) -> None:
    """BundleError where a bundle was made for other machines."""
    wanted = manifest.architectures
    if wanted and os.uname().machine not in wanted:
        raise BundleError(
            f"the bundle is for {', '.join(wanted)}, this machine is {os.uname().machine}; take the bundle made for it"
        )


def vectors(manifest: Manifest, members: Mapping[str, bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Golden vectors (n, *raw) and (n, *output); BundleError where they are no plain arrays, or do not fit."""
    inputs, outputs = (_array(manifest.golden[key], members) for key in ("inputs", "outputs"))
    wanted = (len(inputs), *manifest.output_shape)
    if len(inputs) == 0 or outputs.shape != wanted or not np.isfinite(outputs).all():
        raise BundleError(f"golden vectors: outputs {list(outputs.shape)}, needed finite {list(wanted)}")
    return inputs, outputs


def _array(member: str, members: Mapping[str, bytes]) -> np.ndarray:
    try:
        value = np.load(io.BytesIO(members[member]), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise BundleError(f"{member}: not a plain .npy array ({error})") from None
    if not isinstance(value, np.ndarray) or value.ndim < 1:
        raise BundleError(f"{member}: not an array of vectors")
    return value
