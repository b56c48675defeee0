"""`edgekit run A B C`: print the lines of all runs with their names, then a table, and exit with a combined code."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from edgekit.core.errors import BudgetMissed, ConfigError, EdgekitError
from edgekit.core.progress import write_named_to_stderr, write_to_stderr
from edgekit.core.progress_state import duration
from edgekit.workbook.plan import Plan, load_plan

if TYPE_CHECKING:
    from edgekit.workbook.parallel_runs import RunSummary


def load_plans(configs: Sequence[Path], settings: Sequence[str], checked_before: bool) -> list[Plan]:
    """Load the plan of each config. If there are several, an error names the config that it belongs to."""
    plans = []
    for config in configs:
        try:
            plans.append(load_plan(config, settings, checked_before=checked_before))
        except EdgekitError as error:
            if len(configs) > 1 and not str(error).startswith(f"{config}: "):
                error.args = (f"{config}: {error}",)
            raise
    if len(plans) > 1:
        from edgekit.workbook.parallel_runs import check_names

        check_names(plans)
    return plans


def run_all(
    plans: Sequence[Plan],
    out: Path,
    force: Collection[str],
    workers: int | None,
    on: str | None,
    mlflow: str | None = None,
    caches: Sequence[str] = (),
) -> None:
    """Run all plans, print a row for each and exit with a combined exit code.

    If `mlflow` is given, finished runs are logged there.
    """
    from edgekit.workbook.parallel_runs import combined_exit_code, run_several
    from edgekit.workbook.workers import limit_to_cores

    if workers is not None and on is not None:
        raise ConfigError("--workers and --on: got both; choose one, because --on uses the workers of its scheduler")
    count, warning = limit_to_cores(1 if workers is None else workers, [plan.run.threads for plan in plans])
    if warning:
        write_to_stderr(f"edgekit: {warning}")
    summaries = run_several(
        plans,
        out,
        force=force,
        workers=count,
        on=on,
        caches=caches,
        on_line=write_named_to_stderr,
        on_end=_print_end,
    )
    _print_table(summaries, out)
    if mlflow is not None:
        _log_to_mlflow(summaries, out, mlflow)
    if code := combined_exit_code(summaries):
        raise typer.Exit(code)


def _print_end(summary: RunSummary) -> None:
    """Print a progress line when a run ends. An error is printed completely."""
    if summary.exit_code in (0, BudgetMissed.exit_code):
        write_named_to_stderr(summary.name, f"done in {duration(summary.seconds)}, exit code {summary.exit_code}")
    else:
        write_to_stderr(f"edgekit: {summary.name}: {summary.message}")


def _print_table(summaries: Sequence[RunSummary], out: Path) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table(title=f"{len(summaries)} runs in {out}", title_justify="left", title_style="bold")
    table.add_column("run", no_wrap=True)
    table.add_column("exit code", justify="right")
    table.add_column("time", no_wrap=True)
    table.add_column("result")
    for summary in summaries:
        first_line = summary.message.partition("\n")[0]
        table.add_row(escape(summary.name), str(summary.exit_code), duration(summary.seconds), escape(first_line))
    console.print(table)


def _log_to_mlflow(summaries: Sequence[RunSummary], out: Path, mlflow: str) -> None:
    from edgekit.core.terminal_progress import show_progress
    from edgekit.report import mlflow as tracking

    for summary in summaries:
        if summary.exit_code in (0, BudgetMissed.exit_code):
            with show_progress("MLflow"):
                run_url = tracking.log_or_reason(out / summary.name, mlflow)
            print(f"MLflow     {summary.name}: {run_url}")
