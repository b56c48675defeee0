"""Read the bundle of a `NAME.eim`, which is the runner with a bundle in it, or a bundle by itself."""

from __future__ import annotations

import os
import zipfile

from edgekit.device import autotune
from edgekit.device.eim import MEMBER, parameters
from edgekit.runner import bundle, device_home, extension
from edgekit.runner.errors import BundleError, InputError, TrustError
from edgekit.runner.model import Model

SHEBANG = b"#!"


def read(path: str) -> bundle.Bundle:
    """Return the verified bundle.

    Raises
    ------
    BundleError
        The file holds no bundle, or one for other machines.
    InputError
        Edge Impulse's protocol cannot express its samples or answers.
    TrustError
        The device is in signed mode, and its policy does not trust the bundle.
    """
    found = _read_member(path) if _is_program(path) else extension.find().read(path)
    try:
        parameters.check(found.manifest)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    bundle.check_architecture(found.manifest)
    return found


def open_model(path: str) -> Model:
    """Open the bundle as an earlier tuning run on this device found best.

    Clients wait only seconds for a model, so no tuning run is started.
    """
    from edgekit.runner.native_stderr import quiet_native

    with quiet_native():
        return autotune.open_known(read(path))


def _is_program(path: str) -> bool:
    try:
        with open(path, "rb") as stream:
            return stream.read(len(SHEBANG)) == SHEBANG
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from None


def _read_member(path: str) -> bundle.Bundle:
    if homes := device_home.homes_with_policy(device_home.find_home()):
        raise TrustError(
            f"{path}: this device is in signed mode (policy: {homes[0]}), where a bundle needs its signature beside "
            "it; start edgerun eim with the signed bundle"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            data = archive.read(MEMBER)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise BundleError(f"{path}: holds no bundle ({error}); export it again") from None
    return bundle.read_bytes(data, os.fspath(path))
