"""Relative limits and limits of single targets, as the page, tables, figures and searches show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgekit.report.search import figures, studies, words
from edgekit.report.sections import outcome, variants
from tests.report.search import example

BESIDE = {"name": "theirs.tflite", "limit": 0.6, "ratio": 0.512, "ratio_low": 0.5, "ratio_high": 0.52}
LATENCY = dict.fromkeys(("p50_ms", "p95_ms", "p99_ms"), 0.5)
FACTS = {**LATENCY, "accuracy_validation": 0.9, "accuracy_test": 0.9, "bytes": 900, "precision": "fp32"}
PLAIN = {"accuracy_drop_pp": 1.0, "accuracy_confidence": 0.95, "latency_p50_ms": None, "size_bytes": None}
OWN = {"onnx": {"latency_p50_ms": 3.0}}


def row(target: str, **changes: Any) -> dict[str, Any]:
    gain = {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1}
    passed = {"inside_budget": True, "reasons": [], "drop_pp": 0.0, "bound_pp": 0.5}
    return {"name": f"student-fp32-{target}", "target": target, **FACTS, **gain, **passed, **changes}


def result(**limits: Any) -> Any:
    return {
        "budget": {**PLAIN, **limits},
        "variants": [
            {"name": "baseline-eager", "target": "pytorch", "interpreter": "torch 2.13.0", **FACTS},
            row("tflite", limits={"latency_p50_ms": None, "size_bytes": 600, "beside": BESIDE}),
            row("onnx", limits={"latency_p50_ms": 3.0, "size_bytes": 600}),
        ],
        "winners": {"tflite": "student-fp32-tflite"},
        "unmet": {},
        "decisions": [],
    }  # fmt: skip


RELATIVE = {
    "latency_p50": {"ratio": 0.6, "of": "theirs.tflite", "sha256": "5" * 64},
    "size": {"ratio": 0.6, "of": "theirs.tflite", "bytes": 1000},
}


def test_the_page_has_a_line_of_limits_or_one_for_each_target() -> None:
    first, before, *_ = outcome.targets_grid(result(**RELATIVE)).lines
    assert list(first.cells) == [
        "limit of the budget", "", "", "≤ 1", "≤ 0.6 of theirs.tflite's p50", "≤ 600 (0.6 of theirs.tflite)", "",
    ]  # fmt: skip
    assert before.cells[0] == "before"
    first, second, *_ = outcome.targets_grid(result(**RELATIVE, targets=OWN)).lines
    assert (first.cells[0], second.cells[0]) == ("limit for tflite", "limit for onnx")
    assert second.cells[4:6] == ["≤ 3", "≤ 600 (0.6 of theirs.tflite)"]


def test_the_table_says_how_a_variant_compares_with_the_reference() -> None:
    lines = {line.name: line.verdict for line in variants.variants_of_result(result(**RELATIVE)).lines}
    text = "0.512× (0.5–0.52) the time of theirs.tflite, of which 0.6 is the limit"
    assert lines["student-fp32-tflite"] == f"ships for tflite; {text}"
    assert "theirs" not in lines["student-fp32-onnx"]


def test_a_limit_that_is_no_one_number_is_not_drawn() -> None:
    for limits, drawn in (({"latency_p50_ms": 2.0}, 1), (RELATIVE, 0), ({"latency_p50_ms": 2.0, "targets": OWN}, 0)):
        found = result(**limits)
        [axes] = variants.pareto_figure(found["variants"], found["budget"], []).axes
        assert sum("the limit" in str(line.get_label()) for line in axes.lines) == drawn


def test_a_study_states_its_relative_limits(tmp_path: Path) -> None:
    limits = {"accuracy_drop_pp": 0.0, "latency_p50_ms": None, "size_bytes": None, **RELATIVE}
    study = studies.read(example.write(example.study(trials=12, budget=limits), tmp_path / "study.json"))
    assert words.budget(study) == (
        "The budget: a drop of at most 0 pp, a p50 of at most 0.6 of theirs.tflite's p50, "
        "at most 600 bytes (0.6 of theirs.tflite)."
    )
    drawn = {objective.name: figures.limit_of(study, objective) for objective in study.objectives}
    assert drawn["p50_ms"] is None and drawn["bytes"] == 600
    over: Any = {"constraints": {"latency_p50": 0.3, "size_bytes": -5.0}}
    assert words.excess_text(over) == "p50 by 0.3 of the reference's"
