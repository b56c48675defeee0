"""Model files that contain the affine preprocess steps themselves, and therefore take a sample's bytes.

The input scale of a TFLite file says what a byte stands for. ONNX and OpenVINO's IR have no such field, so these files
carry a remark in plain text: the scale and the shift of each channel.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner import bounded_json
from edgekit.runner.errors import BackendError

if TYPE_CHECKING:
    from edgekit.runner.backends.base import Convert
    from edgekit.runner.bundle.manifest import TensorSpec

METADATA_KEY = "edgekit"
"""The key of the remark in the file's metadata."""
BEGIN = "bytes="
ROW = rb"\[[-+0-9.eE,]+\]"
REMARK = re.compile(BEGIN.encode() + rb"(\[" + ROW + b"," + ROW + rb"\])")
HIGHEST = np.float32(255)


def format_remark(scale: Sequence[float], shift: Sequence[float]) -> str:
    """Return the remark of a file that computes `scale * byte + shift`.

    `scale` and `shift` each have one value for all channels, or one value per channel.
    """
    return BEGIN + json.dumps([[float(each) for each in row] for row in (scale, shift)], separators=(",", ":"))


def find_remark(content: bytes) -> bytes:
    """Return a file's remark, or b""."""
    match = REMARK.search(content)
    return match.group() if match else b""


def byte_encoder(content: bytes, inputs: Sequence[TensorSpec]) -> Convert:
    """Return the conversion from a preprocessed float32 input back to bytes, or None if the file takes no bytes.

    The conversion also accepts a table (256, channels) of the preprocessed value of each byte. Raises BackendError if
    the remark does not match the input.
    """
    match = REMARK.search(content) if len(inputs) == 1 and inputs[0].dtype == "uint8" else None
    if match is None:
        return None
    is_channels_first = inputs[0].layout == "NCHW"
    scale, shift = _rows(match.group(1), inputs[0].shape[1 if is_channels_first else -1])

    def to_bytes(x: np.ndarray) -> np.ndarray:
        sides = (-1, *(1 for _ in x.shape[2:])) if is_channels_first else (-1,)
        real = np.rint((x - shift.reshape(sides)) / scale.reshape(sides))
        return np.clip(real, np.float32(0), HIGHEST).astype(np.uint8)

    return to_bytes


def _rows(remark: bytes, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the scale and shift, finite, with one value for all channels or one for each."""
    try:
        scale, shift = (np.array(row, dtype=np.float64).astype(np.float32) for row in bounded_json.loads(remark))
    except (TypeError, ValueError):
        scale = shift = np.zeros(0, dtype=np.float32)
    is_valid = len(scale) == len(shift) in (1, channels)
    if not is_valid or not np.isfinite([scale, shift]).all() or not (scale > 0).all():
        raise BackendError(
            f"model file: its metadata says {BEGIN}{remark[:80].decode('ascii')}, which does not fit its {channels} "
            "channels; build the bundle again"
        )
    return scale, shift
