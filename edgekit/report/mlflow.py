"""Log a finished run to MLflow: its options, its results and its files.

MLflow is only imported here and only when requested, with its usage reports switched off.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from edgekit.core import telemetry
from edgekit.core.errors import ConfigError, ResourceError
from edgekit.core.hashing import sha256_file
from edgekit.core.run_folder import stage_folder
from edgekit.core.schema.result import Result
from edgekit.report import finished_run as finished
from edgekit.report import html
from edgekit.report.result import RESULT

if TYPE_CHECKING:
    from mlflow import MlflowClient

INSTALL_COMMAND = "pip install mlflow-skinny alembic sqlalchemy"
RESULT_TAG = "edgekit.result_sha256"
"""Tag of a run that was logged completely, so that a result is not logged twice to the same experiment."""
LOG_BATCH_SIZE = 100
MAX_VALUE_LENGTH = 500
"""Largest length of a parameter value that every MLflow server accepts."""
TIMEOUTS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


def check_store(uri: str, *, contact_store: bool = True) -> None:
    """Check, before a run starts, that MLflow is installed and that the store answers.

    Without `contact_store`, the store is not contacted, because contacting a file store would create it.

    Raises
    ------
    ConfigError
        MLflow is missing, or the store does not answer.
    """
    if not uri.strip():
        raise ConfigError(f"--mlflow: got {uri!r}; give the address of a store, such as sqlite:///mlflow.db")
    client = _client(uri)
    if not contact_store:
        return
    try:
        client.search_experiments(max_results=1)
    except Exception as error:
        raise ConfigError(
            f"--mlflow {_without_secrets(uri)}: the store does not answer: {_first_line(error)}"
        ) from None


def log_run(folder: Path, uri: str) -> str:
    """Log the finished run in `folder`, once for each result, and return a description of where it was logged.

    Raises
    ------
    ResourceError
        Logging failed.
    """
    result = finished.read_result(folder)
    client, result_digest = _client(uri), sha256_file(folder / RESULT)
    try:
        experiment = _experiment(client, result["name"], uri)
        if earlier_runs := client.search_runs([experiment], f"tags.`{RESULT_TAG}` = '{result_digest}'", max_results=1):
            return f"logged already as run {earlier_runs[0].info.run_id} of experiment {result['name']}"
        run = client.create_run(experiment, run_name=f"{result['name']} {result['version']}").info.run_id
        try:
            _log_content(client, run, folder, result)
            client.set_tag(run, RESULT_TAG, result_digest)
        except BaseException:
            client.set_terminated(run, "FAILED")
            raise
        client.set_terminated(run, "FINISHED")
    except Exception as error:
        raise ResourceError(
            f"not logged to MLflow at {_without_secrets(uri)}: {_first_line(error)}; the run is complete, so log it "
            "later with "
            f"`edgekit report {folder} --mlflow URI`"
        ) from None
    return f"run {run} of experiment {result['name']} at {_without_secrets(uri)}"


def log_or_reason(folder: Path, uri: str) -> str:
    """Like `log_run`, but return a failure as text, so that it does not hide a missed budget."""
    try:
        return log_run(folder, uri)
    except (ConfigError, ResourceError) as error:
        return str(error)


def _log_content(client: MlflowClient, run: str, folder: Path, result: Result) -> None:
    from mlflow.entities import Metric, Param, RunTag

    params = [Param(name, text) for name, text in parameters(folder, result).items()]
    stamp_ms = 0  # each metric has a single value, so its time does not matter
    values = [Metric(name, value, stamp_ms, 0) for name, value in metrics(result)]
    tags = [RunTag(name, text) for name, text in _tags(result).items()]
    for start in range(0, max(len(params), len(values)), LOG_BATCH_SIZE):
        part = slice(start, start + LOG_BATCH_SIZE)
        client.log_batch(run, metrics=values[part], params=params[part])
    client.log_batch(run, tags=tags)
    client.log_artifact(run, str(folder / RESULT))
    if html.is_page_current(folder):  # otherwise the page belongs to another result
        client.log_artifact(run, str(folder / html.PAGE))
        client.log_artifacts(run, str(folder / html.NOTEBOOK_FOLDER), html.NOTEBOOK_FOLDER)
    if result["bundles"]:
        bundles = stage_folder(folder, "bundle")
        for name in [*(entry["file"] for entry in result["bundles"].values()), "edgerun.pyz"]:
            client.log_artifact(run, str(bundles / name), "bundles")


def parameters(folder: Path, result: Result) -> dict[str, str]:
    """Return every option with its value, and the conditions of the machine under `conditions.`, as text."""
    values = finished.all_settings(result, finished.load_artifacts(folder, result))
    values |= {f"conditions.{name}": value for name, value in finished.flatten(result["conditions"]).items()}
    return {_valid_name(name): _value_text(value) for name, value in values.items()}


def metrics(result: Result) -> Iterator[tuple[str, float]]:
    """Yield the figures of the verdict, of every variant and reference model, and of every stage, as `group/figure`."""
    groups = {"verdict": result["verdict"], **{row["name"]: row for row in [*result["variants"], *result["rivals"]]}}
    for group, row in groups.items():
        figures: dict[str, Any] = {**row}
        figures |= {f"second_accuracy_{split}": value for split, value in figures.get("second_accuracy", {}).items()}
        for name, value in figures.items():
            if isinstance(value, (int, float)) and math.isfinite(value):
                yield _valid_name(f"{group}/{name}"), float(value)
    for stage, stage_row in result["stages"].items():
        yield f"seconds/{stage}", float(stage_row["seconds"])


def _tags(result: Result) -> dict[str, str]:
    verdict = result["verdict"]
    return {
        "edgekit.version": result["edgekit"],
        "edgekit.data_digest": result["data_digest"],
        "edgekit.budget": "met" if verdict["met"] else "missed",
        "edgekit.winner": verdict["winner"] if verdict["met"] else "",
        "edgekit.left_out": _value_text(", ".join(row["name"] for row in result["left_out"])),
        **{f"edgekit.winner.{target}": name for target, name in result["winners"].items()},
    }


def _client(uri: str) -> MlflowClient:
    """Return a client of the given store, whatever the environment says. Raises `ConfigError` if MLflow is missing."""
    telemetry.disable()
    for name, value in TIMEOUTS.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow import MlflowClient
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--mlflow {_without_secrets(uri)}: no module {error.name!r} here; {INSTALL_COMMAND}"
        ) from None
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        return MlflowClient(tracking_uri=uri, registry_uri=uri)
    except Exception as error:
        raise ConfigError(f"--mlflow {_without_secrets(uri)}: {_first_line(error)}") from None


def _experiment(client: MlflowClient, name: str, uri: str) -> str:
    """Return the experiment with the run's name.

    The files of a local database are stored beside it, not in the current folder.
    """
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        if experiment.lifecycle_stage == "deleted":
            client.restore_experiment(experiment.experiment_id)
        return str(experiment.experiment_id)
    artifact_location = None
    if uri.startswith("sqlite:///"):
        artifact_location = (Path(urlsplit(uri).path[1:]).absolute().parent / "mlartifacts" / name).as_uri()
    return str(client.create_experiment(name, artifact_location=artifact_location))


def _valid_name(text: str) -> str:
    """Return the name without the characters that MLflow rejects."""
    return re.sub(r"[^\w./ :-]", "_", text)[:250]


def _value_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[: MAX_VALUE_LENGTH - 1]}…"


def _first_line(error: Exception) -> str:
    return _without_secrets((str(error).strip() or type(error).__name__).splitlines()[0][:400])


def _without_secrets(text: str) -> str:
    """Return the text with user names, passwords and queries removed from its URIs."""
    return re.sub(r"(?<=://)(\S*@)?([^\s?]*)(\?\S*)?", lambda uri: ("***@" if uri[1] else "") + uri[2], text)
