"""Where windows come faster than answers: the oldest that waits is dropped and counted, or nothing is."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgekit.runner.errors import InputError
from edgekit.runner.inputs.windows import Span
from edgekit.runner.loader import load
from edgekit.runner.model import Model
from edgekit.runner.streaming.back_pressure import DropOldest
from edgekit.runner.streaming.window_cutter import Window
from tests.runner.streaming import recordings
from tests.runner.streaming.recordings import MEL, coded, of_stream, sound

RAW = np.zeros(1, np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(recordings.sound_bundle(tmp_path_factory.mktemp("bundle") / "a.edge.zip", 400, [MEL]), trial=False)


def numbered(count: int, first: int = 0) -> Iterator[Window]:
    for number in range(first, count):
        yield Window(RAW, Span(number, number + 1), 0)


def test_the_oldest_waiting_window_is_dropped_for_a_new_one() -> None:
    begun, ready = threading.Event(), threading.Event()

    def hasty() -> Iterator[Window]:
        yield from numbered(1)
        assert begun.wait(60)
        yield from numbered(10, 1)
        ready.set()

    windows = DropOldest(hasty(), max_waiting=3)
    found = iter(windows)
    assert next(found).span.start == 0  # begun: it is not dropped any more
    begun.set()
    assert ready.wait(60)
    assert [each.span.start for each in found] == [7, 8, 9] and windows.dropped == 6


def test_nothing_is_dropped_while_the_queue_has_space() -> None:
    windows = DropOldest(numbered(10), max_waiting=10)
    assert [each.span.start for each in windows] == list(range(10)) and windows.dropped == 0


def test_an_error_comes_behind_the_windows_before_it() -> None:
    def broken() -> Iterator[Window]:
        yield from numbered(2)
        raise InputError("cut")

    found = []
    with pytest.raises(InputError, match="cut"):
        for each in DropOldest(broken(), max_waiting=5):
            found.append(each.span.start)
    assert found == [0, 1]


def test_a_slow_model_drops_windows_of_a_pipe_and_counts_them(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer waits until all has been read. Then those that wait are the newest, and their answers right."""
    data = coded(sound(400 * 30 + 1600), "s16le")
    expected = dict((repr(span), scores) for span, scores in of_stream(model, [data], "s16le"))
    assert len(expected) == 30
    reader, writer = os.pipe()
    begun = threading.Event()

    def send() -> None:
        with open(writer, "wb", buffering=0) as pipe:
            pipe.write(data[:4000])  # the first window
            assert begun.wait(60)
            pipe.write(data[4000:])

    thread = threading.Thread(target=send)
    execute, calls = model.execute, 0

    def slow(x: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 1:
            begun.set()
            while stream.dropped < 24:
                time.sleep(0.001)
        return execute(x)

    monkeypatch.setattr(model, "execute", slow)
    with open(reader, "rb", buffering=0) as source:
        stream = model.stream(source, "s16le")
        assert stream.when_slow == "drop"
        thread.start()
        found = list(stream)
    thread.join()
    assert [each.span.start for each in found] == [0, *(400 * number for number in range(25, 30))]
    assert [each.dropped for each in found] == [0, *[24] * 5] and stream.dropped == 24
    for each in found:
        assert each.prediction.scores.tobytes() == expected[repr(each.span.to_dict())]  # type: ignore[union-attr]


def test_a_pipe_is_live_and_a_file_waits(model: Model, tmp_path: Path) -> None:
    (tmp_path / "a.pcm").write_bytes(coded(sound(9000), "s16le"))
    with open(tmp_path / "a.pcm", "rb") as source:
        assert model.stream(source, "s16le").when_slow == "wait"
    assert model.stream(iter(()), "s16le").when_slow == "wait"
    assert model.stream(iter(()), "s16le", when_slow="drop").when_slow == "drop"
    reader, writer = os.pipe()
    with open(reader, "rb") as source, open(writer, "wb"):
        assert model.stream(source, "s16le").when_slow == "drop"
        assert model.stream(source, "s16le", when_slow="wait").when_slow == "wait"


def test_dropping_needs_no_pipe(model: Model) -> None:
    """Arrays that something else gathers in a queue: nothing is lost where the model keeps up."""
    parts = np.split(np.frombuffer(coded(sound(9000), "s16le"), "<i2"), 9)
    found = model.stream(parts, when_slow="drop")
    got = list(found)
    assert got[-1].dropped + len(got) == 18 == found.dropped + len(got)


def test_a_stream_that_is_closed_stops_reading(model: Model) -> None:
    seen: list[int] = []
    go = threading.Event()

    def endless() -> Iterator[np.ndarray]:
        while True:
            seen.append(1)
            yield np.zeros(400, np.int16)
            if len(seen) > 20:
                go.wait(60)

    stream = model.stream(endless(), when_slow="drop")
    next(stream)
    stream.close()
    go.set()
    assert list(stream) == []
    for thread in threading.enumerate():
        if thread.name == "edgekit stream":
            thread.join(60)
            assert not thread.is_alive()
