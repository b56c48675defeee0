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
    known_digest = state.read_digest(plan, tmp_path)
    assert known_digest.digest == load(plan.data).digest and known_digest.fingerprint
    state.remember_data(plan, tmp_path, known_digest.digest, known_digest.fingerprint)
    assert state.remembered_digest(plan, tmp_path) == known_digest

    retained = json.loads((tmp_path / state.DATA_DIGEST_FILE).read_text())
    (tmp_path / state.DATA_DIGEST_FILE).write_text(json.dumps({**retained, "digest": "remembered"}))
    assert state.read_digest(plan, tmp_path).digest == "remembered"
    values = state.DataDigest("handed on", known_digest.fingerprint)
    assert state.read_digest(plan, tmp_path, values) is values, "not read again"
    (tmp_path / state.DATA_DIGEST_FILE).write_text(json.dumps({**retained, "fingerprint": "another"}))
    assert state.remembered_digest(plan, tmp_path).digest is None
