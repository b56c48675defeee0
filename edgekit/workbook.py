"""What a notebook calls: open a stage from its `parameters` cell, run it, look at what came out.

A notebook run by hand, by plain papermill or by `edgekit run` goes through `open_stage` and leaves the same artifact.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit import artifact as artifacts
from edgekit.artifact import Artifact
from edgekit.config import SHARED_FIELDS, STAGES, StageConfig, suggest
from edgekit.data import Data
from edgekit.data import load as load_data
from edgekit.errors import ConfigError, StageError, TrustError
from edgekit.plan import DEFAULT_CONFIG, Plan, is_scalar, load_plan, own_fields, parse_stage, stage_config

COMMON_PARAMETERS = ("config", "out", "settings")
ORIGIN = "origin"


@dataclass(frozen=True)
class OpenStage:
    """A stage, ready to run: its options, its source and the run's folder."""

    name: str
    plan: Plan
    config: StageConfig
    folder: Path
    source: Artifact
    data: Data

    @property
    def out(self) -> Path:
        """The folder of this stage's artifact."""
        return stage_folder(self.folder, self.name)

    def run(self) -> Artifact:
        """Run the stage, or hand back its artifact if nothing it depends on has changed."""
        module = importlib.import_module(f"edgekit.stages.{self.name}")
        key = artifacts.stage_key(self.name, self.config.model_dump(), self.source, self.data.digest, module.LIBRARIES)
        done = finished(self.out, key)
        if done:
            print(f"{self.name}: reused, its key {key[:12]} is unchanged ({self.out.name}/)")
            return done
        started = time.perf_counter()
        working = self.out.with_name(f".{self.name}.partial")
        try:
            module.run(self.source, self.data, self.config, working)
        except BaseException:
            shutil.rmtree(working, ignore_errors=True)
            raise
        result = artifacts.publish(working, self.out)
        print(f"{self.name}: done in {time.perf_counter() - started:.1f} s, sealed as {result.digest[:12]}")
        return result

    def _repr_markdown_(self) -> str:
        mine = {name: getattr(self.config, name) for name in own_fields(type(self.config))}
        rows = "\n".join(f"| `{self.name}.{name}` | {_show(value)} |" for name, value in mine.items())
        run = self.plan.run
        return (
            f"**{self.name}** of run **{run.name}** · reads `{self.source.stage}/` · writes `{self.out.name}/` · "
            f"seed {run.seed} · device {run.device}\n\n| option | value |\n|---|---|\n{rows}"
        )

    def __repr__(self) -> str:
        return f"<{self.name} of run {self.plan.run.name}, reads {self.source.stage}>"


def open_stage(stage: str, parameters: Mapping[str, Any]) -> OpenStage:
    """Open `stage` with the parameters of a notebook (its `globals()`).

    A parameter that differs from the workbook's own default wins over the config; one left at that default follows
    the config. Where cell and config differ, that is printed. Raises ConfigError for an unknown or wrong parameter,
    StageError where the stage before has not been run.
    """
    scalars = _parameters(stage, parameters)
    config_path, out = find_config(str(scalars.pop("config"))), Path(str(scalars.pop("out")))
    for place in (str(config_path.parent), str(Path.cwd())):
        if place not in sys.path:
            sys.path.append(place)  # so that a user's `package.module:function` is found beside the config
    plan = load_plan(config_path, str(scalars.pop("settings")))
    section = {**getattr(plan.run, stage), **_chosen(stage, scalars, plan)}
    options = parse_stage(stage, section, {name: getattr(plan.run, name) for name in SHARED_FIELDS})
    plan = replace(plan, stages={**plan.stages, stage: options})
    folder = run_folder(plan, out, config_path)
    data = load_data(plan.data)
    if stage != "benchmark":
        data = data.withhold_test()
    source = _origin(plan, data, folder) if stage == STAGES[0] else _previous(stage, folder)
    if source.data_digest != data.digest:
        raise StageError(
            f"{source.stage} in {folder} was made from other data (digest {source.data_digest[:12]}, "
            f"now {data.digest[:12]}); run the workbook from 01_profile again"
        )
    return OpenStage(stage, plan, options, folder, source, data)


def stage_folder(folder: Path, stage: str) -> Path:
    """Where a stage's artifact lies in a run's folder; that of `bundle` is what people copy from: `bundles`."""
    return folder / ("bundles" if stage == "bundle" else stage)


def _chosen(stage: str, scalars: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """The parameters that win over the config; says where the two differ, and which is taken."""
    untouched = load_plan(DEFAULT_CONFIG).scalars(stage) if DEFAULT_CONFIG.is_file() else {}
    configured = plan.scalars(stage)
    chosen = {}
    for name, value in scalars.items():
        here = f"{stage}.{name} is {value} in this cell and {configured.get(name)} in {plan.path.name}"
        if name in configured and (value, type(value)) == (configured[name], type(configured[name])):
            continue
        if name in untouched and (value, type(value)) == (untouched[name], type(untouched[name])):
            print(f'{here}: the config is taken, for the cell was left as it came (or insist with settings = "…")')
            continue
        if name in configured:
            print(f"{here}: the cell is taken")
        chosen[name] = value
    return chosen


def find_config(name: str) -> Path:
    """A config by its path, looked for in this folder and those above it (notebooks run in several)."""
    path = Path(name).expanduser()
    if path.is_absolute():
        return path
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / path).is_file():
            return folder / path
    return path


def run_folder(plan: Plan, out: Path, config_path: Path) -> Path:
    """`out`/NAME. A relative `out` is EDGEKIT_ARTIFACTS if that is set, else it stands in the project of the config."""
    if not out.is_absolute():
        home = config_path.resolve().parent
        elsewhere = os.environ.get("EDGEKIT_ARTIFACTS")
        out = Path(elsewhere) if elsewhere else (home.parent if home.name == "configs" else home) / out
    return out / plan.run.name


def finished(out: Path, key: str) -> Artifact | None:
    """The whole, unchanged artifact in `out` with that key, if there is one; a damaged one is as good as none."""
    if not (out / artifacts.RECORD).is_file():
        return None
    try:
        found = artifacts.load(out)
        if found.key != key:
            return None
        artifacts.verify(found)
    except TrustError as error:
        print(f"not reused: {error}")
        return None
    return found


def _parameters(stage: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    allowed = [*COMMON_PARAMETERS, *own_fields(stage_config(stage))]
    given = {name: value for name, value in namespace.items() if not name.startswith("_") and is_scalar(value)}
    meant = _assigned_as_parameters(namespace.get("In"))
    for name in set(given) - set(allowed):
        if meant is None or name in meant:
            raise ConfigError(f"{name}: stage {stage} has no such parameter, {suggest(name, allowed)}")
        del given[name]
    for name in COMMON_PARAMETERS:
        if not isinstance(given.setdefault(name, _COMMON_DEFAULTS[name]), str):
            raise ConfigError(f"{name}: got {given[name]!r}; a text is wanted")
    return given


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


def _assigned(source: str) -> set[str]:
    try:
        body = ast.parse(source).body
    except SyntaxError:  # a magic
        return set()
    targets: list[ast.expr] = [node.target for node in body if isinstance(node, ast.AnnAssign)]
    targets += [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return {target.id for target in targets if isinstance(target, ast.Name)}


_COMMON_DEFAULTS = {"config": "configs/digits.yaml", "out": "artifacts", "settings": ""}


def _previous(stage: str, folder: Path) -> Artifact:
    before = STAGES[STAGES.index(stage) - 1]
    number = STAGES.index(before) + 1
    if not (folder / before / artifacts.RECORD).is_file():
        raise StageError(f"{folder}: no finished stage {before!r} here; run {number:02d}_{before}.ipynb first")
    return artifacts.load(folder / before)


def _origin(plan: Plan, data: Data, folder: Path) -> Artifact:
    """What the run starts from, sealed: the network's description, the user's weights, the preprocess steps."""
    run = plan.run
    description = {
        "model": {"builder": run.model.builder, "kwargs": run.model.kwargs},
        "source_sha256": artifacts.source_digest(run.model.builder),
        "data": plan.data.model_dump(exclude={"path", "cache"}),
        "preprocess": run.preprocess,
        "weights": artifacts.sha256_file(plan.weights) if plan.weights else None,
    }
    key = artifacts.stage_key(ORIGIN, description, None, data.digest, ())
    done = finished(folder / ORIGIN, key)
    if done:
        return done
    working = artifacts.begin(folder / f".{ORIGIN}.partial")
    (working / "origin.json").write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")
    if plan.weights:
        shutil.copyfile(plan.weights, working / "weights.safetensors")
    artifacts.seal(working, stage=ORIGIN, source=None, data_digest=data.digest, config=description, metrics={})
    return artifacts.publish(working, folder / ORIGIN)


def _show(value: Any) -> str:
    if hasattr(value, "model_dump"):
        value = value.model_dump()
    return f"`{json.dumps(value)}`"
