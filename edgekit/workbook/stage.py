"""The functions of a notebook: open a stage from its `parameters` cell and run it.

A notebook run by hand, by plain papermill or by `edgekit run` goes through `open_stage` and leaves the same artifact.
"""

from __future__ import annotations

import ast
import html
import importlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit.core import artifacts, cache_key, lock, progress, subprocesses, telemetry
from edgekit.core.artifacts import Artifact
from edgekit.core.config import STAGES, StageConfig, refuse_secrets, suggest
from edgekit.core.errors import ConfigError, EdgekitError, StageError
from edgekit.core.run_folder import notebook_name, stage_folder, working_folder
from edgekit.data import Data, fingerprint
from edgekit.data import load as load_data
from edgekit.measure import lane
from edgekit.training import resume
from edgekit.workbook import origin, state
from edgekit.workbook.config_file import (
    beside,
    check_sample_counts,
    for_stage,
    is_scalar,
    own_fields,
    parse_stage,
    shared_options,
    stage_config,
)
from edgekit.workbook.plan import DEFAULT_CONFIG, Plan, load_plan, make_importable, workbook_folder

COMMON_PARAMETERS = ("config", "out", "settings")
PAPERMILLS_CELL = "# Parameters\n"
_COMMON_DEFAULTS = {"config": "configs/digits.yaml", "out": "artifacts", "settings": ""}


def read_parameters(stage: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Read the parameters of a stage from the names in a notebook.

    Parameters
    ----------
    stage
        Name of the stage.
    namespace
        `globals()` of the notebook, or a mapping of names to values.

    Raises
    ------
    ConfigError
        A parameter is not an option of the stage, or one of the common ones is not a string.
    """
    allowed = [*COMMON_PARAMETERS, *own_fields(stage_config(stage))]
    assigned = _assigned_as_parameters(namespace.get("In"))
    values = {
        name: value
        for name, value in namespace.items()
        if not name.startswith("_") and (is_scalar(value) or name in (assigned or ()))
    }
    if assigned is not None:
        values = {name: value for name, value in values.items() if name in assigned or name in allowed}
    refuse_secrets(values)
    for name in values:
        if name not in allowed:
            raise ConfigError(f"{name}: stage {stage} has no such parameter, {suggest(name, allowed)}")
    for name in COMMON_PARAMETERS:
        if not isinstance(values.setdefault(name, _COMMON_DEFAULTS[name]), str):
            raise ConfigError(f"{name}: got {values[name]!r}; give a string")
    return values


def refuse_unknown_parameters(namespace: Mapping[str, Any], allowed: Sequence[str]) -> None:
    """Refuse what papermill passed to a notebook without a stage, if the notebook does not have such a parameter.

    Parameters
    ----------
    namespace
        `globals()` of the notebook.
    allowed
        Names of the parameters that the notebook has.

    Raises
    ------
    ConfigError
        A name was passed that is not in `allowed`.
    """
    for name in sorted(injected(namespace.get("In")) - set(allowed)):
        raise ConfigError(f"{name}: this notebook has no such parameter, {suggest(name, allowed)}")


def declared_parameters(notebook: Path) -> set[str]:
    """Names of the parameters in a notebook's `parameters` cell; no names if the notebook has no such cell."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if "parameters" in cell["metadata"].get("tags", ()):
            return _assigned("".join(cell["source"]))
    return set()


def _assigned_as_parameters(history: Any) -> set[str] | None:
    """Names assigned in the cells that hold parameters, by IPython's history; None outside of a notebook.

    These are the cells that ran before the stage was first opened, and later ones that assign `config`. Names that
    other cells assign are ignored, so that a notebook can be run again from any cell.
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
    """Names in the cell that papermill adds for the parameters that it was given, as in `papermill -p ratio 0.5`."""
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
    """The parameters that win over the config. Where the two differ, a line is printed that says which is used.

    A parameter that still has the value of the workbook's own parameters cell follows the config, unless it was passed
    to papermill (`explicit`). An option that this cell does not have was added by the user, so it always wins.
    """
    default = load_plan(DEFAULT_CONFIG).scalars(stage) if DEFAULT_CONFIG.is_file() else {}
    unmodified = declared_parameters(workbook_folder("notebooks") / notebook_name(stage)) - explicit
    configured = plan.scalars(stage)
    winning = {}
    for name, value in scalars.items():
        here = f"{stage}.{name} is {value} in this cell and {configured.get(name)} in {plan.path.name}"
        if name in configured and _same(value, configured[name]):
            continue
        if name in unmodified and name in default and _same(value, default[name]):
            print(f'{here}: the config wins, because the cell is unmodified (or force it with settings = "…")')
            continue
        if name in configured:
            print(f"{here}: the cell wins")
        winning[name] = value
    return winning


def _same(a: object, b: object) -> bool:
    return type(a) is type(b) and a == b


telemetry.disable()  # in a kernel this is the first of edgekit that is imported
os.environ.update(subprocesses.openmp_wait())  # in one that `edgekit run` did not start

RUN_LOCK = ".lock"
STAGE_LOCK = ".stage.lock"
ORPHAN_S = 20.0
COMMAND = "EDGEKIT_RUN"
"""Process number of the `edgekit run` that started this kernel and holds the run's lock."""
FORCE = "EDGEKIT_FORCE"
"""The stage to re-run although its key is unchanged."""


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
        """Run the stage, or return its artifact if nothing that it depends on has changed.

        Raises
        ------
        EdgekitError
            The stage failed; the message says what to do. Nothing is sealed then.
        """
        with _alone(self.folder, self.name):
            wanted = state.cache_inputs(self.plan, self.folder, self.name, self.source, self.data.digest)
            working = working_folder(self.folder, self.name)
            artifacts.recover(working, self.out, wanted.key)
            found, reasons, done = state.check_artifact(self.out, wanted)
            if found == "unchecked" and done is not None and os.environ.get(FORCE) != self.name:
                print(f"{self.name}: reused, its key {wanted.key[:12]} is unchanged ({self.out.name}/)")
                return done
            if reasons:
                print(f"{self.name}: {'; '.join(reasons)}")
            return self._make(working, wanted)

    def _make(self, working: Path, wanted: cache_key.CacheInputs) -> Artifact:
        module = importlib.import_module(f"edgekit.stages.{self.name}")
        baseline = self.plan.run.model.builder
        before = {**({baseline: cache_key.source_digest(baseline)} if baseline else {}), **wanted.builders}
        _as_imported(before)
        if os.environ.get(FORCE) == self.name:
            resume.remove(self.folder, self.name)
            resume.remove_teacher_cache(self.folder)
        try:
            with progress.step(self.name), lane.computing():
                made = module.run(self.source, self.data, self.config, working)
            changes = cache_key.describe_changes(wanted, made.cache_inputs)
            changes += [f"source of {name}" for name, sha in before.items() if cache_key.source_digest(name) != sha]
            if changes:
                changed = "; ".join(dict.fromkeys(changes))
                raise StageError(f"{self.name}: its inputs changed while it ran: {changed}; run it again")
        except BaseException as error:
            shutil.rmtree(working, ignore_errors=True)
            if isinstance(error, EdgekitError):
                error.args = (origin.with_user_paths(str(error), self.plan, self.folder),)
            raise
        result = artifacts.publish(working, self.out)
        resume.remove(self.folder, self.name)
        print(f"{self.name}: done in {result.took['seconds']:.1f} s, sealed as {result.digest[:12]}")
        return result

    def options(self) -> list[tuple[str, str, str, str]]:
        """Every option of the stage: its name, the value in force, its default if that is another one, its meaning."""
        rows = []
        for name in own_fields(type(self.config)):
            field, value = type(self.config).model_fields[name], getattr(self.config, name)
            default = value if field.is_required() else field.get_default(call_default_factory=True)
            rows.append((name, _show(value), "" if value == default else _show(default), field.description or ""))
        return rows

    @property
    def _headline(self) -> tuple[tuple[str, str], ...]:
        run = self.plan.run
        return (
            ("stage", self.name),
            ("run", run.name),
            ("reads", f"{self.source.stage}/"),
            ("writes", f"{self.out.name}/"),
            ("seed", str(run.seed)),
            ("device", run.device),
        )

    def _repr_html_(self) -> str:
        """For a notebook: what is open, and all options in a table that is folded away."""
        headline = " · ".join(f"{name} <strong>{html.escape(value)}</strong>" for name, value in self._headline)
        left = 'td style="text-align:left"'  # Jupyter aligns the cells of a table to the right
        rows = "".join(
            f"<tr><{left}><code>{name}</code></td><{left}><code>{html.escape(value)}</code>"
            f"{f' (default <code>{html.escape(default)}</code>)' if default else ''}</td>"
            f"<{left}>{html.escape(meaning)}</td></tr>"
            for name, value, default, meaning in self.options()
        )
        how = (
            "To change an option, add a line for it to the parameters cell, pass it to papermill with <code>-p</code>, "
            f'or write <code>settings = "{self.name}.OPTION=VALUE"</code>.'
        )
        headings = "".join(f"<{left}>{name}</td>" for name in ("option", "value in force", "what it does"))
        return (
            f"<p>{headline}</p><details><summary>All options of {self.name}</summary><p>{how}</p><table><thead><tr>"
            f"{headings}</tr></thead><tbody>{rows}</tbody></table>"
            "</details>"
        )

    def _repr_markdown_(self) -> str:
        """For the page of a report, which shows no HTML of a notebook's own."""
        headline = " · ".join(f"{name} **{value}**" for name, value in self._headline)
        rows = [(name, value.replace("|", "\\|")) for name, value, _, _ in self.options()]
        table = "\n".join(f"| `{name}` | `{value}` |" for name, value in rows)
        return f"{headline}\n\n| option | value in force |\n|---|---|\n{table}"

    def __repr__(self) -> str:
        return f"<{self.name} of run {self.plan.run.name}, reads {self.source.stage}>"


def open_stage(stage: str, parameters: Mapping[str, Any]) -> OpenStage:
    """Open a stage with the parameters of a notebook.

    A parameter wins over the config if it was passed to papermill, or if its value is not the one that the workbook's
    parameters cell came with. One that was left alone follows the config. Where cell and config differ, a line is
    printed that says which of them is used.

    Parameters
    ----------
    stage
        `"profile"`, `"distill"`, `"prune"`, `"quantize"`, `"convert"`, `"benchmark"` or `"bundle"`.
    parameters
        `globals()` of the notebook, or a mapping with `config`, `out`, `settings` and options of the stage.

    Raises
    ------
    ConfigError
        A parameter is unknown or wrong.
    StageError
        The stage before has not been run.
    """
    scalars = read_parameters(stage, parameters)
    config_path, out = find_config(str(scalars.pop("config"))), Path(str(scalars.pop("out")))
    plan = load_plan(config_path, str(scalars.pop("settings")))
    make_importable(plan)
    if stage not in plan.pipeline:
        after = next(name for name in STAGES[STAGES.index(stage) :] if name in plan.pipeline)
        raise ConfigError(
            f"{plan.path.name} has no distill section, so this run trains, prunes and tunes nothing: continue with "
            f"{notebook_name(after)}, or name distill.student"
        )
    winning = overrides(stage, scalars, plan, injected(parameters.get("In")))
    section = {**plan.section(stage), **beside(plan.path, winning)}
    options = parse_stage(stage, section, for_stage(stage, plan.run, shared_options(plan.run)))
    options.check_consistency()
    plan = replace(plan, stages={**plan.stages, stage: options})
    folder = run_folder(plan, out, config_path)
    sign = fingerprint(plan.data)
    data = load_data(plan.data)
    check_sample_counts(data, {stage: section})
    if stage != "benchmark":
        data = data.withhold_test()
    source = _source(stage, plan, data, folder)
    state.remember_data(plan, folder, data.digest, sign)
    return OpenStage(stage, plan, options, folder, source, data)


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


_digests: dict[str, str | None] = {}
"""Source digests of the user's builders when this process first used them."""


def _as_imported(builders: dict[str, str | None]) -> None:
    """StageError where a kernel still holds the code that a file had before it was edited."""
    for name, sha in builders.items():
        if cache_key.top_module(name) in sys.modules and _digests.get(name, sha) != sha:
            raise StageError(
                f"{name}: its source was edited after this kernel imported it; restart the kernel and run it again"
            )
        _digests[name] = sha


@contextmanager
def _alone(folder: Path, stage: str) -> Iterator[None]:
    """Nobody else writes to this run meanwhile; a kernel of `edgekit run` stands under that command's lock."""
    who = f"a notebook that runs stage {stage}"
    with ExitStack() as held:
        if os.environ.get(COMMAND) != str(os.getppid()):
            held.enter_context(lock.hold(folder / RUN_LOCK, who))
        held.enter_context(lock.hold(folder / STAGE_LOCK, who, ORPHAN_S))  # the kernel of a killed run may linger
        yield


def _source(stage: str, plan: Plan, data: Data, folder: Path) -> Artifact:
    """The artifact that `stage` reads, its chain of parents checked; says where that chain is not the config's."""
    if stage == STAGES[0]:
        with _alone(folder, stage):
            return origin.make(plan, data.digest, folder)
    before = plan.pipeline[plan.pipeline.index(stage) - 1]
    if not (folder / before / artifacts.RECORD).is_file():
        raise StageError(f"{folder}: no finished stage {before!r} here; run {notebook_name(before)} first")
    source = artifacts.load(folder / before)
    if source.data_digest != data.digest:
        raise StageError(
            f"{source.stage} in {folder} was made from other data (digest {source.data_digest[:12]}, "
            f"now {data.digest[:12]}); run the workbook from 01_profile again"
        )
    for ancestor in (source.ancestor(name) for name in plan.pipeline[: plan.pipeline.index(stage)]):
        parent = source.ancestor((origin.STAGE, *plan.pipeline)[plan.pipeline.index(ancestor.stage)])
        now = state.cache_inputs(plan, folder, ancestor.stage, parent, data.digest)
        for change in cache_key.describe_changes(ancestor.cache_inputs, now):
            print(f"{ancestor.stage}/ is stale: {change} since it was sealed; `edgekit run` would re-run it")
    return source


def _show(value: Any) -> str:
    return json.dumps(value, default=lambda section: section.model_dump(), ensure_ascii=False)
