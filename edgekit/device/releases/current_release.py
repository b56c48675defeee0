"""Find the release that a program should use, and read it in such a way that no other file can be substituted."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from edgekit.device.releases import records
from edgekit.device.releases.home import Home, find_home
from edgekit.runner import device_home
from edgekit.runner.errors import ReleaseError, RunnerError, TrustError

PROBATION_VARIABLE = "EDGERUN_RELEASE"
"""Names the release with which `boot` or `watch` started a program, which may then load it even on probation."""
READ_ATTEMPTS = 3
CHANGED_MESSAGE = "its digest has changed since it was installed; receive and install it again"


class Release(NamedTuple):
    """A release on this device."""

    root: str
    number: int
    sha256: str

    @classmethod
    def at(cls, home: Home, number: int) -> Release:
        """Return the release with this number."""
        return cls(str(home.root), number, records.bundle_digest(home, number))

    @property
    def path(self) -> str:
        """The path of its bundle."""
        return str(Home(self.root).release(self.number) / records.BUNDLE)

    def environment(self) -> dict[str, str]:
        """Return the environment of a program in which `load("current")` returns this release, even on probation."""
        return {**os.environ, device_home.HOME_VARIABLE: self.root, PROBATION_VARIABLE: str(self.number)}

    def changed(self) -> bool:
        """Whether `load("current")` would return another release by now."""
        try:
            return find_release(Home(self.root)) != self
        except ReleaseError:
            return True

    def read(self) -> bytes:
        """Return the bundle's bytes, which have the installed digest and are trusted if there is a policy.

        Raises
        ------
        TrustError
            The digest is another one, or the policy does not trust the bundle.
        """
        home = Home(self.root)
        data = read_checked(self.path, self.sha256)
        check_trust(home, self.number, None, self.sha256)
        return data


def find_release(home: Home | None = None) -> Release:
    """Return the confirmed release, or the one on probation for a program that `boot` or `watch` started with it."""
    home = home or find_home()
    for _ in range(READ_ATTEMPTS):
        number = _find_once(home) if home.exists() else None
        if number is not None:
            return Release.at(home, number)
    raise ReleaseError(f"{home.root}: no release is confirmed here; install one, and let `edgerun watch` start it")


def _find_once(home: Home) -> int | None:
    """Return the number of the release to use, or None if there is none.

    The result may also be None because a command switched releases while this function was reading.
    """
    current = records.current_number(home)
    if current is None or _is_usable(home, current):
        return current
    origin = records.previous_release(home, current)
    return origin if origin is not None and _is_usable(home, origin) else None


def _is_usable(home: Home, number: int) -> bool:
    is_allowed = os.environ.get(PROBATION_VARIABLE) == str(number) or records.is_confirmed(home, number)
    return is_allowed and not records.has_failed(home, number)


def read_checked(path: str, sha256: str) -> bytes:
    """Read a file and return its bytes after checking their digest. Later changes of the file make no difference."""
    with _open(path) as stream:
        data = stream.read()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise TrustError(f"{path}: {CHANGED_MESSAGE}")
    return data


def check_file(path: str, sha256: str) -> None:
    """Raise TrustError like `read_checked`, without reading the whole file into memory."""
    with _open(path) as stream:
        if file_digest(stream.fileno()) != sha256:
            raise TrustError(f"{path}: {CHANGED_MESSAGE}")


@contextmanager
def _open(path: str) -> Iterator[IO[bytes]]:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as stream:
            yield stream
    except OSError as error:
        raise TrustError(f"{path}: cannot be read ({error.strerror}); install it again") from None


def file_digest(handle: int) -> str:
    """Return the SHA-256 of an open file, from its beginning."""
    hasher = hashlib.sha256()
    offset = 0
    while data := os.pread(handle, 1 << 20, offset):
        hasher.update(data)
        offset += len(data)
    return hasher.hexdigest()


def check_trust(
    home: Home, number: int, floors: dict[str, dict[str, int]] | None, sha256: str, name: str | None = None
) -> dict[str, Any] | None:
    """Check a release against every policy of this device, last against that of the home itself.

    Returns what the last check found out about the release, or None if there is no policy. `floors` are the lowest
    versions to accept; None accepts older ones too, so that it is possible to roll back to a release that was admitted
    before. `sha256` is the digest of the bytes that will be used, and `name` the name in their manifest.

    Raises
    ------
    TrustError
        A policy does not trust the release.
    """
    verdict: dict[str, Any] | None = None
    for each in map(Home, device_home.homes_with_policy(str(home.root))):
        trust = importlib.import_module("edgekit.device.trust")  # not imported on devices without a policy
        bundle = home.release(number) / records.BUNDLE
        each.exists()
        minimum = floors if each.root == home.root else records.checked_version_floors(each)
        trusted = trust.check_bundle(bundle, each.trust, minimum, clock_floor(each), sha256=sha256)._asdict()
        if name is not None:
            trust.check_name(trusted["name"], name, bundle)
        verdict = {**trusted, "signers": list(trusted["signers"])}
    return verdict


def refusal_reason(home: Home, number: int | None = None) -> str:
    """Return why a release, by default the current one, cannot be loaded, or "" if it can or none is current."""
    number = records.current_number(home) if number is None else number
    try:
        if number is not None:
            release = Release.at(home, number)
            check_file(release.path, release.sha256)
            check_trust(home, number, None, release.sha256)
    except RunnerError as error:
        return f"release {number}: {error}"
    except OSError as error:  # for example if the policy's history cannot be written to a full disk
        return f"release {number}: {error.strerror} ({error.filename})"
    return ""


def clock_floor(home: Home) -> float:
    """Return a time in seconds since 1970 that has certainly passed: the newest time in the trusted statements."""
    times = [(records.trust_record(home, each) or {}).get("statement_time") for each in records.release_numbers(home)]
    return max(
        (float(each) for each in times if isinstance(each, (int, float)) and 0 < each < records.COUNT_LIMIT),
        default=0.0,
    )


def statement_name(bundle: str) -> str:
    """Return the file name of a bundle's statement. Signatures have this name with .sig, .sig.2 and so on appended."""
    return f"{bundle}.intoto.json"
