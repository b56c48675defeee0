"""`edgerun confirm`: confirm the release that is on probation."""

from __future__ import annotations

import argparse

from edgekit.device.commands import _options
from edgekit.runner.commands import _shared

HELP = "confirm the release that is on probation"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--release", metavar="N", type=_shared.positive, help="only if this is the current release")
    _options.add_home_argument(parser)
    _shared.add_json_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Confirm the release, and print which release is current."""
    from edgekit.device.releases import summary, transitions
    from edgekit.device.releases.home import find_home

    summary.change_and_print(
        find_home(options.home), options.json, lambda home: transitions.confirm(home, options.release)
    )
