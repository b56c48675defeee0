"""Recording rules: rates and shares by model and version over the windows of the alerts, and percentiles.

Names follow Prometheus' convention `level:metric:operations`. A share has the same name as its rate, with `share_`.
"""

from __future__ import annotations

from typing import Any

from edgekit.serve.export._monitoring.objective import Objective

Rule = dict[str, Any]

SECONDS = {"5m": 300, "30m": 1800, "1h": 3600, "2h": 7200, "6h": 21600, "1d": 86400, "3d": 259200}
"""Every window that an alert looks at."""
BY = "job, model, version"
KNOWN = 'model!=""'
"""What was refused before its model was known belongs to no objective, and would be all of the requests of none."""
OURS = f'{KNOWN}, reason=~"busy|late|failed"'
"""Refusals that count against the server; what a client sent wrongly, or took back, does not."""
REQUEST, PART = "edgekit_request_duration_seconds", "edgekit_part_duration_seconds"
REFUSED = "edgekit_refused_total"
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def rules(objective: Objective) -> list[Rule]:
    """All of them, each after those that it reads."""
    return [rule for window in SECONDS for rule in _windowed(objective, window)] + _percentiles()


def _windowed(objective: Objective, window: str) -> list[Rule]:
    answered, requests = f"model:edgekit_answered:rate{window}", f"model:edgekit_requests:rate{window}"
    slow, refused = f"model:edgekit_slow:rate{window}", f"model:edgekit_refused:rate{window}"
    return [
        _rule(answered, f"sum by ({BY}) (rate({REQUEST}_count[{window}]))"),
        _rule(refused, f"sum by ({BY}) (rate({REFUSED}{{{OURS}}}[{window}]))\nor 0 * {answered}"),
        _rule(requests, f"{answered} + {refused}\nor {refused}"),
        _rule(slow, f'{answered}\n- sum by ({BY}) (rate({REQUEST}_bucket{{le="{objective.bound}"}}[{window}]))'),
        _rule(f"model:edgekit_slow:share_rate{window}", f"{slow} / ({answered} > 0)"),
        _rule(f"model:edgekit_refused:share_rate{window}", f"{refused} / ({requests} > 0)"),
    ]


def _percentiles() -> list[Rule]:
    found = []
    for name, share in QUANTILES.items():
        for level, metric, by in (("model", REQUEST, BY), ("part", PART, f"{BY}, part")):
            expression = f"histogram_quantile({share:g}, sum by ({by}, le) (rate({metric}_bucket[5m])))"
            found.append(_rule(f"{level}:{metric}:{name}_rate5m", expression))
    return found


def _rule(name: str, expression: str) -> Rule:
    return {"record": name, "expr": expression}
