"""Faults that are no kill: each gets its exit code and one clear message, and leaves the earlier output intact."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.core.hashing import sha256_file
from tests import requirements
from tests.faults import tree as trees
from tests.faults.conftest import Undisturbed
from tests.faults.tree import NAME, SMALLEST, Tree

pytestmark = pytest.mark.faults

STAGE = "02_distill.ipynb"
BROKEN = {
    "sys.exit() before the stage runs": ("first", "import sys; sys.exit()", (), "called sys.exit()"),
    "sys.exit(0) after it": ("last", "import sys; sys.exit(0)", (), "called sys.exit()"),
    "os._exit": ("first", "import os; os._exit(0)", (), "the kernel died"),
    "a cell that hangs": (
        "first",
        "import time; time.sleep(600)",
        ("--set", "cell_limit_s=25"),
        "not finished after 25 s",
    ),
}


@pytest.fixture
def run(undisturbed: Undisturbed, tmp_path: Path) -> Path:
    """A finished run of one's own; its folder."""
    shutil.copytree(undisturbed.folder, tmp_path / "out" / NAME)
    return tmp_path / "out" / NAME


def output(folder: Path) -> dict[str, str]:
    """sha256 of all that a run has delivered."""
    kept = [folder / "result.json", *(path for path in folder.glob("[a-z]*/**/*") if path.is_file())]
    return {str(path): sha256_file(path) for path in kept if path.parent.name != "notebooks"}


def broken(tree: Tree, target: Path, where: str, code: str) -> tuple[Tree, int]:
    """A copy of the tree whose distill notebook has one more cell, and that cell's number in the executed copy."""
    copied = Tree(Path(shutil.copytree(tree.root, target)))
    path = copied.root / "notebooks" / STAGE
    notebook = json.loads(path.read_text())
    cell = {"cell_type": "code", "execution_count": None, "id": "fault", "metadata": {}, "outputs": [], "source": code}
    tagged = [
        number for number, cell in enumerate(notebook["cells"]) if "parameters" in cell["metadata"].get("tags", [])
    ]
    at = tagged[0] + 1 if where == "first" else len(notebook["cells"])
    notebook["cells"].insert(at, cell)
    path.write_text(json.dumps(notebook))
    return copied, at + 2  # counted from 1, and papermill's own cell comes after the parameters


@pytest.mark.parametrize("name", BROKEN)
def test_a_cell_that_ends_its_kernel_or_hangs(name: str, tree: Tree, run: Path, tmp_path: Path) -> None:
    where, code, options, words = BROKEN[name]
    other, cell = broken(tree, tmp_path / "tree", where, code)
    before = output(run)
    done = other.run("run", SMALLEST, "--out", str(run.parent), *options)
    assert done.returncode == 6, done.stderr
    message = [line for line in done.stderr.splitlines() if line.startswith("edgekit: ")]
    assert len(message) == 1
    assert f"{STAGE}, cell {cell}: " in message[0]
    assert words in message[0]
    assert "Traceback" not in done.stderr
    assert (run / "notebooks" / STAGE).with_suffix(".failed.ipynb").is_file()
    assert output(run) == before


@pytest.fixture
def started(tree: Tree, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A run in its first notebook, and where it writes."""
    out = tmp_path / "busy"
    out.mkdir()
    command = tree.start("run", SMALLEST, "--out", str(out), log=tmp_path / "log")
    while trees.kernel(command.pid) is None and command.poll() is None:
        time.sleep(0.05)
    yield command, out
    if command.poll() is None:
        command.terminate()
        command.wait(60)


def test_a_second_run_on_the_same_folder_names_the_process_that_holds_it(
    started: tuple[subprocess.Popen[bytes], Path], tree: Tree
) -> None:
    first, out = started
    second = tree.run("run", SMALLEST, "--out", str(out))
    assert second.returncode == 7
    for word in (str(first.pid), socket.gethostname(), "edgekit run smallest.yaml"):
        assert word in second.stderr
    assert len(second.stderr.strip().splitlines()) == 1
    assert first.poll() is None
    first.terminate()
    assert first.wait(60) == 143
    assert not trees.leftovers(out / NAME)


def test_a_kernel_killed_in_the_middle_of_a_cell_is_named(
    started: tuple[subprocess.Popen[bytes], Path], tmp_path: Path
) -> None:
    first, out = started
    kernel = trees.kernel(first.pid)
    assert kernel is not None
    running = out / NAME / "notebooks" / ".profile.partial.ipynb"
    while not (running.is_file() and '"running"' in running.read_text()) and first.poll() is None:
        time.sleep(0.05)
    os.kill(kernel, signal.SIGKILL)
    assert first.wait(60) == 6
    stderr = Path(f"{tmp_path}/log.err").read_text()
    assert "01_profile.ipynb, cell " in stderr
    assert "the kernel died" in stderr


CLOCK = """
import random, sys, time
_real, _dice, _offset = time.time, random.Random(), [365 * 86_400.0]
def _jumping():
    if "ipykernel_launcher" in sys.orig_argv:
        return _real() + _dice.choice((0.0, -86_400.0, 365 * 86_400.0))
    _offset[0] -= 86_400.0 * (_dice.random() < 0.05)
    return _real() + _offset[0]
time.time = _jumping
"""
# In the command the clock only jumps back, from a year ahead: jupyter_client measures by it how long a kernel takes to
# start, so that a jump forward within that second ends the notebook, with exit code 6; the next run goes on.


def test_a_clock_that_jumps_changes_nothing(tree: Tree, undisturbed: Undisturbed, tmp_path: Path) -> None:
    place = tmp_path / "site"
    place.mkdir()
    (place / "sitecustomize.py").write_text(CLOCK)
    path = os.pathsep.join([str(place), str(tree.root)])
    done = tree.run("run", SMALLEST, "--out", str(tmp_path / "out"), PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert trees.bundles(tmp_path / "out" / NAME) == undisturbed.bundles
    status = tree.run("status", str(tmp_path / "out" / NAME), PYTHONPATH=path)
    assert status.returncode == 0, status.stderr
    again = tree.run("run", SMALLEST, "--out", str(tmp_path / "out"), PYTHONPATH=path)
    assert again.returncode == 0, again.stderr
    assert "every stage is reused" in again.stdout


def test_a_folder_that_cannot_be_written(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = tree.run("run", SMALLEST, "--out", str(tmp_path / "file" / "below"))
    assert done.returncode == 7, done.stderr
    assert "cannot write here" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(("options", "sealed"), [("size=4k", []), ("size=200k", ["profile"]), ("ro", [])])
def test_the_command_on_a_disk_that_takes_no_more(options: str, sealed: list[str], tree: Tree, tmp_path: Path) -> None:
    requirements.mount()
    (tmp_path / "mounted").mkdir()
    done = tree.run_on(options, tmp_path / "mounted", tmp_path / "kept")
    assert done.returncode == 7, done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("edgekit: ")]) == 1
    assert ("Read-only" if options == "ro" else "No space left on device") in done.stderr
    assert "Traceback" not in done.stderr
    assert list(trees.sealed(tmp_path / "kept" / NAME)) == sealed
