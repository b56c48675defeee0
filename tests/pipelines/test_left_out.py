"""A wrong variant costs a run only its own row and is reported with it; a strict run ends with exit code 5."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edgekit.core import artifacts
from edgekit.core.config import TARGETS
from tests.conftest import TINY, FinishedRun, run_edgekit

HALVES = [f"baseline-fp16-{target}" for target in ("onnx", "openvino", "tflite")]
SETTINGS = ["--set", "convert.models=[baseline]", "--set", "convert.precisions=[fp32,fp16]"]
ASKED_TOO_MUCH = ["--set", "convert.fp16_min_snr_db=199"]


@pytest.fixture
def out(tiny_run: FinishedRun, tmp_path: Path) -> Path:
    """A folder of runs with a copy of the tiny one, so that only convert and what follows runs again."""
    shutil.copytree(tiny_run.folder, tmp_path / "tiny")
    return tmp_path


@pytest.mark.long
def test_the_run_goes_on_and_reports_what_was_left_out(out: Path) -> None:
    done = run_edgekit("run", str(TINY), "--out", str(out), *SETTINGS, *ASKED_TOO_MUCH)
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "tiny" / "result.json").read_text())
    assert {row["name"] for row in result["variants"][1:]} == {f"baseline-fp32-{target}" for target in TARGETS}
    assert set(result["bundles"]) == set(TARGETS)
    assert sorted(row["name"] for row in result["left_out"]) == HALVES
    for row in result["left_out"]:
        assert row["kind"] == "numerics" and "at least 199 dB required" in row["cause"]
        assert row["advice"].startswith("float16's 11 bits are too few")
    output = " ".join(run_edgekit("status", str(out / "tiny"), "--all").stdout.split())
    page, notebook = (out / "tiny" / name for name in ("report.html", "notebooks/05_convert.ipynb"))
    for name in HALVES:
        assert name in output
        assert name in page.read_text() and name in notebook.read_text()
    assert "variants that could not be converted, or gave other answers" in page.read_text()
    digest = artifacts.load(out / "tiny" / "convert").digest

    again = run_edgekit("run", str(TINY), "--out", str(out), *SETTINGS, *ASKED_TOO_MUCH)
    assert again.returncode == 0 and "05_convert" not in again.stderr, again.stderr
    assert artifacts.load(out / "tiny" / "convert").digest == digest


@pytest.mark.long
def test_a_strict_run_ends_with_the_first(out: Path) -> None:
    strict = ["--set", "convert.strict=true"]
    done = run_edgekit("run", str(TINY), "--out", str(out), *SETTINGS, *ASKED_TOO_MUCH, *strict)
    assert done.returncode == 5, done.stderr
    assert "left out: baseline: " in done.stderr and "convert.strict is true" in done.stderr
    assert "Traceback" not in done.stderr
