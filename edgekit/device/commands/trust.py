"""`edgerun trust`: this device takes over a policy, and is in signed mode from the first one on."""

from __future__ import annotations

import argparse

from edgekit.device.commands import _options
from edgekit.runner.commands import _shared

HELP = "take over a signed policy that says who may sign bundles"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("source", metavar="FROM", help="folder that `edgekit trust` made: policy.json, its signature")
    _options.add_home_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Say which policy holds now; TrustError where it is older, or the root of this device has not signed it."""
    from pathlib import Path

    from edgekit.device.releases import current_release, transitions
    from edgekit.device.releases.home import create_home, find_home
    from edgekit.device.trust import policy, sshsig
    from edgekit.device.trust.adoption import adopt_policy
    from edgekit.device.trust.signed_json import format_time

    home = find_home(options.home)
    create_home(home)
    with home.locked():
        transitions.recover(home)
        made = adopt_policy(Path(options.source), home.trust)
        refused = current_release.refusal_reason(home)
    print(f"root    {sshsig.fingerprint(policy.root_key(home.trust))}")
    print(f"policy  version {made.version}, epoch {made.epoch}, until {format_time(made.expires_s)}")
    print(f"signers {', '.join(sorted(made.signers)) or 'nobody yet'}; {made.threshold} must sign")
    if refused:
        _shared.warn(f"{refused}; it will not be loaded: install a signed bundle")
