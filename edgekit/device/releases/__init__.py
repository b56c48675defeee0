"""Releases on a device: received by digest, proven here, tried, then confirmed or taken back. Standard library alone.

    incoming/<sha256>    what has arrived of a file; its size is the offset to go on from
    store/<sha256>       whole files, their digests checked
    releases/<n>/        bundle.edge.zip, install.json, proof.json; then confirmed.json or failed.json
    current              the only pointer, a link to a release
    trial.json           there exactly while `current` is not confirmed: release, from, tries
    floor.json           by name the highest epoch and counter that were confirmed; made again of what the releases say
    trust/               a policy; where it is there, everything that it does not trust is refused

Each change is one rename, and the folder is then synced. `transitions.recover` begins every command, under the lock,
and puts right what any kill has left.
"""

import sys

from edgekit.runner.errors import ReleaseError

if sys.platform == "win32":
    raise ReleaseError(
        "releases need file locks and links that Windows does not have; run this in WSL 2 or on a device with Linux"
    )
