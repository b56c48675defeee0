"""The boxes of detectors of other packages are what docs/reference/heads.json says.

The packages make, export and run their networks in build/heads, which `make heads` creates.
"""

from __future__ import annotations

import pytest

from tests import requirements
from tests.heads import table
from tests.heads.families import FAMILIES, Family
from tests.heads.measure import PYTHON

pytestmark = [pytest.mark.heads, pytest.mark.needs(data="data/bccd.zip")]
ROWS = {row["family"]: row for row in table.rows()}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_boxes_of_a_bundle_are_those_of_the_package(family: Family) -> None:
    requirements.environment(PYTHON)
    row = table.measured_row(family, requirements.data("data/bccd.zip"))
    facts = ("state", "form", "is_cut", "refusal")
    assert [row[fact] for fact in facts] == [ROWS[family.name][fact] for fact in facts], row
