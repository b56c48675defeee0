"""`edgekit run --dry-run`: print the plan without running it."""

from __future__ import annotations

import sys
from pathlib import Path, PurePath

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgekit.core import tasks
from edgekit.core.config import STAGES, ModelConfig, NetworkConfig
from edgekit.core.terminal_progress import watching
from edgekit.models.files import TITLES, detect
from edgekit.workbook import preflight
from edgekit.workbook.config_file import own_fields
from edgekit.workbook.plan import Plan


def show(plan: Plan, out: Path) -> None:
    """Print every option of every stage and what the run reads; raises for faults of data or networks."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    run_ = plan.run
    table = Table(title=f"Plan of run {run_.name} {run_.version}", title_justify="left", title_style="bold")
    for heading in ("notebook", "options"):
        table.add_column(heading, no_wrap=heading == "notebook")
    for number, stage in enumerate(STAGES, 1):
        if stage not in plan.pipeline:
            table.add_row(f"{number:02d}_{stage}", "left out: without a distill section nothing is trained")
            continue
        config = plan.stages[stage]
        options = "  ".join(f"{name}={_brief(getattr(config, name))}" for name in own_fields(type(config)))
        table.add_row(f"{number:02d}_{stage}", escape(options))
    sure = f"{100 * run_.budget.accuracy_confidence:g} % confidence"
    limits = [f"accuracy drop ≤ {run_.budget.accuracy_drop_pp:g} pp at {sure}"]
    limits += run_.budget.words(run_.targets, "p50 ≤ {}", "size ≤ {}")
    lines = {
        "Model": _brief(run_.model) + (f", {TITLES[detect.find(plan.source)]}" if plan.source else ""),
        "Data": "  ".join(f"{name}={value}" for name, value in plan.data.model_dump(exclude_none=True).items()),
        "Task": f"{run_.task}: {tasks.named(run_.task).SAID}",
        "Targets": ", ".join(run_.targets),
        "Budget": ", ".join(limits),
        **({"Decides": decides} if (decides := preflight.check_deciding(plan)) else {}),
        "Seed": str(run_.seed),
        "Writes": str(out / run_.name),
    }
    with watching("checking data and networks"):
        lines |= preflight.check(plan)
    console.print(table)
    for name, value in lines.items():
        indented = value.replace("\n", f"\n{' ' * 10}")
        console.print(f"{name + ':':<9} {indented}", highlight=False, soft_wrap=True, markup=False)


def _brief(value: object) -> str:
    """A value as the plan shows it; a network as its builder with its keyword arguments."""
    if isinstance(value, ModelConfig) and value.source:
        return PurePath(value.source).name
    if isinstance(value, NetworkConfig | ModelConfig):
        return f"{value.builder}({', '.join(f'{name}={kwarg}' for name, kwarg in value.kwargs.items())})"
    if isinstance(value, dict):
        return f"({' '.join(f'{name}={given}' for name, given in value.items())})"
    return ",".join(map(_brief, value)) if isinstance(value, list) else str(value)
