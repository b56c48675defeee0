"""One artifact by every road: `edgekit run`, plain papermill, and cell by cell in JupyterLab's kernel."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import papermill
import pytest

from edgekit.core import artifacts, replay
from edgekit.core.config import STAGES
from edgekit.core.hashing import sha256_file
from edgekit.core.run_folder import ORIGIN, notebook_name, stage_folder
from edgekit.workbook.plan import load_plan
from tests.conftest import ROOT, TINY, FinishedRun

pytestmark = pytest.mark.long

PLAN = load_plan(TINY)


def by_papermill(stage: str, out: Path) -> None:
    """`papermill 03_prune.ipynb copy.ipynb -p ratio 0.3 …`, started somewhere else."""
    papermill.execute_notebook(
        ROOT / "notebooks" / notebook_name(stage),
        out / notebook_name(stage),
        {"config": str(TINY), "out": str(out), **PLAN.scalars(stage)},
        cwd=out,
        kernel_name="python3",
        progress_bar=False,
    )


def by_hand(stage: str, out: Path) -> None:
    """Config and folder edited in the parameters cell, as a person would, and every cell run beside the notebook.

    The options are left as they came, so they follow the config.
    """
    notebook = nbformat.read(ROOT / "notebooks" / notebook_name(stage), as_version=4)
    cell = next(cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    for before, after in (('"configs/digits.yaml"', json.dumps(str(TINY))), ('"artifacts"', json.dumps(str(out)))):
        assert cell.source.count(before) == 1
        cell.source = cell.source.replace(before, after)
    where = {"metadata": {"path": str(ROOT / "notebooks")}}
    nbclient.NotebookClient(notebook, kernel_name="python3", resources=where).execute()


def digests(folder: Path) -> dict[str, str]:
    return {stage: artifacts.load(stage_folder(folder, stage)).digest for stage in (ORIGIN, *STAGES)}


def bundles(folder: Path) -> dict[str, str]:
    return {path.name: sha256_file(path) for path in sorted((folder / "bundles").glob("*.edge.zip"))}


@pytest.mark.slow
@pytest.mark.parametrize("road", [by_papermill, by_hand])
def test_the_whole_pipeline_from_scratch_leaves_the_same_artifacts_and_bundles(
    road: Any, tiny_run: FinishedRun, tmp_path: Path
) -> None:
    """Latencies are measured anew each time; what they decided is replayed, for a busy machine decides otherwise."""
    folder = tmp_path / PLAN.run.name
    decided = json.loads((stage_folder(tiny_run.folder, "benchmark") / "decision.json").read_text())
    replay.write(folder, {"benchmark": decided["measured"]})
    for stage in STAGES:
        road(stage, tmp_path)
    assert digests(folder) == digests(tiny_run.folder)
    assert bundles(folder) == bundles(tiny_run.folder)
    assert len(bundles(folder)) == len(PLAN.run.targets)


def test_a_road_may_be_left_and_another_taken(tiny_run: FinishedRun, tmp_path: Path) -> None:
    """Made by one, reused by another: the keys are the same too."""
    folder = tmp_path / PLAN.run.name
    shutil.copytree(tiny_run.folder, folder)
    before = {stage: artifacts.load(stage_folder(folder, stage)) for stage in STAGES}
    shutil.rmtree(folder / "prune")
    by_papermill("prune", tmp_path)
    by_hand("quantize", tmp_path)
    after = {stage: artifacts.load(stage_folder(folder, stage)) for stage in STAGES}
    assert {stage: found.key for stage, found in after.items()} == {stage: found.key for stage, found in before.items()}
    assert after["prune"].digest == before["prune"].digest
    assert after["quantize"] == before["quantize"], "made again although nothing had changed"
