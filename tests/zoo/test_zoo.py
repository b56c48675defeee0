"""Every architecture on every target does what docs/reference/zoo.md says; a failure is one line with what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgekit.core.cache_key import library_versions
from edgekit.core.config import TARGETS
from edgekit.targets.error_causes import KINDS
from tests.zoo import matrix
from tests.zoo.entries import ENTRIES, Entry

pytestmark = pytest.mark.zoo


def test_the_page_is_of_these_architectures_and_versions() -> None:
    said = matrix.PAGE.read_text()
    assert set(matrix.words(said)) == {(entry.name, target) for entry in ENTRIES for target in TARGETS}
    for name, version in library_versions(matrix.LIBRARIES).items():
        assert f"{name} {version}" in said
    converted = [entry for entry in ENTRIES if not entry.refused]
    assert len(converted) >= 20


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_architecture_on_a_target(entry: Entry, target: str, tmp_path: Path) -> None:
    found = matrix.cell(entry, target, tmp_path)
    assert found.word == matrix.words(matrix.PAGE.read_text())[entry.name, target], found.note
    if entry.refused:
        assert found.word == matrix.REFUSED and entry.refused in found.note
    if found.word == matrix.WORKS:
        return
    assert found.word in (*KINDS, matrix.REFUSED, matrix.NUMERICS) and found.word != "other"
    assert "\n" not in found.note and not re.search("Traceback|no message", found.note)
    assert len(found.note) < 900
