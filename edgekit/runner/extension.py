"""What the device package adds to the runner: signed mode, releases, tuning, metrics and the monitor.

The runner answers by itself. Where `edgekit.device` is installed beside it, `find` returns that package's extension; it
is found by name and never imported from here, so that the runner can be copied onto a device alone.
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
"""Called with a line for each step of a measurement, and whether it matters afterwards."""
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
    """The runner alone: it loads what is a bundle, measures nothing, and refuses what needs the device package."""

    commands: tuple[str, ...] = ()
    """Packages with further commands of `edgerun`."""

    def read(self, path: Path) -> Bundle:
        """The verified bundle. TrustError on a device in signed mode, because no signature can be checked here."""
        from edgekit.runner import bundle

        if homes := device_home.homes_with_policy(device_home.find_home()):
            raise TrustError(
                f"{path}: this device is in signed mode, by {homes[0]}, and this small runner cannot check "
                "signatures; use the whole edgerun.pyz"
            )
        return bundle.read(path)

    def load(self, path: Path, options: LoadOptions) -> Model:
        """Open a bundle as `edgekit.runner.load` says."""
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
        """Open a verified bundle in this process, by the usual interpreter where none is named."""
        from edgekit.runner.model import open_model

        return open_model(
            bundle, 1 if options.threads is None else options.threads, options.interpreter, options.device
        )

    def selftest(self, path: Path, options: LoadOptions) -> SelftestReport:
        """Run the golden vectors, in this process."""
        return self.load(path, options).selftest()

    def add_predict_options(self, parser: argparse.ArgumentParser) -> None:
        """Options of `edgerun predict` that this package adds."""

    def check_predict_options(self, options: argparse.Namespace) -> None:
        """Exit code 2 for options that do not belong together."""

    @contextmanager
    def loading(self, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
        """Around `edgerun predict` as a whole: the `LoadOptions` that its options ask for."""
        yield {}

    @contextmanager
    def observing(self, model: Model, options: argparse.Namespace) -> Iterator[None]:
        """Around the answers of `edgerun predict`."""
        yield

    def add_verify_options(self, parser: argparse.ArgumentParser) -> None:
        """Options of `edgerun verify` that this package adds."""

    def verified(self, options: argparse.Namespace) -> tuple[Bundle, Any]:
        """The bundle, and who signed it; None where that was not asked for."""
        from edgekit.runner import bundle

        return bundle.read(options.bundle), None


@functools.cache
def find() -> Extension:
    """The device package's extension; that of the runner alone where there is no such package."""
    try:
        module = importlib.import_module(f"{DEVICE}.extension")
    except ModuleNotFoundError as error:
        if error.name != DEVICE:  # the package is there and broken: what it would check must not be left out
            raise
        return Extension()
    extension: Extension = module.EXTENSION
    return extension


def _missing(what: str) -> str:
    return f"this small runner has no {what}; use the whole edgerun.pyz, or leave it out"
