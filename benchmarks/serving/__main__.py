"""What serving costs: `python -m benchmarks.serving [BUNDLES] [--only NAME] [--rounds N]`."""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.environments import NotRun
from benchmarks.serving import report
from benchmarks.serving.experiments import NAMES
from benchmarks.serving.machine import HOME, ROOT
from benchmarks.serving.plan import Plan
from benchmarks.serving.report import Finding
from edgekit.runner.errors import RunnerError

DIGITS = ROOT / "artifacts" / "digits" / "bundles"


def arguments() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving",
        description="What serving costs, in interleaved rounds, on two cores: one for the server, one for the load. "
        "Writes build/serving/report.txt and report.json. The defaults take about 20 minutes.",
    )
    parser.add_argument("bundles", nargs="?", type=Path, default=DIGITS, help="folder of the digits' bundles")
    parser.add_argument("--only", action="append", choices=NAMES, help="this experiment; repeat for more")
    parser.add_argument("--rounds", type=_rounds, default=10, help="fewer than 10 give no interval (default: 10)")
    parser.add_argument("--scale", type=_scale, default=1.0, help="multiplies how long load lasts (default: 1)")
    return parser


def main() -> int:
    """All experiments, one after the other; what cannot be run is said."""
    options = arguments().parse_args()
    plan = Plan(options.bundles.absolute(), options.rounds, options.scale)
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    shutil.rmtree(HOME / "cache", ignore_errors=True)  # choices and curves of this run alone
    (HOME / "cache").mkdir(parents=True)
    facts, findings = {**report.machine(), "rounds": plan.rounds, "scale": plan.scale}, []
    for name in options.only or NAMES:
        finding = measured(name, plan)
        findings.append(finding)
        print(finding.text(), flush=True)
        report.write(HOME, facts, findings)
    print(f"written: {HOME / 'report.txt'} and report.json", file=sys.stderr)
    return 0


def measured(name: str, plan: Plan) -> Finding:
    """What an experiment found, or why it found nothing."""
    module = importlib.import_module(f"benchmarks.serving.experiments.{name}")
    begun, load = time.monotonic(), os.getloadavg()[0]
    try:
        finding: Finding = module.measure(plan)
    except (NotRun, RunnerError, OSError, subprocess.SubprocessError) as reason:
        finding = Finding(name, module.TITLE, missing=[f"all of it: {reason}"])
    finding.seconds, finding.load_before = time.monotonic() - begun, load
    return finding


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text}; use a whole number from 1")
    return int(text)


def _scale(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"got {text}; use a number above 0, up to 100")
    return value


if __name__ == "__main__":
    sys.exit(main())
