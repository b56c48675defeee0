"""Prometheus: recording rules, alerts, and an example of its config."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.serve.export import _yaml
from edgekit.serve.export._monitoring import alerts, burn, recording, scrape
from edgekit.serve.export._monitoring import objective as objectives
from edgekit.serve.export._monitoring.alert import Alert, address
from edgekit.serve.export._monitoring.objective import Objective
from edgekit.serve.export._subjects import Export, Request, Subject

HELP = "Prometheus: recording rules, alerts on an objective, drift and the machine, and a scrape config"
OPTIONS = ("slo_p99", "availability", "scrape", "docs")
TAKES_BUNDLES = False
RECORDING, ALERTS = "recording.yml", "alerts.yml"


def export(subjects: Sequence[Subject], request: Request) -> Export:
    """The folder's files; ConfigError for an objective or an address that cannot be."""
    objective = objectives.read(request.slo_p99, request.availability)
    targets = scrape.addresses(request.scrape)
    found = every_alert(objective)
    docs = address(request.docs)
    files = {
        RECORDING: _yaml.text({"groups": [{"name": "edgekit-recording", "rules": recording.rules(objective)}]}),
        ALERTS: _yaml.text({"groups": [{"name": "edgekit-alerts", "rules": [each.rule(docs) for each in found]}]}),
        "prometheus.yml": _yaml.text(scrape.config(targets, [RECORDING, ALERTS])),
        "README.md": _about(objective, found, targets),
    }
    names = {each.name for each in found}
    return Export(files, [*objective.lines, f"{len(names)} alerts; scrapes {', '.join(targets)}"])


def every_alert(objective: Objective) -> list[Alert]:
    """Those on the budget first."""
    return [*burn.alerts(objective), *alerts.alerts()]


def _about(objective: Objective, found: Sequence[Alert], targets: Sequence[str]) -> bytes:
    promises = "".join(f"- {line[0].upper()}{line[1:]}.\n" for line in objective.lines)
    rows = {each.name: f"| `{each.name}` | {each.severity} |" for each in reversed(found)}
    table = "\n".join(rows[name] for name in sorted(rows))
    return (
        "# Rules for Prometheus\n\n"
        f"The objective:\n\n{promises}\n"
        f"- `{RECORDING}`: rates, shares and percentiles that the alerts and the dashboard read.\n"
        f"- `{ALERTS}`: the alerts. `promtool check rules {ALERTS}` reads them.\n"
        "- `prometheus.yml`: an example. Copy its job and its `rule_files` into your own config.\n\n"
        f"The job scrapes {', '.join(f'`{each}`' for each in targets)}.\n"
        "The second port of `edgekit serve` is on loopback unless `--admin-host` says otherwise.\n"
        "A server with tokens takes one as `authorization: {credentials_file: FILE}` of the job.\n"
        "Call every job `edgekit` or `edgekit-NAME`: the alert on targets that are down looks for that.\n\n"
        "Windows reach back three days, so Prometheus must keep at least that much.\n"
        "Alerts go to people by an Alertmanager, which `prometheus.yml` does not name.\n\n"
        f"| alert | worst severity |\n|---|---|\n{table}\n"
    ).encode()
