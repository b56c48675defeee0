"""`edgerun verify`: is the bundle what its manifest says, and has somebody signed it who may?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from edgekit.runner.commands import _shared

if TYPE_CHECKING:
    from edgekit.runner.bundle import Bundle
    from edgekit.runner.trust import Trusted

HELP = "check every member of a bundle against its manifest, and its signatures"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    _shared.bundle(parser)
    parser.add_argument(
        "--trust", metavar="DIR", help="folder with a signed policy: refuse what nobody signed who may (default: none)"
    )


def run(options: argparse.Namespace) -> None:
    """List the members, or end with the error that names the first bad one."""
    from edgekit.runner import bundle

    found, trusted = _trusted(options) if options.trust else (bundle.read(options.bundle), None)
    members = found.manifest.members
    if options.json:
        facts = {"bundle": options.bundle, "sha256": found.sha256, "members": members}
        _shared.print_json({**facts, **({"trusted": trusted._asdict()} if trusted else {})})
        return
    for name, each in sorted(members.items()):
        print(f"{name:<28} {each['bytes']:>10,} bytes  ok")
    print(f"sha256 {found.sha256}")
    if trusted:
        from edgekit.runner.trust.signed_json import spelled

        print(f"signed by {', '.join(trusted.signers)} at {spelled(trusted.statement_time)}")
        print(f"{trusted.name} epoch {trusted.epoch}, counter {trusted.counter}, until {spelled(trusted.expires)}")


def _trusted(options: argparse.Namespace) -> tuple[Bundle, Trusted]:
    """The bytes that were checked are those that are then read."""
    from pathlib import Path

    from edgekit.runner import bundle, trust

    data = trust.contents(Path(options.bundle))
    found = bundle.sha256.hexdigest(data)
    trusted = trust.check(Path(options.bundle), Path(options.trust), {}, sha256=found, remember=False)
    read = bundle.read_bytes(data, options.bundle)
    trust.check_name(trusted.name, read.manifest.name, options.bundle)
    return read, trusted
