"""The camera of a Raspberry Pi, by contract fakes: a program for rpicam-vid, and a module for picamera2.

The fake program writes YUV 4:2:0 in full range with padded rows, as rpicam-vid does (rpicam-apps, `rpicam_vid.cpp`
asks libcamera for the colour space Sycc). Whether the real program still does is not tested here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.runner.errors import InputError
from tests.device.live.sources import cameras, fakes

PICAMERA2 = """
import numpy as np


class Picamera2:
    def __init__(self, number):
        if number:
            raise IndexError("list index out of range")

    def create_video_configuration(self, main, controls):
        assert main["format"] == "BGR888" and controls == {"FrameRate": 10}
        return main

    def configure(self, main):
        self.width, self.height = main["size"]

    def start(self):
        pass

    def capture_array(self, name):
        assert name == "main"
        return np.full((self.height, self.width, 3), (200, 100, 50), np.uint8)

    def close(self):
        pass
"""


@pytest.mark.needs(program="ffmpeg")
def test_rows_are_cropped_and_colours_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fakes.install(tmp_path, "rpicam-vid", fakes.RPICAM)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    frames = cameras.started(cameras.source_of("rpicam:1", size=(100, 60), rate=20), 5)
    assert frames[-1].data.shape == (60, 100, 3)
    assert np.abs(frames[-1].data.astype(int) - (200, 100, 50)).max() <= 3
    expected = "-n -t 0 --flush --codec yuv420 --camera 1 --width 100 --height 60 --framerate 20 -o -"
    assert log.read_text().strip() == expected


@pytest.mark.needs(program="ffmpeg")
def test_a_camera_that_goes_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fakes.install(tmp_path, "rpicam-vid", fakes.RPICAM)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    source = cameras.source_of("rpicam", size=(64, 64), rate=20)
    source.check()
    gone = log.with_name(f"{log.name}.gone")
    gone.touch()
    for child in list(source._children):  # type: ignore[attr-defined]
        child.kill()
    status = cameras.status_with(source, state="reconnecting")
    cameras.status_with(
        source, detail="rpicam: no camera; check the cable, and look for it: rpicam-hello --list-cameras"
    )
    gone.unlink()
    cameras.status_with(source, state="running", reconnects=1)
    source.close()
    assert status.reconnects == 0
    gone.touch()
    with pytest.raises(InputError, match="no camera; check the cable"):
        cameras.source_of("rpicam").check()


def test_picamera2_is_used_without_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "picamera2.py").write_text(PICAMERA2)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="neither rpicam-vid nor picamera2 is installed"):
        cameras.source_of("rpicam")
    monkeypatch.syspath_prepend(tmp_path)
    frames = cameras.started(cameras.source_of("rpicam", size=(48, 32), rate=10, rotate=90), 3)
    assert frames[-1].data.shape == (48, 32, 3)
    assert frames[-1].data[0, 0].tolist() == [200, 100, 50]
    with pytest.raises(InputError, match="picamera2: list index out of range; check the cable"):
        cameras.source_of("rpicam:1", rate=10).check()
    sys.modules.pop("picamera2", None)


def test_a_wrong_address() -> None:
    with pytest.raises(InputError, match="use rpicam, or rpicam:1"):
        cameras.source_of("rpicam:front")
