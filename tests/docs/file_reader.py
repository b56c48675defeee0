"""From a file to raw samples as a stranger does it: from `docs/reference/bundle-format.md` alone, nothing of edgekit.

Pillow decodes the pictures; all that a bundle declares of them is done here.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from PIL import Image

CROSSINGS = 64
BETA = 0.1102 * (100 - 8.7)
CUTOFF = 1 - (100 - 7.95) / (2.285 * 128 * math.pi) / 2
UNKNOWN_BYTES = 0x7FFFF000
UNIT = 1 << 22
Step = dict[str, Any]


def picture(content: bytes, steps: Sequence[Step], height_first: bool = False) -> np.ndarray:
    """One raw sample (height, width, channels) uint8."""
    decode, resize = _step(steps, "decode_picture"), _step(steps, "resize_picture")
    assert decode
    with Image.open(io.BytesIO(content)) as opened:
        tag = opened.getexif().get(0x0112, 1)
        grey = opened.mode in ("1", "L", "LA")
        x = np.asarray(opened.convert("RGB")).astype(np.int64)
    if decode["orientation"] == "apply":
        x = _turned(x, tag)
    if decode["channels"] == 1:
        weighted = (19595 * x[..., 0] + 38470 * x[..., 1] + 7471 * x[..., 2] + 32768) >> 16
        x = (x[..., 0] if grey else weighted)[..., None]
    if resize and x.shape[:2] != (resize["height"], resize["width"]):
        x = _resized(x, resize, height_first)
    return x.astype(np.uint8)


def _turned(x: np.ndarray, tag: int) -> np.ndarray:
    turns = {
        2: lambda: x[:, ::-1],
        3: lambda: x[::-1, ::-1],
        4: lambda: x[::-1],
        5: lambda: x.swapaxes(0, 1),
        6: lambda: np.rot90(x, -1),
        7: lambda: x[::-1, ::-1].swapaxes(0, 1),
        8: lambda: np.rot90(x),
    }
    return turns[tag]() if tag in turns else x


def _resized(x: np.ndarray, step: Step, height_first: bool) -> np.ndarray:
    (high, wide), height, width = x.shape[:2], step["height"], step["width"]
    top, left, tall, broad = 0, 0, high, wide
    if step["fit"] == "crop":
        broad = min(wide, max(1, (high * width + height // 2) // height))
        tall = min(high, max(1, (wide * height + width // 2) // width))
        broad, tall = (max(1, round(side * step.get("share", 1))) for side in (broad, tall))
        left, top = (wide - broad) // 2, (high - tall) // 2
    passes = [(1, left, broad, wide, width), (0, top, tall, high, height)]
    for axis, start, box, before, after in passes[::-1] if height_first else passes:
        if start or not box == before == after:
            x = np.moveaxis(_pass(np.moveaxis(x, axis, 1), start, box, after), 1, axis)
    return x


def _pass(x: np.ndarray, start: int, box: int, after: int) -> np.ndarray:
    """Along the second axis; every sum becomes a byte."""
    ratio = box / after
    centres = start + (np.arange(after)[:, None] + 0.5) * ratio
    weights = np.maximum(0.0, 1 - np.abs(np.arange(x.shape[1]) + 0.5 - centres) / max(ratio, 1.0))
    whole = np.floor(weights / weights.sum(axis=1, keepdims=True) * UNIT + 0.5).astype(np.int64)
    sums = np.einsum("hwc,vw->hvc", x.astype(np.float64), whole.astype(np.float64), optimize=True)  # exact: below 2^53
    return np.clip((sums.astype(np.int64) + UNIT // 2) // UNIT, 0, 255)


def sounds(content: bytes, raw: dict[str, Any]) -> Iterator[np.ndarray]:
    """Every raw sample (samples,) float32 of a WAV file."""
    steps = raw["input_path"]
    x, rate_hz = _wav(content)
    if x.shape[1] > 1:
        assert _step(steps, "mix_channels")
        total = np.zeros(len(x))
        for channel in x.T:
            total += channel
        x = (total / x.shape[1]).astype(np.float32)[:, None]
    mono = x[:, 0]
    if rate_hz != raw["sample_rate_hz"]:
        assert _step(steps, "resample")
        mono = resampled(mono, rate_hz, raw["sample_rate_hz"])
    cut = _step(steps, "windows")
    return windows(mono, cut) if cut else iter([mono])


def _wav(content: bytes) -> tuple[np.ndarray, int]:
    """(samples, channels) float32, and the rate."""
    assert content[:4] == b"RIFF" and content[8:12] == b"WAVE"
    at, form = 12, b""
    while True:
        name, size = struct.unpack_from("<4sI", content, at)
        chunk = content[at + 8 : at + 8 + size]
        if name == b"data":
            break
        form = chunk if name == b"fmt " else form
        at += 8 + size + size % 2
    assert len(chunk) == size or size >= UNKNOWN_BYTES
    code, channels, rate_hz, bits = *struct.unpack_from("<HHI", form), struct.unpack_from("<H", form, 14)[0]
    if code == 0xFFFE:
        (code,) = struct.unpack_from("<H", form, 24)
    return _values(chunk, code, bits).reshape(-1, channels), rate_hz


def _values(data: bytes, code: int, bits: int) -> np.ndarray:
    if code == 3:
        return np.frombuffer(data, f"<f{bits // 8}").astype(np.float32)
    assert code == 1
    if bits == 8:
        return ((np.frombuffer(data, np.uint8).astype(np.float64) - 128) / 128).astype(np.float32)
    step = bits // 8
    whole = [int.from_bytes(data[at : at + step], "little", signed=True) for at in range(0, len(data), step)]
    return (np.array(whole, np.float64) / 2.0 ** (bits - 1)).astype(np.float32)


def resampled(x: np.ndarray, from_hz: int, to_hz: int) -> np.ndarray:
    """By the formula as it stands, an output after the other."""
    common = math.gcd(from_hz, to_hz)
    up, down = to_hz // common, from_hz // common
    scale, reach = min(1.0, up / down), math.ceil(CROSSINGS * max(1.0, down / up))
    k = np.arange(-reach, reach + 1)
    output = np.zeros(-(-len(x) * up // down))
    for n in range(len(output)):
        d = ((n * down % up) / up - k) * scale
        inside = np.maximum(0, 1 - (d / CROSSINGS) ** 2)
        weights = np.sinc(CUTOFF * d) * np.i0(BETA * np.sqrt(inside)) * (inside > 0)
        places = n * down // up + k
        there = (places >= 0) & (places < len(x))
        output[n] = weights[there] / weights.sum() @ x[places[there]]
    return (np.clip(output, -1, 1) if np.abs(x).max() <= 1 else output).astype(np.float32)


def windows(x: np.ndarray, step: Step) -> Iterator[np.ndarray]:
    """Every window of a recording (moments, …)."""
    length, stride = step["length"], step["stride"]
    count = 1 + (len(x) - length) // stride
    if step["fill"] == "silence":
        count = 1 + max(0, math.ceil((len(x) - length) / stride))
    for k in range(count):
        window = x[k * stride : k * stride + length]
        yield np.concatenate([window, np.zeros((length - len(window), *x.shape[1:]), x.dtype)])


def tensors(content: bytes, raw: dict[str, Any]) -> np.ndarray:
    """One raw sample of several tensors (numbers,) float32."""
    found: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for entry in archive.infolist():
            name = entry.filename.removesuffix(".npy")
            assert entry.compress_type in (0, 8) and not entry.flag_bits & 1 and name not in found
            found[name] = np.load(io.BytesIO(archive.read(entry)), allow_pickle=False)
    assert set(found) == {each["name"] for each in raw["tensors"]}
    parts = []
    for each in raw["tensors"]:
        x = found[each["name"]]
        assert list(x.shape) == each["shape"] and x.dtype.kind in ("f" if each["dtype"] == "float32" else "iu")
        assert x.dtype.kind == "f" or np.abs(x.astype(np.float64)).max() <= 2**24
        parts.append(x.ravel().astype(np.float32))
    return np.concatenate(parts)


def _step(steps: Sequence[Step], name: str) -> Step | None:
    return next((step for step in steps if step["step"] == name), None)
