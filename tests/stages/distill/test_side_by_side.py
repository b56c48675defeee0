"""The stage with its trainings side by side seals what it seals with one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.training.parallel_trainings import PARALLEL
from tests.stages.distill.test_selection import distilled, home

__all__ = ["home"]
OPTIONS = {
    "teachers": [
        {"builder": "edgekit.models.resnet:resnet8", "kwargs": {"width": width}, "training": {"epochs": 1}}
        for width in (4, 6)
    ],
    "losses": [{"loss": "soft_targets"}, {"loss": "dist"}],
}


@pytest.mark.processes
def test_the_artifact_is_the_same_to_the_byte(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    in_turn = distilled(home, tmp_path / "in turn", **OPTIONS)
    assert "was finished" not in capsys.readouterr().out
    monkeypatch.setenv(PARALLEL, "2")
    together = distilled(home, tmp_path / "together", in_turn.metrics["shortlist"]["measured"], **OPTIONS)
    output = capsys.readouterr().out
    assert (
        output.count("had finished after") == 6
    )  # two teachers, two candidates, and two losses; "alone" is one of them
    assert together.digest == in_turn.digest
