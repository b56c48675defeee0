"""Events, detections and false alarms, held against a plain definition window by window; and the bound of a rate."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from edgekit.core import stream_events

REST = 0
Plain = tuple[list[bool], int, int, int, list[int]]


def slowly(answers: list[int], truth: list[int], pieces: list[int], tolerance: int, repeat: int) -> Plain:
    """The definition, one window after the other: (found, alarms, outside, alarmed, delays)."""
    events: list[tuple[int, int, int]] = []  # first, last, label
    for at, label in enumerate(truth):
        if label == REST:
            continue
        if events and events[-1][1] == at - 1 and events[-1][2] == label and pieces[at] == pieces[at - 1]:
            events[-1] = (events[-1][0], at, label)
        else:
            events.append((at, at, label))
    found, delays = [], []
    for first, last, label in events:
        later = [begin for begin, _, other in events if other == label and begin > first]
        until = min([last + tolerance + 1, len(answers), *later])
        heard = [at for at in range(first, until) if answers[at] == label]
        found.append(bool(heard))
        delays += [heard[0] - first] if heard else []

    def meant(at: int, label: int) -> bool:
        return any(own == label and first <= at <= last + tolerance for first, last, own in events)

    alarms = 0
    for label in {1, 2, 3}:
        lasting = 0
        for at, one in enumerate(answers):
            lasting = lasting + 1 if one == label and not meant(at, label) else 0
            alarms += lasting % repeat == 1 or (repeat == 1 and lasting > 0)
    outside = [at for at in range(len(truth)) if truth[at] == REST and not any(meant(at, one) for one in (1, 2, 3))]
    return found, alarms, len(outside), sum(answers[at] != REST for at in outside), delays


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """Stretches of one truth each, some of them parted into pieces, and what is said of them, sticky as models are."""
    truth: list[int] = []
    pieces: list[int] = []
    for number, (label, size) in enumerate(draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), max_size=8))):
        truth += [label] * size
        pieces += [number] * size
    answers: list[int] = []
    while len(answers) < len(truth):
        answers += [draw(st.integers(0, 3))] * draw(st.integers(1, 7))
    return answers[: len(truth)], truth, pieces


@given(streams(), st.integers(0, 5), st.integers(1, 6))
@settings(max_examples=600, deadline=None)
def test_it_counts_as_the_plain_definition_does(
    stream: tuple[list[int], list[int], list[int]], tolerance: int, repeat: int
) -> None:
    answers, truth, pieces = (np.array(each, np.int64) for each in stream)
    found = stream_events.count_events(answers, truth, pieces, REST, tolerance, repeat)
    got = found.is_detected.tolist(), found.false_alarms, found.outside, found.alarmed, list(found.delays)
    assert got == slowly(*stream, tolerance, repeat)
    assert (found.events, found.detected) == (len(got[0]), sum(got[0]))


def counted(answers: str, truth: str, tolerance: int = 0, repeat: int = 100) -> stream_events.EventCounts:
    letters = [np.array([" ab".index(each) for each in text], np.int64) for text in (answers, truth)]
    return stream_events.count_events(*letters, np.zeros(len(truth), np.int64), REST, tolerance, repeat)


def test_a_detection_may_come_late_within_the_tolerance_alone() -> None:
    for tolerance, detected in ((0, 0), (1, 0), (2, 1), (3, 1)):
        found = counted("      a    ", "  aaa      ", tolerance)
        assert (found.detected, found.false_alarms) == (detected, 1 - detected), tolerance
    assert counted("      a    ", "  aaa      ", 2).delays == (4,)


def test_what_runs_on_behind_an_event_is_a_false_alarm_of_its_own() -> None:
    found = counted("  aaaaaaaa ", "  aaa      ", 2)
    assert (found.detected, found.false_alarms, found.outside, found.alarmed) == (1, 1, 6, 3)


def test_a_model_that_never_falls_silent_does_not_pass_for_a_quiet_one() -> None:
    always = counted("a" * 100, " " * 40 + "a" * 20 + " " * 40, 0, 4)
    now_and_then = counted(("a" + " " * 9) * 10, " " * 40 + "a" * 20 + " " * 40, 0, 4)
    assert always.false_alarms == 20 > now_and_then.false_alarms == 8


def test_another_events_label_is_a_false_alarm_and_detects_nothing() -> None:
    found = counted("  bb  ", "  aa  ")
    assert (found.detected, found.false_alarms, found.alarmed) == (0, 1, 0)


def test_an_answer_within_another_event_does_not_detect_the_one_before() -> None:
    apart = stream_events.count_events(*map(np.array, ([0, 0, 2, 2], [2, 2, 2, 2], [1, 1, 2, 2])), REST, 2, 2)
    assert apart.is_detected.tolist() == [False, True]
    assert counted("   a ", " a a ", 2).is_detected.tolist() == [False, True]
    assert counted("  a a", " a a ", 2).is_detected.tolist() == [True, True], "each is answered late, by itself"
    assert counted("   a ", " ab  ", 2).is_detected.tolist() == [True, False], (
        "of another label it is the one before, late"
    )


def test_a_stream_without_windows_has_nothing() -> None:
    found = counted("", "")
    assert (found.events, found.false_alarms, found.outside) == (0, 0, 0)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("alarms", [0, 1, 2, 5, 17, 100, 1000])
def test_the_bound_is_half_of_a_chi_squared_quantile(alarms: int, confidence: float) -> None:
    assert stream_events.poisson_upper_bound(alarms, confidence) == pytest.approx(
        chi2.ppf(confidence, 2 * alarms + 2) / 2, 1e-9
    )


def test_the_bound_of_very_many_alarms_is_exact() -> None:
    assert stream_events.poisson_upper_bound(50_000, 0.95) == pytest.approx(chi2.ppf(0.95, 100_002) / 2, 1e-9)


def test_no_alarm_in_two_hours_is_not_none_an_hour() -> None:
    assert stream_events.poisson_upper_bound(0, 0.95) / 2 == pytest.approx(float(Fraction(2996, 2000)), abs=0.001)
