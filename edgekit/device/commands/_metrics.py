"""`--metrics`: metrics of the model for Prometheus, in a file or on a port of this machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edgekit.runner.commands import _shared

if TYPE_CHECKING:
    from edgekit.device.monitor.metrics import Metrics


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--metrics",
        metavar="WHERE",
        help="export metrics for Prometheus: FILE.prom for node-exporter's textfile collector, or 127.0.0.1:PORT",
    )


@contextmanager
def open_metrics(where: str | None) -> Iterator[Metrics | None]:
    """Yield metrics for a model that is to be loaded, or None if none are requested, and close them at the end."""
    if where is None:
        yield None
        return
    from edgekit.device.monitor.metrics import Metrics

    metrics = Metrics(where, on_problem=_shared.warn)
    try:
        if not where.endswith(".prom"):
            _shared.warn(f"metrics at {metrics.where}")
        yield metrics
    finally:
        metrics.close()
