"""The options of the command `edgekit search`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.exit_codes import errors_as_exit_codes
from edgekit.core.errors import BudgetMissed, ConfigError

MAX_TRIALS = 1_000_000
MAX_MINUTES = 1_000_000
"""Largest value of --minutes, about two years."""
RETAINED = "study.json has all complete batches, finished stages are kept"


def search(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A config file, for example configs/digits.yaml.")],
    space: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The search space; by default the one that ships for the networks."),
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one option.")] = None,
    trials: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_TRIALS, help="Number of trials, in whole batches; 32 if --minutes is not given."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=64, help="Trials that are proposed and measured together.")] = 4,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=MAX_MINUTES, help="Start no new batch after this many minutes; the first always runs."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of the sampler.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder in which NAME-search is created.")] = Path("artifacts"),
    replay: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Reuse the measurements of that study instead of measuring.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Number of parallel processes on this machine; by default 1.")
    ] = None,
    on: Annotated[str | None, typer.Option(metavar="URL", help="A scheduler: dask://HOST:PORT.")] = None,
    cache: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="Shared cache for finished stages; may be repeated.")
    ] = None,
    take: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Write the config of this trial and search nothing.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --take: the file; by default CONFIG-trial-N.yaml.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print the whole front with options and intervals, too.")
    ] = False,
) -> None:
    """Search the options of a config for the best trade-offs of accuracy, latency and size; continue a stopped search.

    Exit codes: 0: done; 2: config or space; 3: no trial met the budget; 4: data or model; 5: conversion; 6: a stage
    died; 7: resources; 8: trust.
    """
    with errors_as_exit_codes(RETAINED):
        if to is not None and take is None:
            raise ConfigError(f"--to {to}: applies only with --take N; leave it out")
        if workers is not None and on is not None:
            raise ConfigError(
                "--workers and --on: got both; choose one, because --on uses the workers of its scheduler"
            )
        if take is not None:
            from edgekit.search import trial_config as taking
            from edgekit.workbook.plan import load_plan

            plan = load_plan(config, set_ or (), checked_before=True)
            taking.run_take(out / f"{plan.run.name}-search", take, to, print, plan)
            return
        from edgekit.cli.search.run import SearchRequest, run

        request = SearchRequest(
            config,
            space,
            tuple(set_ or ()),
            trials,
            batch,
            minutes,
            seed,
            out,
            replay,
            1 if workers is None else workers,
            on,
            tuple(cache or ()),
            verbose,
        )
        if not run(request, print):
            raise typer.Exit(BudgetMissed.exit_code)
