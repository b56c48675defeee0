"""`edgekit search CONFIG --take N`: the config of a trial as a file of one's own."""

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
from edgekit.report.search.studies import Study, read, shown
from edgekit.runner.files import make_folder, remove_quietly, sync_folder, temporary_path
from edgekit.search.study import as_json, differing
from edgekit.workbook import config_file
from edgekit.workbook.config_file import RunConfig, resolve_paths
from edgekit.workbook.plan import Plan, load_plan

CACHE = "cache"
"""Beside study.json: where the trials' stages lie by their keys, so that a run of a taken config computes none anew."""
PATHS = ("weights", "source")
"""Of the section `model`; those of other sections are the ones that `resolve_paths` knows."""
MOST_NAMED = 8
THERE = "{}: is there already and stays; name another file, or move it away"


def take(study: Study, number: int, out: Path | None = None) -> Path:
    """Write the config of a trial, and say where.

    Parameters
    ----------
    study
        As `edgekit.report.search.studies.read` gives it.
    number
        Of a complete trial inside the budget.
    out
        The file; without it `NAME-trial-N.yaml` beside the config that was searched from. In another folder, relative
        paths in the config become absolute ones.

    Raises
    ------
    ConfigError
        In one line: no such trial, one that is not inside the budget, a file that is there already, or a config that
        this edgekit does not load.
    """
    trial = _trial(study, number)
    origin = Path(study.row["config_path"])
    out = out or origin.with_name(f"{origin.stem}-trial-{number}.yaml")
    if out.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"{out}: a config ends in .yaml; name such a file")
    if os.path.lexists(out):
        raise ConfigError(THERE.format(out))
    values = copy.deepcopy(study.row["config"])
    for setting in trial["settings"]:
        config_file.apply_setting(values, setting)
    if out.resolve().parent != origin.resolve().parent:
        values = _placed(origin, values)
    _create(out, f"{_comments(study, trial, out)}\n{_dumped(values)}".encode(), f"trial {number}")
    return out


def command(path: Path, number: int, out: Path | None, say: Callable[[str], object], plan: Plan | None = None) -> None:
    """What `--take` does: `path` is study.json or its folder. Reads, writes, and says what to do next.

    `plan` is that of the config which the command names: ConfigError where the study is of another one.
    """
    study = read(path)
    if plan is not None:
        _compare(study, plan, say)
    written = take(study, number, out)
    trial = _trial(study, number)
    figures = ", ".join(f"{each.title} {shown(trial, each)}" for each in study.objectives)
    say(f"trial       {number}: {figures}")
    say(f"options     {recommend.options(study, trial)}")
    say(f"wrote       {written}")
    say(f"next        {_run(study, written)}")


def _compare(study: Study, plan: Plan, say: Callable[[str], object]) -> None:
    """The study is that of the plan, or of an earlier text of its config."""
    now, then = as_json(plan.values), as_json(study.row["config"])
    if now == then:
        return
    if Path(study.row["config_path"]).resolve() != plan.path:
        raise ConfigError(
            f"{study.path}: is the study of {study.config_path}, not of {plan.path.name}; name that config, or the "
            "folder of the right study with --out"
        )
    changed = ", ".join(differing(then, now))
    say(f"note        the config or --set has changed since ({changed}); what is written is what was searched")


def _trial(study: Study, number: int) -> TrialRow:
    trial = study.trial(number)
    front = _named([each["number"] for each in study.front])
    if trial is None:
        there = _range(study)
        raise ConfigError(f"--take {number}: the study has no such trial, only {there}; the front: {front}")
    if trial["state"] != "complete" or not trial["feasible"]:
        why = tables.why(trial) or "no reason given"
        raise ConfigError(f"--take {number}: {tables.standing(trial, set())} ({why}); take one of the front: {front}")
    return trial


def _range(study: Study) -> str:
    return f"{study.trials[0]['number']} to {study.trials[-1]['number']}" if study.trials else "none at all"


def _named(numbers: list[int]) -> str:
    if not numbers:
        return "it is empty, for no trial is inside the budget"
    rest = f" and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else ""
    return ", ".join(map(str, numbers[:MOST_NAMED])) + rest


def _placed(origin: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Relative paths as absolute ones, as a plan takes them: from the folder of the config that was searched from."""
    found = {key: resolve_paths(origin, each) if isinstance(each, dict) else each for key, each in values.items()}
    model = found.get("model")
    if isinstance(model, dict):
        for key in PATHS:
            if isinstance(model.get(key), str) and model[key] and model[key][0] not in "/~$":
                model[key] = str(origin.resolve().parent / model[key])
    return found


def _comments(study: Study, trial: TrialRow, out: Path) -> str:
    """Where the file comes from, what was measured, and how to run it."""
    row = study.row
    figures = [f"{each.title} {shown(trial, each)}" for each in study.objectives]
    digest = next((each["digest"] for each in row["batches"] if each["number"] == trial["batch"]), "unknown")
    lines = [
        f"Trial {trial['number']} of study {row['name']}, by `edgekit search {study.config_path}` "
        f"of edgekit {row['edgekit']}.",
        f"Measured by the search: {'; '.join(figures)}.",
        f"Set by the trial: {', '.join(trial['settings'])}.",
        f"Digest of the study after its batch: {digest}.",
        f"Run it: {_run(study, out)}",
    ]
    if row["ended"]:
        lines.insert(1, f"The study ended: {row['ended']}.")
    printable = ("".join(each if each.isprintable() else " " for each in line) for line in lines)
    return "\n".join(f"# {line}" for line in printable)


def _run(study: Study, out: Path) -> str:
    cache = study.path.parent / CACHE
    return shlex.join(["edgekit", "run", str(out), *(["--cache", str(cache)] if cache.is_dir() else [])])


class _Dumper(yaml.SafeDumper):
    """Quotes a text that edgekit's own loader would take for a number: `1e-3`."""


_Dumper.yaml_implicit_resolvers = {
    first: list(yaml_file.UniqueKeys.yaml_implicit_resolvers.get(first, ()))
    for first in yaml_file.UniqueKeys.yaml_implicit_resolvers
}


def _dumped(values: dict[str, Any]) -> str:
    """In the order in which people write a config; what `parse` does not read as it was is an error."""
    order = [key for key in RunConfig.model_fields if key in values]
    ordered = {key: values[key] for key in [*order, *values]}
    text = yaml.dump(ordered, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    if yaml_file.parse(text) != values:
        raise ConfigError("the study's config cannot be written as YAML; it was edited, or another edgekit wrote it")
    return text


def _create(out: Path, data: bytes, whose: str) -> None:
    """The file, checked before it has its name, and never in place of another, whoever writes that meanwhile."""
    working = temporary_path(out)
    try:
        make_folder(out.parent)
        try:
            with open(working, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            _check(working, out, whose)
            _name(working, out)
        finally:
            remove_quietly(working)
        sync_folder(out.parent)
    except OSError as error:
        raise ResourceError(f"{out}: cannot be written: {error.strerror or error}; name another file") from None


def _name(working: Path, out: Path) -> None:
    try:
        os.link(working, out)
    except FileExistsError:
        raise ConfigError(THERE.format(out)) from None


def _check(working: Path, out: Path, whose: str) -> None:
    try:
        load_plan(working)
    except EdgekitError as error:
        first = str(error).splitlines()[0].replace(working.name, out.name)
        raise ConfigError(f"{whose}: its config does not load: {first}") from None
