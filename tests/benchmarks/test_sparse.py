"""The benchmark of zeros: patterns that are what they are called, and rows that are compared in pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.sparse import files
from benchmarks.sparse.__main__ import main
from benchmarks.sparse.pruning import CONTROL, STUDENT, Row, table
from edgekit.core.errors import ConfigError

SHAPE = (128, 64)


@pytest.mark.parametrize(("pattern", "zeros"), [("70 %", 0.7), ("80 %", 0.8), ("90 %", 0.9), ("80 %, 1x4", 0.8)])
def test_a_pattern_zeroes_the_share_in_its_name(pattern: str, zeros: float) -> None:
    kept = files.kept(pattern, SHAPE)
    assert kept.shape == SHAPE and 1 - kept.mean() == pytest.approx(zeros, abs=0.03)
    assert np.array_equal(kept, files.kept(pattern, SHAPE))


def test_blocks_are_zero_together_and_two_of_four_are_two_of_every_four() -> None:
    blocks = files.kept("80 %, 1x4", SHAPE).reshape(-1, 4)
    assert set(blocks.sum(axis=1)) == {0, 4}
    assert set(files.kept("2:4", SHAPE).reshape(-1, 4).sum(axis=1)) == {2}
    assert files.kept(files.DENSE, SHAPE).all()


def test_rows_are_compared_with_the_student_and_with_what_was_tuned_as_long() -> None:
    right = np.arange(1000) % 10 != 0
    better, worse = right.copy(), right.copy()
    better[:100], worse[:50] = True, False
    rows = [Row(STUDENT, 0.0, 0, 0.9, right), Row(CONTROL, 0.0, 8, 0.91, better), Row("half", 0.5, 8, 0.9, worse)]
    student, control, half = table(rows)
    assert student[-2] == "–" and student[-1].startswith("-1.00 (")
    assert control[-1] == "–" and control[-2].startswith("+1.00 (")
    assert half[-2].startswith("-4.50 (") and half[-1].startswith("-5.50 (")
    assert half[1] == "50.0%"


def test_without_the_control_nothing_stands_against_it() -> None:
    right = np.ones(100, bool)
    assert table([Row(STUDENT, 0.0, 0, 0.9, right)])[0][-2:] == ["–", "–"]


def test_before_the_files_are_made_a_line_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(
        SystemExit, match=r"^\S+: has no files yet; run python -m benchmarks.sparse --make --out \S+ first$"
    ):
        main(["--out", str(tmp_path)])


def test_files_are_made_once_and_those_of_another_network_are_no_ones_of_this(tmp_path: Path) -> None:
    home = tmp_path / "probe"
    assert files.begin(home, 0.5, 64)
    assert files.begin(home, 0.5, 64), "it was stopped in between"
    files.finish(home)
    assert not files.begin(home, 0.5, 64)
    for alpha, size in ((0.25, 64), (0.5, 96)):
        with pytest.raises(ConfigError, match=f"alpha {alpha:g} and size {size}, and it holds files of alpha 0.5 and"):
            files.begin(home, alpha, size)
    with pytest.raises(SystemExit, match="give --out another folder, or remove this one$"):
        main(["--make", "--size", "96", "--out", str(home)])
    assert not files.begin(home, 0.5, 64), "what was there stays"


def test_files_of_which_nothing_says_what_they_are_get_no_name(tmp_path: Path) -> None:
    (tmp_path / "made").touch()
    with pytest.raises(ConfigError, match="it holds files of no network that is noted"):
        files.begin(tmp_path, 0.5, 64)
