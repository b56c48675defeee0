"""Passwords and tokens from the environment or from files, and addresses without them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from edgekit.runner.errors import InputError

VARIABLE = re.compile(r"\$\{(\w+)\}")


def expand(text: str, where: str) -> str:
    """Replace each `${NAME}` by the environment variable. Raises InputError, which begins with `where`."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise InputError(f"{where}: the environment variable {match[1]} is not set; set it, or use a file")
        return os.environ[match[1]]

    return VARIABLE.sub(value, text)


def read_secret(path: str, where: str) -> str:
    """Return the contents of a file without the line end. `path` may contain `${NAME}`."""
    file = expand(path, where)
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise InputError(f"{where}: {file}: {why}; name a file with one line that this user may read") from None


def split_address(address: str) -> tuple[SplitResult, str, str]:
    """Return the parts of a URL without user name and password, and these two, not yet expanded.

    Raises InputError, which does not show the address, if it has no host or its port is not a number.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host:
        scheme = address.partition(":")[0]
        raise InputError(f"{scheme}: the address has no host, or its port is no number; use {scheme}://HOST:PORT/PATH")
    name = f"[{host}]" if ":" in host else host
    bare = parts._replace(netloc=name if port is None else f"{name}:{port}")
    return bare, unquote(parts.username or ""), unquote(parts.password or "")


def without_credentials(address: str) -> str:
    """Return a URL without its user name and password, as messages show it."""
    return urlunsplit(split_address(address)[0])
