"""What a bundle records about how it was made, enough to make it again: `edgekit reproduce` reads what stands here."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from typing import Any

from edgekit import __version__
from edgekit.core import replay
from edgekit.core.artifacts import Artifact
from edgekit.core.cache_key import code_digests
from edgekit.core.config import SHARED_FIELDS
from edgekit.core.hashing import digest
from edgekit.runner import cpu


def record(chain: Sequence[Artifact], last: str, config: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """The provenance of bundles made from `chain` (origin first) by the stage `last` with `config`.

    `measured` holds by stage the decisions that rest on a measurement, which cannot be rebuilt but only followed.
    """
    code = {artifact.stage: digest(artifact.code) for artifact in chain if artifact.code}
    return {
        "edgekit": __version__,
        "config": _run_config(chain, last, config),
        "weights_sha256": chain[0].config["weights"],
        "data_digest": chain[0].data_digest,
        "measured": measured,
        "machine": machine(),
        "code": {**code, last: digest(code_digests(last))},
        "builders": {name: sha for artifact in chain for name, sha in artifact.builders.items()},
        "libraries": {name: version for artifact in chain for name, version in artifact.versions.items()},
        "stages": {artifact.stage: artifact.digest for artifact in chain},
    }


def measured(last: Artifact) -> dict[str, Any]:
    """By stage, what a measurement decided in the chain that ends with `last`; stages that needed none are absent."""
    deciding = {stage: found for stage in sorted(replay.SHAPES) if (found := last.made_by(stage))}
    decisions = {
        stage: json.loads(found.file("decision.json").read_text(encoding="utf-8")) for stage, found in deciding.items()
    }
    return {stage: decision["measured"] for stage, decision in decisions.items() if "measured" in decision}


def machine() -> dict[str, Any]:
    """What of this machine can decide about the bits of a result."""
    return {
        "architecture": platform.machine(),
        "instructions": cpu.instructions(),
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def _run_config(chain: Sequence[Artifact], last: str, config: dict[str, Any]) -> dict[str, Any]:
    """The stages' configs as one config file, every option written out; no path of any machine stands in it."""
    origin = chain[0].config
    configs = {**{artifact.stage: artifact.config for artifact in chain[1:]}, last: config}
    shared = {name: found[name] for found in configs.values() for name in SHARED_FIELDS if name in found}
    if not shared.pop("targets_named", True):  # a wish stays one where the bundle is made again
        del shared["targets"]
    own = {
        stage: {name: value for name, value in found.items() if name not in SHARED_FIELDS}
        for stage, found in configs.items()
    }
    data = dict(origin["data"])
    shared["task"] = data.pop("task")  # on top in a config; without a student no stage tells it
    return {**shared, "model": origin["model"], "data": data, "preprocess": origin["preprocess"], **own}
