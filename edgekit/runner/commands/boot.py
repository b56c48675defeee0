"""`edgerun boot`: the release to start now. On trial, a try is spent first; without one left, the way back is taken."""

from __future__ import annotations

import argparse
import os
import sys

from edgekit.runner.commands import _shared
from edgekit.runner.errors import BackendError

HELP = "spend a try of a release on trial, then print its path or start a program with it"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    _shared.home(parser)
    parser.usage = "%(prog)s [options] [-- PROGRAM ...]"
    parser.set_defaults(program=[])


def run(options: argparse.Namespace) -> None:
    """The path of its bundle; with a program, that takes the place of this process."""
    from edgekit.runner.releases import current, transitions
    from edgekit.runner.releases.home import locate

    home = locate(options.home)
    try:
        with home.locked():
            number = transitions.begin(home, transitions.boot_id())
    except OSError as error:
        found = transitions.untried(home) if error.errno in transitions.READ_ONLY else None
        if found is None:
            raise
        number = found
    release = current.Release.at(home, number)
    release.read()
    if not options.program:
        print(release.path)
        return
    words = [word.replace("{bundle}", release.path) for word in options.program]
    sys.stdout.flush()
    try:
        os.execvpe(words[0], words, release.environment())
    except OSError as error:
        raise BackendError(f"{words[0]}: cannot be started: {error.strerror or error}") from None
