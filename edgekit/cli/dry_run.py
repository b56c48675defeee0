"""`edgekit run --dry-run`: print the plan without running it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path, PurePath

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgekit.core import tasks
from edgekit.core.config import STAGES, ModelConfig, NetworkConfig, StageConfig
from edgekit.core.terminal_progress import watching
from edgekit.models.files import TITLES, detect
from edgekit.workbook import preflight
from edgekit.workbook.config_file import own_fields
from edgekit.workbook.plan import Plan


def show(plan: Plan, out: Path, verbose: bool = False) -> None:
    """Print the options that differ from their defaults, with `verbose` all, and what the run reads.

    Raises
    ------
    EdgekitError
        Data or networks have a fault.
    """
    console = Console(width=None if sys.stdout.isatty() else 120)
    run_ = plan.run
    table = Table(title=f"Plan of run {run_.name} {run_.version}", title_justify="left", title_style="bold")
    for heading in ("notebook", "options"):
        table.add_column(heading, no_wrap=heading == "notebook")
    for number, stage in enumerate(STAGES, 1):
        if stage not in plan.pipeline:
            table.add_row(f"{number:02d}_{stage}", "left out: without a distill section nothing is trained")
            continue
        options = "  ".join(_options(plan.stages[stage], verbose))
        table.add_row(f"{number:02d}_{stage}", escape(options) if options else "[dim]defaults[/dim]")
    sure = f"{100 * run_.budget.accuracy_confidence:g} % confidence"
    limits = [f"accuracy drop ≤ {run_.budget.accuracy_drop_pp:g} pp at {sure}"]
    limits += run_.budget.words(run_.targets, "p50 ≤ {}", "size ≤ {}")
    lines = {
        "Model": _brief(run_.model) + (f", {TITLES[detect.find(plan.source)]}" if plan.source else ""),
        "Data": "  ".join(f"{name}={value}" for name, value in plan.data.model_dump(exclude_none=True).items()),
        "Task": f"{run_.task}: {tasks.named(run_.task).SAID}",
        "Targets": ", ".join(run_.targets),
        "Budget": ", ".join(limits),
        **({"Decides": decides} if (decides := preflight.check_benchmark_hosts(plan)) else {}),
        "Seed": str(run_.seed),
        "Writes": str(out / run_.name),
    }
    with watching("checking data and networks"):
        lines |= preflight.check(plan)
    console.print(table)
    if not verbose:
        console.print("Options not shown have their defaults; -v shows them all.", highlight=False)
    for name, value in lines.items():
        indented = value.replace("\n", f"\n{' ' * 10}")
        console.print(f"{name + ':':<9} {indented}", highlight=False, soft_wrap=True, markup=False)


def _options(config: StageConfig, everything: bool) -> Iterator[str]:
    """`name=value` of each option of a stage, or of those alone that differ from their defaults."""
    for name in own_fields(type(config)):
        value, default = getattr(config, name), type(config).model_fields[name].get_default(call_default_factory=True)
        if everything or value != default:
            yield f"{name}={_brief(value)}"


def _brief(value: object) -> str:
    """A value as the plan shows it; a network as its builder with its keyword arguments."""
    if isinstance(value, ModelConfig) and value.source:
        return PurePath(value.source).name
    if isinstance(value, NetworkConfig | ModelConfig):
        return f"{value.builder}({', '.join(f'{name}={kwarg}' for name, kwarg in value.kwargs.items())})"
    if isinstance(value, dict):
        return f"({' '.join(f'{name}={given}' for name, given in value.items())})"
    return ",".join(map(_brief, value)) if isinstance(value, list) else str(value)
