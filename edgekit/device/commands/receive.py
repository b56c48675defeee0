"""`edgerun receive`: receive a file on standard input. If a connection breaks, the next one continues the file."""

from __future__ import annotations

import argparse
import sys

from edgekit.device.commands import _options
from edgekit.runner.commands import _shared
from edgekit.runner.errors import InputError

HELP = "append standard input to a file, and keep the file if its digest is right"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("sha256", metavar="SHA256", type=_options.sha256, help="digest of the complete file")
    parser.add_argument(
        "--offset",
        metavar="N",
        type=_shared.non_negative,
        help="offset in the file at which the input begins; any other than the expected one is refused",
    )
    parser.add_argument("--size", metavar="N", type=_shared.non_negative, help="size of the complete file, bytes")
    parser.add_argument(
        "--acknowledge",
        metavar="N",
        type=_shared.non_negative,
        default=0,
        help="print the offset every N bytes (default: 0, only at the end)",
    )
    parser.add_argument("--restart", action="store_true", help="first remove the part of the file that has arrived")
    _options.add_home_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Receive the file, and print lines of JSON with the number of bytes that are stored safely.

    Such a line is also printed if the offset was wrong, so that the sender knows where to continue.
    """
    from edgekit.device.releases.home import find_home
    from edgekit.device.releases.incoming_files import receive_file

    state = {"offset": 0, "stored": True}

    def print_offset(offset: int, stored: bool) -> None:
        state.update(offset=offset, stored=stored)
        _shared.print_json({"sha256": options.sha256, **state})
        sys.stdout.flush()

    if sys.stdin is None:  # the program that started this one closed it
        raise InputError("standard input is closed; send the file there")
    settings = {name: getattr(options, name) for name in ("offset", "size", "acknowledge", "restart")}
    with open(sys.stdin.fileno(), "rb", closefd=False) as stream:
        receive_file(find_home(options.home), options.sha256, stream, print_offset, **settings)
    if options.size is None and not state["stored"]:
        progress = f"{state['offset']} bytes have arrived, which is not yet the complete file"
        _shared.warn(f"{progress}; send the rest, or the complete file with --restart")
