"""A folder of pictures and JSON files within a budget of bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit.device.live.sinks import open_sink
from edgekit.runner.errors import InputError
from tests.device.live.sinks.broker import context, event, until
from tests.device.live.sinks.test_mqtt import started


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_picture_and_its_event(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    sink = open_sink(f"folder:{folder}", context(tmp_path))
    sink.check()
    with started(sink):
        sink.send(event(1), b"jpeg")
        sink.send(event(2, rule="a/b"))
        until(lambda: sink.status().sent == 2)
    first, second, third = names(folder)
    assert (first, second) == ("19700101T001641.000Z-visitor-1.jpg", "19700101T001641.000Z-visitor-1.json")
    assert third.startswith("19700101T001642.000Z-a_b-2-") and third.endswith(".json")
    assert (folder / first).read_bytes() == b"jpeg"
    assert json.loads((folder / second).read_bytes()) == {**event(1).to_dict(), "device": "pi-7"}


def test_the_oldest_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / "holiday.jpg").write_bytes(bytes(5000))
    options = {"to": f"{folder}/", "max_bytes": 10_000}
    for numbers in (range(20), range(20, 30)):
        with started(open_sink(options, context(tmp_path))) as sink:
            for number in numbers:
                sink.send(event(number), bytes(1000))
            until(lambda: not sink.status().waiting)
            assert sink.status().failed == 0
        own = [each for each in folder.iterdir() if each.name != "holiday.jpg"]
        assert 8000 < sum(each.stat().st_size for each in own) <= 10_000
        kept = sorted({each.stem for each in own})
        assert kept[-1].endswith(f"visitor-{numbers[-1]}") and len(kept) >= 8
    assert (folder / "holiday.jpg").exists()
    with started(open_sink({**options, "max_bytes": 3000}, context(tmp_path))) as sink:
        sink.send(event(30), bytes(4000))
        until(lambda: sink.status().failed == 1)
        assert "an event has" in sink.status().detail and "more than max_bytes" in sink.status().detail
    assert sum(each.stat().st_size for each in folder.iterdir()) <= 3000 + 5000


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file/events: .*; name a folder that this user may write to"):
        open_sink(f"folder:{tmp_path}/file/events", context(tmp_path)).check()
    with pytest.raises(InputError, match="the path is missing; use folder:"):
        open_sink("folder:", context(tmp_path))
