"""The parameters of a notebook: what its cells assign, and which of them win over the config."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from edgekit.core.config import refuse_secrets, suggest
from edgekit.core.errors import ConfigError
from edgekit.workbook.plan import DEFAULT_CONFIG, Plan, load_plan
from edgekit.workbook.sections import is_scalar, own_fields, stage_config

COMMON_PARAMETERS = ("config", "out", "settings")
PAPERMILLS_CELL = "# Parameters\n"
_COMMON_DEFAULTS = {"config": "configs/digits.yaml", "out": "artifacts", "settings": ""}


def read(stage: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters in a notebook's `globals()`; ConfigError for one that the stage does not have."""
    allowed = [*COMMON_PARAMETERS, *own_fields(stage_config(stage))]
    meant = _assigned_as_parameters(namespace.get("In"))
    found = {
        name: value
        for name, value in namespace.items()
        if not name.startswith("_") and (is_scalar(value) or name in (meant or ()))
    }
    if meant is not None:
        found = {name: value for name, value in found.items() if name in meant or name in allowed}
    refuse_secrets(found)
    for name in found:
        if name not in allowed:
            raise ConfigError(f"{name}: stage {stage} has no such parameter, {suggest(name, allowed)}")
    for name in COMMON_PARAMETERS:
        if not isinstance(found.setdefault(name, _COMMON_DEFAULTS[name]), str):
            raise ConfigError(f"{name}: got {found[name]!r}; a text is wanted")
    return found


def _assigned_as_parameters(history: Any) -> set[str] | None:
    """Names assigned in the cells that hold parameters, by IPython's history; None outside of a notebook.

    These are the cells run before the stage was first opened, and any that assigns `config`. What later cells assign
    is the notebook's own business, so a notebook can be run again from any cell.
    """
    if not isinstance(history, list):
        return None
    names: set[str] = set()
    opened = False
    for source in history:
        assigned = _assigned(source)
        if not opened or "config" in assigned:
            names |= assigned
        opened = opened or "open_stage(" in source
    return names


def injected(history: Any) -> set[str]:
    """Names in the cell that papermill adds for what it is told: `papermill -p ratio 0.5`."""
    cells = [source for source in history or () if source.lstrip().startswith(PAPERMILLS_CELL)]
    return set().union(*(_assigned(source) for source in cells))


def _assigned(source: str) -> set[str]:
    try:
        body = ast.parse(source).body
    except SyntaxError:  # a magic
        return set()
    targets: list[ast.expr] = [node.target for node in body if isinstance(node, ast.AnnAssign)]
    targets += [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def overrides(stage: str, scalars: dict[str, Any], plan: Plan, explicit: set[str]) -> dict[str, Any]:
    """The parameters that win over the config; says where the two differ, and which is taken.

    One that was passed to papermill (`explicit`) wins even if it equals the workbook's default.
    """
    untouched = load_plan(DEFAULT_CONFIG).scalars(stage) if DEFAULT_CONFIG.is_file() else {}
    configured = plan.scalars(stage)
    found = {}
    for name, value in scalars.items():
        here = f"{stage}.{name} is {value} in this cell and {configured.get(name)} in {plan.path.name}"
        if name in configured and (value, type(value)) == (configured[name], type(configured[name])):
            continue
        unmodified = name in untouched and (value, type(value)) == (untouched[name], type(untouched[name]))
        if unmodified and name not in explicit:
            print(f'{here}: the config wins, because the cell is unmodified (or force it with settings = "…")')
            continue
        if name in configured:
            print(f"{here}: the cell wins")
        found[name] = value
    return found
