"""Sections of the page for recorded rows: sessions, loads, predictions, boundaries, machine and verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edgekit.report.sections import conversion, loads, machine, outcome, profile
from edgekit.report.tables import Grid

Row = dict[str, Any]
BOUND_MS = 4.0
WINNER = "student-int8-tflite"
SESSION: Row = {
    "calls": 45,
    "covered": 0.99,
    "parts_ms": {
        "execute": 31.4, "import": 408.0, "load": 31.8, "postprocess": 1.08, "preprocess": 2.13, "queue": 88.2,
        "serialise": 18.0, "start Python": 113.0, "warm-up": 2.14,
    },
    "stamped": {"ratio": 0.87, "low": 0.25, "high": 2.04},
    "whole_ms": 703.0,
}  # fmt: skip
SEEN: Row = {
    "seconds": 20.2, "others_share": 0.87, "steal_share": 0.01, "preempted_per_s": 139.8, "quota_stops": 0,
    "load_before": 9.99, "load_after": 10.9, "clock_mhz": None, "clock_change": None, "throttled": False,
    "temperature_before_c": None, "temperature_after_c": None, "pace_ms": 0.884, "pace_change": 0.215, "noise": 0.018,
}  # fmt: skip


def lines(grid: Grid | None) -> list[list[str]]:
    assert grid is not None
    return [list(line.cells) for line in grid.lines]


def load(scenario: str, rate_per_s: float | None = None, meets: bool | None = None) -> Row:
    """One run of LoadGen, as the benchmark keeps it."""
    percentiles = {f"p{rank}_ms": rank / 100 for rank in (50, 90, 95, 99)}
    ends = {f"p{rank}_{end}_ms": None for rank in (50, 90, 95, 99) for end in ("low", "high")}
    return {
        "name": WINNER, "scenario": scenario, "queries": 1234, "rate_per_s": rate_per_s, "throughput_per_s": 1233.0,
        **percentiles, **ends, "p99_low_ms": 0.91, "p99_high_ms": 1.31, "error_rate": 1 / 1234, "cpu_cores": 0.75,
        "peak_bytes": 93 * 2**20, "meets": meets, "short": scenario != "server",
        "why_short": "" if scenario == "server" else "1 of 600 s", "disturbed": [],
    }  # fmt: skip


@pytest.fixture
def driven() -> Row:
    """What LoadGen found of a winner and of a variant that died."""
    trials = [
        {"rate_per_s": rate, "p99_ms": p99_ms, "meets": p99_ms <= BOUND_MS}
        for rate, p99_ms in ((2000.0, 9.0), (1500.0, 3.25), (1500.0, 3.75))
    ]
    marks = {"short": True, "why_short": "1 of 600 s", "disturbed": ["noise"]}
    return {
        "seconds": 1.0,
        "p99_bound_ms": BOUND_MS,
        "loadgen": "6.0.17",
        "runs": [load("single_stream"), load("server", 1500.0, True), load("offline")],
        "rates": [{"name": WINNER, "rate_per_s": 1500.0, "why": "met in 3 further trials", "trials": trials, **marks}],
        "failed": [{"name": "baseline-eager", "reason": "it <died>"}],
    }


def test_a_session_stands_with_its_cold_start_and_its_sum() -> None:
    rows = lines(profile.session_grid({"session": SESSION}))
    names = [row[0] for row in rows]
    assert names[:4] == ["start Python", "import", "load", "warm-up"]
    assert names[4:9] == [
        f"{part}, 45 calls" for part in ("queue", "preprocess", "execute", "postprocess", "serialise")
    ]
    assert ["execute, 45 calls", "31.4", "4.5%"] in rows
    assert ["of which before the first answer", "555", "78.9%"] in rows
    assert ["all parts", "696", "99.0%"] in rows
    assert ["measured from outside", "703", ""] in rows
    assert ["a call with timestamps, relative to one without", "0.87×", "0.25–2.04"] in rows
    assert profile.session_grid({}) is None


def test_what_was_seen_beside_the_measurement_stands_with_what_disturbs() -> None:
    grid = machine.noise_grid(cast("Any", {"conditions": {"seen": SEEN}}))
    rows = {line.cells[0]: (*line.cells[1:], line.kind) for line in grid.lines}
    assert rows["time of a fixed piece of work, ms"] == ("0.884", "", "")
    assert rows["CPU time of other processes"][0] == "87.0%" and rows["CPU time of other processes"][2] == "out"
    assert rows["throttled by heat or low voltage"] == ("no", "", "")
    assert "clock of the fastest core, MHz" not in rows  # what a machine does not show is left out


def test_the_machine_stands_with_its_interpreters_and_what_stayed_open() -> None:
    conditions = {"host": "pi", "cpu": "Cortex-A72", "new_condition": 3, "interpreters": {"litert": "2.3.0"}}
    result = {"conditions": {**conditions, "disturbed": ["noise"], "stayed_open": ["a and b"], "seen": SEEN}}
    assert machine.facts(cast("Any", result)) == [
        ("host", "pi"), ("processor", "Cortex-A72"), ("new condition", "3"), ("interpreters", "litert 2.3.0"),
        ("noise", "noise"), ("stayed open", "a and b"),
    ]  # fmt: skip


def test_loads_stand_with_their_rates_and_their_failures(driven: Row) -> None:
    section = loads.section(cast("Any", {"loads": driven}), confidence=0.99)
    assert section is not None
    rates, latencies, throughput = section["grids"]
    rested_on = "met in 3 further trials; short: 1 of 600 s; noisy: noise"
    assert lines(rates) == [[WINNER, "1,500", "3.75", "3", rested_on]]
    server = [WINNER, "server, Poisson", "0.5", "0.9", "0.95", "0.99 (0.91–1.31)", "within"]
    assert lines(latencies)[1] == server and len(lines(latencies)) == 2
    assert lines(throughput)[1][2:] == ["1,500", "1,233", "0.08\u00a0%", "0.75", "93", "1,234 queries"]
    assert lines(throughput)[2][-1] == "short: 1 of 600 s"
    assert section["failed"] == ["baseline-eager failed under load: it <died>"]
    pictures = loads.pictures(cast("Any", driven))
    assert "p99 against the rate" in pictures["loads"].alt


def test_a_run_that_drove_no_load_has_no_section_of_it(driven: Row) -> None:
    nothing = {**driven, "runs": [], "rates": [], "failed": []}
    assert loads.section(cast("Any", {"loads": nothing}), 0.99) is None
    assert loads.pictures(cast("Any", nothing)) == {}
    skipped = loads.section(cast("Any", {"loads": {**nothing, "skipped": "no LoadGen"}}), 0.99)
    assert skipped == {"grids": [], "failed": ["no load test was run: no LoadGen."]}


@pytest.mark.parametrize(("host", "rows"), [("here", [WINNER]), ("elsewhere", [])])
def test_predictions_are_made_for_the_machine_that_was_profiled(host: str, rows: list[str]) -> None:
    cost = {"macs": 1_000_000, "weight_bytes": 300_000, "activation_bytes": 100_000}
    execution = {"measured_ms": 0.8, "compute_ms": 0.4, "int8_compute_ms": 0.1, "memory_ms": 0.2}
    profiled = {**cost, "forecast": {"executions": {"LiteRT": {"ratio": 3.0, "execution": execution}}}}
    machines = [{"host": name, "cpu": "A", "cores": 4} for name in ("here", host)]
    timed = {"model": "student", "precision": "int8", "target": "tflite", "speedup": 6.0, "speedup_low": 5.0,
             "speedup_high": 7.0, "name": WINNER}  # fmt: skip
    stages = {
        "profile": {**profiled, "conditions": machines[0]},
        "distill": {"student_cost": {**cost, "macs": 500_000}},
        "prune": {"structured_steps": []},
    }
    sealed = {stage: SimpleNamespace(metrics=metrics) for stage, metrics in stages.items()}
    benchmark = SimpleNamespace(
        metrics={"conditions": machines[1], "rows": [timed]}, ancestor=sealed.__getitem__, find_ancestor=sealed.get
    )
    assert [row["name"] for row in profile.predicted_rows(cast("Any", benchmark))] == rows


def test_predictions_stand_beside_what_was_achieved() -> None:
    predicted = [
        {"name": WINNER, "model": "student", "precision": "int8", "target": "tflite", "predicted": 4.0,
         "achieved": 5.0, "achieved_low": 4.5, "achieved_high": 5.5, "share": 1.25},
        {"name": "baseline-fp32-tflite", "model": "baseline", "precision": "fp32", "target": "tflite",
         "predicted": 3.0, "achieved": 2.4, "achieved_low": 2.2, "achieved_high": 2.6, "share": 0.8},
    ]  # fmt: skip
    grid = profile.predicted_grid(cast("Any", predicted), cast("Any", {"winners": {"tflite": WINNER}}))
    assert lines(grid)[0] == [WINNER, "4×", "5× (4.5–5.5)", "1.25×"]
    assert [line.kind for line in cast("Grid", grid).lines] == ["ships", ""]
    assert profile.predicted_grid([], cast("Any", {"winners": {}})) is None


def boundary(snr_db: float, agreement: float, of: str = "torch-fp32") -> Row:
    return {
        "from": of, "to": "tflite-int8", "max_abs": 1 / snr_db, "snr_db": snr_db, "cosine": 0.999,
        "worst_cosine": 0.99, "top1_agreement": agreement,
    }  # fmt: skip


def converted(folder: Path, files: Sequence[Row], **metrics: Any) -> Any:
    """A sealed conversion, as far as the page reads it."""
    (folder / "variants.json").write_text(json.dumps(files))
    result = {"check_samples": 40, "variants": len(files), "debris": {}, "float_ops": {}, "ends": [], **metrics}
    return SimpleNamespace(metrics=result, file=lambda name: folder / name)


def test_every_boundary_stands_at_its_worst(tmp_path: Path) -> None:
    rest = {"target": "tflite", "precision": "int8", "bytes": 1}
    variants = [
        {"name": "better", "boundaries": [boundary(40.0, 1.0)], **rest},
        {"name": "worse", "boundaries": [boundary(20.0, 0.95)], **rest},
    ]
    ends = [
        {"model": model, "from": "scores", "to": "answer", "samples": 40, "accuracy": accuracy, "best_order": accuracy}
        for model, accuracy in (("baseline", 0.9), ("pruned", 0.6))
    ]
    artifact = converted(tmp_path, variants, ends=ends)
    assert lines(conversion.boundaries_grid(artifact)) == [
        ["tflite-int8", "torch-fp32", "2", "0.05", "20.0", "0.9900", "95.00\u00a0%", "worse"]
    ]
    [answer] = lines(conversion.ends_grid(artifact))
    assert answer[:3] == ["scores → answer", "pruned", "40"] and answer[3].startswith("accuracy 60.00\u00a0%")


def test_what_ships_stands_with_what_the_converter_left_behind(tmp_path: Path) -> None:
    debris = [
        {"kind": "transpose", "compiled": False, "where": f"layer {number}", "moved_bytes": 1000} for number in range(5)
    ]
    debris.append({"kind": "reshape", "compiled": True, "where": "input → stem", "moved_bytes": 24})
    artifact = converted(tmp_path, [], variants=3, debris={WINNER: debris})
    result = {"winners": {"tflite": WINNER}, "unmet": {"onnx": {"name": "near"}}}
    grid = conversion.left_behind_grid(artifact, cast("Any", result))
    left = "transpose 5: layer 0, layer 1, layer 2, layer 3, …; when compiled here: reshape 1: input → stem"
    assert lines(grid) == [[WINNER, "tflite", "5", "5,024", left], ["near", "onnx: no bundle", "0", "0", "nothing"]]


@pytest.mark.parametrize(
    ("size_ratio", "size"), [(0.8, "and 1.25× larger."), (3.5, "and 3.5× smaller."), (1.001, "and of the same size.")]
)
def test_statements_about_the_size_are_true(size_ratio: float, size: str) -> None:
    assert size in outcome.headline(cast("Any", met(size_ratio=size_ratio)))[1]


@pytest.mark.parametrize(
    ("ratio", "low", "high", "words", "beside"),
    [
        (1.02, 0.98, 1.07, "no difference", "interval 0.98–1.07"),
        (0.62, 0.6, 0.65, "0.62×, slower", "interval 0.6–0.65"),
        (1.0, 1.0, 1.0, "no difference", "the winner is that file"),
    ],
)
def test_statements_about_the_speed_are_true(ratio: float, low: float, high: float, words: str, beside: str) -> None:
    name = "speedup_vs_post_training_baseline"
    result = met(**{name: ratio, f"{name}_low": low, f"{name}_high": high})
    assert outcome.facts(cast("Any", result))[-1] == (words, "against the best plain int8", beside)


def met(**verdict: Any) -> Row:
    """A result that met its budget, as far as the page's head reads it."""
    plain = "speedup_vs_post_training_baseline"
    return {
        "task": "classification",
        "budget": {"accuracy_drop_pp": 2.5},
        "winners": {"tflite": WINNER},
        "unmet": {},
        "variants": [
            {"name": "baseline-eager", "interpreter": "torch 2.13", "p50_ms": 1.0, "bytes": 4000, "accuracy_test": 0.9},
            {"name": WINNER, "p50_ms": 0.1, "bytes": 1000, "accuracy_test": 0.89},
        ],
        "verdict": {
            "met": True, "winner": WINNER, "p50_ms": 0.1, "size_ratio": 4.0, "confidence": 0.95,
            "drop_validation_pp": 1.0, "bound_validation_pp": 2.0, "speedup_vs_eager": 10.0,
            "speedup_vs_eager_low": 9.0, "speedup_vs_eager_high": 11.0, plain: 1.5, f"{plain}_low": 1.4,
            f"{plain}_high": 1.6, **verdict,
        },
    }  # fmt: skip
