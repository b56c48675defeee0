"""Run the commands that docs/how-to/serve.md shows, in their order, against one server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.runner import load
from tests.conftest import FinishedRun
from tests.docs import pages, scene

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/serve.md"
START, FILE = "edgekit serve artifacts/digits/bundles/", "curl -T sample.png localhost:8000/predict"
READY = re.compile(r"ready on http://(127\.0\.0\.1:\d+)")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, tiny_run: FinishedRun) -> Path:
    """A folder with a run's bundles, a sample as a picture and as an array, and what the page calls ask.py."""
    folder = tmp_path_factory.mktemp("serve")
    (folder / "bundles").symlink_to(tiny_run.folder / "bundles")
    bundle = next((tiny_run.folder / "bundles").glob("*-tflite-*.edge.zip"))
    raw = load(bundle, trial=False).golden()[0][0]
    np.save(folder / "sample.npy", raw)
    Image.fromarray(raw[..., 0]).save(folder / "sample.png")
    scene.written(PAGE, folder)
    return folder


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    """Where the page's own command serves the run; free ports in place of 8000 and 8002, for others may run too."""
    command = START.replace("edgekit", f"{sys.executable} -m edgekit", 1).replace(
        "artifacts/digits/bundles/", "bundles/"
    )
    process = subprocess.Popen(
        [*command.split(), "--port", "0", "--admin-port", "0", "--drain-s", "0"],
        cwd=home, env=scene.environment(home), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if found := READY.search(line):
            break
    else:
        pytest.fail("".join(lines))
    yield found[1]
    process.terminate()
    assert process.wait(60) == 0


def run(command: str, home: Path, address: str) -> str:
    """One line of the page, at this server and this run's name."""
    line = (
        command.replace("localhost:8000", address)
        .replace("'digits'", "'tiny'")
        .replace("python ", f"{sys.executable} ")
    )
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=home,
        env=scene.environment(home),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_shows_these_commands() -> None:
    assert {START, FILE, "python ask.py"} <= set(pages.commands(PAGE))


@pytest.mark.needs(program="curl")
def test_curl_gets_the_answer_of_the_bundle(home: Path, address: str) -> None:
    bundle = next((home / "bundles").glob("*-tflite-*.edge.zip"))
    expected = load(bundle, trial=False).predict(np.load(home / "sample.npy"))
    [answer] = json.loads(run(FILE, home, address))["answers"]
    assert answer["label"] == expected.label


def test_tritonclient_gets_it_as_the_page_shows(home: Path, address: str) -> None:
    page = home / "ask.py"
    page.write_text(page.read_text().replace('"localhost:8000"', f'"{address}"').replace('"digits"', '"tiny"'))
    assert '"label"' in run("python ask.py", home, address)
