"""The threat model: each attacker of the page has tests, which are there."""

from __future__ import annotations

import re

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "explanation" / "threat-model.md"
OUT_OF_SCOPE = "root on the device"


def rows() -> list[list[str]]:
    """Of both tables, without their heads."""
    lines = [line.strip("|\n ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [line for line in lines if line[0].strip() != "attacker"]


def test_each_attacker_is_stopped_by_tests_that_are_there() -> None:
    attackers = [row[0] for row in rows() if len(row) == 3]
    shown = {row[0]: re.findall(r"`(test_\w+)`", row[1]) for row in rows() if len(row) == 2}
    assert [each for each in attackers if each != OUT_OF_SCOPE] == list(shown)
    known = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert all(shown.values()) and {name for names in shown.values() for name in names} <= known
