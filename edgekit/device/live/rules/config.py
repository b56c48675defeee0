"""The options of a rule, as they are written in `live.yaml`, with every check that needs no picture."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from edgekit.device.live.rules.geometry import Shape, directions
from edgekit.runner.bundle.manifest_rules import BOX_TASKS
from edgekit.runner.errors import InputError
from edgekit.runner.rules import Rule, is_count, is_integer, is_number, one_of, require

SCORE_TASKS = ("classification", "multi_label", *BOX_TASKS)
"""Tasks whose labels have probabilities; they are compared with `threshold`."""
VALUE_TASKS = ("anomaly", "regression", "segmentation")
"""Tasks with a value per label, such as the score of an anomaly, which is compared with `above` or `below`."""
THRESHOLD = 0.5
MOST_FRAMES, MOST_SECONDS, MOST_OBJECTS, MOST_NAME, SHOWN_LABELS = 1000, 86_400 * 366, 1000, 64, 20
COUNTS = {"line": ("tracks", "crossings"), "zone": ("tracks", "occupancy")}
"""What a rule with a line, or one with a zone or the whole picture, can count."""


@dataclass(frozen=True)
class RuleConfig:
    """A rule.

    Parameters
    ----------
    name : str
        Its name in events: letters, digits, `_` and `-`.
    label : tuple of str
        The labels that it watches. By default any label of a detector, the only one of a regression, or the anomaly.
    sources : tuple of str
        The sources that it watches; empty for all.
    threshold : float
        The least score of an object or label, from which the rule goes on.
    low_threshold : float
        The least score with which it stays on, or with which a track goes on; at most `threshold`.
    above, below : float or None
        The limit of a value, which it must exceed or fall below. An anomaly has the bundle's threshold by default.
    until : float or None
        The value up to which the rule stays on: at most `above`, or at least `below`.
    on_after_s, off_after_s : float
        How long the condition must hold or fail before `on` or `off`. When counting, how long an object must be in
        the zone, or how long an occupancy must be higher or lower.
    cool_down_s : float
        For so long after `off`, there is no further `on`.
    majority : int
        The condition must hold in more than half of so many frames, the newest included.
    at_least : int
        How many objects there must be.
    zone : Shape or None
        The polygon in which the point of an object must be.
    line : Shape or None
        The line that an object must cross.
    direction : str
        The direction of movement across the line that counts: `any`, or `left` or `right` for a steep line, and `up`
        or `down` for a flat one.
    point : str
        Which point of a box stands for an object: `bottom`, the middle of its lower side, or `center`.
    count : str
        What is counted: `tracks`, each object once (once for each direction of a line); `crossings`, each crossing;
        `occupancy`, the objects that are in the zone; or empty for events `on` and `off`.
    """

    name: str
    label: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    threshold: float = THRESHOLD
    low_threshold: float = THRESHOLD
    above: float | None = None
    below: float | None = None
    until: float | None = None
    on_after_s: float = 0.0
    off_after_s: float = 0.0
    cool_down_s: float = 0.0
    majority: int = 1
    at_least: int = 1
    zone: Shape | None = None
    line: Shape | None = None
    direction: str = "any"
    point: str = "bottom"
    count: str = ""

    @classmethod
    def parse(cls, where: str, name: Any, options: Any, labels: Sequence[str], task: str) -> RuleConfig:
        """Return the rule that a mapping of options describes.

        `where` is put in front of messages. Raises InputError for an option that is unknown, has a wrong value or does
        not fit the bundle's task or the other options.
        """
        _check_name(where, name)
        require(isinstance(options, Mapping), where, options, 'must be an object, such as {"label": "person"}')
        _check_option_names(where, options, task)
        for option, rule in _OPTION_RULES.items():
            if option in options:
                require(rule.holds(options[option]), f"{where}.{option}", options[option], rule.fix)
        chosen = {option: value for option, value in options.items() if option not in ("name", "zone", "line")}
        chosen["label"] = _labels(f"{where}.label", options.get("label"), labels, task)
        chosen["sources"] = _texts(options.get("sources"))
        chosen["count"] = _count(where, options)
        if "low_threshold" not in options:
            chosen["low_threshold"] = options.get("threshold", THRESHOLD)
        for option, make in (("zone", Shape.polygon), ("line", Shape.line)):
            if option in options:
                chosen[option] = make(f"{where}.{option}", options[option])
        config = cls(name=name, **chosen)
        _check_limits(where, config, task)
        _check_direction(where, config)
        return config


def _is_seconds(value: Any) -> bool:
    return is_number(value) and 0 <= value <= MOST_SECONDS


def _is_texts(value: Any) -> bool:
    texts = value if isinstance(value, (list, tuple)) and value else [value]
    return all(isinstance(each, str) and each for each in texts)


_PROBABILITY = Rule(lambda value: is_number(value) and 0 < value <= 1, "use a number above 0, up to 1")
_VALUE = Rule(is_number, "use a number")
_SECONDS = Rule(_is_seconds, f"use seconds, from 0 to {MOST_SECONDS}")
_TEXTS = Rule(_is_texts, "use a name, or a list of names")
_OPTION_RULES = {
    "label": _TEXTS,
    "sources": _TEXTS,
    "threshold": _PROBABILITY,
    "low_threshold": _PROBABILITY,
    "above": _VALUE,
    "below": _VALUE,
    "until": _VALUE,
    "on_after_s": _SECONDS,
    "off_after_s": _SECONDS,
    "cool_down_s": _SECONDS,
    "majority": Rule(lambda value: is_count(value) and value <= MOST_FRAMES, f"use 1 to {MOST_FRAMES} frames"),
    "at_least": Rule(lambda value: is_integer(value) and 1 <= value <= MOST_OBJECTS, f"use 1 to {MOST_OBJECTS}"),
    "direction": one_of(("any", "left", "right", "up", "down")),
    "point": one_of(("bottom", "center")),
}
_HOLD = ("on_after_s", "off_after_s")


def _check_name(where: str, name: Any) -> None:
    fits = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_-]+", name) and len(name) <= MOST_NAME
    require(fits, where, name, f"name a rule with letters, digits, _ and -, at most {MOST_NAME} of them")


def suggestion(word: str, known: Collection[str]) -> str:
    """Return `did you mean "threshold"?`, or the known words where none is similar."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.55)
    if close:
        return f'did you mean "{close[0]}"?'
    shown = sorted(known)[:SHOWN_LABELS]
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    return f"known: {', '.join(shown)}{more}"


def _check_option_names(where: str, options: Mapping[Any, Any], task: str) -> None:
    """Raise InputError for options that do not exist, or do not fit the task or one another."""
    known = [field.name for field in fields(RuleConfig) if field.name != "name"]
    for option in options:
        if option != "name" and option not in known:
            raise InputError(f"{where}: unknown option {option!r}; {suggestion(str(option), known)}")
    fitting, what = _fitting_options(options, task)
    for option in options:
        if option not in ("name", *fitting):
            raise InputError(f"{where}.{option}: does not apply to {what}; leave it out, or use {', '.join(fitting)}")


def _fitting_options(options: Mapping[Any, Any], task: str) -> tuple[tuple[str, ...], str]:
    """Return the options that apply to such a rule, and what such a rule is, in words."""
    always, state = ("label", "sources"), (*_HOLD, "cool_down_s", "majority")
    scores = (*always, "threshold", "low_threshold")
    if task in VALUE_TASKS:
        return (*always, "above", "below", "until", *state), f"the task {task}"
    if task not in BOX_TASKS:
        return (*scores, *state), f"the task {task}"
    if "line" in options:
        return (*scores, "point", "line", "direction", "count"), "a rule with a line"
    if options.get("count") == "occupancy":
        return (*scores, "point", "zone", "count", *_HOLD), "an occupancy"
    if options.get("count", False) is not False:
        return (*scores, "point", "zone", "count", "on_after_s"), "a rule that counts"
    return (*scores, *state, "at_least", "point", "zone", "count"), "a rule without a line"


def _texts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _labels(where: str, value: Any, labels: Sequence[str], task: str) -> tuple[str, ...]:
    chosen = _texts(value)
    for label in chosen:
        require(label in labels, where, label, f"the bundle has no such label; {suggestion(label, labels)}")
    if task == "anomaly":
        require(chosen in ((), (labels[1],)), where, value, f'use "{labels[1]}" or leave it out')
        return (labels[1],)
    if task in ("regression", "segmentation"):
        chosen = chosen or tuple(labels[:1] if len(labels) == 1 else ())
        require(len(chosen) == 1, where, value, f"name one label; {suggestion('', labels)}")
    if task in ("classification", "multi_label"):
        require(chosen, where, value, f"name a label; {suggestion('', labels)}")
    return chosen


def _count(where: str, options: Mapping[Any, Any]) -> str:
    """Return what is counted. A line counts tracks by default."""
    value, kind = options.get("count", "line" in options), "line" if "line" in options else "zone"
    if value is True:
        return "tracks"
    if value is False and kind == "zone":
        return ""
    fits = isinstance(value, str) and value in COUNTS[kind]
    require(fits, f"{where}.count", value, f"use true, {' or '.join(COUNTS[kind])} with a {kind}")
    return str(value)


def _check_limits(where: str, config: RuleConfig, task: str) -> None:
    low, high = config.low_threshold, config.threshold
    require(low <= high, f"{where}.low_threshold", low, f"use at most the threshold, {high}")
    if task not in VALUE_TASKS:
        return
    above, below, until = config.above, config.below, config.until
    if above is not None and below is not None:
        raise InputError(f"{where}: has above {above} and below {below}; write one rule for each")
    if above is None and below is None and (task != "anomaly" or until is not None):
        raise InputError(f"{where}: has no limit; add above or below, such as above: 30")
    if until is not None and above is not None:
        require(until <= above, f"{where}.until", until, f"use at most the limit above, {above}")
    if until is not None and below is not None:
        require(until >= below, f"{where}.until", until, f"use at least the limit below, {below}")


def _check_direction(where: str, config: RuleConfig) -> None:
    if config.line is not None and config.direction != "any":
        possible = directions(config.line.points)
        fix = f"this line is crossed to the {possible[0]} or {possible[1]}; use one of the two, or any"
        require(config.direction in possible, f"{where}.direction", config.direction, fix)
