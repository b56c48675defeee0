"""Does a baseline from elsewhere know validation? Held to the level it states, and told where a run is told."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import binom, fisher_exact

from edgekit.core.tasks import Marks
from edgekit.report import checks
from edgekit.report import console as reports
from edgekit.report import result as results
from edgekit.report.html import story
from edgekit.report.result import RESULT
from edgekit.stages.benchmark.leakage import LEVEL, by_chance, check_leakage
from tests.conftest import FinishedRun


def answers(right: int, samples: int) -> np.ndarray:
    return np.arange(samples) < right


@pytest.mark.parametrize(
    "table",
    [(359, 359, 316, 359), (95, 100, 88, 100), (0, 5, 5, 5), (5, 5, 0, 5), (4, 7, 4, 7), (9990, 10000, 9940, 10000)],
)
def test_the_probability_is_fishers(table: tuple[int, int, int, int]) -> None:
    right, samples, other, others = table
    wanted = fisher_exact([[right, samples - right], [other, others - other]], alternative="greater").pvalue
    assert by_chance(*table) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("accuracy", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("samples", [(30, 60), (100, 100)])
def test_a_network_that_knows_neither_split_is_called_out_no_oftener_than_the_level(
    accuracy: float, samples: tuple[int, int]
) -> None:
    """Exactly, over all that both splits can show."""
    mine, others = (binom.pmf(np.arange(count + 1), count, accuracy) for count in samples)
    called_out = sum(
        mine[right] * others[other]
        for right in range(samples[0] + 1)
        for other in range(samples[1] + 1)
        if by_chance(right, samples[0], other, samples[1]) <= LEVEL
    )
    assert 0 < called_out <= LEVEL or accuracy == 0.99


def test_one_that_learnt_validation_is_called_out_and_one_that_did_not_is_not() -> None:
    knows = check_leakage("net.keras", answers(359, 359), answers(316, 359))
    assert knows is not None and knows["known"] and knows["p_value"] < 1e-9
    unlike = check_leakage("net.keras", answers(320, 359), answers(316, 359))
    assert unlike is not None and not unlike["known"]
    worse = check_leakage("net.keras", answers(200, 359), answers(316, 359))
    assert worse is not None and not worse["known"] and worse["p_value"] > 0.99


def test_an_accuracy_that_is_no_share_of_right_answers_is_not_tested() -> None:
    marks = Marks("regression", np.zeros((4, 2)))
    assert check_leakage("net.keras", marks, marks) is None


def test_it_is_told_where_the_run_is_told(tiny_run: FinishedRun, capsys: pytest.CaptureFixture[str]) -> None:
    """In the notebook's checks, the end of the run, the page and result.json; a network trained here is not asked."""
    result: dict[str, Any] = json.loads((tiny_run.folder / RESULT).read_text())
    assert result["seen_validation"] is None and story.seen(result) == []
    for right, sign in (
        (359, "✗ net.keras seems to know validation: 100.00% right of 359"),
        (317, "✓ net.keras: 88.30%"),
    ):
        row = check_leakage("net.keras", answers(right, 359), answers(316, 359))
        checks.validation_unseen(SimpleNamespace(metrics={"seen_validation": row}))  # type: ignore[arg-type]
        assert sign in capsys.readouterr().out
        changed = {**result, "seen_validation": row}
        results.check(changed)
        assert [line for line in story.seen(changed) if sign[2:] in line]
        stream = io.StringIO()
        reports.show(changed, tiny_run.folder, Console(file=stream, width=200))
        assert ("set data.validation_from to test" in stream.getvalue()) == (right == 359)
