"""Identities of objects over the frames of a stream: ByteTrack (Zhang et al., ECCV 2022, arXiv:2110.06864).

Each track predicts its box by a Kalman filter of constant velocity. Boxes with high scores are matched to tracks first,
by overlap times score; boxes with low scores then continue tracks that are still unmatched, because an object that is
partly hidden gets a low score. A track without a box is lost, and forgotten after some frames.

The identities are those of `supervision` 0.25, and are the same everywhere: see `assignment`, and below for the filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.device.live.assignment import assign
from edgekit.runner.boxes import area, intersections

HIGH, LOW, LOST_FRAMES = 0.5, 0.1, 30
FIRST_LIMIT, SECOND_LIMIT, NEW_LIMIT = 0.8, 0.5, 0.7
"""Largest cost of a match with a high score, with a low one, and with a track that is one frame old."""
DUPLICATE = 0.85
"""A tracked and a lost track that overlap by more are the same object."""
POSITION_STD, VELOCITY_STD = 1 / 20, 1 / 160
"""Uncertainty of a box's position and velocity, as shares of its height."""


class KalmanFilter:
    """A box that moves at constant velocity: center x, center y, width / height, and height.

    The four move independently, and so do their errors, so the usual filter with 8 states is four filters with a
    position, a velocity and three covariances each. Their arithmetic on Python floats has the same bits everywhere,
    which products of 8x8 matrices by BLAS have not.
    """

    def __init__(self, box: Sequence[float]) -> None:
        self.position, self.velocity = _measured(box), [0.0] * 4
        height = self.position[3]
        self._p00 = _squares(2 * POSITION_STD * height, 1e-2)
        self._p01 = [0.0] * 4
        self._p11 = _squares(10 * VELOCITY_STD * height, 1e-5)

    @property
    def box(self) -> tuple[float, float, float, float]:
        """The estimated sides: left, top, right, bottom."""
        x, y, aspect, height = self.position
        left, top, width = x - aspect * height / 2, y - height / 2, aspect * height
        return left, top, left + width, top + height

    def predict(self) -> None:
        """Go on by a frame."""
        height = self.position[3]
        for each, (q0, q1) in enumerate(
            zip(_squares(POSITION_STD * height, 1e-2), _squares(VELOCITY_STD * height, 1e-5))
        ):
            p00, p01, p11 = self._p00[each], self._p01[each], self._p11[each]
            self.position[each] += self.velocity[each]
            self._p00[each] = p00 + p01 + p01 + p11 + q0
            self._p01[each] = p01 + p11
            self._p11[each] = p11 + q1

    def correct(self, box: Sequence[float]) -> None:
        """Take a measured box into account."""
        noise = _squares(POSITION_STD * self.position[3], 1e-1)
        for each, value in enumerate(_measured(box)):
            p00, p01 = self._p00[each], self._p01[each]
            total = p00 + noise[each]
            position_gain, velocity_gain = p00 / total, p01 / total
            error = value - self.position[each]
            self.position[each] += position_gain * error
            self.velocity[each] += velocity_gain * error
            self._p00[each] = p00 - position_gain * p00
            self._p01[each] = p01 - position_gain * p01
            self._p11[each] -= velocity_gain * p01


def _measured(box: Sequence[float]) -> list[float]:
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    return [left + width / 2, top + height / 2, width / height, height]


def _squares(of_height: float, of_aspect: float) -> list[float]:
    """Return variances of the four states from two standard deviations."""
    return [of_height * of_height, of_height * of_height, of_aspect * of_aspect, of_height * of_height]


@dataclass(eq=False)
class Track:
    """An object: its number from 1, its label, and its filter."""

    id: int
    label: str
    filter: KalmanFilter
    first_frame: int
    last_frame: int
    is_confirmed: bool
    """Whether it was seen in two frames in a row, or in the first frame of all."""
    is_lost: bool = False

    @property
    def box(self) -> tuple[float, float, float, float]:
        """The estimated sides: left, top, right, bottom."""
        return self.filter.box


class Tracker:
    """The tracks of one stream.

    Parameters
    ----------
    high : float
        Boxes from this score on are matched first, and may begin a track.
    low : float
        Boxes from this score on continue a track.
    new : float, optional
        The least score to begin a track; `high` by default.
    lost_frames : int
        A track is forgotten when it is missing in more frames than that.
    """

    def __init__(
        self, high: float = HIGH, low: float = LOW, new: float | None = None, lost_frames: int = LOST_FRAMES
    ) -> None:
        self._high, self._low, self._new, self._lost_frames = high, low, high if new is None else new, lost_frames
        self._frame = self._last_id = 0
        self._tracked: list[Track] = []
        self._lost: list[Track] = []

    @property
    def tracks(self) -> list[Track]:
        """All tracks that are not forgotten, lost and unconfirmed ones included."""
        return [*self._tracked, *self._lost]

    def update(self, boxes: np.ndarray, scores: np.ndarray, labels: Sequence[str] | None = None) -> list[int]:
        """Take the next frame, and return the track of each box, or 0 for a box that belongs to no confirmed one.

        Parameters
        ----------
        boxes : ndarray
            (n, 4) float64: left, top, right, bottom in pixels.
        scores : ndarray
            (n,) float64.
        labels : sequence of str, optional
            A track only continues with a box of its own label.
        """
        self._frame += 1
        seen = _Boxes(boxes, scores, labels or [""] * len(boxes))
        young = [each for each in self._tracked if not each.is_confirmed]
        known = [each for each in self._tracked if each.is_confirmed] + self._lost
        for track in known:
            if track.is_lost:
                track.filter.velocity[3] = 0.0
            track.filter.predict()
        matches, free = self._match(seen, known, young)
        for track, index in matches.items():
            self._continue(track, seen.boxes[index].tolist())
        begun = {self._begin(seen, each): each for each in free if seen.scores[each] >= self._new}
        self._sort(known, matches, list(begun))
        ids = {index: track.id for track, index in {**matches, **begun}.items() if track.is_confirmed}
        return [ids.get(index, 0) for index in range(len(seen.boxes))]

    def _match(self, seen: _Boxes, known: list[Track], young: list[Track]) -> tuple[dict[Track, int], list[int]]:
        """Return the index of each track's box, and the indices of the boxes with high scores that are left."""
        strong, weak = seen.from_score(self._high), seen.from_score(self._low, below=self._high)
        matches = seen.match(known, strong, FIRST_LIMIT, by_score=True)
        unmatched = [each for each in known if each not in matches and not each.is_lost]
        matches.update(seen.match(unmatched, weak, SECOND_LIMIT, by_score=False))
        taken = set(matches.values())
        matches.update(seen.match(young, [each for each in strong if each not in taken], NEW_LIMIT, by_score=True))
        taken = set(matches.values())
        return matches, [each for each in strong if each not in taken]

    def _continue(self, track: Track, box: list[float]) -> None:
        track.filter.correct(box)
        track.last_frame, track.is_lost, track.is_confirmed = self._frame, False, True

    def _begin(self, seen: _Boxes, index: int) -> Track:
        self._last_id += 1
        state = KalmanFilter(seen.boxes[index].tolist())
        return Track(self._last_id, seen.labels[index], state, self._frame, self._frame, self._frame == 1)

    def _sort(self, known: list[Track], matches: dict[Track, int], begun: list[Track]) -> None:
        """Divide all tracks into tracked and lost ones, without those that are forgotten."""
        refound = [each for each in self._lost if each in matches]
        self._tracked = [each for each in self._tracked if each in matches] + begun + refound
        for track in known:
            track.is_lost = track not in matches
        lost = [each for each in dict.fromkeys([*self._lost, *known]) if each not in matches]
        self._lost = [each for each in lost if self._frame - each.last_frame <= self._lost_frames]
        self._remove_duplicates()

    def _remove_duplicates(self) -> None:
        """Keep the older of a tracked and a lost track that lie on each other."""
        shared = _overlaps(self._tracked, [each.box for each in self._lost])
        removed: set[Track] = set()
        for row, column in np.argwhere(shared > DUPLICATE).tolist():
            tracked, lost = self._tracked[row], self._lost[column]
            if tracked.label == lost.label:
                is_older = tracked.last_frame - tracked.first_frame > lost.last_frame - lost.first_frame
                removed.add(lost if is_older else tracked)
        self._tracked = [each for each in self._tracked if each not in removed]
        self._lost = [each for each in self._lost if each not in removed]


class _Boxes:
    """The boxes of a frame, with their scores and labels."""

    def __init__(self, boxes: np.ndarray, scores: np.ndarray, labels: Sequence[str]) -> None:
        self.boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
        self.scores, self.labels = np.asarray(scores, np.float64), labels

    def from_score(self, least: float, below: float = float("inf")) -> list[int]:
        """Return the indices of boxes with such scores. Boxes without an area are left out."""
        has_area = (self.boxes[:, 2] > self.boxes[:, 0]) & (self.boxes[:, 3] > self.boxes[:, 1])
        indices: list[int] = np.flatnonzero(has_area & (self.scores >= least) & (self.scores < below)).tolist()
        return indices

    def match(self, tracks: list[Track], indices: list[int], limit: float, by_score: bool) -> dict[Track, int]:
        """Return the index of the box of each track that has one among those given."""
        if not tracks or not indices:
            return {}
        likeness = _overlaps(tracks, self.boxes[indices])
        if by_score:
            likeness = likeness * self.scores[indices]
        costs = 1 - likeness
        costs[np.array([[track.label != self.labels[index] for index in indices] for track in tracks])] = np.inf
        return {tracks[row]: indices[column] for row, column in assign(costs, limit)}


def _overlaps(tracks: Sequence[Track], boxes: np.ndarray | Sequence[Sequence[float]]) -> np.ndarray:
    """Return intersection over union of each track's estimated box with each box, (tracks, boxes) float64."""
    estimated = np.array([each.box for each in tracks], np.float64).reshape(-1, 4)
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    shared = intersections(estimated.T, boxes.T)
    ratio: np.ndarray = shared / (area(estimated)[:, None] + area(boxes) - shared)
    return ratio
