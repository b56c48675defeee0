"""The command `edgekit run` for one config, or for several configs in processes of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.cli.exit_codes import errors_as_exit_codes
from edgekit.cli.parallel_runs import load_plans, run_all
from edgekit.core.config import STAGES, suggest
from edgekit.core.errors import BudgetMissed, ConfigError
from edgekit.core.terminal_progress import show_progress
from edgekit.training.data_parallel import environment
from edgekit.workbook.plan import Plan

if TYPE_CHECKING:
    from edgekit.workbook.run import RunOutcome


def show_result(outcome: RunOutcome, folder: Path, verbose: bool = False) -> None:
    """Print the summary of a run; with `verbose`, all tables and notes before it."""
    from rich.console import Console

    from edgekit.report import summary

    console = Console(width=None if sys.stdout.isatty() else 140)
    if verbose:
        from edgekit.report import console as report

        report.print_run(outcome.result, folder, console, has_report=outcome.page_is_current)
        console.print()
    summary.print_summary(outcome.result, folder, console, has_report=outcome.page_is_current)


@contextmanager
def training_processes(requested: int | None, shares: int) -> Iterator[bool]:
    """Set the number of training processes for the `with` block. None leaves the number to the environment.

    Yields whether this process is to run the config. That is False in a process of torchrun that is not the first: it
    has taken part in the trainings of the first process and has nothing left to do.

    Raises
    ------
    ConfigError
        There are more processes than shards.
    """
    is_torchrun = environment.torchrun_processes()
    with environment.use_processes(None if is_torchrun else requested):
        count = environment.process_count()
        if count > shares:
            raise ConfigError(
                f"{'torchrun' if is_torchrun else '--processes'} and training.shares disagree: got {count} processes "
                f"and {shares} shares, but each process needs a share; set training.shares={count}, or start at "
                f"most {shares}"
            )
        if not is_torchrun:
            yield True
            return
        from edgekit.training.data_parallel import torchrun

        if environment.rank():
            torchrun.follow()
            yield False
            return
        with torchrun.end_followers():
            yield True


def run(
    config: Annotated[
        list[Path],
        typer.Argument(metavar="CONFIG", help="A config file, for example configs/digits.yaml, or several."),
    ],
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one option.")] = None,
    out: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("artifacts"),
    force: Annotated[list[str] | None, typer.Option(metavar="STAGE", help="Re-run this stage in any case.")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="STAGE", help="Re-run this stage and all after it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check data and networks, print the plan, exit.")] = False,
    mlflow: Annotated[
        str | None, typer.Option(metavar="URI", help="Log the finished run to this MLflow store.")
    ] = None,
    cache: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Shared cache: a folder, s3://, gs:// or az://. May be repeated."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(metavar="P", min=1, help="Number of training processes, at most training.shares.")
    ] = None,
    parallel: Annotated[
        int, typer.Option(metavar="N", min=1, max=64, help="Number of trainings of one stage that may run in parallel.")
    ] = 1,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Number of configs to run at a time, each in its own process.")
    ] = None,
    on: Annotated[
        str | None, typer.Option(metavar="dask://HOST:PORT", help="Run on the workers of this Dask scheduler.")
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print every variant and note, too; with --dry-run every option."),
    ] = False,
) -> None:
    """Run the plan of one config to completion and print what ships. Stages that did not change are reused.

    Several configs run in a process each, as many at a time as --workers says. A table of their results follows.
    Exit codes: 0: done; 2: config; 3: budget missed; 4: data or model; 5: conversion; 6: a stage died; 7: resources; 8:
    trust.
    """
    with errors_as_exit_codes():
        stages_to_force = _stages_to_force(force or [], from_)
        is_parallel = len(config) > 1 or workers is not None or on is not None
        if is_parallel:
            _refuse_single_run_options(processes, parallel)
        plans = load_plans(config, set_ or [], checked_before=not dry_run)  # `run_plan` makes the other checks
        if mlflow is not None:
            from edgekit.report import mlflow as tracking

            tracking.check_store(mlflow, contact_store=not dry_run)
        if dry_run:
            from edgekit.cli.dry_run import show

            for plan in plans:
                show(plan, out, verbose)
        elif is_parallel:
            from edgekit.workbook.shared_cache.run_caches import cache_urls

            run_all(plans, out, stages_to_force, workers, on, mlflow, cache_urls(cache or []))
        else:
            _run_one(plans[0], out, stages_to_force, mlflow, cache or [], processes, parallel, verbose)


def _run_one(
    plan: Plan,
    out: Path,
    force: set[str],
    mlflow: str | None,
    cache: list[str],
    processes: int | None,
    parallel: int,
    verbose: bool,
) -> None:
    """Run one config and print its result.

    Raises
    ------
    typer.Exit
        The budget was missed (exit code 3).
    """
    from edgekit.workbook.run import run as run_plan
    from edgekit.workbook.shared_cache.run_caches import cache_urls

    if parallel > 1:  # the kernels read this variable; it does not affect the result
        from edgekit.training.parallel_trainings import PARALLEL

        os.environ[PARALLEL] = str(parallel)
    with training_processes(processes, plan.run.training.shares) as is_first:
        if not is_first:
            return
        outcome = run_plan(plan, out, force=force, caches=cache_urls(cache))
    folder = out / plan.run.name
    show_result(outcome, folder, verbose)
    met = outcome.result["verdict"]["met"]
    if mlflow is not None:  # a failing store must not hide a missed budget
        from edgekit.report import mlflow as tracking

        log = tracking.log_run if met else tracking.log_or_reason
        with show_progress("MLflow"):
            run_url = log(folder, mlflow)
        print(f"MLflow     {run_url}")
    if not met:
        raise typer.Exit(BudgetMissed.exit_code)


def _refuse_single_run_options(processes: int | None, parallel: int) -> None:
    for option, value in (("--processes", processes), ("--parallel", None if parallel == 1 else parallel)):
        if value is not None:
            raise ConfigError(f"{option} {value}: applies only to a run of one config; leave out --workers and --on")


def _stages_to_force(force: list[str], from_: str | None) -> set[str]:
    for stage in [*force, *([from_] if from_ else [])]:
        if stage not in STAGES:
            option = "--from" if stage == from_ else "--force"
            raise ConfigError(f"{option} {stage}: no such stage, {suggest(stage, STAGES)}")
    return {*force, *(STAGES[STAGES.index(from_) :] if from_ else ())}
