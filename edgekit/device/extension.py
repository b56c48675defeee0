"""The functions that the device package adds to the runner, which finds them as `EXTENSION` in this module.

`edgekit.runner.extension` describes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edgekit.runner.errors import InputError
from edgekit.runner.extension import Extension, LoadOptions

if TYPE_CHECKING:
    import argparse
    import os

    from edgekit.device.monitor.monitor import Monitor
    from edgekit.device.monitor.uncertain import UncertainSamples
    from edgekit.runner.bundle import Bundle
    from edgekit.runner.model import Model
    from edgekit.runner.selftest import SelftestReport


class DeviceExtension(Extension):
    """Adds signed mode, releases, tuning, metrics and the monitor."""

    commands = ("edgekit.device.commands",)

    def read(self, path: str | os.PathLike[str]) -> Bundle:
        """See `Extension`. In signed mode, only what the device's policy trusts is read."""
        from edgekit.device import admission

        return admission.read(path)

    def load(self, path: str | os.PathLike[str], options: LoadOptions) -> Model:
        """See `Extension`."""
        if options.metrics is None:
            return self._load(path, options)
        from edgekit.device.monitor.metrics import Metrics

        shared = isinstance(options.metrics, Metrics)
        # Opened first, so that a bad address is reported before the tuning run, which takes a while.
        metrics = options.metrics if shared else Metrics(options.metrics)
        try:
            model = self._load(path, options)
        except BaseException:
            if not shared:
                metrics.close()
            raise
        metrics.add(model, is_last=not shared)
        return model

    def _load(self, path: str | os.PathLike[str], options: LoadOptions) -> Model:
        from edgekit.runner.bundle import check_architecture, read_bytes

        release = None
        if path == "current":
            from edgekit.device.releases import current_release

            release = current_release.find_release()
            path = release.path
            bundle = read_bytes(release.read(), path)
        else:
            bundle = self.read(path)
        check_architecture(bundle.manifest)
        samples, monitor = _samples(bundle, options.keep), _monitor(bundle, options.monitor)
        model = self.open(path, bundle, options)
        model.release = release
        if samples is not None:
            model.observers.add(samples)
        if monitor is not None:
            monitor.attach(model)
            model.monitor = monitor
            model.observers.add(monitor)
        return model

    def open(self, path: str | os.PathLike[str], bundle: Bundle, options: LoadOptions) -> Model:
        """See `Extension`. Uses the choice of the tuning run, unless `trial` is False."""
        if not options.trial:
            return super().open(path, bundle, options)
        from edgekit.device import autotune

        return autotune.open_best(
            path, bundle, options.threads, options.interpreter, options.device, options.on_progress
        )

    def selftest(self, path: str | os.PathLike[str], options: LoadOptions) -> SelftestReport:
        """See `Extension`. Runs in a child process with the choice of the tuning run, unless `trial` is False."""
        if not options.trial:
            return super().selftest(path, options)
        from edgekit.device.autotune import run_selftest

        return run_selftest(path, self.read(path), options.threads, options.interpreter, options.device)

    def add_predict_options(self, parser: argparse.ArgumentParser) -> None:
        """See `Extension`."""
        from edgekit.device.commands import _field, _metrics, _watch

        for module in (_metrics, _watch, _field):
            module.add_arguments(parser)

    def check_predict_options(self, options: argparse.Namespace) -> None:
        """See `Extension`."""
        from edgekit.device.commands import _field

        _field.check(options)

    @contextmanager
    def loading(self, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
        """See `Extension`."""
        from edgekit.device.commands import _field, _metrics

        with _field.handle_termination(options), _metrics.open_metrics(options.metrics) as metrics:
            yield {"metrics": metrics, "monitor": options.watch}

    @contextmanager
    def observing(self, model: Model, options: argparse.Namespace) -> Iterator[None]:
        """See `Extension`."""
        from edgekit.device.commands import _field, _watch

        with _field.observe(model, options), _watch.report_verdicts(model, options.watch):
            yield

    def add_verify_options(self, parser: argparse.ArgumentParser) -> None:
        """See `Extension`."""
        parser.add_argument(
            "--trust",
            metavar="DIR",
            help="folder with a signed policy: bundles without a signature that it trusts are refused (default: none)",
        )

    def verified(self, options: argparse.Namespace) -> tuple[Bundle, Any]:
        """See `Extension`. With `--trust`, the bundle is read from the very bytes whose signature was checked."""
        if not options.trust:
            return super().verified(options)
        from pathlib import Path

        from edgekit.device import trust
        from edgekit.runner import bundle

        data = trust.read_contents(Path(options.bundle))
        sha256 = bundle.sha256.hexdigest(data)
        trusted = trust.check_bundle(Path(options.bundle), Path(options.trust), {}, sha256=sha256, remember=False)
        read = bundle.read_bytes(data, options.bundle)
        trust.check_name(trusted.name, read.manifest.name, options.bundle)
        return read, trusted


def _samples(bundle: Bundle, keep: str | os.PathLike[str] | None) -> UncertainSamples | None:
    if keep is None:
        return None
    from edgekit.device.monitor.uncertain import UncertainSamples

    return UncertainSamples(bundle.manifest, bundle.identity, keep)


def _monitor(bundle: Bundle, monitor: bool | Monitor | None) -> Monitor | None:
    if monitor is None or monitor is False:
        return None
    from edgekit.device.monitor.monitor import Monitor

    if isinstance(monitor, Monitor):
        return monitor
    if monitor is not True:
        raise InputError(f"monitor: got {monitor!r}; use True or a Monitor")
    return Monitor.of_bundle(bundle)


EXTENSION = DeviceExtension()
