"""The spaces that ship, put together for a config; and what any space needs beside what its author named.

The files in `spaces/` are whole spaces, each for one network. The space of a config without a file has every network
that ships and that the config names, as its student, a candidate, or its baseline, and the options of `stages.yaml`.
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
"""Options of the stage that soft targets alone take over."""
FIXED_SECTIONS = ("name", "version", "task", "data", "preprocess", "budget", "targets", "benchmark", "bundle", "cell_limit_s")
"""Sections that are no option of a trial."""
SEARCH_DEFAULTS: dict[str, Any] = {
    "distill.lone_student": False,
    "prune.measure": False,
    "prune.sparsity_steps": 1,
    "convert.models": ["student", "pruned"],
}


def space_files() -> dict[str, Path]:
    """The networks that a space ships for: `package.module:function` and the file."""
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        if path.stem != STAGES:
            found[str(_read_space(path)[BUILDER][0])] = path
    return found


def space_for_config(plan: Plan) -> dict[str, Any]:
    """The space of a config, as the values of its YAML; ConfigError where no network of the config has one."""
    shipped, named = space_files(), list(dict.fromkeys(_config_networks(plan)))
    paths = [shipped[name] for name in named if name in shipped]
    if not paths:
        raise ConfigError(
            f"{plan.path.name}: no space ships for {' or '.join(named) or 'its networks'}; give one with --space. "
            f"Those that ship are for {', '.join(shipped)}"
        )
    return {"space": _merge_spaces([_read_space(path) for path in [*paths, FOLDER / f"{STAGES}.yaml"]])}


def complete_space(given: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """The values of a space with the options that a trial needs, where the space does not name them.

    A trial trains one student, so `distill.candidates` is empty. Of losses that compete in a run a trial has one. Where
    the space has networks to choose from, the config's keyword arguments are left out: they may belong to another
    network. What decides nothing in a search is left out too, unless the config says more of it: a student without a
    teacher, the latency of each pruning step, files of the baseline, which is the anchor, and of the network with
    zeros, whose files are neither smaller nor faster.
    """
    space = given.get("space")
    if not isinstance(space, dict) or not space:
        return dict(given)  # its fault is told by whoever reads it
    for key in space:
        if str(key).partition(".")[0] in FIXED_SECTIONS:
            raise ConfigError(
                f"space.{key}: is the same for all trials, or they could not be compared; leave it out, or change the "
                "config"
            )
    added: dict[str, Any] = {}
    options: Any = plan.stages["distill"]
    if options.candidates and any(str(key).startswith(STUDENT) for key in space):
        added["distill.candidates"] = [[]]
    own = options.student.builder if options.student else None
    named = _choices(space.get(BUILDER))
    if named is not None and named != [own] and STUDENT not in space:
        added[KWARGS] = [{}]
    if len(options.losses) > 1 and LOSSES not in space:
        added[LOSSES] = [[section] for section in options.losses]
        space = _conditional_soft_targets(space, options.losses)
    for key, value in SEARCH_DEFAULTS.items():
        section, _, option = key.partition(".")
        if option not in plan.values.get(section, {}):
            added[key] = [value]
    return {**given, "space": {**{key: value for key, value in added.items() if key not in space}, **space}}


def _conditional_soft_targets(space: Mapping[str, Any], sections: list[dict[str, Any]]) -> dict[str, Any]:
    """The space in which what soft targets alone take over is an option only beside soft targets that do."""
    found = dict(space)
    for name in SOFT_TARGET_OPTIONS:
        key = f"distill.{name}"
        entry = {"choices": found[key]} if isinstance(found.get(key), list) else found.get(key)
        if not isinstance(entry, dict) or "when" in entry or any(isinstance(each, dict) for each in found[key]):
            continue
        users = [[each] for each in sections if each.get("loss") == "soft_targets" and name not in each]
        if users:
            found[key] = {**entry, "when": {LOSSES: users}}
        else:
            del found[key]
    return found


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
    """One space: the networks become the choices of one key, and the entries of a key stand in a list."""
    joined: dict[str, Any] = {BUILDER: []}
    for space in spaces:
        for key, entry in space.items():
            if key == BUILDER:
                joined[key] += entry
            elif key in joined:
                joined[key] = [*_entries(joined[key]), *_entries(entry)]
            else:
                joined[key] = entry
    return joined


def _entries(entry: Any) -> list[Any]:
    return entry if isinstance(entry, list) else [entry]
