"""The first artifact of a run: the model or its builder, the user's weights and the preprocessing steps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from edgekit.core import artifacts, cache_key
from edgekit.core.artifacts import Artifact
from edgekit.core.config import ModelConfig
from edgekit.core.hashing import sha256_file, write_json
from edgekit.core.run_folder import ORIGIN
from edgekit.data.types import DEFAULT_CALIBRATION_SAMPLES
from edgekit.models.files import detect
from edgekit.workbook.plan import Plan

STAGE = ORIGIN
WEIGHTS = "weights.safetensors"


def cache_inputs(plan: Plan, data_digest: str) -> cache_key.CacheInputs:
    """Return everything that determines the content of this plan's origin."""
    return cache_key.collect_inputs(STAGE, _describe(plan), None, data_digest, ())


def make_origin(plan: Plan, data_digest: str, folder: Path) -> Artifact:
    """Return the sealed origin in the run's `folder`. It is made anew if it is missing or belongs to another plan."""
    working, final = folder / f".{STAGE}.partial", folder / STAGE
    key = cache_inputs(plan, data_digest).key
    artifacts.recover(working, final, key)
    if artifacts.is_intact(final) and (origin := artifacts.load(final)).key == key:
        return origin
    description = _describe(plan)
    artifacts.begin(working)
    write_json(working / "origin.json", description)
    if plan.weights:
        shutil.copyfile(plan.weights, working / WEIGHTS)
    pretrained = plan.run.model.pretrained
    if pretrained and pretrained.file:
        shutil.copyfile(pretrained.path, working / pretrained.path.name)
    if plan.source:
        for path in detect.members(plan.source, detect.model_kind(plan.source)):
            shutil.copyfile(path, working / path.name)
    artifacts.seal(working, stage=STAGE, source=None, data_digest=data_digest, config=description, metrics={})
    return artifacts.publish(working, final)


def with_user_paths(message: str, plan: Plan, folder: Path) -> str:
    """Replace the path of the run's copy of a file with the path of the user's own file."""
    copies = {plan.source.name: plan.source} if plan.source else {}
    copies |= {WEIGHTS: plan.weights} if plan.weights else {}
    for name, user_path in copies.items():
        for parent in (folder, folder.resolve()):
            message = message.replace(str(parent / STAGE / name), str(user_path))
    return message


def _describe(plan: Plan) -> dict[str, Any]:
    run = plan.run
    return {
        "model": _model_file(plan.source, run.model.head) if plan.source else _network(run.model),
        "source_sha256": cache_key.source_digest(run.model.builder) if run.model.builder else None,
        "data": plan.data.model_dump(exclude={"path", "cache", "tokenizer"})
        # The default is filled in here, so that the cache keys of earlier versions stay valid.
        | {"calibration_samples": plan.data.calibration_samples or DEFAULT_CALIBRATION_SAMPLES},
        "preprocess": run.preprocess,
        "weights": sha256_file(plan.weights) if plan.weights else None,
    }


def _network(model: ModelConfig) -> dict[str, Any]:
    pretrained = {"pretrained": model.pretrained.model_dump(exclude_defaults=True)} if model.pretrained else {}
    return {"builder": model.builder, "kwargs": model.kwargs, **pretrained}


def _model_file(source: Path, head: str | None) -> dict[str, str]:
    """Describe a model file by name and digest, because its folder has no influence on the result."""
    described = {"source": source.name, "sha256": detect.sha256(source, detect.model_kind(source))}
    return described | ({"head": head} if head is not None else {})
