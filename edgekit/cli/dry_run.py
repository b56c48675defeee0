"""`edgekit run --dry-run`: check the data and networks and print the plan without running it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path, PurePath

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgekit.core import tasks
from edgekit.core.config import STAGES, ModelConfig, NetworkConfig, StageConfig
from edgekit.core.terminal_progress import show_progress
from edgekit.models.files import TITLES, detect
from edgekit.workbook import preflight
from edgekit.workbook.config_file import own_fields
from edgekit.workbook.plan import Plan


def show(plan: Plan, out: Path, verbose: bool = False) -> None:
    """Print the options that differ from their defaults (with `verbose` all options) and what the run reads and writes.

    Raises
    ------
    EdgekitError
        The data or a network has a fault.
    """
    console = Console(width=None if sys.stdout.isatty() else 120)
    run_config = plan.run
    table = Table(title=f"Plan of run {run_config.name} {run_config.version}", title_justify="left", title_style="bold")
    for heading in ("notebook", "options"):
        table.add_column(heading, no_wrap=heading == "notebook")
    for number, stage in enumerate(STAGES, 1):
        if stage not in plan.pipeline:
            table.add_row(f"{number:02d}_{stage}", "left out: without a distill section nothing is trained")
            continue
        options = "  ".join(_shown_options(plan.stages[stage], verbose))
        table.add_row(f"{number:02d}_{stage}", escape(options) if options else "[dim]defaults[/dim]")
    confidence = f"{100 * run_config.budget.accuracy_confidence:g} % confidence"
    limits = [f"accuracy drop ≤ {run_config.budget.accuracy_drop_pp:g} pp at {confidence}"]
    limits += run_config.budget.describe_limits(run_config.targets, "p50 ≤ {}", "size ≤ {}")
    lines = {
        "Model": _format_value(run_config.model)
        + (f", {TITLES[detect.model_kind(plan.source)]}" if plan.source else ""),
        "Data": "  ".join(f"{name}={value}" for name, value in plan.data.model_dump(exclude_none=True).items()),
        "Task": f"{run_config.task}: {tasks.load_task(run_config.task).METRIC_TEXT}",
        "Targets": ", ".join(run_config.targets),
        "Budget": ", ".join(limits),
        **({"Decides": decides} if (decides := preflight.check_benchmark_hosts(plan)) else {}),
        "Seed": str(run_config.seed),
        "Writes": str(out / run_config.name),
    }
    with show_progress("checking data and networks"):
        lines |= preflight.check(plan)
    console.print(table)
    if not verbose:
        console.print("Options not shown have their defaults; -v shows them all.", highlight=False)
    for name, value in lines.items():
        indented = value.replace("\n", f"\n{' ' * 10}")
        console.print(f"{name + ':':<9} {indented}", highlight=False, soft_wrap=True, markup=False)


def _shown_options(config: StageConfig, everything: bool) -> Iterator[str]:
    """Yield `name=value` for the options that differ from their defaults; with `everything`, for all."""
    for name in own_fields(type(config)):
        value, default = getattr(config, name), type(config).model_fields[name].get_default(call_default_factory=True)
        if everything or value != default:
            yield f"{name}={_format_value(value)}"


def _format_value(value: object) -> str:
    """Format a value for the plan. A network is shown as its builder with keyword arguments."""
    if isinstance(value, ModelConfig) and value.source:
        return PurePath(value.source).name
    if isinstance(value, NetworkConfig | ModelConfig):
        return f"{value.builder}({', '.join(f'{name}={kwarg}' for name, kwarg in value.kwargs.items())})"
    if isinstance(value, dict):
        return f"({' '.join(f'{name}={item}' for name, item in value.items())})"
    return ",".join(map(_format_value, value)) if isinstance(value, list) else str(value)
