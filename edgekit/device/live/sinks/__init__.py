"""Receivers of events, one file for each kind: `open_sink` picks it by the scheme of the address."""

from __future__ import annotations

import difflib
import importlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from edgekit.device.live.sinks.base import (
    KINDS,
    Filter,
    Sink,
    SinkContext,
    SinkStatus,
    UnreachableError,
)
from edgekit.runner.errors import InputError

MODULES = ("mqtt", "webhook", "command", "gpio", "jsonl", "folder")
"""Each has `SCHEMES`, `OPTIONS` and `open(address, options, context)`."""
SCHEME = re.compile(r"([A-Za-z0-9+]+):")
COMMON_OPTIONS = ("rules", "kinds")
"""Options of every sink: the names of rules, and kinds of events, that it takes; all by default."""

__all__ = ["Filter", "Sink", "SinkContext", "SinkStatus", "UnreachableError", "open_sink"]


def open_sink(to: str | Mapping[str, Any], context: SinkContext) -> Sink:
    """Return the sink for an address, or for a mapping of `to` and options. Nothing is connected yet.

    Besides addresses with a scheme, `-` and files that end in .jsonl receive JSON lines, and folders receive pictures.
    Raises InputError.
    """
    options = {"to": to} if isinstance(to, str) else dict(to)
    address = options.pop("to", None)
    if not isinstance(address, str) or not address:
        raise InputError(f'sink: "to" is missing; name one, such as to: mqtt://HOST/edgekit; known: {_schemes_text()}')
    scheme = _scheme(address)
    module = next((each for each in map(_module, MODULES) if scheme in each.SCHEMES), None)
    if module is None:
        raise InputError(f"sink: got the scheme {scheme!r}{suggestion(scheme, _schemes())}")
    for name in options:
        known = (*module.OPTIONS, *COMMON_OPTIONS)
        if name not in known:
            raise InputError(f"sink {scheme}: unknown option {name!r}{suggestion(str(name), known)}")
    only = Filter(
        _names(options.pop("rules", None), context.rules, f"sink {scheme}: rules"),
        _names(options.pop("kinds", None), KINDS, f"sink {scheme}: kinds"),
    )
    sink: Sink = module.open(address, options, context)
    sink.only = only
    return sink


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.55)
    return f', did you mean "{close[0]}"?' if close else "; known: " + ", ".join(names)


def _scheme(address: str) -> str:
    match = SCHEME.match(address)
    if match:
        return match[1]
    if address == "-" or address.endswith(".jsonl"):
        return "jsonl"
    if address.endswith(os.sep) or os.path.isdir(address):
        return "folder"
    fix = f"use a file that ends in .jsonl, a folder that ends in {os.sep}, or one of {_schemes_text()}"
    raise InputError(f"sink: got {address!r}; {fix}")


def _names(value: Any, known: Iterable[str], where: str) -> frozenset[str] | None:
    if value is None:
        return None
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, (list, tuple)) or not value:
        raise InputError(f"{where}: got {value!r}; use a name, or a list of names")
    for name in value:
        if name not in known:
            raise InputError(f"{where}: unknown name {name!r}{suggestion(str(name), known)}")
    return frozenset(value)


def _module(name: str) -> Any:
    return importlib.import_module(f"edgekit.device.live.sinks.{name}")


def _schemes() -> list[str]:
    return [scheme for name in MODULES for scheme in _module(name).SCHEMES]


def _schemes_text() -> str:
    return ", ".join(f"{scheme}:" for scheme in _schemes())
