"""Exports for other model servers and for monitoring. The name of a module here is the argument of `edgekit export`.

Each module has:

    HELP                                 one line of help, without a full stop
    OPTIONS                              the fields of `ExportRequest` that it supports
    TAKES_BUNDLES = False                only in a module that exports no bundles
    export(subjects, request) -> Export  returns all files, and lines for the console; raises if it cannot use a bundle

To add a server, add a module. Modules whose names begin with `_` are shared parts.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgekit.core.errors import ConfigError
from edgekit.serve.export import _folder
from edgekit.serve.export._subjects import Export, ExportedBundle, ExportRequest, check_selftest, read_bundles

__all__ = ["Export", "ExportRequest", "ExportedBundle", "export", "server_names", "takes_bundles"]


def server_names() -> list[str]:
    """Return the names of all servers, sorted."""
    return sorted(modules.name for modules in pkgutil.iter_modules(__path__) if not modules.name.startswith("_"))


def server_module(name: str) -> Any:
    """Return the module of one server; `name` is one of `server_names()`."""
    return importlib.import_module(f"{__name__}.{name}")


def takes_bundles(name: str) -> bool:
    """Return whether an export for this server takes bundles; those for Prometheus and Grafana do not."""
    return bool(getattr(server_module(name), "TAKES_BUNDLES", True))


def export(server: str, path: Path | None, out: Path, request: ExportRequest) -> list[str]:
    """Write the export for `server` as a complete folder, or nothing at all, and return lines for the console.

    Parameters
    ----------
    server
        One of `server_names()`.
    path
        A bundle, or a folder of bundles; None for an export without bundles.
    out
        The folder to write. An earlier export in it is replaced if none of its files was changed.
    request
        The options. Those that do not apply to the server must be None.

    Raises
    ------
    ConfigError
        An option does not apply to the server, or `out` holds something other than an earlier export.
    BundleError, TrustError, SelftestError
        A bundle is damaged, was modified, or fails its self-test on this machine.
    ConversionError
        The server cannot run a bundle, or would give wrong answers.
    """
    target = server_module(server)
    _check(server, target.OPTIONS, request)
    _folder.check(out)
    subjects = [] if path is None else read_bundles(path)
    for subject in subjects:
        check_selftest(subject)
    result: Export = target.export(subjects, request)
    _folder.write(out, server, result.files)
    return result.lines


def _check(server: str, allowed_fields: Sequence[str], request: ExportRequest) -> None:
    for field, value in request._asdict().items():
        if value is not None and field not in allowed_fields:
            owners = [name for name in server_names() if field in server_module(name).OPTIONS]
            shown_value = value if isinstance(value, str) else " ".join(value)
            raise ConfigError(
                f"--{field.replace('_', '-')} {shown_value}: is an option of {', '.join(owners)}, not of {server}"
            )
