"""The mutation check itself: its seeds fit today's tree, and its verdicts mean what they say (`long`)."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.mutants import check
from tests.mutants.seeds import SEEDS, Seed

PREPROCESS = "tests/runner/preprocess/test_preprocess.py"
HARMLESS = Seed(
    "harmless",
    "runner/preprocess/__init__.py",
    '"""Preprocess steps, executed',
    '"""Preprocess steps: executed',
    "nothing",
    (PREPROCESS,),
)


def text(seed: Seed) -> str:
    return (ROOT / "edgekit" / seed.file).read_text()


def test_there_are_at_least_25_each_with_a_name_of_its_own() -> None:
    assert len(SEEDS) >= 25
    assert len({seed.name for seed in SEEDS}) == len(SEEDS)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)
class TestSeed:
    def test_stands_exactly_once_in_its_file(self, seed: Seed) -> None:
        assert text(seed).count(seed.old) == 1

    def test_leaves_python_that_means_something_else(self, seed: Seed) -> None:
        before, after = ast.parse(text(seed)), ast.parse(text(seed).replace(seed.old, seed.new))
        assert ast.dump(before) != ast.dump(after)

    def test_names_tests_that_are_there_and_the_harm(self, seed: Seed) -> None:
        assert seed.harm
        assert seed.tests
        assert all((ROOT / test.partition("::")[0]).exists() for test in seed.tests)


@pytest.mark.long
def test_a_fault_is_caught_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = check.main(["mean-and-std-swapped", "--own-tests", "--json", str(tmp_path / "verdicts.json")])
    said = capsys.readouterr().out
    assert code == 0, said
    (row,) = json.loads((tmp_path / "verdicts.json").read_text())["rows"]
    assert row["caught_by"].startswith(f"{PREPROCESS}::test_scale_and_normalize_follow_their_formulas")
    assert row["caught_by"] in said
    assert "1 of 1 faults caught" in said


@pytest.mark.long
def test_what_changes_nothing_survives() -> None:
    (verdict,) = check.check([HARMLESS], steps=[check.OWN])
    assert not verdict.caught


def test_a_seed_that_no_longer_fits_is_an_error() -> None:
    gone = Seed("gone", HARMLESS.file, "no such text", "", "nothing", (PREPROCESS,))
    with pytest.raises(
        check.CheckError, match="gone: its text stands 0 times in edgekit/runner/preprocess/__init__.py"
    ):
        check.check([gone], steps=[check.OWN])


@pytest.mark.long
def test_nothing_counts_where_the_tests_fail_without_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = check.Copy(ROOT, tmp_path).tree
    (broken / PREPROCESS).write_text("def test_that_fails(): assert False\n")
    monkeypatch.setattr(check, "ROOT", broken)
    with pytest.raises(
        check.CheckError, match=r"nothing counts:\n  tests/runner/preprocess/test_preprocess.py::test_that_fails"
    ):
        check.check([HARMLESS], steps=[check.OWN])


@pytest.mark.long
def test_a_misspelt_test_is_an_error_and_no_catch() -> None:
    misspelt = Seed("misspelt", HARMLESS.file, HARMLESS.old, HARMLESS.new, "nothing", ("tests/test_nowhere.py",))
    with pytest.raises(check.CheckError, match="exit code 4"):
        check.check([misspelt], steps=[check.OWN])
