"""`edgekit export prometheus`: promtool reads the rules, and each alert fires and stays silent as it should."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgekit.serve.export import _alerts, _recording
from tests.conftest import ROOT
from tests.serve.export import alert_cases, promtool
from tests.serve.export.conftest import watching, written

CASES = {case.name: case for case in alert_cases.every_case()}
PAGE = ROOT / "docs" / "how-to" / "alerts.md"
NOTHING_SAID = ("<no value>", "<error", "NaN")


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported folder."""
    out = tmp_path_factory.mktemp("rules") / "out"
    done = watching("prometheus", out, *alert_cases.OBJECTIVE)
    assert done.exit_code == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def alerts(rules: Path) -> list[dict[str, Any]]:
    """Every alerting rule."""
    (group,) = yaml.safe_load((rules / "alerts.yml").read_text())["groups"]
    return list(group["rules"])


@pytest.fixture(scope="module")
def failed(rules: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Cases that came out otherwise."""
    return promtool.failed(tmp_path_factory.mktemp("cases"), list(CASES.values()), rules)


def test_the_folder_is_whole(rules: Path) -> None:
    assert written(rules) == ["README.md", "alerts.yml", "export.json", "prometheus.yml", "recording.yml"]


def test_promtool_takes_the_rules_and_the_config(rules: Path) -> None:
    for words in (("rules", rules / "recording.yml", rules / "alerts.yml"), ("config", rules / "prometheus.yml")):
        done = promtool.run("check", *words)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--docs", ""),
        ("--docs", "https://host/{{x"),
        ("--docs", "https://host/a b"),
        ("--docs", "https://host/page#part"),
        ("--scrape", "host:\u0668\u0660"),
        ("--scrape", "host"),
    ],
)
def test_an_address_that_prometheus_cannot_take_is_refused(option: str, value: str, tmp_path: Path) -> None:
    done = watching("prometheus", tmp_path / "out", option, value)
    assert done.exit_code == 2
    assert f"{option}: got {value!r}" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", CASES)
def test_alerts_fire_when_they_should_and_are_silent_when_not(name: str, failed: dict[str, str]) -> None:
    assert name not in failed, failed[name]


def test_nothing_fires_that_belongs_to_no_case(failed: dict[str, str]) -> None:
    assert set(failed) <= set(CASES), failed


def test_every_alert_fires_in_some_case_and_is_silent_in_another(alerts: list[dict[str, Any]]) -> None:
    named = {f"{each['alert']} {each['labels'].get('long', '')}".strip() for each in alerts}
    assert len(named) == len(alerts)
    assert {each for case in CASES.values() for each in case.fires} == named


def shares(history: alert_cases.Parts, minutes: int) -> float:
    """The mean multiple of the budget in the last so many minutes, by counting them one by one."""
    each = [times for length, times in history for _ in range(length)][-minutes:]
    return sum(each) / len(each)


@pytest.mark.parametrize("name", alert_cases.BURNS)
def test_the_burn_cases_are_those_of_the_workbooks_arithmetic(name: str) -> None:
    history, windows = alert_cases.BURNS[name]
    reached = []
    for rate, long, short in ((14.4, "1h", "5m"), (6.0, "6h", "30m"), (3.0, "1d", "2h"), (1.0, "3d", "6h")):
        in_minutes = {"m": 1, "h": 60, "d": 1440}
        both = [shares(history, int(each[:-1]) * in_minutes[each[-1]]) for each in (long, short)]
        assert all(abs(found / rate - 1) > 0.05 for found in both), "too near to the limit to say"
        if min(both) > rate:
            reached.append(long)
    assert tuple(reached) == windows


def test_annotations_name_three_things_and_the_page_has_a_heading_for_each(alerts: list[dict[str, Any]]) -> None:
    headings = {found.lower() for found in re.findall(r"^### (\w+)$", PAGE.read_text(), re.MULTILINE)}
    for rule in alerts:
        found = rule["annotations"]
        lines = found["look_at"].splitlines()
        assert [line[:3] for line in lines] == ["1. ", "2. ", "3. "] and len(set(lines)) == len(lines)
        assert all(len(line) > len("1. and more") and line[-1] in ".?" for line in lines)
        page, _, anchor = found["runbook_url"].partition("#")
        assert page == "docs/how-to/alerts.md" and anchor in headings and anchor == rule["alert"].lower()
        assert rule["labels"]["severity"] in ("page", "ticket")
    assert headings == {rule["alert"].lower() for rule in alerts}


def test_what_people_read_has_every_label_and_value(rules: Path, alerts: list[dict[str, Any]], tmp_path: Path) -> None:
    """The test file claims that nothing fires, so promtool prints what does, with its annotations."""
    seen = set()
    files = []
    for place, case in enumerate(CASES.values()):
        new = {each.partition(" ")[0] for each in case.fires} - seen
        if new:
            seen |= new
            group = promtool.together([case], case.minutes)
            del group["promql_expr_test"]
            group["alert_rule_test"] = [
                {"eval_time": f"{case.minutes}m", "alertname": each, "exp_alerts": []} for each in sorted(new)
            ]
            path = tmp_path / f"{place}.yml"
            named = [str(rules / name) for name in case.files]
            path.write_text(json.dumps({**promtool.head(case.interval), "rule_files": named, "tests": [group]}))
            files.append(path)
    done = promtool.run("test", "rules", *files)
    text = done.stdout + done.stderr
    assert seen == {each["alert"] for each in alerts}
    for name in seen:
        found = re.search(rf"alertname: {name}, .*?got:\[(.*?)(?=alertname: |\Z)", text, re.DOTALL)
        assert found and "look_at" in found[1], f"{name}: {text}"
        assert not [each for each in NOTHING_SAID if each in found[1]], found[1]
        assert "{{" not in found[1]


@pytest.mark.parametrize(
    ("slo", "bound", "message"),
    [
        ("50ms", "0.0410238", "requested: 50 ms; 41.02 ms is the nearest bucket"),
        ("0.2s", "0.219488", "requested: 200 ms; 219.5 ms is the nearest bucket"),
        ("100us", "8.75651e-05", "requested: 0.1 ms; 0.08757 ms is the nearest bucket"),
        ("41.02ms", "0.0410238", "come within 41.02 ms\n"),
    ],
)
def test_the_threshold_is_the_nearest_bucket_and_rounding_is_reported(
    slo: str, bound: str, message: str, tmp_path: Path
) -> None:
    done = watching("prometheus", tmp_path / "out", "--slo-p99", slo)
    assert done.exit_code == 0 and message in done.stdout
    assert set(re.findall(r'le="([^"]+)"', (tmp_path / "out/recording.yml").read_text())) == {bound}
    assert bound in _recording.bounds()
    assert message.strip() in (tmp_path / "out/README.md").read_text()


def test_the_availability_sets_the_budget(tmp_path: Path) -> None:
    assert watching("prometheus", tmp_path / "out", "--availability", "99.5%").exit_code == 0
    text = (tmp_path / "out/alerts.yml").read_text()
    assert text.count("14.4 * 0.005\n") == 2 and "0.5 % may" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--slo-p99", "50"), "--slo-p99: got '50'; write a number with its unit"),
        (("--slo-p99", "-5ms"), "--slo-p99: got '-5ms'"),
        (("--slo-p99", "9s"), "the histogram reaches from 0.001ms to"),
        (("--slo-p99", "0ms"), "the histogram reaches from 0.001ms to"),
        (("--availability", "three nines"), "--availability: got 'three nines'"),
        (("--availability", "0.999"), "--availability: got '0.999'; write a percentage from 95"),
        (("--availability", "100"), "--availability: got '100'"),
        (("--availability", "nan"), "--availability: got 'nan'"),
        (("--scrape", "door-1"), "--scrape: got 'door-1'; write HOST:PORT"),
        (("--scrape", "door-1:70000"), "--scrape: got 'door-1:70000'"),
        (("--scrape", 'a:1"\n  b'), "--scrape: got"),
        (("--backend", "python"), "--backend python: is an option of"),
    ],
)
def test_wrong_options_are_refused_and_nothing_is_written(
    options: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = watching("prometheus", tmp_path / "out", *options)
    assert done.exit_code == 2 and message in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


def test_an_address_of_scraping_belongs_to_prometheus_alone(tmp_path: Path) -> None:
    done = watching("grafana", tmp_path / "out", "--scrape", "a:1", "--scrape", "b:2")
    assert done.exit_code == 2 and "--scrape a:1 b:2: is an option of prometheus, not of grafana" in done.stderr


def test_addresses_and_the_pages_address_go_into_the_files(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = watching(
        "prometheus", out, "--scrape", "door-1:8002", "--scrape", "[::1]:9", "--docs", "https://wiki.example/alerts"
    )
    assert done.exit_code == 0
    config = yaml.safe_load((out / "prometheus.yml").read_text())
    assert config["scrape_configs"][0]["static_configs"] == [{"targets": ["door-1:8002", "[::1]:9"]}]
    assert config["rule_files"] == ["recording.yml", "alerts.yml"]
    assert "https://wiki.example/alerts#edgekitdrift" in (out / "alerts.yml").read_text()


def test_every_window_of_an_alert_is_recorded(rules: Path, alerts: list[dict[str, Any]]) -> None:
    recorded = set(re.findall(r'record: "([^"]+)"', (rules / "recording.yml").read_text()))
    read = {name for rule in alerts for name in re.findall(r"model:edgekit_\w+:\w+", rule["expr"])}
    assert read <= recorded and {each.long for each in _alerts.BURNS} <= set(_recording.SECONDS)
