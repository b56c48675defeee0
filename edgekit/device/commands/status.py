"""`edgerun status`: which release is current, and what became of the others."""

from __future__ import annotations

import argparse

from edgekit.device.commands import _options
from edgekit.runner.commands import _shared

HELP = "say which release is current, and what became of the others"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    _options.add_home_argument(parser)
    _shared.add_json_argument(parser)


def run(options: argparse.Namespace) -> None:
    """A line for each thing to know, or JSON with all of it."""
    from edgekit.device.releases import summary
    from edgekit.device.releases.home import find_home

    summary.print_summary(find_home(options.home), options.json)
