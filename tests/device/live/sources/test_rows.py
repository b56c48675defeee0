"""Rows from serial ports (a pseudo-terminal stands for the port), from CSV and from JSON."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.live.sources import rows
from edgekit.runner.errors import InputError
from tests import requirements
from tests.device.live.sources import cameras

READ_STDIN = """
from tests.device.live.sources import cameras
source = cameras.source_of("csv:-", cameras.VECTOR)
source.check()
print("ready", flush=True)
while frames := cameras.frames_of(source, 1):
    print(frames[0].data.tolist(), flush=True)
"""


@pytest.fixture
def port() -> Iterator[tuple[int, str]]:
    """The end of the device, and the path of the port."""
    import tty

    device, computer = os.openpty()
    tty.setraw(device)
    yield device, os.ttyname(computer)
    os.close(computer)


def test_a_serial_port(port: tuple[int, str]) -> None:
    device, path = port
    source = cameras.source_of(f"serial:{path}#baud=9600", cameras.VECTOR)
    source.check()
    os.write(device, b"5,6.5\r\nhello from the board\r\n7;8\r\n")
    frame = cameras.frames_of(source, 1)[0]
    status = cameras.status_with(source, frames=2)
    frames = [frame, *cameras.frames_of(source, 1)] if frame.number == 0 else [frame]
    os.write(device, b'{"y": 2, "x": 1.5, "z": 0}\n')
    frames += cameras.frames_of(source, 1)
    source.close()
    assert frames[-2].data.tolist() == [7.0, 8.0]
    assert frames[-1].data.tolist() == [1.5, 2.0]
    assert "left out: 1; the last: got 'hello from the board'" in status.detail
    assert status.state == "running"


def test_windows_of_a_serial_port(port: tuple[int, str]) -> None:
    device, path = port
    source = cameras.source_of(f"serial:{path}", cameras.WINDOW, hop=2)
    source.check()
    for number in range(8):
        os.write(device, b"%d %d\n" % (number, -number))
        time.sleep(0.02)
    cameras.status_with(source, frames=3)
    os.close(device)
    status = cameras.status_with(source, state="reconnecting")
    source.close()
    assert status.detail


def test_the_newest_row_wins_and_rows_that_stay_the_same_are_not_frozen(port: tuple[int, str]) -> None:
    device, path = port
    source = cameras.source_of(f"serial:{path}", cameras.VECTOR)
    source.check()
    for _ in range(50):
        os.write(device, b"1,2\n")
    while source.status().frames < 50:
        time.sleep(0.01)
    frame = source.newest(1.0)
    status = source.status()
    source.close()
    assert frame is not None
    assert (frame.number, status.frames, status.dropped, status.state) == (49, 50, 49, "running")


def test_a_csv_file_gives_the_rows_of_predict(tmp_path: Path) -> None:
    from edgekit.runner import inputs

    path = tmp_path / "rows.csv"
    path.write_text("y;x\n" + "".join(f"{number / 7:.9f};{number}\n" for number in range(20)))
    for raw in (cameras.VECTOR, cameras.WINDOW):
        source = cameras.source_of(f"csv:{path}", raw)
        source.check()
        frames = cameras.frames_of(source, 99)
        if raw is cameras.VECTOR:
            expected = [sample.raw for sample in inputs.samples(str(path), by_rows(raw))]
            assert np.array_equal(np.stack([frame.data for frame in frames]), np.stack(expected))
        else:
            assert [frame.data[0, 0] for frame in frames] == list(range(0, 17, 2))
        assert source.status().dropped == 0


def test_a_csv_file_is_played(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x,y\n" + "1,2\n" * 10)
    source = cameras.source_of(f"csv:{path}#rows=20", cameras.VECTOR)
    started = time.monotonic()
    source.check()
    cameras.frames_of(source, 10)
    assert time.monotonic() - started > 0.3


def test_csv_lines_on_standard_input() -> None:
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", READ_STDIN], stdin=pipe, stdout=pipe, cwd=requirements.ROOT)
    assert child.stdin is not None
    assert child.stdout is not None
    for line, answer in ((b"x,y\n", b"ready\n"), (b"1,2\n", b"[1.0, 2.0]\n"), (b"3,4\n", b"[3.0, 4.0]\n")):
        child.stdin.write(line)
        child.stdin.flush()
        assert child.stdout.readline() == answer
    assert child.communicate(timeout=30) == (b"", None)


def test_lines_that_are_rows() -> None:
    parse = rows.RowParser(cameras.VECTOR)
    for text, expected in (
        ("1,2", [1, 2]),
        (" -1.5\t2e3 ", [-1.5, 2000]),
        ("3; 4;", [3, 4]),
        ("[5, 6]", [5, 6]),
        ('{"y": 8, "x": 7}', [7, 8]),
        ("z,y,x", None),
        ("0,2,1", [1, 2]),
        ("", None),
    ):
        row = parse(text)
        assert (None if row is None else row[0].tolist()) == expected


@pytest.mark.parametrize(
    "text", ["1", "1,2,3", "x", "1,nan?", "[1]", '{"x": 1}', "[1, true]", "{", '{"x": "1", "y": 2}']
)
def test_lines_that_are_no_rows(text: str) -> None:
    with pytest.raises(InputError, match="send 2 numbers a line: x, y"):
        rows.RowParser(cameras.VECTOR)(text)


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x,y\n1,two\n")
    for address, expected in (
        ("serial:/dev/ttyS77", "No such file or directory; those here"),
        ("serial:/dev/null", "Inappropriate ioctl"),
        ("serial:/dev/null#baud=77", "baud: got 77; use a usual speed"),
        (f"csv:{tmp_path / 'text'}", "two"),
    ):
        with pytest.raises(InputError, match=expected) as caught:
            source = cameras.source_of(address, cameras.VECTOR)
            source.check()
            raise InputError(cameras.status_with(source, state="ended").detail)
        assert "\n" not in str(caught.value)
    for address, expected in (
        ("serial:", "no port"),
        ("serial:/dev/null#baud=fast", "use a whole number"),
        (f"csv:{tmp_path / 'none'}", "no such file"),
    ):
        with pytest.raises(InputError, match=expected):
            cameras.source_of(address, cameras.VECTOR)
    with pytest.raises(InputError, match="gives rows of numbers, but the bundle takes image"):
        cameras.source_of("serial:/dev/null")


def by_rows(raw: object) -> object:
    from dataclasses import replace

    return replace(raw, input_path=({"step": "decode_csv", "columns": ["x", "y"]}, {"step": "rows"}))  # type: ignore[type-var]
