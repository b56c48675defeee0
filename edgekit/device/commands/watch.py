"""`edgerun watch`: run a program with the current release and check both regularly, under systemd or without it."""

from __future__ import annotations

import argparse

from edgekit.device.commands import _options
from edgekit.runner.commands import _shared

HELP = "start a program with the current release, check it, and confirm the release or roll it back"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--confirm-after", metavar="S", type=_options.non_negative_number, default=60.0,
        help="how long a release on probation must be healthy to be confirmed (default: 60)",
    )  # fmt: skip
    parser.add_argument(
        "--every",
        metavar="S",
        type=_options.non_negative_number,
        default=300.0,
        help="time between two checks (default: 300)",
    )
    _options.add_validation_arguments(parser)
    _options.add_home_argument(parser)
    parser.usage = "%(prog)s [options] [-- PROGRAM ...]"
    parser.set_defaults(program=[])


def run(options: argparse.Namespace) -> None:
    """Watch until this process is stopped, or until the program of a confirmed release exits with code 0."""
    from edgekit.device.releases.home import find_home
    from edgekit.device.releases.watcher import Watcher, WatchOptions

    settings = (options.confirm_after, options.every, _options.validation_limits(options), options.interpreter)
    Watcher(find_home(options.home), WatchOptions(tuple(options.program), *settings), _shared.warn).run()
