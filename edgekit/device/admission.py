"""Admission of bundles: in signed mode, only bundles that the device's policy trusts may run, wherever the file is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from edgekit.runner import device_home
from edgekit.runner.bundle import Bundle, read_bytes
from edgekit.runner.bundle import read as read_any
from edgekit.runner.errors import TrustError


def read(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle like `edgekit.runner.bundle.read`, and raise TrustError if the device's policy does not trust it.

    The bundle's signed statement and the signatures must be next to the bundle. A bundle that was installed on this
    device may be older than the confirmed release; any other bundle may not.
    """
    signed = device_home.homes_with_policy(device_home.find_home())
    if not signed:
        return read_any(path)
    from edgekit.device import trust

    if sys.platform == "win32":
        trust.policy.check_private(Path(signed[0], device_home.POLICY_FOLDER))  # raises on Windows
    from edgekit.device.releases import current_release, records
    from edgekit.device.releases.home import Home

    file = Path(os.path.realpath(path))
    data = trust.read_contents(file)
    digest = trust.digests.hexdigest(data)
    names = set()
    for home in map(Home, signed):
        try:
            home.exists()
            is_release = file.parent.parent == Path(os.path.realpath(home.releases))
            floors = None if is_release else records.checked_version_floors(home)
            names.add(
                trust.check_bundle(file, home.trust, floors, current_release.clock_floor(home), sha256=digest).name
            )
        except TrustError as error:
            raise TrustError(f"{error}; this device is in signed mode (policy: {home.trust})") from None
        except OSError as error:
            raise TrustError(
                f"{error.filename}: cannot be read ({error.strerror}); this device is in signed mode (policy: "
                f"{home.trust}): "
                "let this user read the folder, or run as its owner"
            ) from None
    bundle = read_bytes(data, os.fspath(path))
    for name in names:
        trust.check_name(name, bundle.manifest.name, path)
    return bundle
