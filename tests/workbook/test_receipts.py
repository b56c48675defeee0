"""A notebook counts as finished by its receipt, and with the artifact that the plan asks for; by nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import StageError
from edgekit.workbook import notebook, state
from edgekit.workbook.plan import load_plan
from edgekit.workbook.run import run
from tests.conftest import ROOT, TINY, FinishedRun


def sealed(folder: Path, text: str = "weights") -> Artifact:
    out = artifacts.begin(folder)
    (out / "weights").write_text(text)
    return artifacts.seal(out, stage="profile", source=None, data_digest="d" * 64, config={"text": text}, metrics={})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "01_profile.ipynb"
    path.write_text("a notebook with a check")
    return path


@pytest.fixture
def notebooks(tmp_path: Path, source: Path) -> Path:
    """A folder with an executed copy and its receipt, for the artifact in `tmp_path`/profile."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    executed = folder / source.name
    executed.write_text("the same with outputs")
    state.write_receipt(folder, sealed(tmp_path / "profile"), source, executed, 3, 1.5)
    return folder


def test_a_receipt_is_found_again(notebooks: Path, source: Path, tmp_path: Path) -> None:
    model = state.find_receipt(notebooks, artifacts.load(tmp_path / "profile"), source)
    assert model is not None
    assert (model.exit_code, model.seconds, model.executed) == (3, 1.5, source.name)


def test_another_notebook_has_not_run(notebooks: Path, source: Path, tmp_path: Path) -> None:
    source.write_text("a notebook with one more check")
    assert state.find_receipt(notebooks, artifacts.load(tmp_path / "profile"), source) is None


def test_an_edited_copy_proves_nothing(notebooks: Path, source: Path, tmp_path: Path) -> None:
    (notebooks / source.name).write_text("the same with nicer outputs")
    assert state.find_receipt(notebooks, artifacts.load(tmp_path / "profile"), source) is None


def test_it_holds_for_no_other_artifact(notebooks: Path, source: Path, tmp_path: Path) -> None:
    assert state.find_receipt(notebooks, sealed(tmp_path / "other", "other weights"), source) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"key": 1}'])
def test_a_broken_receipt_is_none(text: str, notebooks: Path, source: Path, tmp_path: Path) -> None:
    (notebooks / ".profile.receipt.json").write_text(text)
    assert state.find_receipt(notebooks, artifacts.load(tmp_path / "profile"), source) is None


def test_a_notebook_that_leaves_an_artifact_of_other_options_has_failed(
    tiny_run: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_run.folder, tmp_path / "tiny")
    own = tmp_path / "notebooks"
    shutil.copytree(ROOT / "notebooks", own)
    content = json.loads((own / "02_distill.ipynb").read_text())
    content["cells"] = [cell for cell in content["cells"] if cell["cell_type"] == "markdown"]
    (own / "02_distill.ipynb").write_text(json.dumps(content))
    for module in (notebook, state):
        monkeypatch.setattr(module, "workbook_folder", lambda name: own)
    with pytest.raises(StageError, match=r"02_distill\.ipynb: .* stale: epochs 12 → 13"):
        run(load_plan(TINY, ["distill.epochs=13"]), tmp_path, say=lambda output: None)
    assert (tmp_path / "tiny/notebooks/02_distill.failed.ipynb").exists()
    assert not (tmp_path / "tiny/notebooks/.distill.receipt.json").exists()
