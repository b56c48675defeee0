"""Which release a program is to use, read so that nothing can be put in its place, and whether it is still that."""

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
"""The release on trial that `boot` and `watch` have started a program with."""
READ_ATTEMPTS = 3
CHANGED_MESSAGE = "its digest is not the one that was installed; receive and install it again"


class Release(NamedTuple):
    """A release on this device."""

    root: str
    number: int
    sha256: str

    @classmethod
    def at(cls, home: Home, number: int) -> Release:
        """That of a number."""
        return cls(str(home.root), number, records.bundle_digest(home, number))

    @property
    def path(self) -> str:
        """Its bundle."""
        return str(Home(self.root).release(self.number) / records.BUNDLE)

    def environment(self) -> dict[str, str]:
        """That of a program to which `load("current")` gives this release, be it on trial."""
        return {**os.environ, device_home.HOME_VARIABLE: self.root, PROBATION_VARIABLE: str(self.number)}

    def changed(self) -> bool:
        """Whether `load("current")` would give another release by now."""
        try:
            return find_release(Home(self.root)) != self
        except ReleaseError:
            return True

    def read(self) -> bytes:
        """The bundle's bytes: of the installed digest, and trusted where there is a policy.

        Raises
        ------
        TrustError
            They are not.
        """
        home = Home(self.root)
        data = read_checked(self.path, self.sha256)
        check_trust(home, self.number, None, self.sha256)
        return data


def find_release(home: Home | None = None) -> Release:
    """The confirmed release, or that on trial for a program that `boot` or `watch` has started with it."""
    home = home or find_home()
    for _ in range(READ_ATTEMPTS):
        number = _find_once(home) if home.exists() else None
        if number is not None:
            return Release.at(home, number)
    raise ReleaseError(f"{home.root}: no release is confirmed here; install one, and let `edgerun watch` start it")


def _find_once(home: Home) -> int | None:
    """None also where a command turns to another release between two of these reads."""
    now = records.current_number(home)
    if now is None or _is_usable(home, now):
        return now
    origin = records.previous_release(home, now)
    return origin if origin is not None and _is_usable(home, origin) else None


def _is_usable(home: Home, number: int) -> bool:
    known = os.environ.get(PROBATION_VARIABLE) == str(number) or records.is_confirmed(home, number)
    return known and not records.has_failed(home, number)


def read_checked(path: str, sha256: str) -> bytes:
    """A file's bytes, which have the digest: those that were hashed, whatever happens to the path meanwhile."""
    with _opened(path) as stream:
        data = stream.read()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise TrustError(f"{path}: {CHANGED_MESSAGE}")
    return data


def check_file(path: str, sha256: str) -> None:
    """TrustError where `read_checked` has one; the file is never in memory as a whole."""
    with _opened(path) as stream:
        if file_digest(stream.fileno()) != sha256:
            raise TrustError(f"{path}: {CHANGED_MESSAGE}")


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as stream:
            yield stream
    except OSError as error:
        raise TrustError(f"{path}: cannot be read ({error.strerror}); install it again") from None


def file_digest(handle: int) -> str:
    """Sha256 of an open file, from its beginning."""
    found = hashlib.sha256()
    at = 0
    while data := os.pread(handle, 1 << 20, at):
        found.update(data)
        at += len(data)
    return found.hexdigest()


def check_trust(
    home: Home, number: int, floors: dict[str, dict[str, int]] | None, sha256: str, name: str | None = None
) -> dict[str, Any] | None:
    """What the policies say of a release, the home's own last; None where there is none, neither here nor the device's.

    `floors` are the least versions to take; None: it was taken before, and an older one may be gone back to. `sha256`
    is of the bytes that are to be used, `name` that in their manifest.

    Raises
    ------
    TrustError
        A policy does not trust it.
    """
    found: dict[str, Any] | None = None
    for each in map(Home, device_home.homes_with_policy(str(home.root))):
        trust = importlib.import_module("edgekit.device.trust")  # whoever has no policy never loads it
        bundle = home.release(number) / records.BUNDLE
        each.exists()
        least = floors if each.root == home.root else records.checked_version_floors(each)
        said = trust.check(bundle, each.trust, least, clock_floor(each), sha256=sha256)._asdict()
        if name is not None:
            trust.check_name(said["name"], name, bundle)
        found = {**said, "signers": list(said["signers"])}
    return found


def refusal_reason(home: Home, number: int | None = None) -> str:
    """Why a release, by default the current one, loads no more; empty where it does, or none is current."""
    number = records.current_number(home) if number is None else number
    try:
        if number is not None:
            release = Release.at(home, number)
            check_file(release.path, release.sha256)
            check_trust(home, number, None, release.sha256)
    except RunnerError as error:
        return f"release {number}: {error}"
    except OSError as error:  # of what the policy has seen, as on a full disk
        return f"release {number}: {error.strerror} ({error.filename})"
    return ""


def clock_floor(home: Home) -> float:
    """Seconds since 1970 that a right clock has passed: the newest time in a statement that was trusted here."""
    told = [(records.trust_record(home, each) or {}).get("statement_time") for each in records.release_numbers(home)]
    return max(
        (float(each) for each in told if isinstance(each, (int, float)) and 0 < each < records.COUNT_LIMIT), default=0.0
    )


def statement_name(bundle: str) -> str:
    """The name of a bundle's statement beside it; signatures have this name with .sig, .sig.2 and so on behind it."""
    return f"{bundle}.intoto.json"
