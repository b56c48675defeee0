"""`python -m benchmarks.ablation`: its rows and its arithmetic, and one small run that is gone on with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.ablation import results
from benchmarks.ablation.__main__ import main
from benchmarks.ablation.recipes import ALONE, TODAY, Lesson, Recipe, named, needed, recipes, widened
from benchmarks.ablation.results import Result
from edgekit.core.config import NetworkConfig, TrainOptions
from edgekit.core.errors import ConfigError
from tests.conftest import ROOT
from tests.training.test_fit import bars, data_of, waves

STUDENT = NetworkConfig(builder="edgekit.models.ds_cnn:ds_cnn", kwargs={"width": 16, "blocks": 2})
TEACHER = Lesson(
    NetworkConfig(builder="edgekit.models.resnet:resnet", kwargs={"depth": 8, "width": 8}), TrainOptions(epochs=14)
)


def rows(data=None) -> list[Recipe]:
    return recipes(STUDENT, TrainOptions(epochs=20), TEACHER, data or data_of(bars, "image", 2))


def result(name: str, right: np.ndarray, teacher: float | None = None) -> Result:
    return Result(name, name, "", 1, 1, 0.5, results.packed(right), len(right), teacher, 60.0)


def test_every_row_changes_one_thing_of_todays_recipe() -> None:
    found = rows()
    today = named(found, TODAY)
    assert [row.name for row in found[:2]] == [ALONE, TODAY]
    assert len({row.name for row in found}) == len(found)
    for row in found[2:]:
        changed = [row.options != today.options, row.teachers != today.teachers, row.student != today.student]
        if row.name.endswith("-alone"):
            assert not row.teachers and row.against == ALONE
        elif row.name != "together":
            assert sum(changed) == 1, row.name
    assert {row.name for row in found} >= {"mixup", "cutmix", "erase", "rand_augment", "ema", "longer", "sibling",
                                           "two-logits", "two-probabilities", "teacher-cutmix", "together",
                                           "epochs-40", "epochs-40-alone", "width-x2"}  # fmt: skip


def test_rows_that_make_no_sense_of_the_samples_are_left_out() -> None:
    names = {row.name for row in rows(data_of(waves, "window", 2))}
    assert "mixup" in names and not names & {"cutmix", "erase", "rand_augment", "teacher-cutmix", "together"}


def test_one_row_brings_those_that_it_is_compared_with() -> None:
    assert [row.name for row in needed(rows(), ["ema"])] == [ALONE, TODAY, "ema"]
    assert [row.name for row in needed(rows(), ["width-x2"])] == [ALONE, TODAY, "width-x2-alone", "width-x2"]
    with pytest.raises(ConfigError, match="--only: got emma; each must be one of labels alone, today, mixup"):
        needed(rows(), ["ema", "emma"])


def test_a_network_is_made_wider_by_what_its_builder_has() -> None:
    assert widened(STUDENT, 1.5) == NetworkConfig(builder=STUDENT.builder, kwargs={"width": 24, "blocks": 2})
    by_default = widened(NetworkConfig(builder="edgekit.models.resnet:resnet8"), 2)
    assert by_default is not None and by_default.kwargs == {"width": 32}
    mobile = NetworkConfig(builder="edgekit.models.mobilenet_v1:mobilenet_v1", kwargs={"alpha": 0.25})
    wider = widened(mobile, 2)
    assert wider is not None and wider.kwargs == {"alpha": 0.5}


def test_the_interval_of_a_difference_is_that_of_pairs() -> None:
    """Tango 1998, table 2's kind: 9 lost, 3 gained of 100; and the sign turns with the two."""
    reference, right = np.ones(100, bool), np.ones(100, bool)
    right[:9], reference[9:12] = False, False
    found, turned = results.difference(reference, right), results.difference(right, reference)
    assert found.pp == pytest.approx(-6)
    assert found.low_pp < -6 < found.high_pp and found.high_pp == pytest.approx(1.0, abs=0.8)
    assert (turned.pp, turned.low_pp, turned.high_pp) == pytest.approx((-found.pp, -found.high_pp, -found.low_pp))
    assert found.p == turned.p == pytest.approx(0.146, abs=1e-3)
    same = results.difference(right, right)
    assert same.pp == 0 and same.low_pp < 0 < same.high_pp and same.p == 1


def test_a_row_comes_back_under_its_key_alone(tmp_path: Path) -> None:
    right = np.arange(13) % 3 > 0
    made = result("a", right, 0.9)
    made.write(tmp_path)
    found = Result.read(tmp_path, "a")
    assert found == made and found is not None and np.array_equal(found.answers, right)
    (tmp_path / "b.json").write_bytes((tmp_path / "a.json").read_bytes())
    assert Result.read(tmp_path, "b") is None
    (tmp_path / "a.json").write_text("{")
    assert Result.read(tmp_path, "a") is None


def test_the_gap_is_that_to_todays_teacher_and_that_to_its_own(tmp_path: Path) -> None:
    share = lambda right: np.arange(100) < right  # noqa: E731
    found = {ALONE: result(ALONE, share(70)), TODAY: result(TODAY, share(73), 0.80),
             "sibling": result("sibling", share(76), 0.90)}  # fmt: skip
    text = results.write(found, rows(), tmp_path, {"config": "x"})
    by_name = {row["name"]: row for row in json.loads((tmp_path / "ablation.json").read_text())["rows"]}
    assert by_name[ALONE]["gap_closed"] is None
    assert by_name[TODAY]["gap_closed"] == by_name[TODAY]["own_gap_closed"] == pytest.approx(0.3)
    assert by_name["sibling"]["gap_closed"] == pytest.approx(0.6)
    assert by_name["sibling"]["own_gap_closed"] == pytest.approx(0.3)
    assert by_name["sibling"]["difference"]["pp"] == pytest.approx(3)
    assert text == (tmp_path / "ablation.md").read_text() and "+3.00 (" in text
    widths = {line.count(" | ") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1


@pytest.mark.parametrize("epochs", ["-1", "10001"])
def test_epochs_that_no_training_can_have_are_told_in_a_line(epochs: str) -> None:
    with pytest.raises(SystemExit, match=f"^--epochs: got {epochs}; write 1 to 10,000, or 0 for the config's$"):
        main([str(ROOT / "tests" / "configs" / "tiny.yaml"), "--epochs", epochs])


@pytest.mark.long
def test_a_run_is_gone_on_with(tmp_path: Path) -> None:
    """The second time nothing is trained: of a row that is lost the networks are recalled."""
    config = [str(ROOT / "tests" / "configs" / "tiny.yaml"), "--set", "data.limit=200", "--set", "threads=1"]
    command = [sys.executable, "-m", "benchmarks.ablation", *config, "--epochs", "1", "--only", "two-logits"]
    said = []
    for _ in range(2):
        ran = subprocess.run(
            [*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
        )
        assert ran.returncode == 0, ran.stderr
        said.append(ran)
        text = (tmp_path / "ablation.md").read_text()
        kept = sorted(path.name for path in (tmp_path / "rows").iterdir())
        for path in (tmp_path / "rows").iterdir():
            if json.loads(path.read_text())["name"] == "two-logits":
                path.unlink()
    assert len(kept) == 3 and "two-logits" in text and "goes on" not in said[0].stdout
    assert said[1].stdout.count("was finished after 1 of 1 epochs") == 3  # the student and its two teachers
    tables = [[line.rpartition(" | ")[0] for line in ran.stdout.splitlines() if line.startswith("|")] for ran in said]
    assert tables[0] == tables[1], "all but the minutes"
