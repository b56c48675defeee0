"""The command `edgekit compare` for two finished runs or two field reports."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.cli.exit_codes import errors_as_exit_codes
from edgekit.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console


def compare(
    run_a: Annotated[
        str, typer.Argument(metavar="RUN_A", help="A run's folder, or its name below --out; or a field report.")
    ],
    run_b: Annotated[str, typer.Argument(metavar="RUN_B", help="The run, or the field report, to compare it with.")],
    out: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("artifacts"),
    json_: Annotated[bool, typer.Option("--json", help="Print JSON. Only for field reports.")] = False,
    all_: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Show variants that ship in neither run, and parts that did not change.",
        ),
    ] = False,
) -> None:
    """Compare two finished runs, or two field reports, the earlier one first.

    For runs, this shows config, versions, machine, and the figures of the variants that ship. Latencies are compared
    only if both runs were measured under the same conditions. For field reports (.json), it shows latency by part,
    drift, temperature, and what to do.

    Exit codes: 0: compared, even if they differ; 2: no such run; 4: a run has no verdict, or a file is no field report;
    8: the record of an artifact was edited.
    """
    with errors_as_exit_codes():
        from rich.console import Console

        console = Console(width=None if sys.stdout.isatty() else 140)
        if Path(run_a).suffix == Path(run_b).suffix == ".json":
            _compare_reports(Path(run_a), Path(run_b), json_, all_, console)
            return
        if json_:
            raise ConfigError(
                "--json: applies only to two field reports, named *.json; the figures of a run are in its result.json"
            )
        from edgekit.report import comparison as comparing
        from edgekit.report import finished_run as runs

        comparison = comparing.compare_runs(runs.find_run(run_a, out), runs.find_run(run_b, out))
        comparing.print_comparison(comparison, console, show_all=all_)


def _compare_reports(earlier: Path, later: Path, as_json: bool, everything: bool, console: Console) -> None:
    """Print the comparison of two field reports, the earlier one first."""
    from edgekit.report.field import terminal
    from edgekit.report.field.comparison import compare_reports
    from edgekit.report.field.reports import read_report

    comparison = compare_reports(read_report(earlier), read_report(later))
    if as_json:
        print(json.dumps(terminal.comparison_to_json(comparison), sort_keys=True, allow_nan=False))
    else:
        terminal.print_comparison(comparison, console, show_all=everything)
