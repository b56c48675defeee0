"""Events as JSON lines in a file that is rotated, and on standard output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit.device.live.sinks import open_sink
from edgekit.runner.errors import InputError
from tests.device.live.sinks.broker import context, event, until
from tests.device.live.sinks.test_mqtt import started


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "log" / "events.jsonl"
    for numbers in (range(3), range(3, 5)):
        sink = open_sink(str(path), context(tmp_path))
        sink.check()
        with started(sink):
            for number in numbers:
                sink.send(event(number, zone="gate"))
            until(lambda: not sink.status().waiting)  # noqa: B023
    assert lines(path) == [{**event(number, zone="gate").to_dict(), "device": "pi-7"} for number in range(5)]


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"id": "hal')
    with started(open_sink(f"jsonl:{path}", context(tmp_path))) as sink:
        sink.send(event(1))
        until(lambda: sink.status().sent == 1)
    first, second = path.read_text().splitlines()
    assert first == '{"id": "hal' and json.loads(second)["id"] == "visitor-1"


def test_files_are_rotated(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with started(open_sink({"to": str(path), "max_bytes": 1000, "keep": 2}, context(tmp_path))) as sink:
        for number in range(40):
            sink.send(event(number))
        until(lambda: sink.status().sent == 40)
    names = sorted(each.name for each in tmp_path.glob("events*"))
    assert names == ["events.jsonl", "events.jsonl.1", "events.jsonl.2"]
    files = [tmp_path / name for name in reversed(names)]
    assert all(each.stat().st_size <= 1000 for each in files)
    ids = [line["id"] for each in files for line in lines(each)]
    assert ids == [f"visitor-{number}" for number in range(40 - len(ids), 40)] and len(ids) > 10


def test_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with started(open_sink("-", context(tmp_path))) as sink:
        sink.check()
        sink.send(event(1))
        until(lambda: sink.status().sent == 1)
    assert json.loads(capsys.readouterr().out)["id"] == "visitor-1"


def test_a_file_that_disappears_and_a_disk_that_refuses(tmp_path: Path) -> None:
    path = tmp_path / "log" / "events.jsonl"
    sink = open_sink(str(path), context(tmp_path))
    sink.check()
    with started(sink):
        (tmp_path / "log").rmdir()
        sink.send(event(1))
        until(lambda: sink.status().failed == 1)
        assert sink.status().detail == "No such file or directory"
        (tmp_path / "log").mkdir()
        sink.send(event(2))
        until(lambda: sink.status().sent == 1)
    assert [line["id"] for line in lines(path)] == ["visitor-2"]


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "file").touch()
    for to, message in (
        (f"{tmp_path}/folder.jsonl", "folder.jsonl: is a folder; name another file"),
        (f"jsonl:{tmp_path}/file/events", "file: .*; name a folder that this user may write to"),
    ):
        with pytest.raises(InputError, match=message):
            open_sink(to, context(tmp_path)).check()
    with pytest.raises(InputError, match="the file is missing; use jsonl:FILE"):
        open_sink("jsonl:", context(tmp_path))
    with pytest.raises(InputError, match="max_bytes: got 0; use a whole number from 1"):
        open_sink({"to": "-", "max_bytes": 0}, context(tmp_path))
