"""`edgerun eim`: answer Edge Impulse's clients on a Unix socket. A `NAME.eim` is this command with its bundle."""

from __future__ import annotations

import argparse
import json

HELP = "answer Edge Impulse's clients on a Unix socket"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a file that ends in .edge.zip, or one that ends in .eim")
    parser.add_argument("socket", metavar="SOCKET", nargs="?", help="where to create the socket")
    parser.add_argument("--stay", action="store_true", help="wait for other clients after the last one has gone")
    parser.add_argument(
        "--print-info", action="store_true", help="print the parameters of the model as JSON, and end; needs no SOCKET"
    )
    parser.set_defaults(misuse=parser.error)


def run(options: argparse.Namespace) -> None:
    """Answer clients until the last one has gone."""
    from edgekit.device.eim import server

    if options.print_info:
        from edgekit.device.eim import archive, parameters

        print(json.dumps(parameters.describe(archive.read(options.bundle).manifest), indent=2))
        return
    if options.socket is None:
        options.misuse("name the SOCKET to create, or use --print-info")
    server.serve(options.socket, options.bundle, options.stay)
