"""`edgekit compare` of two field reports: tables, sentences, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from edgekit.cli.app import app
from edgekit.report.field.comparison import compare_reports
from tests.report.field.reports import EXAMPLES, field_report, latencies

MARCH, SEPTEMBER = EXAMPLES / "camera-7-march.json", EXAMPLES / "camera-7-september.json"


def edgekit(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_examples_are_compared_in_words_and_tables() -> None:
    done = edgekit("compare", MARCH, SEPTEMBER)
    assert done.exit_code == 0, done.output
    hottest = "The highest temperature was 51 °C then and is 58 °C now."
    for text in ("execute", "slower", "no difference", hottest, "Health now: warning.", "1. look at the inputs: ",
                 "2. retrain: ", "answered star"):  # fmt: skip
        assert text in done.output, text


def test_json_has_ratios_with_intervals_and_the_steps() -> None:
    result = json.loads(edgekit("compare", MARCH, SEPTEMBER, "--json").output)
    execute = next(each for each in result["latency"] if (each["part"], each["percentile"]) == ("execute", "p50"))
    assert execute["low"] < execute["ratio"] < execute["high"] and execute["said"] == "slower"
    assert 1.3 < execute["ratio"] < 1.7, "the example's execute is half as long again"
    assert result["same_bundle"] is True and result["b"]["health"] == "warning"
    assert [each["action"] for each in result["next"]][:2] == ["look at the inputs", "retrain"]
    assert result["words"][0].startswith("The median (p50) time per answer was ")


def test_what_changed_of_the_conditions_is_named() -> None:
    result = compare_reports(
        field_report(), field_report(interpreter__version="9.9", device__python="3.13.0", device__host="b")
    )
    assert set(result.changed) == {"version of the interpreter", "Python", "host"}
    assert any("9.9 now." in line for line in result.sentences)


def test_a_part_in_one_report_alone_and_few_answers_are_reported() -> None:
    stream = field_report(latency_ms={**latencies(1.0), **latencies(0.1, part="wait")})
    result = compare_reports(field_report(latency_ms=latencies(1.0, answers=6)), stream)
    wait, execute = result.part("wait"), result.part("execute")
    assert wait is not None and wait.outcome == "in one report only" and wait.ratio is None
    assert execute is not None and execute.outcome == "too few answers to say" and execute.ratio is not None
    empty = compare_reports(field_report(latency_ms={}), stream)
    assert empty.sentences[0].startswith("Latency is not compared")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((MARCH, "none.json"), 4, "none.json: cannot be read"),
        (("runs/a", "runs/b", "--json"), 2, "--json: applies only to two field reports"),
        ((MARCH, "somewhere"), 2, "no such run here"),
    ],
)
def test_what_cannot_be_compared_is_one_line(arguments: tuple[object, ...], code: int, text: str) -> None:
    done = edgekit("compare", *arguments)
    assert done.exit_code == code and text in done.output and "Traceback" not in done.output


def test_a_damaged_report_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(MARCH.read_bytes()[:3000])
    done = edgekit("compare", tmp_path / "a.json", SEPTEMBER)
    assert done.exit_code == 4 and "not JSON" in done.output
