"""The functions with which a notebook opens a stage and runs it. The stage gets the values of the parameters cell.

Every notebook opens its stage with `open_stage`. A notebook therefore leaves the same artifact whether it is run by
hand, by papermill or by `edgekit run`.
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
    check_sample_counts,
    is_scalar,
    own_fields,
    parse_stage,
    resolve_paths,
    shared_options,
    stage_config,
    stage_shared_options,
)
from edgekit.workbook.plan import DEFAULT_CONFIG, Plan, load_plan, make_importable, workbook_folder

COMMON_PARAMETERS = ("config", "out", "settings")
INJECTED_CELL_START = "# Parameters\n"
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
        A parameter is not an option of the stage, or one of `COMMON_PARAMETERS` is not a string.
    """
    allowed = [*COMMON_PARAMETERS, *own_fields(stage_config(stage))]
    assigned_names = _parameter_names(namespace.get("In"))
    values = {
        name: value
        for name, value in namespace.items()
        if not name.startswith("_") and (is_scalar(value) or name in (assigned_names or ()))
    }
    if assigned_names is not None:
        values = {name: value for name, value in values.items() if name in assigned_names or name in allowed}
    refuse_secrets(values)
    for name in values:
        if name not in allowed:
            raise ConfigError(f"{name}: stage {stage} has no such parameter, {suggest(name, allowed)}")
    for name in COMMON_PARAMETERS:
        if not isinstance(values.setdefault(name, _COMMON_DEFAULTS[name]), str):
            raise ConfigError(f"{name}: got {values[name]!r}; give a string")
    return values


def refuse_unknown_parameters(namespace: Mapping[str, Any], allowed: Sequence[str]) -> None:
    """Refuse parameters that papermill passed to a notebook without a stage, if the notebook does not have them.

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
    for name in sorted(injected_parameters(namespace.get("In")) - set(allowed)):
        raise ConfigError(f"{name}: this notebook has no such parameter, {suggest(name, allowed)}")


def declared_parameters(notebook: Path) -> set[str]:
    """Return the names in a notebook's parameters cell, or an empty set if it has no such cell."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if "parameters" in cell["metadata"].get("tags", ()):
            return _assigned_names("".join(cell["source"]))
    return set()


def _parameter_names(history: Any) -> set[str] | None:
    """Return the names assigned in cells that hold parameters, from IPython's history, or None outside of a notebook.

    These are the cells that ran before the stage was first opened, and later ones that assign `config`. Names that
    other cells assign are ignored, so that a notebook can be run again from any cell.
    """
    if not isinstance(history, list):
        return None
    names: set[str] = set()
    opened = False
    for source in history:
        assigned = _assigned_names(source)
        if not opened or "config" in assigned:
            names |= assigned
        opened = opened or "open_stage(" in source
    return names


def injected_parameters(history: Any) -> set[str]:
    """Return the names in the cell that papermill adds for its parameters, as in `papermill -p ratio 0.5`."""
    cells = [source for source in history or () if source.lstrip().startswith(INJECTED_CELL_START)]
    return set().union(*(_assigned_names(source) for source in cells))


def _assigned_names(source: str) -> set[str]:
    try:
        body = ast.parse(source).body
    except SyntaxError:  # an IPython magic
        return set()
    targets: list[ast.expr] = [node.target for node in body if isinstance(node, ast.AnnAssign)]
    targets += [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def winning_parameters(stage: str, scalars: dict[str, Any], plan: Plan, injected: set[str]) -> dict[str, Any]:
    """Return the parameters that override the config.

    If a parameter and the config differ, a printed line says which value is used. A parameter that still has the
    default of the workbook's parameters cell takes its value from the config, unless it was passed to papermill
    (`injected`). A parameter that is not in that cell was added by the user, so it always overrides the config.
    """
    defaults = load_plan(DEFAULT_CONFIG).scalars(stage) if DEFAULT_CONFIG.is_file() else {}
    unmodified = declared_parameters(workbook_folder("notebooks") / notebook_name(stage)) - injected
    configured = plan.scalars(stage)
    parameters = {}
    for name, value in scalars.items():
        comparison = f"{stage}.{name} is {value} in this cell and {configured.get(name)} in {plan.path.name}"
        if name in configured and _is_same_value(value, configured[name]):
            continue
        if name in unmodified and name in defaults and _is_same_value(value, defaults[name]):
            print(f'{comparison}: the config wins, because the cell is unmodified (or force it with settings = "…")')
            continue
        if name in configured:
            print(f"{comparison}: the cell wins")
        parameters[name] = value
    return parameters


def _is_same_value(first: object, second: object) -> bool:
    return type(first) is type(second) and first == second


telemetry.disable()  # in a kernel this is the first edgekit module to be imported
os.environ.update(subprocesses.openmp_wait())  # for kernels that `edgekit run` did not start

RUN_LOCK = ".lock"
STAGE_LOCK = ".stage.lock"
ORPHAN_S = 20.0
"""Seconds to wait for the stage's lock, which the kernel of a killed run may still hold for a while."""
RUN_PROCESS_VARIABLE = "EDGEKIT_RUN"
"""Environment variable with the id of the `edgekit run` process that started this kernel and holds the run's lock."""
FORCE_VARIABLE = "EDGEKIT_FORCE"
"""Environment variable with the stage to run again although its key is unchanged."""


@dataclass(frozen=True)
class OpenStage:
    """A stage that is ready to run, returned by `open_stage`.

    Attributes
    ----------
    name : str
        Name of the stage.
    plan : Plan
        The checked config, with the parameters of the notebook applied.
    config : StageConfig
        The options of the stage.
    folder : Path
        Folder of the run.
    source : Artifact
        The artifact that the stage reads.
    data : Data
        The samples and labels. Only the benchmark stage sees the test split.
    """

    name: str
    plan: Plan
    config: StageConfig
    folder: Path
    source: Artifact
    data: Data

    @property
    def out(self) -> Path:
        """Folder of this stage's artifact."""
        return stage_folder(self.folder, self.name)

    def run(self) -> Artifact:
        """Run the stage, or return its artifact if nothing that it depends on has changed.

        Raises
        ------
        EdgekitError
            The stage failed. The message says what to do, and no artifact is sealed.
        """
        with _exclusive(self.folder, self.name):
            expected = state.cache_inputs(self.plan, self.folder, self.name, self.source, self.data.digest)
            working = working_folder(self.folder, self.name)
            artifacts.recover(working, self.out, expected.key)
            status, reasons, artifact = state.check_artifact(self.out, expected)
            if status == "unchecked" and artifact is not None and os.environ.get(FORCE_VARIABLE) != self.name:
                print(f"{self.name}: reused, its key {expected.key[:12]} is unchanged ({self.out.name}/)")
                return artifact
            if reasons:
                print(f"{self.name}: {'; '.join(reasons)}")
            return self._run_module(working, expected)

    def _run_module(self, working: Path, expected: cache_key.CacheInputs) -> Artifact:
        module = importlib.import_module(f"edgekit.stages.{self.name}")
        baseline = self.plan.run.model.builder
        source_digests = {**({baseline: cache_key.source_digest(baseline)} if baseline else {}), **expected.builders}
        _check_imported_code(source_digests)
        if os.environ.get(FORCE_VARIABLE) == self.name:
            resume.remove(self.folder, self.name)
            resume.remove_teacher_cache(self.folder)
        try:
            with progress.step(self.name), lane.computing():
                artifact = module.run(self.source, self.data, self.config, working)
            changes = cache_key.describe_changes(expected, artifact.cache_inputs)
            changes += [
                f"source of {name}" for name, sha in source_digests.items() if cache_key.source_digest(name) != sha
            ]
            if changes:
                changed = "; ".join(dict.fromkeys(changes))
                raise StageError(f"{self.name}: its inputs changed while it ran: {changed}; run it again")
        except BaseException as error:
            shutil.rmtree(working, ignore_errors=True)
            if isinstance(error, EdgekitError):
                error.args = (origin.with_user_paths(str(error), self.plan, self.folder),)
            raise
        published = artifacts.publish(working, self.out)
        resume.remove(self.folder, self.name)
        print(f"{self.name}: done in {published.took['seconds']:.1f} s, sealed as {published.digest[:12]}")
        return published

    def options(self) -> list[tuple[str, str, str, str]]:
        """Return a row for each option: name, current value, the default if it differs, and the description."""
        rows = []
        for name in own_fields(type(self.config)):
            field, value = type(self.config).model_fields[name], getattr(self.config, name)
            default = value if field.is_required() else field.get_default(call_default_factory=True)
            rows.append((name, _as_json(value), "" if value == default else _as_json(default), field.description or ""))
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
        """Return the HTML for a notebook: a headline and a collapsed table of all options."""
        headline = " · ".join(f"{name} <strong>{html.escape(value)}</strong>" for name, value in self._headline)
        cell = 'td style="text-align:left"'  # Jupyter aligns the cells of a table to the right
        rows = "".join(
            f"<tr><{cell}><code>{name}</code></td><{cell}><code>{html.escape(value)}</code>"
            f"{f' (default <code>{html.escape(default)}</code>)' if default else ''}</td>"
            f"<{cell}>{html.escape(meaning)}</td></tr>"
            for name, value, default, meaning in self.options()
        )
        hint = (
            "To change an option, add a line for it to the parameters cell, pass it to papermill with <code>-p</code>, "
            f'or write <code>settings = "{self.name}.OPTION=VALUE"</code>.'
        )
        headings = "".join(f"<{cell}>{name}</td>" for name in ("option", "value in force", "what it does"))
        return (
            f"<p>{headline}</p><details><summary>All options of {self.name}</summary><p>{hint}</p><table><thead><tr>"
            f"{headings}</tr></thead><tbody>{rows}</tbody></table>"
            "</details>"
        )

    def _repr_markdown_(self) -> str:
        """Return Markdown for the page of a report, which does not show a notebook's HTML."""
        headline = " · ".join(f"{name} **{value}**" for name, value in self._headline)
        rows = [(name, value.replace("|", "\\|")) for name, value, _, _ in self.options()]
        table = "\n".join(f"| `{name}` | `{value}` |" for name, value in rows)
        return f"{headline}\n\n| option | value in force |\n|---|---|\n{table}"

    def __repr__(self) -> str:
        return f"<{self.name} of run {self.plan.run.name}, reads {self.source.stage}>"


def open_stage(stage: str, parameters: Mapping[str, Any]) -> OpenStage:
    """Open a stage with the parameters of a notebook.

    A parameter overrides the config if it was passed to papermill, or if its value differs from the default of the
    workbook's parameters cell. A parameter that was not changed takes its value from the config. If a parameter and the
    config differ, a printed line says which value is used.

    Parameters
    ----------
    stage
        `"profile"`, `"distill"`, `"prune"`, `"quantize"`, `"convert"`, `"benchmark"` or `"bundle"`.
    parameters
        `globals()` of the notebook, or a mapping with `config`, `out`, `settings` and options of the stage.

    Returns
    -------
    OpenStage
        Call its method `run` to run the stage.

    Raises
    ------
    ConfigError
        A parameter is unknown or invalid.
    StageError
        The previous stage has not been run.

    Examples
    --------
    >>> from edgekit.workbook.stage import open_stage
    >>> stage = open_stage("profile", {"config": "configs/digits.yaml"})
    >>> stage
    <profile of run digits, reads origin>
    >>> stage.config.batch_size
    32
    """
    scalars = read_parameters(stage, parameters)
    config_path, out = find_config(str(scalars.pop("config"))), Path(str(scalars.pop("out")))
    plan = load_plan(config_path, str(scalars.pop("settings")))
    make_importable(plan)
    if stage not in plan.pipeline:
        next_stage = next(name for name in STAGES[STAGES.index(stage) :] if name in plan.pipeline)
        raise ConfigError(
            f"{plan.path.name} has no distill section, so this run trains, prunes and tunes nothing: continue with "
            f"{notebook_name(next_stage)}, or name distill.student"
        )
    explicit = winning_parameters(stage, scalars, plan, injected_parameters(parameters.get("In")))
    section = {**plan.section(stage), **resolve_paths(plan.path, explicit)}
    options = parse_stage(stage, section, stage_shared_options(stage, plan.run, shared_options(plan.run)))
    options.check_consistency()
    plan = replace(plan, stages={**plan.stages, stage: options})
    folder = run_folder(plan, out, config_path)
    data_fingerprint = fingerprint(plan.data)
    data = load_data(plan.data)
    check_sample_counts(data, {stage: section})
    if stage != "benchmark":
        data = data.withhold_test()
    source = _source_artifact(stage, plan, data, folder)
    state.remember_data(plan, folder, data.digest, data_fingerprint)
    return OpenStage(stage, plan, options, folder, source, data)


def find_config(name: str) -> Path:
    """Find a config in the current folder or one above it, because notebooks may be started from any of them."""
    path = Path(name).expanduser()
    if path.is_absolute():
        return path
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / path).is_file():
            return folder / path
    return path


def run_folder(plan: Plan, out: Path, config_path: Path) -> Path:
    """Return `out`/NAME.

    A relative `out` is replaced by the environment variable EDGEKIT_ARTIFACTS if that is set. Otherwise, it starts at
    the folder of the config or, if that folder is called `configs`, at the folder above.
    """
    if not out.is_absolute():
        config_folder = config_path.resolve().parent
        environment_folder = os.environ.get("EDGEKIT_ARTIFACTS")
        out = (
            Path(environment_folder)
            if environment_folder
            else (config_folder.parent if config_folder.name == "configs" else config_folder) / out
        )
    return out / plan.run.name


_builder_digests: dict[str, str | None] = {}
"""Digests of the user's builders when this process first used them."""


def _check_imported_code(builders: dict[str, str | None]) -> None:
    """Check that no builder was edited after this kernel imported it.

    Raises
    ------
    StageError
        The kernel still holds the code from before the edit.
    """
    for name, sha in builders.items():
        if cache_key.top_module(name) in sys.modules and _builder_digests.get(name, sha) != sha:
            raise StageError(
                f"{name}: its source was edited after this kernel imported it; restart the kernel and run it again"
            )
        _builder_digests[name] = sha


@contextmanager
def _exclusive(folder: Path, stage: str) -> Iterator[None]:
    """Hold the locks of the run and of its stage. A kernel of `edgekit run` is covered by the lock of that command."""
    holder = f"a notebook that runs stage {stage}"
    with ExitStack() as locks:
        if os.environ.get(RUN_PROCESS_VARIABLE) != str(os.getppid()):
            locks.enter_context(lock.hold(folder / RUN_LOCK, holder))
        locks.enter_context(lock.hold(folder / STAGE_LOCK, holder, ORPHAN_S))
        yield


def _source_artifact(stage: str, plan: Plan, data: Data, folder: Path) -> Artifact:
    """Return the artifact that `stage` reads. Print a line for each change since it and its ancestors were sealed."""
    if stage == STAGES[0]:
        with _exclusive(folder, stage):
            return origin.make_origin(plan, data.digest, folder)
    previous = plan.pipeline[plan.pipeline.index(stage) - 1]
    if not (folder / previous / artifacts.RECORD).is_file():
        raise StageError(f"{folder}: no finished stage {previous!r} here; run {notebook_name(previous)} first")
    source = artifacts.load(folder / previous)
    if source.data_digest != data.digest:
        raise StageError(
            f"{source.stage} in {folder} was made from other data (digest {source.data_digest[:12]}, "
            f"now {data.digest[:12]}); run the workbook from 01_profile again"
        )
    for ancestor in (source.ancestor(name) for name in plan.pipeline[: plan.pipeline.index(stage)]):
        parent = source.ancestor((origin.STAGE, *plan.pipeline)[plan.pipeline.index(ancestor.stage)])
        current_inputs = state.cache_inputs(plan, folder, ancestor.stage, parent, data.digest)
        for change in cache_key.describe_changes(ancestor.cache_inputs, current_inputs):
            print(f"{ancestor.stage}/ is stale: {change} since it was sealed; `edgekit run` would re-run it")
    return source


def _as_json(value: Any) -> str:
    return json.dumps(value, default=lambda section: section.model_dump(), ensure_ascii=False)
