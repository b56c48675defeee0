"""Sounds in a folder or a zip."""

from __future__ import annotations

import io
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edgekit.core.errors import ConfigError, DataError
from edgekit.data import load, parse

RATE_HZ = 8000


def wav_bytes(samples: int, pitch_hz: float, rate_hz: int = RATE_HZ, channels: int = 1) -> bytes:
    """A tone of 16 bits as a WAV file."""
    values = 0.5 * np.sin(2 * np.pi * pitch_hz * np.arange(samples * channels) / rate_hz)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes((values * 32767).astype("<i2").tobytes())
    return buffer.getvalue()


def folder(home: Path, count: int = 24, samples: int = 800) -> Path:
    """Two classes, 200 to 600 Hz and 900 to 1300 Hz, each recording of its own pitch."""
    for place in range(count):
        path = home / "train" / ("high" if place % 2 else "low") / f"{place:03}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wav_bytes(samples, (900 if place % 2 else 200) + 400 * place / count))
    return home


def section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    return {"path": str(folder(tmp_path / "sounds", 60)), "rate_hz": RATE_HZ, "seconds": 0.1, "calibration_samples": 4}


def test_samples_have_the_values_of_their_wav_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load(parse({"source": "wav_folder", **section(tmp_path, monkeypatch)}))
    assert (data.kind, data.sample_rate_hz, data.raw_shape, data.classes) == ("audio", RATE_HZ, (800,), ("high", "low"))
    assert data.raw_range == [-1.0, 1.0]
    assert 0.45 < np.abs(data.train.x).max() < 0.51


def test_other_lengths_are_filled_up_cut_or_refused(tmp_path: Path) -> None:
    options = {"source": "wav_folder", "path": str(folder(tmp_path)), "rate_hz": RATE_HZ, "calibration_samples": 4}
    longer = load(parse({**options, "seconds": 0.2}))
    assert longer.raw_shape == (1600,) and not longer.train.x[:, 800:].any() and longer.train.x[:, :800].any()
    shorter = load(parse({**options, "seconds": 0.05}))
    assert shorter.raw_shape == (400,)
    with pytest.raises(
        DataError, match=r"wav: 800 samples, but the config asks for 400 .*run: ffmpeg .*or set data.lengths: fit"
    ):
        load(parse({**options, "seconds": 0.05, "lengths": "exact"}))
    with pytest.raises(ConfigError, match="are not a whole number of samples"):
        parse({**options, "seconds": 0.00001234})


def test_a_zip_gives_the_same_sounds(tmp_path: Path) -> None:
    home = folder(tmp_path / "sounds")
    with zipfile.ZipFile(tmp_path / "sounds.zip", "w") as archive:
        for path in sorted(home.rglob("*.wav")):
            archive.write(path, path.relative_to(home))
    options = {"source": "wav_folder", "rate_hz": RATE_HZ, "seconds": 0.1, "calibration_samples": 4}
    one, other = (load(parse({**options, "path": str(path)})) for path in (home, tmp_path / "sounds.zip"))
    assert one.digest == other.digest


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (wav_bytes(800, 300, rate_hz=16_000), "16000 samples a second, but the config asks for 8000"),
        (wav_bytes(800, 300, channels=2), "2 channels, but the config asks for one"),
        (wav_bytes(0, 300), "it holds no sound"),
        (b"no sound at all", "not a WAV file, whatever its name says"),
    ],
)
def test_a_file_that_is_not_the_expected_wav_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    home = folder(tmp_path)
    (home / "train/low/zzz.wav").write_bytes(content)
    options = {"source": "wav_folder", "path": str(home), "rate_hz": RATE_HZ, "seconds": 0.1, "calibration_samples": 4}
    options |= {"rates": "exact", "channels": "exact"}
    with pytest.raises(DataError, match=f"zzz.wav: .*{message}"):
        load(parse(options))


def test_other_rates_and_channels_are_resampled_and_mixed_and_the_notes_say_it(tmp_path: Path) -> None:
    home = folder(tmp_path)
    (home / "train/low/fast.wav").write_bytes(wav_bytes(1600, 300, rate_hz=16_000))
    (home / "train/low/wide.wav").write_bytes(wav_bytes(700, 300, channels=2))
    options = {"source": "wav_folder", "path": str(home), "rate_hz": RATE_HZ, "seconds": 0.1, "calibration_samples": 4}
    data = load(parse(options))
    assert data.notes[0] == "of 26 sounds: 1 mixed to mono, 1 resampled to 8000 Hz, 1 padded with silence"
    steps = [step["step"] for step in data.input_path or ()]
    assert steps == ["decode_wav", "mix_channels", "resample", "windows"]
    assert load(parse({**options, "limit": 25})).input_path == data.input_path


@pytest.mark.parametrize("zipped", [False, True])
def test_speech_commands_keeps_its_official_lists(zipped: bool, tmp_path: Path) -> None:
    """Its speakers are parted by them; its recordings of noise are no class."""
    home = tmp_path / "speech"
    for path in (folder(home, 60) / "train").iterdir():
        path.rename(home / path.name)
    (home / "train").rmdir()
    (home / "_background_noise_").mkdir()
    (home / "_background_noise_/pink.wav").write_bytes(wav_bytes(8000, 50))
    names = sorted(str(path.relative_to(home)) for path in home.glob("[hl]*/*.wav"))
    (home / "validation_list.txt").write_text("\n".join(names[::6]) + "\n")
    (home / "testing_list.txt").write_text("\n".join(names[1::6]) + "\n")
    (home / "README.md").write_text("Speech Commands")
    path = home
    if zipped:
        path = tmp_path / "speech.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for each in sorted(home.rglob("*.*")):
                archive.write(each, each.relative_to(home))
    options = {"source": "wav_folder", "path": str(path), "rate_hz": RATE_HZ, "seconds": 0.1, "calibration_samples": 4}
    data = load(parse(options))
    assert data.classes == ("high", "low")
    assert (len(data.validation), len(data.test), len(data.train) + len(data.calibration)) == (10, 10, 40)
    assert "skipped 1 sounds of _background_noise_, which is no class: '_background_noise_/pink.wav'" in data.notes
    assert [note for note in data.notes if "not .wav" in note] == ["skipped 1 files that are not .wav: 'README.md'"]


def test_only_what_a_limit_keeps_is_read(tmp_path: Path) -> None:
    options = {"source": "wav_folder", "path": str(folder(tmp_path, 60)), "rate_hz": RATE_HZ, "seconds": 0.1}
    seen: list[tuple[int, int]] = []
    data = load(parse({**options, "calibration_samples": 4, "limit": 30}), lambda *at: seen.append(at))
    assert (
        seen[-1] == (30, 30) and len(data.train) + len(data.calibration) + len(data.validation) + len(data.test) == 30
    )


def test_a_folder_of_pictures_says_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats/a.jpg").touch()
    with pytest.raises(DataError, match="expected split/class/sound, as in train/yes/0001.wav"):
        load(parse({"source": "wav_folder", "path": str(tmp_path)}))
