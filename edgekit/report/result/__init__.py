"""result.json: what the sealed artifacts of a run tell, its published schema, and whether one is still current.

`python -m edgekit.report.result > docs/result.schema.json` publishes the schema again after a change of
`schema.py`.
Most commands only ask whether a result is current, so the models of the schema are imported where they are needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgekit.core import artifact as artifacts
from edgekit.core.artifact import Artifact
from edgekit.core.errors import StageError, TrustError
from edgekit.core.run_folder import stage_folder
from edgekit.report import rejected

RESULT = "result.json"
FORMAT = 2
SCHEMA = f"edgekit/result/{FORMAT}"


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of result.json."""
    from edgekit.report.result.schema import Result

    made = Result.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **made}


def build(folder: Path) -> dict[str, Any]:
    """Everything in a result that the sealed artifacts of the run in `folder` tell.

    Needs a finished benchmark, and the bundles where the budget was met; StageError or TrustError without.
    """
    benchmark = artifacts.load(stage_folder(folder, "benchmark"))
    metrics = benchmark.metrics
    bundle = artifacts.load(stage_folder(folder, "bundle")) if metrics["verdict"]["met"] else None
    return {
        "task": benchmark.config["task"],
        "data_digest": benchmark.data_digest,
        "verdict": metrics["verdict"],
        "nearest_miss": metrics["nearest_miss"],
        "unmet": metrics["unmet"],
        "winners": metrics["winners"],
        "variants": metrics["rows"],
        "decisions": metrics["decisions"],
        "waterfall": metrics["waterfall"],
        "rivals": metrics["rivals"],
        "loads": metrics["loads"],
        "seen_validation": metrics["seen_validation"],
        "by_class": metrics["by_class"],
        "rejected": rejected.steps(benchmark),
        "left_out": benchmark.ancestor("convert").metrics["left_out"],
        "conditions": metrics["conditions"],
        "stages": {found.stage: _stage(found) for found in _chain(bundle or benchmark)},
        "bundles": bundle.metrics["bundles"] if bundle else {},
    }


def _chain(last: Artifact) -> list[Artifact]:
    """An artifact and all that it was made from, the origin first."""
    chain = [last]
    while parent := chain[0].parent:
        chain.insert(0, chain[0].ancestor(parent["stage"]))
    return chain


def _stage(found: Artifact) -> dict[str, Any]:
    return {"digest": found.digest, "key": found.key, **found.took}


def check(result: dict[str, Any]) -> None:
    """Raise pydantic's ValidationError if `result` is not what the schema promises: a bug here, no fault of a user."""
    from edgekit.report.result.schema import Result

    Result.model_validate_json(json.dumps(result, allow_nan=False))


def is_current(result: Any, folder: Path) -> bool:
    """True for a result of this format that says what the sealed artifacts in `folder` say now."""
    try:
        now = build(folder)
    except (StageError, TrustError, KeyError):  # the last: from an edgekit that recorded less
        return False
    return isinstance(result, dict) and {"schema": SCHEMA, **now}.items() <= result.items()


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2, ensure_ascii=False))
