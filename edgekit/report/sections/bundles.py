"""Show the bundles: the results of their self-tests in a new process, and their contents."""

from __future__ import annotations

from typing import cast

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.result import Result
from edgekit.core.schema.variants import VariantRow
from edgekit.report.figures import DARK, LIGHT, MID, STYLE, close_figure
from edgekit.report.formatting import count
from edgekit.report.tables import Grid, Table, grid


def table(artifact: Artifact) -> Table:
    """Show every bundle with the result of its self-test in a new process."""
    rows = []
    for target, entry in artifact.metrics["bundles"].items():
        selftest = artifact.metrics["selftest"][target]
        rows.append(
            (
                entry["file"],
                entry["variant"],
                count(entry["bytes"]),
                f"{selftest['interpreter']} {selftest['version']}",
                f"{selftest['max_abs_delta']:.2g}",
                f"{selftest['top1_agreement']:.0%} of {selftest['vectors']}",
                entry["sha256"][:12],
            )
        )
    return Table(("bundle", "variant", "bytes", "validated on", "max |Δ|", "golden answers", "sha256"), rows)


def page_grid(result: Result) -> Grid | None:
    """Show the files to copy to a device, with the sizes of the bundle, of its model, and of the zipped model."""
    models = {row["name"]: row for row in result["variants"]}
    rows = []
    for target, entry in result["bundles"].items():
        model = cast("VariantRow", models[entry["variant"]])
        bytes_of = count(entry["bytes"]), count(model["bytes"]), count(model["zipped_bytes"])
        rows.append((target, entry["file"], entry["variant"], *bytes_of, entry["sha256"]))
    sizes = ("sent", "model", "zipped")
    columns = ("target", "file in bundles/", "variant", *sizes, "sha256")
    return grid("Files to copy to a device, in bytes", columns, rows, "|".join(sizes)) if rows else None


def members_figure(bundles: dict[str, dict[str, int]]) -> Figure:
    """Draw the size of each bundle by member."""
    kinds = ("model", "golden", "rest")
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 0.5 * len(bundles) + 1.3), layout="constrained")
        left = dict.fromkeys(bundles, 0.0)
        for kind, colour, hatch in zip(kinds, (DARK, MID, LIGHT), ("", "...", "///"), strict=True):
            widths = [
                sum(size for name, size in each.items() if _kind(name) == kind) / 1024 for each in bundles.values()
            ]
            axes.barh(
                list(bundles),
                widths,
                left=list(left.values()),
                color=colour,
                hatch=hatch,
                edgecolor="white",
                label={"model": "model", "golden": "golden answers", "rest": "manifest and texts"}[kind],
            )
            left = {name: left[name] + width for name, width in zip(left, widths, strict=True)}
        axes.set(xlabel="KiB")
        axes.set_title("What is in each bundle")
        axes.grid(axis="y", visible=False)
        figure.legend(loc="outside lower center", ncols=3)
    return close_figure(figure)


def _kind(member: str) -> str:
    head = member.partition("/")[0]
    return head if head in ("model", "golden") else "rest"
