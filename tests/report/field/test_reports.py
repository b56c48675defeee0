"""Reading field reports: anything else is refused in one line."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from edgekit.core.errors import DataError
from edgekit.report.field import history, terminal
from edgekit.report.field.comparison import compare_reports
from edgekit.report.field.reports import FieldReport, folder, read_report
from tests.report.field.reports import EXAMPLES, example, field_report


def test_the_examples_are_read_in_their_order() -> None:
    result = folder(EXAMPLES)
    assert [each.name for each in result] == ["camera-7-march", "camera-7-june", "camera-7-september"]
    assert all(each.answered == each.received == 3000 == sum(each.counts("whole")) for each in result)
    assert [each.temperature_c for each in result] == [51.0, 63.5, 58.0]
    assert [(each.verdict or {})["level"] for each in result] == ["healthy", "healthy", "warning"]
    assert result[0].parts == ["preprocess", "execute", "postprocess", "whole"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": "something"}, "not a field report"),
        ({"format": 2}, "a field report of format 2, but this version of edgekit reads 1"),
        ({"answered": -1}, "answered is -1"),
        ({"answered": True}, "answered is True"),
        ({"bundle": None}, "bundle is missing"),
        ({"refused": {"invalid": "x"}}, "refused or labels contains something other than a count"),
        ({"from": 3}, "from or to is missing"),
        ({"machine": {}}, "machine.first or machine.last is missing"),
        ({"machine": {"first": {}, "last": {}, "looks": [{}]}}, "a reading of machine.looks is incomplete"),
        ({"latency_ms": {"execute": {"counts": [[0, -1]]}}}, "latency_ms.execute.counts is not a list"),
        ({"latency_ms": {"execute": {"counts": [[9999, 1]]}}}, "latency_ms.execute.counts is not a list"),
        ({"verdict": "fine"}, "verdict is not an object"),
        ({"verdict": {"level": "warning", "findings": [3]}}, "verdict.findings is not a list of objects"),
        ({"bundle": {"name": "a", "version": "1", "variant": "b"}}, "bundle.identity is None"),
    ],
)
def test_what_is_no_report_is_refused_with_the_reason(change: dict[str, Any], text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**example(), **change}))
    with pytest.raises(DataError) as caught:
        read_report(path)
    assert text in str(caught.value) and str(path) in str(caught.value)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of all that stands in a report, of lists the first element."""
    if isinstance(value, dict):
        for name in value:
            yield from ((*path, name), *places(value[name], (*path, name)))
    elif isinstance(value, list) and value:
        yield from ((*path, 0), *places(value[0], (*path, 0)))


@pytest.mark.parametrize("bad", ['"x"', '"\\ud800"', "{}", "[3]", "NaN", "1e999", "1" + 400 * "0"])
def test_a_report_with_anything_anywhere_is_refused_or_compared(bad: str, tmp_path: Path) -> None:
    now, path = example("camera-7-september"), tmp_path / "a.json"
    del now["sketch"]  # nobody reads it here
    for place in places(now):
        content = copy.deepcopy(now)
        where = content
        for each in place[:-1]:
            where = where[each]
        where[place[-1]] = "HERE"
        path.write_text(json.dumps(content).replace('"HERE"', bad))
        try:
            report = read_report(path)
        except DataError as error:
            assert str(path) in str(error)
            continue
        result = history.of([field_report(), report])
        assert history.rows(result) and history.drift(report) is not None
        json.dumps(
            [
                terminal.comparison_to_json(result.comparison),
                terminal.comparison_to_json(compare_reports(report, field_report())),
            ],
            allow_nan=False,
        )
        terminal.print_comparison(result.comparison, Console(file=io.TextIOWrapper(io.BytesIO(), "utf-8")))


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", '{"a": 1}', "\x00", "[" * 100_000])
def test_what_is_no_json_or_no_object_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match="`edgerun predict --report` wrote"):
        read_report(tmp_path / "a.json")


def test_a_folder_without_reports_says_how_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"mine": 1}')
    with pytest.raises(DataError, match="has no field report; `edgerun predict --report"):
        folder(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        folder(tmp_path / "none")


def test_throttling_is_known_or_not() -> None:
    firmware = {"throttled": True, "under_voltage": False, "temperature_c": 70.0}
    assert field_report().throttled in (False, None)
    assert field_report(machine__last=firmware).throttled is True
    assert field_report(machine__first={}, machine__last={}, machine__throttled=None).throttled is None


class TestHistory:
    def dated(self, name: str, month: int, **changes: Any) -> FieldReport:
        return field_report(name, **{"from": f"2026-{month:02d}-01T00:00:00Z"}, **changes)

    def test_then_is_the_earliest_of_the_same_bundle_on_the_same_host(self) -> None:
        reports = [
            self.dated("other-bundle", 1, bundle__identity="x"),
            self.dated("elsewhere", 2, device__host="b"),
            self.dated("first", 3, device__host="a"),
            self.dated("last", 4, device__host="a"),
        ]
        result = history.of(reports)
        assert (result.then.name, result.now.name) == ("first", "last")
        assert history.of(reports[:3]).then.name == "elsewhere"
        named = history.of(reports, then="other-bundle", now="first.json")
        assert (named.then.name, named.now.name) == ("other-bundle", "first")

    def test_a_name_that_is_none_is_refused(self) -> None:
        with pytest.raises(DataError, match="no field report is called 'x'; there are a"):
            history.of([self.dated("a", 1)], now="x")
        with pytest.raises(DataError, match="no field report"):
            history.of([])
