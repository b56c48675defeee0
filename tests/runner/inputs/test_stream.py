"""Raw frames from a pipe: the same answers as for the same pictures in files, one line each, at once."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import raw_frames
from tests import requirements
from tests.runner import flat
from tests.runner.flat import PICTURE

RUNNER = [sys.executable, "-m", "edgekit.runner"]
EXACT = RawSpec("image", (48, 64, 3), "uint8")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("flat")
    more = {"exact": EXACT, "grey": RawSpec("image", (7, 5, 1), "uint8")}
    return {**flat.kinds(folder), **{name: flat.write(folder / f"{name}.edge.zip", raw) for name, raw in more.items()}}


def film(pixels: str, size: str = "64x48", frames: int = 4, video: str = "testsrc2") -> bytes:
    """Frames of one of ffmpeg's moving test pictures."""
    command = [
        requirements.program("ffmpeg"),
        "-v",
        "error",
        "-f",
        "lavfi",
        "-i",
        f"{video}=size={size}:rate=5",
        "-frames:v",
        str(frames),
    ]
    return subprocess.run([*command, "-f", "rawvideo", "-pix_fmt", pixels, "-"], capture_output=True, check=True).stdout


def predict(bundle: Path, *names: object, stdin: bytes = b"", code: int = 0) -> tuple[list[dict[str, Any]], str]:
    """Run `edgerun predict` as a process; return its answers and its standard error."""
    command = [*RUNNER, "predict", str(bundle), *map(str, names), "--no-trial", "--json"]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=120)
    assert done.returncode == code, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


def sampled(data: bytes, pixels: str, size: tuple[int, int], raw: RawSpec) -> list[np.ndarray]:
    return [sample.copy() for sample, _ in raw_frames.frames(io.BytesIO(data), pixels, *size, raw)]


@pytest.mark.parametrize("bundle", ["image", "exact", "grey"])
@pytest.mark.parametrize(("pixels", "order"), [("rgb24", [0, 1, 2]), ("bgr24", [2, 1, 0]), ("gray", [0])])
def test_frames_give_what_the_same_pictures_give(
    pixels: str, order: list[int], bundle: str, kinds: dict[str, Path], tmp_path: Path
) -> None:
    data = film(pixels)
    frames = np.frombuffer(data, np.uint8).reshape(4, 48, 64, len(order))[..., order]
    for number, frame in enumerate(frames):
        Image.fromarray(frame.squeeze()).save(tmp_path / f"{number}.png")
    piped, _ = predict(kinds[bundle], "--stream", pixels, "--size", "64x48", stdin=data)
    filed, _ = predict(kinds[bundle], tmp_path)
    assert [line["input"] for line in piped] == [0, 1, 2, 3]
    assert [line["scores"] for line in piped] == [line["scores"] for line in filed]
    assert len({tuple(line["scores"]) for line in piped}) == 4
    assert all(set(line["timing_ms"]) == {"read", "preprocess", "execute", "postprocess"} for line in piped)


def test_ffmpeg_itself_is_piped_in(kinds: dict[str, Path]) -> None:
    """As a shell would: both at once, the first answers before the film is over."""
    line = (
        f"{requirements.program('ffmpeg')} -v error -f lavfi "
        "-i testsrc=size=64x48:rate=25 -frames:v 60 -f rawvideo -pix_fmt rgb24 - | "
        f"{sys.executable} -m edgekit.runner predict {kinds['image']} --stream rgb24 --size 64x48 --no-trial --top 1"
    )
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 120
    assert lines[0].startswith("frame 0: ") and lines[118].startswith("frame 59: ") and "%" in lines[1]


@pytest.mark.parametrize("video", ["testsrc", "testsrc2", "smptebars", "rgbtestsrc"])
@pytest.mark.parametrize("size", [(64, 48), (62, 46)])
def test_yuv420p_becomes_the_colours_that_ffmpeg_makes_of_it(size: tuple[int, int], video: str, tmp_path: Path) -> None:
    width, height = size
    data = film("yuv420p", f"{width}x{height}", 2, video)
    command = [
        requirements.program("ffmpeg"),
        "-v",
        "error",
        "-f",
        "rawvideo",
        "-pix_fmt",
        "yuv420p",
        "-s",
        f"{width}x{height}",
        "-i",
        "-",
    ]
    done = subprocess.run(
        [*command, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"], input=data, capture_output=True, check=True
    )
    expected = np.frombuffer(done.stdout, np.uint8).reshape(2, height, width, 3)
    found = sampled(data, "yuv420p", size, RawSpec("image", (height, width, 3), "uint8"))
    for one, other in zip(found, expected, strict=True):
        assert np.abs(one.astype(int) - other).max() <= 3
        assert np.ptp(one) > 200


def test_yuv420p_of_known_colours() -> None:
    """White, black, and the three primaries of BT.601 in limited range, as the standard's table has them."""
    colours = {
        (235, 128, 128): (255, 255, 255),
        (16, 128, 128): (0, 0, 0),
        (81, 90, 240): (255, 0, 0),
        (145, 54, 34): (0, 255, 0),
        (41, 240, 110): (0, 0, 255),
        (255, 128, 128): (255, 255, 255),
        (0, 128, 128): (0, 0, 0),
    }
    for (luma, blue, red), rgb in colours.items():
        data = bytes([luma] * 15 + [blue] * 6 + [red] * 6)  # 5 by 3 pixels: the colours' sides are rounded up
        (sample,) = sampled(data, "yuv420p", (5, 3), RawSpec("image", (3, 5, 3), "uint8"))
        assert np.abs(sample.astype(int) - rgb).max() <= 2


@pytest.mark.parametrize(
    ("pixels", "size", "size_bytes"),
    [("rgb24", (640, 480), 921600), ("gray", (3, 5), 15), ("yuv420p", (640, 480), 460800), ("yuv420p", (5, 3), 27)],
)
def test_a_frame_has_so_many_bytes(pixels: str, size: tuple[int, int], size_bytes: int) -> None:
    assert raw_frames.frame_size_bytes(pixels, *size) == size_bytes
    raw = RawSpec("image", (size[1], size[0], 3), "uint8")
    assert len(sampled(bytes(2 * size_bytes), pixels, size, raw)) == 2


def test_a_cut_last_frame_is_an_error_and_the_whole_ones_stand(kinds: dict[str, Path]) -> None:
    data = film("rgb24", frames=3)
    lines, errors = predict(kinds["image"], "--stream", "rgb24", "--size", "64x48", stdin=data[:-100], code=4)
    assert [line["input"] for line in lines] == [0, 1]
    (complaint,) = [line for line in errors.splitlines() if line.startswith("edgerun: ")]
    assert "frame 2: cut short: 9116 bytes arrived" in complaint and "64x48 has 9216" in complaint


def test_a_pipe_that_gives_nothing_is_an_error(kinds: dict[str, Path]) -> None:
    lines, errors = predict(kinds["image"], "--stream", "gray", "--size", "64x48", code=4)
    assert lines == [] and "no frame arrived" in errors


def test_only_the_requested_number_of_frames_is_answered(kinds: dict[str, Path]) -> None:
    more = film("rgb24", frames=4)
    lines, _ = predict(kinds["image"], "--stream", "rgb24", "--size", "64x48", "--frames", 2, stdin=more)
    assert [line["input"] for line in lines] == [0, 1]


@pytest.mark.parametrize("bundle", ["vector", "audio", "pixels"])
def test_frames_for_a_bundle_that_takes_none_are_refused(bundle: str, kinds: dict[str, Path]) -> None:
    lines, errors = predict(kinds[bundle], "--stream", "rgb24", "--size", "2x2", stdin=bytes(12), code=4)
    assert lines == [] and "not frames of a camera" in errors


def test_without_pillow_frames_of_the_right_size_are_read_and_others_get_the_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = film("rgb24", frames=1)
    monkeypatch.setitem(sys.modules, "PIL", None)
    (sample,) = sampled(data, "rgb24", (64, 48), EXACT)
    assert sample.tobytes() == data
    with pytest.raises(InputError, match="pip install pillow.*-vf scale=10:6 -pix_fmt rgb24"):
        sampled(data, "rgb24", (64, 48), PICTURE)


def test_one_buffer_serves_every_frame() -> None:
    frames = raw_frames.frames(io.BytesIO(bytes(3 * 9216)), "rgb24", 64, 48, EXACT)
    first = next(frames)[0]
    assert all(np.shares_memory(first, sample) for sample, _ in frames)


class Live:
    """A runner that is fed by hand."""

    def __init__(self, bundle: Path) -> None:
        command = [*RUNNER, "predict", str(bundle), "--stream", "rgb24", "--size", "64x48", "--no-trial", "--json"]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(command, **pipes, env=flat.buffered())

    def feed(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], 60)[0]:
            self.process.kill()
            pytest.fail("the answer was kept back")
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def complaint(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


def test_each_answer_comes_at_once_and_control_c_ends_it(kinds: dict[str, Path]) -> None:
    live, data = Live(kinds["exact"]), film("rgb24", frames=2)
    live.feed(data[:9216])
    assert live.answer()["input"] == 0  # before a byte of the next frame was sent
    live.feed(data[9216:10000])
    live.feed(data[10000:])
    assert live.answer()["input"] == 1
    live.process.send_signal(signal.SIGINT)
    assert live.process.wait(timeout=30) == 130
    lines = [line for line in live.complaint().splitlines() if not line.startswith(("INFO", "W0"))]
    assert lines == ["edgerun: interrupted"]


def test_a_reader_that_leaves_ends_it_without_a_traceback(kinds: dict[str, Path]) -> None:
    live, data = Live(kinds["exact"]), film("rgb24", frames=1)
    live.feed(data)
    live.answer()
    assert live.process.stdout is not None
    live.process.stdout.close()
    live.feed(data)
    assert live.process.wait(timeout=30) == 141
    assert "Traceback" not in live.complaint() and "Exception" not in live.complaint()


def test_the_wait_for_a_frame_is_not_counted_as_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A camera that sends a frame's first part after a second, and the other parts a millisecond apart."""
    now_ms = 0

    class Camera(io.BytesIO):
        def readinto(self, view: Any) -> int:
            nonlocal now_ms
            now_ms += 1000 if self.tell() % 9216 == 0 else 1
            return super().readinto(view[:4000])

    monkeypatch.setattr(raw_frames, "perf_counter_ns", lambda: now_ms * 1_000_000)
    frames = raw_frames.frames(Camera(bytes(2 * 9216)), "rgb24", 64, 48, EXACT)
    assert [read_ms for _, read_ms in frames] == [2.0, 2.0]


def test_a_terminal_is_no_pipe(kinds: dict[str, Path]) -> None:
    leader, follower = os.openpty()
    command = [*RUNNER, "predict", str(kinds["exact"]), "--stream", "rgb24", "--size", "64x48", "--no-trial"]
    done = subprocess.run(command, stdin=follower, capture_output=True, text=True, timeout=60)
    os.close(leader)
    os.close(follower)
    assert done.returncode == 4 and "nothing is piped in" in done.stderr
