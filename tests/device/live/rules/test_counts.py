"""Objects that are counted across lines and in zones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.device.live.rules import Rules
from edgekit.device.live.types import Answer, Event
from edgekit.runner.errors import InputError
from tests.device.live.rules.answers import LABELS, SIZE, boxes, detector, events, person

STEEP, FLAT = [[0.5, 0], [0.5, 1]], [[0, 0.5], [1, 0.5]]
LEFT_HALF = [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]


def path(*xs: float, y: float = 400.0) -> list[dict[str, Any]]:
    """A person who goes from one x to the next, 8 pixels in a frame, and waits for two frames at first."""
    places = [xs[0]] * 2
    for x in xs[1:]:
        step = 8 if x > places[-1] else -8
        while abs(x - places[-1]) >= 8:
            places.append(places[-1] + step)
    return [boxes(person(x=each, y=y)) for each in places]


def counts(result: Sequence[Event]) -> list[tuple[Any, ...]]:
    return [(each.details["count"], each.details.get("direction")) for each in result]


def test_an_object_that_crosses_a_line_is_counted() -> None:
    (event,) = events(detector("passed", label="person", line=STEEP, count=True), path(200, 440))
    assert (event.kind, event.label, event.score) == ("count", "person", 0.9)
    assert event.details == {"count": 1, "track": 1, "box": [308.0, 300.0, 348.0, 400.0], "direction": "right"}
    assert event.id == f"{round(event.time_s * 1000)}.{event.frame}.passed.count1right.door"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(1, "right"), (2, "left")]),
        ({"direction": "left"}, [(1, "left")]),
        ({"count": "crossings"}, [(1, "right"), (2, "left"), (3, "right"), (4, "left")]),
        ({"count": "crossings", "direction": "right"}, [(1, "right"), (2, "right")]),
    ],
)
def test_an_object_that_returns_counts_once_for_each_direction(
    options: dict[str, Any], expected: list[tuple[int, str]]
) -> None:
    assert counts(events(detector(line=STEEP, **options), path(200, 440, 200, 440, 200))) == expected


def test_a_line_has_ends() -> None:
    """Persons above and below the lower half of a line, with their feet in the upper and the lower half."""
    rules = {"line": [[0.5, 0.5], [0.5, 1]]}
    assert counts(events(detector(**rules), path(200, 440, y=200))) == []
    assert counts(events(detector(**rules), path(200, 440, y=280))) == [(1, "right")]
    assert counts(events(detector(**rules, point="center"), path(200, 440, y=280))) == []


def test_pixels_and_shares_are_the_same() -> None:
    stream = path(200, 440, 200)
    ours = events(detector(line=STEEP), stream)
    assert events(detector(line=[[320, 0], [320, 480]]), stream) == ours


def test_an_object_that_stays_on_the_line_is_not_counted() -> None:
    on_line = [boxes(person(x=320))] * 5
    before, after = path(200, 312), [boxes(person(x=x)) for x in (312, 304)]
    assert events(detector(line=STEEP), before + on_line + after) == []
    assert len(events(detector(line=STEEP), before + on_line + [boxes(person(x=328))])) == 1


def test_an_object_that_is_hidden_at_the_line_is_counted() -> None:
    stream = path(200, 440)
    hidden = [boxes() if 12 <= number <= 19 else each for number, each in enumerate(stream)]
    (event,) = events(detector(line=STEEP), hidden)
    assert event.frame == 20
    weak = [boxes(person(0.2, x=200 + 8 * (n - 1))) if 12 <= n <= 19 else each for n, each in enumerate(stream)]
    (event,) = events(detector(line=STEEP, low_threshold=0.1), weak)
    assert event.frame < 20


def test_only_its_labels_are_counted() -> None:
    car = [boxes(person(x=200 + 8 * number, label="car")) for number in range(30)]
    assert events(detector(label="person", line=STEEP), car) == []
    assert [each.label for each in events(detector(line=STEEP), car)] == ["car"]


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from([1, -1]), st.integers(4, 12), st.booleans()), max_size=3),
    st.sampled_from(["tracks", "crossings"]),
)
def test_the_count_is_the_number_of_crossings(passages: list[tuple[int, int, int, bool]], count: str) -> None:
    """Persons in lanes of their own, who begin at some time, go to one side at some speed, and return or not."""
    frames: list[list[Any]] = [[] for _ in range(200)]
    expected = 0
    for lane, (first, sign, speed, returns) in enumerate(passages):
        y = 120.0 + 150 * lane
        half = [320.5 + sign * speed * step for step in range(-12, 13)]
        places = half + half[::-1] if returns else half
        for number, x in enumerate(places):
            frames[first + number].append(person(x=x, y=y))
        expected += 1 + returns
    result = events(detector(line=STEEP, count=count), [boxes(*each) for each in frames])
    assert [each.details["count"] for each in result] == list(range(1, expected + 1))
    assert len({each.id for each in result}) == len(result)


def test_an_object_in_a_zone_is_counted_once() -> None:
    stream = path(400, 200, 400, 200)
    result = events(detector(zone=LEFT_HALF, count="tracks"), stream)
    assert [(each.details["count"], each.details["track"]) for each in result] == [(1, 1)]
    assert 200 < result[0].details["box"][0] <= 300


def test_an_object_is_counted_after_it_has_stayed() -> None:
    stay = path(400, 200) + [boxes(person(x=200))] * 30
    (event,) = events(detector(zone=LEFT_HALF, count=True, on_after_s=3), stay)
    first = next(number for number, each in enumerate(stay) if each["boxes"][0]["box"][0] <= 300)
    assert event.frame == first + 30
    assert events(detector(zone=LEFT_HALF, count=True, on_after_s=4), path(400, 200, 400, 200, 400)) == []


def crowd(*numbers: int) -> list[dict[str, Any]]:
    """So many persons side by side, each in frames of its own number."""
    return [boxes(*(person(x=30 + 50 * each) for each in range(number))) for number in numbers]


def test_an_occupancy_follows_the_number_of_objects() -> None:
    result = events(detector(count="occupancy"), crowd(1, 2, 2, 3, 3, 3, 1, 0))
    assert [(each.frame, each.details["count"]) for each in result] == [(0, 1), (2, 2), (4, 3), (6, 1), (7, 0)]


def test_an_occupancy_changes_after_it_has_stayed() -> None:
    """A number that is higher or lower for less than half a second changes nothing; a rise gives its least number.

    The third person comes in frame 11, and has a track from frame 12 on.
    """
    stream = crowd(*[2] * 8, 0, 2, 2, *[3] * 3, *[4] * 2, *[3] * 8, *[0] * 8)
    result = events(detector(count="occupancy", off_after_s=0.5), stream)
    assert [each.details["count"] for each in result] == [2, 3, 4, 3, 0]
    result = events(detector(count="occupancy", on_after_s=0.5, off_after_s=0.5), stream)
    assert [(each.frame, each.details["count"]) for each in result] == [(5, 2), (17, 3), (29, 0)]


@given(st.lists(st.integers(0, 4), max_size=40), st.floats(0, 1), st.floats(0, 1))
def test_an_occupancy_never_repeats_a_number(numbers: list[int], on_after_s: float, off_after_s: float) -> None:
    result = events(detector(count="occupancy", on_after_s=on_after_s, off_after_s=off_after_s), crowd(*numbers))
    reported = [0, *(each.details["count"] for each in result)]
    assert all(first != second for first, second in zip(reported, reported[1:], strict=False))
    assert all(0 <= each <= max(numbers, default=0) for each in reported)


def test_rules_that_watch_the_same_objects_agree_about_their_tracks() -> None:
    config = {"in": {"line": STEEP, "direction": "right"}, "out": {"line": STEEP, "direction": "left"}}
    result = events(Rules.from_config(config, LABELS, "detection", SIZE), path(200, 440, 200))
    assert [(each.rule, each.details["track"]) for each in result] == [("in", 1), ("out", 1)]


def test_answers_without_boxes_are_refused() -> None:
    with pytest.raises(InputError, match="has no box; use the rules of the bundle that answered"):
        events(detector(line=STEEP), [{"top": [["person", 0.9]]}])


def test_an_answer_without_a_picture_is_refused() -> None:
    rules = detector(line=STEEP)
    with pytest.raises(InputError, match=r"rules\.rule\.line: the answer is not about a picture"):
        rules.update(Answer("door", 0, 1.0, (0, 0), boxes(person())))
