"""Tracks, against those that supervision's ByteTrack gives to the same boxes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import pytest

from edgekit.device.live.tracking import KalmanFilter, Tracker
from tests.device.live.record_supervision_tracks import OPTIONS, RECORD, tracks
from tests.device.live.scenes import SEEDS, scene

HIGH = OPTIONS["track_activation_threshold"]


def tracker() -> Tracker:
    """A tracker with the peer's options: it adds 0.1 for new tracks, and forgets a track one frame later."""
    return Tracker(HIGH, low=0.1, new=HIGH + 0.1, lost_frames=int(OPTIONS["lost_track_buffer"]) + 1)


def update(tracker: Tracker, boxes: Sequence[Sequence[float]], scores: Sequence[float] | None = None) -> list[int]:
    return tracker.update(np.array(boxes, float), np.array([0.9] * len(boxes) if scores is None else scores))


@pytest.mark.parametrize("seed", SEEDS)
def test_identities_are_those_of_supervision(seed: int) -> None:
    recorded = json.loads(RECORD.read_text())["scenes"][seed]
    ours, left_out = tracker(), 0
    for (boxes, scores), expected in zip(scene(seed), recorded, strict=True):
        ids = update(ours, boxes, scores)
        assert sorted(each.id for each in ours.tracks if each.is_confirmed and not each.is_lost) == expected["tracks"]
        for mine, theirs in zip(ids, expected["ids"], strict=True):
            assert theirs in (mine, 0)
            left_out += theirs != mine
    assert left_out <= 8  # The peer leaves out boxes that are far from the estimate of their own track.


def test_the_record_has_occlusions_and_is_about_identities() -> None:
    """Tracks that return after frames without them, and few boxes without one."""
    returned = boxes = without = 0
    for recorded in json.loads(RECORD.read_text())["scenes"]:
        last: dict[int, int] = {}
        for number, frame in enumerate(recorded):
            returned += sum(number - last.get(track, number) > 1 for track in frame["tracks"])
            last.update(dict.fromkeys(frame["tracks"], number))
            boxes, without = boxes + len(frame["ids"]), without + frame["ids"].count(0)
    assert returned > 150
    assert boxes > 7000
    assert without < 0.15 * boxes


def test_the_record_is_what_supervision_gives() -> None:
    supervision = pytest.importorskip("supervision", reason="pip install supervision==0.25.1 in an own environment")
    if not hasattr(supervision, "ByteTrack"):
        pytest.skip("this supervision has no tracker; pip install supervision==0.25.1 in an own environment")
    assert [tracks(seed) for seed in SEEDS] == json.loads(RECORD.read_text())["scenes"]


def test_the_filter_is_the_one_with_matrices() -> None:
    """The textbook's filter with 8 states, in matrices."""
    random, box = np.random.default_rng(0), np.array([100.0, 50.0, 140.0, 150.0])
    ours = KalmanFilter(box.tolist())

    def measured(box: np.ndarray) -> np.ndarray:
        width, height = box[2:] - box[:2]
        return np.array([box[0] + width / 2, box[1] + height / 2, width / height, height])

    motion, position = np.eye(8) + np.eye(8, k=4), np.eye(4, 8)
    mean = np.r_[measured(box), np.zeros(4)]
    h = mean[3]
    covariance = np.diag(np.square([h / 10, h / 10, 1e-2, h / 10, h / 16, h / 16, 1e-5, h / 16]))
    for _ in range(40):
        box = box + random.normal(2, 1, 4)
        h = mean[3]
        noise = np.diag(np.square([h / 20, h / 20, 1e-2, h / 20, h / 160, h / 160, 1e-5, h / 160]))
        mean, covariance = motion @ mean, motion @ covariance @ motion.T + noise
        h = mean[3]
        total = position @ covariance @ position.T + np.diag(np.square([h / 20, h / 20, 1e-1, h / 20]))
        gain = covariance @ position.T @ np.linalg.inv(total)
        mean, covariance = mean + gain @ (measured(box) - position @ mean), covariance - gain @ total @ gain.T
        ours.predict()
        ours.correct(box.tolist())
        assert [*ours.position, *ours.velocity] == pytest.approx(mean, rel=1e-9, abs=1e-9)


def test_a_box_with_a_low_score_continues_a_track_and_begins_none() -> None:
    ours, box = Tracker(), [10.0, 10.0, 50.0, 90.0]
    assert update(ours, [box]) == [1]
    assert update(ours, [box], [0.2]) == [1]
    assert update(Tracker(), [box], [0.2]) == [0]


def test_a_false_box_of_one_frame_gets_no_identity() -> None:
    ours, box, false = Tracker(), [10.0, 10.0, 50.0, 90.0], [300.0, 10.0, 340.0, 90.0]
    assert update(ours, [box]) == [1]
    assert update(ours, [box, false]) == [1, 0]
    assert update(ours, [box]) == [1]
    assert [each.id for each in ours.tracks] == [1]


def test_a_lost_track_returns_until_it_is_forgotten() -> None:
    for missing, expected in ((5, [1]), (6, [0])):
        ours, box = Tracker(lost_frames=5), [10.0, 10.0, 50.0, 90.0]
        update(ours, [box])
        for _ in range(missing):
            update(ours, [])
        assert update(ours, [box]) == expected


def test_a_track_does_not_go_on_with_another_label() -> None:
    ours, box = Tracker(), np.array([[10.0, 10.0, 50.0, 90.0]])
    ours.update(box, np.array([0.9]), ["car"])
    assert ours.update(box, np.array([0.9]), ["person"]) == [0]
    assert ours.update(box, np.array([0.9]), ["person"]) == [2]


def test_boxes_without_area_are_left_out() -> None:
    ours = Tracker()
    assert update(ours, [[5.0, 5.0, 5.0, 9.0], [9.0, 9.0, 5.0, 5.0]]) == [0, 0]
    assert ours.tracks == []


def test_memory_stays_bounded() -> None:
    """New objects in every frame, none of which stays."""
    ours = Tracker(lost_frames=3)
    for frame in range(200):
        update(ours, [[60.0 * frame, 0.0, 60.0 * frame + 40, 90.0]] * 2)
        assert len(ours.tracks) <= 12


def test_estimates_have_the_same_bits_everywhere() -> None:
    """Measured with Python 3.9 to 3.11 and NumPy 1.22 to 2.4."""
    digest = hashlib.sha256()
    for seed in SEEDS:
        ours = tracker()
        for boxes, scores in scene(seed):
            update(ours, boxes, scores)
            digest.update(repr([(each.id, each.box) for each in ours.tracks]).encode())
    assert digest.hexdigest()[:16] == "e5224459f9dd6769"
