"""The arithmetic and the report that all benchmarks share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.harness import ExperimentResult, Interval, NotRun, Target


def test_each_round_begins_with_another() -> None:
    assert list(harness.rotated_orders("abc", 4)) == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_intervals_take_ten_rounds() -> None:
    values = [100.0 + number for number in range(11)]
    interval = harness.median(values)
    assert interval.is_interval and interval.middle == 105 and 100 <= interval.low < 105 < interval.high <= 110
    few = harness.median(values[:3])
    assert not few.is_interval and (few.low, few.middle, few.high) == (100, 101, 102)
    assert "least and most" in few.text() and "least" not in interval.text()


def test_a_quotient_is_of_values_of_the_same_round() -> None:
    """Whatever slows a whole round cancels."""
    pace = [1.0, 3.0, 0.5, 2.0, 1.5, 0.7, 1.1, 4.0, 0.9, 1.3]
    mine, other = [200 * each for each in pace], [100 * each for each in pace]
    interval = harness.median_ratio(mine, other)
    assert (interval.low, interval.middle, interval.high) == pytest.approx((2, 2, 2))
    few = harness.median_ratio(mine[:2], other[:2])
    assert (few.low, few.middle, few.high) == pytest.approx((2, 2, 2))


def test_the_interval_of_a_share_is_wilsons() -> None:
    assert harness.share_interval(0, 100) == pytest.approx((0.0, 0.0370), abs=1e-4)
    assert harness.share_interval(5, 100) == pytest.approx((0.0215, 0.1118), abs=1e-4)
    assert harness.share_interval(100, 100)[1] == 1.0


@pytest.mark.parametrize(
    ("ends", "at_least", "verdict"),
    [
        ((10, 11), True, "reached"),
        ((9, 11), True, "undecided"),
        ((8, 9), True, "not reached"),
        ((8, 10), False, "reached"),
        ((9, 11), False, "undecided"),
        ((11, 12), False, "not reached"),
    ],
)
def test_a_target_is_reached_where_all_of_the_interval_reaches_it(
    ends: tuple[float, float], at_least: bool, verdict: str
) -> None:
    assert Target("it", 10, at_least).verdict(Interval(sum(ends) / 2, *ends, 10)) == verdict


def test_the_report_has_the_table_the_verdicts_and_what_was_not_run(tmp_path: Path) -> None:
    finding = ExperimentResult("peers", "title", header=("a", "bb"), rows=[["ccc", "d"]], missing=["Triton: no wheel"])
    finding.evaluate(Target("speed", 2.0), Interval(3.0, 2.5, 3.5, 10))
    text = harness.write_report(tmp_path, {"cpu": "some"}, [finding])
    assert "NOT RUN Triton: no wheel" in text and "| a | bb |\n| --- | --: |\n| ccc | d |" in text
    assert "TARGET speed: 3 (2.5 to 3.5), target >= 2: reached" in text
    assert (tmp_path / "report.md").read_text() == text
    [stored] = json.loads((tmp_path / "report.json").read_text())["experiments"]
    assert stored["missing"] == finding.missing and stored["verdicts"][0]["verdict"] == "reached"


def test_packages_that_do_not_install_are_reported_in_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(NotRun, match="no-such-package") as raised:
        harness.environment_python(tmp_path / "peer", ("no-such-package-of-edgekit==1",))
    assert len(str(raised.value).splitlines()) == 1
    assert not (tmp_path / "peer" / ".made").exists()
