"""`edgekit export grafana`: Grafana's own types know every field, and promtool parses every expression."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as schema
from grafana_foundation_sdk.models import heatmap, prometheus, statetimeline, timeseries, units

from tests.serve.export import promtool
from tests.serve.export.conftest import watching, written

ROWS = ["Traffic", "Latency", "Refusals and budgets", "Batches", "Cache", "Machine", "Is it still right?"]
OPTIONS = {"timeseries": timeseries.Options, "heatmap": heatmap.Options, "state-timeline": statetimeline.Options}
VARIABLE = re.compile(r"\$(job|instance|model|version)\b")
register_default_plugins()


def concrete(expression: str) -> str:
    """An expression as Grafana sends it where everything is chosen."""
    return VARIABLE.sub(".*", expression).replace("$__rate_interval", "5m")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("grafana") / "out"
    done = watching("grafana", out, "--slo-p99", "50ms", "--availability", "99.5")
    assert done.exit_code == 0 and "30 panels in 7 rows" in done.stdout
    return out


@pytest.fixture(scope="module")
def dashboard(exported: Path) -> dict[str, Any]:
    return dict(json.loads((exported / "dashboards/edgekit.json").read_text()))


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """All but the rows."""
    return [each for each in dashboard["panels"] if each["type"] != "row"]


def lost(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """What of ours did not come back as it was."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from lost(value, theirs[key], f"{where}.{key}") if key in theirs else [f"{where}.{key}"]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(one, other, f"{where}[{place}]")
    elif ours != theirs:
        yield where


def through_the_sdk(dashboard: dict[str, Any]) -> Any:
    """Read by Grafana's types, and written again."""
    return json.loads(json.dumps(schema.Dashboard.from_json(dashboard), cls=JSONEncoder))


def test_grafanas_types_keep_every_field(dashboard: dict[str, Any]) -> None:
    assert list(lost(dashboard, through_the_sdk(dashboard))) == []


@pytest.mark.parametrize(
    "path",
    [
        ("refersh",),
        ("panels", 1, "gridpos"),
        ("panels", 1, "targets", 0, "legend"),
        ("panels", 1, "fieldConfig", "defaults", "units"),
        ("panels", 1, "fieldConfig", "defaults", "custom", "drawstyle"),
        ("panels", 1, "options", "legend", "position"),
        ("templating", "list", 1, "multiple"),
    ],
)
def test_the_types_notice_a_field_that_is_misspelt(path: tuple[Any, ...], dashboard: dict[str, Any]) -> None:
    broken = copy.deepcopy(dashboard)
    place = broken
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = "x"
    assert any(each.endswith(str(path[-1])) for each in lost(broken, through_the_sdk(broken)))


def test_panels_are_of_the_kinds_that_they_say(dashboard: dict[str, Any]) -> None:
    found = schema.Dashboard.from_json(dashboard).panels
    assert found is not None
    for panel in found:
        if isinstance(panel, schema.Panel):
            assert isinstance(panel.options, OPTIONS[panel.type_val]), panel.title
            assert panel.targets and all(isinstance(each, prometheus.Dataquery) for each in panel.targets)


def test_rows_come_in_the_order_of_a_search(dashboard: dict[str, Any]) -> None:
    assert [each["title"] for each in dashboard["panels"] if each["type"] == "row"] == ROWS


def test_every_panel_has_a_unit_of_grafanas_a_description_and_a_legend(dashboard: dict[str, Any]) -> None:
    known = {value for value in vars(units).values() if isinstance(value, str)}
    titles = [each["title"] for each in panels(dashboard)]
    assert len(set(titles)) == len(titles)
    for panel in panels(dashboard):
        assert panel["fieldConfig"]["defaults"]["unit"] in known, panel["title"]
        assert panel["description"].endswith(".")
        assert all(each["legendFormat"] for each in panel["targets"])
        letters = [each["refId"] for each in panel["targets"]]
        assert len(set(letters)) == len(letters)


def test_a_metric_in_seconds_or_bytes_is_shown_as_such(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            if panel["type"] == "heatmap":
                assert panel["options"]["yAxis"]["unit"] == unit and target["format"] == "heatmap"
            if "histogram_quantile" in target["expr"]:
                assert unit == "s"
            if "_bytes" in target["expr"]:
                assert unit == "bytes"


def test_no_panel_lies_on_another_or_beside_the_page(dashboard: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for each in dashboard["panels"]:
        place = each["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and all(x < 24 for x, _ in cells), each["title"]
        taken |= cells
    assert len({each["id"] for each in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_objective_is_drawn_as_a_line(dashboard: dict[str, Any]) -> None:
    limits = {
        each["title"]: each["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]["value"]
        for each in panels(dashboard)
        if "thresholds" in each["fieldConfig"]["defaults"]
    }
    assert limits["Whole requests"] == 0.0410238 and limits["Latency: use of the budget"] == 1
    (budget,) = [each for each in panels(dashboard) if each["title"] == "Availability: use of the budget"]
    assert all(each["expr"].endswith("/ 0.005") for each in budget["targets"])


def test_promtool_parses_every_expression(dashboard: dict[str, Any], tmp_path: Path) -> None:
    every = [concrete(target["expr"]) for panel in panels(dashboard) for target in panel["targets"]]
    assert not [each for each in every if "$" in each]
    rules = [{"record": f"panel:{place}", "expr": each} for place, each in enumerate(every)]
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool.run("check", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr
    path.write_text(path.read_text().replace("sum by (model", "sum by model", 1))
    assert promtool.run("check", "rules", path).returncode != 0


def test_every_label_in_a_legend_is_one_that_the_expression_keeps(dashboard: dict[str, Any]) -> None:
    recorded = {"job", "model", "version"}
    for panel in panels(dashboard):
        for target in panel["targets"]:
            kept = {name for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for name in group.split(", ")}
            if "model:" in target["expr"]:
                kept |= recorded
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= kept, panel["title"]


def test_grafana_finds_the_dashboard_where_the_provider_looks(exported: Path) -> None:
    assert written(exported) == [
        "README.md",
        "dashboards/edgekit.json",
        "export.json",
        "provisioning/dashboards.yml",
        "provisioning/datasources.yml",
    ]
    provider = yaml.safe_load((exported / "provisioning/dashboards.yml").read_text())["providers"][0]
    assert provider["type"] == "file" and provider["options"]["path"] in (exported / "README.md").read_text()
    source = yaml.safe_load((exported / "provisioning/datasources.yml").read_text())["datasources"][0]
    assert (source["type"], source["access"]) == ("prometheus", "proxy")
