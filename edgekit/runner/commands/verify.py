"""`edgerun verify`: check that a bundle matches its manifest, and who signed it."""

from __future__ import annotations

import argparse

from edgekit.runner import extension
from edgekit.runner.commands import _shared

HELP = "check every member of a bundle against its manifest, and its signatures"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    _shared.add_bundle_arguments(parser)
    extension.find().add_verify_options(parser)


def run(options: argparse.Namespace) -> None:
    """List the members, or end with the error that names the first bad one."""
    opened, trusted = extension.find().verified(options)
    members = opened.manifest.members
    if options.json:
        report = {"bundle": options.bundle, "sha256": opened.sha256, "members": members}
        _shared.print_json({**report, **({"trusted": trusted._asdict()} if trusted else {})})
        return
    for name, each in sorted(members.items()):
        print(f"{name:<28} {each['bytes']:>10,} bytes  ok")
    print(f"sha256 {opened.sha256}")
    if trusted:
        for line in trusted.lines():
            print(line)
