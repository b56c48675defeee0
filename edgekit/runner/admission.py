"""A bundle that is to run: on a device in signed mode only one that its policy trusts, wherever the file lies."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from edgekit.runner import place
from edgekit.runner.bundle import Bundle, read_bytes
from edgekit.runner.bundle import read as read_any
from edgekit.runner.errors import TrustError


def read(path: str | os.PathLike[str]) -> Bundle:
    """As `edgekit.runner.bundle.read`; also TrustError for a bundle that the device's policy does not trust.

    Statement and signatures lie beside it. One that was installed here may be older than the confirmed release, any
    other may not.
    """
    root = place.locate()
    if not os.path.lexists(os.path.join(root, place.TRUST)):
        return read_any(path)
    from edgekit.runner import trust

    if sys.platform == "win32":
        trust.policy.check_private(Path(root, place.TRUST))  # always refuses there
    from edgekit.runner.releases import current, records
    from edgekit.runner.releases.home import Home

    home = Home(root)
    home.exists()
    file = Path(os.path.realpath(path))
    floors = None if file.parent.parent == Path(os.path.realpath(home.releases)) else records.floors(home)
    data = trust.contents(file)
    digest = trust.digests.hexdigest(data)
    try:
        found = trust.check(file, home.trust, floors, current.clock_floor(home), sha256=digest)
    except TrustError as error:
        raise TrustError(f"{error}; this device is in signed mode, by {home.trust}") from None
    bundle = read_bytes(data, os.fspath(path))
    trust.check_name(found.name, bundle.manifest.name, path)
    return bundle
