"""The package as a stranger installs it: numpy alone for the runner, exact versions for the workbook."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEXTS = {".py", ".md", ".ipynb", ".yaml", ".yml", ".json", ".j2", ".txt"}
INSTALL = re.compile(r"(?:pip3?|uv|pipx) install ([^`\n;|&]*)")
EXTRA = re.compile(r"\bedgekit(?:[-_]workbook)?\[(?:tflite|openvino|onnx|workbook|mlflow|fleet|dev)[^\]]*\]")
OWN = re.compile(r"edgekit([-_]workbook)?(\[.*)?([=<>~!].*)?")
STRANGERS = [
    "pip install edgekit",
    "run `python -m pip install -U edgekit`, then",
    "pip install 'edgekit[mlflow]'",
    "uv pip install torch edgekit-workbook[tflite]",
    "the extra edgekit[onnx]",
]
PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!_-]+)")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    found = [PIN.fullmatch(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if not match]
    return {normal(match[1]): match[2] for match in found if match}


def required(extra: str) -> list[str]:
    return [normal(re.split(r"[<>=;\s\[]", line)[0]) for line in PROJECT["optional-dependencies"][extra]]


def test_the_package_alone_needs_numpy_only() -> None:
    assert [re.split(r"[<>=]", line)[0] for line in PROJECT["dependencies"]] == ["numpy"]
    assert PROJECT["requires-python"] == ">=3.9"


@pytest.mark.parametrize("extra", ["workbook", "mlflow", "fleet", "dev"])
def test_every_library_of_the_workbook_has_an_exact_version(extra: str) -> None:
    assert not [name for name in required(extra) if name not in pins()]


def test_what_is_installed_is_what_is_pinned() -> None:
    other = {
        name: (version, metadata.version(name))
        for name, version in pins().items()
        if name in {*required("workbook"), *required("dev")} and metadata.version(name).split("+")[0] != version
    }
    assert not other


def requirements(line: str) -> list[str]:
    """What `pip install` is given on a line, as far as the command goes."""
    commands = INSTALL.findall(line)
    return [word.strip("'\".,:)") for command in commands for word in command.split() if not word.startswith("-")]


def texts() -> list[Path]:
    """All that people read or copy commands from, code with its messages included."""
    found = [path for name in ("README.md", "CONTRIBUTING.md", "Makefile") if (path := ROOT / name).is_file()]
    for folder in ("edgekit", "notebooks", "configs", "docs", "tests", "deploy", ".ci"):
        found += [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in TEXTS or folder == ".ci"]
    return [path for path in found if path.is_file() and path != Path(__file__)]


def test_no_text_installs_a_strangers_package() -> None:
    """By the name alone pip fetches whatever has that name on the index; a path is what it says."""
    seen, bad = 0, []
    for path in texts():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            packages = requirements(line)
            seen += bool(packages)
            bad += [f"{path.relative_to(ROOT)}:{number}: {word}" for word in packages if OWN.fullmatch(word)]
            bad += [f"{path.relative_to(ROOT)}:{number}: {word}" for word in EXTRA.findall(line)]
    assert not bad
    assert seen > 10


@pytest.mark.parametrize("line", STRANGERS)
def test_and_one_that_does_is_seen(line: str) -> None:
    assert any(map(OWN.fullmatch, requirements(line))) or EXTRA.findall(line)


def test_what_builds_it_runs_on_every_python_it_is_for() -> None:
    """hatchling 1.28 wants Python 3.10, and the runner is installed on 3.9 too."""
    (builder,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert Requirement(builder).specifier.contains("1.27.0")


@pytest.mark.matrix
@pytest.mark.slow
def test_a_wheel_carries_the_notebooks_and_runs_on_numpy_alone(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("edgekit_workbook-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"edgekit/_workbook/notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")} <= set(names)
    assert {f"edgekit/report/html/{name}" for name in ("page.html.j2", "notebook.html.j2", "page.css")} <= set(names)
    spaces = (ROOT / "edgekit" / "search" / "spaces").glob("*.yaml")
    assert {f"edgekit/search/spaces/{path.name}" for path in spaces} <= set(names)
    assert not [name for name in names if name.startswith("tests/")]

    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "bare")], check=True)
    python = tmp_path / "bare" / "bin" / "python"
    subprocess.run([str(python), *pip[1:], "install", str(wheel)], check=True)
    listed = subprocess.run([str(python), *pip[1:], "list"], capture_output=True, text=True, check=True).stdout.lower()
    assert {line.split()[0] for line in listed.splitlines()[2:]} <= {"edgekit-workbook", "numpy", "pip", "setuptools"}
    helped = subprocess.run([str(python.with_name("edgerun")), "--help"], capture_output=True, text=True, check=False)
    assert helped.returncode == 0
    assert "selftest" in helped.stdout
    done = subprocess.run([str(python.with_name("edgekit")), "run"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "on Python 3.11 to 3.13: pip install 'WHEEL[workbook]'" in done.stderr
    assert "Traceback" not in done.stderr
