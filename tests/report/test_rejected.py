"""Every step that was measured and rejected is listed with its figures, from the artifacts of a real run."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.schema.variants import RejectedStep
from edgekit.report import rejected_steps
from edgekit.report.result import RESULT
from edgekit.report.sections import decisions
from tests.conftest import FinishedRun


@pytest.fixture(scope="module")
def benchmark(tiny_run: FinishedRun) -> Artifact:
    return artifacts.load(tiny_run.folder / "benchmark")


def of(benchmark: Artifact, stage: str) -> dict[str, dict[str, Any]]:
    return {row["what"]: row for row in rejected_steps.rejected_steps(benchmark) if row["stage"] == stage}


def test_every_one_has_figures_and_a_reason(benchmark: Artifact) -> None:
    for row in rejected_steps.rejected_steps(benchmark):
        assert row["reason"]
        if row["stage"] == "convert":  # it came to no file that could be measured
            assert row["accuracy_validation"] is row["drop_pp"] is row["bound_pp"] is None
        else:
            assert 0 <= row["accuracy_validation"] <= 1
            assert row["bound_pp"] >= row["drop_pp"]


def test_the_result_holds_them(tiny_run: FinishedRun, benchmark: Artifact) -> None:
    assert json.loads((tiny_run.folder / RESULT).read_text())["rejected"] == rejected_steps.rejected_steps(benchmark)


def test_one_training_of_the_student_goes_on_and_the_others_are_listed(benchmark: Artifact) -> None:
    students = benchmark.ancestor("distill").metrics["students"]
    names = {"alone": "student, labels alone"}
    given_up = {names.get(row["name"], f"student, {row['name']}"): row for row in students if not row["kept"]}
    content = of(benchmark, "distill")
    assert set(content) == set(given_up) and len(given_up) == len(students) - 1
    for what, row in content.items():
        student = given_up[what]
        assert row["drop_pp"] == pytest.approx(100 * (student["lost"] - student["gained"]) / student["samples"])


def test_every_pruning_step_is_kept_or_listed(benchmark: Artifact) -> None:
    result = benchmark.ancestor("prune").metrics
    given_up = [
        (f"{result[way]['what']}, step {row['step']}", row["bound_pp"])
        for way in ("structured", "unstructured")
        for row in result[f"{way}_steps"]
        if row["step"] and not row["kept"]
    ]
    assert {what: row["bound_pp"] for what, row in of(benchmark, "prune").items()} == dict(given_up)


def test_methods_and_recipes_that_were_not_chosen_are_listed(benchmark: Artifact) -> None:
    result = benchmark.ancestor("quantize").metrics
    other = "qat" if result["method"] == "ptq" else "ptq"
    content = of(benchmark, "quantize")
    row = content.pop(f"{other.upper()} int8, in simulation")
    assert (row["bound_pp"], row["reason"]) == (result[f"{other}_drop"]["bound_pp"], result[f"against_{other}"])
    given_up = {
        f"PTQ recipe {each['recipe']}, in simulation": (each["bound_pp"], each["reason"])
        for each in result["recipes"]
        if not each["kept"]
    }
    assert {what: (row["bound_pp"], row["reason"]) for what, row in content.items()} == given_up
    assert len(given_up) == 1 and not result["mixed"]


def test_rejected_float_layers_and_failed_conversions_are_listed() -> None:
    figures = {"validation_accuracy": 0.9, "drop_pp": 1.0, "bound_pp": 2.0, "reason": "too much"}
    nothing = dict.fromkeys(figures)
    result = {
        "method": "mixed",
        "recipes": [
            {**figures, "recipe": "minmax", "kept": True},
            {**nothing, "recipe": "percentile", "kept": False, "reason": "nncf cannot"},
        ],
        **{f"{way}_accuracy": 0.8 for way in ("ptq", "qat")},
        **{f"{way}_drop": figures for way in ("ptq", "qat")},
        **{f"against_{way}": "too much" for way in ("ptq", "qat")},
        "mixed": [
            {**figures, "keep_float": ["stem"], "kept": False},
            {**figures, "keep_float": ["stem", "head"], "kept": True},
            {**nothing, "keep_float": ["stem", "head", "neck"], "kept": False, "reason": "nncf cannot"},
        ],
    }
    rows = list(rejected_steps.quantization_rows(result))
    assert [(row["what"], row["bound_pp"], row["reason"]) for row in rows] == [
        ("PTQ recipe percentile, in simulation", None, "nncf cannot"),
        ("PTQ int8, in simulation", 2.0, "too much"),
        ("QAT int8, in simulation", 2.0, "too much"),
        ("int8 with stem in float, in simulation", 2.0, "too much"),
        ("int8 with stem, head, neck in float, in simulation", None, "nncf cannot"),
    ]
    for row in rows:
        TypeAdapter(RejectedStep).validate_python(row)


def test_every_candidate_that_convert_left_out_is_listed(benchmark: Artifact) -> None:
    left_out = {"name": "pruned-w8-openvino", "reason": "SNR 3.0 dB, at least 20 dB required"}

    def ancestor(stage: str) -> Any:
        return SimpleNamespace(metrics={"left_out": [left_out]}) if stage == "convert" else benchmark.ancestor(stage)

    found = {"ancestor": ancestor, "find_ancestor": ancestor}
    artifact = SimpleNamespace(metrics=benchmark.metrics, config=benchmark.config, **found)
    [row] = [row for row in rejected_steps.rejected_steps(artifact) if row["stage"] == "convert"]  # type: ignore[arg-type]
    assert (row["what"], row["reason"]) == tuple(left_out.values())
    assert row["accuracy_validation"] is row["drop_pp"] is row["bound_pp"] is None
    TypeAdapter(RejectedStep).validate_python(row)


def test_every_variant_outside_the_budget_and_every_rejected_step_is_listed(benchmark: Artifact) -> None:
    result = benchmark.metrics
    content = of(benchmark, "benchmark")
    outside = {row["name"]: "; ".join(row["reasons"]) for row in result["rows"][1:] if not row["inside_budget"]}
    slower = {
        f"{step['step']}: {step['variant']}"
        for step in result["waterfall"]
        if not step["kept"] and step["variant"] not in outside
    }
    assert set(content) == {*outside, *slower}
    assert all(content[name]["reason"] == reason for name, reason in outside.items())


def benchmark_metrics(is_kept: bool, inside: bool, gain: tuple[float, float, float]) -> dict[str, Any]:
    ends = dict(zip(("gain", "gain_low", "gain_high"), gain, strict=True))
    row = {"name": "pruned-int8-onnx", "accuracy_validation": 0.9, "drop_pp": 1.0, "bound_pp": 2.0}
    return {
        "rows": [
            {"name": "baseline-eager"},
            {**row, "inside_budget": inside, "reasons": [] if inside else ["too big"]},
        ],
        "verdict": {"winner": "x"},
        "waterfall": [
            {"step": "PyTorch eager", "variant": "baseline-eager", "kept": True},
            {"step": "quantize", "variant": row["name"], "kept": is_kept, **ends},
        ],
    }


@pytest.mark.parametrize(
    ("is_kept", "inside", "gain", "reasons"),
    [
        (False, True, (0.6, 0.5, 0.7), ["0.6×, slower against baseline-eager (0.5–0.7)"]),
        (False, True, (1.01, 0.9, 1.1), ["no difference against baseline-eager (0.9–1.1)"]),
        (False, True, (2.0, 1.9, 2.1), ["2× faster against baseline-eager (1.9–2.1), but x wins: see the decisions"]),
        (False, False, (0.6, 0.5, 0.7), ["too big"]),
        (True, True, (2.0, 1.9, 2.1), []),
    ],
)
def test_a_step_that_was_rejected_for_its_latency_says_by_how_much(
    is_kept: bool, inside: bool, gain: tuple[float, float, float], reasons: list[str], benchmark: Artifact
) -> None:
    class Metrics:
        metrics, config = benchmark_metrics(is_kept, inside, gain), benchmark.config
        ancestor, find_ancestor = benchmark.ancestor, benchmark.find_ancestor

    rows = [row for row in rejected_steps.rejected_steps(Metrics()) if row["stage"] == "benchmark"]  # type: ignore[arg-type]
    assert [row["reason"] for row in rows] == reasons


def test_the_table_has_a_line_for_each(benchmark: Artifact) -> None:
    table = decisions.rejected_table(benchmark)
    assert [row[1] for row in table.rows] == [row["what"] for row in rejected_steps.rejected_steps(benchmark)]
    assert "95 % confidence" in table.title


def test_the_page_shows_the_notebooks_table() -> None:
    left_out = {"name": "pruned-w8-openvino", "reason": "SNR 3.0 dB, at least 20 dB required"}
    sealed = SimpleNamespace(
        metrics=benchmark_metrics(False, False, (0.6, 0.5, 0.7)),
        config={"task": "classification", "budget": {"accuracy_confidence": 0.9}},
        find_ancestor=lambda stage: False,
        ancestor=lambda stage: SimpleNamespace(metrics={"left_out": [left_out]}),
    )
    notebook = decisions.rejected_table(sealed)  # type: ignore[arg-type]
    result = {"rejected": rejected_steps.rejected_steps(sealed), "budget": sealed.config["budget"]}  # type: ignore[arg-type]
    grid = decisions.rejected_grid(result)  # type: ignore[arg-type]
    assert grid is not None and len(grid.lines) == 2
    assert list(grid.columns) == list(notebook.columns)
    assert [line.cells for line in grid.lines] == notebook.rows
    assert notebook.title in grid.caption and "90 % confidence" in notebook.title
    assert (grid.numeric, grid.words) == ({"validation", "drop, pp", "at most"}, {"rejected", "why"})
    assert decisions.rejected_grid({**result, "rejected": []}) is None  # type: ignore[arg-type]
