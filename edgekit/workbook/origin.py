"""What a run starts from, sealed as its first artifact: the network's description, the user's weights, the steps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from edgekit.core import artifacts, cache_key
from edgekit.core.artifacts import Artifact
from edgekit.core.hashing import sha256_file, write_json
from edgekit.core.run_folder import ORIGIN
from edgekit.data.types import DEFAULT_CALIBRATION_SAMPLES
from edgekit.models.files import detect
from edgekit.workbook.plan import Plan

STAGE = ORIGIN
WEIGHTS = "weights.safetensors"


def cache_inputs(plan: Plan, data_digest: str) -> cache_key.CacheInputs:
    """What the origin of this plan is made of."""
    return cache_key.collect_inputs(STAGE, _describe(plan), None, data_digest, ())


def make(plan: Plan, data_digest: str, folder: Path) -> Artifact:
    """The sealed origin in the run's `folder`, made if it is not there as the plan wants it."""
    working, final = folder / f".{STAGE}.partial", folder / STAGE
    key = cache_inputs(plan, data_digest).key
    artifacts.recover(working, final, key)
    if artifacts.is_intact(final) and (found := artifacts.load(final)).key == key:
        return found
    description = _describe(plan)
    artifacts.begin(working)
    write_json(working / "origin.json", description)
    if plan.weights:
        shutil.copyfile(plan.weights, working / WEIGHTS)
    if plan.source:
        for path in detect.members(plan.source, detect.model_kind(plan.source)):
            shutil.copyfile(path, working / path.name)
    artifacts.seal(working, stage=STAGE, source=None, data_digest=data_digest, config=description, metrics={})
    return artifacts.publish(working, final)


def with_user_paths(said: str, plan: Plan, folder: Path) -> str:
    """A message that names the user's own file, where it named the copy that the run keeps of it."""
    copies = {plan.source.name: plan.source} if plan.source else {}
    copies |= {WEIGHTS: plan.weights} if plan.weights else {}
    for name, given in copies.items():
        for home in (folder, folder.resolve()):
            said = said.replace(str(home / STAGE / name), str(given))
    return said


def _describe(plan: Plan) -> dict[str, Any]:
    run = plan.run
    return {
        "model": _model_file(plan.source)
        if plan.source
        else {"builder": run.model.builder, "kwargs": run.model.kwargs},
        "source_sha256": cache_key.source_digest(run.model.builder) if run.model.builder else None,
        "data": plan.data.model_dump(exclude={"path", "cache", "tokenizer"})
        | {
            "calibration_samples": plan.data.calibration_samples or DEFAULT_CALIBRATION_SAMPLES
        },  # as when that was the default
        "preprocess": run.preprocess,
        "weights": sha256_file(plan.weights) if plan.weights else None,
    }


def _model_file(source: Path) -> dict[str, str]:
    """A model file by its name: where it lay is the user's own affair."""
    return {"source": source.name, "sha256": detect.sha256(source, detect.model_kind(source))}
