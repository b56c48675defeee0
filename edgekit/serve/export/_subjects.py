"""Reads, verifies and names the bundles of an export, and runs their self-tests."""

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
"""Files beside the models' folders, whose names no model may have."""


class ExportRequest(NamedTuple):
    """The options of `edgekit export`; None for those that were not given."""

    backend: str | None = None
    storage_uri: str | None = None
    image: str | None = None
    slo_p99: str | None = None
    availability: str | None = None
    scrape: tuple[str, ...] | None = None
    docs: str | None = None


class ExportedBundle(NamedTuple):
    """A verified bundle. `name` is its name on the server, and `data` the bytes of its file."""

    name: str
    path: Path
    bundle: Bundle
    data: bytes

    @property
    def manifest(self) -> Manifest:
        """The manifest of the bundle."""
        return self.bundle.manifest

    def model_file(self, suffix: str) -> bytes:
        """Return the only model file with this suffix. Raises BundleError if there is none or several."""
        model_files = [data for name, data in self.bundle.model_files().items() if name.endswith(suffix)]
        if len(model_files) != 1:
            raise BundleError(
                f"{self.path}: holds {len(model_files)} model files ending in {suffix}, but the server takes one; "
                "build the bundle again from a single file"
            )
        return model_files[0]


class Export(NamedTuple):
    """The result of an export: the files by their paths in the folder, and lines for the console."""

    files: dict[str, bytes]
    lines: list[str]


def read_bundles(path: Path) -> list[ExportedBundle]:
    """Read the bundle at `path`, or all bundles in a folder.

    Bundles with the same name are called NAME-TARGET. Raises ConfigError if two of these names are equal as well.
    """
    paths = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not paths:
        raise BundleError(f"{path}: holds no {SUFFIX} file; name a bundle, or the folder that holds some")
    parsed = []
    for each in paths:
        try:
            data = each.read_bytes()
        except OSError as error:
            raise BundleError(f"{each}: cannot be read: {error.strerror or error}") from None
        bundle = bundles.read_bytes(data, str(each))
        if bundle.manifest.states:
            raise BundleError(f"{each}: the model has states, which exports do not support; use edgekit serve")
        parsed.append((each, bundle, data))
    names = _names([bundle.manifest for _, bundle, _ in parsed])
    return [ExportedBundle(name, *parts) for name, parts in zip(names, parsed)]


def check_selftest(subject: ExportedBundle) -> None:
    """Run a bundle's self-test on this machine's interpreter. Raises SelftestError if it fails."""
    report = run_selftest(subject.path, subject.bundle, 1, installed_interpreters(subject.manifest.target)[0])
    if not report.ok:
        raise SelftestError(
            f"{subject.path}: the answers to the golden samples are not the recorded ones on {report.interpreter} "
            f"{report.version}: they are off by {report.max_abs_delta:.3g}, but {report.atol:.3g} is allowed; "
            f"build the bundle again"
        )


def _names(manifests: list[Manifest]) -> list[str]:
    names = [manifest.name for manifest in manifests]
    shared = {name for name, count in Counter(names).items() if count > 1}
    if reserved := sorted(set(names) & RESERVED):
        raise ConfigError(f"{reserved[0]}: a file of the export has this name; give the bundle another")
    names = [f"{each.name}-{each.target}" if each.name in shared else each.name for each in manifests]
    duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
    if duplicates:
        raise ConfigError(
            f"{duplicates[0]}: two bundles of the folder have this name and target; export them one by one"
        )
    return names
