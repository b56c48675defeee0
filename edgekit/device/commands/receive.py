"""`edgerun receive`: a file that arrives on standard input, on however many lines that are cut."""

from __future__ import annotations

import argparse
import sys

from edgekit.device.commands import _options
from edgekit.runner.commands import _shared
from edgekit.runner.errors import InputError

HELP = "append standard input to a file, and keep that when its digest is right"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("sha256", metavar="SHA256", type=_options.sha256, help="of the whole file")
    parser.add_argument(
        "--offset", metavar="N", type=_shared.non_negative, help="where the input begins; refused elsewhere"
    )
    parser.add_argument("--size", metavar="N", type=_shared.non_negative, help="bytes of the whole file")
    parser.add_argument(
        "--acknowledge",
        metavar="N",
        type=_shared.non_negative,
        default=0,
        help="print the offset every N bytes (default: 0)",
    )
    parser.add_argument("--restart", action="store_true", help="remove what has arrived of the file first")
    _options.add_home_argument(parser)


def run(options: argparse.Namespace) -> None:
    """A line of JSON with the bytes that are safe here, also where the offset was another."""
    from edgekit.device.releases.home import find_home
    from edgekit.device.releases.incoming_files import receive_file

    told = {"offset": 0, "stored": True}

    def print_offset(offset: int, stored: bool) -> None:
        told.update(offset=offset, stored=stored)
        _shared.print_json({"sha256": options.sha256, **told})
        sys.stdout.flush()

    if sys.stdin is None:  # closed by whoever started this
        raise InputError("standard input is closed; send the file there")
    how = {name: getattr(options, name) for name in ("offset", "size", "acknowledge", "restart")}
    with open(sys.stdin.fileno(), "rb", closefd=False) as stream:
        receive_file(find_home(options.home), options.sha256, stream, print_offset, **how)
    if options.size is None and not told["stored"]:
        here = f"{told['offset']} bytes are here, not yet the file of this digest"
        _shared.warn(f"{here}; send the rest, or all of it with --restart")
