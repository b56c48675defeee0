"""A recorded stream gives the events that it gave when it was live."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.device.live.recording import from_line, read, replay, to_line
from edgekit.device.live.rules import Rules
from edgekit.device.live.types import Answer
from edgekit.runner.errors import InputError
from tests.device.live.rules.answers import LABELS, SIZE, answer, boxes, detector, person
from tests.device.live.scenes import scene

CONFIG = {
    "seen": {"label": "person", "threshold": 0.8, "low_threshold": 0.3, "off_after_s": 0.3, "majority": 3},
    "passed": {"line": [[0.5, 0], [0.5, 1]], "threshold": 0.6, "low_threshold": 0.1},
    "inside": {"zone": [[100, 100], [400, 100], [400, 400], [100, 400]], "count": "occupancy", "on_after_s": 0.2},
}


def stream() -> list[Answer]:
    """The scenes of the tracker on two sources."""
    answers = []
    for seed, source in ((5, "door"), (6, "yard")):
        for number, (sides, scores) in enumerate(scene(seed)):
            result = [("person", score, tuple(box)) for box, score in zip(sides, scores, strict=True)]
            answers.append(answer(boxes(*result), number, source=source))
    return answers


def write(path: Path, answers: list[Answer]) -> Path:
    path.write_text("".join(map(to_line, answers)), encoding="utf-8")
    return path


def rules() -> Rules:
    return Rules.from_config(CONFIG, LABELS, "detection", SIZE)


def test_a_replay_gives_the_events_of_the_live_stream(tmp_path: Path) -> None:
    live = rules()
    expected = [event for each in stream() for event in live.update(each)]
    assert {each.rule for each in expected} == set(CONFIG) and len(expected) > 20
    assert list(replay(write(tmp_path / "stream.jsonl", stream()), {"": rules()})) == expected
    assert len({each.id for each in expected}) == len(expected)


@given(st.floats(0, 4e9), st.floats(0, 1), st.text(min_size=1).filter(str.isprintable))
def test_a_line_keeps_every_bit(time_s: float, score: float, source: str) -> None:
    whole = Answer(source, 7, time_s, (640, 480), {"values": {"é": score}})
    line = to_line(whole)
    assert line.count("\n") == 1 and line.endswith("\n")
    assert from_line(line.encode()) == whole


def test_a_last_line_that_was_cut_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "stream.jsonl", stream()[:3])
    path.write_bytes(path.read_bytes()[:-20])
    assert [each.number for each in read(path)] == [0, 1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{\n", "line 2: got b'{\\n', which is not JSON"),
        (b"3\n", "line 2: answer: got '3'; must be an object"),
        (b'{"source": "a"}\n', "line 2: answer: unknown keys [], missing keys ['content', 'number', 'size', 'time_s']"),
        (b'{"source":"a","number":0,"time_s":NaN,"size":[1,1],"content":{}}\n', "which is not JSON"),
        (b'{"source":"a","number":-1,"time_s":0,"size":[1,1],"content":{}}\n', "answer.number: got '-1'"),
        (b'{"source":"a","number":0,"time_s":0,"size":[1],"content":{}}\n', "answer.size: got '[1]'; must be width"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = write(tmp_path / "stream.jsonl", stream()[:1])
    path.write_bytes(path.read_bytes() + line + path.read_bytes())
    with pytest.raises(InputError) as raised:
        list(read(path))
    assert message in str(raised.value)
    assert str(raised.value).endswith("record the stream again")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file or directory"):
        list(read(tmp_path / "none.jsonl"))


def test_a_zone_outside_the_recorded_picture_is_named(tmp_path: Path) -> None:
    small = Rules.from_config({"a": {"zone": [[0, 0], [700, 0], [700, 400]]}}, LABELS, "detection")
    with pytest.raises(InputError, match="outside the picture of 640x480"):
        list(replay(write(tmp_path / "stream.jsonl", stream()), {"small": small}))


def test_the_answers_of_several_models_have_their_names(tmp_path: Path) -> None:
    named = [replace(each, model=model) for each in stream() for model in ("a", "b")]
    assert from_line(to_line(named[0]).encode()) == named[0]
    by_model = {model: Rules.from_config({f"{model}-seen": CONFIG["seen"]}, LABELS, "detection") for model in "ab"}
    live = {model: Rules.from_config({f"{model}-seen": CONFIG["seen"]}, LABELS, "detection") for model in "ab"}
    expected = [event for each in named for event in live[each.model].update(each)]
    path = write(tmp_path / "stream.jsonl", named)
    assert list(replay(path, by_model)) == expected and {each.rule for each in expected} == {"a-seen", "b-seen"}
    with pytest.raises(InputError, match="has answers of the model 'b', not of a; name its bundle"):
        list(replay(path, {"a": rules()}))
    with pytest.raises(InputError, match="has answers of one model, got a, b; name only its"):
        list(replay(write(tmp_path / "one.jsonl", stream()[:1]), {"a": rules(), "b": rules()}))


def test_a_source_that_was_not_recorded_is_named(tmp_path: Path) -> None:
    config = {"seen": {**CONFIG["seen"], "sources": "dor"}}
    path = write(tmp_path / "stream.jsonl", stream())
    with pytest.raises(InputError, match="rules.seen.sources: got 'dor'; the recording has door, yard"):
        next(replay(path, {"": Rules.from_config(config, LABELS, "detection"), "other": rules()}))
    assert not list(replay(path, {"": Rules.from_config(config, LABELS, "detection")}, has_all_sources=False))


def test_a_line_is_json_for_other_programs() -> None:
    values = json.loads(to_line(answer(boxes(person()), 3)))
    assert values["size"] == [640, 480] and values["content"]["boxes"][0]["label"] == "person"
    assert detector().update(from_line(to_line(answer(boxes(person()), 3)).encode()))
