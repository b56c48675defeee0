"""A finished run, found by its folder or its name: what `report`, `compare` and tracking read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.core import artifacts
from edgekit.core.artifacts import RECORD, Artifact
from edgekit.core.config import STAGES, StageConfig
from edgekit.core.errors import ConfigError, DataError
from edgekit.core.run_folder import ORIGIN, stage_folder
from edgekit.core.schema.result import Result
from edgekit.report.result import RESULT, is_current


def find(run: str, out: Path) -> Path:
    """The folder of a run, given as such or as a name below `out`; ConfigError where there is none."""
    for folder in (Path(run), out / run):
        if (folder / ORIGIN).is_dir():
            return folder
    raise ConfigError(
        f"{run}: no run here and none of that name in {out}; give a run's folder, such as artifacts/digits, or its name"
    )


def result_of(folder: Path) -> Result:
    """The result of the run in `folder` if it says what the artifacts say now.

    TrustError for a record of an artifact that was edited; DataError tells what is missing.
    """
    try:
        result: Result | None = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        result = None
    if result is not None and is_current(result, folder):
        return result
    missing = [stage for stage in STAGES if not (stage_folder(folder, stage) / RECORD).is_file()]
    for stage in (ORIGIN, *STAGES):
        if (stage_folder(folder, stage) / RECORD).is_file():
            artifacts.load(stage_folder(folder, stage))
    if missing:
        why = f"{', '.join(missing)} {'has' if len(missing) == 1 else 'have'} yet to run"
    else:
        why = f"{RESULT} {'is missing' if result is None else 'is not that of the artifacts beside it'}"
    raise DataError(f"{folder}: no verdict yet: {why}; complete the run with `edgekit run` and its config")


def check_whole(folder: Path, result: Result) -> None:
    """TrustError for the first file of the artifacts behind a result that is not as it was sealed."""
    for artifact in chain(folder, result).values():
        artifacts.verify(artifact)


def chain(folder: Path, result: Result) -> dict[str, Artifact]:
    """The sealed artifacts that a result is about, by stage, the origin first."""
    return {
        stage: artifacts.load(stage_folder(folder, stage)) for stage in (ORIGIN, *STAGES) if stage in result["stages"]
    }


def settings(result: Result, made: Mapping[str, Artifact]) -> dict[str, Any]:
    """Every option with the value that it had, by its dotted name: `prune.ratio`; shared ones stand at the top."""
    found = flat({name: value for name, value in result["config"].items() if name not in STAGES})
    for stage, artifact in made.items():
        own = {name: value for name, value in artifact.config.items() if name not in ("budget", "targets")}
        shared = {name: own.pop(name) for name in StageConfig.model_fields if name in own}
        found |= {**flat(own, f"{stage}."), **shared}
    return {**found, **flat(result["budget"], "budget.")}


def flat(options: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} → {"a.b": 1}; lists stay what they are."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        found |= flat(value, f"{above}{name}.") if isinstance(value, dict) and value else {f"{above}{name}": value}
    return found


def versions(made: Mapping[str, Artifact]) -> dict[str, str]:
    """Every library that shaped one of the artifacts."""
    return {library: str(version) for artifact in made.values() for library, version in artifact.versions.items()}
