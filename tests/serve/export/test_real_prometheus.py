"""A real Prometheus scrapes a real server: every metric is there, every rule and every panel is evaluated."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgekit.serve.export import _recording
from tests.conftest import ROOT
from tests.serve.conftest import Start
from tests.serve.export.conftest import watching
from tests.serve.export.prometheus_server import Prometheus, running
from tests.serve.export.test_grafana import concrete, panels
from tests.serve.server import INFER, RAW, Server
from tests.serve.watched import ordinary_images, with_reference

pytestmark = pytest.mark.processes

ELSEWHERE = {
    "edgekit_dropped_total": "streams of the runner",
    "edgekit_temperature_celsius": "the kernel may not show it",
    "edgekit_clock_hertz": "the kernel may not show it",
    "edgekit_throttled": "the kernel may not show it",
    "edgekit_under_voltage": "a Raspberry Pi's kernel shows it",
}
"""What this server need not show; some file of edgekit must name it."""
METRIC = re.compile(r"(?<![\w:])(?:edgekit|nv)_[a-z0-9_]+(?![\w:])")
RECORDED = re.compile(r"\b(?:model|part):[\w:]+")
ASKED = 200
WATCHED = ("--watch", "--watch-per-s", "2000", "--canary-s", "2")


@pytest.fixture(scope="module")
def server(start: Start, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """One that is watched, and keeps answers."""
    copy = tmp_path_factory.mktemp("watched") / "tiny-onnx-1.2.0.edge.zip"
    shutil.copy(folder / copy.name, copy)
    return start(with_reference(copy), "--cache-mb", "4", *WATCHED)


@pytest.fixture(scope="module")
def exported(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rules and dashboard for it; the longest latency that the histogram shows is the objective, so none is slow."""
    out = tmp_path_factory.mktemp("monitoring")
    slow = f"{float(_recording.bounds()[-1]):g}s"
    assert watching("prometheus", out / "rules", "--scrape", server.admin, "--slo-p99", slow).exit_code == 0
    assert watching("grafana", out / "grafana").exit_code == 0
    return out


@pytest.fixture(scope="module")
def prometheus(server: Server, exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Has scraped before and after requests, so rates are above zero."""
    with running(exported / "rules", tmp_path_factory.mktemp("prometheus")) as found:
        counted = "edgekit_request_duration_seconds_count"
        found.wait("a first scrape", lambda: found.query(counted))
        for image in ordinary_images(ASKED, 7):
            assert server.post(INFER, image.tobytes(), RAW).status == 200
        assert server.post(INFER, b"too short", RAW).status == 400
        found.wait("the requests", lambda: any(float(each["value"][1]) >= ASKED for each in found.query(counted)))
        found.wait("what the watch found", lambda: found.query("edgekit_drift"))
        found.wait("all rules", lambda: all(each["health"] == "ok" for each in found.rules()))
        found.wait(
            "a rate", lambda: any(float(each["value"][1]) > 0 for each in found.query("model:edgekit_answered:rate5m"))
        )
        yield found


def every_rule(exported: Path) -> list[dict[str, Any]]:
    return [
        rule
        for name in ("recording.yml", "alerts.yml")
        for group in yaml.safe_load((exported / "rules" / name).read_text())["groups"]
        for rule in group["rules"]
    ]


def every_panel(exported: Path) -> list[tuple[str, str]]:
    """Title and expression of every query of the dashboard."""
    dashboard = json.loads((exported / "grafana/dashboards/edgekit.json").read_text())
    return [(each["title"], concrete(target["expr"])) for each in panels(dashboard) for target in each["targets"]]


def read_by(exported: Path) -> set[str]:
    """Names of metrics in all expressions."""
    texts = [*(rule["expr"] for rule in every_rule(exported)), *(text for _, text in every_panel(exported))]
    return {name for text in texts for name in METRIC.findall(RECORDED.sub("", text))}


def test_the_scrape_succeeds(prometheus: Prometheus, server: Server) -> None:
    target = prometheus.target()
    assert target["health"] == "up" and target["lastError"] == "", target
    assert target["scrapeUrl"] == f"http://{server.admin}/metrics"
    (up,) = prometheus.query("up")
    assert up["value"][1] == "1" and up["metric"]["job"] == "edgekit"


def test_every_metric_that_is_read_is_given(prometheus: Prometheus, exported: Path) -> None:
    given = set(prometheus.get("label/__name__/values"))
    sources = [
        path.read_text()
        for package in ("runner", "device", "serve")
        for path in (ROOT / "edgekit" / package).rglob("*.py")
        if "export" not in path.parts
    ]
    missing = {
        name
        for name in read_by(exported) - given
        if name not in ELSEWHERE or not any(is_named(name, source) for source in sources)
    }
    shown = {each["metric"]["le"] for each in prometheus.query("edgekit_request_duration_seconds_bucket")}
    if not set(_recording.bounds()) <= shown:
        missing.add("edgekit_request_duration_seconds_bucket{le}")
    assert missing == set()


def test_recording_rules_give_numbers(prometheus: Prometheus, exported: Path) -> None:
    empty = {
        rule["record"] for rule in every_rule(exported) if "record" in rule and not prometheus.query(rule["record"])
    }
    assert empty == set()
    for share in prometheus.query("model:edgekit_slow:share_rate5m"):
        assert float(share["value"][1]) == pytest.approx(0, abs=1e-9)
    (rate,) = [each for each in prometheus.query("model:edgekit_answered:rate5m") if each["metric"]["model"] == "tiny"]
    assert rate["metric"]["version"] == "1.2.0" and float(rate["value"][1]) > 0


def is_named(name: str, source: str) -> bool:
    """Whether a file has the name, whole or as a prefix that a loop completes."""
    ends = [place + 1 for place, letter in enumerate(name) if letter == "_"]
    return f'"{name}"' in source or any(f'f"{name[:end]}{{' in source and f'"{name[end:]}"' in source for end in ends)


def test_no_alert_fires_at_a_server_that_is_well(prometheus: Prometheus) -> None:
    rules = prometheus.rules()
    assert all(rule["health"] == "ok" for rule in rules)
    assert {
        rule["name"]: rule["state"] for rule in rules if rule["type"] == "alerting" and rule["state"] != "inactive"
    } == {}


def test_every_panel_is_evaluated_without_an_error(prometheus: Prometheus, exported: Path) -> None:
    empty = {title for title, expression in every_panel(exported) if not prometheus.query(expression)}
    may = {title for title, expression in every_panel(exported) if reads_elsewhere(expression)}
    assert empty <= may


def reads_elsewhere(expression: str) -> bool:
    return bool(set(METRIC.findall(expression)) & set(ELSEWHERE))


def test_a_target_that_is_gone_is_noticed(
    start: Start,
    folder: Path,
    tmp_path: Path,
) -> None:
    """The alert of a server that was stopped, by a Prometheus whose patience is short."""
    mine = start(folder / "tiny-onnx-1.2.0.edge.zip")
    assert watching("prometheus", tmp_path / "rules", "--scrape", mine.admin).exit_code == 0
    alerts = tmp_path / "rules/alerts.yml"
    alerts.write_text(alerts.read_text().replace('for: "2m"', 'for: "1s"'))
    with running(tmp_path / "rules", tmp_path) as found:
        found.wait("a scrape", lambda: [each for each in found.query("up") if each["value"][1] == "1"])
        mine.stop()
        found.wait("the alert", lambda: down(found))
        (alert,) = down(found)
    assert alert["labels"]["severity"] == "page"
    assert alert["annotations"]["summary"] == f"{mine.admin} cannot be scraped"
    assert alert["annotations"]["look_at"].count("\n") == 2


def down(prometheus: Prometheus) -> list[dict[str, Any]]:
    """Alerts of targets that are down, and have been for long enough."""
    every = prometheus.get("alerts")["alerts"]
    return [each for each in every if each["labels"]["alertname"] == "EdgekitTargetDown" and each["state"] == "firing"]
