"""The service level objective, and the recording rules that the alerts and the dashboard read.

The objective consists of a latency that 99 % of the answers must meet, and the share of requests that must be answered.
The rules are named by Prometheus' convention `level:metric:operations`. In the name of a share, `share_rate` takes the
place of `rate`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from edgekit.core.errors import ConfigError
from edgekit.device.monitor import histogram

P99 = "100ms"
AVAILABILITY = "99.9"
LATENCY_BUDGET = 0.01
"""The share of answers that may be slower than the latency of the objective, which is a p99."""
LEAST, MOST = 95.0, 99.999
"""Bounds of the availability in percent.

Below 93.1 %, the fastest alert could never fire: even if every request failed, the budget would be used less than 14.4
times too fast.
"""
UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True)
class Objective:
    """The service level objective.

    `requested_ms` is the requested latency. The nearest bound of a histogram bucket is used instead; `bound` is this
    bound, in seconds, as the bucket's label `le` has it. `availability` is in percent.
    """

    requested_ms: float
    bound: str
    availability: float

    @property
    def bound_ms(self) -> float:
        """The latency of the objective in ms."""
        return float(self.bound) * 1e3

    @property
    def availability_budget(self) -> float:
        """The share of requests that may remain unanswered."""
        return round(1 - self.availability / 100, 9)

    @property
    def lines(self) -> list[str]:
        """The objective in words, for the console and the README, including whether the latency was rounded."""
        requested, bound = f"{self.requested_ms:g} ms", f"{self.bound_ms:.4g} ms"
        latency = f"latency: 99 % of the answers come within {bound}"
        if requested != bound:
            latency += f" (requested: {requested}; {bound} is the nearest bucket of the histogram)"
        return [latency, f"availability: {self.availability:g} % of the requests are answered"]


def bounds() -> list[str]:
    """Return the upper bounds (the label `le`) of all buckets of a latency histogram except `+Inf`."""
    return [bound for bound, _ in histogram.exposed_buckets([0] * (len(histogram.BOUNDS_MS) + 1))][:-1]


def read_objective(p99: str | None, availability: str | None) -> Objective:
    """Parse the objective. None stands for the default. Raises ConfigError for invalid or extreme values."""
    requested_ms = _latency_ms(P99 if p99 is None else p99)
    nearest = min(bounds(), key=lambda bound: abs(math.log(float(bound) * 1e3 / requested_ms)))
    return Objective(requested_ms, nearest, _percent(AVAILABILITY if availability is None else availability))


def _latency_ms(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", text.strip())
    if not match:
        raise ConfigError(f"--slo-p99: got {text!r}; write a number with its unit, for example 50ms or 0.2s")
    requested_ms = float(match[1]) * UNITS_MS[match[2]]
    least_ms, most_ms = (float(bounds()[index]) * 1e3 for index in (0, -1))
    if not least_ms <= requested_ms <= most_ms:
        raise ConfigError(f"--slo-p99: got {text!r}; the histogram reaches from {least_ms:g}ms to {most_ms:.4g}ms")
    return requested_ms


def _percent(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    if not LEAST <= value <= MOST:
        raise ConfigError(f"--availability: got {text!r}; write a percentage from {LEAST:g} to {MOST:g}, such as 99.9")
    return value


Rule = dict[str, Any]

SECONDS = {"5m": 300, "30m": 1800, "1h": 3600, "2h": 7200, "6h": 21600, "1d": 86400, "3d": 259200}
"""All windows that alerts use, in seconds."""
BY = "job, model, version"
KNOWN = 'model!=""'
"""Excludes requests that were refused before their model was known, because they belong to no objective."""
SERVER_FAULTS = f'{KNOWN}, reason=~"busy|late|failed"'
"""Selects the refusals that count against the server, and not those that a client caused or cancelled."""
REQUEST, PART = "edgekit_request_duration_seconds", "edgekit_part_duration_seconds"
REFUSED = "edgekit_refused_total"
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def recording_rules(objective: Objective) -> list[Rule]:
    """Return all recording rules, each after those that it depends on."""
    return [rule for window in SECONDS for rule in _window_rules(objective, window)] + _percentiles()


def _window_rules(objective: Objective, window: str) -> list[Rule]:
    answered, requests = f"model:edgekit_answered:rate{window}", f"model:edgekit_requests:rate{window}"
    slow, refused = f"model:edgekit_slow:rate{window}", f"model:edgekit_refused:rate{window}"
    return [
        _rule(answered, f"sum by ({BY}) (rate({REQUEST}_count[{window}]))"),
        _rule(refused, f"sum by ({BY}) (rate({REFUSED}{{{SERVER_FAULTS}}}[{window}]))\nor 0 * {answered}"),
        _rule(requests, f"{answered} + {refused}\nor {refused}"),
        _rule(slow, f'{answered}\n- sum by ({BY}) (rate({REQUEST}_bucket{{le="{objective.bound}"}}[{window}]))'),
        _rule(f"model:edgekit_slow:share_rate{window}", f"{slow} / ({answered} > 0)"),
        _rule(f"model:edgekit_refused:share_rate{window}", f"{refused} / ({requests} > 0)"),
    ]


def _percentiles() -> list[Rule]:
    rules = []
    for name, share in QUANTILES.items():
        for level, metric, by in (("model", REQUEST, BY), ("part", PART, f"{BY}, part")):
            expression = f"histogram_quantile({share:g}, sum by ({by}, le) (rate({metric}_bucket[5m])))"
            rules.append(_rule(f"{level}:{metric}:{name}_rate5m", expression))
    return rules


def _rule(name: str, expression: str) -> Rule:
    return {"record": name, "expr": expression}
