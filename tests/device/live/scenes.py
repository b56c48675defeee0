"""Moving boxes for the tracker, the same on every machine: `random.random` and float arithmetic only."""

from __future__ import annotations

import random
from collections.abc import Iterator

WIDTH, HEIGHT = 640.0, 480.0
FRAMES, SEEDS = 90, range(24)


def scene(seed: int) -> Iterator[tuple[list[list[float]], list[float]]]:
    """The boxes and scores of each frame: objects that cross, hide one another, and are missed or false at times."""
    rng = random.Random(seed)
    objects = [_Object(rng) for _ in range(2 + seed % 7)]
    misses, noise = 0.02 * (seed % 4), 0.5 * (seed % 5)
    for frame in range(FRAMES):
        seen = [each.at(frame) for each in objects]
        boxes, scores = [], []
        for index, box in enumerate(seen):
            if box is None or rng.random() < misses:
                continue
            hidden = max((_covered(box, other) for other in seen[:index] if other), default=0.0)
            if hidden > 0.85:
                continue
            boxes.append([side + noise * (rng.random() - 0.5) for side in box])
            scores.append((0.95 - 0.8 * hidden) * (0.9 + 0.1 * rng.random()))
        if rng.random() < 0.05:
            x, y = rng.random() * WIDTH, rng.random() * HEIGHT
            boxes.append([x, y, x + 40.0, y + 60.0])
            scores.append(0.3 + 0.6 * rng.random())
        yield boxes, scores


class _Object:
    """A box that moves straight on, from one side to the other, between two frames."""

    def __init__(self, rng: random.Random) -> None:
        self.first, self.last = int(rng.random() * 20), FRAMES - int(rng.random() * 20)
        self.width, self.height = 30 + 50 * rng.random(), 60 + 90 * rng.random()
        to_right = rng.random() < 0.5
        self.x, self.speed = (0.0, 3 + 4 * rng.random()) if to_right else (WIDTH, -3 - 4 * rng.random())
        self.y, self.fall = 100 + 200 * rng.random(), 2 * rng.random() - 1

    def at(self, frame: int) -> list[float] | None:
        if not self.first <= frame < self.last:
            return None
        x = self.x + self.speed * (frame - self.first)
        y = self.y + self.fall * (frame - self.first)
        return [x, y, x + self.width, y + self.height]


def _covered(box: list[float], other: list[float]) -> float:
    """The share of a box that another one covers."""
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    return max(0.0, width) * max(0.0, height) / ((box[2] - box[0]) * (box[3] - box[1]))
