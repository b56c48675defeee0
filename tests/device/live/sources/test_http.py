"""Motion JPEG over HTTP: real ffmpeg against a server on loopback that is cut, slowed, frozen and resized."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.live.sources import base
from edgekit.runner.errors import InputError
from tests import requirements
from tests.device.live.sources import cameras

pytestmark = [pytest.mark.needs(program="ffmpeg"), pytest.mark.needs(package="PIL")]


@pytest.fixture
def camera() -> Iterator[cameras.HttpCamera]:
    camera = cameras.HttpCamera()
    yield camera
    camera.cut()


def test_colours_are_those_of_pillow(camera: cameras.HttpCamera) -> None:
    """So that a model sees what it saw in training; ffmpeg's default differs by 7 on average."""
    import io

    from PIL import Image

    smooth = Image.fromarray(np.random.default_rng(5).integers(0, 256, (12, 16, 3), np.uint8)).resize((64, 48), 3)
    file = io.BytesIO()
    smooth.save(file, "JPEG", quality=90, subsampling="4:2:2")
    camera.picture = file.getvalue()
    frame = cameras.started(cameras.source_of(camera.url), 2)[-1].data.astype(int)
    expected = np.asarray(Image.open(file).convert("RGB")).astype(int)
    assert np.abs(frame - expected).mean() < 1.0


def test_frames_arrive_in_their_size_and_are_numbered(camera: cameras.HttpCamera) -> None:
    source = cameras.source_of(camera.url, name="door")
    source.check()
    frames = cameras.frames_of(source, 10)
    source.close()
    assert [frame.data.shape for frame in frames] == [(48, 64, 3)] * 10
    numbers, greys = [frame.number for frame in frames], list(map(cameras.grey_of, frames))
    assert numbers == sorted(set(numbers))
    assert [later - first for first, later in zip(numbers, numbers[1:])] == [
        later - first for first, later in zip(greys, greys[1:])
    ]
    assert {frame.source for frame in frames} == {"door"}
    assert source.status().state == "ended"


def test_a_frame_does_not_wait_for_the_next(camera: cameras.HttpCamera) -> None:
    source = cameras.source_of(camera.url)
    source.check()
    camera.is_silent = True
    time.sleep(1.0)
    (frame,) = cameras.frames_of(source, 1)
    source.close()
    assert abs(cameras.grey_of(frame) - camera.grey) <= 1


def test_the_newest_frame_wins_and_others_are_counted(camera: cameras.HttpCamera) -> None:
    source = cameras.source_of(camera.url)
    source.check()
    (first,) = cameras.frames_of(source, 1)
    time.sleep(1.0)
    (later,) = cameras.frames_of(source, 1)
    status = source.status()
    source.close()
    assert time.monotonic() - later.arrived_s < 1.0, "the next one would be older"
    assert later.number - first.number > 3
    assert status.dropped >= later.number - first.number - 1


def test_a_cut_stream_is_connected_again_within_5_s_of_its_return(camera: cameras.HttpCamera) -> None:
    source = cameras.source_of(camera.url)
    source.check()
    camera.cut()
    status = cameras.status_with(source, state="reconnecting")
    assert status.detail
    time.sleep(2 * base.LONGEST_RETRY_S)  # until the pauses between two tries are the longest
    before = camera.accepted
    camera.back()
    returned_s = time.monotonic()
    while camera.accepted == before:
        assert time.monotonic() - returned_s < 5.0
        time.sleep(0.01)
    cameras.status_with(source, state="running", reconnects=1, detail="")
    source.close()


def test_the_first_try_comes_soon(camera: cameras.HttpCamera) -> None:
    source = cameras.source_of(camera.url)
    source.check()
    camera.cut()
    camera.back()
    cut_s, before = time.monotonic(), camera.accepted
    while camera.accepted == before:
        assert time.monotonic() - cut_s < 4.0
        time.sleep(0.01)
    cameras.status_with(source, reconnects=1)
    source.close()


def test_a_silent_stream_is_connected_again(camera: cameras.HttpCamera, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "STALL_S", 1.0)
    source = cameras.source_of(camera.url)
    source.check()
    camera.is_silent = True
    status = cameras.status_with(source, state="reconnecting")
    assert "no frame for 1 s" in status.detail
    camera.is_silent = False
    cameras.status_with(source, state="running", reconnects=1)
    source.close()


def test_a_slow_stream_is_neither_cut_nor_frozen(camera: cameras.HttpCamera) -> None:
    camera.rate = 1.0
    source = cameras.source_of(camera.url, freeze_s=0.5)
    source.check()
    frames = cameras.frames_of(source, 3)
    status = source.status()
    source.close()
    assert (status.state, status.reconnects) == ("running", 0)
    assert len({frame.number for frame in frames}) == 3


def test_a_frozen_stream_is_noticed_and_runs_again(camera: cameras.HttpCamera) -> None:
    source = cameras.source_of(camera.url, freeze_s=1.0)
    source.check()
    camera.is_frozen = True
    status = cameras.status_with(source, state="frozen")
    assert status.detail == "the same bytes for 1 s"
    camera.is_frozen = False
    cameras.status_with(source, state="running", detail="", reconnects=0)
    source.close()


def test_a_stream_may_change_its_size(camera: cameras.HttpCamera) -> None:
    source = cameras.source_of(camera.url)
    source.check()
    cameras.frames_of(source, 3)
    for size in ((96, 32), (32, 96), (64, 48)):
        camera.size = size
        status = cameras.status_with(source, width=size[0], height=size[1])
        frames = cameras.frames_of(source, 3)
        assert frames[-1].data.shape == (size[1], size[0], 3)
        assert int(frames[-1].data.max()) - int(frames[-1].data.min()) <= 2, "a frame is shifted"
        assert status.reconnects == 0
    source.close()


def test_the_rate_is_kept(camera: cameras.HttpCamera) -> None:
    camera.rate = 30.0
    source = cameras.source_of(camera.url, rate=5)
    source.check()
    started, (first,) = time.monotonic(), cameras.frames_of(source, 1)
    cameras.frames_of(source, 15)
    took_s, status = time.monotonic() - started, source.status()
    source.close()
    assert took_s > 2.3
    assert status.frames - first.number < 5 * took_s + 4


def test_a_killed_ffmpeg_is_started_again(camera: cameras.HttpCamera) -> None:
    source = cameras.source_of(camera.url)
    source.check()
    child = next(pid for pid, line in commands().items() if camera.url in line)
    os.kill(child, signal.SIGKILL)
    status = cameras.status_with(source, state="reconnecting")
    assert "ffmpeg was ended by SIGKILL" in status.detail
    cameras.status_with(source, state="running", reconnects=1)
    source.close()
    assert not [line for line in commands().values() if camera.url in line]


def test_ffmpeg_ends_with_a_killed_parent(camera: cameras.HttpCamera) -> None:
    requirements.program("setpriv")
    camera.rate = 0.2  # so that ffmpeg seldom writes
    code = (
        "from tests.device.live.sources import cameras\n"
        f"source = cameras.source_of({camera.url!r})\nsource.start()\nprint('started', flush=True)\ninput()"
    )
    pipe = subprocess.PIPE
    parent = subprocess.Popen([os.sys.executable, "-c", code], stdin=pipe, stdout=pipe, cwd=requirements.ROOT)
    assert parent.stdout is not None
    parent.stdout.readline()
    wait_for(lambda: any(camera.url in line and "ffmpeg" in line for line in commands(parent.pid).values()))
    parent.kill()
    parent.wait()
    wait_for(lambda: not any(camera.url in line for line in commands(parent.pid).values()))


def test_secrets_are_shown_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    camera = cameras.HttpCamera(login="joe:s3cr@t/'x")
    monkeypatch.setenv("CAMERA_PASSWORD", "s3cr@t/'x")
    (tmp_path / "password").write_text("s3cr@t/'x\n")
    by_file = {"username": "joe", "password_file": str(tmp_path / "password")}
    for login, options in (("joe:${CAMERA_PASSWORD}@", {}), ("", by_file), ("joe:s3cr%40t%2F'x@", {})):
        source = cameras.source_of(f"http://{login}{camera.host}/stream", **options)
        source.check()
        lines = list(commands().values())
        assert any("ffmpeg" in line for line in lines)
        camera.cut()
        cameras.status_with(source, state="reconnecting")
        seen = [*lines, str(source.status()), repr(source.address), repr(source.options)]
        source.close()
        camera.back()
        assert not [text for text in seen if "s3cr" in text]
    camera.cut()


def test_bad_input_is_one_line_before_the_first_frame(camera: cameras.HttpCamera) -> None:
    camera.login = "joe:right"
    refused = cameras.HttpCamera()
    refused.cut()
    cases = {
        f"http://joe:wr0ng@{camera.host}/x": "wrong user name or password",
        refused.url: "connection refused",
        "http://camera.invalid/x": "failed to resolve",
    }
    for address, expected in cases.items():
        source = cameras.source_of(address)
        with pytest.raises(InputError, match=expected) as caught:
            source.check()
        assert "\n" not in str(caught.value)
        assert "wr0ng" not in str(caught.value)


def test_ffmpeg_as_the_server(tmp_path: Path) -> None:
    ffmpeg, port = requirements.program("ffmpeg"), cameras.free_port()
    url = f"http://127.0.0.1:{port}/feed"
    film = ["-re", "-f", "lavfi", "-i", "testsrc=size=64x48:rate=10", "-c:v", "mjpeg", "-f", "mpjpeg", "-listen", "1"]
    server = subprocess.Popen([ffmpeg, "-v", "quiet", *film, url], stdin=subprocess.DEVNULL)
    try:
        source = connected(url)
        frames = cameras.frames_of(source, 5)
        source.close()
        assert frames[-1].data.shape == (48, 64, 3)
    finally:
        server.kill()
        server.wait()


def connected(url: str) -> base.Source:
    """A source, once the server listens, which takes a single connection."""
    deadline = time.monotonic() + 40
    while True:
        source = cameras.source_of(url)
        try:
            source.check()
            return source
        except InputError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def commands(parent: int | None = None) -> dict[int, str]:
    """The command lines of processes by their number: this process's children, or all that name ffmpeg."""
    lines = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = folder.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            above = int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if (parent is None and above == os.getpid()) or (parent is not None and "ffmpeg" in line):
            lines[int(folder.name)] = line
    return lines


def wait_for(condition: object, within_s: float = 40.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)
