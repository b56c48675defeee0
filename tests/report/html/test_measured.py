"""What was measured beside the variants stands in the page: sessions, loads, predictions, boundaries, the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.core import artifacts
from edgekit.measure import forecast
from edgekit.report import html
from edgekit.report import result as results
from edgekit.report.formatting import count, milliseconds, percent, times
from edgekit.report.sections import outcome
from edgekit.report.sections import profile as profile_section
from tests.conftest import FinishedRun
from tests.report.html import runs
from tests.report.html.test_page import Read

Row = dict[str, Any]
BOUND_MS = 4.0


def load(name: str, scenario: str, seen: Row, rate_per_s: float | None = None, meets: bool | None = None) -> Row:
    """One run of LoadGen, as the benchmark keeps it."""
    percentiles = {f"p{rank}_ms": rank / 100 for rank in (50, 90, 95, 99)}
    ends = {f"p{rank}_{end}_ms": None for rank in (50, 90, 95, 99) for end in ("low", "high")}
    return {
        "name": name, "scenario": scenario, "seconds": 1.0, "queries": 1234, "rate_per_s": rate_per_s,
        "throughput_per_s": 1233.0, **percentiles, **ends, "p99_low_ms": 0.91, "p99_high_ms": 1.31,
        "service_p50_ms": 0.5, "service_p99_ms": 0.9, "errors": 1, "error_rate": 1 / 1234, "first_error": "no",
        "cpu_cores": 0.75, "peak_bytes": 93 * 2**20, "loadgen_bytes": 4096, "meets": meets, "sure": meets,
        "short": scenario != "server", "why_short": "" if scenario == "server" else "1 of 600 s",
        "seen": seen, "disturbed": [],
    }  # fmt: skip


def driven(benchmark: Row) -> None:
    """Add what LoadGen would have found, and a verdict that claims little."""
    winner, seen = benchmark["verdict"]["winner"], benchmark["conditions"]["seen"]
    marks = {"short": True, "why_short": "1 of 600 s", "disturbed": ["noise"]}
    trials = [
        {
            "rate_per_s": rate,
            "p99_ms": p99_ms,
            "service_p99_ms": 0.9,
            "queries": 99,
            "meets": p99_ms <= BOUND_MS,
            "reason": reason,
            "seen": seen,
            **marks,
        }
        for rate, p99_ms, reason in ((2000.0, 9.0, "search"), (1500.0, 3.25, "search"), (1500.0, 3.75, "confirm"))
    ]
    benchmark["loads"] = {
        "seconds": 1.0,
        "p99_bound_ms": BOUND_MS,
        "loadgen": "6.0.17",
        "runs": [
            load(winner, "single_stream", seen),
            load(winner, "server", seen, 1500.0, True),
            load(winner, "offline", seen),
        ],
        "rates": [{"name": winner, "rate_per_s": 1500.0, "why": "met in 3 further trials", "trials": trials, **marks}],
        "failed": [{"name": "baseline-eager", "reason": "it <died>"}],
    }
    plain = {"": 1.02, "_low": 0.98, "_high": 1.07}
    benchmark["verdict"] |= {f"speedup_vs_post_training_baseline{end}": value for end, value in plain.items()}
    benchmark["verdict"]["size_ratio"] = 0.8


def foresees(profile: Row) -> None:
    """Add a forecast for LiteRT, as it would be had the run measured it as it comes."""
    way = {"way": "LiteRT", "ratio": 3.0, "p50_ms": 0.8}
    profile["forecast"]["executions"] = forecast.executions([way], profile["forecast"]["costs"], profile["machine"])


@pytest.fixture(scope="module")
def fuller(tiny_run: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was driven under load and has predictions, its page drawn."""
    folder = runs.copy(tiny_run, tmp_path_factory.mktemp("fuller"))
    runs.edit(folder, "benchmark", driven)
    runs.edit(folder, "profile", foresees)
    results.check(json.loads((folder / results.RESULT).read_text()))
    html.write(folder)
    return folder


@pytest.fixture(scope="module")
def read(fuller: Path) -> Read:
    return Read(fuller / html.PAGE)


def test_a_session_stands_with_its_cold_start_and_its_sum(read: Read, fuller: Path) -> None:
    session = artifacts.load(fuller / "profile").metrics["session"]
    parts = session["parts_ms"]
    for name, value_ms in parts.items():
        each = name in ("queue", "preprocess", "execute", "postprocess", "serialise")
        read.row(f"{name}, {session['calls']} calls" if each else name, milliseconds(value_ms))
    names = [row[0] for row in read.rows]
    assert names.index("start Python") < names.index("import") < names.index("load") < names.index("warm-up")
    cold_ms = parts["start Python"] + parts["import"] + parts["load"] + parts["warm-up"]
    read.row("of which before the first answer", milliseconds(cold_ms))
    read.row("all parts", f"{session['covered']:.1%}")
    read.row("measured from outside", milliseconds(session["whole_ms"]))


def test_what_was_seen_beside_the_measurement_is_told(read: Read, fuller: Path) -> None:
    conditions = json.loads((fuller / results.RESULT).read_text())["conditions"]
    for name, version in conditions["interpreters"].items():
        assert f"{name} {version}" in read.text
    read.row("a piece of work that is always the same, ms", milliseconds(conditions["seen"]["pace_ms"]))
    read.row("change of that time", f"{conditions['seen']['pace_change']:.1%}")
    told = {row[0] for row in read.rows}
    assert ("clock of the fastest core, MHz" in told) == (conditions["seen"]["clock_mhz"] is not None)


def test_loads_stand_with_their_rates_and_their_failures(read: Read, fuller: Path) -> None:
    winner = json.loads((fuller / results.RESULT).read_text())["verdict"]["winner"]
    rested_on = "met in 3 further trials; short: 1 of 600 s; disturbed: noise"
    assert read.row(winner, rested_on)[1:4] == ["1,500", "3.75", "3"]
    assert read.row(winner, "within")[1:] == ["server, Poisson", "0.5", "0.9", "0.95", "0.99 (0.91–1.31)", "within"]
    assert read.row(winner, "1,234 queries")[2:7] == ["1,500", "1,233", percent(1 / 1234), "0.75", "93"]
    assert read.row(winner, "offline")[-1] == "short: 1 of 600 s"
    assert "baseline-eager failed under load: it <died>" in read.text
    assert any("p99 against the rate" in picture["alt"] for picture in read.named("img"))


def test_predictions_stand_beside_what_was_achieved(read: Read, fuller: Path) -> None:
    rows = profile_section.predicted_rows(artifacts.load(fuller / "benchmark"))
    assert rows
    for row in rows:
        ends = [times(row["predicted"]), times(row["share"])]  # another table may have one of the two by chance
        assert any(cells[:1] == [row["name"]] and [cells[1], cells[3]] == ends for cells in read.rows if cells[3:])
    assert any(f"Of {len(rows)} variants" in picture["alt"] for picture in read.named("img"))


def test_every_boundary_stands_at_its_worst_and_what_ships_with_its_debris(read: Read, fuller: Path) -> None:
    convert = artifacts.load(fuller / "convert")
    last = [variant["boundaries"][-1] for variant in json.loads(convert.file("variants.json").read_text())]
    for to, source in {(row["to"], row["from"]) for row in last}:
        some = [row for row in last if (row["to"], row["from"]) == (to, source)]
        cells = read.row(to, source)
        assert cells[2:5] == [
            str(len(some)),
            f"{max(row['max_abs'] for row in some):.2g}",
            f"{min(row['snr_db'] for row in some):.1f}",
        ]
        assert cells[6] == percent(min(row["top1_agreement"] for row in some))
    for to in ("network input, the runner", "ranges", "answer"):
        assert any(row[0].endswith(f"→ {to}") for row in read.rows if row)
    for target, name in json.loads((fuller / results.RESULT).read_text())["winners"].items():
        found = convert.metrics["debris"].get(name, [])
        cells = next(row for row in read.rows if row[:2] == [name, target])
        assert cells[2] == str(sum(one["kind"] == "transpose" for one in found))
        assert cells[3] == count(sum(one["moved_bytes"] for one in found))
        assert all(one["where"] in cells[4] or ", …" in cells[4] for one in found)


def test_only_what_holds_is_claimed(read: Read, fuller: Path) -> None:
    assert "and 1.25× larger." in read.text
    assert "no difference against the best plain int8 interval 0.98–1.07" in " ".join(read.text.split())
    result = json.loads((fuller / results.RESULT).read_text())
    result["verdict"] |= {"size_ratio": 3.5, "speedup_vs_post_training_baseline": 0.62}
    result["verdict"] |= {"speedup_vs_post_training_baseline_low": 0.6, "speedup_vs_post_training_baseline_high": 0.65}
    assert "and 3.5× smaller. " in outcome.headline(result)[1]
    assert outcome.facts(result)[-1] == ("0.62×, slower", "against the best plain int8", "interval 0.6–0.65")
    result["verdict"]["size_ratio"] = 1.001
    assert "and of the same size. " in outcome.headline(result)[1]


def test_what_a_run_did_not_measure_has_no_place_in_its_page(tiny_run: FinishedRun) -> None:
    html.write(tiny_run.folder)
    told = Read(tiny_run.folder / html.PAGE)
    assert "Under load" not in told.text
    assert "predicted against what was achieved" not in told.text
