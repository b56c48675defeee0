"""`edgerun trust`: this device takes over a policy, and is in signed mode from the first one on."""

from __future__ import annotations

import argparse

from edgekit.device.commands import _device
from edgekit.runner.commands import _shared

HELP = "take over a signed policy that says who may sign bundles"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("source", metavar="FROM", help="folder that `edgekit trust` made: policy.json, its signature")
    _device.home(parser)


def run(options: argparse.Namespace) -> None:
    """Say which policy holds now; TrustError where it is older, or the root of this device has not signed it."""
    from pathlib import Path

    from edgekit.device.releases import current, transitions
    from edgekit.device.releases.home import create, locate
    from edgekit.device.trust import policy, sshsig
    from edgekit.device.trust.adopt import adopt
    from edgekit.device.trust.signed_json import spelled

    home = locate(options.home)
    create(home)
    with home.locked():
        transitions.recover(home)
        made = adopt(Path(options.source), home.trust)
        refused = current.why_refused(home)
    print(f"root    {sshsig.fingerprint(policy.root_key(home.trust))}")
    print(f"policy  version {made.version}, epoch {made.epoch}, until {spelled(made.expires_s)}")
    print(f"signers {', '.join(sorted(made.signers)) or 'nobody yet'}; {made.threshold} must sign")
    if refused:
        _shared.warn(f"{refused}; it will not be loaded: install a signed bundle")
