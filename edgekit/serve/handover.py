"""What the first process hands to its workers in memory: settings, secrets, bundles and the pair for TLS.

Secrets are read once, so all workers know the same tokens, whenever they start. Nothing of this stands in a command
line, which every user of the machine may read.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
from dataclasses import asdict, dataclass
from typing import IO

from edgekit.device.commands.serve import Settings, is_redis
from edgekit.runner.errors import InputError

SHORTEST = 16
MOST_BYTES = 1 << 20
CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""Of systemd's LoadCredential, which lets this service alone in; it shows its files as readable by their group."""
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


@dataclass(frozen=True)
class Secrets:
    """Tokens of those who may ask, none where all may, and the URL of the Redis behind the cache, or nothing."""

    tokens: tuple[str, ...] = ()
    redis: str = ""

    @staticmethod
    def read(settings: Settings) -> Secrets:
        """InputError for a file that holds no tokens or no URL, or that others may read."""
        return Secrets(read_tokens(settings.token_file), read_redis(settings.cache_redis))

    @property
    def token_bytes(self) -> tuple[bytes, ...]:
        """As they come in a header."""
        return tuple(token.encode("ascii") for token in self.tokens)


def read_tokens(path: str) -> tuple[str, ...]:
    """One a line; none without a path."""
    if not path:
        return ()
    lines = [line.strip() for line in _private(path).splitlines()]
    tokens = [line for line in lines if line and not line.startswith(b"#")]
    if not tokens:
        raise InputError(f"{path}: holds no token; write one a line, of {SHORTEST} characters or more")
    if any(len(token) < SHORTEST or not all(0x20 < byte < 0x7F for byte in token) for token in tokens):
        raise InputError(f"{path}: a token is shorter than {SHORTEST} characters, or not plain ASCII without spaces")
    return tuple(token.decode("ascii") for token in tokens)


def read_redis(where: str) -> str:
    """A URL as it is, or the one that a file holds, with a password where one is needed."""
    if not where or is_redis(where):
        return where
    url = _private(where).decode("utf-8", "replace").strip()
    if not is_redis(url):
        raise InputError(f"{where}: holds no URL of a Redis, such as redis://:PASSWORD@HOST:PORT")
    return url


def _private(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            data = stream.read(MOST_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    folder = os.environ.get(CREDENTIALS)
    is_systemds = bool(folder) and os.path.dirname(os.path.realpath(path)) == os.path.realpath(str(folder))
    if mode & (0o007 if is_systemds else 0o077):
        raise InputError(f"{path}: its group or others may read it; run: chmod 600 {path}")
    return data


def hand_over(settings: Settings, secrets: Secrets) -> int:
    """A descriptor that a worker inherits, for `received`."""
    values = {"settings": settings.to_json(), "secrets": asdict(secrets)}
    return sealed("edgekit-settings", io.BytesIO(json.dumps(values).encode()))


def received(descriptor: int) -> tuple[Settings, Secrets]:
    """What `hand_over` was given, in the worker."""
    values = json.loads(os.pread(descriptor, 4 * MOST_BYTES, 0))
    secrets = Secrets(tuple(values["secrets"]["tokens"]), values["secrets"]["redis"])
    return Settings.from_json(values["settings"]), secrets


def sealed(name: str, source: IO[bytes]) -> int:
    """A descriptor of a copy of `source`; OSError where there is no memory for it. Closing it frees the memory."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(descriptor, "wb", closefd=False) as stream:
            shutil.copyfileobj(source, stream, 1 << 20)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def path_of(descriptor: int) -> str:
    """Where another process of the same user opens a descriptor of this one, for as long as it is open here."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"
