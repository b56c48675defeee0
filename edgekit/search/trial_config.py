"""`edgekit search CONFIG --take N`: write the config of a trial as a file of its own."""

from __future__ import annotations

import copy
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from edgekit.core import yaml_file
from edgekit.core.errors import ConfigError, EdgekitError, ResourceError
from edgekit.core.schema.study import TrialRow
from edgekit.report.search import recommend, tables
from edgekit.report.search.studies import Study, read, value_text
from edgekit.runner.files import make_folder, remove_quietly, sync_folder, temporary_path
from edgekit.search.study import differing_names, normalize_json
from edgekit.workbook import config_file
from edgekit.workbook.config_file import RunConfig, resolve_paths
from edgekit.workbook.plan import Plan, load_plan

CACHE_FOLDER = "cache"
"""The folder beside study.json with the finished stages of all trials.

A run of a trial's config takes its stages from there, so that they are not computed again.
"""
MODEL_PATHS = ("weights", "source")
"""Keys in the section `model` that hold paths. `resolve_paths` handles the other sections."""
MAX_LISTED = 8
EXISTS_MESSAGE = "{}: exists already and is not overwritten; name another file, or move it away"


def write_trial_config(study: Study, number: int, out: Path | None = None) -> Path:
    """Write the config of a trial, and return its path.

    Parameters
    ----------
    study
        A study that `edgekit.report.search.studies` has read.
    number
        The number of a complete trial that meets the budget.
    out
        The file to write; by default `NAME-trial-N.yaml` beside the searched config. In another folder, relative paths
        in the config become absolute ones.

    Raises
    ------
    ConfigError
        There is no such trial, it does not meet the budget, the file exists already, or this version of edgekit cannot
        load the config. The message has one line.
    """
    trial = _feasible_trial(study, number)
    origin = Path(study.row["config_path"])
    out = out or origin.with_name(f"{origin.stem}-trial-{number}.yaml")
    if out.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"{out}: a config ends in .yaml; name such a file")
    if os.path.lexists(out):
        raise ConfigError(EXISTS_MESSAGE.format(out))
    values = copy.deepcopy(study.row["config"])
    for setting in trial["settings"]:
        config_file.apply_setting(values, setting)
    if out.resolve().parent != origin.resolve().parent:
        values = _with_absolute_paths(origin, values)
    _write_new(out, f"{_header_comments(study, trial, out)}\n{_dump_yaml(values)}".encode(), f"trial {number}")
    return out


def run_take(path: Path, number: int, out: Path | None, say: Callable[[str], object], plan: Plan | None = None) -> None:
    """Run `--take`: read the study at `path` (study.json or its folder), write the config, and print what to do next.

    `plan` is the plan of the config that the command names. Raises `ConfigError` if the study searched another config.
    """
    study = read(path)
    if plan is not None:
        _check_same_config(study, plan, say)
    path_written = write_trial_config(study, number, out)
    trial = _feasible_trial(study, number)
    figures = ", ".join(f"{each.title} {value_text(trial, each)}" for each in study.objectives)
    say(f"trial       {number}: {figures}")
    say(f"options     {recommend.options(study, trial)}")
    say(f"wrote       {path_written}")
    say(f"next        {_run_command(study, path_written)}")


def _check_same_config(study: Study, plan: Plan, say: Callable[[str], object]) -> None:
    """Check that the study searched the plan's config, or an earlier version of it."""
    current_values, studied_values = normalize_json(plan.values), normalize_json(study.row["config"])
    if current_values == studied_values:
        return
    if Path(study.row["config_path"]).resolve() != plan.path:
        raise ConfigError(
            f"{study.path}: a study of {study.config_path}, not of {plan.path.name}; name that config, or the "
            "folder of the right study with --out"
        )
    changed_names = ", ".join(differing_names(studied_values, current_values))
    say(
        f"note        the config or --set has changed since ({changed_names}); the file has the values "
        "that were searched"
    )


def _feasible_trial(study: Study, number: int) -> TrialRow:
    trial = study.trial(number)
    front = _list_numbers([each["number"] for each in study.front])
    if trial is None:
        numbers = _number_range(study)
        raise ConfigError(f"--take {number}: the study has no such trial, only {numbers}; on the front: {front}")
    if trial["state"] != "complete" or not trial["feasible"]:
        reason = tables.trial_reason(trial) or "no reason given"
        raise ConfigError(
            f"--take {number}: {tables.trial_standing(trial, set())} ({reason}); take one of the front: {front}"
        )
    return trial


def _number_range(study: Study) -> str:
    return f"{study.trials[0]['number']} to {study.trials[-1]['number']}" if study.trials else "none at all"


def _list_numbers(numbers: list[int]) -> str:
    if not numbers:
        return "none, because no trial meets the budget"
    rest = f" and {len(numbers) - MAX_LISTED} more" if len(numbers) > MAX_LISTED else ""
    return ", ".join(map(str, numbers[:MAX_LISTED])) + rest


def _with_absolute_paths(origin: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Make relative paths absolute, starting from the folder of the searched config."""
    absolute = {key: resolve_paths(origin, each) if isinstance(each, dict) else each for key, each in values.items()}
    model = absolute.get("model")
    if isinstance(model, dict):
        for key in MODEL_PATHS:
            if isinstance(model.get(key), str) and model[key] and model[key][0] not in "/~$":
                model[key] = str(origin.resolve().parent / model[key])
    return absolute


def _header_comments(study: Study, trial: TrialRow, out: Path) -> str:
    """Comments that say which trial the config comes from, what was measured, and how to run the config."""
    row = study.row
    figures = [f"{each.title} {value_text(trial, each)}" for each in study.objectives]
    digest = next((each["digest"] for each in row["batches"] if each["number"] == trial["batch"]), "unknown")
    lines = [
        f"Trial {trial['number']} of study {row['name']}, by `edgekit search {study.config_path}` "
        f"of edgekit {row['edgekit']}.",
        f"Measured by the search: {'; '.join(figures)}.",
        f"Set by the trial: {', '.join(trial['settings'])}.",
        f"Digest of the study after its batch: {digest}.",
        f"Run it: {_run_command(study, out)}",
    ]
    if row["ended"]:
        lines.insert(1, f"The study ended: {row['ended']}.")
    printable = ("".join(each if each.isprintable() else " " for each in line) for line in lines)
    return "\n".join(f"# {line}" for line in printable)


def _run_command(study: Study, out: Path) -> str:
    cache = study.path.parent / CACHE_FOLDER
    return shlex.join(["edgekit", "run", str(out), *(["--cache", str(cache)] if cache.is_dir() else [])])


class _Dumper(yaml.SafeDumper):
    """Quotes texts that edgekit's own loader would read as numbers, such as `1e-3`."""


_Dumper.yaml_implicit_resolvers = {
    first: list(yaml_file.UniqueKeyLoader.yaml_implicit_resolvers.get(first, ()))
    for first in yaml_file.UniqueKeyLoader.yaml_implicit_resolvers
}


def _dump_yaml(values: dict[str, Any]) -> str:
    """Write values in the usual order of a config, and check that reading them gives the same values."""
    order = [key for key in RunConfig.model_fields if key in values]
    ordered = {key: values[key] for key in [*order, *values]}
    text = yaml.dump(ordered, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    if yaml_file.parse(text) != values:
        raise ConfigError(
            "the study's config cannot be written as YAML; it was edited, or written by another version of edgekit"
        )
    return text


def _write_new(out: Path, data: bytes, label: str) -> None:
    """Write the file atomically, after checking it, without ever replacing an existing file."""
    temporary = temporary_path(out)
    try:
        make_folder(out.parent)
        try:
            with open(temporary, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            _check_loads(temporary, out, label)
            _link_new(temporary, out)
        finally:
            remove_quietly(temporary)
        sync_folder(out.parent)
    except OSError as error:
        raise ResourceError(f"{out}: cannot be written: {error.strerror or error}; name another file") from None


def _link_new(temporary: Path, out: Path) -> None:
    try:
        os.link(temporary, out)
    except FileExistsError:
        raise ConfigError(EXISTS_MESSAGE.format(out)) from None


def _check_loads(temporary: Path, out: Path, label: str) -> None:
    try:
        load_plan(temporary)
    except EdgekitError as error:
        message = str(error).splitlines()[0].replace(temporary.name, out.name)
        raise ConfigError(f"{label}: its config does not load: {message}") from None
