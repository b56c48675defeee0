"""Cameras of Video4Linux, by a contract fake: no camera is here, so a small program stands for ffmpeg.

It checks that Video4Linux is used, and passes the requested size and rate to lavfi's test picture of the real
ffmpeg. The real v4l2 demuxer is used only where it refuses what is no camera.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.runner.errors import InputError
from tests import requirements
from tests.device.live.sources import cameras, fakes

pytestmark = pytest.mark.needs(program="ffmpeg")


def test_size_rate_and_format_are_requested_from_the_camera(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fakes.install(tmp_path, "ffmpeg", fakes.V4L2)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    source = cameras.source_of("v4l2:/dev/null#format=mjpeg", size=(80, 60), rate=20)
    frames = cameras.started(source, 5)
    assert frames[-1].data.shape == (60, 80, 3)
    expected = "-f v4l2 -input_format mjpeg -video_size 80x60 -framerate 20 -flags low_delay -i /dev/null"
    assert expected in log.read_text()


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "video").touch()
    for address, expected in (
        ("v4l2:/dev/video77", "No such file or directory; plug the camera in"),
        (f"v4l2:{tmp_path / 'video'}", "not a camera but a file"),
        ("v4l2:/dev/null", "not a camera; look for another"),
    ):
        with pytest.raises(InputError, match=expected) as caught:
            cameras.source_of(address).check()
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="unknown parameter 'fps' after the #; use format"):
        cameras.source_of("v4l2:/dev/null#fps=3")


def test_a_device_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements.condition(os.geteuid() == 0, "root, which can become another user", required_in_ci=False)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    with pytest.raises(InputError, match="no permission; run: sudo usermod -aG video"):
        cameras.source_of("v4l2:/dev/null").check()
