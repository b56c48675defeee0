"""`edgerun trust`: this device takes over a policy, and is in signed mode from the first one on."""

from __future__ import annotations

import argparse

HELP = "take over a signed policy that says who may sign bundles"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("source", metavar="FROM", help="folder that `edgekit trust` made: policy.json, its signature")
    parser.add_argument("device", metavar="DIR", help="folder of this device's policy; made where it is not there yet")


def run(options: argparse.Namespace) -> None:
    """Say which policy holds now; TrustError where it is older, or the root of this device has not signed it."""
    from pathlib import Path

    from edgekit.runner.trust import policy, sshsig
    from edgekit.runner.trust.adopt import adopt
    from edgekit.runner.trust.signed_json import spelled

    device = Path(options.device)
    made = adopt(Path(options.source), device)
    print(f"root    {sshsig.fingerprint(policy.root_key(device))}")
    print(f"policy  version {made.version}, epoch {made.epoch}, until {spelled(made.expires_s)}")
    print(f"signers {', '.join(sorted(made.signers)) or 'nobody yet'}; {made.threshold} must sign")
