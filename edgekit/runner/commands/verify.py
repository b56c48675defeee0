"""`edgerun verify`: is the bundle what its manifest says?"""

from __future__ import annotations

import argparse

from edgekit.runner.commands import _shared

HELP = "check every member of a bundle against its manifest"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    _shared.bundle(parser)


def run(options: argparse.Namespace) -> None:
    """List the members, or end with the error that names the first bad one."""
    from edgekit.runner import bundle

    found = bundle.read(options.bundle)
    members = found.manifest.members
    if options.json:
        _shared.print_json({"bundle": options.bundle, "sha256": found.sha256, "members": members})
        return
    for name, facts in sorted(members.items()):
        print(f"{name:<28} {facts['bytes']:>10,} bytes  ok")
    print(f"sha256 {found.sha256}")
