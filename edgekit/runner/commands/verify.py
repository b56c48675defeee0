"""`edgerun verify`: is the bundle what its manifest says, and has somebody signed it who may?"""

from __future__ import annotations

import argparse

from edgekit.runner import extension
from edgekit.runner.commands import _shared

HELP = "check every member of a bundle against its manifest, and its signatures"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    _shared.add_bundle_arguments(parser)
    extension.find().add_verify_options(parser)


def run(options: argparse.Namespace) -> None:
    """List the members, or end with the error that names the first bad one."""
    found, trusted = extension.find().verified(options)
    members = found.manifest.members
    if options.json:
        facts = {"bundle": options.bundle, "sha256": found.sha256, "members": members}
        _shared.print_json({**facts, **({"trusted": trusted._asdict()} if trusted else {})})
        return
    for name, each in sorted(members.items()):
        print(f"{name:<28} {each['bytes']:>10,} bytes  ok")
    print(f"sha256 {found.sha256}")
    if trusted:
        for line in trusted.lines():
            print(line)
