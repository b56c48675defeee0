"""Find and read a finished run by its folder or name, for `report`, `compare` and MLflow."""

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


def find_run(run: str, out: Path) -> Path:
    """Find the folder of a run, given as a folder or as a name below `out`. Raises `ConfigError` if there is none."""
    for folder in (Path(run), out / run):
        if (folder / ORIGIN).is_dir():
            return folder
    raise ConfigError(
        f"{run}: no such run here, nor in {out}; name the folder of a run, such as artifacts/digits, or its name"
    )


def read_result(folder: Path) -> Result:
    """Read the result of the run in `folder`, if it is current.

    Raises
    ------
    TrustError
        An artifact was edited.
    DataError
        The run is not finished. The message says what is missing.
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
        reason = f"{', '.join(missing)} {'has' if len(missing) == 1 else 'have'} yet to run"
    else:
        reason = f"{RESULT} {'is missing' if result is None else 'does not belong to the artifacts beside it'}"
    raise DataError(f"{folder}: no verdict yet: {reason}; complete the run with `edgekit run` and its config")


def verify_artifacts(folder: Path, result: Result) -> None:
    """Verify all files of the artifacts of a result. Raises `TrustError` for the first file that was changed."""
    for artifact in load_artifacts(folder, result).values():
        artifacts.verify(artifact)


def load_artifacts(folder: Path, result: Result) -> dict[str, Artifact]:
    """Return the sealed artifacts of a result by stage, the origin first."""
    return {
        stage: artifacts.load(stage_folder(folder, stage)) for stage in (ORIGIN, *STAGES) if stage in result["stages"]
    }


def all_settings(result: Result, artifacts: Mapping[str, Artifact]) -> dict[str, Any]:
    """Return the value of every option by its dotted name, such as `prune.ratio`. Shared options have no prefix."""
    values = flatten({name: value for name, value in result["config"].items() if name not in STAGES})
    for stage, artifact in artifacts.items():
        stage_values = {name: value for name, value in artifact.config.items() if name not in ("budget", "targets")}
        shared = {name: stage_values.pop(name) for name in StageConfig.model_fields if name in stage_values}
        values |= {**flatten(stage_values, f"{stage}."), **shared}
    return {**values, **flatten(result["budget"], "budget.")}


def flatten(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested options, {"a": {"b": 1}} → {"a.b": 1}, and leave lists as they are."""
    flat: dict[str, Any] = {}
    for name, value in options.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) and value else {f"{prefix}{name}": value}
    return flat


def library_versions(artifacts: Mapping[str, Artifact]) -> dict[str, str]:
    """Return the version of every library that any of the artifacts depends on."""
    return {library: str(version) for artifact in artifacts.values() for library, version in artifact.versions.items()}
