"""A study from its config to its front: the space, the pool, the batches, and what is said of them."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from edgekit.core import yaml_file
from edgekit.core.errors import ConfigError, ResourceError
from edgekit.core.progress import to_stderr
from edgekit.core.schema.study import StudyRow
from edgekit.core.terminal_progress import Watch
from edgekit.report.search import page, show
from edgekit.report.search.studies import FILE, read
from edgekit.report.search.words import STATES
from edgekit.runner.files import make_folder, write_atomically
from edgekit.search import builtin_spaces, progress
from edgekit.search.evaluate import Evaluator
from edgekit.search.measurement import check_replay
from edgekit.search.space import Space
from edgekit.search.study import Study, Subject, search
from edgekit.workbook.plan import Plan, load_plan, make_importable
from edgekit.workbook.run import as_resource_error, sigterm_as_interrupt
from edgekit.workbook.shared_cache import open_cache
from edgekit.workbook.shared_cache.run_caches import cache_urls
from edgekit.workbook.workers import limit_to_cores, open_pool
from edgekit.workbook.workers.scheduler import parse_address


def batch_line(row: StudyRow) -> Iterator[str]:
    """The last batch: how its trials ended, and the front."""
    last = row["batches"][-1]
    trials = [trial for trial in row["trials"] if trial["batch"] == last["number"]]
    found = Counter(trial["state"] for trial in trials)
    ended = ", ".join(f"{number} {STATES[state]}" for state, number in found.items())
    points = f"{len(row['front'])} {'point' if len(row['front']) == 1 else 'points'} on the front"
    yield f"batch {last['number'] + 1}: {ended}; {points}"
    for trial in trials:
        if trial["state"] == "failed":
            yield f"  trial {trial['number']} failed: {trial['reason']}"
    if last["disturbed"]:
        yield "  its latencies are noisy although they were measured again: trust their intervals less"


TRIALS = 32
"""Where neither trials nor minutes are given."""
SPACE, LOG = "space.yaml", "search.log"
HEAD = "# The space of this study, with what `edgekit search` added. Edit a copy and give it with --space.\n"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """The options of one command."""

    config: Path
    space: Path | None = None
    settings: tuple[str, ...] = ()
    trials: int | None = None
    batch: int = 4
    minutes: float | None = None
    seed: int = 0
    out: Path = Path("artifacts")
    replay: Path | None = None
    workers: int = 1
    on: str | None = None
    caches: tuple[str, ...] = ()
    verbose: bool = False


def run(request: Request, say: Say) -> bool:
    """Search and print the front; False where no trial met the budget.

    Raises
    ------
    ConfigError
        An option, the config or the space is wrong; nothing is written then.
    """
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("search needs Optuna, which is not installed: pip install optuna")
    plan = load_plan(request.config, request.settings)
    make_importable(plan)
    if "distill" not in plan.pipeline:
        raise ConfigError(
            f"{plan.path.name} has no distill section, so there is no student to search for; "
            "name distill.student, or give it by --set distill.student.builder=package.module:function"
        )
    space, text = _space(request, plan)
    if request.replay:
        check_replay(request.replay)
    caches = cache_urls(request.caches)
    for url in caches:
        open_cache(url)  # a fault in there is better told before any work
    if request.on is not None:
        parse_address(request.on)
    folder = request.out / f"{plan.run.name}-search"
    try:
        make_folder(folder)
    except OSError as error:
        raise ResourceError(
            f"{folder}: cannot write here ({error.strerror}); choose another folder with --out"
        ) from None
    with as_resource_error(folder), sigterm_as_interrupt(), Watch(folder) as watch:
        study = _search(request, plan, space, text, folder, caches, watch, say)
    page.draw(folder / FILE, say)
    console, shown = Console(width=None if sys.stdout.isatty() else 120), read(folder)
    if request.verbose:
        show.show(shown, console)
        console.print()
    show.summary(shown, console, study.digest)
    return bool(study.row["front"])


def _search(
    request: Request, plan: Plan, space: Space, text: str, folder: Path, caches: list[str], watch: Watch, say: Say
) -> Study:
    trials = TRIALS if request.trials is None and request.minutes is None else request.trials
    workers, fewer = limit_to_cores(request.workers, [plan.run.threads])
    if fewer:
        to_stderr(f"edgekit: {fewer}")
    with (
        open(folder / LOG, "a", encoding="utf-8") as log,
        watch.during("search", quietly=True),
        progress.shown(trials, request.minutes) as told,
        open_pool(workers, request.on, folder, say=partial(_note, log)) as pool,
    ):
        evaluator = Evaluator(plan, folder, space.objectives, pool, caches, request.replay)
        own = space.point(plan.values)
        return search(
            space,
            space.objectives,
            evaluator,
            subject=Subject(plan.run.name, str(plan.path), plan.values, plan.run.budget.model_dump()),
            folder=folder,
            seed=request.seed,
            batch=request.batch,
            trials=trials,
            minutes=request.minutes,
            first=[own] if own else [],
            on_batch=partial(_on_batch, folder, text, told, partial(watch.say, say=say)),
        )


def _on_batch(folder: Path, text: str, told: progress.Reporter, say: Say, row: StudyRow) -> None:
    if not (folder / SPACE).is_file():
        write_atomically(folder / SPACE, (HEAD + text).encode())
    told(row)
    for line in batch_line(row):
        say(line)
    page.draw(folder / FILE, say)


def _note(log: Any, name: str, line: str) -> None:
    """What a work says goes into the study's log."""
    log.write(f"{name} · {line}\n")
    log.flush()


def _space(request: Request, plan: Plan) -> tuple[Space, str]:
    """The space with what a trial needs beside it, and its text; ConfigError for a space that the config refuses."""
    given = yaml_file.read(request.space) if request.space else builtin_spaces.for_config(plan)
    name = request.space.name if request.space else SPACE
    text = yaml.safe_dump(builtin_spaces.completed(given, plan), sort_keys=False, width=120)
    with tempfile.TemporaryDirectory(prefix="edgekit-space-") as folder:
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8")
        space = Space.load(path, plan.values)

    def load(settings: Sequence[str]) -> Plan:
        return load_plan(plan.path, [*request.settings, *settings], checked_before=True)

    space.check(load)
    return space, text
