"""Run a study: load the search space, open the pool of workers, search batch by batch and print the Pareto front."""

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
from edgekit.core.progress import write_to_stderr
from edgekit.core.schema.study import StudyRow
from edgekit.core.terminal_progress import ProgressDisplay
from edgekit.report.search import page, terminal
from edgekit.report.search.studies import FILE, read
from edgekit.report.search.words import STATES
from edgekit.runner.files import make_folder, write_atomically
from edgekit.search import builtin_spaces, progress
from edgekit.search.evaluator import Evaluator
from edgekit.search.measurement import check_replay
from edgekit.search.space import Space
from edgekit.search.study import SearchedConfig, StudyState, search
from edgekit.workbook.plan import Plan, load_plan, make_importable
from edgekit.workbook.run import as_resource_error, sigterm_as_interrupt
from edgekit.workbook.shared_cache import open_cache
from edgekit.workbook.shared_cache.run_caches import cache_urls
from edgekit.workbook.workers import limit_to_cores, open_pool
from edgekit.workbook.workers.scheduler import parse_address


def batch_lines(row: StudyRow) -> Iterator[str]:
    """Yield lines about the last batch: how its trials ended, and the size of the front."""
    batch = row["batches"][-1]
    trials = [trial for trial in row["trials"] if trial["batch"] == batch["number"]]
    counts = Counter(trial["state"] for trial in trials)
    outcomes = ", ".join(f"{number} {STATES[state]}" for state, number in counts.items())
    points = f"{len(row['front'])} {'point' if len(row['front']) == 1 else 'points'} on the front"
    yield f"batch {batch['number'] + 1}: {outcomes}; {points}"
    for trial in trials:
        if trial["state"] == "failed":
            yield f"  trial {trial['number']} failed: {trial['reason']}"
    if batch["disturbed"]:
        yield "  its latencies are noisy although they were measured again, so trust their intervals less"


DEFAULT_TRIALS = 32
"""Number of trials if neither trials nor minutes are given."""
SPACE, LOG = "space.yaml", "search.log"
SPACE_HEADER = "# The space of this study, with what `edgekit search` added. Edit a copy and give it with --space.\n"

Say = Callable[[str], None]


@dataclass(frozen=True)
class SearchRequest:
    """The options of the command."""

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


def run(request: SearchRequest, say: Say) -> bool:
    """Search and print the front. Returns False if no trial met the budget.

    Raises
    ------
    ConfigError
        An option, the config or the space is invalid. Nothing is written then.
    """
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("search needs Optuna, which is not installed: pip install optuna")
    plan = load_plan(request.config, request.settings)
    make_importable(plan)
    if "distill" not in plan.pipeline:
        raise ConfigError(
            f"{plan.path.name} has no distill section, so there is no student to search for; set distill.student in "
            f"the config, or with --set distill.student.builder=package.module:function"
        )
    space, text = _load_space(request, plan)
    if request.replay:
        check_replay(request.replay)
    caches = cache_urls(request.caches)
    for url in caches:
        open_cache(url)  # reports a malformed URL before any work is done
    if request.on is not None:
        parse_address(request.on)
    folder = request.out / f"{plan.run.name}-search"
    try:
        make_folder(folder)
    except OSError as error:
        raise ResourceError(
            f"{folder}: cannot write here ({error.strerror}); choose another folder with --out"
        ) from None
    with as_resource_error(folder), sigterm_as_interrupt(), ProgressDisplay(folder) as watch:
        study = _search(request, plan, space, text, folder, caches, watch, say)
    page.try_write_page(folder / FILE, say)
    console, study_page = Console(width=None if sys.stdout.isatty() else 120), read(folder)
    if request.verbose:
        terminal.print_study(study_page, console)
        console.print()
    terminal.print_summary(study_page, console, study.digest)
    return bool(study.row["front"])


def _search(
    request: SearchRequest,
    plan: Plan,
    space: Space,
    text: str,
    folder: Path,
    caches: list[str],
    watch: ProgressDisplay,
    say: Say,
) -> StudyState:
    trials = DEFAULT_TRIALS if request.trials is None and request.minutes is None else request.trials
    workers, warning = limit_to_cores(request.workers, [plan.run.threads])
    if warning:
        write_to_stderr(f"edgekit: {warning}")
    with (
        open(folder / LOG, "a", encoding="utf-8") as log,
        watch.during("search", quietly=True),
        progress.show_progress(trials, request.minutes) as reporter,
        open_pool(workers, request.on, folder, say=partial(_write_log, log)) as pool,
    ):
        evaluator = Evaluator(plan, folder, space.objectives, pool, caches, request.replay)
        start_point = space.parameters_of_config(plan.values)
        return search(
            space,
            space.objectives,
            evaluator,
            subject=SearchedConfig(plan.run.name, str(plan.path), plan.values, plan.run.budget.model_dump()),
            folder=folder,
            seed=request.seed,
            batch=request.batch,
            trials=trials,
            minutes=request.minutes,
            first=[start_point] if start_point else [],
            on_batch=partial(_on_batch, folder, text, reporter, partial(watch.say, say=say)),
        )


def _on_batch(folder: Path, text: str, reporter: progress.SearchProgress, say: Say, row: StudyRow) -> None:
    if not (folder / SPACE).is_file():
        write_atomically(folder / SPACE, (SPACE_HEADER + text).encode())
    reporter(row)
    for line in batch_lines(row):
        say(line)
    page.try_write_page(folder / FILE, say)


def _write_log(log: Any, name: str, line: str) -> None:
    """Write a line of a job to the log of the study."""
    log.write(f"{name} · {line}\n")
    log.flush()


def _load_space(request: SearchRequest, plan: Plan) -> tuple[Space, str]:
    """Return the space, completed with everything that a trial needs, and its text.

    Raises
    ------
    ConfigError
        The space does not fit the config.
    """
    values = yaml_file.read(request.space) if request.space else builtin_spaces.space_for_config(plan)
    name = request.space.name if request.space else SPACE
    text = yaml.safe_dump(builtin_spaces.complete_space(values, plan), sort_keys=False, width=120)
    with tempfile.TemporaryDirectory(prefix="edgekit-space-") as folder:
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8")
        space = Space.load(path, plan.values)

    def load(settings: Sequence[str]) -> Plan:
        return load_plan(plan.path, [*request.settings, *settings], checked_before=True)

    space.check(load)
    return space, text
