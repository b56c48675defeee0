"""Build the content of `report.html`, section by section, from `result.json` and the run's sealed artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from edgekit.core.config import STAGES
from edgekit.core.hashing import sha256_file
from edgekit.core.schema.result import Result
from edgekit.report import finished_run
from edgekit.report.html.notebooks import NotebookPage
from edgekit.report.result import RESULT
from edgekit.report.sections import (
    branches,
    bundles,
    call_costs,
    classes,
    conversion,
    decisions,
    devices,
    latency,
    loads,
    machine,
    outcome,
    profile,
    quantization,
    streams,
    variants,
)


def build_context(folder: Path, result: Result, links: list[NotebookPage]) -> dict[str, Any]:
    """Return the values for `page.html.j2`. Figures without data are left out of `figures`."""
    chain = finished_run.load_artifacts(folder, result)
    benchmark = chain["benchmark"]
    predicted = profile.predicted_rows(benchmark)
    return {
        "run": result,
        "headline": outcome.headline(result),
        "facts": outcome.facts(result),
        "targets": outcome.targets_grid(result),
        "data_notes": result.get("data_notes", []),
        "pretrained": result.get("pretrained", []),
        "cross_validation": result.get("cross_validation"),
        "missed": [
            *outcome.missed_lines(result),
            *outcome.leakage_lines(result),
            *quantization.shared_scale_lines(chain.get("quantize")),
        ],
        "bundles": bundles.page_grid(result),
        "waterfall": latency.waterfall_grid(result),
        "tail": latency.percentiles_grid(result, latency.shown_in_ecdf(benchmark)),
        "loads": loads.section(result, benchmark.config["confidence"]),
        "cost": call_costs.section(result),
        "time_breakdown": profile.section(chain["profile"].metrics, result, predicted),
        "by_class": classes.section(result, benchmark),
        "branches": branches.page_grid(result),
        "streams": streams.page_grid(result),
        "devices": devices.page_grid(result),
        "variants": variants.page_grid(result),
        "rejected": decisions.rejected_grid(result),
        "rivals": variants.references_grid(result),
        "decisions": decisions.page_grid(result),
        "converted": conversion.grids(chain["convert"], result),
        "machine": machine.facts(result),
        "seen": machine.noise_grid(result),
        "versions": machine.versions_grid(result, chain),
        "stages": stage_rows(result),
        "links": {link.stage: link for link in links},
        "config": yaml.safe_dump(result["config"], sort_keys=False, allow_unicode=True),
        "result_sha256": sha256_file(folder / RESULT),
        "figures": {
            **variants.pictures(result),
            **latency.pictures(result, benchmark),
            **profile.pictures(chain["profile"].metrics, predicted),
            **classes.pictures(benchmark),
            **loads.pictures(result["loads"]),
            **call_costs.pictures(result),
        },
    }


def stage_rows(result: Result) -> list[dict[str, str]]:
    """Return the stages: when each was sealed, how long it took, and its key."""
    return [
        {
            "stage": stage,
            "finished": row["finished"].replace("T", " ").replace("+00:00", " UTC"),
            "seconds": f"{row['seconds']:.1f}",
            "key": row["key"],
            "digest": row["digest"],
        }
        for stage, row in ((stage, result["stages"].get(stage)) for stage in ("origin", *STAGES))
        if row
    ]
