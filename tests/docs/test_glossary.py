"""The last column of the glossary names only what exists: modules and classes, commands, and documented keys."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.docs.pages import ROOT

REFERENCE = ROOT / "docs" / "reference"
ROWS = [line.strip("|").split(" | ") for line in (REFERENCE / "glossary.md").read_text().splitlines()]
NAMES = sorted({name for row in ROWS if len(row) == 3 for name in re.findall(r"`([^`]+)`", row[2])})
KEYS = set()
for page in ("config.md", "result.md", "bundle-format.md"):
    KEYS |= set(re.findall(r"`([a-z0-9_]+)`", (REFERENCE / page).read_text()))
COMMANDS = set(re.findall(r"^##+ (edge.*)$", (REFERENCE / "command-line.md").read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_what_the_glossary_names_exists(name: str) -> None:
    if "." not in name:
        assert name in KEYS | COMMANDS
        return
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        if path.is_dir() or path.with_suffix(".py").is_file():
            break
    else:
        pytest.fail(f"there is no {parts[0]}")
    rest = parts[length:]
    if rest:
        value = importlib.import_module(".".join(parts[:length]))
        for part in rest:
            value = getattr(value, part)
