"""Rules between an answer and an action: they turn a stream of answers into events.

A rule watches labels, values or objects, and gives `on` and `off` (`state`), or counts (`counts`). Time is that
of the answers, never the clock's, so a recorded stream gives the same events with the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.device.live.rules.config import SCORE_TASKS, VALUE_TASKS, RuleConfig, suggestion
from edgekit.device.live.rules.counts import TrackedObjects, make_count
from edgekit.device.live.rules.observations import Observation, readings
from edgekit.device.live.rules.state import StateRule
from edgekit.device.live.tracking import Tracker
from edgekit.runner.errors import InputError
from edgekit.runner.rules import require

if TYPE_CHECKING:
    from edgekit.device.live.types import Answer, Event

MOST_RULES = 100


class Rules:
    """All rules of a model, with their state for each source.

    Parameters
    ----------
    configs : sequence of RuleConfig
        The rules, in the order of their events.
    """

    def __init__(self, configs: Sequence[RuleConfig]) -> None:
        self.configs = tuple(configs)
        self._sources: dict[str, _SourceRules] = {}

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        labels: Sequence[str],
        task: str,
        size: tuple[int, int] | None = None,
        sources: Sequence[str] | None = None,
    ) -> Rules:
        """Return the rules that a configuration describes.

        Parameters
        ----------
        config : mapping or sequence
            The options of each rule by its name, or a list of options with `name`.
        labels, task
            The labels and the task of the bundle.
        size : (int, int), optional
            Width and height of the picture, where they are known already; else see `check_picture`.
        sources : sequence of str, optional
            The names of all sources, where the rules may name some.

        Raises
        ------
        InputError
            A rule is malformed, or fits neither the bundle nor the picture.
        """
        named = list(_named(config))
        require(len(named) <= MOST_RULES, "rules", f"{len(named)} rules", f"use at most {MOST_RULES}")
        if named and task not in SCORE_TASKS + VALUE_TASKS:
            fix = f"use a bundle for {', '.join(SCORE_TASKS + VALUE_TASKS)}"
            raise InputError(f"rules: an answer of the task {task} has no labels to watch; {fix}")
        rules = cls([RuleConfig.parse(f"rules.{name}", name, each, labels, task) for name, each in named])
        names = [each.name for each in rules.configs]
        for name in names:
            require(names.count(name) == 1, "rules", name, "two rules have this name; rename one")
        for each in rules.configs:
            for source in each.sources if sources is not None else ():
                fix = f"there is no such source; {suggestion(source, sources or ())}"
                require(source in (sources or ()), f"rules.{each.name}.sources", source, fix)
        if size is not None:
            rules.check_picture(size)
        return rules

    def check_picture(self, size: tuple[int, int], source: str | None = None) -> None:
        """Raise InputError for a zone or line that lies outside a picture of (width, height).

        By default all rules are checked, otherwise those that watch the source.
        """
        for config in self.configs:
            if source is None or _watches(config, source):
                for shape in (config.zone, config.line):
                    if shape is not None:
                        shape.check(size)

    def update(self, answer: Answer) -> list[Event]:
        """Return the events that a new answer causes, in the order of the rules.

        Answers of a source must come in the order of their frames. A step back of their time counts as no time.
        """
        source = self._sources.get(answer.source)
        if source is None:
            source = self._sources[answer.source] = _SourceRules(
                [each for each in self.configs if _watches(each, answer.source)]
            )
        return source.update(answer)


def _named(config: Any) -> Iterator[tuple[Any, Any]]:
    if config is None:
        return
    if isinstance(config, Mapping):
        yield from config.items()
        return
    fits = isinstance(config, (list, tuple)) and all(isinstance(each, Mapping) for each in config)
    require(fits, "rules", config, 'must be an object, such as {"visitor": {"label": "person"}}')
    for number, each in enumerate(config):
        yield each.get("name", f"rule{number + 1}"), each


def _watches(config: RuleConfig, source: str) -> bool:
    return not config.sources or source in config.sources


class _SourceRules:
    """The state of all rules on one source. Rules that count the same objects share a tracker."""

    def __init__(self, configs: Sequence[RuleConfig]) -> None:
        self._trackers: dict[Any, _ObjectTracker] = {}
        self._rules: list[Callable[[Observation], list[Event]]] = []
        for config in configs:
            self._rules.append(self._counter(config) if config.count else StateRule(config).update)
        self._last_s, self._offset_s = float("-inf"), 0.0

    def update(self, answer: Answer) -> list[Event]:
        seen = Observation(answer, readings(answer.content), self._now(answer.time_s))
        return [event for update in self._rules for event in update(seen)]

    def _counter(self, config: RuleConfig) -> Callable[[Observation], list[Event]]:
        key = config.label, config.threshold, config.low_threshold
        tracker, count = self._trackers.setdefault(key, _ObjectTracker(config)), make_count(config)
        return lambda seen: count.update(seen, tracker.objects(seen))

    def _now(self, time_s: float) -> float:
        """Return a time that never goes back, though the clock of the device may."""
        now_s = time_s + self._offset_s
        if now_s < self._last_s:
            self._offset_s += self._last_s - now_s
            now_s = self._last_s
        self._last_s = now_s
        return now_s


class _ObjectTracker:
    """Gives the objects of an observation their tracks, once however many rules ask."""

    def __init__(self, config: RuleConfig) -> None:
        self._labels, self._tracker = config.label, Tracker(config.threshold, config.low_threshold)
        self._seen: Observation | None = None
        self._objects = TrackedObjects({}, frozenset())

    def objects(self, seen: Observation) -> TrackedObjects:
        if seen is not self._seen:
            matching = [each for each in seen.readings if each.label in self._labels or not self._labels]
            boxes, scores = np.array([each.sides for each in matching]), np.array([each.score for each in matching])
            ids = self._tracker.update(boxes, scores, [each.label for each in matching])
            by_track = {track: each for track, each in zip(ids, matching) if track}
            remembered = frozenset(each.id for each in self._tracker.tracks)
            self._seen, self._objects = seen, TrackedObjects(by_track, remembered)
        return self._objects
