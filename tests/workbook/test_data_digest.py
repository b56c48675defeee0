"""The data's digest: read once for a run, under a watch, and only where nothing remembers it."""

from __future__ import annotations

import json
from pathlib import Path

from edgekit.core.artifacts import RECORD
from edgekit.data import load
from edgekit.workbook import origin, state
from edgekit.workbook.plan import load_plan
from tests.conftest import ROOT


def test_what_was_read_is_remembered_with_the_fingerprint_from_before(tmp_path: Path) -> None:
    plan = load_plan(ROOT / "tests/configs/smallest.yaml", [])
    assert state.read_digest(plan, tmp_path) == state.DataDigest(None, None), "no run yet"
    (tmp_path / origin.STAGE).mkdir()
    (tmp_path / origin.STAGE / RECORD).touch()
    assert state.remembered_digest(plan, tmp_path).digest is None
    found = state.read_digest(plan, tmp_path)
    assert found.digest == load(plan.data).digest and found.fingerprint
    state.remember_data(plan, tmp_path, found.digest, found.fingerprint)
    assert state.remembered_digest(plan, tmp_path) == found

    kept = json.loads((tmp_path / state.DATA_DIGEST_FILE).read_text())
    (tmp_path / state.DATA_DIGEST_FILE).write_text(json.dumps({**kept, "digest": "remembered"}))
    assert state.read_digest(plan, tmp_path).digest == "remembered"
    given = state.DataDigest("handed on", found.fingerprint)
    assert state.read_digest(plan, tmp_path, given) is given, "not read again"
    (tmp_path / state.DATA_DIGEST_FILE).write_text(json.dumps({**kept, "fingerprint": "another"}))
    assert state.remembered_digest(plan, tmp_path).digest is None
