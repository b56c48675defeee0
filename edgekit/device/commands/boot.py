"""`edgerun boot`: select the release to start.

A release is installed with a number of tries, and each start during its probation uses up one of them. If none is left,
the release is rolled back.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from edgekit.device.commands import _options
from edgekit.runner.errors import BackendError, ReleaseError

if TYPE_CHECKING:
    from edgekit.device.releases.home import Home

HELP = "use one try of a release on probation, then print its path or start a program with it"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    _options.add_home_argument(parser)
    parser.usage = "%(prog)s [options] [-- PROGRAM ...]"
    parser.set_defaults(program=[])


def _begin(home: Home) -> int:
    """Return the release to start.

    If this user cannot write to the home, no try can be counted, so a confirmed release is returned.
    """
    from edgekit.device.releases import transitions
    from edgekit.runner.files import READ_ONLY_ERRORS

    if home.exists() and not home.is_mine():
        number = transitions.release_without_attempt(home)
        if number is None:
            raise ReleaseError(
                f"{home.root}: no release is confirmed, and only the owner of this folder can try one; run as its owner"
            )
        return number
    try:
        with home.locked():
            return transitions.begin_attempt(home, transitions.boot_id())
    except OSError as error:
        number = transitions.release_without_attempt(home) if error.errno in READ_ONLY_ERRORS else None
        if number is None:
            raise
        return number


def run(options: argparse.Namespace) -> None:
    """Print the path of the release's bundle, or replace this process by the program."""
    from edgekit.device.releases import current_release
    from edgekit.device.releases.home import find_home

    home = find_home(options.home)
    number = _begin(home)
    release = current_release.Release.at(home, number)
    release.read()
    if not options.program:
        print(release.path)
        return
    command = [word.replace("{bundle}", release.path) for word in options.program]
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, release.environment())
    except OSError as error:
        raise BackendError(f"{command[0]}: cannot be started: {error.strerror or error}") from None
