"""Tracks, against those that supervision's ByteTrack gives to the same boxes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from edgekit.device.live.tracking import Tracker
from tests import requirements
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
    install = "pip install supervision==0.25.1 in an environment of its own; later releases have no tracker"
    supervision = requirements.package("supervision", required_in_ci=False)
    requirements.condition(
        hasattr(supervision, "ByteTrack"), "supervision 0.25.1", install=install, required_in_ci=False
    )
    assert [tracks(seed) for seed in SEEDS] == json.loads(RECORD.read_text())["scenes"]
