"""Commands of the workbook that work without Linux (`tests/imitation`)."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from tests import imitation
from tests.conftest import FinishedRun

pytestmark = pytest.mark.processes


@pytest.fixture(params=imitation.SYSTEMS)
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def edgekit(system: str, home: Path, *words: object, code: int = 0) -> str:
    return imitation.run(system, home, "-m", "edgekit", *words, code=code)


@pytest.mark.parametrize("words", [(), ("status",), ("search",), ("run",), ("fleet",), ("fleet", "push"), ("trust",)])
def test_help_is_shown(tmp_path: Path, system: str, words: tuple[str, ...]) -> None:
    assert "Usage" in edgekit(system, tmp_path, *words, "--help")


def test_init_writes_a_config_for_a_folder_of_pictures(tmp_path: Path, system: str) -> None:
    rng = np.random.default_rng(5)
    for name in ("bee", "蜜蜂"):
        folder = tmp_path / "pictures" / name
        folder.mkdir(parents=True)
        for number in range(12):
            Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8)).save(folder / f"{number}.png")
    edgekit(system, tmp_path, "init", "insects", "--data", "pictures")
    config = yaml.safe_load((tmp_path / "insects.yaml").read_text(encoding="utf-8"))
    assert config["data"]["path"] == "pictures"
    assert (tmp_path / "insects.ipynb").is_file()


def test_a_finished_run_is_reported_compared_and_looked_at(tiny_run: FinishedRun, tmp_path: Path, system: str) -> None:
    shutil.copytree(tiny_run.folder, tmp_path / "tiny")
    page = tmp_path / "tiny" / "report.html"
    page.unlink()
    assert "3 of 3 targets ship" in edgekit(system, tmp_path, "status", "tiny")
    assert "tflite" in edgekit(system, tmp_path, "compare", "tiny", tiny_run.folder)
    edgekit(system, tmp_path, "report", "tiny")
    assert "tflite" in page.read_text(encoding="utf-8")


def test_a_fleet_with_an_unreachable_device_says_which(tiny_run: FinishedRun, tmp_path: Path, system: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "hosts.yaml").write_text(f"hosts:\n  door: {{host: 127.0.0.1, port: {port}, user: nobody}}\n")
    bundle = next((tiny_run.folder / "bundles").glob("*.edge.zip"))
    output = edgekit(system, tmp_path, "fleet", "push", bundle, "--to", "hosts.yaml", code=7)
    assert "door" in output and "unreachable" in output
