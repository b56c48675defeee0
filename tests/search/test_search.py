"""A search with real training, conversion and measurement, on the smallest config."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from edgekit.core.artifacts import load
from edgekit.search.evaluator import trial_folder
from tests.conftest import ROOT, TINY, run_edgekit

pytestmark = pytest.mark.long

SMALL = (
    *("--set", "threads=1"),  # or two workers would find no cores
    *("--set", "targets=[tflite]", "--set", "profile.epochs=4", "--set", "quantize.recipes=[minmax]"),
    *("--set", "convert.precisions=[fp32, int8]", "--set", "convert.int8_min_top1_agreement=0.0"),
    *("--set", "convert.fp32_min_top1_agreement=0.9", "--set", "budget.accuracy_drop_pp=100.0"),
)
SPACE = """\
space:
  distill.student.kwargs.width: [8, 16]
  prune.ratio: [0.3]
"""


def a_search(out: Path, *arguments: str, timeout_s: int = 1800) -> subprocess.CompletedProcess[str]:
    space = out.parent / "space.yaml"
    space.write_text(SPACE)
    command = ("search", str(TINY), "--space", str(space), *SMALL, "--trials", "2", "--batch", "2")
    return run_edgekit(
        *command, "--out", str(out), *arguments, timeout_s=timeout_s, EDGEKIT_LANE=str(out.parent / "lane")
    )


def study_of(out: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((out / "tiny-search" / "study.json").read_text())
    return result


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("search") / "out"
    ended = a_search(out)
    assert ended.returncode == 0, ended.stderr
    return out


def test_a_search_gives_a_front_of_measured_files(searched: Path) -> None:
    study = study_of(searched)
    assert study["front"] and study["ended"] and study["anchors"][0]["p50_ms"] > 0
    profile = json.loads((searched / "tiny-search/baseline/tiny/profile/profile.json").read_text())
    assert study["baseline_accuracy"] == profile["validation_accuracy"]
    for number in study["front"]:
        row = study["trials"][number]
        accuracy, p50_ms, size = row["values"]
        assert 0 < accuracy <= 1 and p50_ms > 0 and size > 1000 and row["variants"]["tflite"]
        assert row["intervals"][1][0] <= p50_ms <= row["intervals"][1][1]


def test_the_run_of_a_trial_is_found_sealed_and_bundles_the_same_files(searched: Path) -> None:
    row = study_of(searched)["trials"][0]
    place = trial_folder(searched / "tiny-search", row["settings"])
    before = {stage: load(place / "tiny" / stage).digest for stage in ("profile", "distill", "prune", "convert")}
    settings = [word for setting in row["settings"] for word in ("--set", setting)]
    ended = run_edgekit("run", str(TINY), *SMALL, *settings, "--out", str(place), timeout_s=1800)
    assert ended.returncode in (0, 3), ended.stderr
    for stage in before:
        assert f"{stage}: its result is reused" in ended.stdout, ended.stdout
    assert before == {stage: load(place / "tiny" / stage).digest for stage in before}


def test_a_second_study_that_replays_the_first_has_its_digest_with_two_workers(searched: Path, tmp_path: Path) -> None:
    ended = a_search(tmp_path / "out", "--replay", str(searched / "tiny-search"), "--workers", "2")
    assert ended.returncode == 0, ended.stderr
    assert study_of(tmp_path / "out")["batches"][-1]["digest"] == study_of(searched)["batches"][-1]["digest"]


def test_ctrl_c_leaves_a_study_and_the_same_command_goes_on(searched: Path, tmp_path: Path) -> None:
    space, out = tmp_path / "space.yaml", tmp_path / "out"
    space.write_text(SPACE)
    command = [sys.executable, "-m", "edgekit", "search", str(TINY), "--space", str(space), *SMALL, "--trials", "2",
               "--batch", "1", "--out", str(out), "--replay", str(searched / "tiny-search")]  # fmt: skip
    environment = {**os.environ, "EDGEKIT_LANE": str(tmp_path / "lane")}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    study = out / "tiny-search" / "study.json"
    ends = time.monotonic() + 1200
    while not study.exists() and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=120)
    assert process.returncode == 130 and b"study.json has all complete batches" in text, text
    assert study_of(out)["ended"] == "interrupted" and len(study_of(out)["trials"]) == 1
    again = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=1800, check=False)
    assert again.returncode == 0, again.stderr
    assert [row["number"] for row in study_of(out)["trials"]] == [0, 1]
