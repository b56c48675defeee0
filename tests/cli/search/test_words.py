from __future__ import annotations

from pathlib import Path
from typing import Any

from edgekit.cli.search import words
from edgekit.report.formatting import percent


def a_trial(number: int, state: str = "complete", feasible: bool = True, **other: Any) -> dict[str, Any]:
    return {
        "number": number, "batch": 0, "state": state, "reason": "", "feasible": feasible,
        "values": [0.9, 0.25, 12_000.0], "constraints": {"accuracy_drop_pp": -1.0}, **other,
    }  # fmt: skip


def a_study(*trials: dict[str, Any], front: tuple[int, ...] = (), disturbed: bool = False) -> Any:
    return {
        "objectives": [
            {"name": "accuracy", "target": None, "direction": "maximize"},
            {"name": "p50_ms", "target": "tflite", "direction": "minimize"},
            {"name": "bytes", "target": "tflite", "direction": "minimize"},
        ],
        "budget": {"accuracy_drop_pp": 2.0, "latency_p50_ms": 0.1, "size_bytes": 10_000},
        "sampler": {"name": "gp", "reason": "8 trials"},
        "trials": list(trials),
        "batches": [{"number": 0, "digest": "ab" * 32, "hypervolume": 0.0, "seconds": 1.0, "disturbed": disturbed}],
        "front": list(front),
    }  # fmt: skip


def test_a_batch_is_a_line_with_how_its_trials_ended_and_a_line_for_each_failure() -> None:
    study = a_study(a_trial(0), a_trial(1, "failed", False, reason="no such width"), front=(0,), disturbed=True)
    first, failed, disturbed = words.batch(study)
    assert first.startswith("batch 1: 1 complete, 1 failed; 1 point on the front; digest abababab")
    assert failed == "  trial 1 failed: no such width" and "disturbed" in disturbed


def test_the_front_is_shown_with_its_figures_and_the_study_with_its_digest() -> None:
    lines = list(words.ended(a_study(a_trial(0), front=(0,)), "cd" * 32, Path("s")))
    assert lines[1] == f"trial 0   accuracy {percent(0.9)}  p50_ms tflite 0.25  bytes tflite 12,000"
    assert lines[-1] == f"study     {Path('s') / 'study.json'}, 1 trials, digest {'cd' * 32}"


def test_where_no_trial_meets_the_budget_the_nearest_is_named_with_what_it_is_over() -> None:
    far = a_trial(0, feasible=False, constraints={"accuracy_drop_pp": 5.0, "size_bytes": -1.0})
    near = a_trial(1, feasible=False, constraints={"accuracy_drop_pp": 0.5, "size_bytes": 2_000.0})
    lines = list(words.ended(a_study(far, near), "cd" * 32, Path("s")))
    assert (
        "NO TRIAL met the budget; trial 1 came nearest, over accuracy_drop_pp by 0.5, size_bytes by 2e+03" in lines[1]
    )


def test_where_no_trial_came_to_its_end_the_commonest_reason_is_told() -> None:
    stopped = [a_trial(number, "infeasible", False, reason="too slow") for number in (0, 1)]
    lines = list(words.ended(a_study(*stopped), "cd" * 32, Path("s")))
    assert lines[1] == "NO TRIAL met the budget, and none came to its end; most often: too slow"
