"""What a device answered to hello, and what `edgerun status --json` said: checked for their shape, never believed."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgekit.fleet.devices import shapes, words
from edgekit.fleet.devices.failures import DeviceError
from edgekit.fleet.devices.shapes import NONSENSE

OLDEST = (3, 9)
STATES = ("none", "trial", "confirmed")
MOST_OF_VERSION = 99
MISUSE = 2


@dataclass(frozen=True)
class Release:
    """One of a device's releases. `state`: built, proven, confirmed or failed, and then `why`."""

    number: int
    sha256: str
    state: str
    why: str = ""
    name: str = ""
    version: str = ""
    p50_ms: float | None = None
    files: frozenset[str] = frozenset()
    """Digests of its bundle, statement and signatures."""


@dataclass(frozen=True)
class Status:
    """Of all releases. `state`: none, trial or confirmed. `refused`: why nothing loads the current one, or empty."""

    state: str = "none"
    current: int | None = None
    back: int | None = None
    signed: bool = False
    releases: tuple[Release, ...] = ()
    store: frozenset[str] = frozenset()
    incoming: Mapping[str, int] = field(default_factory=dict)
    refused: str = ""

    def release(self, number: int | None) -> Release | None:
        """That of a number."""
        return next((each for each in self.releases if each.number == number), None)

    def of(self, sha256: str) -> Release | None:
        """The newest release of a bundle; the current one before all others."""
        found = [each for each in self.releases if each.sha256 == sha256]
        return next((each for each in found if each.number == self.current), found[-1] if found else None)

    def is_current(self, sha256: str, *files: str) -> bool:
        """Whether a bundle, with these files beside it, is the current release, be it on trial."""
        now = self.release(self.current)
        return now is not None and now.sha256 == sha256 and now.files.issuperset(files)


@dataclass(frozen=True)
class Facts:
    """A device and its Python. `runner`: whether this desk's is there; `edgerun`: the one that answered, or empty.

    `launched` is the one that `edgerun` in the home starts. `status` is None where no runner is there that tells it.
    `kept`: a release is current there, whoever brought it.
    `ahead_s`: seconds that its clock is ahead of this machine's, with the time that the answer took.
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
    status: Status | None = None
    edgerun: str = ""
    launched: str = ""
    kept: bool = False

    @property
    def dotted(self) -> str:
        """Version of its Python."""
        return ".".join(map(str, self.python))

    def check(self) -> None:
        """DeviceError where its Python cannot run the runner."""
        if self.python[:2] < OLDEST:
            raise DeviceError(
                f"its Python {self.dotted} is older than the 3.9 that the runner needs; name a newer one as `python` "
                "in hosts.yaml",
                5,
            )


def parsed(out: bytes, token: str) -> Facts:
    """Facts of an answer to hello; DeviceError where it is none. What a login prints before it is passed by."""
    lines = out.decode("utf-8", "replace").splitlines()
    at = next((place for place, line in enumerate(lines) if line.startswith(token)), None)
    if at is None:
        raise DeviceError("answers, but not what it was asked; does its login start something else?", NONSENSE)
    values = shapes.parse_object(lines[at][len(token) :])
    libc = shapes.text(values, "libc", 40)
    home = shapes.text(values, "home", 1000)
    if not posixpath.isabs(home) or home != values["home"]:
        raise DeviceError(f"says that its home is {home[:80]!r}, which is no path", NONSENSE)
    if posixpath.normpath(home) in ("/", "//"):
        raise DeviceError("its home is the root of its disk; name a folder of its own as `home` in hosts.yaml", MISUSE)
    python = values.get("python")
    if not isinstance(python, list) or len(python) != 3 or not all(_is_version(each) for each in python):
        raise DeviceError("does not say which Python it has", NONSENSE)
    behind = [line for line in lines[at + 1 :] if line.startswith("{")]
    return Facts(
        python=tuple(python),
        implementation=shapes.text(values, "implementation", 40),
        bits=shapes.whole(values, "bits"),
        machine=shapes.text(values, "machine", 40),
        system=shapes.text(values, "system", 40),
        libc=libc,
        home=home,
        runner=values.get("runner") is True,
        packages=tuple(shapes.texts(values, "packages")),
        distributions=_versions(values),
        free_bytes=shapes.whole(values, "free_bytes") if values.get("free_bytes") is not None else None,
        ahead_s=shapes.whole(values, "clock") - time.time(),
        status=status(behind[-1]) if behind else None,
        edgerun=shapes.text(values, "edgerun", 64) if "edgerun" in values else "",
        launched=shapes.text(values, "launched", 64) if "launched" in values else "",
        kept=values.get("kept") is True,
    )


def status(text: str) -> Status:
    """Of the JSON that `edgerun status`, `install`, `confirm` and `rollback` print."""
    values = shapes.parse_object(text)
    state = values.get("state")
    if state not in STATES:
        raise DeviceError(
            f"says that its state is {words.plain(state, 40)!r}; it is one of {', '.join(STATES)}", NONSENSE
        )
    releases = values.get("releases")
    if not isinstance(releases, list):
        raise DeviceError("does not list its releases", NONSENSE)
    incoming = values.get("incoming")
    return Status(
        state=state,
        current=shapes.whole(values, "current") if values.get("current") is not None else None,
        back=shapes.whole(values, "back") if values.get("back") is not None else None,
        signed=values.get("signed") is True,
        releases=tuple(_release(each) for each in releases),
        store=frozenset(shapes.texts(values, "store")),
        incoming={
            words.plain(name, 64): size
            for name, size in (incoming.items() if isinstance(incoming, dict) else ())
            if shapes.is_whole(size)
        },
        refused=shapes.text(values, "refused") if "refused" in values else "",
    )


def _release(values: Any) -> Release:
    if not isinstance(values, dict):
        raise DeviceError("lists a release that is none", NONSENSE)
    return Release(
        number=shapes.whole(values, "release"),
        sha256=shapes.text(values, "sha256", 64),
        state=shapes.text(values, "state", 20),
        why=shapes.text(values, "why"),
        name=words.plain(values.get("name") or "", 100),
        version=words.plain(values.get("version") or "", 40),
        p50_ms=shapes.number(values.get("p50_ms")),
        files=frozenset(shapes.texts(values, "files")),
    )


def _is_version(value: object) -> bool:
    """Whether it is a part of a Python's version: all of them up to it are counted when wheels are chosen."""
    return shapes.is_whole(value) and value <= MOST_OF_VERSION  # type: ignore[operator]


def _versions(values: Mapping[str, Any]) -> dict[str, str]:
    found = values.get("distributions")
    pairs = found.items() if isinstance(found, dict) else ()
    return {words.plain(name, 100): words.plain(version, 60) for name, version in pairs}
