"""Write `supervision_tracks.json`: the identities that supervision's ByteTrack gives to the boxes of `scenes`.

    python -m venv peer && peer/bin/pip install supervision==0.25.1 scipy
    peer/bin/python -m tests.device.live.record_supervision_tracks

Later releases of supervision have no tracker any more.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tests.device.live.scenes import SEEDS, scene

RECORD = Path(__file__).parent / "supervision_tracks.json"
OPTIONS = {"track_activation_threshold": 0.5, "lost_track_buffer": 20, "minimum_matching_threshold": 0.8}


def tracks(seed: int) -> list[dict[str, list[int]]]:
    """Of each frame: number and estimated box, rounded, of each track, and the identity of each box (0 for none)."""
    import supervision

    by_boxes, by_tracks, frames = supervision.ByteTrack(**OPTIONS), supervision.ByteTrack(**OPTIONS), []
    for boxes, scores in scene(seed):
        detections = supervision.Detections(
            xyxy=np.array(boxes, np.float64).reshape(-1, 4),
            confidence=np.array(scores, np.float64),
            class_id=np.zeros(len(boxes), int),
            data={"index": np.arange(len(boxes))},
        )
        ids = [0] * len(boxes)
        tracked = by_boxes.update_with_detections(detections)
        for index, track in zip(tracked.data.get("index", ()), tracked.tracker_id):
            ids[int(index)] = int(track)
        rows = np.hstack((detections.xyxy, detections.confidence[:, None]))
        activated: list[Any] = by_tracks.update_with_tensors(rows)
        frames.append({"tracks": sorted(each.external_track_id for each in activated), "ids": ids})
    return frames


if __name__ == "__main__":
    record = {"supervision": version("supervision"), "scenes": [tracks(seed) for seed in SEEDS]}
    RECORD.write_text(json.dumps(record, separators=(",", ":")).replace("]}],[{", "]}],\n[{") + "\n")
