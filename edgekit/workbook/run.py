"""Run a plan: reuse finished stages, execute the other notebooks and write the result."""

from __future__ import annotations

import importlib
import json
import os
import signal
import threading
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
from edgekit.workbook.plan import Plan, check_consistency, make_importable
from edgekit.workbook.shared_cache.run_caches import RunCaches
from edgekit.workbook.stage import RUN_LOCK
from edgekit.workbook.state import DataDigest, StageState, StageStates

PLAN_FILE = ".plan.json"
"""The file that names the config of a folder's last run, with the values of `--set`. `edgekit status` reads it."""

PREFLIGHT_STAGES = ("profile", "distill")
"""Stages that open the data and the networks of the config. Later stages read their artifacts."""

Say = Callable[[str], None]


class RunOutcome(NamedTuple):
    """A completed run, whether or not the budget was met.

    `did_work` is False if every stage was reused. `page_is_current` says whether the report's page is up to date.
    """

    result: Result
    did_work: bool
    page_is_current: bool


def run(
    plan: Plan,
    out: Path,
    *,
    force: Collection[str] = (),
    caches: Sequence[str] = (),
    checked: bool = False,
    say: Say = print,
) -> RunOutcome:
    """Run the plan to completion. Stages that measure wait until no other run on this machine is measuring.

    Parameters
    ----------
    plan
        A checked config, from `load_plan`.
    out
        Folder of all runs. This run is written to `out/NAME`.
    force
        Stages to run again although nothing has changed.
    caches
        URLs of shared caches (see `edgekit.workbook.shared_cache`). Each stage is looked up in them in this order.
    checked
        Whether the data and the networks have just been tried, so that they need not be before the first kernel starts.
    say
        Called with each line of progress.

    Raises
    ------
    EdgekitError
        The error of the failing cell.
    """
    folder = out / plan.run.name
    make_importable(plan)
    shared = RunCaches(caches, say)
    result, data_digest = finished_result(plan, folder) if not force else (None, None)
    if result is not None:
        say("Nothing has changed since this run finished, so every stage is reused.")
        page_is_current = _draw_outdated_page(folder, say)
        shared.push_finished(plan, folder, data_digest.digest if data_digest else None)
        return RunOutcome(result, False, page_is_current)
    check_consistency(plan)
    import_in_background()
    require_writable(folder)
    with (
        as_resource_error(folder),
        lock.hold(folder / RUN_LOCK, f"edgekit run {plan.path.name}"),
        lane.use_machine_folder(),
        sigterm_as_interrupt(),
    ):
        remove_partial_files(folder)
        write_json(folder / PLAN_FILE, {"config": str(plan.path), "settings": plan.settings})
        with ProgressDisplay(folder) as watch:
            shared.say = partial(watch.say, say=say)
            return _complete_run(plan, out, folder, force, shared, watch, shared.say, data_digest, checked)


def _complete_run(
    plan: Plan,
    out: Path,
    folder: Path,
    force: Collection[str],
    shared: RunCaches,
    watch: ProgressDisplay,
    say: Say,
    data_digest: DataDigest | None,
    checked: bool,
) -> RunOutcome:
    """Run the stages, then write the result and its page."""
    try:
        moved = earlier_bundles.recover(
            folder, met=_run_stages(plan, out, folder, force, shared, watch, say, data_digest, checked)
        )
    except BudgetUnreachable:  # this is a missed budget as well, so no bundle may stay where it could be shipped
        earlier_bundles.recover(folder, met=False)
        raise
    if moved:
        say(f"Nothing ships, so the bundles of an earlier run were moved to {moved}.")
    with watch.during(f"{RESULT} and {html.PAGE}", quietly=True):
        result = write_result(plan, folder)
        shared.pull_page(folder)
        page_is_current = html.try_write_page(folder, say)
    shared.push_page(folder)
    shared.report_counts()
    return RunOutcome(result, True, page_is_current)


def import_in_background() -> None:
    """Begin to import what a run needs later, in a thread, because this takes seconds and a run waits for others."""

    def load() -> None:
        for name in ("papermill", "edgekit.report.html.page"):
            importlib.import_module(name)

    threading.Thread(target=load, daemon=True).start()


def finished_result(plan: Plan, folder: Path) -> tuple[Result | None, DataDigest | None]:
    """Return the result of a run that is finished and current, or None if work remains.

    The second value is the digest of the data, if it had to be computed.
    """
    try:
        result: Result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None, None
    partial_files = [*folder.glob(".*.partial"), *folder.glob(".*.previous")]
    if not isinstance(result, dict) or partial_files or result.get("config") != json.loads(json.dumps(plan.values)):
        return None, None
    if not is_current(result, folder) or not earlier_bundles.is_settled(folder, result["verdict"]["met"]):
        return None, None
    stage_count = _stage_count(plan, result)
    remembered_digest = state.remembered_digest(plan, folder)
    with nullcontext() if remembered_digest.digest else show_progress("starting"):
        data_digest = state.read_digest(plan, folder, remembered_digest)
    done = all(
        stage_state.state == "done"
        for stage_state in islice(state.examine_stages(plan, folder, data_digest.digest), stage_count)
    )
    return result if done else None, data_digest


def _draw_outdated_page(folder: Path, say: Say) -> bool:
    """Draw the page of a finished run if it is missing or was drawn by an earlier version of edgekit.

    Return whether the page is current.
    """
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
    data_digest: DataDigest | None,
    checked: bool,
) -> bool:
    """Run or reuse each stage. Return True if a variant met the budget, so that there are bundles.

    `data_digest` is given if it has just been computed.
    """
    from edgekit.workbook import notebook

    config_bytes = _read_bytes(plan.path)
    with watch.during("checking data and networks", quietly=True):
        data_digest = shared.read_data(plan, folder, data_digest or state.read_digest(plan, folder))
        if data_digest.digest:
            state.remember_data(plan, folder, data_digest.digest, data_digest.fingerprint)
        states = StageStates(plan, folder, data_digest.digest)
        states.recover_origin()
    shared.pull_all(states, force, watch)
    with watch.during("checking data and networks", quietly=True):
        if "benchmark" in force or states.state_of("benchmark").state != "done":
            preflight.check_benchmark_hosts(plan, folder, connect=True)
        _preflight(plan, states, force, checked, say)
    announced = False
    for number, step in enumerate(notebook.steps(plan, out)):
        if _read_bytes(plan.path) != config_bytes:
            raise ConfigError(f"{plan.path}: was edited during its run; finished stages are kept, so run it again")
        stage_state = states.recover(step.stage) if step.stage in force else shared.pull(states, step.stage, watch)
        if stage_state.state == "done" and step.stage not in force:
            note = "reused, because its inputs are unchanged after all" if announced else "reused"
            url = shared.sources.get(step.stage)
            say(f"{step.stage}: {f'taken from {url}' if url else note} (key {_short_key(stage_state)})")
            shared.push(stage_state.artifact, folder, watch)
            if stage_state.exit_code:
                return False
            continue
        if reason := _why_it_runs(stage_state, plan.pipeline[number:], step.stage in force, announced):
            say(reason)
        announced = announced or not stage_state.is_sealed or step.stage in force
        try:
            with watch.during(step.label, partial(attempts.current_section, folder, step.stage)):
                notebook.execute(step, folder, partial(states.sealed_artifact, step.stage), forced=step.stage in force)
        except BudgetMissed:
            shared.push(states.state_of(step.stage).artifact, folder, watch)
            return False
        except EdgekitError as error:
            error.args = (f"{error}{_recovery_advice(plan, out, folder, step.stage)}",)
            raise
        shared.push(states.state_of(step.stage).artifact, folder, watch)
    return True


def _recovery_advice(plan: Plan, out: Path, folder: Path, stage: str) -> str:
    """Return the lines that follow an error: the log of native libraries, if any, and the command to continue with."""
    log = folder / "notebooks" / f"{stage}.log"
    advice = f"\nstderr of native libraries: {log}" if log.is_file() and log.stat().st_size else ""
    return f"{advice}\nafter fixing it, continue with: {next_command(plan, out)}"


def _preflight(plan: Plan, states: StageStates, force: Collection[str], checked: bool, say: Say) -> None:
    """Install converters, and check data and networks unless that is done, if a stage that opens them will run."""
    if any(
        stage in force or not states.state_of(stage).is_sealed for stage in PREFLIGHT_STAGES if stage in plan.pipeline
    ):
        from edgekit.models.files import compatibility
        from edgekit.workbook import preflight

        conversion: Any = plan.stages["convert"]
        if plan.source and "baseline" in conversion.models:
            compatibility.install_converters(
                plan.source, conversion.targets, targets_are_named=conversion.targets_named
            )
        if checked:
            return
        results = preflight.check(plan)
        if note := results.get(preflight.NOT_CHECKED):
            say(f"The checks of data and networks did not finish: {note}")
        if note := results.get(preflight.ACCURACY):
            say(note)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _why_it_runs(stage_state: StageState, stages: Sequence[str], forced: bool, announced: bool) -> str:
    """Return why a stage runs, or empty text if it has never run. `stages` are this stage and the stages after it."""
    if forced:
        return f"{stage_state.stage}: runs again, because --force or --from names it"
    if stage_state.state == "unchecked":
        key = _short_key(stage_state)
        return f"{stage_state.stage}: its result is reused (key {key}); the notebook runs for its checks"
    reasons = "; ".join(stage_state.reasons)
    if stage_state.state == "not run" or not reasons:
        return f"{stage_state.stage}: runs ({reasons})" if reasons else ""
    if announced:
        return f"{stage_state.stage}: {reasons}"
    return f"{stage_state.stage}: {reasons}; stages that run again: {_list_of(stages)}"


def _short_key(stage_state: StageState) -> str:
    return stage_state.expected_inputs.key[:12] if stage_state.expected_inputs else "unknown"


def _stage_count(plan: Plan, result: Result) -> int:
    """Return the number of stages in this result. A missed budget ends the run at benchmark."""
    return len(plan.pipeline) if result["verdict"]["met"] else plan.pipeline.index("benchmark") + 1


def _list_of(stages: Collection[str]) -> str:
    return ", ".join(stages)


def write_result(plan: Plan, folder: Path) -> Result:
    """Write result.json from the stages that ran and return its content.

    The benchmark stage must be finished. The bundles exist if the budget was met.
    """
    values = {
        "schema": SCHEMA,
        "format": FORMAT,
        "edgekit": __version__,
        "name": plan.run.name,
        "version": plan.run.version,
        "config": plan.values,
        "budget": plan.run.budget.model_dump(),
        **results.build_result(folder, plan.values),
    }
    result: Result = results.with_sources(values, folder)
    validate_result(result)
    write_json(folder / RESULT, result)
    return result


class Terminated(KeyboardInterrupt):
    """Raised by SIGTERM, which ends a run like Ctrl-C, but with a different exit code."""


def require_writable(folder: Path) -> None:
    """Create the folder.

    Raises
    ------
    ResourceError
        Nothing can be written there.
    """
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


def remove_partial_files(folder: Path) -> None:
    """Remove incomplete files of a killed process. The caller holds the lock, so no one is writing them."""
    patterns = (".*.tmp", "notebooks/.*.tmp", "notebooks/.*.partial.ipynb", f"{html.NOTEBOOK_FOLDER}/.*.tmp")
    for path in [match for pattern in patterns for match in folder.glob(pattern)]:
        path.unlink(missing_ok=True)


@contextmanager
def as_resource_error(folder: Path) -> Iterator[None]:
    """Turn an OSError in the block, such as a full disk between two notebooks, into a ResourceError with advice."""
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
    """Let SIGTERM end a run as Ctrl-C does: the kernel is stopped, the lock is released, and sealed stages stay."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Terminated

    previous = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
