"""How long calls took, all of them: a median hides the tail that users notice."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from edgekit.report.plots.style import ACCENT, DARK, MID, STYLE, done

RANKS = {50: "o", 95: "s", 99: "^"}
LOOKS = (
    ("#333333", "-"), (DARK, "--"), (ACCENT, "-"), (MID, "-."), ("#777777", ":"), (DARK, ":"), (ACCENT, "-."),
)  # fmt: skip
POINTS = 400
"""Steps of a curve: more than a screen can show of its height, and few enough for a small file."""


def ecdf(samples_ms: Mapping[str, np.ndarray]) -> Figure:
    """Share of share of calls at most this long, by name, (calls,) milliseconds each; p50, p95 and p99 are marked."""
    shares = np.linspace(0.0, 1.0, POINTS + 1)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.6, 4.4), layout="constrained")
        for number, (name, values) in enumerate(samples_ms.items()):
            colour, line = LOOKS[number % len(LOOKS)]
            curve_ms = np.quantile(values, shares, method="inverted_cdf")
            axes.plot(curve_ms, shares, line, color=colour, linewidth=1.4, drawstyle="steps-post", label=name)
            for rank, marker in RANKS.items():
                axes.plot(np.percentile(values, rank), rank / 100, marker, color=colour, markersize=6, fillstyle="none")
        for rank in RANKS:
            axes.axhline(rank / 100, color="#777777", linewidth=0.7, linestyle=":", zorder=1)
            axes.annotate(
                f"p{rank}",
                (1.0, rank / 100),
                xycoords=("axes fraction", "data"),
                xytext=(4, 0 if rank == 50 else 3 if rank == 99 else -3),
                textcoords="offset points",
                va="center",
                fontsize=8,
                annotation_clip=False,
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set(ylim=(0, 1.02), xlabel="one call, ms (log scale)", ylabel="share of calls at most this long")
        axes.set_title("Latency of all calls (ECDF; ○ p50, □ p95, △ p99)")
        figure.legend(loc="outside lower center", ncols=2, fontsize=8, handlelength=3.2)
    return done(figure)
