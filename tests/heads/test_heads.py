"""The boxes of published detectors are those of their own packages, as docs/reference/model-files.md says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import requirements
from tests.heads import compare
from tests.heads.families import FAMILIES, Family

pytestmark = pytest.mark.heads


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files and the boxes of all families."""
    requirements.environment("build/heads/.made")
    requirements.data("data/bccd.zip")
    folder = tmp_path_factory.mktemp("heads")
    compare.run_peers(FAMILIES, folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.key)
def test_the_boxes_of_a_file_are_those_of_its_own_package(family: Family, exported: Path) -> None:
    """`compare.row` fails if a box is missing, is elsewhere by 0.5 pixels, or has another score by 1e-3."""
    row, stored = compare.row(family, exported), compare.stored()[family.key]
    assert row["boxes"] >= 10
    for key in ("family", "package", "outputs", "decoding", "is_cut", "head"):
        assert row[key] == stored[key]
    assert row["pixels"] <= compare.MAX_PIXELS and row["score"] <= compare.MAX_SCORE


def test_every_family_is_in_the_documentation() -> None:
    assert list(compare.stored()) == [family.key for family in FAMILIES]
