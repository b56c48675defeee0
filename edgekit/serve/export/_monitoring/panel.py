"""Panels of a dashboard as Grafana's JSON: lines over time, heatmaps of histograms, states over time.

The fields are those of Grafana's published schema; the tests hold them against its Foundation SDK.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

LINES, HEATMAP, STATES = "timeseries", "heatmap", "state-timeline"
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
"""Chosen at the top of the dashboard."""
WIDTH, HEIGHT = 24, 8
"""Of Grafana's grid: columns of the page, and rows of a panel."""


@dataclass(frozen=True)
class Query:
    """An expression, and what its lines are called: labels stand in `{{name}}`."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """`unit` is one of Grafana's ids; `limit` is a line; `states` are (value, text, color) of a state panel."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = LINES
    limit: float | None = None
    most: float | None = None
    states: tuple[tuple[int, str, str], ...] = ()


@dataclass(frozen=True)
class Row:
    """Panels under one heading, side by side."""

    title: str
    panels: tuple[Panel, ...]


def grid(rows: Sequence[Row], across: int = 3) -> list[Json]:
    """All panels in Grafana's order, `across` beside each other, each with its id and its place."""
    found: list[Json] = []
    top = 0
    for row in rows:
        place = {"h": 1, "w": WIDTH, "x": 0, "y": top}
        found.append({"id": len(found) + 1, "type": "row", "title": row.title, "collapsed": False, "gridPos": place,
                      "panels": []})  # fmt: skip
        top += 1
        width = WIDTH // min(across, len(row.panels))
        for number, panel in enumerate(row.panels):
            line, column = divmod(number, across)
            place = {"h": HEIGHT, "w": width, "x": column * width, "y": top + line * HEIGHT}
            found.append({"id": len(found) + 1, "gridPos": place, **_json(panel)})
        top += HEIGHT * -(-len(row.panels) // across)
    return found


def _json(panel: Panel) -> Json:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": OPTIONS[panel.kind](panel),
        "targets": [_target(panel, query, chr(ord("A") + place)) for place, query in enumerate(panel.queries)],
    }


def _target(panel: Panel, query: Query, letter: str) -> Json:
    return {
        "refId": letter,
        "datasource": SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend,
        "format": "heatmap" if panel.kind == HEATMAP else "time_series",
        "range": True,
        "instant": False,
    }


def _defaults(panel: Panel) -> Json:
    found: Json = {"unit": panel.unit}
    if panel.kind == LINES:
        found |= {"min": 0, "custom": {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "auto"}}
    if panel.most is not None:
        found["max"] = panel.most
    if panel.limit is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.limit}]
        found["thresholds"] = {"mode": "absolute", "steps": steps}
        found["custom"]["thresholdsStyle"] = {"mode": "line"}
    if panel.states:
        texts = {
            str(value): {"text": text, "color": color, "index": place}
            for place, (value, text, color) in enumerate(panel.states)
        }
        found["mappings"] = [{"type": "value", "options": texts}]
    return found


def _lines(_: Panel) -> Json:
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _heatmap(panel: Panel) -> Json:
    return {
        "calculate": False,
        "color": {
            "mode": "scheme",
            "scheme": "Oranges",
            "fill": "dark-orange",
            "scale": "exponential",
            "exponent": 0.5,
            "steps": 64,
            "reverse": False,
        },
        "cellGap": 1,
        "filterValues": {"le": 1e-9},
        "showValue": "never",
        "yAxis": {"unit": panel.unit, "axisPlacement": "left"},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": False},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
    }


def _states(_: Panel) -> Json:
    return {
        "mergeValues": True,
        "showValue": "auto",
        "rowHeight": 0.9,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }


OPTIONS = {LINES: _lines, HEATMAP: _heatmap, STATES: _states}
