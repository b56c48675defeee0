"""What runs the tests: suites to their end with a table, skips that fail in CI, and the selection of `make quick`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.core.floors import FLOORS
from tests import durations, suites
from tests.conftest import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
README = (ROOT / "tests" / "README.md").read_text()
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:nbval"]
PASSING = "@echo '4 passed, 1 skipped, 2 warnings in 3.21s (0:00:03)'"


def targets(variable: str) -> list[str]:
    """The names that a variable of the Makefile holds."""
    found = re.search(rf"^{variable} :=(.*)$", MAKEFILE, re.MULTILINE)
    assert found
    return found[1].split()


@pytest.fixture
def make(tmp_path: Path) -> list[str]:
    """A make whose suites pass, fail, and end without a word."""
    rules = {"fine": PASSING, "bad": "@echo '1 failed, 2 passed in 1.00s'; exit 1", "mute": "@exit 3", "docs": "@true"}
    path = tmp_path / "Makefile"
    path.write_text("".join(f"{name}:\n\t@echo ran >> {tmp_path}/{name}\n\t{rule}\n" for name, rule in rules.items()))
    return ["make", "-f", str(path)]


def test_all_suites_run_and_the_table_says_how_each_ended(
    make: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ["mute", "bad", "fine", "docs"]
    assert suites.main([*names, "--logs", str(tmp_path)], make) == 1
    said = capfd.readouterr().out
    rows = {line.split()[0]: line.split() for line in said.splitlines() if line.endswith("passed") or "FAILED" in line}
    assert rows["fine"][1:5] == ["4", "0", "0", "1"] and rows["fine"][-1] == "passed"
    assert rows["bad"][1:5] == ["2", "1", "0", "0"] and rows["bad"][-2:] == ["FAILED", "(2)"]
    assert rows["mute"][-2] == "FAILED" and rows["docs"][-1] == "passed"
    assert said.rstrip().endswith("2 of 4 suites passed") and "4 passed, 1 skipped" in said
    assert suites.main(["fine", "--logs", str(tmp_path)], make) == 0


def test_resume_runs_what_has_not_passed(make: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        assert suites.main(["--resume", "fine", "bad", "--logs", str(tmp_path)], make) == 1
    assert [(tmp_path / name).read_text().count("ran") for name in ("fine", "bad")] == [1, 2]
    ended = json.loads((tmp_path / "ended.json").read_text())
    (tmp_path / "ended.json").write_text(json.dumps([{**one, "tree": "of another commit"} for one in ended]))
    suites.main(["--resume", "fine", "--logs", str(tmp_path)], make)
    assert (tmp_path / "fine").read_text().count("ran") == 2


def test_a_tree_is_another_one_after_every_edit(tmp_path: Path) -> None:
    """Of a committed file, of one that git does not know yet; and it is the same one after the edit is undone."""
    for words in (["init", "-q"], ["add", "known.py"], ["commit", "-qm", "all"]):
        (tmp_path / "known.py").write_text("1")
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *author, *words], cwd=tmp_path, check=True)
    found = [suites.tree(tmp_path)]
    for name, text in (("known.py", "2"), ("new.py", "1"), ("new.py", "2"), ("newer.py", "2")):
        (tmp_path / name).write_text(text)
        found.append(suites.tree(tmp_path))
    assert len(set(found)) == len(found)
    (tmp_path / "newer.py").unlink()
    assert suites.tree(tmp_path) == found[-2]


def test_a_failure_that_make_lost_is_one() -> None:
    assert not suites.Ended("zoo", 0, suites.counted("=== 1 failed, 3 passed in 2.00s ==="), 1.0, "").passed
    assert suites.counted("2 passed, 1 error in 0.10s\nno tests\n3 passed in 1.00s") == {"passed": 5, "error": 1}


def test_nightly_names_every_suite_and_ci_runs_what_it_names() -> None:
    declared = {line.partition(":")[0].strip('" ,') for line in pytest_markers()} - {"slow"} | {"faults"}
    nightly = targets("NIGHTLY")
    assert declared | {"test", "defaults"} <= set(nightly)
    script = (ROOT / ".ci" / "run").read_text()
    lines = re.sub(r"#.*", "", script)
    run = re.findall(r"\bmake ([a-z0-9]+)", lines)
    chains = " ".join(part for pair in re.findall(r'^beside "(.+)" "(.+)"$', lines, re.MULTILINE) for part in pair)
    named = {*run, *chains.split()}
    assert run[0] == "test" and chains and named - {"quick"} <= set(nightly)
    assert named == set(re.findall(r"^\| `make (\w+)` .*\| yes \|$", README, re.MULTILINE))
    assert not re.search(r"exit 0|\|\| true|SECONDS|--minutes", script)


def test_the_readme_tells_of_every_suite() -> None:
    for name in {*targets("NIGHTLY"), "quick", "mutants", "nightly", "lint", "nbval"}:
        assert f"`make {name}`" in README, name
    for folder in (path.name for path in (ROOT / "tests").iterdir() if (path / "__init__.py").is_file()):
        assert f"`{folder}/`" in README, folder


def test_the_readme_names_every_tool_that_ci_installs() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    (line,) = re.findall(r"apt-get install .*", script)
    packages = [word for word in line.split()[2:] if not word.startswith("-")]
    assert packages and f"apt-get install {' '.join(packages)}" in README
    checked = re.findall(r"command -v ([\w-]+)", script)
    assert not [name for name in checked if f"`{name}`" not in README]


def pytest_markers() -> list[str]:
    """As pyproject.toml declares them."""
    found = re.search(r"^markers = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return found[1].splitlines()


def test_every_room_is_in_the_quick_suite() -> None:
    whole = durations.slow()
    for room in (room for floor in FLOORS for room in floor):
        files = [durations.name(path) for path in (ROOT / "tests" / room).rglob("test_*.py")]
        assert [path for path in files if path not in whole], room


@pytest.mark.parametrize(
    ("reason", "ci", "code"),
    [
        ("no such tool here", "true", 1),
        ("no such tool here", "", 0),
        ("tflite-runtime not installed", "true", 0),
        ("cannot mount a tmpfs: mount: Operation not permitted", "true", 0),
        ("strace: Operation not permitted", "true", 1),
    ],
)
def test_a_skip_fails_in_ci_unless_what_it_lacks_cannot_be_there(
    reason: str, ci: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(f"import pytest\ndef test_it(): pytest.skip({reason!r})\n")
    command = [*PYTEST, "-q", "-rs", "-p", "tests.skips"]
    done = subprocess.run(
        [*command, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, check=False, env={**os.environ, "CI": ci}
    )
    assert done.returncode == code, done.stdout
    assert reason in done.stdout


def test_the_selection_and_the_order_are_by_measured_seconds(tmp_path: Path) -> None:
    """On a tree of its own, with a record of its own."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/__init__.py").touch()
    for name, tests in {"a": ("fast", "slow"), "b": ("fast",), "c": ("fast",)}.items():
        text = "".join(f"def test_{test}():\n    pass\n" for test in tests)
        (tmp_path / "tests" / f"test_{name}.py").write_text(text)
    (tmp_path / "tests/durations.py").write_text((ROOT / "tests/durations.py").read_text())
    slow = ["tests/test_a.py::test_slow", "tests/test_b.py"]
    seconds = {"tests/test_a.py": 1.0, "tests/test_b.py": 2.0, "tests/test_c.py": 9.0}
    (tmp_path / "tests/durations.json").write_text(json.dumps({"files": seconds, "slow": slow}))

    def ran(*options: str) -> list[str]:
        command = [*PYTEST, "-v", "-p", "tests.durations", *options]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, check=False, env=environment, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return re.findall(r"test_(\w)\.py::test_(\w+) PASSED", done.stdout)

    assert ran() == [("c", "fast"), ("b", "fast"), ("a", "fast"), ("a", "slow")]
    assert ran("--quick") == [("c", "fast"), ("a", "fast")]
    ran("--measure")
    assert json.loads((tmp_path / "tests/durations.json").read_text()) == {"files": {}, "slow": []}


def test_make_test_leaves_the_faults_to_their_own_suite() -> None:
    selected = " ".join(targets("APART"))
    for expression, kept in ((selected, False), ("faults", True)):
        command = [*PYTEST, "--collect-only", "-q", "-m", expression, "tests/faults/test_kills.py"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ("test_a_run_that_is_killed_again_and_again" in done.stdout) == kept, done.stdout
