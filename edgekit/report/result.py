"""Build result.json from the sealed artifacts of a run, and check whether it is still current.

A result carries a digest of its own content and of the records of its artifacts. As long as this digest and edgekit's
code are unchanged, the result is current and is not computed again. `edgekit.core.schema.result` declares its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from edgekit.core import artifacts, source_code
from edgekit.core.artifacts import RECORD, Artifact
from edgekit.core.config import STAGES
from edgekit.core.errors import StageError, TrustError
from edgekit.core.hashing import digest, sha256_file
from edgekit.core.pretrained import recorded_weights
from edgekit.core.run_folder import ORIGIN, stage_folder
from edgekit.core.schema.result import SCHEMA, Result
from edgekit.report import costs, rejected_steps

RESULT = "result.json"
SOURCES = "sources"
"""The field with the digests."""


def build_result(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything in a result that comes from the sealed artifacts of the run in `folder`.

    Parameters
    ----------
    config
        The config of the run. It is needed for the prices, which no artifact records.

    Raises
    ------
    StageError, TrustError
        There is no finished benchmark, or the budget was met and there are no bundles.
    """
    benchmark = artifacts.load(stage_folder(folder, "benchmark"))
    metrics = benchmark.metrics
    converted = benchmark.ancestor("convert").metrics
    notes = benchmark.ancestor("profile").metrics.get("data_notes", [])
    bundle = artifacts.load(stage_folder(folder, "bundle")) if metrics["verdict"]["met"] else None
    chain = costs.ancestry(bundle or benchmark)
    validated = benchmark.ancestor("profile").metrics.get("cross_validation")
    weights = recorded_weights(artifact.config for artifact in chain)
    cost = costs.cost_of_run(benchmark, chain, costs.prices_of((config.get("benchmark") or {}).get("cost")))
    return {
        "task": benchmark.config["task"],
        "data_digest": benchmark.data_digest,
        **({"data_notes": notes} if notes else {}),
        **({"pretrained": weights} if weights else {}),
        **({"cross_validation": validated} if validated else {}),
        "verdict": metrics["verdict"],
        "nearest_miss": metrics["nearest_miss"],
        "unmet": metrics["unmet"],
        "winners": metrics["winners"],
        "variants": metrics["rows"],
        "decisions": metrics["decisions"],
        "waterfall": metrics["waterfall"],
        "rivals": metrics["rivals"],
        "loads": metrics["loads"],
        **({"cost": cost} if cost else {}),
        "seen_validation": metrics["seen_validation"],
        **({"others_seen_validation": others} if (others := metrics.get("others_seen_validation")) else {}),
        "by_class": metrics["by_class"],
        **({"branches": metrics["branches"]} if "branches" in metrics else {}),
        **({"devices": metrics["devices"]} if "devices" in metrics else {}),
        "streams": bundle.metrics["streams"] if bundle else {},
        "rejected": rejected_steps.rejected_steps(benchmark),
        "left_out": converted["left_out"],
        **({"targets_left_out": converted["targets_left_out"]} if "targets_left_out" in converted else {}),
        "conditions": metrics["conditions"],
        "stages": {artifact.stage: _stage_row(artifact) for artifact in chain},
        "bundles": bundle.metrics["bundles"] if bundle else {},
    }


def _stage_row(artifact: Artifact) -> dict[str, Any]:
    return {"digest": artifact.digest, "key": artifact.key, **artifact.took}


def with_sources(result: Mapping[str, Any], folder: Path) -> Result:
    """Return the result with the digest of its sources. Raises `OSError` if one of its artifacts is missing."""
    complete = {**result, SOURCES: {"code": _code_digest()}}
    complete[SOURCES]["digest"] = _digest(complete, folder)
    return cast("Result", complete)  # `validate_result` verifies this


def is_current(result: Any, folder: Path) -> bool:
    """Return whether a result is unchanged and belongs to the artifacts in `folder` as they are now.

    If another version of edgekit wrote the result, a result is built from the artifacts and compared with it. The old
    result stays current if it has the same content.
    """
    try:
        if result["schema"] != SCHEMA or result[SOURCES]["digest"] != _digest(result, folder):
            return False
        return bool(
            result[SOURCES]["code"] == _code_digest()
            or build_result(folder, result["config"]).items() <= result.items()
        )
    except (StageError, TrustError, OSError, KeyError, TypeError, ValueError):  # an artifact is missing,
        return False  # or this is not a result


def _digest(result: dict[str, Any], folder: Path) -> str:
    """Return the digest of a result (without this digest itself) and of the records of its artifacts."""
    content = {**result, SOURCES: {"code": result[SOURCES]["code"]}}
    stages = [stage for stage in (ORIGIN, *STAGES) if stage in result["stages"]]
    records = {stage: sha256_file(stage_folder(folder, stage) / RECORD) for stage in stages}
    return digest({"result": content, "records": records})


def _code_digest() -> str:
    """Return the digest of the code that builds a result from sealed artifacts."""
    return source_code.code_digest(__name__, "edgekit.core.config", without=source_code.REPORTING)
