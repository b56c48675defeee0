"""The command `edgekit init`: write a config and a short notebook for the user's data, and check them against it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.core.config import suggest
from edgekit.core.errors import ConfigError
from edgekit.core.paths import expand_path
from edgekit.core.tasks import FILE_TASKS, TASKS, Task, load_task
from edgekit.runner.files import make_folder, write_atomically
from edgekit.workbook.config_file import RunConfig

if TYPE_CHECKING:
    from edgekit.cli.init.config import ConfigDraft
    from edgekit.cli.init.inspection import Findings
    from edgekit.cli.init.model_config import ModelDraft
    from edgekit.data import Data

MAX_LISTED_CLASSES = 8
"""Number of classes that are listed in the output."""


@dataclass(frozen=True)
class ModelOptions:
    """A model file for which a config is written.

    `preprocess` names the way in which the model's input is scaled, and `head` the detector whose outputs it has; by
    default the data decide. `drop_pp` is the limit on the accuracy drop; by default it is derived from the data.
    `targets` are the targets that the config requires; if there are none, the run converts to every possible target.
    """

    path: str
    preprocess: str | None = None
    drop_pp: float | None = None
    targets: tuple[str, ...] = ()
    head: str | None = None

    @property
    def absolute(self) -> Path:
        """The absolute path, with variables expanded."""
        return Path(os.path.abspath(expand_path(self.path, "--model")))


def create_project(
    name: str,
    task: Task | None,
    data: str | None,
    out: Path,
    *,
    force: bool,
    say: Callable[[str], None],
    model: ModelOptions | None = None,
) -> Path:
    """Write NAME.yaml and NAME.ipynb into `out`, either both or neither, and return the path of NAME.yaml.

    What was found in the data is printed.

    Without a task, it is chosen from the data: detection for boxes, segmentation for masks, otherwise classification.
    With a `model`, the config uses this file, and nothing is trained.

    Raises
    ------
    ConfigError
        The name, the task or a path cannot be used.
    DataError
        No source can read the data.
    """
    from edgekit.cli.init import config_check, notebook, sizes
    from edgekit.cli.init.config import describe_sizes
    from edgekit.cli.init.source_detection import detect_source

    _check_name(name)
    if task is not None and task not in TASKS:
        raise ConfigError(f"--task {task}: no such task, {suggest(task, TASKS)}")
    config, notebook_path = out / f"{name}.yaml", out / f"{name}.ipynb"
    if not force:
        _refuse_to_overwrite(config, notebook_path)
    data_path = _data_path(data, out)
    findings = detect_source(data_path, task)
    if (
        data is not None
        and data_path is not None
        and (subpath := os.path.relpath(findings.section["path"], data_path)) != "."
    ):
        data, data_path = os.path.join(data, subpath), data_path / subpath  # the folder holds a table, which is used
    path_in_config = _path_in_config(data, data_path, out)
    draft: ConfigDraft | ModelDraft
    if model is None:
        if task in FILE_TASKS:
            raise ConfigError(f"--task {task}: edgekit trains no network for it; name a model file, --model FILE")
        task = task or findings.task
        config_check.check_task(task, findings)
        draft = config_check.draft_config(name, task, findings, path_in_config)
    else:
        draft = _draft_for_file(name, task, findings, model, path_in_config, out)
    text = draft.text()
    config_check.check_config(text, findings.section, draft.data, model.absolute if model else None)
    say(f"found  {draft.findings.description}")
    say(f"       {describe_sizes(draft.sizes)}; {_describe_labels(draft.data)}")
    for note in draft.data.notes:
        say(f"       {note}")
    if load_task(draft.task).AT_MOST_ONE and (warning := sizes.small_validation_warning(draft.sizes)):
        say(f"       {warning}")
    for line in _describe_preprocess(draft):
        say(line)
    make_folder(out.absolute())
    if not force:
        _refuse_to_overwrite(config, notebook_path)
    notebook_text = notebook.notebook_text(name, config.absolute(), draft.findings.description, draft.data.kind)
    _write_both({config: text.encode(), notebook_path: notebook_text.encode()})
    say(f"wrote  {config} and {notebook_path}")
    return config


def _draft_for_file(
    name: str,
    task: Task | None,
    findings: Findings,
    model: ModelOptions,
    data_in_config: str | None,
    out: Path,
) -> ModelDraft:
    from edgekit.cli.init.model_config import draft_model_config
    from edgekit.models.files import file_facts

    path = model.absolute
    with file_facts.FileProcess(path) as process:
        facts = file_facts.read(process)
        model_in_config = _path_in_config(model.path, path, out)
        assert model_in_config is not None
        return draft_model_config(
            name,
            task,
            findings,
            facts,
            process,
            (data_in_config, model_in_config),
            preprocess=model.preprocess,
            head=model.head,
            drop_pp=model.drop_pp,
            targets=model.targets,
        )


def _describe_preprocess(draft: ConfigDraft | ModelDraft) -> list[str]:
    """Return the lines about a model file: the chosen preprocessing, the next best scale, and its outputs.

    The list is empty if the config trains a network instead.
    """
    from edgekit.cli.init.model_config import ModelDraft

    if not isinstance(draft, ModelDraft):
        return []
    chosen, metric = draft.chosen, load_task(draft.task).METRIC
    others = [each for each in draft.ranking[1:] if each.chain.scale != chosen.chain.scale]
    beside = f"; next {others[0].accuracy:.1%} with {others[0].chain.scale}" if others else ""
    lines = [f"input  {chosen.chain.name}: {metric} {chosen.accuracy:.1%} on {len(chosen.results)} of train{beside}"]
    if note := draft.geometry_note:
        lines.append(f"       {note}")
    if chosen.reading:
        name = f"{chosen.reading.head}: " if chosen.head else ""
        lines.append(f"head   {name}{chosen.reading.description}")
    return lines


def _check_name(name: str) -> None:
    pattern = next(
        constraint.pattern for constraint in RunConfig.model_fields["name"].metadata if hasattr(constraint, "pattern")
    )
    if not re.fullmatch(pattern, name):
        suggestion = re.sub(r"[^a-z0-9_-]+", "-", name.lower().removesuffix(".yaml")).strip("-_")[:64]
        hint = f", for example {suggestion!r}" if suggestion else ""
        raise ConfigError(f"name: got {name!r}; use up to 64 of a-z, 0-9, - and _, a letter or digit first{hint}")


def _refuse_to_overwrite(*files: Path) -> None:
    if existing := [str(file) for file in files if file.exists()]:
        verb = "is" if len(existing) == 1 else "are"
        raise ConfigError(
            f"{' and '.join(existing)} {verb} already there; choose another name or folder (--out), or let --force "
            "overwrite both files"
        )


def _data_path(data: str | None, out: Path) -> Path | None:
    """Return the absolute path of the data.

    Raises
    ------
    ConfigError
        The output folder is inside the data, so a run would write there.
    """
    if data is None:
        return None
    path = Path(os.path.abspath(expand_path(data, "--data")))
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"--data: got {data!r}; its name is not UTF-8, but a config is written in UTF-8; rename it"
        ) from None
    if path.is_dir() and out.resolve().is_relative_to(path.resolve()):
        raise ConfigError(
            f"--out {out}: is inside the data, {path}, but a run must not write there; name a folder outside the "
            f"data, such as --out {os.path.relpath(path.parent)}"
        )
    return path


def _path_in_config(data: str | None, path: Path | None, out: Path) -> str | None:
    """Return the path to write into the config, with unexpanded variables.

    The path is relative to the config if the data are below the config's folder or its parent, so that both can be
    moved together. A parent that is a home folder or the root of the file system does not count, because such a folder
    holds unrelated files.
    """
    if data is None or path is None:
        return None
    if "${" in data and path.is_absolute() and os.path.isabs(expand_path(data, "--data")):
        return data
    config_folder = Path(os.path.abspath(out))
    if path.is_relative_to(config_folder):
        relative = path.relative_to(config_folder).as_posix()
        return f"./{relative}" if relative[0] in "~$" else relative
    # Links are resolved first, because the .. of a linked folder is not the folder that holds the link.
    config_folder, resolved = config_folder.resolve(), path.parent.resolve() / path.name
    parent = config_folder.parent
    if parent in (Path(parent.anchor), Path.home().resolve()) or not resolved.is_relative_to(parent):
        return str(path)
    return f"../{resolved.relative_to(parent).as_posix()}"


def _write_both(files: Mapping[Path, bytes]) -> None:
    """Write all files or none. If one cannot be written, the earlier contents are restored."""
    previous = {path: path.read_bytes() if path.exists() else None for path in files}
    try:
        for path, content in files.items():
            write_atomically(path, content)
    except BaseException:
        for path, earlier in previous.items():
            if earlier is not None:
                write_atomically(path, earlier)
            else:
                path.unlink(missing_ok=True)
        raise


def _describe_labels(data: Data) -> str:
    listed = ", ".join(data.classes[:MAX_LISTED_CLASSES]) + (", …" if len(data.classes) > MAX_LISTED_CLASSES else "")
    return f"{len(data.classes)} {load_task(data.task).OUTPUTS_NAME}: {listed}"
