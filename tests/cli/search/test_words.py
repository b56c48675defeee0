from __future__ import annotations

from typing import Any

from edgekit.cli.search import run


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
    first, failed, disturbed = run.batch_lines(study)
    assert first == "batch 1: 1 measured in full, 1 failed; 1 point on the front"
    assert failed == "  trial 1 failed: no such width" and "noisy" in disturbed
