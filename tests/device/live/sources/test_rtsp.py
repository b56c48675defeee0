"""RTSP streams: real ffmpeg against gst-rtsp-server where it is installed, and against a small server everywhere."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.runner.errors import InputError
from tests import requirements
from tests.device.live.sources import cameras

pytestmark = [pytest.mark.needs(program="ffmpeg"), pytest.mark.needs(package="PIL")]
INSTALL = (
    "apt-get install python3-gi gir1.2-gst-rtsp-server-1.0 gstreamer1.0-plugins-base gstreamer1.0-plugins-good "
    "gstreamer1.0-plugins-ugly"
)
LAUNCH = (
    "( videotestsrc is-live=true ! video/x-raw,width=320,height=240,framerate=15/1 ! x264enc tune=zerolatency "
    "key-int-max=15 speed-preset=ultrafast ! rtph264pay name=pay0 pt=96 config-interval=1 )"
)
HAS_SERVER = (
    "import gi; gi.require_version('Gst', '1.0'); gi.require_version('GstRtspServer', '1.0')\n"
    "from gi.repository import Gst, GstRtspServer; Gst.init(None)\n"
    "raise SystemExit(not all(map(Gst.ElementFactory.find, ('videotestsrc', 'x264enc', 'rtph264pay'))))"
)
LOGIN = "joe:p@ss/word"


@pytest.fixture
def camera() -> Iterator[cameras.RtspCamera]:
    camera = cameras.RtspCamera(login=LOGIN)
    yield camera
    camera.close()


def test_a_stream_that_is_cut_comes_back(camera: cameras.RtspCamera, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMERA_PASSWORD", "p@ss/word")
    source = cameras.source_of(f"rtsp://joe:${{CAMERA_PASSWORD}}@{camera.host}/stream")
    source.check()
    assert cameras.frames_of(source, 5)[-1].data.shape == (48, 64, 3)
    camera.cut()
    cameras.status_with(source, state="reconnecting")
    time.sleep(2.0)
    camera.back()
    returned_s = time.monotonic()
    status = cameras.status_with(source, state="running", reconnects=1)
    source.close()
    assert time.monotonic() - returned_s < 10.0, "five seconds, but for what else the machine does"
    assert "p@ss" not in str(status)


def test_bad_input_is_one_line_before_the_first_frame(camera: cameras.RtspCamera) -> None:
    for address, expected in (
        (f"rtsp://joe:wr0ng@{camera.host}/stream", "wrong user name or password"),
        (f"rtsp://joe:p%40ss%2Fword@{camera.host}/other", "no such stream"),
        (f"rtsp://127.0.0.1:{cameras.free_port()}/stream", "connection refused"),
    ):
        source = cameras.source_of(address)
        with pytest.raises(InputError, match=expected) as caught:
            source.check()
        assert "\n" not in str(caught.value)


def test_gst_rtsp_server() -> None:
    """H.264 with digest authentication, of a server that is killed and started again."""
    python = python_with_server()
    port = cameras.free_port()
    server = start(python, port)
    source = cameras.source_of(f"rtsp://joe:p%40ss%2Fword@127.0.0.1:{port}/stream")
    try:
        source.check()
        assert cameras.frames_of(source, 5)[-1].data.shape == (240, 320, 3)
        server.kill()
        server.wait()
        cameras.status_with(source, state="reconnecting")
        server = start(python, port)
        returned_s = time.monotonic()
        cameras.status_with(source, state="running", reconnects=1)
        assert time.monotonic() - returned_s < 10.0
        with pytest.raises(InputError, match="wrong user name or password"):
            cameras.source_of(f"rtsp://joe:wr0ng@127.0.0.1:{port}/stream").check()
    finally:
        source.close()
        server.kill()
        server.wait()


def python_with_server() -> str:
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            if not subprocess.run([python, "-c", HAS_SERVER], capture_output=True, check=False).returncode:
                return python
        except OSError:
            continue
    requirements.condition(False, "gst-rtsp-server with gi", install=INSTALL, required_in_ci=False)
    raise AssertionError


def start(python: str, port: int) -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name("gst_server.py")
    command = [python, str(script), str(port), LOGIN, LAUNCH]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return server
