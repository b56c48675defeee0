"""Export for Prometheus: recording rules, alerts on a service-level objective, and an example config."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from edgekit.core.errors import ConfigError
from edgekit.serve.export._alerts import Alert, address, alerts, budget_alerts
from edgekit.serve.export._formats import yaml_text
from edgekit.serve.export._recording import Objective, read_objective, recording_rules
from edgekit.serve.export._subjects import Export, ExportedBundle, ExportRequest

DEFAULT = ("localhost:8002",)
"""The default address of the admin port of `edgekit serve`."""
ADDRESS = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
MAX_PORT = 65535


def addresses(requested: Sequence[str] | None) -> list[str]:
    """Check the addresses of the servers, or return the default. Raises ConfigError unless each is HOST:PORT."""
    for each in requested or ():
        match = ADDRESS.fullmatch(each)
        if not match or not 0 < int(match[2]) <= MAX_PORT:
            raise ConfigError(f"--scrape: got {each!r}; write HOST:PORT of the admin port, such as {DEFAULT[0]}")
    return list(requested or DEFAULT)


def config(targets: Sequence[str], rule_files: Sequence[str]) -> dict[str, Any]:
    """Return the example config. Alerts are not sent until its section `alerting` names an Alertmanager."""
    job = {"job_name": "edgekit", "metrics_path": "/metrics", "static_configs": [{"targets": list(targets)}]}
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "1m"},
        "rule_files": list(rule_files),
        "scrape_configs": [job],
    }


HELP = "Prometheus: recording rules, a scrape config, and alerts on an SLO, on drift and on machine health"
OPTIONS = ("slo_p99", "availability", "scrape", "docs")
TAKES_BUNDLES = False
RECORDING, ALERTS = "recording.yml", "alerts.yml"


def export(subjects: Sequence[ExportedBundle], request: ExportRequest) -> Export:
    """Create the folder's files. Raises ConfigError for an invalid objective or address."""
    objective = read_objective(request.slo_p99, request.availability)
    targets = addresses(request.scrape)
    alert_rules = every_alert(objective)
    docs = address(request.docs)
    files = {
        RECORDING: yaml_text({"groups": [{"name": "edgekit-recording", "rules": recording_rules(objective)}]}),
        ALERTS: yaml_text({"groups": [{"name": "edgekit-alerts", "rules": [each.rule(docs) for each in alert_rules]}]}),
        "prometheus.yml": yaml_text(config(targets, [RECORDING, ALERTS])),
        "README.md": _readme(objective, alert_rules, targets),
    }
    names = {each.name for each in alert_rules}
    return Export(files, [*objective.lines, f"{len(names)} alerts; scrapes {', '.join(targets)}"])


def every_alert(objective: Objective) -> list[Alert]:
    """Return all alerts, those on the budgets first."""
    return [*budget_alerts(objective), *alerts()]


def _readme(objective: Objective, alert_rules: Sequence[Alert], targets: Sequence[str]) -> bytes:
    objective_lines = "".join(f"- {line[0].upper()}{line[1:]}.\n" for line in objective.lines)
    rows = {each.name: f"| `{each.name}` | {each.severity} |" for each in reversed(alert_rules)}
    table = "\n".join(rows[name] for name in sorted(rows))
    return (
        "# Rules for Prometheus\n\n"
        f"The objective:\n\n{objective_lines}\n"
        f"- `{RECORDING}`: rates, shares and percentiles that the alerts and the dashboard read.\n"
        f"- `{ALERTS}`: the alerts. `promtool check rules {ALERTS}` checks them.\n"
        "- `prometheus.yml`: an example. Copy its job and its `rule_files` into your own config.\n\n"
        f"The job scrapes {', '.join(f'`{each}`' for each in targets)}.\n"
        "The admin port of `edgekit serve` (`--admin-port`) is on loopback unless you set `--admin-host`.\n"
        "If the server requires a token, add `authorization: {credentials_file: FILE}` to the job.\n"
        "Call every job `edgekit` or `edgekit-NAME`: `EdgekitTargetDown` selects jobs by these names.\n\n"
        "The longest alert window is three days, so Prometheus must keep its data for at least that long.\n"
        "Prometheus sends notifications through an Alertmanager. `prometheus.yml` does not configure one; add it under "
        "`alerting`.\n\n"
        f"| alert | worst severity |\n|---|---|\n{table}\n"
    ).encode()
