"""`edgerun gc`: remove releases and files that are no longer needed."""

from __future__ import annotations

import argparse

from edgekit.device.commands import _options
from edgekit.runner.commands import _shared

HELP = "remove old releases, and files that belong to no release"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--keep", metavar="N", type=_shared.non_negative, default=2,
        help="releases to keep besides the current one and the one before it (default: 2)",
    )  # fmt: skip
    _options.add_home_argument(parser)
    _shared.add_json_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Remove old releases and unused files, and print how much was removed."""
    from edgekit.device.releases import cleanup, transitions
    from edgekit.device.releases.home import find_home

    home = find_home(options.home)
    with home.locked():
        transitions.recover(home)
        removed, freed = cleanup.remove_old_releases(home, options.keep)
    if options.json:
        _shared.print_json({"removed": removed, "bytes": freed})
    else:
        print(f"removed {len(removed)} releases, {freed:,} bytes in total")
