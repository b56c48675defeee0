"""Model files that hold the affine preprocess steps themselves: they take a sample's bytes.

A TFLite file says by its input's scale what it makes of a byte. ONNX and OpenVINO's IR have no such place. So theirs
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
"""What the remark is filed under, among the file's own facts."""
BEGIN = "bytes="
ROW = rb"\[[-+0-9.eE,]+\]"
REMARK = re.compile(BEGIN.encode() + rb"(\[" + ROW + b"," + ROW + rb"\])")
HIGHEST = np.float32(255)


def format_remark(scale: Sequence[float], shift: Sequence[float]) -> str:
    """What a file says of itself that makes `scale * byte + shift` of a byte, one of each for all or each channel."""
    return BEGIN + json.dumps([[float(each) for each in row] for row in (scale, shift)], separators=(",", ":"))


def find_remark(content: bytes) -> bytes:
    """The remark of a file, or nothing."""
    found = REMARK.search(content)
    return found.group() if found else b""


def byte_encoder(content: bytes, inputs: Sequence[TensorSpec]) -> Convert:
    """From an input after the steps, float32, back to bytes; None where the file takes no bytes or says nothing.

    Also of a table (256, channels) of what each byte becomes. BackendError where the remark does not fit the input.
    """
    found = REMARK.search(content) if len(inputs) == 1 and inputs[0].dtype == "uint8" else None
    if found is None:
        return None
    before = inputs[0].layout == "NCHW"
    scale, shift = _rows(found.group(1), inputs[0].shape[1 if before else -1])

    def to_bytes(x: np.ndarray) -> np.ndarray:
        sides = (-1, *(1 for _ in x.shape[2:])) if before else (-1,)
        real = np.rint((x - shift.reshape(sides)) / scale.reshape(sides))
        return np.clip(real, np.float32(0), HIGHEST).astype(np.uint8)

    return to_bytes


def _rows(said: bytes, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Scale and shift, finite, of one number each or one for each channel."""
    try:
        scale, shift = (np.array(row, dtype=np.float64).astype(np.float32) for row in bounded_json.loads(said))
    except (TypeError, ValueError):
        scale = shift = np.zeros(0, dtype=np.float32)
    fits = len(scale) == len(shift) in (1, channels)
    if not fits or not np.isfinite([scale, shift]).all() or not (scale > 0).all():
        raise BackendError(
            f"model file: says of itself {BEGIN}{said[:80].decode('ascii')}, which does not fit its {channels} "
            "channels; build the bundle again"
        )
    return scale, shift
