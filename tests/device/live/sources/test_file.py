"""Films and pictures, played at their own speed or as fast as they are taken."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from edgekit.runner import inputs
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import raw_frames
from tests import requirements
from tests.device.live.sources import cameras


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds of ten frames each."""
    path = tmp_path_factory.mktemp("film") / "film.mkv"
    lavfi = ["-f", "lavfi", "-i", "testsrc=size=64x48:rate=10", "-t", "2", "-c:v", "ffv1", "-pix_fmt", "bgr0"]
    subprocess.run([requirements.program("ffmpeg"), "-v", "error", *lavfi, str(path)], check=True)
    return path


def test_a_film_is_played_at_its_own_speed(film: Path) -> None:
    source = cameras.source_of(str(film))
    started = time.monotonic()
    source.check()
    frames = cameras.frames_of(source, 30)
    took_s, status = time.monotonic() - started, source.status()
    assert took_s > 1.7
    assert frames[-1].number == 19
    assert (status.state, status.frames, status.detail) == ("ended", 20, "")


def test_without_real_time_every_frame_waits(film: Path) -> None:
    source = cameras.source_of(str(film), realtime=False)
    source.check()
    time.sleep(0.5)
    frames = cameras.frames_of(source, 30)
    assert [frame.number for frame in frames] == list(range(20))
    assert source.status().dropped == 0


def test_the_pixels_are_those_of_the_film(film: Path) -> None:
    ffmpeg = requirements.program("ffmpeg")
    command = [ffmpeg, "-v", "error", "-i", str(film), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    expected = np.frombuffer(subprocess.run(command, capture_output=True, check=True).stdout, np.uint8)
    source = cameras.source_of(str(film), realtime=False)
    frames = [frame.data for frame in cameras.started(source, 20)]
    assert np.array_equal(np.stack(frames), expected.reshape(20, 48, 64, 3))


@pytest.mark.parametrize(("rotate", "flip"), [(90, ""), (180, "horizontal"), (270, "both"), (0, "vertical")])
def test_frames_are_turned_and_flipped(film: Path, tmp_path: Path, rotate: int, flip: str) -> None:
    """Those of a film by ffmpeg, those of pictures by NumPy."""
    from PIL import Image

    plain = cameras.started(cameras.source_of(str(film), realtime=False), 1)[0].data
    turned = cameras.started(cameras.source_of(str(film), realtime=False, rotate=rotate, flip=flip), 1)[0].data
    expected = Image.fromarray(plain).rotate(-rotate, expand=True)
    if flip in ("horizontal", "both"):
        expected = expected.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if flip in ("vertical", "both"):
        expected = expected.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    assert np.array_equal(turned, np.asarray(expected))
    Image.fromarray(plain).save(tmp_path / "plain.png")
    options = {"realtime": False, "rotate": rotate, "flip": flip}
    picture = cameras.started(cameras.source_of(str(tmp_path / "plain.png"), **options), 1)[0].data
    assert np.array_equal(picture, turned)


def test_a_loop_begins_again(film: Path) -> None:
    source = cameras.source_of(str(film), realtime=False, loop=True)
    frames = cameras.started(source, 45)
    assert [frame.number for frame in frames] == list(range(45))
    assert np.array_equal(frames[0].data, frames[20].data)


@pytest.mark.needs(package="PIL")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("fit", ["stretch", "crop", "letterbox"])
def test_the_sample_has_the_bits_of_a_picture_file(tmp_path: Path, channels: int, fit: str) -> None:
    from PIL import Image

    rng = np.random.default_rng(3)
    for number in range(3):
        pixels = rng.integers(0, 256, (50 + 9 * number, 71, 3), np.uint8)
        image = Image.fromarray(pixels)
        exif = Image.Exif()
        exif[0x0112] = 6  # must be turned
        image.save(tmp_path / f"{number}.jpg", exif=exif if number == 1 else Image.Exif())
    raw = picture_spec(channels, fit)
    source = cameras.source_of(str(tmp_path), raw, realtime=False)
    for number, frame in enumerate(cameras.started(source, 3)):
        expected = next(inputs.samples(str(tmp_path / f"{number}.jpg"), raw)).raw
        assert np.array_equal(raw_frames.fit_frame(frame.data, raw), expected)


def test_a_folder_is_played_at_the_rate(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.jpg").write_bytes(cameras.grey_jpeg(number * 30, (20, 10)))
    source = cameras.source_of(str(tmp_path), rate=10)
    started = time.monotonic()
    source.check()
    frames = cameras.frames_of(source, 6)
    assert time.monotonic() - started > 0.4
    greys = [round(float(frame.data.mean()) / 30) for frame in frames]
    assert greys == sorted(set(greys)) and greys[-1] == 5
    assert source.status().state == "ended"


def test_bad_input_is_one_line(tmp_path: Path, film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.mp4").write_text("not a film")
    (tmp_path / "broken.jpg").write_bytes(cameras.grey_jpeg(9, (32, 32))[:200])
    (tmp_path / "cut.mkv").write_bytes(film.read_bytes()[:300])
    for name, expected in (
        ("missing.mp4", "no such file or folder"),
        ("/dev/video0", "a camera, not a film; use v4l2:/dev/video0"),
        ("empty", "holds no .jpg"),
        ("text.mp4", "no film or stream that ffmpeg can read"),
        ("broken.jpg", "cannot be decoded"),
        ("cut.mkv", "ffmpeg"),
    ):
        with pytest.raises(InputError, match=expected) as caught:
            cameras.source_of(str(tmp_path / name)).check()
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="size: only v4l2 and rpicam"):
        cameras.source_of(str(film), size=(64, 64))
    with pytest.raises(InputError, match="gives pictures, but the bundle takes audio"):
        cameras.source_of(str(film), cameras.SOUND)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="ffmpeg is not installed; run: sudo apt install ffmpeg"):
        cameras.source_of(str(film)).check()


def test_a_codec_that_ffmpeg_lacks(film: Path, tmp_path: Path) -> None:
    unknown = tmp_path / "unknown.mkv"
    unknown.write_bytes(film.read_bytes().replace(b"FFV1", b"XFV1"))
    with pytest.raises(InputError, match="this ffmpeg lacks a decoder"):
        cameras.source_of(str(unknown)).check()


@pytest.mark.parametrize("version", ["4.3.9", "3.4"])
def test_an_old_ffmpeg_is_refused(film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(f'#!/bin/sh\necho "ffmpeg version {version} Copyright"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(InputError, match="too old; install 4.4 or newer"):
        cameras.source_of(str(film)).check()


def picture_spec(channels: int, fit: str) -> RawSpec:
    resize = {"step": "resize_picture", "width": 24, "height": 32, "fit": fit, "filter": "bilinear"}
    resize.update({"crop": {"share": 0.875}, "letterbox": {"fill": 114}}.get(fit, {}))
    decode = {"step": "decode_picture", "channels": channels, "orientation": "apply"}
    return RawSpec("image", (32, 24, channels), "uint8", input_path=(decode, resize))
