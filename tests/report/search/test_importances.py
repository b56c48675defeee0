"""Importances find the effect of an option, and nothing is claimed from too few trials."""

from __future__ import annotations

from pathlib import Path

from edgekit.report.search import importances, studies
from edgekit.report.search.importances import MIN_TRIALS
from edgekit.report.search.studies import Study
from tests.report.search import example


def with_values(folder: Path, trials: int = 52) -> Study:
    """The example, with a latency that follows the width alone, and a size that is the same everywhere."""
    study = studies.read(example.write(example.study(trials=trials), folder / "study.json"))
    for trial in study.complete:
        trial["values"][1], trial["values"][2] = 0.001 * trial["parameters"][example.WIDTH], 1000.0
    return study


def test_the_option_that_decides_explains_nearly_all_and_a_constant_nothing(tmp_path: Path) -> None:
    study = with_values(tmp_path)
    result = importances.of(study)
    latency, size = study.objectives[1:]
    shares = {row.key: row for row in result.of(latency)}
    assert shares[example.WIDTH].share > 0.9 and shares[example.RATIO].share < 0.05
    assert all(row.low <= row.share <= row.high for row in result.rows)
    assert result.of(size) == [] and "every trial has the same size for tflite" in " ".join(result.left_out)
    conditional = [row for row in result.rows if row.key == example.DEPTH]
    having = sum(example.DEPTH in trial["parameters"] for trial in study.complete)
    assert having >= MIN_TRIALS and {row.trials for row in conditional} == {having}


def test_the_same_study_has_the_same_importances(tmp_path: Path) -> None:
    study = studies.read(example.write(example.study(objectives=1), tmp_path / "study.json"))
    result = importances.of(study)
    assert result.rows and importances.of(study) == result


def test_few_trials_give_no_importances(tmp_path: Path) -> None:
    study = studies.read(example.write(example.study(trials=12), tmp_path / "study.json"))
    result = importances.of(study)
    assert result.rows == ()
    assert result.left_out == (
        f"Too few trials to tell what each option did: {len(study.complete)} complete, and at least {MIN_TRIALS} are "
        "needed.",
    )


def test_an_option_that_few_trials_have_is_named(tmp_path: Path) -> None:
    study = studies.read(example.STUDY)
    having = sum(example.BLOCKS in trial["parameters"] for trial in study.complete)
    [text] = importances.too_few_message(len(study.complete), {example.BLOCKS: having}).splitlines()
    assert f"{example.BLOCKS} ({having} complete)" in text
