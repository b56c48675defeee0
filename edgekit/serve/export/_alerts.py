"""Alerting rules for Prometheus, each with advice for the person who receives the alert.

The alerts on the error budgets of the objective use several windows and burn rates (Google, The Site Reliability
Workbook, chapter 5, "Multiwindow, Multi-Burn-Rate Alerts"): the long window shows that the problem matters, the short
one that it is still going on. A minimum number of bad requests prevents alerts at very low traffic. The thresholds of
the other alerts are constants here and plain numbers in the rules, so that users can change them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from edgekit.core.errors import ConfigError
from edgekit.device.hardware.health import HOT_C
from edgekit.serve.export._recording import BY, KNOWN, LATENCY_BUDGET, REFUSED, REQUEST, SECONDS, Objective

DOCS = "docs/how-to/alerts.md"
"""The page with a heading for each alert."""
PAGE, TICKET = "page", "ticket"
"""Severities: a page needs attention at once, a ticket can wait until the morning."""
ADDRESS = re.compile(r"[!$%&()*+,./0-9:;=?@A-Z_a-z~-]+")
"""The characters allowed in a link before its fragment. Prometheus would treat braces as a template."""


def address(docs_address: str | None) -> str:
    """Return the address of the page on alerts, or the default. Raises ConfigError if it is not an address."""
    if docs_address is not None and not ADDRESS.fullmatch(docs_address):
        raise ConfigError(
            f"--docs: got {docs_address!r}; write the page's address without a heading, such as https://HOST/alerts"
        )
    return docs_address or DOCS


@dataclass(frozen=True)
class Alert:
    """An alerting rule.

    `hold` is how long the expression must be true, and `look_at` lists the first three things to check, in order.
    """

    name: str
    severity: str
    expression: str
    hold: str
    summary: str
    description: str
    look_at: tuple[str, str, str]
    labels: Mapping[str, str] = field(default_factory=dict)

    def rule(self, docs: str) -> dict[str, Any]:
        """Return the rule in Prometheus' format; `docs` is the address of the page on alerts."""
        return {
            "alert": self.name,
            "expr": self.expression,
            **({"for": self.hold} if self.hold else {}),
            "labels": {"severity": self.severity, **self.labels},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "look_at": "\n".join(f"{number}. {each}" for number, each in enumerate(self.look_at, 1)),
                "runbook_url": f"{docs}#{self.name.lower()}",
            },
        }


FEWEST_BAD = 5
"""An alert needs at least this many slow or refused requests in the long window, so that a single one at night, when
there are few requests, raises no alert."""


class Burn(NamedTuple):
    """A burn rate: the budget is used `rate` times too fast. A rate of 1 uses exactly the budget in its period.

    An alert is raised if the budget is used this fast in both of the windows `long` and `short`.
    """

    rate: float
    long: str
    short: str
    severity: str


BURNS = (
    Burn(14.4, "1h", "5m", PAGE),
    Burn(6, "6h", "30m", PAGE),
    Burn(3, "1d", "2h", TICKET),
    Burn(1, "3d", "6h", TICKET),
)


def budget_alerts(objective: Objective) -> list[Alert]:
    """Return the alerts on latency and availability at each burn rate."""
    return [make(objective, burn) for make in (_latency, _availability) for burn in BURNS]


def _latency(objective: Objective, burn: Burn) -> Alert:
    return Alert(
        "EdgekitLatencyBudgetBurn",
        burn.severity,
        _expression("slow", LATENCY_BUDGET, burn),
        "",
        "{{ $labels.model }} {{ $labels.version }} is slower than its objective",
        f"{{{{ $value | humanizePercentage }}}} of the answers of the last {burn.long} took longer than "
        f"{objective.bound_ms:.4g} ms; 1 % may. The budget is used {burn.rate:g} times too fast.",
        (
            "Latency by part: which of queue, preprocess, execute and postprocess has grown?",
            "Traffic and batches: are there more or larger requests than the latency curve at start-up covers?",
            "The machine: throttled, hot, a lower clock, or another process on its cores?",
        ),
        _labels(burn),
    )


def _availability(objective: Objective, burn: Burn) -> Alert:
    return Alert(
        "EdgekitAvailabilityBudgetBurn",
        burn.severity,
        _expression("refused", objective.availability_budget, burn),
        "",
        "{{ $labels.model }} {{ $labels.version }} refuses more than its objective allows",
        f"{{{{ $value | humanizePercentage }}}} of the requests of the last {burn.long} were refused or failed; "
        f"{objective.availability_budget * 100:.6g} % may. The budget is used {burn.rate:g} times too fast.",
        (
            "Refusals by reason: busy and late mean too much load, failed means the interpreter.",
            "The server's log: the line of the first failure, and workers that were started again.",
            "Queue and execute: is the model slower than before, or are there more requests?",
        ),
        _labels(burn),
    )


def _expression(what: str, budget: float, burn: Burn) -> str:
    rate, share = f"model:edgekit_{what}:rate", f"model:edgekit_{what}:share_rate"
    limit = f"{burn.rate:g} * {budget:.6g}"
    return (
        f"{share}{burn.long} > {limit}\n"
        f"and {share}{burn.short} > {limit}\n"
        f"and {rate}{burn.long} * {SECONDS[burn.long]} >= {FEWEST_BAD}"
    )


def _labels(burn: Burn) -> dict[str, str]:
    return {"long": burn.long, "short": burn.short}


JOBS = 'job=~"edgekit.*"'
"""Selects the jobs of the scrape config: servers, and devices behind node-exporter."""
STALE_S = 900
"""Time since the last successful canary, 15 times the usual interval of 60 s."""
INVALID = f'{KNOWN}, reason=~"invalid|too_large|unsupported"'
INVALID_SHARE = DROPPED_SHARE = 0.1
FEWEST = 20
GROWTH = 1.05
"""An alert is raised if memory grows by this factor in each of two successive periods of three hours.

Loading a model makes memory grow only once.
"""
WHICH = "{{ $labels.model }} {{ $labels.version }} on {{ $labels.instance }}"


def alerts() -> list[Alert]:
    """Return all alerts except those on the budgets."""
    return [*_health_alerts(), *_canary_alerts(), *_request_alerts(), *_machine_alerts()]


def _health_alerts() -> list[Alert]:
    return [
        Alert(
            "EdgekitModelWrong",
            PAGE,
            "edgekit_health == 2",
            "2m",
            f"{WHICH} is wrong",
            "The monitor of this model reports that its answers cannot be relied on.",
            (
                "The verdict in words: see the server's page, the field report, or `edgerun predict --watch`.",
                "The canary: a failure there points to the interpreter or the machine, not to the inputs.",
                "The drift panels: which statistic first differed from validation, and when?",
            ),
        ),
        Alert(
            "EdgekitModelWarning",
            TICKET,
            "edgekit_health == 1",
            "30m",
            f"{WHICH} differs from validation",
            "For half an hour something has differed from validation.",
            (
                "The verdict in words: what differs, and by how much?",
                "The most uncertain inputs, if they are stored: look at a dozen of them.",
                "What changed then: a camera, a microphone, a place, a library, a client?",
            ),
        ),
        Alert(
            "EdgekitDrift",
            TICKET,
            "edgekit_drift_alarm == 1",
            "10m",
            f"{WHICH}: {{{{ $labels.statistic }}}} has drifted",
            "{{ $labels.statistic }} differs from validation, even after the correction for repeated tests.",
            (
                "The statistic here and in validation: the field report has both.",
                "Other statistics at that time: if only one drifted, suspect a sensor; if all did, the scene.",
                "Confidence and class shares: do the answers change too, or only the inputs?",
            ),
        ),
    ]


def _canary_alerts() -> list[Alert]:
    return [
        Alert(
            "EdgekitCanaryFailed",
            PAGE,
            "increase(edgekit_canary_failures_total[15m]) > 0",
            "",
            f"{WHICH} does not give its recorded answers",
            "The answers to the golden samples are not the recorded ones, on the interpreter that answers requests.",
            (
                "`edgerun selftest` on that machine: does it fail in a fresh process too?",
                "What was updated: the interpreter, its libraries, the kernel, the bundle?",
                "The machine's memory and heat: a fault that comes and goes points to the hardware.",
            ),
        ),
        Alert(
            "EdgekitCanaryStale",
            TICKET,
            f"time() - edgekit_canary_last_success_timestamp_seconds > {STALE_S}",
            "5m",
            f"{WHICH}: no canary has passed lately",
            "The golden samples last gave their recorded answers {{ $value | humanizeDuration }} ago.",
            (
                "Canary runs and failures: does it fail, or does it not run?",
                "Traffic: in `edgerun` a canary runs between two answers, so there is none without requests.",
                "The clock of that machine: it may be behind the clock of Prometheus.",
            ),
        ),
    ]


def _request_alerts() -> list[Alert]:
    requests = "sum by (job, model) (model:edgekit_requests:rate{})"
    invalid = f"sum by ({BY}) (rate({REFUSED}{{{INVALID}}}[30m]))"
    every = f"sum by ({BY}) (rate({REQUEST}_count[30m]) or rate({REFUSED}[30m]))"
    dropped = "rate(edgekit_dropped_total[15m])"
    answered = f"rate({REQUEST}_count[15m])"
    return [
        Alert(
            "EdgekitNoTraffic",
            TICKET,
            f"{requests.format('30m')} == 0\nand {requests.format('1d')} > 0",
            "",
            "{{ $labels.model }} gets no requests",
            "No request came for half an hour, and some came within the last day.",
            (
                "The client or the sensor: does it run, and does it reach this machine?",
                "Addresses and certificates: did a name, a proxy, a token or a date change?",
                "The panel of the last week: is it quiet at this hour on other days too?",
            ),
        ),
        Alert(
            "EdgekitInputsRejected",
            TICKET,
            f"{invalid} > {INVALID_SHARE:g} * {every}\nand {invalid} * 1800 >= {FEWEST}",
            "",
            "{{ $labels.model }} {{ $labels.version }} gets inputs that it does not accept",
            "More than a tenth of the requests of the last half hour were invalid, too large or of an unknown kind.",
            (
                "Refusals by reason, and the text of one of them: it names what was wrong.",
                "The clients: was one of them updated, or is there a new one?",
                "The bundle: does a new version expect another size, rate or set of columns?",
            ),
        ),
        Alert(
            "EdgekitStreamTooSlow",
            TICKET,
            f"{dropped} > {DROPPED_SHARE:g} * (\n  {dropped} + on (job, instance, model, version) {answered}\n)",
            "10m",
            f"{WHICH} does not keep up with its stream",
            "More than a tenth of the windows of the stream were dropped unanswered.",
            (
                "Execute and preprocess: have they grown since the stream was set up?",
                "The machine: throttled, hot, or shared with another process?",
                "The hop of the stream: fewer windows a second may be enough.",
            ),
        ),
    ]


def _machine_alerts() -> list[Alert]:
    resident = "min_over_time(edgekit_process_resident_bytes[30m]{})"
    now, before, first = (resident.format(offset) for offset in ("", " offset 3h", " offset 6h"))
    return [
        Alert(
            "EdgekitThrottled",
            TICKET,
            "max_over_time(edgekit_throttled[10m]) == 1",
            "5m",
            "{{ $labels.instance }} is throttled",
            "The processor runs below its normal clock, so every latency is longer than measured.",
            (
                "Temperature: cooling, sun, dust, a fan that stands still?",
                "Supply: EdgekitUnderVoltage at the same time means the power supply or its cable.",
                "Load: what else runs there, and since when?",
            ),
        ),
        Alert(
            "EdgekitUnderVoltage",
            TICKET,
            "max_over_time(edgekit_under_voltage[10m]) == 1",
            "5m",
            "{{ $labels.instance }} gets too little voltage",
            "The board's supply falls below its limit; it throttles, and may lose its disk.",
            (
                "The power supply: is it the one that belongs to the board?",
                "The cable and the plug: short, thick, not worn?",
                "What is connected to its USB ports: measure without it.",
            ),
        ),
        Alert(
            "EdgekitTooHot",
            TICKET,
            f"edgekit_temperature_celsius >= {HOT_C:g}",
            "5m",
            "{{ $labels.instance }} has {{ $value }} °C",
            f"From {HOT_C:g} °C on, boards lower their clock.",
            (
                "Cooling: fan, heat sink, dust, a closed box, the sun?",
                "Load: has the number of requests grown, or does another process run?",
                "Latency of execute: has it grown already?",
            ),
        ),
        Alert(
            "EdgekitMemoryGrowing",
            TICKET,
            f"{now} > {GROWTH:g} * {before}\nand {before} > {GROWTH:g} * {first}",
            "30m",
            "The memory of {{ $labels.process }} on {{ $labels.instance }} grows",
            "The resident memory, now {{ $value | humanize1024 }}B, grew by 5 % twice in six hours.",
            (
                "The cache's bytes and entries: has it reached its limit yet?",
                "The time when it began: a new version, a new client, larger inputs?",
                "The limit of the process, and the time left until it is reached.",
            ),
        ),
        Alert(
            "EdgekitTargetDown",
            PAGE,
            f"up{{{JOBS}}} == 0",
            "2m",
            "{{ $labels.instance }} cannot be scraped",
            "Prometheus gets no metrics from it, so no other alert can fire for it.",
            (
                "The machine and the process: is it on, and does the service run?",
                "The address: `--admin-port` is on loopback by default, and a token may be needed.",
                "The error that Prometheus shows beside the target on its Targets page.",
            ),
        ),
        Alert(
            "EdgekitNoTarget",
            PAGE,
            f"absent(up{{{JOBS}}})",
            "5m",
            "Prometheus has no edgekit target",
            "No job is called edgekit or edgekit-NAME, or the job's list of targets is empty.",
            (
                "Prometheus' Targets page: was its config changed, or not reloaded?",
                "The job's name: these rules look for edgekit and edgekit-NAME.",
                "Service discovery, if it fills the list: does it find anything?",
            ),
        ),
    ]
