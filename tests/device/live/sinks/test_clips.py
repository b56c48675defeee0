"""Films around events: read back by ffmpeg, in bounded memory, within the budget of the folder."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.device.live.sinks import avi, clips, open_sink
from edgekit.device.live.types import Event
from edgekit.runner.errors import InputError
from tests import requirements
from tests.device.live.running import run
from tests.device.live.sinks.broker import context, until
from tests.device.live.sinks.test_mqtt import started


def jpeg(number: int, size: tuple[int, int] = (64, 48)) -> bytes:
    """A picture whose grey is 5 × number."""
    buffer = io.BytesIO()
    Image.new("RGB", size, (5 * number,) * 3).save(buffer, "JPEG")
    return buffer.getvalue()


def at(time_s: float, source: str = "door") -> Event:
    return Event(f"seen-{time_s}", "visitor", source, "on", time_s, "person", 0.9, 1)


def play(path: Path) -> tuple[float, list[int]]:
    """The pictures per second of a film, and the grey of each, as ffmpeg reads them."""
    probe = [requirements.program("ffprobe"), "-v", "error", "-show_entries", "stream=avg_frame_rate,codec_name"]
    facts = json.loads(subprocess.run([*probe, "-of", "json", str(path)], capture_output=True, check=True).stdout)
    [stream] = facts["streams"]
    assert stream["codec_name"] == "mjpeg"
    words = ["-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    done = subprocess.run([requirements.program("ffmpeg"), *words], capture_output=True, check=True)
    assert not done.stderr
    pictures = np.frombuffer(done.stdout, np.uint8).reshape(-1, 48, 64)
    over, under = map(int, stream["avg_frame_rate"].split("/"))
    return over / under, [round(float(each.mean()) / 5) for each in pictures]


def test_ffmpeg_reads_every_picture(tmp_path: Path) -> None:
    (tmp_path / "a.avi").write_bytes(avi.make_film([jpeg(number) for number in range(1, 31)], seconds=6.0))
    assert play(tmp_path / "a.avi") == (5.0, list(range(1, 31)))
    (tmp_path / "one.avi").write_bytes(avi.make_film([jpeg(7)], seconds=1.0))
    assert play(tmp_path / "one.avi") == (1.0, [7])


def test_a_clip_has_the_seconds_before_and_after(tmp_path: Path) -> None:
    sink = open_sink({"to": f"{tmp_path}/events/", "clip_s": 2}, context(tmp_path))
    sink.check()
    with started(sink):
        for number in range(50):
            if number == 20:
                sink.send(at(100.0 + 20 / 5), b"jpeg")
                until(lambda: sink.status().sent == 1)
            sink.add_picture("door", 100.0 + number / 5, jpeg(number))
        films = list((tmp_path / "events").glob("*.avi"))
    assert [each.suffix for each in sorted((tmp_path / "events").iterdir())] == [".avi", ".jpg", ".json"]
    assert play(films[0]) == (pytest.approx(5.0, rel=1e-5), list(range(10, 31)))


def test_a_clip_that_is_not_complete_is_written_at_the_end(tmp_path: Path) -> None:
    with started(open_sink({"to": f"{tmp_path}/", "clip_s": 30}, context(tmp_path))) as sink:
        sink.add_picture("door", 100.0, jpeg(1))
        sink.send(at(100.0))
        until(lambda: sink.status().sent == 1)
    assert len(list(tmp_path.glob("*.avi"))) == 1


def test_the_clip_of_a_camera_that_goes_away_is_written_soon(tmp_path: Path) -> None:
    with started(open_sink({"to": f"{tmp_path}/", "clip_s": 1}, context(tmp_path))) as sink:
        sink.add_picture("door", 100.0, jpeg(1))
        sink.send(at(100.0))
        until(lambda: list(tmp_path.glob("*.avi")))


def test_films_count_for_the_budget(tmp_path: Path) -> None:
    folder, size = tmp_path / "events", len(avi.make_film([jpeg(1)] * 2, 1.0))
    folder.mkdir()
    options = {"to": f"{folder}/", "clip_s": 0.1, "max_bytes": 3 * size}
    with started(open_sink(options, context(tmp_path))) as sink:
        for number in range(20):
            sink.send(at(100.0 + number))
            until(lambda number=number: sink.status().sent == number + 1)
            for later in (0.0, 0.1, 0.5):
                sink.add_picture("door", 100.0 + number + later, jpeg(1))
            assert sum(each.stat().st_size for each in folder.iterdir()) <= 3 * size
    assert len(list(folder.glob("*.avi"))) == 2
    with started(open_sink({**options, "max_bytes": size - 100}, context(tmp_path))) as sink:
        sink.send(at(200.0))
        until(lambda: sink.status().sent == 1)
        for time_s in (200.0, 200.1, 200.5):
            sink.add_picture("door", time_s, jpeg(1))
        assert sink.status().failed == 1 and "a clip has" in sink.status().detail


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, "MOST_BYTES", 10_000)
    each = clips.Clips(1.0)
    made = [clip for number in range(100) for clip in each.begin(at(float(number)))]
    assert len(made) == 100 - clips.MOST_PENDING and made[0].event.time_s == 0.0
    assert made[0].film() is None
    each.end()
    each.begin(at(0.0))
    for number in range(100):
        each.add("door", number / 100, b"x" * 1000)
    [clip] = each.end()
    assert [time_s for time_s, _ in clip._pictures.kept] == [number / 100 for number in range(90, 100)]


def test_pictures_of_another_size_are_left_out() -> None:
    clip = clips.Clip(at(1.0), 1.0)
    for number in range(4):
        clip.add(number / 2, jpeg(number, (32, 32) if number < 2 else (64, 48)))
    film = clip.film()
    assert film is not None and film.count(b"00dc") == 2 * 2, "in the film and in its index"


@pytest.mark.parametrize(
    ("options", "sources", "message"),
    [
        ({"clip_s": 0}, None, "clip_s: got 0; use a number of seconds above 0, at most 30"),
        ({"clip_s": "5"}, None, "clip_s: got '5'; use a number of seconds"),
        ({"clip_s": 5}, {"ear": "audio"}, "clip_s: got 5, but no source gives pictures; leave it out"),
    ],
)
def test_options_that_cannot_work(options: Any, sources: Any, message: str, tmp_path: Path) -> None:
    given = context(tmp_path, **({"sources": sources} if sources else {}))
    with pytest.raises(InputError, match=message):
        open_sink({"to": f"{tmp_path}/", **options}, given)


def test_live_writes_the_film_of_an_event(colours: Path, film: Path, home: Path, tmp_path: Path) -> None:
    config, folder = tmp_path / "live.json", tmp_path / "events"
    content = {"model": str(colours), "sources": {"door": str(film)}, "rules": {"seen": {"label": "red"}}}
    config.write_text(json.dumps({**content, "sinks": [{"to": f"{folder}/", "clip_s": 0.5, "kinds": "on"}]}))
    done = run(home, "--config", config)
    assert done.returncode == 0, done.stderr
    [path] = folder.glob("*.avi")
    words = ["-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    pixels = subprocess.run([requirements.program("ffmpeg"), *words], capture_output=True, check=True).stdout
    pictures = np.frombuffer(pixels, np.uint8).reshape(-1, 240, 320, 3).astype(int)
    red = [bool((each[:, :, 0] - each[:, :, 1] > 100).any()) for each in pictures]
    assert red == sorted(red) and not red[0] and red[-1], "before the event there is none, after it there is"
