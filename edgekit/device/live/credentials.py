"""Passwords and tokens from the environment or from files, and addresses without them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from edgekit.runner.errors import InputError

VARIABLE = re.compile(r"\$\{([^}]*)\}")


def expand(text: str, where: str) -> str:
    """Replace each `${NAME}` by the environment variable. Raises InputError, which begins with `where`."""
    return VARIABLE.sub(lambda match: variable(match[1], where), text)


def variable(name: str, where: str) -> str:
    """Return an environment variable. Raises InputError, which begins with `where`, if it is not set."""
    if name not in os.environ:
        raise InputError(f"{where}: the variable {name} is not set; set it, for a unit in an EnvironmentFile=")
    return os.environ[name]


def read_secret(path: str, where: str) -> str:
    """Return the first line of a file. `path` may contain `${NAME}`. Raises InputError, which begins with `where`."""
    file = expand(path, where)
    try:
        secret = Path(file).read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise InputError(f"{where}: {file}: {why}; name a file with one line that this user may read") from None
    if not secret:
        raise InputError(f"{where}: {file}: its first line is empty; write the secret to it")
    return secret


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
