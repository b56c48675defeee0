"""A run: which stages are reused and why, the others notebook by notebook, and the verdict at the end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from edgekit import __version__
from edgekit.core import earlier_bundles, lock
from edgekit.core.errors import (
    RESOURCE_ERRNOS,
    BudgetMissed,
    BudgetUnreachable,
    ConfigError,
    EdgekitError,
    ResourceError,
)
from edgekit.core.hashing import write_json
from edgekit.core.schema.result import FORMAT, SCHEMA, Result, validate_result
from edgekit.core.terminal_progress import ProgressDisplay, show_progress
from edgekit.measure import lane
from edgekit.report import html
from edgekit.report import result as results
from edgekit.report.result import RESULT, is_current
from edgekit.runner.files import make_folder
from edgekit.workbook import attempts, preflight, state
from edgekit.workbook.attempts import next_command
from edgekit.workbook.plan import Plan, agree, make_importable
from edgekit.workbook.shared_cache.in_run import RunCaches
from edgekit.workbook.stage import RUN_LOCK
from edgekit.workbook.state import DataDigest, StageState, StageStates

PLAN = ".plan.json"
"""Config and settings of the last run in a folder, for `edgekit status`."""

CHECKED_AHEAD = ("profile", "distill")
"""Stages that open the data and the networks of the config; later stages read what these made."""

Say = Callable[[str], None]


class Ended(NamedTuple):
    """A run at its end, budget met or not; whether anything had to be done, and whether its page is current."""

    result: Result
    anything_done: bool
    drawn: bool


def run(plan: Plan, out: Path, *, force: Collection[str] = (), caches: Sequence[str] = (), say: Say = print) -> Ended:
    """Run the plan to completion; what it measures, it measures alone on the lane of this machine.

    Parameters
    ----------
    plan
        A checked config, from `load_plan`.
    out
        Folder of the runs; this one is made in `out/NAME`.
    force
        Stages to re-run although nothing has changed.
    caches
        URLs of shared caches, see `edgekit.workbook.shared_cache`: the first is asked first.
    say
        Called with each line of progress.

    Raises
    ------
    EdgekitError
        What the failing cell raised.
    """
    folder = out / plan.run.name
    make_importable(plan)
    shared = RunCaches(caches, say)
    found, data = finished(plan, folder) if not force else (None, None)
    if found is not None:
        say("Nothing has changed since this run finished, so every stage is reused.")
        drawn = _redraw(folder, say)
        shared.give_finished(plan, folder, data.digest if data else None)
        return Ended(found, False, drawn)
    agree(plan)
    writable(folder)
    with (
        lack_of_resources(folder),
        lock.hold(folder / RUN_LOCK, f"edgekit run {plan.path.name}"),
        lane.use_machine_folder(),
        sigterm_as_interrupt(),
    ):
        tidy(folder)
        write_json(folder / PLAN, {"config": str(plan.path), "settings": plan.settings})
        with ProgressDisplay(folder) as watch:
            shared.say = partial(watch.say, say=say)
            return _to_the_end(plan, out, folder, force, shared, watch, shared.say, data)


def _to_the_end(
    plan: Plan,
    out: Path,
    folder: Path,
    force: Collection[str],
    shared: RunCaches,
    watch: ProgressDisplay,
    say: Say,
    data: DataDigest | None,
) -> Ended:
    """The stages, then the result and its page."""
    try:
        moved = earlier_bundles.recover(folder, met=_run_stages(plan, out, folder, force, shared, watch, say, data))
    except BudgetUnreachable:  # exit code 3 too: nothing may lie where things ship from
        earlier_bundles.recover(folder, met=False)
        raise
    if moved:
        say(f"Nothing ships, so the bundles of an earlier run were moved to {moved}.")
    with watch.during(f"{RESULT} and {html.PAGE}", quietly=True):
        result = write_result(plan, folder)
        shared.take_page(folder)
        drawn = html.try_write_page(folder, say)
    shared.give_page(folder)
    shared.account()
    return Ended(result, True, drawn)


def finished(plan: Plan, folder: Path) -> tuple[Result | None, DataDigest | None]:
    """The result of a run that is done and current, None where something is left to do.

    With it the data's digest, where that had to be known.
    """
    try:
        result: Result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None, None
    left_by_a_kill = [*folder.glob(".*.partial"), *folder.glob(".*.previous")]
    if not isinstance(result, dict) or left_by_a_kill or result.get("config") != json.loads(json.dumps(plan.values)):
        return None, None
    if not is_current(result, folder) or not earlier_bundles.is_settled(folder, result["verdict"]["met"]):
        return None, None
    last = _last(plan, result)
    remembered = state.remembered_digest(plan, folder)
    with nullcontext() if remembered.digest else show_progress("starting"):
        data = state.read_digest(plan, folder, remembered)
    done = all(each.state == "done" for each in islice(state.examine(plan, folder, data.digest), last))
    return result if done else None, data


def _redraw(folder: Path, say: Say) -> bool:
    """Draw the page of a finished run, if it is missing or an earlier edgekit drew it; whether it is current then."""
    if html.is_page_current(folder):
        return True
    try:
        with (
            lock.hold(folder / RUN_LOCK, f"edgekit run, {html.PAGE}"),
            ProgressDisplay(folder) as watch,
            watch.during(html.PAGE, quietly=True),
        ):
            return html.try_write_page(folder, partial(watch.say, say=say))
    except ResourceError as error:
        say(f"{html.PAGE} is not drawn: {error}")
        return False


def _run_stages(
    plan: Plan,
    out: Path,
    folder: Path,
    force: Collection[str],
    shared: RunCaches,
    watch: ProgressDisplay,
    say: Say,
    data: DataDigest | None,
) -> bool:
    """Run or reuse each stage; True if a variant met the budget, so that there are bundles.

    `data`: its digest, where that has just been read.
    """
    from edgekit.workbook import notebook

    before = _bytes(plan.path)
    with watch.during("checking data and networks", quietly=True):
        data = shared.read_data(plan, folder, data or state.read_digest(plan, folder))
        if data.digest:
            state.remember_data(plan, folder, data.digest, data.sign)
        states = StageStates(plan, folder, data.digest)
        states.recover_origin()
    shared.take_all(states, force, watch)
    with watch.during("checking data and networks", quietly=True):
        if "benchmark" in force or states.of("benchmark").state != "done":
            preflight.check_deciding(plan, folder, ask=True)
        _preflight(plan, states, force, say)
    announced = False
    for number, step in enumerate(notebook.steps(plan, out)):
        if _bytes(plan.path) != before:
            raise ConfigError(f"{plan.path}: was edited during its run; finished stages are kept, so run it again")
        found = states.recovered(step.stage) if step.stage in force else shared.take(states, step.stage, watch)
        if found.state == "done" and step.stage not in force:
            how = "reused, because its inputs did not change after all" if announced else "reused"
            url = shared.sources.get(step.stage)
            say(f"{step.stage}: {f'taken from {url}' if url else how} (key {_key(found)})")
            shared.give(found.artifact, folder, watch)
            if found.exit_code:
                return False
            continue
        if reason := _reason(found, plan.pipeline[number:], step.stage in force, announced):
            say(reason)
        announced = announced or not found.sealed or step.stage in force
        try:
            with watch.during(step.label, partial(attempts.section, folder, step.stage)):
                notebook.execute(step, folder, partial(states.sealed, step.stage), forced=step.stage in force)
        except BudgetMissed:
            shared.give(states.of(step.stage).artifact, folder, watch)
            return False
        except EdgekitError as error:
            error.args = (f"{error}{_what_next(plan, out, folder, step.stage)}",)
            raise
        shared.give(states.of(step.stage).artifact, folder, watch)
    return True


def _what_next(plan: Plan, out: Path, folder: Path, stage: str) -> str:
    """Lines to follow an error: where the stderr of native libraries is, if any, and the command to continue with."""
    log = folder / "notebooks" / f"{stage}.log"
    said = f"\nstderr of native libraries: {log}" if log.is_file() and log.stat().st_size else ""
    return f"{said}\nafter fixing it, continue with: {next_command(plan, out)}"


def _preflight(plan: Plan, states: StageStates, force: Collection[str], say: Say) -> None:
    """Check data and networks before a kernel starts, if a stage that uses them first is to run."""
    if any(stage in force or not states.of(stage).sealed for stage in CHECKED_AHEAD if stage in plan.pipeline):
        from edgekit.models.files import compatibility
        from edgekit.workbook import preflight

        converted: Any = plan.stages["convert"]
        if plan.source and "baseline" in converted.models:
            compatibility.install_converters(plan.source, converted.targets, targets_are_named=converted.targets_named)
        found = preflight.check(plan)
        if why := found.get(preflight.NOT_CHECKED):
            say(f"The checks of data and networks did not finish: {why}")
        if why := found.get(preflight.ACCURACY):
            say(why)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _reason(found: StageState, rest: Sequence[str], forced: bool, announced: bool) -> str:
    """Why a stage runs; empty where it has never run. `rest`: it and the stages after it."""
    if forced:
        return f"{found.stage}: runs again, because --force or --from names it"
    if found.state == "unchecked":
        return f"{found.stage}: its result is reused (key {_key(found)}); the notebook runs for its checks"
    reasons = "; ".join(found.reasons)
    if found.state == "not run" or not reasons:
        return f"{found.stage}: runs ({reasons})" if reasons else ""
    if announced:
        return f"{found.stage}: {reasons}"
    return f"{found.stage}: {reasons}, so {_list_of(rest)} {'run' if rest[1:] else 'runs'} again"


def _key(found: StageState) -> str:
    return found.wanted.key[:12] if found.wanted else "unknown"


def _last(plan: Plan, result: Result) -> int:
    """The number of stages in this result: a missed budget ends the run at benchmark."""
    return len(plan.pipeline) if result["verdict"]["met"] else plan.pipeline.index("benchmark") + 1


def _list_of(stages: Collection[str]) -> str:
    return ", ".join(stages)


def write_result(plan: Plan, folder: Path) -> Result:
    """Write result.json of the stages that ran; returns it.

    Needs a finished benchmark; the bundles are there when the budget was met.
    """
    made = {
        "schema": SCHEMA,
        "format": FORMAT,
        "edgekit": __version__,
        "name": plan.run.name,
        "version": plan.run.version,
        "config": plan.values,
        "budget": plan.run.budget.model_dump(),
        **results.build_result(folder, plan.values),
    }
    result: Result = results.with_sources(made, folder)
    validate_result(result)
    write_json(folder / RESULT, result)
    return result


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends like Ctrl-C, with another exit code."""


def writable(folder: Path) -> None:
    """Make the folder; ResourceError where nothing can be written there."""
    probe = folder / f".writable.{os.getpid()}.tmp"
    try:
        make_folder(folder / "notebooks")
        probe.write_bytes(b"\0")
        probe.unlink()
    except OSError as error:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
        raise ResourceError(
            f"{folder}: cannot write here ({error.strerror}); choose another folder with --out"
        ) from None


def tidy(folder: Path) -> None:
    """Remove half-written files of a killed process; the lock shows that nobody is writing them now."""
    patterns = (".*.tmp", "notebooks/.*.tmp", "notebooks/.*.partial.ipynb", f"{html.NOTEBOOK_FOLDER}/.*.tmp")
    for left in [path for pattern in patterns for path in folder.glob(pattern)]:
        left.unlink(missing_ok=True)


@contextmanager
def lack_of_resources(folder: Path) -> Iterator[None]:
    """Turn a refusal of the disk between two notebooks into a ResourceError."""
    try:
        yield
    except OSError as error:
        if error.errno not in RESOURCE_ERRNOS:
            raise
        raise ResourceError(
            f"{error.filename or folder}: {error.strerror or error}; free space or choose another folder with --out"
        ) from None


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """`kill` ends a run as Ctrl-C does: the kernel is stopped, the lock given back, what is sealed stays."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
