"""The figure above each notebook: the state of the run, and the network after each stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.config import STAGES
from edgekit.report.sections import pipeline
from edgekit.report.sections.pipeline import PipelineStep, steps_so_far

EAGER = {"way": "PyTorch eager", "p50_ms": 0.5}
LATENCY = {
    "steps": [
        {"step": 0, "target": "onnx", "precision": "int8", "p50_ms": 0.001},
        {"step": 1, "target": "onnx", "precision": "fp32", "p50_ms": 0.03},
        {"step": 1, "target": "tflite", "precision": "int8", "p50_ms": 0.02},
    ]
}
METRICS: dict[str, dict[str, Any]] = {
    "profile": {"ways": [EAGER], "validation_accuracy": 0.99, "file_bytes": 1000},
    "distill": {"candidates": [], "accuracy": {"alone": 0.9, "dkd": 0.95}, "kept": "dkd",
                "student_cost": {"weight_bytes": 400}},
    "prune": {"latency": LATENCY, "structured_steps": [
        {"step": 0, "kept": False, "weight_bytes": 400, "validation_accuracy": 0.95},
        {"step": 1, "kept": True, "weight_bytes": 200, "validation_accuracy": 0.94}]},
    "quantize": {"method": "qat", "ptq_accuracy": 0.5, "qat_accuracy": 0.93},
    "convert": {"bytes": {"pruned-fp32-onnx": 300, "pruned-int8-tflite": 90}},
    "benchmark": {"winner": "pruned-int8-tflite", "rows": [
        {"name": "baseline-eager"},
        {"name": "pruned-int8-tflite", "model": "pruned", "target": "tflite", "precision": "int8", "bytes": 90,
         "accuracy_validation": 0.92, "p50_ms": 0.004}]},
}  # fmt: skip


def sealed(root: Path, *stages: str, **changed: dict[str, Any]) -> Artifact:
    """A chain of artifacts with these figures; the last."""
    last = None
    for stage in ("origin", *stages):
        out = artifacts.begin(root / stage)
        figures = {**METRICS.get(stage, {}), **changed.get(stage, {})}
        last = artifacts.seal(out, stage=stage, source=last, data_digest="d", config={}, metrics=figures)
    assert last
    return last


def test_at_the_beginning_nothing_is_known(tmp_path: Path) -> None:
    steps = steps_so_far(sealed(tmp_path), STAGES)
    assert [step.stage for step in steps] == list(STAGES)
    assert [step.state for step in steps] == ["here", *["ahead"] * 6]
    assert all(step.bytes is step.accuracy is step.p50_ms is None for step in steps)


def test_at_the_end_every_stage_shows_what_it_left(tmp_path: Path) -> None:
    steps = steps_so_far(sealed(tmp_path, *STAGES[:6]), STAGES)
    assert steps == [
        PipelineStep("profile", "done", "baseline", 1000, 0.99, 0.5, "PyTorch eager"),
        PipelineStep("distill", "done", "student", 400, 0.95),
        PipelineStep("prune", "done", "pruned", 200, 0.94, 0.02, "tflite int8"),  # of the step that was kept
        PipelineStep("quantize", "done", "int8, QAT", None, 0.93),
        PipelineStep("convert", "done", "smallest of 2", 90),
        PipelineStep("benchmark", "done", "pruned wins", 90, 0.92, 0.004, "tflite int8"),
        PipelineStep("bundle", "here"),
    ]


def test_what_was_not_measured_is_unknown(tmp_path: Path) -> None:
    missed = {"prune": {"latency": None}, "benchmark": {"winner": None}}
    steps = {step.stage: step for step in steps_so_far(sealed(tmp_path, *STAGES[:6], **missed), STAGES)}
    assert steps["prune"].p50_ms is None and not steps["prune"].timed_on
    assert steps["benchmark"] == PipelineStep("benchmark", "done", "none in the budget")


def test_a_run_without_training_leaves_three_stages_out(tmp_path: Path) -> None:
    steps = steps_so_far(sealed(tmp_path, "profile"), ("profile", "convert", "benchmark", "bundle"))
    assert [step.state for step in steps] == ["done", *["left out"] * 3, "here", "ahead", "ahead"]


@pytest.mark.parametrize("done", [0, 1, 6])
def test_the_strip_names_every_stage_once_and_no_words_meet(done: int, tmp_path: Path) -> None:
    figure = pipeline.figure(steps_so_far(sealed(tmp_path, *STAGES[:done]), STAGES))
    (axes,) = figure.axes
    figure.canvas.draw()
    words = [text for text in axes.texts if text.get_text()]
    shown = [text.get_text() for text in words]
    assert all(shown.count(f"{number:02d} {stage}") == 1 for number, stage in enumerate(STAGES, 1))
    assert ("network" in shown) == (done > 0)
    boxes = [text.get_window_extent() for text in words]
    assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[:place])


def test_the_present_stage_is_the_darkest(tmp_path: Path) -> None:
    from matplotlib.colors import to_rgb

    figure = pipeline.figure(steps_so_far(sealed(tmp_path, "profile"), STAGES))
    grey = [sum(to_rgb(patch.get_facecolor())) for patch in figure.axes[0].patches]
    assert grey.index(min(grey)) == 1 and min(grey) < 0.5 * sorted(grey)[1]
