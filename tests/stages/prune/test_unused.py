"""Options that a config gives and that have no effect are named; a config may hold those of both ways all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.stages.prune import PruneConfig
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY
from tests.stages.test_tuning import tuned

BY_TIME = {"latency_ratio": 0.8, "cuts_per_step": 4, "widths_per_group": 2, "candidate_epochs": 1}
BY_RATIO = {"ratio": 0.25, "scope": "global"}
TIMING = {"rounds": 30, "calls_per_round": 10, "timeout_s": 60.0}
BOTH = {**BY_TIME, **BY_RATIO, **TIMING}


@pytest.mark.parametrize(
    ("options", "unused", "reason"),
    [
        ({**BOTH}, BY_TIME, "structured: ratio"),
        ({**BOTH, "structured": "latency"}, BY_RATIO, "structured: latency"),
        ({**BOTH, "structured": "latency", "measure": False}, BY_RATIO, "structured: latency"),
        ({**TIMING, "measure": False}, TIMING, "measure: false"),
        ({"scratch_epochs": 5}, {"scratch_epochs": 5}, "from_scratch: false"),
        ({"scratch_epochs": 5, "from_scratch": True}, {}, ""),
        ({"ratio": 0.5}, {}, ""),
        ({"taylor_samples": 64}, {"taylor_samples": 64}, "importance: l2"),
        ({"taylor_samples": 64, "importance": "taylor"}, {}, ""),
    ],
)
def test_what_has_no_effect_is_named_with_its_reason(
    options: dict[str, Any], unused: dict[str, Any], reason: str
) -> None:
    messages = [f"prune.{name}: got {value}; it has no effect with {reason}" for name, value in unused.items()]
    assert PruneConfig.model_validate(options).unused() == messages


def test_of_a_run_only_what_the_user_wrote_counts() -> None:
    """The file gives `ratio`, which no `--set` can take back."""
    settings = ["prune.structured=latency", "prune.latency_ratio=0.8"]
    config: Any = load_plan(TINY, settings).stages["prune"]
    assert config.unused() == ["prune.ratio: got 0.3; it has no effect with structured: latency"]
    untouched: Any = load_plan(TINY).stages["prune"]
    assert untouched.unused() == []


def test_the_stage_says_and_records_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = tuned("prune", tmp_path, None, cuts_per_step=4)
    [note] = found.metrics["notes"]
    assert note == "prune.cuts_per_step: got 4; it has no effect with structured: ratio"
    assert note in capsys.readouterr().out.splitlines()
