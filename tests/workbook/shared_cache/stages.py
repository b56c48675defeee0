"""Sealed stages that take no time, and what a cache of them says."""

from __future__ import annotations

import json
from pathlib import Path

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.run_folder import notebook_name, stage_folder, working_folder
from edgekit.workbook import state
from edgekit.workbook.plan import workbook_folder
from edgekit.workbook.shared_cache import SharedCache, open_cache

DATA = "d" * 64


def seal(
    folder: Path,
    stage: str = "prune",
    *,
    weights: bytes = b"weights",
    timings: str = "1.0",
    measured: object = None,
    seed: int = 1,
) -> Artifact:
    """A stage of the run in `folder`, in its place; the seed is in its key, the weights and timings are not."""
    out = artifacts.begin(working_folder(folder, stage))
    (out / "model").mkdir()
    (out / "model" / "weights").write_bytes(weights)
    (out / artifacts.EVIDENCE / "timings.json").write_text(timings)
    (out / "decision.json").write_text(json.dumps({} if measured is None else {"measured": measured}))
    artifacts.seal(out, stage=stage, source=None, data_digest=DATA, config={"seed": seed}, metrics={"a": 0.5})
    return artifacts.publish(out, stage_folder(folder, stage))


def receive(folder: Path, artifact: Artifact, text: str = "executed") -> Path:
    """An executed copy of the stage's notebook, with its receipt."""
    executed = folder / "notebooks" / notebook_name(artifact.stage)
    executed.parent.mkdir(parents=True, exist_ok=True)
    executed.write_text(text)
    source = workbook_folder("notebooks") / executed.name
    state.write_receipt(executed.parent, artifact, source, executed, 0, 1.0)
    return executed


def opened(url: Path | str) -> tuple[SharedCache, list[str]]:
    """A cache and the lines that it says."""
    lines: list[str] = []
    return open_cache(str(url), lines.append), lines
