"""`edgerun selftest`: check that the bundle reproduces its recorded answers on this device."""

from __future__ import annotations

import argparse

from edgekit.runner import extension
from edgekit.runner.commands import _shared
from edgekit.runner.errors import SelftestError
from edgekit.runner.extension import LoadOptions

HELP = "run the golden samples and compare the scores"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    _shared.add_bundle_arguments(parser)
    _shared.add_interpreter_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """Print the report. Raises SelftestError if the answers differ."""
    load_options = LoadOptions(options.threads, options.interpreter, options.device or "CPU", not options.no_trial)
    report = extension.find().selftest(options.bundle, load_options)
    if options.json:
        _shared.print_json(report.to_dict())
    else:
        print(f"interpreter {report.interpreter} {report.version}")
        print(f"max |Δ|     {report.max_abs_delta:.3g} (allowed {report.atol:.3g})")
        print(f"agreement   {report.top1_agreement:.1%} of {report.vectors} golden samples")
        print("selftest    " + ("passed" if report.ok else "FAILED"))
    if not report.ok:
        raise SelftestError(
            f"{options.bundle}: the answers to the golden samples are not the recorded ones on {report.interpreter} "
            f"{report.version}; use another interpreter or version, and trust no prediction until the self-test passes"
        )
