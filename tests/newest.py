"""The newest releases of everything: `python -m tests.newest PYTHON` fills an environment and says what is newer.

Lower bounds hold, upper bounds and constraints.txt do not. uv resolves, because it needs seconds where pip needs many
minutes. What is printed names each package whose release was never tested with edgekit, so that a test that fails after
this can be put down to one of them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("workbook", "fleet", "dev", "docs")
UPPER = re.compile(r",?\s*<\s*[0-9][^,;\s]*")
PINNED = ("grafana-foundation-sdk",)
"""Packages whose highest version is not the newest, so that constraints.txt holds for them: there is one for each
release of Grafana, and the highest is for Grafana 10.1."""


def lifted(requirement: str) -> str:
    """A requirement without its upper bound; its marker stays."""
    name, semicolon, marker = requirement.partition(";")
    return UPPER.sub("", name).rstrip() + semicolon + marker


def newer(installed: dict[str, str], tested: dict[str, str]) -> list[str]:
    """One line for each package that is there in another version than the tested one."""
    return [
        f"{name} {tested[name]} → {version}"
        for name, version in sorted(installed.items())
        if tested.get(name, version) != version.partition("+")[0]
    ]


def main(python: str) -> None:
    """See the module's text."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    names = [
        f"{requirement}=={pins[requirement]}" if requirement in PINNED else lifted(requirement)
        for extra in EXTRAS
        for requirement in extras[extra]
    ]
    uv = [sys.executable, "-m", "uv", "pip"]
    subprocess.run([*uv, "install", "--quiet", "--python", python, "--upgrade", *names], check=True)
    subprocess.run([*uv, "install", "--quiet", "--python", python, "--no-deps", "-e", str(ROOT)], check=True)
    listed = subprocess.check_output([*uv, "list", "--quiet", "--python", python, "--format", "json"])
    installed = {_normal(each["name"]): each["version"] for each in json.loads(listed)}
    tested = {_normal(name): version for name, version in pins.items()}
    print("newer than what was tested:", *newer(installed, tested), sep="\n  ")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main(sys.argv[1])
