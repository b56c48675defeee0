"""Every architecture on every target and in all stages does what docs/reference/zoo.md says; failures say a way."""

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
    page = matrix.PAGE.read_text()
    assert set(matrix.read(page)) == {(entry.name, column) for entry in ENTRIES for column in matrix.COLUMNS}
    for name, version in library_versions(matrix.LIBRARIES).items():
        assert f"{name} {version}" in page
    converted = [entry for entry in ENTRIES if not entry.refused]
    assert len(converted) >= 20


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_architecture_on_a_target(entry: Entry, target: str, tmp_path: Path) -> None:
    found = matrix.cell(entry, target, tmp_path)
    on_the_page = matrix.read(matrix.PAGE.read_text())[entry.name, target]
    assert found.word == on_the_page.text.partition(",")[0], found.note
    if entry.refused:
        assert found.word == matrix.REFUSED and entry.refused in found.note
    if found.word == matrix.WORKS:
        return
    assert found.word in (*KINDS, matrix.REFUSED, matrix.NUMERICS) and found.word != "other"
    _is_a_sentence(found.note)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_architecture_through_the_whole_pipeline(entry: Entry, tmp_path: Path) -> None:
    found = matrix.shown(entry, matrix.PIPELINE, tmp_path)
    assert found.text == matrix.read(matrix.PAGE.read_text())[entry.name, matrix.PIPELINE].text, found.note
    assert "crashed" not in found.text, found.note
    _is_a_sentence(found.note, 900 * len(TARGETS))


def _is_a_sentence(note: str, longest: int = 900) -> None:
    assert "\n" not in note and not re.search("Traceback|no message", note)
    assert len(note) < longest
