"""What the matrix shares: the runner in one file, the digits bundles, and the table it leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.device import pyz
from tests.runner.conftest import bundles, models  # noqa: F401  (fixtures: the tiny network, in int8 too)

from .bundles import Known, known
from .report import Table

COLUMNS = ("Python", "numpy", "interpreter", "selftest", "also", "predict", "bench p50_ms", "what is missing")
TABLE = Table("matrix.md", COLUMNS, "1 thread; Δ is the distance from the golden scores.")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was found."""
    TABLE.publish(terminalreporter)


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """edgerun.pyz, of the sources as they stand."""
    path = tmp_path_factory.mktemp("device") / "edgerun.pyz"
    pyz.build(path)
    return path


@pytest.fixture(scope="session")
def digits(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Known]:
    """A digits bundle for each target: of the run in EDGEKIT_DIGITS_BUNDLES, else of the smallest run, made now."""
    named = os.environ.get("EDGEKIT_DIGITS_BUNDLES")
    folder = Path(named) if named else request.getfixturevalue("tiny_run").folder / "bundles"
    samples = tmp_path_factory.mktemp("samples")
    return {target: known(_only(folder, target), samples) for target in ("tflite", "openvino", "onnx")}


@pytest.fixture(scope="session")
def integer(bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Known:  # noqa: F811
    """The tiny network in int8 from input to output."""
    return known(bundles["tflite-int8"], tmp_path_factory.mktemp("integer"))


def _only(folder: Path, target: str) -> Path:
    found = sorted(folder.glob(f"*-{target}-*.edge.zip"))
    assert len(found) == 1, f"{folder}: {len(found)} bundles for {target}; name a folder with one for each target"
    return found[0]
