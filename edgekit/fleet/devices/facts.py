"""A device's answers to the program `remote/hello.py` and to `edgerun status --json`.

The structure of the answers is checked, because they are untrusted.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgekit.fleet.devices import device_json, shell_text
from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.fleet.devices.device_json import MALFORMED_ANSWER

OLDEST = (3, 9)
STATES = ("none", "trial", "confirmed")
MOST_OF_VERSION = 99
MISUSE = 2


@dataclass(frozen=True)
class DeviceRelease:
    """One of a device's releases. If it failed, `why` has the reason.

    `state` is built (not validated yet), proven (validated, but never confirmed), confirmed or failed.
    """

    number: int
    sha256: str
    state: str
    why: str = ""
    name: str = ""
    version: str = ""
    p50_ms: float | None = None
    files: frozenset[str] = frozenset()
    """Digests of the release's bundle, statement and signatures."""


@dataclass(frozen=True)
class ReleaseStatus:
    """The state of a device's releases.

    `state` is none, trial (on probation) or confirmed. `back` is the release to which a rollback would return.
    `refused` is the reason why the current release cannot be loaded, or "".
    """

    state: str = "none"
    current: int | None = None
    back: int | None = None
    signed: bool = False
    releases: tuple[DeviceRelease, ...] = ()
    store: frozenset[str] = frozenset()
    incoming: Mapping[str, int] = field(default_factory=dict)
    refused: str = ""

    def release(self, number: int | None) -> DeviceRelease | None:
        """Return the release with this number, or None."""
        return next((each for each in self.releases if each.number == number), None)

    def of(self, sha256: str) -> DeviceRelease | None:
        """Return the newest release of a bundle, or the current release if it has that bundle; None if none has it."""
        matching = [each for each in self.releases if each.sha256 == sha256]
        return next((each for each in matching if each.number == self.current), matching[-1] if matching else None)

    def is_current(self, sha256: str, *files: str) -> bool:
        """Return whether a bundle, with these files beside it, is the current release, even if it is on probation."""
        current = self.release(self.current)
        return current is not None and current.sha256 == sha256 and current.files.issuperset(files)


@dataclass(frozen=True)
class HelloFacts:
    """A device and its Python.

    `runner` says whether the device has this machine's runner. `edgerun` is the digest of the runner that reported the
    status, and `launched` that of the runner which the script `edgerun` in the home starts; both may be "". `status` is
    None if no runner can report it. `has_release` says whether a release is current there, whoever sent it. `ahead_s`
    is by how many seconds the device's clock is ahead of this machine's, reduced by the time that the answer took.
    """

    python: tuple[int, ...]
    implementation: str
    bits: int
    machine: str
    system: str
    libc: str
    home: str
    runner: bool
    packages: tuple[str, ...]
    distributions: Mapping[str, str]
    free_bytes: int | None
    ahead_s: float
    status: ReleaseStatus | None = None
    edgerun: str = ""
    launched: str = ""
    has_release: bool = False

    @property
    def dotted(self) -> str:
        """The version of the device's Python."""
        return ".".join(map(str, self.python))

    def check(self) -> None:
        """Raise DeviceError if the device's Python cannot run the runner."""
        if self.python[:2] < OLDEST:
            raise DeviceError(
                f"its Python {self.dotted} is older than the 3.9 that the runner needs; name a newer one as `python` "
                "in hosts.yaml",
                5,
            )


def parse_hello(out: bytes, token: str) -> HelloFacts:
    """Parse an answer of `remote/hello.py`.

    Lines that a login prints before the answer are skipped. Raises DeviceError if there is no answer.
    """
    lines = out.decode("utf-8", "replace").splitlines()
    token_index = next((index for index, line in enumerate(lines) if line.startswith(token)), None)
    if token_index is None:
        raise DeviceError("answered with something unexpected; does its login start another program?", MALFORMED_ANSWER)
    values = device_json.parse_object(lines[token_index][len(token) :])
    libc = device_json.get_text(values, "libc", 40)
    home = device_json.get_text(values, "home", 1000)
    if not posixpath.isabs(home) or home != values["home"]:
        raise DeviceError(f"reported the home {home[:80]!r}, which is not a path", MALFORMED_ANSWER)
    if posixpath.normpath(home) in ("/", "//"):
        raise DeviceError("its home is the root of its disk; name a folder of its own as `home` in hosts.yaml", MISUSE)
    python = values.get("python")
    if not isinstance(python, list) or len(python) != 3 or not all(_is_version(each) for each in python):
        raise DeviceError("did not report which Python it has", MALFORMED_ANSWER)
    json_lines = [line for line in lines[token_index + 1 :] if line.startswith("{")]
    return HelloFacts(
        python=tuple(python),
        implementation=device_json.get_text(values, "implementation", 40),
        bits=device_json.get_count(values, "bits"),
        machine=device_json.get_text(values, "machine", 40),
        system=device_json.get_text(values, "system", 40),
        libc=libc,
        home=home,
        runner=values.get("runner") is True,
        packages=tuple(device_json.get_texts(values, "packages")),
        distributions=_versions(values),
        free_bytes=device_json.get_count(values, "free_bytes") if values.get("free_bytes") is not None else None,
        ahead_s=device_json.get_count(values, "clock") - time.time(),
        status=parse_status(json_lines[-1]) if json_lines else None,
        edgerun=device_json.get_text(values, "edgerun", 64) if "edgerun" in values else "",
        launched=device_json.get_text(values, "launched", 64) if "launched" in values else "",
        has_release=values.get("kept") is True,
    )


def parse_status(text: str) -> ReleaseStatus:
    """Parse the JSON that `edgerun status`, `install`, `confirm` and `rollback` print."""
    values = device_json.parse_object(text)
    state = values.get("state")
    if state not in STATES:
        raise DeviceError(
            f"reported the state {shell_text.printable(state, 40)!r}; it must be one of {', '.join(STATES)}",
            MALFORMED_ANSWER,
        )
    releases = values.get("releases")
    if not isinstance(releases, list):
        raise DeviceError("did not list its releases", MALFORMED_ANSWER)
    incoming = values.get("incoming")
    return ReleaseStatus(
        state=state,
        current=device_json.get_count(values, "current") if values.get("current") is not None else None,
        back=device_json.get_count(values, "back") if values.get("back") is not None else None,
        signed=values.get("signed") is True,
        releases=tuple(_release(each) for each in releases),
        store=frozenset(device_json.get_texts(values, "store")),
        incoming={
            shell_text.printable(name, 64): size
            for name, size in (incoming.items() if isinstance(incoming, dict) else ())
            if device_json.is_count(size)
        },
        refused=device_json.get_text(values, "refused") if "refused" in values else "",
    )


def _release(values: Any) -> DeviceRelease:
    if not isinstance(values, dict):
        raise DeviceError("listed a release that is not valid", MALFORMED_ANSWER)
    return DeviceRelease(
        number=device_json.get_count(values, "release"),
        sha256=device_json.get_text(values, "sha256", 64),
        state=device_json.get_text(values, "state", 20),
        why=device_json.get_text(values, "why"),
        name=shell_text.printable(values.get("name") or "", 100),
        version=shell_text.printable(values.get("version") or "", 40),
        p50_ms=device_json.as_number(values.get("p50_ms")),
        files=frozenset(device_json.get_texts(values, "files")),
    )


def _is_version(value: object) -> bool:
    """Return whether a value can be a part of a Python version.

    The value is limited, because all versions up to it are enumerated to choose wheels.
    """
    return device_json.is_count(value) and value <= MOST_OF_VERSION  # type: ignore[operator]


def _versions(values: Mapping[str, Any]) -> dict[str, str]:
    value = values.get("distributions")
    pairs = value.items() if isinstance(value, dict) else ()
    return {shell_text.printable(name, 100): shell_text.printable(version, 60) for name, version in pairs}
