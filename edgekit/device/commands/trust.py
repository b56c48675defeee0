"""`edgerun trust`: adopt a trust policy. The first one puts the device in signed mode."""

from __future__ import annotations

import argparse

from edgekit.device.commands import _options
from edgekit.runner.commands import _shared

HELP = "adopt a signed policy that says who may sign bundles"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "source", metavar="FROM", help="folder that `edgekit trust` made, with policy.json and its signature"
    )
    _options.add_home_argument(parser)


def run(options: argparse.Namespace) -> None:
    """Adopt the policy and print it.

    Raises TrustError if it is older than the present one, or not signed with the root key of this device.
    """
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
        adopted = adopt_policy(Path(options.source), home.trust)
        refusal = current_release.refusal_reason(home)
    print(f"root    {sshsig.fingerprint(policy.root_key(home.trust))}")
    print(f"policy  version {adopted.version}, epoch {adopted.epoch}, until {format_time(adopted.expires_s)}")
    print(f"signers {', '.join(sorted(adopted.signers)) or 'nobody yet'}; at least {adopted.threshold} must sign")
    if refusal:
        _shared.warn(f"{refusal}; this release will not be loaded, so install a signed bundle")
