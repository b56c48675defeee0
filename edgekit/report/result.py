"""result.json: what the sealed artifacts of a run tell, and whether a result is still current.

A result carries a digest of its own content and of the records of the artifacts that it was made from. While that
digest holds and edgekit's code is the same, the result is current, and nothing of it is computed again.
`edgekit.core.schema.result` declares its fields.
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
from edgekit.core.run_folder import ORIGIN, stage_folder
from edgekit.core.schema.result import SCHEMA, Result
from edgekit.report import costs, rejected

RESULT = "result.json"
SOURCES = "sources"
"""The field with the digests."""


def build(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Everything in a result that the sealed artifacts of the run in `folder` tell.

    `config`, as it was given, has the prices, which no artifact knows. Needs a finished benchmark, and the bundles
    where the budget was met; StageError or TrustError without.
    """
    benchmark = artifacts.load(stage_folder(folder, "benchmark"))
    metrics = benchmark.metrics
    converted = benchmark.ancestor("convert").metrics
    notes = benchmark.ancestor("profile").metrics.get("data_notes", [])
    bundle = artifacts.load(stage_folder(folder, "bundle")) if metrics["verdict"]["met"] else None
    chain = costs.chain_to(bundle or benchmark)
    cost = costs.build(benchmark, chain, costs.prices_of((config.get("benchmark") or {}).get("cost")))
    return {
        "task": benchmark.config["task"],
        "data_digest": benchmark.data_digest,
        **({"data_notes": notes} if notes else {}),
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
        **({"devices": metrics["devices"]} if "devices" in metrics else {}),
        "streams": bundle.metrics["streams"] if bundle else {},
        "rejected": rejected.steps(benchmark),
        "left_out": converted["left_out"],
        **({"targets_left_out": converted["targets_left_out"]} if "targets_left_out" in converted else {}),
        "conditions": metrics["conditions"],
        "stages": {found.stage: _stage(found) for found in chain},
        "bundles": bundle.metrics["bundles"] if bundle else {},
    }


def _stage(found: Artifact) -> dict[str, Any]:
    return {"digest": found.digest, "key": found.key, **found.took}


def with_sources(result: Mapping[str, Any], folder: Path) -> Result:
    """The result with the digest of all that it was made from; OSError where one of its artifacts is not there."""
    made = {**result, SOURCES: {"code": _code()}}
    made[SOURCES]["digest"] = _digest(made, folder)
    return cast("Result", made)  # checked by `validate_result`


def is_current(result: Any, folder: Path) -> bool:
    """True for a result, every byte as it was written, of the artifacts in `folder` as they are now.

    Where another edgekit wrote it, it is made again and compared: it stays current while the words are the same.
    """
    try:
        if result["schema"] != SCHEMA or result[SOURCES]["digest"] != _digest(result, folder):
            return False
        return bool(result[SOURCES]["code"] == _code() or build(folder, result["config"]).items() <= result.items())
    except (StageError, TrustError, OSError, KeyError, TypeError, ValueError):  # of an artifact that is not there,
        return False  # or of something else than a result


def _digest(result: dict[str, Any], folder: Path) -> str:
    """Of a result, but for this digest itself, and of the records of its artifacts."""
    written = {**result, SOURCES: {"code": result[SOURCES]["code"]}}
    stages = [stage for stage in (ORIGIN, *STAGES) if stage in result["stages"]]
    records = {stage: sha256_file(stage_folder(folder, stage) / RECORD) for stage in stages}
    return digest({"result": written, "records": records})


def _code() -> str:
    """Digest of what of edgekit makes a result of sealed artifacts."""
    return source_code.code_digest(__name__, "edgekit.core.config", without=source_code.REPORTING)
