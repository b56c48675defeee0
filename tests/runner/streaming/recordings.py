"""Sounds and tables as files, and bundles whose declared stride is a stream's hop."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runner import input_path
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.model import Model
from tests.runner import flat

RATE_HZ = 8000
LENGTH = 2000
MEL = {"step": "log_mel", "rate_hz": RATE_HZ, "window_samples": 200, "hop_samples": 80, "fft_samples": 256, "mels": 10,
       "low_hz": 60.0, "high_hz": 3800.0, "floor": 1e-6}  # fmt: skip
COLUMNS = ("ax", "ay", "az")
Answers = list[tuple[dict[str, Any], bytes]]


def sound_bundle(
    path: Path, hop: int, steps: Sequence[dict[str, Any]] = (), fill: str = "none", **changes: Any
) -> Path:
    """Windows of a quarter of a second, one every `hop` samples, out of sounds that are mixed and resampled.

    `changes` are of the raw sample (`input_path`), or of the manifest (`smoothing`).
    """
    declared = [
        {"step": "decode_wav"},
        {"step": "mix_channels"},
        {"step": "resample", "rate_hz": RATE_HZ},
        input_path.windows_step(LENGTH, hop, fill),
    ]
    steps_of_files = changes.pop("input_path", tuple(declared))
    raw = RawSpec("audio", (LENGTH,), "float32", (-1.0, 1.0), RATE_HZ, input_path=steps_of_files)
    return flat.write(path, raw, steps, **changes)


def sensor_bundle(path: Path, hop: int, rows: int = 16) -> Path:
    """Windows of `rows` rows of three columns, one every `hop`."""
    declared = ({"step": "decode_csv"}, input_path.windows_step(rows, hop))
    return flat.write(path, RawSpec("window", (rows, 3), "float32", columns=COLUMNS, input_path=declared))


def sound(samples: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    """Two tones and noise, (samples, channels) float64 from -1 to 1."""
    time = np.arange(samples)[:, None] / RATE_HZ
    tones = 0.4 * np.sin(2 * np.pi * 440 * time) + 0.2 * np.sin(2 * np.pi * (300 + 200 * time) * time)
    return tones + np.random.default_rng(seed).uniform(-0.3, 0.3, (samples, channels))


def coded(x: np.ndarray, name: str) -> bytes:
    """Samples as ffmpeg's raw formats have them."""
    if name == "f32le":
        return x.astype("<f4").tobytes()
    if name == "u8":
        return np.clip(np.rint(x * 128) + 128, 0, 255).astype(np.uint8).tobytes()
    bits = int(name[1:3])
    whole = np.clip(np.rint(x * 2 ** (bits - 1)), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1).astype("<i8")
    return np.ascontiguousarray(whole.reshape(-1, 1).view(np.uint8)[:, : bits // 8]).tobytes()


def header(name: str, rate_hz: int, channels: int, data_bytes: int = 0xFFFFFFFF) -> bytes:
    """What a recorder writes in front, by default without knowing how much comes."""
    bits = 32 if name == "f32le" else 8 if name == "u8" else int(name[1:3])
    form = flat.form(3 if name == "f32le" else 1, bits, channels, rate_hz)
    return (
        b"RIFF\xff\xff\xff\xffWAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", data_bytes)
    )


def wav(path: Path, x: np.ndarray, name: str = "s16le", rate_hz: int = RATE_HZ) -> Path:
    """The same samples as a file."""
    data = coded(x, name)
    path.write_bytes(header(name, rate_hz, x.shape[1], len(data)) + data)
    return path


def chunks(data: bytes, size: int) -> Iterator[bytes]:
    """Parts of `size` bytes; 0: all at once."""
    yield from (data[place : place + size] for place in range(0, len(data), size)) if size else iter((data,))


def of_file(model: Model, path: Path) -> Answers:
    """Where each window lies, and its scores."""
    return [(each.span.to_dict(), each.prediction.scores.tobytes()) for each in model.predict_file(path)]  # type: ignore[union-attr]


def of_stream(model: Model, source: Any, format: str | None = None, **options: Any) -> Answers:
    """The same of a stream."""
    found = list(model.stream(source, format, **options))
    assert [each.error for each in found] == [None] * len(found)
    return [(each.span.to_dict(), each.prediction.scores.tobytes()) for each in found]  # type: ignore[union-attr]
