"""The bundles of one export: read, verified, named, and proven by their golden vectors."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from edgekit.core.errors import ConfigError
from edgekit.device.autotune import run_selftest
from edgekit.runner import bundle as bundles
from edgekit.runner.backends import installed_interpreters
from edgekit.runner.bundle import Bundle
from edgekit.runner.bundle.manifest import Manifest
from edgekit.runner.errors import BundleError, SelftestError

SUFFIX = ".edge.zip"
RESERVED = {"README.md", "config.json", "export.json"}
"""Files that stand beside the folders of the models."""


class Request(NamedTuple):
    """Options of the command; None where they were not given."""

    backend: str | None = None
    storage_uri: str | None = None
    image: str | None = None
    slo_p99: str | None = None
    availability: str | None = None
    scrape: tuple[str, ...] | None = None
    docs: str | None = None


class Subject(NamedTuple):
    """A verified bundle: `name` is what the server will call it, `data` the file's bytes."""

    name: str
    path: Path
    bundle: Bundle
    data: bytes

    @property
    def manifest(self) -> Manifest:
        """What the bundle says of itself."""
        return self.bundle.manifest

    def model_file(self, suffix: str) -> bytes:
        """The bytes of its one model file with this suffix; BundleError where there is none."""
        found = [data for name, data in self.bundle.model_files().items() if name.endswith(suffix)]
        if len(found) != 1:
            raise BundleError(
                f"{self.path}: holds {len(found)} model files ending in {suffix}, and the server takes one; make the "
                "bundle again of a single file"
            )
        return found[0]


class Export(NamedTuple):
    """Files by their path below the folder, and lines for the console."""

    files: dict[str, bytes]
    lines: list[str]


def read(path: Path) -> list[Subject]:
    """The bundle at `path`, or all of a folder.

    Two that share a name are told apart by their target. ConfigError where that does not help.
    """
    paths = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not paths:
        raise BundleError(f"{path}: holds no {SUFFIX} file; name a bundle, or the folder that holds some")
    found = []
    for each in paths:
        try:
            data = each.read_bytes()
        except OSError as error:
            raise BundleError(f"{each}: cannot be read: {error.strerror or error}") from None
        bundle = bundles.read_bytes(data, str(each))
        if bundle.manifest.states:
            raise BundleError(f"{each}: the model has states, which other servers are not told of; use edgekit serve")
        found.append((each, bundle, data))
    names = _names([bundle.manifest for _, bundle, _ in found])
    return [Subject(name, *parts) for name, parts in zip(names, found)]


def proven(subject: Subject) -> None:
    """SelftestError unless the golden vectors come out as recorded on this machine's interpreter."""
    report = run_selftest(subject.path, subject.bundle, 1, installed_interpreters(subject.manifest.target)[0])
    if not report.ok:
        raise SelftestError(
            f"{subject.path}: the golden vectors did not come out as recorded on {report.interpreter} "
            f"{report.version}: off by {report.max_abs_delta:.3g}, {report.atol:.3g} is allowed; build the bundle again"
        )


def _names(manifests: list[Manifest]) -> list[str]:
    names = [manifest.name for manifest in manifests]
    shared = {name for name, count in Counter(names).items() if count > 1}
    if taken := sorted(set(names) & RESERVED):
        raise ConfigError(f"{taken[0]}: a file of the export has this name; give the bundle another")
    names = [f"{each.name}-{each.target}" if each.name in shared else each.name for each in manifests]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ConfigError(f"{twice[0]}: two bundles of the folder have this name and target; export them one by one")
    return names
