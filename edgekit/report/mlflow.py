"""MLflow: what a finished run was made of, what came out and what it delivers, logged to a store of the user's.

MLflow is imported here alone and only when asked for, with its usage reports switched off.
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
from edgekit.report import html
from edgekit.report import run as finished
from edgekit.report.result import RESULT

if TYPE_CHECKING:
    from mlflow import MlflowClient

INSTALL = "pip install mlflow-skinny alembic sqlalchemy"
MARK = "edgekit.result_sha256"
"""Tag of a run that was logged whole; the same result is not logged to the same experiment twice."""
AT_ONCE = 100
LONGEST_VALUE = 500
"""Letters of a parameter that every server of MLflow takes."""
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


def check(uri: str, *, ask: bool = True) -> None:
    """Before anything runs: is MLflow installed, and does the store answer? ConfigError where not.

    Without `ask` the store is left alone: one that is a file is made where it is asked.
    """
    if not uri.strip():
        raise ConfigError(f"--mlflow: got {uri!r}; give the address of a store, such as sqlite:///mlflow.db")
    client = _client(uri)
    if not ask:
        return
    try:
        client.search_experiments(max_results=1)
    except Exception as error:
        raise ConfigError(f"--mlflow {_masked(uri)}: the store does not answer: {_brief(error)}") from None


def log(folder: Path, uri: str) -> str:
    """Log the finished run in `folder`, once for each result; returns where, in words. ResourceError where it fails."""
    result = finished.result_of(folder)
    client, mark = _client(uri), sha256_file(folder / RESULT)
    try:
        experiment = _experiment(client, result["name"], uri)
        if there := client.search_runs([experiment], f"tags.`{MARK}` = '{mark}'", max_results=1):
            return f"logged already as run {there[0].info.run_id} of experiment {result['name']}"
        run = client.create_run(experiment, run_name=f"{result['name']} {result['version']}").info.run_id
        try:
            _fill(client, run, folder, result)
            client.set_tag(run, MARK, mark)
        except BaseException:
            client.set_terminated(run, "FAILED")
            raise
        client.set_terminated(run, "FINISHED")
    except Exception as error:
        raise ResourceError(
            f"not logged to MLflow at {_masked(uri)}: {_brief(error)}; the run is complete, so log it later with "
            f"`edgekit report {folder} --mlflow URI`"
        ) from None
    return f"run {run} of experiment {result['name']} at {_masked(uri)}"


def log_or_reason(folder: Path, uri: str) -> str:
    """As `log`, but a failure is returned as text, so that it does not hide a missed budget."""
    try:
        return log(folder, uri)
    except (ConfigError, ResourceError) as error:
        return str(error)


def _fill(client: MlflowClient, run: str, folder: Path, result: Result) -> None:
    from mlflow.entities import Metric, Param, RunTag

    params = [Param(name, text) for name, text in parameters(folder, result).items()]
    stamp_ms = 0  # one value each: nothing to draw over time
    values = [Metric(name, value, stamp_ms, 0) for name, value in metrics(result)]
    tags = [RunTag(name, text) for name, text in _tags(result).items()]
    for start in range(0, max(len(params), len(values)), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        client.log_batch(run, metrics=values[part], params=params[part])
    client.log_batch(run, tags=tags)
    client.log_artifact(run, str(folder / RESULT))
    if html.is_drawn(folder):  # else it is another result's
        client.log_artifact(run, str(folder / html.PAGE))
        client.log_artifacts(run, str(folder / html.BESIDE), html.BESIDE)
    if result["bundles"]:
        bundles = stage_folder(folder, "bundle")
        for name in [*(entry["file"] for entry in result["bundles"].values()), "edgerun.pyz"]:
            client.log_artifact(run, str(bundles / name), "bundles")


def parameters(folder: Path, result: Result) -> dict[str, str]:
    """Every option with its value, and under `conditions.` the machine, as text."""
    found = finished.settings(result, finished.chain(folder, result))
    found |= {f"conditions.{name}": value for name, value in finished.flat(result["conditions"]).items()}
    return {_name(name): _text(value) for name, value in found.items()}


def metrics(result: Result) -> Iterator[tuple[str, float]]:
    """Figures of the verdict, of every variant and rival, and of each stage's seconds; `group/figure`."""
    groups = {"verdict": result["verdict"], **{row["name"]: row for row in [*result["variants"], *result["rivals"]]}}
    for group, row in groups.items():
        figures: dict[str, Any] = {**row}
        figures |= {f"second_accuracy_{split}": value for split, value in figures.get("second_accuracy", {}).items()}
        for name, value in figures.items():
            if isinstance(value, (int, float)) and math.isfinite(value):
                yield _name(f"{group}/{name}"), float(value)
    for stage, found in result["stages"].items():
        yield f"seconds/{stage}", float(found["seconds"])


def _tags(result: Result) -> dict[str, str]:
    verdict = result["verdict"]
    return {
        "edgekit.version": result["edgekit"],
        "edgekit.data_digest": result["data_digest"],
        "edgekit.budget": "met" if verdict["met"] else "missed",
        "edgekit.winner": verdict["winner"] if verdict["met"] else "",
        "edgekit.left_out": _text(", ".join(row["name"] for row in result["left_out"])),
        **{f"edgekit.winner.{target}": name for target, name in result["winners"].items()},
    }


def _client(uri: str) -> MlflowClient:
    """A client of that store alone, whatever the environment says; ConfigError without MLflow."""
    telemetry.disable()
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow import MlflowClient
    except ModuleNotFoundError as error:
        raise ConfigError(f"--mlflow {_masked(uri)}: no module {error.name!r} here; {INSTALL}") from None
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        return MlflowClient(tracking_uri=uri, registry_uri=uri)
    except Exception as error:
        raise ConfigError(f"--mlflow {_masked(uri)}: {_brief(error)}") from None


def _experiment(client: MlflowClient, name: str, uri: str) -> str:
    """One for each name of a run. Files of a database of one's own lie beside it, not where the command was typed."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)
    place = None
    if uri.startswith("sqlite:///"):
        place = (Path(urlsplit(uri).path[1:]).absolute().parent / "mlartifacts" / name).as_uri()
    return str(client.create_experiment(name, artifact_location=place))


def _name(text: str) -> str:
    """With nothing in it that MLflow refuses in a name."""
    return re.sub(r"[^\w./ :-]", "_", text)[:250]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _brief(error: Exception) -> str:
    return _masked((str(error).strip() or type(error).__name__).splitlines()[0][:400])


def _masked(text: str) -> str:
    """Without what URIs in it say of a user, and without their queries."""
    return re.sub(r"(?<=://)(\S*@)?([^\s?]*)(\?\S*)?", lambda uri: ("***@" if uri[1] else "") + uri[2], text)
