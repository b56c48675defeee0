"""The end of a run on the terminal never has more than 25 lines."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from edgekit.core import tasks
from edgekit.report import summary
from edgekit.report.formatting import byte_size, latency
from edgekit.report.result import RESULT
from tests.conftest import FinishedRun

FOLDER = Path("artifacts/tiny")


@pytest.fixture
def result(tiny_run: FinishedRun) -> dict[str, Any]:
    outcome: dict[str, Any] = json.loads((tiny_run.folder / RESULT).read_text())
    outcome["conditions"] |= {"disturbed": [], "stayed_open": []}
    return outcome


def lines(result: dict[str, Any], width: int = 100, *, terminal: bool = True, drawn: bool = True) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=terminal, color_system=None, _environ={"TERM": "xterm"})
    summary.print_summary(result, FOLDER, console, has_report=drawn)  # type: ignore[arg-type]
    return stream.getvalue().splitlines()


def loud(result: dict[str, Any]) -> dict[str, Any]:
    """The same run with everything that a summary may have to say."""
    content = deepcopy(result)
    seen = {
        "name": "net.keras", "accuracy_validation": 1.0, "samples_validation": 359, "accuracy_test": 0.88,
        "samples_test": 359, "p_value": 1e-9, "level": 0.001, "known": True,
    }  # fmt: skip
    row = next(row for row in content["variants"] if row["name"] == content["winners"]["openvino"])
    lost = {
        "name": "sparse-int4-onnx", "model": "sparse", "precision": "int4", "target": "onnx", "kind": "other",
        "operator": None, "layer": None, "place": None, "cause": "no", "advice": None, "reason": "no",
    }  # fmt: skip
    content["seen_validation"], content["others_seen_validation"] = seen, [{**seen, "role": "teacher"}] * 3
    content["conditions"] |= {
        "disturbed": ["other processes took 77% of the processor's time", "interrupted 223 times a second", "more"],
        "stayed_open": ["winner of onnx: a takes 1.1 times as long", "gain of convert: 2 times"],
    }
    content["rivals"] = [{"name": "other.tflite", "winner_speedup_low": 0.5}]
    content["unmet"] = {
        "onnx": {**row, "name": "pruned-int8-onnx", "bound_pp": 30.0, "reasons": ["too inaccurate " * 9]}
    }
    content["winners"] = {target: name for target, name in content["winners"].items() if target != "onnx"}
    content["bundles"].pop("onnx")
    content["left_out"] = [lost]
    return content


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("change", [lambda result: result, loud], ids=["quiet", "loud"])
def test_it_has_at_most_25_lines_that_fit_the_terminal(
    result: dict[str, Any], width: int, terminal: bool, change: Any
) -> None:
    shown = lines(change(result), width, terminal=terminal)
    assert len(shown) <= summary.MAX_LINES, "\n".join(shown)
    if terminal:  # a command stays one line, to be copied
        assert all(len(line.rstrip()) <= width for line in shown if " Next " not in line), "\n".join(shown)
    assert not any("\x1b" in line for line in shown)


def test_it_names_the_winner_of_each_target_with_its_figures(result: dict[str, Any]) -> None:
    shown = lines(result, 140)
    assert shown[0] == " tiny · 3 of 3 targets ship · budget: accuracy drop ≤ 25 pp"
    rows = {row["name"]: row for row in result["variants"]}
    headings, *body = shown[2:6]
    assert headings.split() == [
        "target", "variant", "bundle", "accuracy", "drop", "size", "latency", "(p50)", "speed-up"
    ]  # fmt: skip
    assert body[0].split()[0] == result["verdict"]["winner"].rpartition("-")[2], "the overall winner comes first"
    for line in body:
        target, variant, bundle, *_ = line.split()
        row = rows[f"{variant}-{target}"]
        assert row["name"] == result["winners"][target] and bundle == result["bundles"][target]["file"]
        drop_pp = 100 * (rows["baseline-eager"]["accuracy_test"] - row["accuracy_test"])
        assert f" {row['accuracy_test']:.2%}".replace("%", "\u00a0%") in line and f" {drop_pp:.2f} pp " in line
        assert byte_size(row["bytes"]) in line and latency(row["p50_ms"]) in line
        assert line.rstrip().endswith("×") or row["speedup_low"] <= 1 <= row["speedup_high"]


def test_a_narrow_terminal_goes_without_the_bundles_file_then_without_the_variant(result: dict[str, Any]) -> None:
    wide, usual, narrow = (lines(result, width)[2].split() for width in (140, 90, 66))
    assert [word for word in wide if word not in usual] == ["bundle"]
    assert [word for word in usual if word not in narrow] in (["variant"], ["variant", "latency", "(p50)"])


def test_paths_and_the_next_command_come_last(result: dict[str, Any]) -> None:
    shipped = next(row["file"] for row in result["bundles"].values() if row["variant"] == result["verdict"]["winner"])
    assert lines(result)[-4:] == [
        " Report   artifacts/tiny/report.html",
        " Details  edgekit status artifacts/tiny --all",
        " Bundles  artifacts/tiny/bundles/",
        f" Next     scp artifacts/tiny/bundles/{{edgerun.pyz,{shipped}}} pi@raspberrypi.local:",
    ]
    assert not [line for line in lines(result, drawn=False) if line.startswith(" Report")]


def test_warnings_say_what_to_do(result: dict[str, Any]) -> None:
    assert not [line for line in lines(result, terminal=False) if "noisy" in line or "trained on validation" in line]
    words = "\n".join(lines(loud(result), terminal=False))
    for part in (
        "2 of 3 targets ship",
        "No bundle for onnx: no variant meets the budget; the nearest miss is pruned-int8-onnx",
        "net.keras was probably trained on validation samples: its accuracy is 100.00% there, and 88.00% on the test",
        "set data.validation_from to test",
        "Not significantly faster than other.tflite.",
        "The latencies are noisy: other processes took 77% of the processor's time. For figures",
        "measure again with --force benchmark.",
        "before it was clear which variant is fastest on onnx; to find out, raise benchmark.most_rounds",
        "Variants over the budget: 11 of 23. Variants that could not be made: 1 of 23. The report gives the reasons.",
    ):
        assert part in words, words


def test_what_does_not_fit_is_counted_and_can_be_printed(result: dict[str, Any]) -> None:
    shown = lines(loud(result), 60)
    (line,) = [line for line in shown if " more note" in line]
    assert line.endswith("edgekit status artifacts/tiny --all")


def test_a_missed_budget_shows_the_nearest_miss_and_no_command_that_ships(result: dict[str, Any]) -> None:
    nearest = {**result["variants"][1], "bound_pp": 30.0, "reasons": ["accuracy drop may be 30 pp, over 25 pp"]}
    missed = {
        **result, "verdict": {"met": False}, "nearest_miss": nearest, "winners": {}, "bundles": {}, "rivals": [],
        "unmet": dict.fromkeys(result["winners"], nearest),
    }  # fmt: skip
    words = "\n".join(shown := lines(missed, terminal=False))
    assert len(shown) <= summary.MAX_LINES and "no variant meets the budget, so nothing ships" in shown[0]
    assert shown[1].startswith(f" The nearest miss is {nearest['name']} ") and "over by 5 pp of accuracy" in shown[1]
    assert "scp" not in words and shown[-1] == " Details  edgekit status artifacts/tiny --all"


def test_accuracy_is_called_as_its_task_calls_it() -> None:
    assert set(summary.METRICS) == set(tasks.TASKS)
    for task in tasks.TASKS:
        assert summary.METRICS[task] in tasks.load_task(task).METRIC


@pytest.mark.parametrize(
    ("value", "text"),
    [(812, "812 bytes"), (9_740, "9.74 kB"), (999_499, "999 kB"), (999_500, "1 MB"), (1.23e7, "12.3 MB")],
)
def test_sizes_have_the_unit_that_suits_them(value: int, text: str) -> None:
    assert byte_size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.00984, "9.84 µs"), (0.9994, "999 µs"), (0.9996, "1 ms"), (1.25, "1.25 ms"), (2310.0, "2.31 s")],
)
def test_latencies_have_the_unit_that_suits_them(value: float | None, text: str) -> None:
    assert latency(value) == text


def test_one_of_several_runs_is_reported_in_one_line(result: dict[str, Any]) -> None:
    p50 = latency(result["verdict"]["p50_ms"])
    line = summary.outcome_line(result)  # type: ignore[arg-type]
    assert line == f"3 of 3 targets ship; fastest: {result['verdict']['winner']}, p50 {p50}"


def test_the_headline_names_every_limit(result: dict[str, Any]) -> None:
    result["budget"] |= {
        "latency_p50_ms": 0.5, "size_bytes": 40_000, "latency_p50": {"ratio": 0.1, "of": "baseline"},
        "size": {"ratio": 0.5, "of": "other.tflite"}, "targets": {"onnx": {"size_bytes": None}},
    }  # fmt: skip
    assert summary.headline(result).partition("budget: ")[2] == (  # type: ignore[arg-type]
        "accuracy drop ≤ 25 pp, p50 ≤ 0.5 ms, p50 ≤ 0.1× baseline, size ≤ 40,000 bytes, size ≤ 0.5× other.tflite, "
        "limits of single targets"
    )
