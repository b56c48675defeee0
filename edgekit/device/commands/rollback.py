"""`edgerun rollback`: go back to the release that was confirmed before."""

from __future__ import annotations

import argparse

from edgekit.device.commands import _options
from edgekit.runner.commands import _shared

HELP = "go back to the release that was confirmed before"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--why", metavar="TEXT", default="rolled back by hand", help="reason, recorded with the release"
    )
    parser.add_argument(
        "--release",
        metavar="N",
        type=_shared.positive,
        help="only if this is the current release; nothing happens if it has failed already",
    )
    _options.add_home_argument(parser)
    _shared.add_json_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Roll back, and print which release is current. Raises ReleaseError if no earlier release can be used."""
    from edgekit.device.releases import summary, transitions
    from edgekit.device.releases.home import find_home

    summary.change_and_print(
        find_home(options.home), options.json, lambda home: transitions.roll_back(home, options.why, options.release)
    )
