"""What a second `edgekit run` does: nothing where nothing changed, and where something did, only that, saying why."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from edgekit.core import artifacts
from edgekit.core.config import STAGES, TRAINING_STAGES
from edgekit.core.run_folder import stage_folder
from tests.conftest import ROOT, TINY, FinishedRun, run_edgekit

pytestmark = pytest.mark.processes

HEAVY = ("torch", "papermill", "tensorflow", "numpy", "sklearn", "matplotlib", "nbclient")
WATCHED = f"""
import sys
from edgekit.cli.app import app
try:
    app(sys.argv[1:])
finally:
    print("IMPORTED", *[name for name in {HEAVY!r} if name in sys.modules])
"""

OPENED = """
import os, sys
from collections import Counter
opened = Counter()
sys.addaudithook(lambda event, given: opened.update([str(given[0])]) if event == "open" else None)
from edgekit.cli.app import app
try:
    app(sys.argv[1:])
finally:
    for path, times in opened.items():
        print("OPENED", times, path)
"""


@pytest.fixture
def copy(tiny_run: FinishedRun, tmp_path: Path) -> Path:
    shutil.copytree(tiny_run.folder, tmp_path / "tiny")
    return tmp_path / "tiny"


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in sorted(folder.rglob("*"))}


def digests(folder: Path) -> dict[str, str]:
    return {stage: artifacts.load(stage_folder(folder, stage)).digest for stage in STAGES}


def _end(text: str) -> list[str]:
    """The summary, from its headline on, without the folder, which is another's."""
    begin = text.index(" tiny · ")
    lines = re.sub(r"\S*/tiny/", "", text[begin:]).splitlines()
    return [line for line in lines if not line.startswith((" Details", "IMPORTED"))]


def test_a_finished_run_is_left_alone_without_kernel_or_framework(copy: Path, tiny_run: FinishedRun) -> None:
    before = snapshot(copy)
    command = [sys.executable, "-c", WATCHED, "run", str(TINY), "--out", str(copy.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "Nothing has changed since this run finished, so every stage is reused." in done.stdout
    assert _end(done.stdout) == _end(tiny_run.stdout)
    assert re.search(r"^IMPORTED$", done.stdout, re.MULTILINE), done.stdout
    assert snapshot(copy) == before


def opened(copy: Path) -> dict[str, int]:
    """How often `edgekit run` opens each file of the run in `copy`, by its name there."""
    command = [sys.executable, "-c", OPENED, "run", str(TINY), "--out", str(copy.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    matches = re.findall(rf"^OPENED (\d+) {re.escape(str(copy))}/(.+)$", done.stdout, re.MULTILINE)
    return {name: int(times) for times, name in matches}


def members(copy: Path) -> set[str]:
    """Every file that a stage of the run sealed, by its name in the run's folder."""
    sealed = [artifacts.load(stage_folder(copy, stage)) for stage in STAGES]
    return {str((one.path / name).relative_to(copy)) for one in sealed for name in one.files}


def test_a_finished_run_examines_each_stage_once(copy: Path) -> None:
    """Each sealed file is read once to be hashed, each record to be examined and for the digest of the result."""
    times = opened(copy)
    assert {times[name] for name in members(copy)} == {1}
    records = [f"{stage_folder(copy, stage).name}/{artifacts.RECORD}" for stage in STAGES]
    assert {times[name] for name in records} == {2}


def test_a_run_that_has_something_to_do_examines_no_finished_stage_twice(copy: Path) -> None:
    (copy / "result.json").unlink()
    times = opened(copy)
    weights = {name for name in members(copy) if name.endswith(".safetensors")}
    assert len(weights) > 3 and {times[name] for name in weights} == {1}


def test_a_lost_result_is_written_again_without_a_kernel(copy: Path, tiny_run: FinishedRun) -> None:
    (copy / "result.json").unlink()
    executed = (copy / "notebooks/01_profile.ipynb").stat().st_mtime_ns
    done = run_edgekit("run", str(TINY), "--out", str(copy.parent))
    assert done.returncode == 0, done.stderr
    assert " tiny · 3 of 3 targets ship" in done.stdout
    assert (copy / "notebooks/01_profile.ipynb").stat().st_mtime_ns == executed
    assert json.loads((copy / "result.json").read_text()) == json.loads((tiny_run.folder / "result.json").read_text())


@pytest.mark.parametrize("text", ["[]", "{", '{"stages": 3}', ""])
def test_a_result_that_is_none_is_written_again(copy: Path, text: str) -> None:
    (copy / "result.json").write_text(text)
    done = run_edgekit("run", str(TINY), "--out", str(copy.parent))
    assert done.returncode == 0, done.stderr
    assert json.loads((copy / "result.json").read_text())["verdict"]["met"] is True


def test_force_makes_one_stage_again_and_what_follows_only_if_it_differs(copy: Path) -> None:
    before = digests(copy)
    artifact = artifacts.load(copy / "quantize").took
    done = run_edgekit("run", str(TINY), "--out", str(copy.parent), "--force", "quantize")
    assert done.returncode == 0, done.stderr
    assert "quantize: runs again, because --force or --from names it" in done.stdout
    assert "convert: reused, because its inputs are unchanged after all" in done.stdout
    assert artifacts.load(copy / "quantize").took != artifact
    assert digests(copy) == before


def test_from_makes_a_stage_and_all_after_it_again(copy: Path) -> None:
    artifact = {stage: artifacts.load(stage_folder(copy, stage)).took for stage in STAGES}
    done = run_edgekit("run", str(TINY), "--out", str(copy.parent), "--from", "benchmark")
    assert done.returncode == 0, done.stderr
    again = [stage for stage in STAGES if artifacts.load(stage_folder(copy, stage)).took != artifact[stage]]
    assert again == ["benchmark", "bundle"]


def test_what_runs_again_is_reported_for_the_stages_of_the_pipeline(copy: Path, tmp_path: Path) -> None:
    """Without a student nothing is pruned, so nothing is pruned again; the kernel's time is cut off."""
    values = yaml.safe_load(TINY.read_text())
    for stage in TRAINING_STAGES:
        del values[stage]
    values["convert"]["models"] = ["baseline"]
    config = tmp_path / "lone.yaml"
    config.write_text(yaml.safe_dump({**values, "cell_limit_s": 1}))
    done = run_edgekit("run", str(config), "--out", str(tmp_path))
    assert "profile: reused" in done.stdout
    assert re.search(r"^convert: .*; stages that run again: convert, benchmark, bundle$", done.stdout, re.MULTILINE), (
        done.stdout
    )


def test_a_notebook_that_did_not_finish_runs_again_for_its_checks_but_its_stage_does_not(copy: Path) -> None:
    record = (copy / "prune/artifact.json").read_bytes()
    (copy / "notebooks/.prune.receipt.json").unlink()
    done = run_edgekit("run", str(TINY), "--out", str(copy.parent))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^prune: its result is reused \(key \w+\); the notebook runs for its checks$", done.stdout, re.M)
    assert (copy / "prune/artifact.json").read_bytes() == record


def test_status_is_a_table_of_all_stages(copy: Path) -> None:
    config = copy.parent / "changed.yaml"
    config.write_text(TINY.read_text().replace("ratio: 0.3", "ratio: 0.4"))
    plan = json.loads((copy / ".plan.json").read_text())
    (copy / ".plan.json").write_text(json.dumps({**plan, "config": str(config)}))
    done = run_edgekit("status", str(copy))
    assert done.returncode == 0, done.stderr
    rows = {line.split("│")[1].strip(): line for line in done.stdout.splitlines() if "│" in line}
    assert set(STAGES) <= set(rows)
    assert "done" in rows["distill"] and "stale" in rows["prune"] and "waits" in rows["bundle"]
    assert "ratio 0.3 → 0.4" in rows["prune"]
    assert artifacts.load(copy / "prune").key[:12] in rows["prune"]


def test_status_takes_the_name_of_a_run_too(copy: Path) -> None:
    done = run_edgekit("status", "tiny", "--out", str(copy.parent))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done") >= 7
    assert "3 of 3 targets ship" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", str(TINY), "--force", "prun"], '--force prun: no such stage, did you mean "prune"?'),
        (["run", str(TINY), "--from", "quantise"], '--from quantise: no such stage, did you mean "quantize"?'),
        (["status", "nowhere"], "nowhere: is not the folder of a run"),
    ],
)
def test_a_wrong_word_is_explained(arguments: list[str], message: str) -> None:
    done = run_edgekit(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
