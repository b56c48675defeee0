"""`predict --keep` and `--report`: keep samples and write reports on the device, for use on the workstation."""

from __future__ import annotations

import argparse
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edgekit.runner.commands import _shared

if TYPE_CHECKING:
    from edgekit.runner.model import Model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options. Without them, no samples are kept and no report is written."""
    group = parser.add_argument_group("from the field back to the workstation")
    group.add_argument(
        "--keep", metavar="FOLDER", help="keep the most uncertain samples of each day, so that they can be labelled"
    )
    group.add_argument(
        "--keep-per-day",
        metavar="N",
        type=_shared.positive,
        help="largest number of samples kept in a day (default: 100)",
    )
    group.add_argument(
        "--keep-bytes",
        metavar="B",
        type=_shared.positive,
        help="largest size of all kept samples together, bytes (default: 100000000)",
    )
    group.add_argument(
        "--report", metavar="FILE", help="write a field report as JSON, every minute and at the end: FILE.json"
    )


def check(options: argparse.Namespace) -> None:
    """Exit with code 2 for options that do not go together."""
    if options.keep is None and (options.keep_per_day or options.keep_bytes):
        options.misuse("--keep-per-day and --keep-bytes apply only with --keep")
    if options.keep == "":
        options.misuse("--keep: name a folder")
    if options.report is not None and not options.report.endswith(".json"):
        options.misuse(f"--report {options.report}: name a file that ends in .json")


@contextmanager
def handle_termination(options: argparse.Namespace) -> Iterator[None]:
    """While a model is observed, treat SIGTERM like Ctrl-C and print Python's warnings as the runner prints its own.

    Services are stopped with SIGTERM, and the observers must be able to write their last output.
    """
    is_observing = options.metrics or options.watch or options.keep or options.report
    if not is_observing or threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(*_: Any) -> None:
        raise KeyboardInterrupt("SIGTERM")

    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: _shared.warn(str(message))
            yield
    finally:
        signal.signal(signal.SIGTERM, previous or signal.SIG_DFL)


@contextmanager
def observe(model: Model, options: argparse.Namespace) -> Iterator[None]:
    """Attach the requested observers, and close them at the end, when they write their last output."""
    try:
        _attach(model, options)
        yield
    finally:
        model.observers.close()


def _attach(model: Model, options: argparse.Namespace) -> None:
    """Add the requested observers to the model."""
    if options.keep is not None:
        from edgekit.device.monitor import uncertain

        model.observers.add(
            uncertain.UncertainSamples.of(
                model,
                options.keep,
                per_day=options.keep_per_day or uncertain.PER_DAY,
                most_bytes=options.keep_bytes or uncertain.MOST_BYTES,
            )
        )
    if options.report is not None:
        from edgekit.device.monitor.field_report import FieldReport

        model.observers.add(FieldReport(model, options.report))
