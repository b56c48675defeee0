"""`edgekit init`: write a config and a short notebook that fit the user's data, and check them against it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.core.config import suggest
from edgekit.core.errors import ConfigError
from edgekit.core.tasks import TASKS, load_task
from edgekit.data.paths import expand_path
from edgekit.runner.files import make_folder, write_atomically
from edgekit.workbook.config_file import RunConfig

if TYPE_CHECKING:
    from edgekit.data import Data

SHOWN = 8
"""Classes that are listed in the output."""


def start(name: str, task: str | None, data: str | None, out: Path, *, force: bool, say: Callable[[str], None]) -> None:
    """Write NAME.yaml and NAME.ipynb into `out`, both or neither, and print what was found.

    Without a task it is the one that the data mean: of boxes detection, of masks segmentation, else classification.

    Raises ConfigError for a name, a task or a place that will not do, DataError for data that no source reads.
    """
    from edgekit.cli.init import dry_run, notebook, sizes
    from edgekit.cli.init.config import describe_sizes
    from edgekit.cli.init.detect import detect

    _check_name(name)
    if task is not None and task not in TASKS:
        raise ConfigError(f"--task {task}: no such task, {suggest(task, TASKS)}")
    config, pages = out / f"{name}.yaml", out / f"{name}.ipynb"
    if not force:
        _refuse_to_overwrite(config, pages)
    path = _place(data, out)
    found = detect(path, task)
    if data is not None and path is not None and (inside := os.path.relpath(found.section["path"], path)) != ".":
        data, path = os.path.join(data, inside), path / inside  # a table in the folder that was named
    task = task or found.task
    dry_run.check_task(task, found)
    draft = dry_run.draft(name, task, found, _written(data, path, out))
    text = draft.text()
    dry_run.check(text, found.section, draft.data)
    say(f"found  {draft.findings.words}")
    say(f"       {describe_sizes(draft.sizes)}; {_labels(draft.data)}")
    for note in draft.data.notes:
        say(f"       {note}")
    if load_task(task).AT_MOST_ONE and (little := sizes.small_validation_warning(draft.sizes)):
        say(f"       {little}")
    make_folder(out.absolute())
    if not force:
        _refuse_to_overwrite(config, pages)
    shown = notebook.text(name, config.absolute(), draft.findings.words, draft.data.kind)
    _write_both({config: text.encode(), pages: shown.encode()})
    say(f"wrote  {config} and {pages}")
    say(f"next   edgekit run {config} --dry-run, then edgekit run {config}; or open {pages.name} in JupyterLab")


def _check_name(name: str) -> None:
    pattern = next(found.pattern for found in RunConfig.model_fields["name"].metadata if hasattr(found, "pattern"))
    if not re.fullmatch(pattern, name):
        plain = re.sub(r"[^a-z0-9_-]+", "-", name.lower().removesuffix(".yaml")).strip("-_")[:64]
        instead = f", for example {plain!r}" if plain else ""
        raise ConfigError(f"name: got {name!r}; use up to 64 of a-z, 0-9, - and _, a letter or digit first{instead}")


def _refuse_to_overwrite(*files: Path) -> None:
    if there := [str(file) for file in files if file.exists()]:
        verb = "is" if len(there) == 1 else "are"
        raise ConfigError(
            f"{' and '.join(there)} {verb} already there; choose another name or folder (--out), or let --force "
            "overwrite both files"
        )


def _place(data: str | None, out: Path) -> Path | None:
    """Where the data lie, absolute; ConfigError where what a run writes would lie among them."""
    if data is None:
        return None
    path = Path(os.path.abspath(expand_path(data, "--data")))
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"--data: got {data!r}; its name is not UTF-8, which a config is written in; rename it"
        ) from None
    if path.is_dir() and out.resolve().is_relative_to(path.resolve()):
        raise ConfigError(
            f"--out {out}: lies inside the data, {path}, and what a run writes must not; name a folder outside, such "
            f"as --out {os.path.relpath(path.parent)}"
        )
    return path


def _written(data: str | None, path: Path | None, out: Path) -> str | None:
    """The path as it stands in the config, variables unexpanded.

    Relative to the config where the data lie beneath its folder, or beneath the folder around that: what is moved
    together stays together. That folder may be somebody's home, which holds what does not belong together.
    """
    if data is None or path is None:
        return None
    if "${" in data and path.is_absolute() and os.path.isabs(expand_path(data, "--data")):
        return data
    home = Path(os.path.abspath(out))
    if path.is_relative_to(home):
        beneath = path.relative_to(home).as_posix()
        return f"./{beneath}" if beneath[0] in "~$" else beneath
    home, real = home.resolve(), path.parent.resolve() / path.name  # behind a link, .. leads elsewhere
    around = home.parent
    if around in (Path(around.anchor), Path.home().resolve()) or not real.is_relative_to(around):
        return str(path)
    return f"../{real.relative_to(around).as_posix()}"


def _write_both(files: Mapping[Path, bytes]) -> None:
    """All of them or none: what was there comes back where one cannot be written."""
    before = {path: path.read_bytes() if path.exists() else None for path in files}
    try:
        for path, content in files.items():
            write_atomically(path, content)
    except BaseException:
        for path, old in before.items():
            if old is not None:
                write_atomically(path, old)
            else:
                path.unlink(missing_ok=True)
        raise


def _labels(data: Data) -> str:
    shown = ", ".join(data.classes[:SHOWN]) + (", …" if len(data.classes) > SHOWN else "")
    return f"{len(data.classes)} {load_task(data.task).OUTPUTS_NAME}: {shown}"
