"""The address of a source: a scheme, what follows it, and parameters after a "#", with its secrets kept apart.

`${NAME}` stands for a variable of the environment. In the part of a URL before its "@", the value is percent-encoded,
so that a password may contain any character.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from edgekit.device.live import credentials
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.live.sources.options import SourceOptions

LOGIN = re.compile(r"(?<=//)(?:[^/:\s]*:(?!\d+/)\S*|[^/\s]*)@")
"""The part of a URL that holds a name and a password, even if a "/" or "@" in it is not percent-encoded."""
SECRET_VALUE = re.compile(r"(?i)(?<=[?&])([^=&#\s]*(?:pass|pwd|token|key|secret|auth)[^=&#\s]*=)([^&#\s]+)")
"""A part of a URL's query whose name says that its value is secret."""
HIDDEN = "***"
WITHOUT_ADDRESS = ("rpicam", "alsa", "pcm")
"""Schemes that need nothing after them."""


@dataclass(frozen=True)
class Address:
    """A parsed address. Printing it shows no secret."""

    shown: str
    """As it was written, without a password. Messages and the status use it."""
    scheme: str
    rest: str = field(repr=False)
    """What follows the scheme, without the parameters."""
    parameters: dict[str, str] = field(default_factory=dict)
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts that must not be shown."""

    @property
    def url(self) -> str:
        """The address as a URL without user name and password."""
        return f"{self.scheme}://{self.rest}"

    @property
    def url_with_login(self) -> str:
        """The URL with the user name and the password, which no command line may contain."""
        login = ":".join(quote(part, safe="") for part in (self.username, self.password) if part)
        return f"{self.scheme}://{login}@{self.rest}" if login else self.url

    @property
    def host(self) -> tuple[str, int | None]:
        """Host and port of a URL. The port is None if the URL does not name one."""
        try:
            parts = urlsplit(self.url)
            return parts.hostname or "", parts.port
        except ValueError:
            raise InputError(f"{self.shown}: not a host and a port; use {self.scheme}://host:port/…") from None

    def check_host(self) -> None:
        """Raise InputError if the URL names no host, or its port is not a number."""
        if not self.host[0]:
            raise InputError(f"{self.shown}: no host; use {self.scheme}://host:port/…")

    def redact(self, text: str) -> str:
        """Return the text without the secrets."""
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        return hide(text)

    def number(self, name: str) -> int | None:
        """Return a parameter that is a whole number from 1, None if it is not given."""
        value = self.parameters.get(name)
        if value is None:
            return None
        if not value.isascii() or not value.isdigit() or int(value) < 1:
            raise InputError(f"{self.shown}: {name}: got {value[:40]!r}; use a whole number from 1")
        return int(value)


def parse(text: str, options: SourceOptions, known: tuple[str, ...] = ()) -> Address:
    """Parse an address. `known` are the parameters that its scheme takes.

    A path gets the scheme "file". The user name and password of the options are used if the address has none. Raises
    InputError if a variable is not set, for a password file that cannot be read, or for an unknown parameter.
    """
    values: list[str] = []
    scheme = scheme_of(text)
    shown = hide(text)

    def expand(match: re.Match[str]) -> str:
        values.append(credentials.variable(match[1], shown))
        return values[-1]

    username = options.username
    password = options.password
    if options.password_file:
        password = credentials.read_secret(options.password_file, "password_file")
    password = credentials.VARIABLE.sub(expand, password)
    plain, _, fragment = text.partition("#") if scheme != "file" else (text, "", "")
    rest = plain[len(scheme) + 1 :] if plain.startswith(f"{scheme}:") else "" if plain == scheme else plain
    if scheme != "file" and rest.startswith("//"):
        head, slash, path = rest[2:].partition("/")
        login, _, host = head.rpartition("@")
        user, _, word = login.partition(":")
        username, password = (
            unquote(credentials.VARIABLE.sub(_quoted(expand), written)) or given
            for written, given in ((user, username), (word, password))
        )
        path, mark, query = path.partition("?")
        rest = host + slash + path + mark + credentials.VARIABLE.sub(_quoted(expand), query)
        values += [match[2] for match in SECRET_VALUE.finditer(rest)]
    rest = credentials.VARIABLE.sub(expand, rest)
    secrets = {each for value in (password, *values) if value for each in (value, quote(value, safe=""), quote(value))}
    longest_first = tuple(sorted(secrets, key=len, reverse=True))
    return Address(shown, scheme, rest, _parameters(shown, fragment, known), username, password, longest_first)


def scheme_of(text: str) -> str:
    """Return the scheme, "file" for a path. A single letter before a colon is a drive of Windows."""
    match = re.match(r"([A-Za-z][A-Za-z0-9+]+):", text)
    if match and not os.path.exists(text):
        return match[1]
    bare = text.partition("#")[0]
    return bare if bare in WITHOUT_ADDRESS else "file"


def hide(text: str) -> str:
    """Return an address without its password, for messages."""
    return SECRET_VALUE.sub(rf"\1{HIDDEN}", LOGIN.sub(f"{HIDDEN}@", text))


def _quoted(expand: Callable[[re.Match[str]], str]) -> Callable[[re.Match[str]], str]:
    return lambda match: quote(expand(match), safe="")


def _parameters(shown: str, fragment: str, known: tuple[str, ...]) -> dict[str, str]:
    pairs = [part.partition("=")[::2] for part in fragment.split("&") if part]
    for name, _ in pairs:
        if name not in known:
            what = f"use {' or '.join(known)}" if known else "it takes none"
            raise InputError(f"{shown}: unknown parameter {name[:40]!r} after the #; {what}")
    return dict(pairs)
