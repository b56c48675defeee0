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

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
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


@pytest.mark.parametrize("extra", ["workbook", "mlflow", "dev"])
def test_every_library_of_the_workbook_has_an_exact_version(extra: str) -> None:
    assert not [name for name in required(extra) if name not in pins()]


def test_what_is_installed_is_what_is_pinned() -> None:
    other = {
        name: (version, metadata.version(name))
        for name, version in pins().items()
        if name in {*required("workbook"), *required("dev")} and metadata.version(name).split("+")[0] != version
    }
    assert not other


@pytest.mark.slow
def test_a_wheel_carries_the_notebooks_and_runs_on_numpy_alone(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("edgekit-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"edgekit/_workbook/notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")} <= set(names)
    assert {f"edgekit/page/{name}" for name in ("page.html.j2", "notebook.html.j2", "page.css")} <= set(names)
    assert not [name for name in names if name.startswith("tests/")]

    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "bare")], check=True)
    python = tmp_path / "bare" / "bin" / "python"
    subprocess.run([str(python), *pip[1:], "install", str(wheel)], check=True)
    listed = subprocess.run([str(python), *pip[1:], "list"], capture_output=True, text=True, check=True).stdout.lower()
    assert {line.split()[0] for line in listed.splitlines()[2:]} <= {"edgekit", "numpy", "pip", "setuptools"}
    helped = subprocess.run([str(python.with_name("edgerun")), "--help"], capture_output=True, text=True, check=False)
    assert helped.returncode == 0
    assert "selftest" in helped.stdout
    asked = subprocess.run([str(python.with_name("edgekit")), "run"], capture_output=True, text=True, check=False)
    assert asked.returncode == 2
    assert "pip install 'edgekit[workbook]'" in asked.stderr
    assert "Traceback" not in asked.stderr
