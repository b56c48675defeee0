"""The whole walk: what is reused and why, the rest one notebook after another, and the verdict at the end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import FrameType

from edgekit import __version__
from edgekit.core import earlier_bundles, lock
from edgekit.core.errors import (
    NO_RESOURCES,
    BudgetMissed,
    BudgetUnreachable,
    ConfigError,
    EdgekitError,
    ResourceError,
)
from edgekit.core.hashing import write_json
from edgekit.data import fingerprint
from edgekit.report import html
from edgekit.report import result as results
from edgekit.report.result import RESULT, is_current
from edgekit.report.result.types import Result
from edgekit.runner.files import make_folder
from edgekit.workbook import origin, state
from edgekit.workbook.attempts import next_command
from edgekit.workbook.plan import Plan, agree, make_importable
from edgekit.workbook.stage import RUN_LOCK
from edgekit.workbook.stage_states import StageStates
from edgekit.workbook.state import StageState

PLAN = ".plan.json"
"""Config and settings that a run's folder was last walked with, for `edgekit status`."""

LOOKED_AT = ("profile", "distill")
"""Stages that open the data and the networks of the config; the others open what these left."""

Say = Callable[[str], None]


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends like Ctrl-C, with another exit code."""


def run(plan: Plan, out: Path, *, force: Collection[str] = (), say: Say = print) -> tuple[Result, bool]:
    """Bring the run of `plan` in `out` to its end; returns its result and whether anything had to be done.

    `force` names stages to make again although nothing changed. Needs no lock, no kernel and no framework where the
    run is finished. Raises what the failing cell raised; a missed budget is no error here, the result says so.
    """
    folder = out / plan.run.name
    make_importable(plan)
    found = finished(plan, folder) if not force else None
    if found is not None:
        say(f"reused: {_list_of(plan.walk[: _last(plan, found)])}; every key is unchanged")
        _redraw(folder, say)
        return found, False
    agree(plan)
    _writable(folder)
    with (
        _lack_of_resources(folder),
        lock.hold(folder / RUN_LOCK, f"edgekit run {plan.path.name}"),
        _sigterm_as_interrupt(),
    ):
        _tidy(folder)
        write_json(folder / PLAN, {"config": str(plan.path), "settings": plan.settings})
        try:
            moved = earlier_bundles.settle(folder, met=_walk(plan, out, folder, force, say))
        except BudgetUnreachable:  # exit code 3 too: nothing may lie where things ship from
            earlier_bundles.settle(folder, met=False)
            raise
        if moved:
            say(f"bundle: nothing ships, so the bundles of an earlier run went from bundles/ to {moved}")
        result = write_result(plan, folder)
        html.draw(folder, say)
        return result, True


def finished(plan: Plan, folder: Path) -> Result | None:
    """The result of a run that is done and current; None where something is left to do."""
    try:
        result: Result = json.loads((folder / RESULT).read_text())
    except (OSError, ValueError):
        return None
    left_by_a_kill = [*folder.glob(".*.partial"), *folder.glob(".*.previous")]
    if not isinstance(result, dict) or left_by_a_kill or result.get("config") != json.loads(json.dumps(plan.given)):
        return None
    if not is_current(result, folder) or not earlier_bundles.in_order(folder, result["verdict"]["met"]):
        return None
    last = _last(plan, result)
    states = state.examine(plan, folder, state.data_digest(plan, folder))
    return result if all(each.state == "done" for each in islice(states, last)) else None


def _redraw(folder: Path, say: Say) -> None:
    """The page of a finished run where it is not there or an earlier edgekit drew it."""
    if html.is_drawn(folder):
        return
    try:
        with lock.hold(folder / RUN_LOCK, f"edgekit run, {html.PAGE}"):
            html.draw(folder, say)
    except ResourceError as error:
        say(f"{html.PAGE} is not drawn: {error}")


def _walk(plan: Plan, out: Path, folder: Path, force: Collection[str], say: Say) -> bool:
    """Go through the stages; whether a variant met the budget, so that the last of them has its bundles."""
    from edgekit.workbook import notebook

    sign, before = fingerprint(plan.data) if (folder / origin.STAGE).is_dir() else None, _bytes(plan.path)
    digest = state.data_digest(plan, folder)
    if digest:
        state.remember_data(plan, folder, digest, sign)
    states = StageStates(plan, folder, digest)
    states.settle_origin()
    _look_ahead(plan, states, force, say)
    announced = False
    for number, step in enumerate(notebook.steps(plan, out)):
        if _bytes(plan.path) != before:
            raise ConfigError(f"{plan.path}: edited while its run went; finished stages are kept, run it again")
        found = states.settled(step.stage)
        if found.state == "done" and step.stage not in force:
            say(f"{step.stage}: {'unchanged after all, ' if announced else ''}reused (key {_key(found)})")
            if found.exit_code:
                return False
            continue
        say(_why(found, plan.walk[number:], step.stage in force, announced))
        announced = announced or not found.sealed or step.stage in force
        try:
            notebook.execute(step, folder, partial(states.sealed, step.stage), forced=step.stage in force)
        except BudgetMissed:
            return False
        except EdgekitError as error:
            error.args = (f"{error}{_what_next(plan, out, folder, step.stage)}",)
            raise
    return True


def _what_next(plan: Plan, out: Path, folder: Path, stage: str) -> str:
    """Lines to follow an error: where the kernel's own words lie, if it had any, and the command to go on with."""
    log = folder / "notebooks" / f"{stage}.log"
    said = f"\nwhat native libraries said: {log}" if log.is_file() and log.stat().st_size else ""
    return f"{said}\nwhen that is mended, go on with: {next_command(plan, out)}"


def _look_ahead(plan: Plan, states: StageStates, force: Collection[str], say: Say) -> None:
    """What is wrong with data and networks, before a kernel starts; where they are used for the first time."""
    if any(stage in force or not states.of(stage).sealed for stage in LOOKED_AT if stage in plan.walk):
        from edgekit.workbook import preflight

        if why := preflight.look(plan).get("Not looked at"):
            say(f"not looked at ahead: {why}")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _why(found: StageState, rest: Sequence[str], forced: bool, announced: bool) -> str:
    """What is said of a stage that is not done; `rest`: it and the stages of this walk after it."""
    if forced:
        return f"{found.stage}: made again as told"
    if found.state == "unchecked":
        return f"{found.stage}: sealed and reused (key {_key(found)}); its notebook runs for its checks"
    reasons = "; ".join(found.reasons)
    if found.state == "not run" or not reasons:
        return f"{found.stage}: runs" + (f" ({reasons})" if reasons else "")
    if announced:
        return f"{found.stage}: {reasons}"
    return f"{found.stage}: {reasons}, so {_list_of(rest)} run{'' if rest[1:] else 's'} again"


def _key(found: StageState) -> str:
    return found.wanted.key[:12] if found.wanted else "unknown"


def _last(plan: Plan, result: Result) -> int:
    """How many stages the run of this result has: a missed budget ends at benchmark."""
    return len(plan.walk) if result["verdict"]["met"] else plan.walk.index("benchmark") + 1


def _list_of(stages: Collection[str]) -> str:
    return ", ".join(stages)


def _writable(folder: Path) -> None:
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


def _tidy(folder: Path) -> None:
    """Half-written files of a killed process; the lock says that nobody is writing them now."""
    patterns = (".*.tmp", "notebooks/.*.tmp", "notebooks/.*.partial.ipynb", f"{html.BESIDE}/.*.tmp")
    for left in [path for pattern in patterns for path in folder.glob(pattern)]:
        left.unlink(missing_ok=True)


@contextmanager
def _lack_of_resources(folder: Path) -> Iterator[None]:
    """What the disk refuses between two notebooks, told as such."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_RESOURCES:
            raise
        raise ResourceError(
            f"{error.filename or folder}: {error.strerror or error}; make room or choose another folder with --out"
        ) from None


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """`kill` ends a run as Ctrl-C does: the kernel is stopped, the lock given back, what is sealed stays."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def write_result(plan: Plan, folder: Path) -> Result:
    """Write result.json for as far as the run came; returns it.

    Needs a finished benchmark; the bundles are there when the budget was met.
    """
    made = {
        "schema": results.SCHEMA,
        "format": results.FORMAT,
        "edgekit": __version__,
        "name": plan.run.name,
        "version": plan.run.version,
        "config": plan.given,
        "budget": plan.run.budget.model_dump(),
        **results.told(folder),
    }
    result: Result = results.with_sources(made, folder)
    results.check(result)
    write_json(folder / RESULT, result)
    return result
