"""`edgerun install`: validate a bundle on this device and install it as a release on probation."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from edgekit.device.commands import _options
from edgekit.runner.commands import _shared
from edgekit.runner.errors import InputError

HELP = "validate a bundle on this device and start its probation"
SHA256 = re.compile(r"[0-9a-f]{64}")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a file, or the sha256 of a bundle that was received")
    parser.add_argument(
        "--tries",
        metavar="N",
        type=_options.whole_number_between(1, 1000),
        default=3,
        help="number of starts within which it must be confirmed (default: 3)",
    )
    parser.add_argument(
        "--statement",
        metavar="SHA256",
        type=_options.sha256,
        help="its signed statement, which was received before",
    )
    parser.add_argument(
        "--signature",
        metavar="SHA256",
        type=_options.sha256,
        action="append",
        default=[],
        help="signature of that statement; may be repeated",
    )
    _options.add_validation_arguments(parser)
    _options.add_home_argument(parser)
    _shared.add_json_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Install the bundle, and print which release is current. If this fails, the device is unchanged."""
    from edgekit.device.releases import summary
    from edgekit.device.releases.home import find_home
    from edgekit.device.releases.installation import BundleFiles, install, store_bundle

    home, path = find_home(options.home), Path(options.bundle)
    if SHA256.fullmatch(options.bundle):
        files = BundleFiles(options.bundle, options.statement, tuple(options.signature))
    elif path.is_file():
        files = store_bundle(home, path)
    else:
        raise InputError(f"{path}: neither an existing file nor a sha256 of 64 hex digits")
    install(home, files, options.tries, _options.validation_limits(options), options.interpreter, _shared.warn)
    summary.print_summary(home, options.json)
