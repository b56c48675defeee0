"""WAV headers in a pipe: read, compared with the options and the bundle, and never taken for sound."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from edgekit.runner.errors import InputError
from edgekit.runner.loader import load
from edgekit.runner.model import Model
from edgekit.runner.streaming.audio import StreamHeader, WavHeaderParser
from tests import requirements
from tests.runner import flat
from tests.runner.streaming import recordings
from tests.runner.streaming.recordings import RATE_HZ, Answers, chunks, coded, header, of_file, of_stream, sound

X = sound(5000)
DATA = coded(X, "s16le")
SIZES = [1, 2, 3, 11, 1000, 0]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("bundle")
    return load(recordings.sound_bundle(folder / "a.edge.zip", 400), trial=False)


def parted(data: bytes, size: int) -> tuple[bytes, list[StreamHeader]]:
    """The sound and the headers of a stream."""
    headers = WavHeaderParser()
    found = [part for each in chunks(data, size) for part in headers.push(each)]
    found += headers.finish()
    sounds = b"".join(part for part in found if isinstance(part, bytes))
    return sounds, [part for part in found if isinstance(part, StreamHeader)]


def ended(model: Model, source: Any, format: str, **options: Any) -> tuple[Answers, str]:
    """The answers up to the end, and the one line that the stream ended with."""
    found: Answers = []
    with pytest.raises(InputError) as caught:
        for each in model.stream(source, format, **options):
            assert each.prediction is not None
            found.append((each.span.to_dict(), each.prediction.scores.tobytes()))  # type: ignore[union-attr]
    assert "\n" not in str(caught.value)
    return found, str(caught.value)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("length", [None, 0xFFFFFFFF, 0x7FFFF000, 0])
def test_a_header_is_no_sound_wherever_it_is_cut(size: int, length: int | None) -> None:
    known = len(DATA) if length is None else length
    sounds, headers = parted(header("s16le", 8000, 1, known) + DATA, size)
    assert sounds == DATA
    assert headers == [StreamHeader(1, 1, 8000, 16, len(DATA) if length is None else None)]


@pytest.mark.parametrize("size", SIZES)
def test_sound_that_looks_like_the_beginning_of_a_header_is_sound(size: int) -> None:
    for data in (b"R", b"RIFF", b"RIFF1234WAV", b"xRIFFRIFF1234WAVIWAVE", b"RIFF" * 50, b"RRRIIIFFF", b"RIFFxxxxWAVX"):
        assert parted(data + DATA[:64] + data, size) == (data + DATA[:64] + data, [])


@pytest.mark.parametrize("size", SIZES)
def test_other_chunks_are_no_sound(size: int) -> None:
    """Before the sound, and behind it where its length is known: an odd one is followed by a zero."""
    riff = flat.riff(flat.form(1, 8), b"\x01\x02\x03") + b"\0LIST\x03\0\0\0abc\0"
    sounds, (found,) = parted(riff + flat.riff(flat.form(1, 8), b"\x04\x05")[:0], size)
    assert sounds == b"\x01\x02\x03" and found.form == (1, 1, 8000, 8)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("known", [True, False])
def test_files_one_behind_the_other_are_one_sound(size: int, known: bool, model: Model, tmp_path: Path) -> None:
    first, second = DATA[:4210], DATA[4210:]
    stream = b"".join(header("s16le", 8000, 1, len(part) if known else 0xFFFFFFFF) + part for part in (first, second))
    expected = of_file(model, recordings.wav(tmp_path / "a.wav", X))
    notes: list[str] = []
    assert of_stream(model, chunks(stream, size), "s16le", on_note=notes.append) == expected
    assert "a new WAV header after 0.26 s; the sound continues after it" in notes


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("has_header", [True, False])
def test_a_stream_that_changes_its_rate_is_one_line_behind_all_answers(
    size: int, has_header: bool, model: Model, tmp_path: Path
) -> None:
    front = header("s16le", 8000, 1) if has_header else b""
    stream = front + DATA + header("s16le", 16000, 1) + DATA
    expected = of_file(model, recordings.wav(tmp_path / "a.wav", X))
    found, message = ended(model, chunks(stream, size), "s16le")
    assert found == expected
    assert (
        "the stream changes after 0.62 s: s16le, rate 16000, channels 1 begins, but so far it was s16le, rate 8000"
        in message
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("cut", "words"), [(1, "1 of its 2 bytes"), (3, "1 of its 2 bytes")])
def test_a_stream_that_ends_in_the_middle_of_a_sample(
    size: int, cut: int, words: str, model: Model, tmp_path: Path
) -> None:
    whole = len(DATA) // 2 - (cut + 1) // 2
    expected = of_file(model, recordings.wav(tmp_path / "a.wav", X[:whole]))
    found, message = ended(model, chunks(DATA[:-cut], size), "s16le")
    assert found == expected
    assert f"ended in the middle of a sample, after {whole / RATE_HZ:.2f} s: {words} have arrived" in message


@pytest.mark.parametrize("rate_hz", [8000, 44100])
def test_a_stream_shorter_than_its_header_says(rate_hz: int, model: Model, tmp_path: Path) -> None:
    """Resampled too: what the filter held back is answered before the line comes."""
    x = sound(rate_hz)
    data = coded(x, "s16le")
    expected = of_file(model, recordings.wav(tmp_path / "a.wav", x, rate_hz=rate_hz))
    found, message = ended(model, chunks(header("s16le", rate_hz, 1, len(data) + 100) + data, 77), "wav")
    assert found == expected and "according to its WAV header, 100 more bytes of sound should follow" in message


@pytest.mark.parametrize("size", [1, 0])
def test_a_header_that_is_cut(size: int, model: Model) -> None:
    for end in (12, 20, 43):
        found, message = ended(model, chunks(header("s16le", 8000, 1)[:end], size), "wav")
        assert found == [] and "ended in the middle of a WAV header" in message


@pytest.mark.parametrize(
    ("form", "format", "options", "words"),
    [
        (("s16le", 16000, 1), "s16le", {"rate_hz": 8000}, "says s16le, rate 16000, channels 1, but s16le"),
        (("s16le", 8000, 2), "wav", {"channels": 1}, "rate any, channels 1"),
        (("s32le", 8000, 1), "S16_LE", {}, "says s32le, rate 8000"),
        (("f32le", 8000, 1), "s32le", {}, "says f32le"),
        (("s16le", 8000 * 65, 1), "wav", {}, "cannot be resampled to 8000"),
    ],
)
def test_a_header_must_match_the_options_and_the_bundle(
    form: tuple[str, int, int], format: str, options: dict[str, Any], words: str, model: Model
) -> None:
    found, message = ended(model, [header(*form) + DATA], format, **options)
    assert found == [] and words in message


def test_codings_that_are_not_read(model: Model) -> None:
    mulaw = b"RIFF\xff\xff\xff\xffWAVEfmt " + (16).to_bytes(4, "little") + flat.form(7, 8) + b"data\xff\xff\xff\xff"
    _, message = ended(model, [mulaw + DATA], "wav")
    assert "coding 7 with 8 bits" in message and "record PCM of 8 to 32 bits" in message
    _, message = ended(model, [b"RIFF\xff\xff\xff\xffWAVEjunk\xff\xff\xff\x7f" + DATA], "wav")
    assert "a WAV header of more than 65,536 bytes" in message


@pytest.mark.parametrize("step", ["resample", "mix_channels"])
def test_what_no_step_declares_is_refused(step: str, tmp_path: Path) -> None:
    declared = [{"step": "decode_wav"}, {"step": "mix_channels"}, {"step": "resample", "rate_hz": RATE_HZ}]
    path = tuple(each for each in declared if each["step"] != step)
    model = load(recordings.sound_bundle(tmp_path / "a.edge.zip", 400, input_path=path), trial=False)
    options, words = {
        "resample": ({"rate_hz": 16000}, "rate: got 16000 samples a second, but the bundle takes 8000 and declares no"),
        "mix_channels": ({"channels": 2}, "channels: got 2, but the bundle takes one and declares no mixing"),
    }[step]
    with pytest.raises(InputError, match=words):
        model.stream(iter(()), "s16le", **options)  # type: ignore[arg-type]
    _, message = ended(
        model, [header("s16le", 16000 if step == "resample" else 8000, 2 if step != "resample" else 1)], "wav"
    )
    assert words in message


def test_ffmpegs_own_headers(model: Model, tmp_path: Path) -> None:
    """As it writes them into a pipe, with other chunks before the sound."""
    path = recordings.wav(tmp_path / "a.wav", X)
    command = [requirements.program("ffmpeg"), "-v", "error", "-i", str(path), "-f", "wav", "-"]
    piped = subprocess.run(command, check=True, capture_output=True).stdout
    assert piped[:4] == b"RIFF" and len(piped) > len(DATA) + 44
    assert of_stream(model, chunks(piped, 100), "wav") == of_file(model, path)
