"""Samples from WAV files: decoded, mixed to mono, resampled and cut into windows, as the input path declares.

Integers become x / 2^(bits - 1). 8-bit integers are unsigned, as in RIFF and in audio libraries. Floating-point values
stay unchanged. A file that needs an undeclared step is refused, and the error shows the command that converts it.
Training reads its sounds by the same code (`edgekit/data/sources/wav_folder.py`). The chunks are parsed here because
the standard library's `wave` cannot read floats, nor, before Python 3.12, the extensible header that ffmpeg writes for
24 and 32 bits.
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
UNKNOWN_SIZE = 0x7FFFF000  # a size from here on means unknown: recorders cannot seek back in a pipe to write it
LONGEST_FORM = 64


@dataclass(frozen=True)
class WavHeader:
    """The declarations in the headers of a WAV file. The samples begin at byte `start`."""

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
    """The sound that a file must become: `samples` at `rate_hz`, by these steps.

    `by` says in messages who requires it.
    """

    samples: int
    rate_hz: int
    steps: tuple[Step, ...]
    by: str = "the bundle takes"

    def has(self, name: str) -> bool:
        """Whether a step is declared."""
        return input_path.find_step(self.steps, name) is not None


def samples(path: str, raw: RawSpec, strict: bool = False) -> Iterator[Sample]:
    """Yield the raw samples (samples,) float32 of a file: the windows of a recording, or the whole sound as one."""
    if raw.sample_rate_hz is None or not input_path.find_step(raw.steps, "decode_wav"):
        raise InputError(f"{path}: the bundle takes {raw.dtype}{list(raw.shape)}, not a sound; give it a .npy file")
    spec = AudioSpec(raw.shape[0], raw.sample_rate_hz, () if strict else raw.steps)
    try:
        with open(path, "rb") as stream:
            header = read_header(path, stream, os.fstat(stream.fileno()).st_size)
            _check(path, header, spec)
            stream.seek(header.start)
            data = stream.read(header.data_bytes)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    x = decode_recording(header, data, spec)
    step = input_path.find_step(spec.steps, "windows")
    return windows.window_samples(x, step, spec.rate_hz) if step else iter((Sample(x),))


def decode(name: str, content: bytes, spec: AudioSpec) -> tuple[np.ndarray, WavHeader]:
    """Decode a WAV file's bytes into a recording (samples,) float32, and return its header too.

    The recording is mixed and resampled as declared. Raises InputError if it cannot become the sound of the spec.
    """
    header = read_header(name, io.BytesIO(content), len(content))
    _check(name, header, spec)
    return decode_recording(header, content[header.start : header.start + header.data_bytes], spec), header


def decode_recording(header: WavHeader, data: bytes, spec: AudioSpec) -> np.ndarray:
    """Return (samples,) float32 of a checked sound: the mean of its channels, at the spec's rate."""
    x = mix_to_mono(floats(data, header.code, header.bits), header.channels)
    if header.rate_hz == spec.rate_hz:
        return x
    from edgekit.runner.inputs.resampling import resample

    return resample(x, header.rate_hz, spec.rate_hz)


def mix_to_mono(x: np.ndarray, channels: int) -> np.ndarray:
    """Return (samples,) float32: the mean of the channels that are interleaved in `x`."""
    if channels == 1:
        return x
    total = np.zeros(len(x) // channels)
    for channel in range(channels):  # one by one, because the order of NumPy's own sum is undefined
        total += x[channel::channels]
    return (total / channels).astype(np.float32)


def read_header(path: str, stream: IO[bytes], size: int) -> WavHeader:
    """Read the headers of a WAV file. Raises InputError if it is not one, or is cut short."""
    riff = stream.read(12)
    if riff[:4] != b"RIFF" or riff[8:] != b"WAVE":
        raise InputError(f"{path}: not a WAV file, whatever its name says; make one: ffmpeg -i FILE OUT.wav")
    format: tuple[int, int, int, int] | None = None
    while len(head := stream.read(8)) == 8:
        name, length = head[:4], struct.unpack("<I", head[4:])[0]
        remaining = size - stream.tell()
        if name == b"data" and format is not None:
            if length >= UNKNOWN_SIZE and length > remaining:
                length = remaining
            if length > remaining:
                raise InputError(
                    f"{path}: cut short: {remaining} bytes of sound, but its header says {length}; copy it again"
                )
            return WavHeader(*format, stream.tell(), length)
        end = stream.tell() + length + (length & 1)  # chunks begin at even offsets
        if name == b"fmt ":
            format = parse_format(path, stream.read(min(length, remaining, LONGEST_FORM)))
        stream.seek(end)
    raise InputError(f"{path}: cut short, or not a WAV file: it has no sound in it; copy it again")


def parse_format(path: str, chunk: bytes) -> tuple[int, int, int, int]:
    """Return (code, channels, rate, bits) of a "fmt " chunk. In the extensible format, a GUID begins with the code."""
    if len(chunk) < 16:
        raise InputError(f"{path}: its header is cut short; copy it again")
    code, channels, rate_hz, _, frame_bytes, bits = struct.unpack("<HHIIHH", chunk[:16])
    if code == EXTENSIBLE and len(chunk) >= 26:
        code = struct.unpack("<H", chunk[24:26])[0]
    if (code, bits) in DTYPES and frame_bytes not in (0, channels * bits // 8):
        padded = f"{channels} channels of {bits} bits in {frame_bytes} bytes: padded samples are not read"
        raise InputError(f"{path}: {padded}; convert it: ffmpeg -i {shlex.quote(path)} -c:a pcm_s16le OUT.wav")
    return code, channels, rate_hz, bits


def _check(path: str, header: WavHeader, spec: AudioSpec) -> None:
    """Raise InputError for the first problem that no declared step corrects, with a command that solves them all."""
    frame_bytes = header.channels * header.bits // 8
    rate_hz = spec.rate_hz
    if (header.code, header.bits) not in DTYPES:
        problem = f"coding {header.code} with {header.bits} bits; PCM of 8 to 32 bits and floats are read"
    elif header.rate_hz != rate_hz and not spec.has("resample"):
        problem = f"{header.rate_hz} samples a second, but {spec.by} {rate_hz}"
    elif header.rate_hz != rate_hz and not can_be_resampled(header.rate_hz, rate_hz):
        problem = f"{header.rate_hz} samples a second, which cannot be resampled to {rate_hz}"
    elif header.channels != 1 and not (header.channels and spec.has("mix_channels")):
        problem = f"{header.channels} channels, but {spec.by} one"
    elif header.data_bytes % frame_bytes:
        problem = f"{header.data_bytes} bytes of sound are not a whole number of samples"
    elif header.samples == 0:
        raise InputError(f"{path}: it holds no sound; record it again, or remove it")
    elif _bytes(header, rate_hz) > max(LARGEST_BYTES, 2 * frame_bytes * spec.samples * header.rate_hz // rate_hz):
        command = f"ffmpeg -i {shlex.quote(path)} -f segment -segment_time 600 -c copy part%03d.wav"
        raise InputError(f"{path}: {header.data_bytes:,} bytes of sound are too many to read at once; run: {command}")
    else:
        problem = _length_problem(header, spec)
    if problem:
        raise InputError(f"{path}: {problem}; run: {conversion_command(path, spec.samples, rate_hz)}")


def can_be_resampled(from_hz: int, to_hz: int) -> bool:
    """Whether the ratio of two rates is small enough."""
    from edgekit.runner.inputs.resampling import MOST_RATIO

    return 0 < from_hz <= MOST_RATIO * to_hz and to_hz <= MOST_RATIO * from_hz


def _bytes(header: WavHeader, rate_hz: int) -> int:
    """Return the size as a file, or as samples at the spec's rate, whichever is larger."""
    return max(header.data_bytes, 4 * header.samples * rate_hz // header.rate_hz)


def _length_problem(header: WavHeader, spec: AudioSpec) -> str:
    """Return what is wrong with the length at the spec's rate, or ""."""
    length = -(-header.samples * spec.rate_hz // header.rate_hz)
    step = input_path.find_step(spec.steps, "windows")
    if windows.window_count(length, step) if step else length == spec.samples:
        return ""
    more = "at least " if step else ""
    return f"{length} samples, but {spec.by} {more}{spec.samples} ({spec.samples / spec.rate_hz:g} s)"


def conversion_command(path: str, samples: int, rate_hz: int) -> str:
    """Return the shell command that converts a file for the bundle: resampled, mono, and padded with silence or cut."""
    chain = f"aresample={rate_hz},apad=whole_len={samples},atrim=end_sample={samples}"
    output = f"{os.path.splitext(path)[0]}-{rate_hz}hz.wav"
    return f"ffmpeg -i {shlex.quote(path)} -ac 1 -af {chain} -c:a pcm_s16le {shlex.quote(output)}"


def floats(data: bytes, code: int, bits: int) -> np.ndarray:
    """Decode the bytes of values to float32 (values,). Several channels stay interleaved."""
    values = np.frombuffer(data, DTYPES[code, bits])
    if code == FLOAT:
        with np.errstate(over="ignore"):  # a double beyond float32 becomes infinite, which the model refuses
            return values.astype(np.float32)
    if bits == 8:
        return (values.astype(np.float32) - np.float32(128)) / np.float32(128)
    if bits == 24:  # into the upper three of four bytes, so that the sign bit is right
        wide = np.zeros((len(values) // 3, 4), np.uint8)
        wide[:, 1:] = values.reshape(-1, 3)
        values, bits = wide.view("<i4")[:, 0], 32
    return values.astype(np.float32) / np.float32(2 ** (bits - 1))
