"""Hooks through which the device package extends the runner: signed mode, releases, tuning, metrics and the monitor.

The runner works without that package. If `edgekit.device` is installed, `find` returns its extension. The package is
looked up by name and never imported from here, so that the runner can be copied to a device on its own.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Union

from edgekit.runner import device_home
from edgekit.runner.errors import InputError, TrustError

if TYPE_CHECKING:
    import argparse
    import os

    from edgekit.runner.bundle import Bundle
    from edgekit.runner.model import Model
    from edgekit.runner.selftest import SelftestReport

    Path = Union[str, os.PathLike[str]]

OnProgress = Callable[[str, bool], None]
"""Called with a line for each step of a measurement, and whether the line still matters afterwards."""
DEVICE = "edgekit.device"


class LoadOptions(NamedTuple):
    """The options of `edgekit.runner.load`, which documents them."""

    threads: int | None = None
    interpreter: str | None = None
    device: str = "CPU"
    trial: bool = True
    on_progress: OnProgress | None = None
    metrics: Any = None
    monitor: Any = None
    keep: Any = None


class Extension:
    """The runner without the device package.

    It loads bundles, measures nothing, and refuses options that need that package.
    """

    commands: tuple[str, ...] = ()
    """Packages that hold further commands of `edgerun`."""

    def read(self, path: Path) -> Bundle:
        """Return the verified bundle.

        Raises TrustError in signed mode, because the runner alone cannot check signatures.
        """
        from edgekit.runner import bundle

        if homes := device_home.homes_with_policy(device_home.find_home()):
            raise TrustError(
                f"{path}: this device is in signed mode (policy: {homes[0]}), and this runner cannot check "
                "signatures; use the complete edgerun.pyz"
            )
        return bundle.read(path)

    def load(self, path: Path, options: LoadOptions) -> Model:
        """Open a bundle as described in `edgekit.runner.load`."""
        from edgekit.runner.bundle import check_architecture

        if path == "current":
            raise InputError(f"current: {_missing('releases')}")
        for name in ("metrics", "monitor", "keep"):
            if getattr(options, name) not in (None, False):
                raise InputError(f"{name}: {_missing('monitoring')}")
        bundle = self.read(path)
        check_architecture(bundle.manifest)
        return self.open(path, bundle, options)

    def open(self, path: Path, bundle: Bundle, options: LoadOptions) -> Model:
        """Open a verified bundle in this process, on the preferred interpreter unless one is named."""
        from edgekit.runner.model import open_model

        return open_model(
            bundle, 1 if options.threads is None else options.threads, options.interpreter, options.device
        )

    def selftest(self, path: Path, options: LoadOptions) -> SelftestReport:
        """Run the golden samples in this process."""
        return self.load(path, options).selftest()

    def add_predict_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the device package's options to `edgerun predict`."""

    def check_predict_options(self, options: argparse.Namespace) -> None:
        """Exit with code 2 if options contradict each other."""

    @contextmanager
    def loading(self, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
        """Wrap the whole of `edgerun predict`, and yield the `LoadOptions` that its options ask for."""
        yield {}

    @contextmanager
    def observing(self, model: Model, options: argparse.Namespace) -> Iterator[None]:
        """Wrap the predictions of `edgerun predict`."""
        yield

    def add_verify_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the device package's options to `edgerun verify`."""

    def verified(self, options: argparse.Namespace) -> tuple[Bundle, Any]:
        """Return the verified bundle, and who signed it (None if signatures were not asked for)."""
        from edgekit.runner import bundle

        return bundle.read(options.bundle), None


@functools.cache
def find() -> Extension:
    """Return the device package's extension, or the runner's own if that package is not installed."""
    try:
        module = importlib.import_module(f"{DEVICE}.extension")
    except ModuleNotFoundError as error:
        if error.name != DEVICE:  # the package is installed but broken; skipping its checks would be unsafe
            raise
        return Extension()
    extension: Extension = module.EXTENSION
    return extension


def _missing(feature: str) -> str:
    return f"this runner has no {feature}; use the complete edgerun.pyz, or leave the option out"
