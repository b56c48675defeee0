"""Samples from WAV files: decoded, mixed to mono, resampled and cut into windows, as far as the input path declares it.

Integers become x / 2^(bits - 1). 8-bit integers are unsigned, which is RIFF's convention and that of audio libraries.
Floating-point values stay unchanged. A file that needs a step which the bundle's input path does not declare is
refused. The error shows the command that converts the file. Training reads its sounds by the same code
(`edgekit/data/sources/wav_folder.py`). The chunks are parsed here because the standard library's `wave` cannot read
floats. Before Python 3.12 it cannot read the extensible header either, which ffmpeg writes for 24 and 32 bits.
"""

from __future__ import annotations

import io
import os
import shlex
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import numpy as np

from edgekit.runner import input_path
from edgekit.runner.errors import InputError
from edgekit.runner.input_path import Step
from edgekit.runner.inputs import windows
from edgekit.runner.inputs.windows import Sample

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
DTYPES = {(PCM, 8): "u1", (PCM, 16): "<i2", (PCM, 24): "u1", (PCM, 32): "<i4", (FLOAT, 32): "<f4", (FLOAT, 64): "<f8"}
LARGEST_BYTES = 64 << 20
UNKNOWN_SIZE = 0x7FFFF000  # from here on: what ffmpeg, sox and arecord write into a pipe, which they cannot go back in
LONGEST_FORM = 64


@dataclass(frozen=True)
class WavHeader:
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


@dataclass(frozen=True)
class AudioSpec:
    """What a file must come to: `samples` at `rate_hz`, by these steps; `by` is who asks, for messages."""

    samples: int
    rate_hz: int
    steps: tuple[Step, ...]
    by: str = "the bundle takes"

    def has(self, name: str) -> bool:
        """Whether a step is declared."""
        return input_path.find_step(self.steps, name) is not None


def samples(path: str, raw: RawSpec, strict: bool = False) -> Iterator[Sample]:
    """The raw samples (samples,) float32 of a file: each window of a recording, or the one that it is exactly."""
    if raw.sample_rate_hz is None or not input_path.find_step(raw.steps, "decode_wav"):
        raise InputError(f"{path}: the bundle takes {raw.dtype}{list(raw.shape)}, not a sound; give it a .npy file")
    spec = AudioSpec(raw.shape[0], raw.sample_rate_hz, () if strict else raw.steps)
    try:
        with open(path, "rb") as stream:
            sound = read_header(path, stream, os.fstat(stream.fileno()).st_size)
            _check(path, sound, spec)
            stream.seek(sound.start)
            data = stream.read(sound.data_bytes)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    x = decode_recording(sound, data, spec)
    step = input_path.find_step(spec.steps, "windows")
    return windows.window_samples(x, step, spec.rate_hz) if step else iter((Sample(x),))


def decode(name: str, content: bytes, spec: AudioSpec) -> tuple[np.ndarray, WavHeader]:
    """A whole recording (samples,) float32 from a WAV file's bytes, mixed and resampled as declared; and its headers.

    InputError where it cannot become what the spec asks for.
    """
    sound = read_header(name, io.BytesIO(content), len(content))
    _check(name, sound, spec)
    return decode_recording(sound, content[sound.start : sound.start + sound.data_bytes], spec), sound


def decode_recording(sound: WavHeader, data: bytes, spec: AudioSpec) -> np.ndarray:
    """(samples,) float32 of a checked sound: the mean of its channels, at the spec's rate."""
    x = mix_to_mono(floats(data, sound.code, sound.bits), sound.channels)
    if sound.rate_hz == spec.rate_hz:
        return x
    from edgekit.runner.inputs.resampling import resample

    return resample(x, sound.rate_hz, spec.rate_hz)


def mix_to_mono(x: np.ndarray, channels: int) -> np.ndarray:
    """(samples,) float32: the mean of channels that take turns in `x`."""
    if channels == 1:
        return x
    total = np.zeros(len(x) // channels)
    for channel in range(channels):  # one after another: numpy's sum has an order of its own
        total += x[channel::channels]
    return (total / channels).astype(np.float32)


def read_header(path: str, stream: IO[bytes], size: int) -> WavHeader:
    """What a WAV file says of itself; InputError where it is none, or cut short."""
    riff = stream.read(12)
    if riff[:4] != b"RIFF" or riff[8:] != b"WAVE":
        raise InputError(f"{path}: not a WAV file, whatever its name says; make one: ffmpeg -i FILE OUT.wav")
    form: tuple[int, int, int, int] | None = None
    while len(head := stream.read(8)) == 8:
        name, length = head[:4], struct.unpack("<I", head[4:])[0]
        left = size - stream.tell()
        if name == b"data" and form is not None:
            if length >= UNKNOWN_SIZE and length > left:
                length = left
            if length > left:
                raise InputError(f"{path}: cut short: {left} bytes of sound, its header says {length}; copy it again")
            return WavHeader(*form, stream.tell(), length)
        end = stream.tell() + length + (length & 1)  # chunks begin at even places
        if name == b"fmt ":
            form = parse_format(path, stream.read(min(length, left, LONGEST_FORM)))
        stream.seek(end)
    raise InputError(f"{path}: cut short, or no WAV file: it has no sound in it; copy it again")


def parse_format(path: str, chunk: bytes) -> tuple[int, int, int, int]:
    """(code, channels, rate, bits) of a "fmt " chunk; the extensible one has its code in the first bytes of a GUID."""
    if len(chunk) < 16:
        raise InputError(f"{path}: its header is cut short; copy it again")
    code, channels, rate_hz, _, frame_bytes, bits = struct.unpack("<HHIIHH", chunk[:16])
    if code == EXTENSIBLE and len(chunk) >= 26:
        code = struct.unpack("<H", chunk[24:26])[0]
    if (code, bits) in DTYPES and frame_bytes not in (0, channels * bits // 8):
        padded = f"{channels} channels of {bits} bits in {frame_bytes} bytes: padded samples are not read"
        raise InputError(f"{path}: {padded}; convert it: ffmpeg -i {shlex.quote(path)} -c:a pcm_s16le OUT.wav")
    return code, channels, rate_hz, bits


def _check(path: str, sound: WavHeader, spec: AudioSpec) -> None:
    """The first thing that no declared step puts right, with the line that puts all of them right."""
    frame_bytes = sound.channels * sound.bits // 8
    rate_hz = spec.rate_hz
    if (sound.code, sound.bits) not in DTYPES:
        wrong = f"coding {sound.code} with {sound.bits} bits; PCM of 8 to 32 bits and floats are read"
    elif sound.rate_hz != rate_hz and not spec.has("resample"):
        wrong = f"{sound.rate_hz} samples a second, {spec.by} {rate_hz}"
    elif sound.rate_hz != rate_hz and not can_be_resampled(sound.rate_hz, rate_hz):
        wrong = f"{sound.rate_hz} samples a second, which cannot be resampled to {rate_hz}"
    elif sound.channels != 1 and not (sound.channels and spec.has("mix_channels")):
        wrong = f"{sound.channels} channels, {spec.by} one"
    elif sound.data_bytes % frame_bytes:
        wrong = f"{sound.data_bytes} bytes of sound are no whole number of samples"
    elif sound.samples == 0:
        raise InputError(f"{path}: it holds no sound; record it again, or take it out")
    elif _bytes(sound, rate_hz) > max(LARGEST_BYTES, 2 * frame_bytes * spec.samples * sound.rate_hz // rate_hz):
        cut = f"ffmpeg -i {shlex.quote(path)} -f segment -segment_time 600 -c copy part%03d.wav"
        raise InputError(f"{path}: {sound.data_bytes:,} bytes of sound are too many to read at once; run: {cut}")
    else:
        wrong = _length_problem(sound, spec)
    if wrong:
        raise InputError(f"{path}: {wrong}; run: {conversion_command(path, spec.samples, rate_hz)}")


def can_be_resampled(from_hz: int, to_hz: int) -> bool:
    """Whether two rates lie near enough to one another."""
    from edgekit.runner.inputs.resampling import MOST_RATIO

    return 0 < from_hz <= MOST_RATIO * to_hz and to_hz <= MOST_RATIO * from_hz


def _bytes(sound: WavHeader, rate_hz: int) -> int:
    """What it takes as a file, or as samples at the spec's rate, whichever is more."""
    return max(sound.data_bytes, 4 * sound.samples * rate_hz // sound.rate_hz)


def _length_problem(sound: WavHeader, spec: AudioSpec) -> str:
    """What is wrong with its length, at the spec's rate; nothing where it is cut into windows that it has."""
    found = -(-sound.samples * spec.rate_hz // sound.rate_hz)
    step = input_path.find_step(spec.steps, "windows")
    if windows.window_count(found, step) if step else found == spec.samples:
        return ""
    more = "at least " if step else ""
    return f"{found} samples, {spec.by} {more}{spec.samples} ({spec.samples / spec.rate_hz:g} s)"


def conversion_command(path: str, samples: int, rate_hz: int) -> str:
    """The shell line that makes what the bundle takes: resampled, one channel, filled up with silence or cut."""
    chain = f"aresample={rate_hz},apad=whole_len={samples},atrim=end_sample={samples}"
    made = f"{os.path.splitext(path)[0]}-{rate_hz}hz.wav"
    return f"ffmpeg -i {shlex.quote(path)} -ac 1 -af {chain} -c:a pcm_s16le {shlex.quote(made)}"


def floats(data: bytes, code: int, bits: int) -> np.ndarray:
    """(values,) float32 of coded ones; the channels, if there are several, still take turns."""
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
