"""Conditions that begin and end."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.device.live.rules import Rules
from edgekit.runner.errors import InputError
from edgekit.runner.postprocess.anomaly import Anomaly
from edgekit.runner.postprocess.classification import Classification
from edgekit.runner.postprocess.multi_label import MultiLabel
from edgekit.runner.postprocess.regression import Regression
from tests.device.live.rules.answers import LABELS, START_S, answer, boxes, changes, detector, events, person

NOTHING = boxes()


def scores(*values: float) -> list[dict[str, Any]]:
    return [boxes(person(each)) if each else NOTHING for each in values]


def test_a_label_goes_on_and_off() -> None:
    result = events(detector(label="person"), [NOTHING, boxes(person(0.6), person(0.8)), NOTHING])
    assert [each.to_dict() for each in result] == [
        {
            "id": "1700000000200.1.rule.on.door",
            "rule": "rule",
            "source": "door",
            "kind": "on",
            "time": START_S + 0.1,
            "label": "person",
            "score": 0.8,
            "frame": 1,
            "box": [280.0, 300.0, 320.0, 400.0],
        },
        {
            "id": "1700000000300.2.rule.off.door",
            "rule": "rule",
            "source": "door",
            "kind": "off",
            "time": START_S + 0.2,
            "label": "person",
            "score": 0.0,
            "frame": 2,
            "seconds": 0.1,
        },
    ]


def test_other_labels_do_not_count() -> None:
    car = boxes(person(label="car"))
    assert events(detector(label="person"), [car]) == []
    assert [each.label for each in events(detector(), [car])] == ["car"]
    assert [each.label for each in events(detector(label=["car", "person"]), [car])] == ["car"]


def test_a_lower_threshold_keeps_it_on() -> None:
    stream = scores(0.5, 0.7, 0.5, 0.4, 0.39, 0.5, 0.6)
    assert changes(events(detector(threshold=0.6, low_threshold=0.4), stream)) == [(1, "on"), (4, "off"), (6, "on")]
    assert changes(events(detector(threshold=0.6), stream)) == [(1, "on"), (2, "off"), (6, "on")]


def test_it_holds_before_it_changes() -> None:
    """10 frames a second: a condition that began in frame 3 has held for half a second in frame 8."""
    stream = scores(*[0.9] * 2, 0, *[0.9] * 8, 0, 0, 0.9, *[0] * 9)
    assert changes(events(detector(on_after_s=0.5, off_after_s=0.3), stream)) == [(8, "on"), (17, "off")]


def test_it_does_not_go_on_again_while_it_cools_down() -> None:
    stream = scores(0.9, 0, *[0.9] * 30)
    assert changes(events(detector(cool_down_s=1), stream)) == [(0, "on"), (1, "off"), (11, "on")]


def test_most_of_the_last_frames_decide() -> None:
    stream = scores(0.9, 0, 0.9, 0.9, 0, 0.9, 0, 0, 0.9, 0)
    assert changes(events(detector(majority=3), stream)) == [(2, "on"), (6, "off")]
    assert events(detector(majority=5), scores(0.9, 0.9, 0, 0, 0)) == []


def test_several_objects_are_needed() -> None:
    one, two = boxes(person(0.9)), boxes(person(0.9), person(0.7), person(0.4))
    result = events(detector(label="person", at_least=2), [one, two, one])
    assert [(each.kind, each.score) for each in result] == [("on", 0.7), ("off", 0.0)]


@pytest.mark.parametrize(("point", "expected"), [("bottom", []), ("center", [(0, "on")])])
def test_an_object_is_in_a_zone_by_its_point(point: str, expected: list[tuple[int, str]]) -> None:
    """The upper three quarters of the picture, in shares and in pixels; the person stands at 400 of 480 rows."""
    for zone in ([[0, 0], [1, 0], [1, 0.75], [0, 0.75]], [[0, 0], [640, 0], [640, 360], [0, 360]]):
        rules = detector(zone=zone, point=point)
        assert changes(events(rules, [boxes(person())])) == expected


def test_an_object_at_the_border_is_in_a_zone_that_ends_there() -> None:
    rules = detector(zone=[[0, 0], [1, 0], [1, 1], [0, 1]])
    assert changes(events(rules, [boxes(person(y=480))])) == [(0, "on")]


def test_each_source_has_its_own_state() -> None:
    rules, here = detector(label="person"), boxes(person())
    result = [rules.update(answer(here, source=source)) for source in ("door", "yard", "door")]
    assert [[each.source for each in per_answer] for per_answer in result] == [["door"], ["yard"], []]
    only = detector(label="person", sources="yard")
    assert [len(only.update(answer(here, source=source))) for source in ("door", "yard")] == [0, 1]


def test_a_clock_that_is_set_back_stops_no_rule() -> None:
    """The clock goes back an hour in frame 5."""
    rules, result = detector(on_after_s=1), []
    for number in range(30):
        time_s = START_S + number / 10 - (3600 if number >= 5 else 0)
        result += rules.update(answer(boxes(person()), number, time_s))
    assert changes(result) == [(11, "on")]
    assert result[0].time_s == START_S + 1.1 - 3600


def classification(*probabilities: float) -> dict[str, Any]:
    top = sorted(zip(LABELS, probabilities, strict=True), key=lambda pair: -pair[1])
    return Classification(top[0][0], LABELS.index(top[0][0]), top, np.array(probabilities), {}).to_dict()


def test_a_class_is_watched_by_its_probability() -> None:
    rules = Rules.from_config({"a": {"label": "car", "threshold": 0.7, "low_threshold": 0.3}}, LABELS, "classification")
    stream = [classification(1 - each, each) for each in (0.6, 0.8, 0.4, 0.2)]
    assert [(each.kind, each.label, each.score) for each in events(rules, stream)] == [
        ("on", "car", 0.8),
        ("off", "car", 0.2),
    ]


def test_a_smoothed_answer_is_preferred() -> None:
    rules = Rules.from_config({"a": {"label": "car"}}, LABELS, "classification")
    own, smoothed = classification(0.1, 0.9), classification(0.8, 0.2)
    assert events(rules, [{**own, "smoothed": smoothed}]) == []
    assert changes(events(rules, [{**smoothed, "smoothed": own}])) == [(0, "on")]


def test_a_label_of_several_is_watched() -> None:
    rules = Rules.from_config({"a": {"label": ["person", "car"]}}, LABELS, "multi_label")
    stream = [MultiLabel([], dict(zip(LABELS, each, strict=True)), {}).to_dict() for each in ((0.1, 0.2), (0.1, 0.7))]
    assert [(each.frame, each.label, each.score) for each in events(rules, stream)] == [(1, "car", 0.7)]


@pytest.mark.parametrize(
    ("limits", "values", "expected"),
    [
        ({"above": 30}, (30, 31, 30), [(1, "on"), (2, "off")]),
        ({"above": 30, "until": 28}, (31, 29, 28), [(0, "on"), (2, "off")]),
        ({"below": -5}, (-5, -6, -4), [(1, "on"), (2, "off")]),
        ({"below": -5, "until": 0}, (-6, -1, 0), [(0, "on"), (2, "off")]),
    ],
)
def test_a_value_passes_a_limit(
    limits: dict[str, float], values: tuple[float, ...], expected: list[tuple[int, str]]
) -> None:
    rules = Rules.from_config({"a": limits}, ["celsius"], "regression")
    assert changes(events(rules, [Regression({"celsius": each}, {}).to_dict() for each in values])) == expected


def anomaly(score: float) -> dict[str, Any]:
    return Anomaly(score > 2, score, 2.0, ["good", "bad"][score > 2], {}).to_dict()


def test_an_anomaly_has_the_limit_of_the_bundle_or_an_own_one() -> None:
    stream = [anomaly(each) for each in (1.0, 2.5, 1.0, 4.0)]
    own = events(Rules.from_config({"a": {}}, ["good", "bad"], "anomaly"), stream)
    assert changes(own) == [(1, "on"), (2, "off"), (3, "on")]
    assert {each.label for each in own} == {"bad"}
    assert changes(events(Rules.from_config({"a": {"above": 3}}, ["good", "bad"], "anomaly"), stream)) == [(3, "on")]


def test_the_share_of_a_class_passes_a_limit() -> None:
    rules = Rules.from_config({"wet": {"label": "car", "above": 0.2}}, LABELS, "segmentation")
    stream = [{"shares": {"person": 1 - each, "car": each}, "masks": [], "timing_ms": {}} for each in (0.1, 0.3)]
    assert changes(events(rules, stream)) == [(1, "on")]


@pytest.mark.parametrize("content", [{"boxes": [{"label": "person"}]}, {"boxes": 3}, {"top": [1]}, {"smoothed": 3}, {}])
def test_what_is_no_answer_is_refused(content: Any) -> None:
    with pytest.raises(InputError, match="which is not an answer of a model"):
        detector().update(answer(content))


HUNDREDTHS = st.integers(0, 200).map(lambda each: each / 100)
"""Seconds that differ from the times of frames, which are tenths, by nothing or by more than the tolerance."""
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "low_threshold": st.floats(0.1, 0.5),
        "on_after_s": HUNDREDTHS,
        "off_after_s": HUNDREDTHS,
        "cool_down_s": HUNDREDTHS,
        "majority": st.integers(1, 6),
        "at_least": st.integers(1, 2),
    },
)
STREAM = st.lists(st.lists(st.floats(0, 1), max_size=3), max_size=60)


@given(OPTIONS, STREAM)
def test_on_and_off_alternate_with_their_times(options: dict[str, Any], stream: list[list[float]]) -> None:
    result = events(detector(**options), [boxes(*map(person, each)) for each in stream])
    assert [each.kind for each in result] == list(itertools.islice(itertools.cycle(["on", "off"]), len(result)))
    assert len({each.id for each in result}) == len(result)
    for first, second in itertools.pairwise(result):
        least = options.get("off_after_s" if first.kind == "on" else "cool_down_s", 0)
        assert second.time_s - first.time_s >= least - 0.001
        if second.kind == "off":
            assert second.details["seconds"] == pytest.approx(second.time_s - first.time_s, abs=0.001)


@given(OPTIONS, st.integers(0, 50))
def test_nothing_happens_without_objects(options: dict[str, Any], frames: int) -> None:
    assert events(detector(**options), [NOTHING] * frames) == []


@given(OPTIONS, st.floats(0.5, 1))
def test_what_stays_goes_on_once_and_ends_once(options: dict[str, Any], score: float) -> None:
    stream = [boxes(person(score), person(score))] * 40 + [NOTHING] * 40
    result = events(detector(**options), stream)
    majority_s = (options.get("majority", 1) // 2) / 10
    first = math.ceil((options.get("on_after_s", 0) + majority_s) * 10 - 0.011)
    assert changes(result)[0] == (first, "on")
    assert [each.kind for each in result] == ["on", "off"]
