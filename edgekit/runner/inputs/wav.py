"""Samples from WAV files: mono, at exactly the bundle's rate and length, as float32 in [-1, 1).

Whole numbers become x / 2^(bits - 1), 8-bit ones are unsigned (RIFF's convention, and what audio libraries agree on);
floating-point files are taken as they are. Nothing is resampled, cut or filled up: an answer for a sound that the model
was not made for would only look like one. The chunks are walked here because the standard library's `wave` cannot read
floats, nor before Python 3.12 the extensible header that ffmpeg writes for 24 and 32 bits.
"""

from __future__ import annotations

import os
import shlex
import struct
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import numpy as np

from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.runner.manifest import RawSpec

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
DTYPES = {(PCM, 8): "u1", (PCM, 16): "<i2", (PCM, 24): "u1", (PCM, 32): "<i4", (FLOAT, 32): "<f4", (FLOAT, 64): "<f8"}
UNKNOWN_SIZE = 0xFFFFFFFF  # what ffmpeg writes into a pipe, where it cannot come back to put in the size


@dataclass(frozen=True)
class Sound:
    """What a WAV file's headers say; its samples begin at `start`."""

    code: int
    channels: int
    rate_hz: int
    bits: int
    start: int
    data_bytes: int

    @property
    def samples(self) -> int:
        return self.data_bytes // max(1, self.channels * self.bits // 8)


def read(path: str, raw: RawSpec) -> np.ndarray:
    """One raw sample (samples,) float32."""
    if raw.kind != "audio" or raw.sample_rate_hz is None:
        raise InputError(f"{path}: the bundle takes {raw.dtype}{list(raw.shape)}, not a sound; give it a .npy file")
    try:
        with open(path, "rb") as stream:
            sound = headers(path, stream, os.fstat(stream.fileno()).st_size)
            _check(path, sound, raw.shape[0], raw.sample_rate_hz)
            stream.seek(sound.start)
            data = stream.read(sound.data_bytes)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    return _floats(data, sound.code, sound.bits)


def decode(name: str, content: bytes, rate_hz: int) -> np.ndarray:
    """All samples of a mono WAV file at this rate, (samples,) float32, from its bytes; InputError for any other."""
    import io

    sound = headers(name, io.BytesIO(content), len(content))
    _check(name, sound, sound.samples, rate_hz, "the config asks for")
    return _floats(content[sound.start : sound.start + sound.data_bytes], sound.code, sound.bits)


def headers(path: str, stream: IO[bytes], size: int) -> Sound:
    """What a WAV file says of itself; InputError where it is none, or cut short."""
    riff = stream.read(12)
    if riff[:4] != b"RIFF" or riff[8:] != b"WAVE":
        raise InputError(f"{path}: not a WAV file, whatever its name says; make one: ffmpeg -i FILE OUT.wav")
    form: tuple[int, int, int, int] | None = None
    while len(head := stream.read(8)) == 8:
        name, length = head[:4], struct.unpack("<I", head[4:])[0]
        left = size - stream.tell()
        if name == b"data" and form is not None:
            if length == UNKNOWN_SIZE:
                length = left
            if length > left:
                raise InputError(f"{path}: cut short: {left} bytes of sound, its header says {length}; copy it again")
            return Sound(*form, stream.tell(), length)
        if name == b"fmt ":
            form = _form(path, stream.read(min(length, left)))
            length -= min(length, left)
        stream.seek(length + (length & 1), os.SEEK_CUR)  # chunks begin at even places
    raise InputError(f"{path}: cut short, or no WAV file: it has no sound in it; copy it again")


def _form(path: str, chunk: bytes) -> tuple[int, int, int, int]:
    """(code, channels, rate, bits) of a "fmt " chunk; the extensible one has its code in the first bytes of a GUID."""
    if len(chunk) < 16:
        raise InputError(f"{path}: its header is cut short; copy it again")
    code, channels, rate_hz, _, _, bits = struct.unpack("<HHIIHH", chunk[:16])
    if code == EXTENSIBLE and len(chunk) >= 26:
        code = struct.unpack("<H", chunk[24:26])[0]
    return code, channels, rate_hz, bits


def _check(path: str, sound: Sound, samples: int, rate_hz: int, asked: str = "the bundle takes") -> None:
    """The first thing that differs from the sound that is asked for, with the line that puts all of them right."""
    frame_bytes = sound.channels * sound.bits // 8
    if (sound.code, sound.bits) not in DTYPES:
        wrong = f"coding {sound.code} with {sound.bits} bits; PCM of 8 to 32 bits and floats are read"
    elif sound.rate_hz != rate_hz:
        wrong = f"{sound.rate_hz} samples a second, {asked} {rate_hz}"
    elif sound.channels != 1:
        wrong = f"{sound.channels} channels, {asked} one"
    elif sound.samples != samples:
        wrong = f"{sound.samples} samples, {asked} {samples} ({samples / rate_hz:g} s)"
    elif sound.data_bytes % frame_bytes:
        wrong = f"{sound.data_bytes} bytes of sound are no whole number of samples"
    else:
        return
    raise InputError(f"{path}: {wrong}; run: {conversion(path, samples, rate_hz)}")


def conversion(path: str, samples: int, rate_hz: int) -> str:
    """The shell line that makes what the bundle takes: resampled, one channel, filled up with silence or cut."""
    chain = f"aresample={rate_hz},apad=whole_len={samples},atrim=end_sample={samples}"
    made = f"{os.path.splitext(path)[0]}-{rate_hz}hz.wav"
    return f"ffmpeg -i {shlex.quote(path)} -ac 1 -af {chain} -c:a pcm_s16le {shlex.quote(made)}"


def _floats(data: bytes, code: int, bits: int) -> np.ndarray:
    values = np.frombuffer(data, DTYPES[code, bits])
    if code == FLOAT:
        with np.errstate(over="ignore"):  # a double too large becomes infinite, which the model refuses
            return values.astype(np.float32)
    if bits == 8:
        return (values.astype(np.float32) - np.float32(128)) / np.float32(128)
    if bits == 24:  # into the upper three bytes of four, so that the sign is in its place
        wide = np.zeros((len(values) // 3, 4), np.uint8)
        wide[:, 1:] = values.reshape(-1, 3)
        values, bits = wide.view("<i4")[:, 0], 32
    return values.astype(np.float32) / np.float32(2 ** (bits - 1))
