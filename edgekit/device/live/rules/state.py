"""A condition that begins and ends: `on` and `off`.

A Schmitt trigger (two limits), a majority over frames, holds and a cool-down keep it from flapping.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.device.live.rules.config import RuleConfig
    from edgekit.device.live.rules.observations import Observation, Reading
    from edgekit.device.live.types import Event

TOLERANCE_S = 0.001
"""Times of day are floats of 0.2 microseconds, so the difference of two may be a little under what it should be."""


class StateRule:
    """The state of a rule on one source. `update` returns the events of a new answer."""

    def __init__(self, config: RuleConfig) -> None:
        self._config = config
        self._votes: deque[bool] = deque(maxlen=config.majority)
        self._is_on, self._changing_since, self._on_since = False, None, 0.0  # type: bool, float | None, float
        self._off_at: float | None = None
        self._label = config.label[0] if len(config.label) == 1 else ""

    def update(self, seen: Observation) -> list[Event]:
        """Return `on` or `off` where the condition has begun or ended with this answer."""
        best = self._deciding(seen)
        self._votes.append(best is not None and self._is_met(best))
        holds = 2 * sum(self._votes) > self._config.majority
        if holds == self._is_on:
            self._changing_since = None
            return []
        if self._changing_since is None:
            self._changing_since = seen.now_s
        after_s = self._config.on_after_s if holds else self._config.off_after_s
        if not has_passed(seen.now_s, self._changing_since, after_s) or (holds and self._is_cooling_down(seen.now_s)):
            return []
        self._is_on, self._changing_since = holds, None
        return [self._begin(seen, best) if holds else self._end(seen, best)]

    def _deciding(self, seen: Observation) -> Reading | None:
        """Return the reading with the lowest score that is needed, if there are enough."""
        matching = seen.matching(self._config)
        return matching[self._config.at_least - 1] if len(matching) >= self._config.at_least else None

    def _is_met(self, best: Reading) -> bool:
        config, score = self._config, best.score
        if config.below is not None:
            return score < (config.until if self._is_on and config.until is not None else config.below)
        if config.above is not None:
            return score > (config.until if self._is_on and config.until is not None else config.above)
        if best.is_anomaly is not None:
            return best.is_anomaly
        return score >= (config.low_threshold if self._is_on else config.threshold)

    def _is_cooling_down(self, now_s: float) -> bool:
        return self._off_at is not None and not has_passed(now_s, self._off_at, self._config.cool_down_s)

    def _begin(self, seen: Observation, best: Reading | None) -> Event:
        self._on_since = seen.now_s
        self._label = best.label if best and best.label else self._label
        box = {"box": list(best.box)} if best and best.box else {}
        return seen.event(self._config, "on", self._label, best.score if best else 0.0, **box)

    def _end(self, seen: Observation, best: Reading | None) -> Event:
        self._off_at = seen.now_s
        seconds = round(seen.now_s - self._on_since, 3)
        return seen.event(self._config, "off", self._label, best.score if best else 0.0, seconds=seconds)


def has_passed(now_s: float, since_s: float, seconds: float) -> bool:
    """Whether so many seconds lie between two times of day."""
    return now_s - since_s >= seconds - TOLERANCE_S
