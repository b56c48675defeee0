"""Grafana: a dashboard of traffic, latency, refusals, batches, cache, machine, and whether a model is still right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from edgekit.serve.export import _yaml
from edgekit.serve.export._monitoring import objective as objectives
from edgekit.serve.export._monitoring import panel, rows
from edgekit.serve.export._monitoring.objective import Objective
from edgekit.serve.export._subjects import Export, Request, Subject

HELP = "Grafana: a dashboard, and how Grafana finds it"
OPTIONS = ("slo_p99", "availability")
TAKES_BUNDLES = False
DASHBOARD, PROVIDER, SOURCE = "dashboards/edgekit.json", "provisioning/dashboards.yml", "provisioning/datasources.yml"
SCHEMA = 41
"""Version of Grafana's dashboard schema, that of Grafana 12; older ones from 11 on read it too."""
FOLDER = "/var/lib/grafana/dashboards"


def export(subjects: Sequence[Subject], request: Request) -> Export:
    """The folder's files; ConfigError for an objective that cannot be."""
    objective = objectives.read(request.slo_p99, request.availability)
    made = dashboard(objective)
    files = {
        DASHBOARD: json.dumps(made, indent=2, ensure_ascii=False).encode() + b"\n",
        PROVIDER: _yaml.text(_provider()),
        SOURCE: _yaml.text(_source()),
        "README.md": _about(objective),
    }
    count = sum(each["type"] != "row" for each in made["panels"])
    return Export(files, [*objective.lines, f"{count} panels in {len(rows.rows(objective))} rows"])


def dashboard(objective: Objective) -> dict[str, Any]:
    """As Grafana reads it; the objective is drawn as a line."""
    return {
        "uid": "edgekit-models",
        "title": "Models in production",
        "description": "Bundles that run by edgekit serve, or by the runner with metrics.",
        "tags": ["edgekit"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": rows.variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": panel.grid(rows.rows(objective)),
    }


def _provider() -> dict[str, Any]:
    return {
        "apiVersion": 1,
        "providers": [{"name": "edgekit", "type": "file", "options": {"path": FOLDER}}],
    }


def _source() -> dict[str, Any]:
    source = {"name": "Prometheus", "type": "prometheus", "access": "proxy", "url": "http://localhost:9090"}
    return {"apiVersion": 1, "datasources": [source]}


def _about(objective: Objective) -> bytes:
    promises = "".join(f"- {line[0].upper()}{line[1:]}.\n" for line in objective.lines)
    return (
        "# A dashboard for Grafana\n\n"
        f"`{DASHBOARD}` is imported at Dashboards, New, Import.\n"
        f"To have Grafana find it by itself, copy it to `{FOLDER}`.\n"
        f"`{PROVIDER}` goes to `/etc/grafana/provisioning/dashboards/`.\n"
        f"`{SOURCE}` goes to `/etc/grafana/provisioning/datasources/`, where there is no data source yet.\n\n"
        f"The objective is drawn as a line:\n\n{promises}\n"
        "Panels on the use of a budget need the recording rules of `edgekit export prometheus`.\n"
        "Panels stay empty where a machine or a model does not give the metric.\n"
    ).encode()
