"""`edgerun install`: a received bundle becomes a release that has proven itself here, on trial."""

from __future__ import annotations

import argparse

from edgekit.runner.commands import _shared

HELP = "prove a received bundle on this device and put it on trial"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("sha256", metavar="SHA256", type=_shared.sha256, help="of the bundle")
    parser.add_argument("--tries", metavar="N", type=_shared.positive, default=3, help="starts it has (default: 3)")
    parser.add_argument("--statement", metavar="SHA256", type=_shared.sha256, help="that was signed, received too")
    parser.add_argument(
        "--signature", metavar="SHA256", type=_shared.sha256, action="append", default=[], help="of it; may be repeated"
    )
    _shared.proof(parser)
    _shared.home(parser)
    _shared.as_json(parser)


def run(options: argparse.Namespace) -> None:
    """What is current then; an error leaves the device as it was."""
    from edgekit.runner.releases import summary
    from edgekit.runner.releases.home import locate
    from edgekit.runner.releases.installing import Wanted, install

    home = locate(options.home)
    wanted = Wanted(options.sha256, options.statement, tuple(options.signature))
    install(home, wanted, options.tries, _shared.limits(options), options.interpreter, _shared.warn)
    summary.show(home, options.json)
