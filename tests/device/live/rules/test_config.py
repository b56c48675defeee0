"""Every mistake in a rule is one clear line before the first frame."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.device.live.rules import Rules
from edgekit.runner.errors import InputError
from tests.device.live.rules.answers import LABELS, SIZE

SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1]]
STEEP = [[0.5, 0], [0.5, 1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"treshold": 0.5}, "rules.a: unknown option 'treshold'; did you mean \"threshold\"?"),
        ({"label": "persn"}, "got 'persn'; the bundle has no such label; did you mean \"person\"?"),
        (
            {"label": ["person", "zebra"]},
            "rules.a.label: got 'zebra'; the bundle has no such label; known: car, person",
        ),
        ({"label": 3}, "rules.a.label: got '3'; use a name, or a list of names"),
        ({"threshold": 0.5, "low_threshold": 0.7}, "rules.a.low_threshold: got '0.7'; use at most the threshold, 0.5"),
        ({"threshold": 60}, "rules.a.threshold: got '60'; use a number above 0, up to 1"),
        ({"threshold": True}, "use a number above 0, up to 1"),
        ({"on_after_s": -1}, "rules.a.on_after_s: got '-1'; use seconds, from 0"),
        ({"cool_down_s": float("nan")}, "rules.a.cool_down_s: got 'nan'; use seconds"),
        ({"majority": 0}, "rules.a.majority: got '0'; use 1 to 1000 frames"),
        ({"at_least": 1.5}, "rules.a.at_least: got '1.5'; use 1 to 1000"),
        ({"above": 3}, "rules.a.above: does not apply to a rule without a line"),
        ({"zone": [[0, 0], [1, 1]]}, "rules.a.zone: got '[[0, 0], [1, 1]]'; list 3 corners or more"),
        ({"zone": [[0, 0], [1, 0], [-0.1, 1]]}, "lies outside the picture; use shares from 0 to 1, or pixels"),
        ({"zone": [[0, 0], [1, 0], [1, 1.2]]}, "lies outside the picture; use shares from 0 to 1, or pixels"),
        ({"zone": [[0, 0], [0.5, 0.5], [1, 1]]}, "the corners lie on one line"),
        (
            {"zone": [[0, 0], [700, 0], [600, 400]]},
            "rules.a.zone: the point (700, 0) lies outside the picture of 640x480 pixels; use points inside",
        ),
        ({"line": [[0.5, 0]]}, "list its two ends"),
        ({"line": [[0.5, 0], [0.5, 0]]}, "the two ends are the same"),
        ({"line": [[0, 10], [0, 481]]}, "the point (0, 481) lies outside the picture of 640x480 pixels"),
        ({"line": STEEP, "direction": "up"}, "this line is crossed to the left or right"),
        ({"line": STEEP, "direction": "in"}, "rules.a.direction: got 'in'; known: any, left, right, up, down"),
        ({"line": STEEP, "zone": SQUARE}, "rules.a.zone: does not apply to a rule with a line; leave it out"),
        ({"line": STEEP, "count": "occupancy"}, "use true, tracks or crossings with a line"),
        ({"line": STEEP, "count": False}, "use true, tracks or crossings with a line"),
        ({"zone": SQUARE, "count": "crossings"}, "use true, tracks or occupancy with a zone"),
        ({"zone": SQUARE, "count": "tracks", "off_after_s": 1}, "off_after_s: does not apply to a rule that counts"),
        ({"direction": "left"}, "rules.a.direction: does not apply to a rule without a line"),
        ({"sources": ["dor"]}, "rules.a.sources: got 'dor'; there is no such source; did you mean \"door\"?"),
        (3, 'rules.a: got \'3\'; must be an object, such as {"label": "person"}'),
    ],
)
def test_a_mistake_is_named(options: Any, message: str) -> None:
    with pytest.raises(InputError) as raised:
        Rules.from_config({"a": options}, LABELS, "detection", SIZE, sources=["door", "yard"])
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("task", "labels", "options", "message"),
    [
        ("classification", LABELS, {"label": "car", "zone": SQUARE}, "zone: does not apply to the task classification"),
        ("classification", LABELS, {}, "rules.a.label: got 'None'; name a label; known: car, person"),
        ("regression", ["t", "h"], {"label": "t", "threshold": 0.5}, "does not apply to the task regression"),
        ("regression", ["t", "h"], {"above": 3}, "name one label; known: h, t"),
        ("regression", ["t"], {}, "rules.a: has no limit; add above or below, such as above: 30"),
        ("regression", ["t"], {"above": 3, "below": 1}, "has above 3 and below 1; write one rule for each"),
        ("regression", ["t"], {"above": 3, "until": 4}, "rules.a.until: got '4'; use at most the limit above, 3"),
        ("regression", ["t"], {"below": 3, "until": 2}, "rules.a.until: got '2'; use at least the limit below, 3"),
        ("anomaly", ["good", "bad"], {"label": "good"}, "rules.a.label: got 'good'; use \"bad\" or leave it out"),
        ("anomaly", ["good", "bad"], {"until": 3}, "has no limit; add above or below"),
        ("embedding", [], {}, "rules: an answer of the task embedding has no labels to watch"),
    ],
)
def test_a_rule_that_does_not_fit_the_task_is_named(
    task: str, labels: list[str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as raised:
        Rules.from_config({"a": options}, labels, task)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"front door": {}}, "rules.front door: got 'front door'; name a rule with letters, digits, _ and -"),
        ({1: {}}, "name a rule with letters"),
        ([{"name": "a"}, {"name": "a"}], "rules: got 'a'; two rules have this name; rename one"),
        (["person"], "rules: got \"['person']\"; must be an object"),
        ("person", "rules: got 'person'; must be an object"),
        ({f"a{number}": {} for number in range(101)}, "rules: got '101 rules'; use at most 100"),
    ],
)
def test_the_list_of_rules_is_checked(config: Any, message: str) -> None:
    with pytest.raises(InputError) as raised:
        Rules.from_config(config, LABELS, "detection")
    assert message in str(raised.value)


def test_a_list_of_rules_has_names() -> None:
    rules = Rules.from_config([{"name": "a", "label": "car"}, {}], LABELS, "detection")
    assert [(each.name, each.label) for each in rules.configs] == [("a", ("car",)), ("rule2", ())]


def test_a_picture_that_is_known_later_is_checked_then() -> None:
    rules = Rules.from_config({"a": {"zone": [[0, 0], [700, 0], [600, 400]], "sources": "door"}}, LABELS, "detection")
    rules.check_picture((1920, 1080))
    rules.check_picture(SIZE, "yard")
    with pytest.raises(InputError, match="outside the picture of 640x480"):
        rules.check_picture(SIZE, "door")


def test_many_labels_are_not_all_listed() -> None:
    with pytest.raises(InputError, match="and 980 more"):
        Rules.from_config({"a": {"label": "?"}}, [f"class{number}" for number in range(1000)], "detection")


def test_no_rules_are_fine() -> None:
    assert Rules.from_config(None, [], "embedding").configs == ()
