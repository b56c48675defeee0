"""Sound from a stream: decoded, mixed and resampled as the input path declares, as for a file.

Formats have the names of ffmpeg and arecord. Bytes without a header have the requested rate and channels. A WAV header
must agree with what was requested; whatever was not requested is read from it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

import numpy as np

from edgekit.runner import input_path
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import wav
from edgekit.runner.inputs.wav import FLOAT, PCM

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec
    from edgekit.runner.inputs.resampling import Resampler
    from edgekit.runner.streaming.source import Source

SAMPLE_FORMATS = {"u8": (PCM, 8), "s16le": (PCM, 16), "s24le": (PCM, 24), "s32le": (PCM, 32), "f32le": (FLOAT, 32)}
ARECORD_NAMES = {"U8": "u8", "S16_LE": "s16le", "S24_3LE": "s24le", "S32_LE": "s32le", "FLOAT_LE": "f32le"}
WAV = "wav"
FORMATS = (*SAMPLE_FORMATS, *ARECORD_NAMES, WAV)
"""Names of ffmpeg and arecord. For `wav`, the header declares the format."""
ARRAY_FORMATS = {"uint8": (PCM, 8), "int16": (PCM, 16), "int32": (PCM, 32), "float32": (FLOAT, 32)}
"""Dtypes of arrays, with the format that the same bytes would have."""
RIFF, WAVE = b"RIFF", b"WAVE"
HEAD_BYTES = 12
"""RIFF, four bytes of size, and WAVE."""
LARGEST_HEADER_BYTES = 1 << 16


@dataclass(frozen=True)
class StreamFormat:
    """The format that the caller declares for a stream. A field is None if it is not declared."""

    coding: tuple[int, int] | None
    rate_hz: int | None
    channels: int | None


def parse_stream_format(format: str | None, rate_hz: int | None, channels: int | None) -> StreamFormat:
    """Return the checked declaration. Raises InputError for an unknown format."""
    if format is not None and format not in FORMATS:
        raise InputError(f"format: got {str(format)[:40]!r}; use one of {', '.join(FORMATS)}")
    for name, value in (("rate_hz", rate_hz), ("channels", channels)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise InputError(f"{name}: got {value!r}; use a whole number from 1")
    coding = None if format in (None, WAV) else SAMPLE_FORMATS[ARECORD_NAMES.get(str(format), str(format))]
    return StreamFormat(coding, rate_hz, channels)


class AudioDecoder:
    """Converts a source's bytes or arrays into parts (samples,) float32 at the bundle's rate."""

    def __init__(self, raw: RawSpec, requested: StreamFormat, on_note: Callable[[str], object]) -> None:
        assert raw.sample_rate_hz is not None
        self._raw, self._requested, self._on_note = raw, requested, on_note
        self._to_hz: int = raw.sample_rate_hz
        self._headers = WavHeaderParser()
        self._form: tuple[int, int, int, int] | None = None  # coding, channels, rate and bits of the stream
        self._rest = b""
        self._samples = 0  # samples of the stream so far, at its own rate
        self._resampler: Resampler | None = None
        if requested.rate_hz is not None or requested.channels is not None:
            self._check(requested.channels or 1, requested.rate_hz or self._to_hz)

    def parts(self, source: Source) -> Iterator[np.ndarray]:
        """Yield everything that the source delivers.

        Raises InputError at the end if the stream is incomplete or changes.
        """
        problem: InputError | None = None
        try:
            yield from self._decode(source)
        except InputError as error:
            problem = error
        if self._resampler is not None:
            yield self._resampler.finish()
        if problem is not None:
            raise problem

    def _decode(self, source: Source) -> Iterator[np.ndarray]:
        for part in source:
            if isinstance(part, np.ndarray):
                yield self._resample(self._decode_array(part))
                continue
            for each in self._headers.push(part):
                yield from self._decode_part(each)
        for each in self._headers.finish():
            yield from self._decode_part(each)
        self._check_complete("the stream ended")

    def _decode_part(self, part: Part) -> Iterator[np.ndarray]:
        if isinstance(part, StreamHeader):
            self._begin(part)
            return
        if self._form is None:
            self._begin_without_header()
        assert self._form is not None
        code, channels, _, bits = self._form
        data, frame_bytes = self._rest + part, channels * bits // 8
        complete_bytes = len(data) // frame_bytes * frame_bytes
        self._rest = data[complete_bytes:]
        if complete_bytes:
            yield self._resample(wav.mix_to_mono(wav.floats(data[:complete_bytes], code, bits), channels))

    def _begin(self, header: StreamHeader) -> None:
        """Handle a header. The first must agree with what was requested, a later one with the first."""
        requested, current = self._requested, self._form
        if current is not None:
            self._check_complete("a WAV header came")
            if header.form != current:
                raise InputError(
                    f"the stream changes after {self._seconds()}: {_describe(*header.form)} begins, but so far it was "
                    f"{_describe(*current)}; start edgerun again for what follows"
                )
            self._on_note(f"a new WAV header after {self._seconds()}; the sound continues after it")
            return
        coding = (header.code, header.bits)
        if coding not in wav.DTYPES:
            raise InputError(f"the stream: a WAV header with {_describe(*header.form)}; record PCM of 8 to 32 bits")
        pairs = ((requested.coding, coding), (requested.rate_hz, header.rate_hz), (requested.channels, header.channels))
        if any(expected not in (None, actual) for expected, actual in pairs):
            request_text = f"{_coding(*requested.coding)}, " if requested.coding else ""
            request_text += f"rate {requested.rate_hz or 'any'}, channels {requested.channels or 'any'}"
            raise InputError(
                f"the stream: its WAV header says {_describe(*header.form)}, but {request_text} was "
                f"requested; request that instead"
            )
        self._check(header.channels, header.rate_hz)
        self._start(header.form)

    def _begin_without_header(self) -> None:
        requested = self._requested
        if requested.coding is None:
            raise InputError(
                f"the stream: no WAV header; name its format: {', '.join((*SAMPLE_FORMATS, *ARECORD_NAMES))}"
            )
        self._check(requested.channels or 1, requested.rate_hz or self._to_hz)
        self._start(
            (requested.coding[0], requested.channels or 1, requested.rate_hz or self._to_hz, requested.coding[1])
        )

    def _decode_array(self, x: np.ndarray) -> np.ndarray:
        """Convert an array (samples,) or (samples, channels) into (samples,) float32."""
        coding = ARRAY_FORMATS.get(x.dtype.name)
        if coding is None or x.ndim not in (1, 2) or not x.dtype.isnative:
            raise InputError(
                f"source: got an array of {x.dtype}{list(x.shape)}; sounds are (samples,) or (samples, channels) of "
                f"{', '.join(ARRAY_FORMATS)}"
            )
        channels = 1 if x.ndim == 1 else x.shape[1]
        form = (coding[0], channels, self._requested.rate_hz or self._to_hz, coding[1])
        if self._form is None:
            if self._requested.channels not in (None, channels):
                raise InputError(f"source: got {channels} channels, but {self._requested.channels} were requested")
            self._check(channels, form[2])
            self._start(form)
        elif form != self._form:
            raise InputError(
                f"the stream changes after {self._seconds()}: arrays are now {_describe(*form)}, but so far they were "
                f"{_describe(*self._form)}"
            )
        little = np.ascontiguousarray(x, dtype=x.dtype.newbyteorder("<"))
        return wav.mix_to_mono(wav.floats(little.tobytes(), *coding), channels)

    def _start(self, form: tuple[int, int, int, int]) -> None:
        self._form = form
        if form[2] != self._to_hz:
            from edgekit.runner.inputs.resampling import Resampler

            self._resampler = Resampler(form[2], self._to_hz)

    def _resample(self, x: np.ndarray) -> np.ndarray:
        self._samples += len(x)
        return x if self._resampler is None else self._resampler.push(x)

    def _check(self, channels: int, rate_hz: int) -> None:
        """Raise InputError if the channels or the rate differ from the bundle's and no declared step corrects that."""
        steps, target_hz = self._raw.steps, self._to_hz
        if rate_hz != target_hz and not input_path.find_step(steps, "resample"):
            raise InputError(
                f"rate: got {rate_hz} samples a second, but the bundle takes {target_hz} and declares no "
                f"resampling; record at that rate: arecord -r {target_hz}, or ffmpeg … -ar {target_hz}"
            )
        if rate_hz != target_hz and not wav.can_be_resampled(rate_hz, target_hz):
            raise InputError(f"rate: got {rate_hz} samples a second, which cannot be resampled to {target_hz}")
        if channels != 1 and not (channels and input_path.find_step(steps, "mix_channels")):
            raise InputError(
                f"channels: got {channels}, but the bundle takes one and declares no mixing; record one: "
                f"arecord -c 1, or ffmpeg … -ac 1"
            )

    def _check_complete(self, what: str) -> None:
        """Raise InputError if the bytes so far end in the middle of a sample. `what` says what happened then."""
        if self._rest and self._form is not None:
            _, channels, _, bits = self._form
            raise InputError(
                f"{what} in the middle of a sample, after {self._seconds()}: {len(self._rest)} of its "
                f"{channels * bits // 8} bytes have arrived; check format and channels against what is sent"
            )

    def _seconds(self) -> str:
        rate_hz = self._form[2] if self._form else self._to_hz
        return f"{self._samples / rate_hz:.2f} s"


def _coding(code: int, bits: int) -> str:
    return next(
        (name for name, coding in SAMPLE_FORMATS.items() if coding == (code, bits)), f"coding {code} with {bits} bits"
    )


def _describe(code: int, channels: int, rate_hz: int, bits: int) -> str:
    return f"{_coding(code, bits)}, rate {rate_hz}, channels {channels}"


@dataclass(frozen=True)
class StreamHeader:
    """The format of the sound that follows. `data_bytes` is None if the header does not declare it."""

    code: int
    channels: int
    rate_hz: int
    bits: int
    data_bytes: int | None

    @property
    def form(self) -> tuple[int, int, int, int]:
        """Coding, channels, rate and bits."""
        return self.code, self.channels, self.rate_hz, self.bits


Part = Union[bytes, StreamHeader]


class WavHeaderParser:
    """Splits a stream of bytes into headers and sound.

    arecord and ffmpeg write a header first, and a second recorder writes one in the middle. A header begins with RIFF,
    a size and WAVE. Eight of these bytes are fixed, so they do not occur in a sound by chance. Bytes are passed on as
    sound only once it is certain that they do not begin a header. The size of the sound may be unknown, because
    recorders that write into a pipe do not know it yet.
    """

    def __init__(self) -> None:
        self._waiting = b""
        self._remaining: int | None = None  # remaining bytes of sound that the header declared
        self._is_past_sound = False  # whether the declared sound is over, and other chunks follow

    def push(self, data: bytes) -> Iterator[Part]:
        """Yield the headers and the sound that are certain so far, in order."""
        self._waiting += data
        while self._waiting:
            step = self._other_chunk() if self._is_past_sound else self._sound_or_header()
            if step is None:
                return
            if step:
                yield step

    def finish(self) -> Iterator[Part]:
        """Yield the rest. Raises InputError if the stream must not end here."""
        rest, self._waiting = self._waiting, b""
        if self._is_past_sound:
            return
        if len(rest) >= HEAD_BYTES and _may_begin(rest[:HEAD_BYTES]):
            raise InputError("the stream ended in the middle of a WAV header")
        if rest:
            yield rest if self._remaining is None else rest[: self._remaining]
        if self._remaining is not None and self._remaining > len(rest):
            raise InputError(
                f"the stream ended early: according to its WAV header, {self._remaining - len(rest)} more "
                f"bytes of sound should follow"
            )

    def _sound_or_header(self) -> Part | None:
        """Return the next part: empty bytes after a change of state, None if more bytes are needed."""
        if self._remaining == 0:
            self._remaining, self._is_past_sound = None, True
            return b""
        position = _possible_header_position(self._waiting)
        if position == 0:
            return self._header()
        size = position if self._remaining is None else min(position, self._remaining)
        sound, self._waiting = self._waiting[:size], self._waiting[size:]
        if self._remaining is not None:
            self._remaining -= size
        return sound

    def _header(self) -> StreamHeader | None:
        """Return the header at the beginning, once it is complete."""
        data = self._waiting
        if len(data) < HEAD_BYTES:
            return None
        form: tuple[int, int, int, int] | None = None
        position = 12
        while position + 8 <= len(data):
            name, length = data[position : position + 4], struct.unpack("<I", data[position + 4 : position + 8])[0]
            if name == b"data" and form is not None:
                is_known = 0 < length < wav.UNKNOWN_SIZE
                self._waiting, self._remaining = data[position + 8 :], length if is_known else None
                return StreamHeader(*form, length if is_known else None)
            end = position + 8 + length + (length & 1)
            if end > LARGEST_HEADER_BYTES:
                raise InputError(f"the stream: a WAV header of more than {LARGEST_HEADER_BYTES:,} bytes; is it one?")
            if len(data) < end:
                return None
            if name == b"fmt ":
                form = wav.parse_format("the stream", data[position + 8 : position + 8 + length])
            position = end
        return None

    def _other_chunk(self) -> Part | None:
        """After the declared sound, skip other chunks up to the next header."""
        data = self._waiting
        if data[:1] == b"\0":  # chunks begin at even offsets
            self._waiting = data[1:]
            return b""
        if len(data) < 8:
            return None
        if _may_begin(data[:HEAD_BYTES]):
            if len(data) < HEAD_BYTES:
                return None
            self._is_past_sound = False
            return b""
        end = 8 + struct.unpack("<I", data[4:8])[0]
        if end > LARGEST_HEADER_BYTES:
            raise InputError(
                "the stream continues after the length that its WAV header declares, with data that is not sound"
            )
        if len(data) < end:
            return None
        self._waiting = data[end:]
        return b""


def _possible_header_position(data: bytes) -> int:
    """Return the first position at which a header may begin, or the length of the data if there is none."""
    position = data.find(RIFF)
    while position >= 0:
        if _may_begin(data[position : position + HEAD_BYTES]):
            return position
        position = data.find(RIFF, position + 1)
    cut = next((size for size in (3, 2, 1) if data.endswith(RIFF[:size])), 0)
    return len(data) - cut


def _may_begin(head: bytes) -> bool:
    """Whether these bytes, up to 12, can be the beginning of a header."""
    return head[:4] == RIFF[: len(head)] and head[8:] == WAVE[: max(0, len(head) - 8)]
