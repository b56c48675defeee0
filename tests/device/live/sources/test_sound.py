"""Sound from a pipe, and from a microphone by a contract fake of arecord whose tone real ffmpeg makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.errors import InputError
from tests import requirements
from tests.device.live.sources import cameras, fakes

READ_STDIN = """
import sys
import numpy as np
from tests.device.live.sources import cameras
source = cameras.source_of(sys.argv[1], cameras.SOUND)
frames = cameras.frames_of(source, 99) if source.check() is None else []
np.save(sys.argv[2], np.stack([frame.data for frame in frames]))
"""


def test_windows_of_standard_input_are_those_of_a_file(tmp_path: Path) -> None:
    sound = np.random.default_rng(0).integers(-30000, 30000, 2100).astype("<i2")
    (tmp_path / "sound.raw").write_bytes(sound.tobytes())
    with open(tmp_path / "sound.raw", "rb") as stdin:
        command = [sys.executable, "-c", READ_STDIN, "pcm:s16le", str(tmp_path / "windows.npy")]
        subprocess.run(command, stdin=stdin, check=True, cwd=requirements.ROOT)
    windows = np.load(tmp_path / "windows.npy")
    expected = np.stack([sound[start : start + 400] for start in range(0, 2100 - 399, 200)]) / np.float32(32768)
    assert np.array_equal(windows, expected.astype(np.float32))


@pytest.mark.needs(program="ffmpeg")
def test_a_microphone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fakes.install(tmp_path, "arecord", fakes.ARECORD)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    source = cameras.source_of("alsa:plughw:1,0", cameras.SOUND, hop=400)
    frames = cameras.started(source, 5)
    assert frames[-1].data.shape == (400,)
    assert frames[-1].data.dtype == np.float32
    spectrum = np.abs(np.fft.rfft(frames[-1].data * np.hanning(400)))
    assert abs(int(spectrum.argmax()) * 20 - 440) <= 20
    assert log.read_text().strip() == "-D plughw:1,0 -t raw -f S16_LE -r 8000 -c 1"


@pytest.mark.needs(program="ffmpeg")
def test_rate_and_channels_of_the_microphone_are_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fakes.install(tmp_path, "arecord", fakes.ARECORD)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    steps = ({"step": "decode_wav"}, {"step": "mix_channels"}, {"step": "resample"})
    raw = RawSpec("audio", (400,), "float32", (-1.0, 1.0), sample_rate_hz=8000, input_path=steps)
    frames = cameras.started(cameras.source_of("alsa#rate=48000&channels=2", raw, rate=5), 4)
    spectrum = np.abs(np.fft.rfft(frames[-1].data * np.hanning(400)))
    assert abs(int(spectrum.argmax()) * 20 - 440) <= 20
    assert frames[-1].arrived_s - frames[0].arrived_s > 0.3, "five a second"
    assert log.read_text().strip() == "-D default -t raw -f S16_LE -r 48000 -c 2"


@pytest.mark.needs(program="ffmpeg")
def test_a_microphone_that_goes_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fakes.install(tmp_path, "arecord", fakes.ARECORD)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    source = cameras.source_of("alsa", cameras.SOUND)
    source.check()
    gone = log.with_name(f"{log.name}.gone")
    gone.write_text("Device or resource busy")
    source._process.kill()  # type: ignore[attr-defined]
    cameras.status_with(source, detail="alsa: in use by another program; end that: fuser -v /dev/snd/*")
    gone.unlink()
    cameras.status_with(source, state="running", reconnects=1)
    source.close()


@pytest.mark.needs(program="ffmpeg")
def test_bad_input_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="arecord is not installed; run: sudo apt install alsa-utils"):
        cameras.source_of("alsa", cameras.SOUND).check()
    monkeypatch.undo()
    log = fakes.install(tmp_path, "arecord", fakes.ARECORD)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    gone, rate = (log.with_name(f"{log.name}.{name}") for name in ("gone", "rate"))
    for text, expected in (
        ("No such file or directory", "there is no such device; those here: arecord -L"),
        ("Permission denied", "no permission; run: sudo usermod -aG audio"),
    ):
        gone.write_text(text)
        with pytest.raises(InputError, match=expected):
            cameras.source_of("alsa:hw:9", cameras.SOUND).check()
    gone.unlink()
    rate.touch()
    with pytest.raises(InputError, match="another rate; use plughw: in place of hw:"):
        cameras.source_of("alsa:hw:1", cameras.SOUND).check()
    with pytest.raises(InputError, match="record at that rate|declares no resampling"):
        cameras.source_of("alsa#rate=48000", RawSpec("audio", (400,), "float32", sample_rate_hz=8000, input_path=()))
    with pytest.raises(InputError, match="format: got 'mp3'"):
        cameras.source_of("pcm:mp3", cameras.SOUND)
    with pytest.raises(InputError, match="it gives sound, but the bundle takes image"):
        cameras.source_of("alsa")
