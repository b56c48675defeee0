"""Workers that crash: each crash fails its own test alone, all others run, and the session ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

CRASH = "os.kill(os.getpid(), signal.SIGSEGV)"
HEAD = f"""import os, signal
import pytest

@pytest.fixture(scope="session")
def broken():
    {CRASH}

"""
FILES = {
    "first": ["crash", "pass", "pass"],
    "middle": ["pass", "crash", "pass", "pass"],
    "last": ["pass", "pass", "crash"],
    "twice": ["crash", "pass", "crash", "pass"],
    "alone": ["crash"],
    "fixture": ["pass", "broken", "pass"],
    "fine": ["pass"] * 30,
    "small": ["pass"],
    "smaller": ["pass"],
}
"""By file, what its tests do."""


def write(folder: Path, files: dict[str, list[str]]) -> None:
    for name, kinds in files.items():
        tests = []
        for number, kind in enumerate(kinds):
            argument = "broken" if kind == "broken" else ""
            tests.append(f"def test_{number}_{kind}({argument}):\n    {CRASH if kind == 'crash' else 'pass'}\n")
        (folder / f"test_{name}.py").write_text(HEAD + "\n".join(tests))


@pytest.mark.parametrize(
    "names",
    [list(FILES), ["fine", "last"], ["alone"], ["alone", "small", "smaller", "first"]],
    ids=" ".join,
)
def test_a_crash_fails_its_own_test_alone(names: list[str], tmp_path: Path) -> None:
    files = {name: FILES[name] for name in names}
    write(tmp_path, files)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder",
         "-p", "xdist", "-p", "tests.scheduler", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    outcomes = set(re.findall(r"(PASSED|FAILED|CRASHED).*?(test_\w+)\.py::test_(\d+_\w+)", done.stdout))
    wanted = {
        (name, f"{number}_{kind}", kind == "pass") for name, kinds in files.items() for number, kind in enumerate(kinds)
    }
    found = {(file.removeprefix("test_"), test, outcome == "PASSED") for outcome, file, test in outcomes}
    assert found == wanted, done.stdout
    passed = sum(kinds.count("pass") for kinds in files.values())
    failed = sum(map(len, files.values())) - passed
    assert re.search(rf"{failed} failed(, {passed} passed)? in ", done.stdout), done.stdout
    assert done.returncode == 1
