"""WAV files become exactly the raw samples that a bundle promises, or an error with the line that puts them right."""

from __future__ import annotations

import contextlib
import io
import shlex
import struct
import subprocess
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.runner import inputs
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import wav
from tests import requirements
from tests.runner import flat
from tests.runner.flat import SOUND, coded, form, predict, refusal, riff


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return flat.kinds(tmp_path_factory.mktemp("flat"))


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_whole_numbers_become_floats_by_the_convention(bits: int, extensible: bool, tmp_path: Path) -> None:
    most = 2 ** (bits - 1)
    values = [-most, -most // 2, -1, 0, 1, most // 4, most - 1]
    (tmp_path / "a.wav").write_bytes(riff(form(1, bits, extensible=extensible), coded(values, bits)))
    sample = inputs.read_first_sample(str(tmp_path / "a.wav"), RawSpec("audio", (7,), "float32", sample_rate_hz=8000))
    assert sample.dtype == np.float32
    assert sample.tolist() == [float(np.float32(value / most)) for value in values]


@pytest.mark.parametrize(("bits", "dtype"), [(32, "<f4"), (64, "<f8")])
def test_floats_are_taken_as_they_are(bits: int, dtype: str, tmp_path: Path) -> None:
    values = np.array([-1.0, -0.3, 0.0, 1e-9, 0.999], dtype)
    (tmp_path / "a.wav").write_bytes(riff(form(3, bits), values.tobytes()))
    sample = inputs.read_first_sample(str(tmp_path / "a.wav"), RawSpec("audio", (5,), "float32", sample_rate_hz=8000))
    assert sample.tolist() == values.astype(np.float32).tolist()


@pytest.mark.parametrize("width", [1, 2, 4])
def test_the_standard_librarys_own_files_are_read(width: int, tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as stream:
        stream.setparams((1, width, 8000, 0, "NONE", "NONE"))
        stream.writeframes(coded([-100, 0, 100], 8 * width))
    sample = inputs.read_first_sample(str(tmp_path / "a.wav"), RawSpec("audio", (3,), "float32", sample_rate_hz=8000))
    assert sample.tolist() == [float(np.float32(value / 2 ** (8 * width - 1))) for value in (-100, 0, 100)]


def odd_file(random: np.random.Generator) -> bytes:
    """A WAV file of a random coding, its chunks of odd lengths and orders, as other programs write them."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)

    def others() -> bytes:
        lengths = random.integers(0, 30, random.integers(3))
        return b"".join(chunk(random.choice([b"JUNK", b"odd ", b"note"]), random.bytes(each)) for each in lengths)

    code, bits = [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)][random.integers(6)]
    channels, frames = int(random.integers(1, 4)), int(random.integers(1, 40))
    frame_bytes = channels * bits // 8
    head = struct.pack("<HHIIHH", code, channels, 8000, 8000 * frame_bytes, frame_bytes, bits)
    form = head + [b"", b"\0\0", b"\1\0x", random.bytes(random.integers(2, 9))][random.integers(4)]
    values = random.normal(size=frames * channels).astype(f"<f{bits // 8}") if code == 3 else None
    data = random.bytes(frames * frame_bytes) if values is None else values.tobytes()
    chunks = others() + chunk(b"fmt ", form) + others() + chunk(b"data", data) + others()
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def test_odd_files_are_read_as_libsndfile_reads_them() -> None:
    random = np.random.default_rng(0)
    for _ in range(400):
        content = odd_file(random)
        expected, rate_hz = soundfile.read(io.BytesIO(content), dtype="float64", always_2d=True)
        sound = wav.read_header("odd.wav", io.BytesIO(content), len(content))
        read = wav.floats(content[sound.start : sound.start + sound.data_bytes], sound.code, sound.bits)
        assert sound.rate_hz == rate_hz
        np.testing.assert_array_equal(read.reshape(-1, sound.channels), expected.astype(np.float32))


@pytest.mark.parametrize(("bits", "frame_bytes"), [(24, 4), (8, 2), (16, 1)])
def test_samples_that_are_padded_are_refused(bits: int, frame_bytes: int, tmp_path: Path) -> None:
    """Read as if they were not, they would be noise."""
    header = struct.pack("<HHIIHH", 1, 1, 8000, 8000 * frame_bytes, frame_bytes, bits)
    (tmp_path / "a.wav").write_bytes(riff(header, bytes(12 * frame_bytes)))
    with pytest.raises(InputError, match=rf"1 channels of {bits} bits in {frame_bytes} bytes.*; convert it: ffmpeg -i"):
        inputs.read_first_sample(str(tmp_path / "a.wav"), RawSpec("audio", (12,), "float32", sample_rate_hz=8000))


@pytest.mark.parametrize("codec", ["pcm_u8", "pcm_s16le", "pcm_s24le", "pcm_s32le", "pcm_f32le", "pcm_f64le"])
def test_a_sine_of_ffmpeg_is_that_sine(codec: str, tmp_path: Path, kinds: dict[str, Path]) -> None:
    source = "aevalsrc=0.5*sin(2*PI*440*t):s=8000:d=0.05"
    command = [requirements.program("ffmpeg"), "-v", "error", "-f", "lavfi", "-i", source, "-c:a", codec]
    subprocess.run([*command, str(tmp_path / "a.wav")], check=True)
    piped = subprocess.run([*command, "-f", "wav", "-"], check=True, capture_output=True).stdout
    (tmp_path / "piped.wav").write_bytes(piped)
    sample = inputs.read_first_sample(str(tmp_path / "a.wav"), SOUND)
    expected = 0.5 * np.sin(2 * np.pi * 440 * np.arange(400) / 8000)
    assert np.abs(sample - expected).max() <= (1.01 / 128 if codec == "pcm_u8" else 1.01 / 32768)
    assert b"\xff\xff\xff\xff" in piped[:200]  # ffmpeg could not go back to write the size in
    assert inputs.read_first_sample(str(tmp_path / "piped.wav"), SOUND).tobytes() == sample.tobytes()
    predict(kinds["audio"], tmp_path / "a.wav")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (riff(form(1, 16, rate_hz=16000), bytes(800)), ["16000 samples a second, but the bundle takes 8000"]),
        (riff(form(1, 16, channels=2), bytes(1600)), ["2 channels"]),
        (riff(form(1, 16), bytes(798)), ["399 samples, but the bundle takes 400 (0.05 s)"]),
        (riff(form(1, 16), bytes(802)), ["401 samples"]),
        (riff(form(7, 8), bytes(400)), ["coding 7 with 8 bits"]),
        (riff(form(1, 12), bytes(600)), ["coding 1 with 12 bits"]),
        (riff(form(1, 0), bytes(600)), ["coding 1 with 0 bits"]),
        (riff(form(1, 16, channels=0), bytes(800)), ["0 channels"]),
        (riff(form(1, 16), bytes(801)), ["801 bytes of sound"]),
        (riff(form(1, 16), bytes(700), length=800), ["cut short", "700", "800"]),
        (riff(form(1, 16), bytes(800))[:30], ["cut short"]),
        (riff(form(1, 16)[:9], bytes(800)), ["header is cut short"]),
        (b"ID3\x03" + bytes(90), ["not a WAV file"]),
        (b"", ["not a WAV file"]),
    ],
)
def test_a_sound_that_does_not_fit_is_refused_with_the_fix(content: bytes, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    message = refusal(tmp_path / "a.wav", SOUND)
    assert all(word in message for word in words)
    assert "ffmpeg -i" in message or "copy it again" in message


@pytest.mark.parametrize(("rate_hz", "seconds", "channels"), [(44100, 0.5, 2), (16000, 0.01, 1), (8000, 0.05, 2)])
def test_the_fix_that_is_printed_works(rate_hz: int, seconds: float, channels: int, tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    source = f"sine=440:sample_rate={rate_hz}:duration={seconds}"
    tone = ["-v", "error", "-f", "lavfi", "-i", source, "-ac", str(channels)]
    command = [requirements.program("ffmpeg"), *tone, str(folder / "a b.wav")]
    subprocess.run(command, check=True)
    line = refusal(folder / "a b.wav", SOUND).split("run: ")[1]
    subprocess.run(line, shell=True, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    sample = inputs.read_first_sample(shlex.split(line)[-1], SOUND)
    assert sample.shape == (400,) and np.abs(sample).max() > 0.05


@settings(max_examples=150, deadline=None)
@given(places=st.lists(st.tuples(st.integers(0, 55), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_mangled_sound_is_an_input_error_or_a_sound(
    places: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(riff(form(1, 16), bytes(800)))
    for place, value in places:
        data[place] = value
    path = tmp_path_factory.mktemp("mangled") / "a.wav"
    path.write_bytes(data)
    with contextlib.suppress(InputError):
        assert inputs.read_first_sample(str(path), SOUND).shape == (400,)
