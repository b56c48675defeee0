"""What a test needs and this machine lacks: a skip with the reason, a failure in CI, and a table at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

MODULE = """
import pytest
from tests import requirements

@pytest.fixture(scope="module")
def tool():
    return requirements.program("promtool")

@pytest.mark.parametrize("number", range(3))
def test_program(tool, number): pass

@pytest.mark.needs(program="chromium")
def test_marked_program(): pass

@pytest.mark.needs(package="no_such_package")
def test_package(): pass

@pytest.mark.needs(data="data/some.zip")
def test_data(): pass

def test_environment(): requirements.environment("build/none/bin/tool")

def test_optional(): requirements.condition(False, "a rare processor", install="false", required_in_ci=False)

@pytest.mark.needs(package="json")
def test_present(): assert requirements.program("sh")
"""
TABLE = """
Tests that were not run, because something is missing on this machine:
  promtool                                                 3
  EDGEKIT_SHARED, the folder of real data and models       1
  a rare processor                                         1
  build/none                                               1
  chromium                                                 1
  no_such_package                                          1
To run them: apt-get install chromium prometheus && .venv/bin/pip install no-such-package && make build/none/.made
"""


def run(folder: Path, text: str, *options: str, ci: str = "") -> subprocess.CompletedProcess[str]:
    """Pytest on a module, on a machine that has nothing but a shell."""
    (folder / "bin").mkdir()
    (folder / "bin" / "sh").symlink_to("/bin/sh")
    (folder / "test_it.py").write_text(text)
    kept = {name: value for name, value in os.environ.items() if name != "EDGEKIT_SHARED"}
    more = {"PATH": str(folder / "bin"), "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": ci}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.requirements", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, cwd=folder, check=False, env={**kept, **more}
    )


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "workers"])
def test_what_was_missing_stands_in_a_table_at_the_end(options: tuple[str, ...], tmp_path: Path) -> None:
    done = run(tmp_path, MODULE, *options)
    assert done.returncode == 0, done.stdout
    table, closing = done.stdout.rsplit("\n", 2)[:2]
    assert table.endswith(TABLE.rstrip("\n")), done.stdout
    assert closing.startswith("1 passed, 8 skipped in ")


def test_with_nothing_missing_there_is_no_table(tmp_path: Path) -> None:
    done = run(tmp_path, "def test_it(): pass\n")
    assert done.returncode == 0 and "missing" not in done.stdout


def test_in_ci_only_what_is_optional_may_be_missing(tmp_path: Path) -> None:
    done = run(tmp_path, MODULE, ci="true")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("1 failed, 1 passed, 1 skipped, 6 errors in "), done.stdout
    assert "CI must have what it needs: needs promtool: apt-get install prometheus" in done.stdout
    assert TABLE in done.stdout


def test_in_ci_a_skip_that_declares_no_requirement_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "import pytest\ndef test_it(): pytest.skip('no such tool here')\n", ci="true")
    assert done.returncode == 1 and "CI must have what it needs: no such tool here" in done.stdout
