"""Bundles for other servers, and files for those who watch ours; a file's name is the key of `edgekit export`.

    HELP                                 one line, without a full stop
    OPTIONS                              which fields of `Request` it takes
    TAKES_BUNDLES = False                only where it takes none
    export(subjects, request) -> Export  all files, and lines for the console; an error where it cannot take a bundle

A new server is a new file here; files that begin with `_` are shared parts.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgekit.core.errors import ConfigError
from edgekit.serve.export import _folder
from edgekit.serve.export._subjects import Export, Request, Subject, proven, read

__all__ = ["Export", "Request", "Subject", "export", "names", "takes_bundles"]


def names() -> list[str]:
    """Every server that has a file here, sorted."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_"))


def module(name: str) -> Any:
    """The file of one server; `name` is one of `names()`."""
    return importlib.import_module(f"{__name__}.{name}")


def takes_bundles(name: str) -> bool:
    """Whether a server is told of bundles; Prometheus and Grafana are not."""
    return bool(getattr(module(name), "TAKES_BUNDLES", True))


def export(server: str, path: Path | None, out: Path, request: Request) -> list[str]:
    """Write a folder for `server`, whole or not at all, and return what there is to say about it.

    Parameters
    ----------
    server
        One of `names()`.
    path
        A bundle, or a folder of bundles; None for a server that takes none.
    out
        The folder to make; an earlier export that nobody has changed is replaced.
    request
        The options; those that the server does not take must be None.

    Raises
    ------
    ConfigError
        An option does not belong to the server, or `out` holds something else.
    BundleError, TrustError, SelftestError
        A bundle is broken, was changed, or does not give its recorded answers here.
    ConversionError
        The server cannot take a bundle, or would answer wrongly.
    """
    target = module(server)
    _check(server, target.OPTIONS, request)
    _folder.check(out)
    subjects = [] if path is None else read(path)
    for subject in subjects:
        proven(subject)
    made: Export = target.export(subjects, request)
    _folder.write(out, server, made.files)
    return made.lines


def _check(server: str, taken: Sequence[str], request: Request) -> None:
    for field, value in request._asdict().items():
        if value is not None and field not in taken:
            owners = [name for name in names() if field in module(name).OPTIONS]
            given = value if isinstance(value, str) else " ".join(value)
            raise ConfigError(f"--{field.replace('_', '-')} {given}: belongs to {', '.join(owners)}, got {server}")
