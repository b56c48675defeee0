"""Is each stage done, and if not, why: read from the files of a finished run, each test on a changed copy or plan."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgekit.core.config import STAGES
from edgekit.core.errors import StageError
from edgekit.workbook import state
from edgekit.workbook.plan import load_plan
from edgekit.workbook.stage import open_stage
from edgekit.workbook.state import StageState, examine_stages
from tests.conftest import TINY, FinishedRun


@pytest.fixture
def copy(tiny_run: FinishedRun, tmp_path: Path) -> Path:
    shutil.copytree(tiny_run.folder, tmp_path / "tiny")
    return tmp_path / "tiny"


def look(folder: Path, *settings: str) -> dict[str, StageState]:
    plan = load_plan(TINY, settings)
    return {
        stage_state.stage: stage_state for stage_state in examine_stages(plan, folder, state.data_digest(plan, folder))
    }


def states(folder: Path, *settings: str) -> list[str]:
    return [stage_state.state for stage_state in look(folder, *settings).values()]


def test_a_finished_run_is_done(tiny_run: FinishedRun) -> None:
    assert states(tiny_run.folder) == ["done"] * 7
    assert not [result.reasons for result in look(tiny_run.folder).values() if result.reasons]


def test_a_folder_without_a_run_has_nothing_done(tmp_path: Path) -> None:
    assert states(tmp_path) == ["not run"] * 7


def test_a_changed_option_is_named_and_what_follows_waits(tiny_run: FinishedRun) -> None:
    result = look(tiny_run.folder, "prune.ratio=0.4")
    assert [each.state for each in result.values()] == ["done", "done", "stale", *["waits"] * 4]
    assert result["prune"].reasons == ("ratio 0.3 → 0.4",)


def test_an_option_of_several_stages_makes_the_first_of_them_stale(tiny_run: FinishedRun) -> None:
    result = look(tiny_run.folder, "budget.accuracy_drop_pp=20.0")
    assert result["distill"].state == "done"
    assert result["prune"].reasons == ("budget.accuracy_drop_pp 25.0 → 20.0",)


def test_other_data_makes_the_first_stage_stale(tiny_run: FinishedRun) -> None:
    result = look(tiny_run.folder, "data.split_seed=1")
    assert result["profile"].state == "stale"
    assert any(reason.startswith("data.split_seed 0 → 1") for reason in result["profile"].reasons)
    assert any(reason.startswith("data ") and "→" in reason for reason in result["profile"].reasons)


def test_options_that_shape_nothing_make_nothing_stale(tiny_run: FinishedRun) -> None:
    assert states(tiny_run.folder, "cell_limit_s=99") == ["done"] * 7


def test_a_damaged_file_is_found(copy: Path) -> None:
    weights = copy / "distill/model/weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0\0")
    result = look(copy)
    assert result["distill"].state == "damaged"
    assert "weights.safetensors" in result["distill"].reasons[0]


@pytest.mark.parametrize("file", [".prune.receipt.json", "03_prune.ipynb"])
def test_without_its_receipt_or_executed_copy_a_notebook_has_not_finished(copy: Path, file: str) -> None:
    (copy / "notebooks" / file).unlink()
    assert look(copy)["prune"].state == "unchecked"
    assert look(copy)["quantize"].state == "done"


def test_an_edited_executed_copy_is_no_proof(copy: Path) -> None:
    executed = copy / "notebooks/03_prune.ipynb"
    executed.write_text(executed.read_text().replace("✓", "✗"))
    assert look(copy)["prune"].state == "unchecked"


def test_the_receipt_of_another_artifact_is_no_proof(copy: Path) -> None:
    shutil.copy(copy / "notebooks/.distill.receipt.json", copy / "notebooks/.prune.receipt.json")
    assert look(copy)["prune"].state == "unchecked"


def test_the_remembered_digest_of_the_data_is_only_used_for_the_same_source(tiny_run: FinishedRun) -> None:
    plan = load_plan(TINY)
    remembered = state.data_digest(plan, tiny_run.folder)
    assert remembered == look(tiny_run.folder)["profile"].expected_inputs.data  # type: ignore[union-attr]
    assert state.data_digest(load_plan(TINY, ["data.limit=400"]), tiny_run.folder) != remembered


def test_opening_a_stage_whose_forerunners_are_stale_says_so(
    tiny_run: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    open_stage("convert", {"config": str(TINY), "out": str(tiny_run.out), "settings": "prune.ratio=0.4"})
    assert "prune/ is stale: ratio 0.3 → 0.4 since it was sealed" in capsys.readouterr().out


def test_opening_a_stage_after_its_chain_was_broken_is_refused(copy: Path) -> None:
    again = {"config": str(TINY), "out": str(copy.parent)}
    open_stage("prune", {**again, "ratio": 0.2, "epochs": 1}).run()
    with pytest.raises(
        StageError, match="quantize was made from a different prune .* run quantize and the stages after"
    ):
        open_stage("convert", again)


def test_stages_are_checked_in_their_order(tiny_run: FinishedRun) -> None:
    assert list(look(tiny_run.folder)) == list(STAGES)
