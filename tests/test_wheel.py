"""The workbook as a stranger gets it: one `pip install` of the wheel, then `edgekit init`, `edgekit run`, `edgerun`.

The environments are empty, and the commands run outside the clone, on the oldest and the newest Python that fits.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import requirements
from tests.conftest import ROOT
from tests.matrix.environments import clean

pytestmark = pytest.mark.wheel

PYTHONS = ("3.11", "3.13")
SHORT = (
    "profile.epochs=20", "distill.epochs=20", "prune.epochs=1", "prune.steps=1", "prune.measure=false",
    "quantize.epochs=1", "convert.precisions=[fp32,int8]", "budget.accuracy_drop_pp=25",
    "benchmark.rounds=10", "benchmark.most_rounds=10", "benchmark.load_s=0.1",
)  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    return next(folder.glob("edgekit_workbook-*.whl"))


def write_table(path: Path) -> None:
    """Three classes of rows that lie apart."""
    random.seed(0)
    lines = ["a,b,c,d,label"]
    for number in range(300):
        kind = number % 3
        lines.append(",".join(f"{random.gauss(4.0 * (kind == at), 1.0):.3f}" for at in range(4)) + f",{'xyz'[kind]}")
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", PYTHONS)
def test_one_installation_step_leads_to_bundles_that_answer(version: str, wheel: Path, tmp_path: Path) -> None:
    python = requirements.python(version, required_in_ci=True)
    write_table(tmp_path / "table.csv")

    environment = clean()

    def run(*words: object) -> str:
        began, command = time.monotonic(), [str(word) for word in words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        print(f"{' '.join(command)[:100]}: {time.monotonic() - began:.0f} s")
        return done.stdout

    run(python, "-m", "venv", "env")
    programs = tmp_path / "env" / "bin"
    run(programs / "pip", "install", "--quiet", f"{wheel}[workbook]")
    print(run("du", "-sm", "env"))
    run(programs / "edgekit", "init", "mine", "--data", "table.csv")
    run(programs / "edgekit", "run", "mine.yaml", *(word for setting in SHORT for word in ("--set", setting)))
    bundles = sorted((tmp_path / "artifacts" / "mine" / "bundles").glob("*.edge.zip"))
    assert len(bundles) == 3
    for bundle in bundles:
        assert "passed" in run(programs / "edgerun", "selftest", bundle)
    ensure = "from edgekit.models.files.compatibility import ensure_onnx2tf; ensure_onnx2tf(); import onnx2tf"
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    run(programs / "python", "-c", ensure)
