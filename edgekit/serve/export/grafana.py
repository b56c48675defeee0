"""Export for Grafana: a dashboard of traffic, latency, refusals, batches, cache, machine, and the health of models.

The fields of panels follow Grafana's published schema, and the tests compare them with its Foundation SDK.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.device.hardware.health import HOT_C
from edgekit.serve.export._formats import yaml_text
from edgekit.serve.export._recording import LATENCY_BUDGET, PART, QUANTILES, REFUSED, REQUEST, Objective, read_objective
from edgekit.serve.export._subjects import Export, ExportedBundle, ExportRequest

Json = dict[str, Any]

LINES, HEATMAP, STATES = "timeseries", "heatmap", "state-timeline"
DATA_SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
"""The data source that the user selects at the top of the dashboard."""
WIDTH, HEIGHT = 24, 8
"""Columns of the page and rows of a panel in Grafana's grid."""


@dataclass(frozen=True)
class Query:
    """An expression and the legend of its lines, in which labels appear as `{{name}}`."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """A panel.

    `unit` is one of Grafana's ids of units, `limit` is the value at which a line is drawn, `most` is the upper end of
    the axis, and `states` has a (value, text, color) for each value that is shown as a text.
    """

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
    """Panels side by side under one heading."""

    title: str
    panels: tuple[Panel, ...]


def grid(rows: Sequence[Row], across: int = 3) -> list[Json]:
    """Return all panels in Grafana's order with ids and positions, `across` of them side by side."""
    panels: list[Json] = []
    top = 0
    for row in rows:
        position = {"h": 1, "w": WIDTH, "x": 0, "y": top}
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": position,
                "panels": [],
            }
        )
        top += 1
        width = WIDTH // min(across, len(row.panels))
        for number, panel in enumerate(row.panels):
            line, column = divmod(number, across)
            position = {"h": HEIGHT, "w": width, "x": column * width, "y": top + line * HEIGHT}
            panels.append({"id": len(panels) + 1, "gridPos": position, **_json(panel)})
        top += HEIGHT * -(-len(row.panels) // across)
    return panels


def _json(panel: Panel) -> Json:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATA_SOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": PANEL_OPTIONS[panel.kind](panel),
        "targets": [_target(panel, query, chr(ord("A") + place)) for place, query in enumerate(panel.queries)],
    }


def _target(panel: Panel, query: Query, letter: str) -> Json:
    return {
        "refId": letter,
        "datasource": DATA_SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend,
        "format": "heatmap" if panel.kind == HEATMAP else "time_series",
        "range": True,
        "instant": False,
    }


def _defaults(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit}
    if panel.kind == LINES:
        defaults |= {"min": 0, "custom": {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "auto"}}
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.limit is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.limit}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        defaults["custom"]["thresholdsStyle"] = {"mode": "line"}
    if panel.states:
        texts = {
            str(value): {"text": text, "color": color, "index": place}
            for place, (value, text, color) in enumerate(panel.states)
        }
        defaults["mappings"] = [{"type": "value", "options": texts}]
    return defaults


def _line_options(_: Panel) -> Json:
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _heatmap_options(panel: Panel) -> Json:
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


def _state_options(_: Panel) -> Json:
    return {
        "mergeValues": True,
        "showValue": "auto",
        "rowHeight": 0.9,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }


PANEL_OPTIONS = {LINES: _line_options, HEATMAP: _heatmap_options, STATES: _state_options}


VARIABLES = ("job", "instance", "model", "version")
MODEL = ", ".join(f'{name}=~"${name}"' for name in VARIABLES)
"""Label selectors for the metrics of a model. The metrics of a machine have only the first two labels."""
MACHINE = ", ".join(f'{name}=~"${name}"' for name in VARIABLES[:2])
LEVEL = 'job=~"$job", model=~"$model", version=~"$version"'
"""Label selectors for the recording rules, which are sums over machines."""
WHO, WHERE = "{{model}} {{version}}", "{{instance}}"
GREEN, YELLOW, RED, GREY = "green", "yellow", "red", "text"


def rows(objective: Objective) -> list[Row]:
    """Return the rows of the dashboard in the order in which one would look for a cause."""
    return [
        _traffic_row(),
        _latency_row(objective),
        _refusals_row(objective),
        _batches_row(),
        _cache_row(),
        _machine_row(),
        _health_row(),
    ]


def variables() -> list[Json]:
    """Return the dashboard's variables: the data source, then each label, with all values selected."""
    source: Json = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    variables = [source]
    for place, name in enumerate(VARIABLES):
        chosen = ", ".join(f'{each}=~"${each}"' for each in VARIABLES[:place] if each != "instance")
        variables.append(
            {
                "name": name,
                "label": name.capitalize(),
                "type": "query",
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "query": {"query": f"label_values({REQUEST}_count{{{chosen}}}, {name})", "refId": name},
                "refresh": 2,
                "sort": 1,
                "multi": True,
                "includeAll": True,
                "allValue": ".*",
                "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            }
        )
    return variables


def _traffic_row() -> Row:
    return Row(
        "Traffic",
        (
            _line_panel("Answers", "Requests that were answered.", "reqps",
                   _rate(f"{REQUEST}_count", "model, version"), WHO),
            _line_panel("Samples", "Samples that were answered; a request may hold several.", "ops",
                   _rate("nv_inference_count", "model, version"), WHO),
            _line_panel("Waiting", "Samples in the queue.", "short",
                   f"sum by (model, version) (nv_inference_pending_request_count{{{MODEL}}})", WHO),
        ),
    )  # fmt: skip


def _latency_row(objective: Objective) -> Row:
    whole = tuple(
        Query(_quantile(REQUEST, share, "model, version"), f"{WHO} {name}") for name, share in QUANTILES.items()
    )
    bound_s = float(objective.bound)
    parts = [
        _line_panel(f"{name} by part", "Queue, preprocess, execute, postprocess.", "s",
               _quantile(PART, share, "model, version, part"), f"{WHO} {{{{part}}}}")
        for name, share in QUANTILES.items()
    ]  # fmt: skip
    return Row(
        "Latency",
        (
            Panel("Whole requests", f"The line is the objective: p99 within {objective.bound_ms:.4g} ms.", "s", whole,
                  limit=bound_s),
            _heatmap_panel("Whole requests, distribution", "How many requests took how long.", "s", REQUEST),
            _heatmap_panel("The interpreter, distribution", "How many calls of execute took how long.", "s", PART,
                     'part="execute"'),
            *parts,
        ),
    )  # fmt: skip


def _refusals_row(objective: Objective) -> Row:
    budgets = (("Latency", "slow", LATENCY_BUDGET), ("Availability", "refused", objective.availability_budget))
    return Row(
        "Refusals and budgets",
        (
            _line_panel("Refusals by reason",
                   "Busy, late and failed are faults of the server; the others come from clients.", "reqps",
                   _rate(REFUSED, "model, version, reason"), f"{WHO} {{{{reason}}}}"),
            *(_burn_panel(*each) for each in budgets),
        ),
    )  # fmt: skip


def _burn_panel(title: str, what: str, budget: float) -> Panel:
    share = f"model:edgekit_{what}:share_rate{{}}{{{{{LEVEL}}}}} / {budget:g}"
    queries = tuple(Query(share.format(window), f"{WHO} {window}") for window in ("1h", "6h", "3d"))
    about = "At 1, the budget is used up exactly in its period. Needs the recording rules."
    return Panel(f"{title}: use of the budget", about, "short", queries, limit=1.0)


def _batches_row() -> Row:
    mean = (
        f"{_rate('edgekit_batch_size_sum', 'model, version')}\n/ {_rate('edgekit_batch_size_count', 'model, version')}"
    )
    return Row(
        "Batches",
        (
            _line_panel("Mean batch", "Samples in a call of the interpreter.", "short", mean, WHO),
            _heatmap_panel(
                "Batches, distribution", "How many calls had how many samples.", "short", "edgekit_batch_size"
            ),
            _line_panel(
                "Calls", "Calls of the interpreter.", "ops", _rate("nv_inference_exec_count", "model, version"), WHO
            ),
        ),
    )


def _cache_row() -> Row:
    hits, misses = (_rate(f"nv_cache_num_{each}_per_model", "model, version") for each in ("hits", "misses"))
    return Row(
        "Cache",
        (
            _line_panel("Hits", "Share of the requests that the cache answered.", "percentunit",
                   f"{hits}\n/ ({hits} + {misses})", WHO, maximum=1),
            _line_panel("Size", "Bytes of the cached answers.", "bytes",
                   f"sum by (instance) (edgekit_cache_bytes{{{MACHINE}}})", WHERE),
            _line_panel("Entries", "Cached answers.", "short",
                   f"sum by (instance) (edgekit_cache_entries{{{MACHINE}}})", WHERE),
        ),
    )  # fmt: skip


def _machine_row() -> Row:
    cpu = f"sum by (instance, process) (rate(edgekit_process_cpu_seconds_total{{{MACHINE}}}[$__rate_interval]))"
    resident = f"max by (instance, process) (edgekit_process_resident_bytes{{{MACHINE}}})"
    flags = tuple(
        Query(f"max by (instance) (edgekit_{each}{{{MACHINE}}})", f"{WHERE} {text}")
        for each, text in (("throttled", "clock"), ("under_voltage", "voltage"))
    )
    states = ((0, "well", GREEN), (1, "too low", RED))
    return Row(
        "Machine",
        (
            _line_panel("Processor", "Cores in use.", "short", cpu, f"{WHERE} {{{{process}}}}"),
            _line_panel("Memory", "Resident bytes.", "bytes", resident, f"{WHERE} {{{{process}}}}"),
            _line_panel("Temperature", "The processor's hottest zone.", "celsius",
                   f"max by (instance) (edgekit_temperature_celsius{{{MACHINE}}})", WHERE, limit=HOT_C),
            _line_panel("Clock", "Mean over the cores in use.", "hertz",
                   f"min by (instance) (edgekit_clock_hertz{{{MACHINE}}})", WHERE),
            Panel("Throttled", "The processor is below its clock, or its supply voltage below its limit.", "short",
                  flags, STATES, states=states),
            _line_panel("Windows dropped", "Windows of streams that were dropped unanswered.", "ops",
                   _rate("edgekit_dropped_total", "instance, model, version"), f"{WHO} {WHERE}"),
        ),
    )  # fmt: skip


def _health_row() -> Row:
    states = ((-1, "too early", GREY), (0, "healthy", GREEN), (1, "warning", YELLOW), (2, "wrong", RED))
    health = Query(f"max by (instance, model, version) (edgekit_health{{{MODEL}}})", f"{WHO} {WHERE}")
    alarms = Query(
        f"max by (instance, model, version, statistic) (edgekit_drift_alarm{{{MODEL}}})",
        f"{WHO} {{{{statistic}}}} {WHERE}",
    )
    success = f"max by (instance, model, version) (edgekit_canary_last_success_timestamp_seconds{{{MODEL}}})"
    return Row(
        "Is it still right?",
        (
            Panel("Verdict", "The monitor's verdict on each model.", "short", (health,), STATES, states=states),
            _line_panel("Drift", "Evidence: -log10 of the p-value, corrected for repeated tests.", "short",
                   f"max by (instance, model, version, statistic) (edgekit_drift{{{MODEL}}})",
                   f"{WHO} {{{{statistic}}}} {WHERE}"),
            Panel("Drift alarms", "By statistic.", "short", (alarms,), STATES,
                  states=((0, "as in validation", GREEN), (1, "drifted", RED))),
            Panel("Canary", "Golden samples, on the interpreter in use.", "ops",
                  (Query(_rate("edgekit_canary_runs_total", "model, version"), f"{WHO} runs"),
                   Query(_rate("edgekit_canary_failures_total", "model, version"), f"{WHO} failures"))),
            _line_panel("Since the last passed canary", "Stale after a quarter of an hour.", "s",
                   f"time() - {success}",
                   f"{WHO} {WHERE}"),
            _line_panel("Samples monitored", "Samples that the monitor has examined.", "ops",
                   _rate("edgekit_watched_samples_total", "model, version"), WHO),
        ),
    )  # fmt: skip


def _line_panel(
    title: str, about: str, unit: str, expression: str, legend: str,
    limit: float | None = None, maximum: float | None = None,
) -> Panel:  # fmt: skip
    return Panel(title, about, unit, (Query(expression, legend),), limit=limit, most=maximum)


def _heatmap_panel(title: str, about: str, unit: str, metric: str, selectors: str = "") -> Panel:
    chosen = f"{MODEL}, {selectors}" if selectors else MODEL
    counts = f"sum by (le) (increase({metric}_bucket{{{chosen}}}[$__rate_interval]))"
    return Panel(title, about, unit, (Query(counts, "{{le}}"),), HEATMAP)


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{MODEL}}}[$__rate_interval]))"


def _quantile(metric: str, share: float, by: str) -> str:
    return f"histogram_quantile({share:g}, {_rate(f'{metric}_bucket', f'{by}, le')})"


HELP = "Grafana: a dashboard, and files with which Grafana finds it"
OPTIONS = ("slo_p99", "availability")
TAKES_BUNDLES = False
DASHBOARD, PROVIDER, SOURCE = "dashboards/edgekit.json", "provisioning/dashboards.yml", "provisioning/datasources.yml"
SCHEMA = 41
"""Version of the dashboard schema: that of Grafana 12, which Grafana 11 can read as well."""
FOLDER = "/var/lib/grafana/dashboards"


def export(subjects: Sequence[ExportedBundle], request: ExportRequest) -> Export:
    """Create the folder's files. Raises ConfigError for an invalid objective."""
    objective = read_objective(request.slo_p99, request.availability)
    dashboard_json = dashboard(objective)
    files = {
        DASHBOARD: json.dumps(dashboard_json, indent=2, ensure_ascii=False).encode() + b"\n",
        PROVIDER: yaml_text(_provider()),
        SOURCE: yaml_text(_source()),
        "README.md": _readme(objective),
    }
    count = sum(each["type"] != "row" for each in dashboard_json["panels"])
    return Export(files, [*objective.lines, f"{count} panels in {len(rows(objective))} rows"])


def dashboard(objective: Objective) -> dict[str, Any]:
    """Return the dashboard in Grafana's format. The objective is drawn as a line."""
    return {
        "uid": "edgekit-models",
        "title": "Models in production",
        "description": "Bundles that run in edgekit serve, or in the runner with metrics.",
        "tags": ["edgekit"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": grid(rows(objective)),
    }


def _provider() -> dict[str, Any]:
    return {
        "apiVersion": 1,
        "providers": [{"name": "edgekit", "type": "file", "options": {"path": FOLDER}}],
    }


def _source() -> dict[str, Any]:
    source = {"name": "Prometheus", "type": "prometheus", "access": "proxy", "url": "http://localhost:9090"}
    return {"apiVersion": 1, "datasources": [source]}


def _readme(objective: Objective) -> bytes:
    objective_lines = "".join(f"- {line[0].upper()}{line[1:]}.\n" for line in objective.lines)
    return (
        "# A dashboard for Grafana\n\n"
        f"Import `{DASHBOARD}` in Grafana under Dashboards, New, Import.\n"
        f"Or let Grafana find it by itself: copy it to `{FOLDER}`,\n"
        f"`{PROVIDER}` to `/etc/grafana/provisioning/dashboards/`,\n"
        f"and, if Grafana has no data source yet, `{SOURCE}` to `/etc/grafana/provisioning/datasources/`.\n\n"
        f"The dashboard draws the objective as a line:\n\n{objective_lines}\n"
        "The panels about the use of the error budget need the recording rules of `edgekit export prometheus`.\n"
        "A panel stays empty if a machine or a model does not report its metric.\n"
    ).encode()
