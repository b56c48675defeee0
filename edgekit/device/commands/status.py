"""`edgerun status`: which release is current, and the state of the others."""

from __future__ import annotations

import argparse

from edgekit.device.commands import _options
from edgekit.runner.commands import _shared

HELP = "show which release is current, and what became of the others"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    _options.add_home_argument(parser)
    _shared.add_json_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Print the releases as text or JSON."""
    from edgekit.device.releases import summary
    from edgekit.device.releases.home import find_home

    summary.print_summary(find_home(options.home), options.json)
