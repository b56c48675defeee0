"""Combine the search spaces that edgekit ships, and add the options that every space needs.

Each file in `spaces/` is a complete space for one network. If no space is named with `--space`, the spaces of the
config's networks are combined. These are the networks that the config uses as its student, as a candidate or as its
baseline. The options in `stages.yaml`, which fit any network, are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edgekit.core import yaml_file
from edgekit.core.errors import ConfigError
from edgekit.workbook.plan import Plan

FOLDER = Path(__file__).parent / "spaces"
STAGES = "stages"
BUILDER, KWARGS = "distill.student.builder", "distill.student.kwargs"
STUDENT, LOSSES = "distill.student", "distill.losses"
SOFT_TARGET_OPTIONS = ("temperature", "alpha")
"""Options of the distill stage that only the loss `soft_targets` uses."""
FIXED_SECTIONS = (
    "name",
    "version",
    "task",
    "data",
    "preprocess",
    "budget",
    "targets",
    "benchmark",
    "bundle",
    "cell_limit_s",
)
"""Sections that a trial cannot change."""
SEARCH_DEFAULTS: dict[str, Any] = {
    "distill.lone_student": False,
    "prune.measure": False,
    "prune.sparsity_steps": 1,
    "convert.models": ["student", "pruned"],
}


def space_files() -> dict[str, Path]:
    """The files of the shipped spaces, by the builder of their network (`package.module:function`)."""
    files = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        if path.stem != STAGES:
            files[str(_read_space(path)[BUILDER][0])] = path
    return files


def space_for_config(plan: Plan) -> dict[str, Any]:
    """Combine the shipped spaces for a config, as the values of a YAML file.

    Raises
    ------
    ConfigError
        No space ships for any network of the config.
    """
    files_by_builder, networks = space_files(), list(dict.fromkeys(_config_networks(plan)))
    paths = [files_by_builder[name] for name in networks if name in files_by_builder]
    if not paths:
        raise ConfigError(
            f"{plan.path.name}: edgekit ships no space for {' or '.join(networks) or 'its networks'}; name one with "
            f"--space. The shipped spaces are for {', '.join(files_by_builder)}"
        )
    return {"space": _merge_spaces([_read_space(path) for path in [*paths, FOLDER / f"{STAGES}.yaml"]])}


def complete_space(values: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """Complete the values of a space with the options that every trial needs and that the space does not have yet.

    A trial trains a single student with a single loss. So `distill.candidates` becomes empty if the space chooses the
    student, and if the config lists several losses, the space chooses one of them. If the space offers other networks
    than the config's student, the keyword arguments of that student are dropped, because they may not fit the others.

    Work that decides nothing in a search is switched off, unless the config sets the option: training the lone student,
    timing each pruning step, converting the baseline (its files are made separately) and converting the sparse network
    (its files are neither smaller nor faster).

    Raises
    ------
    ConfigError
        The space changes a section that must be the same for all trials.
    """
    space = values.get("space")
    if not isinstance(space, dict) or not space:
        return dict(values)  # `Space.load` reports what is wrong with it
    for key in space:
        if str(key).partition(".")[0] in FIXED_SECTIONS:
            raise ConfigError(
                f"space.{key}: must be the same for all trials, so that they can be compared; leave it out, or "
                "change the config"
            )
    added: dict[str, Any] = {}
    options: Any = plan.stages["distill"]
    if options.candidates and any(str(key).startswith(STUDENT) for key in space):
        added["distill.candidates"] = [[]]
    config_builder = options.student.builder if options.student else None
    builders = _choices(space.get(BUILDER))
    if builders is not None and builders != [config_builder] and STUDENT not in space:
        added[KWARGS] = [{}]
    if len(options.losses) > 1 and LOSSES not in space:
        added[LOSSES] = [[section] for section in options.losses]
        space = _conditional_soft_targets(space, options.losses)
    for key, value in SEARCH_DEFAULTS.items():
        section, _, option = key.partition(".")
        if option not in plan.values.get(section, {}):
            added[key] = [value]
    return {**values, "space": {**{key: value for key, value in added.items() if key not in space}, **space}}


def _conditional_soft_targets(space: Mapping[str, Any], sections: list[dict[str, Any]]) -> dict[str, Any]:
    """Let the options of soft targets exist only with a loss that uses them. Remove an option that no loss uses."""
    completed = dict(space)
    for name in SOFT_TARGET_OPTIONS:
        key = f"distill.{name}"
        entry = {"choices": completed[key]} if isinstance(completed.get(key), list) else completed.get(key)
        if not isinstance(entry, dict) or "when" in entry or any(isinstance(each, dict) for each in completed[key]):
            continue
        users = [[each] for each in sections if each.get("loss") == "soft_targets" and name not in each]
        if users:
            completed[key] = {**entry, "when": {LOSSES: users}}
        else:
            del completed[key]
    return completed


def _choices(entry: Any) -> list[Any] | None:
    if isinstance(entry, dict):
        entry = entry.get("choices")
    return entry if isinstance(entry, list) else None


def _config_networks(plan: Plan) -> Iterable[str]:
    options: Any = plan.stages["distill"]
    if options.student:
        yield options.student.builder
    for candidate in options.candidates:
        yield candidate.builder
    if plan.run.model.builder:
        yield plan.run.model.builder


def _read_space(path: Path) -> dict[str, Any]:
    return dict(yaml_file.read(path)["space"])


def _merge_spaces(spaces: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge spaces into one. Their networks become choices of one key; any other key gets the entries of all spaces."""
    merged: dict[str, Any] = {BUILDER: []}
    for space in spaces:
        for key, entry in space.items():
            if key == BUILDER:
                merged[key] += entry
            elif key in merged:
                merged[key] = [*_entries(merged[key]), *_entries(entry)]
            else:
                merged[key] = entry
    return merged


def _entries(entry: Any) -> list[Any]:
    return entry if isinstance(entry, list) else [entry]
