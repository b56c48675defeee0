"""Releases on a device: received by digest, validated here, put on probation, then confirmed or rolled back.

Only the standard library is needed. The files in a home are:

    incoming/<sha256>    what has arrived of a file; its size is the offset at which sending continues
    store/<sha256>       complete files with checked digests
    releases/<n>/        bundle.edge.zip, install.json, proof.json; then confirmed.json or failed.json
    current              the only pointer, a link to a release
    trial.json           exists exactly while `current` is on probation; see `records.Probation`
    floor.json           the highest confirmed version of each bundle name; if damaged, rebuilt from the releases
    trust/               a policy; if it exists, everything that it does not trust is refused

Each change is one rename, after which the folder is synced. Every command takes the home's lock and begins with
`transitions.recover`, which repairs whatever a killed command has left.
"""

import sys

from edgekit.runner.errors import ReleaseError

if sys.platform == "win32":
    raise ReleaseError(
        "releases need file locks and links that Windows does not have; run this in WSL 2 or on a device with Linux"
    )
