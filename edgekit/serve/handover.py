"""Passes settings, secrets, bundles and the certificate with its key from the supervisor to its workers in memory.

Secrets are read once, so that all workers have the same tokens whenever they start. Nothing of this appears on a
command line, which every user of the machine could read.
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

MIN_TOKEN_LENGTH = 16
MAX_BYTES = 1 << 20
CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""The environment variable that names the folder of systemd's LoadCredential.

Only this service can access the folder, although its files appear to be readable by the group.
"""
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


@dataclass(frozen=True)
class Secrets:
    """The tokens that clients may use, and the URL of the Redis behind the cache.

    If there are no tokens, clients need none. If the URL is empty, there is no Redis.
    """

    tokens: tuple[str, ...] = ()
    redis: str = ""

    @staticmethod
    def read(settings: Settings) -> Secrets:
        """Read the files with secrets. Raises InputError if one is invalid or readable by other users."""
        return Secrets(read_tokens(settings.token_file), read_redis(settings.cache_redis))

    @property
    def token_bytes(self) -> tuple[bytes, ...]:
        """The tokens as bytes, as they appear in headers."""
        return tuple(token.encode("ascii") for token in self.tokens)


def read_tokens(path: str) -> tuple[str, ...]:
    """Read tokens from a file, one per line. An empty path gives no tokens."""
    if not path:
        return ()
    lines = [line.strip() for line in _read_private_file(path).splitlines()]
    tokens = [line for line in lines if line and not line.startswith(b"#")]
    if not tokens:
        raise InputError(f"{path}: holds no token; write one per line, of {MIN_TOKEN_LENGTH} characters or more")
    if any(len(token) < MIN_TOKEN_LENGTH or not all(0x20 < byte < 0x7F for byte in token) for token in tokens):
        raise InputError(
            f"{path}: a token is shorter than {MIN_TOKEN_LENGTH} characters, or not plain ASCII without spaces"
        )
    return tuple(token.decode("ascii") for token in tokens)


def read_redis(url_or_path: str) -> str:
    """Return the URL of the Redis. It is given directly, or in a file, which may contain a URL with a password."""
    if not url_or_path or is_redis(url_or_path):
        return url_or_path
    url = _read_private_file(url_or_path).decode("utf-8", "replace").strip()
    if not is_redis(url):
        raise InputError(f"{url_or_path}: holds no URL of a Redis, such as redis://:PASSWORD@HOST:PORT")
    return url


def _read_private_file(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            data = stream.read(MAX_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    credentials_folder = os.environ.get(CREDENTIALS)
    is_credential = bool(credentials_folder) and os.path.dirname(os.path.realpath(path)) == os.path.realpath(
        str(credentials_folder)
    )
    if mode & (0o007 if is_credential else 0o077):
        raise InputError(f"{path}: its group or others may read it; run: chmod 600 {path}")
    return data


def hand_over(settings: Settings, secrets: Secrets) -> int:
    """Write settings and secrets to memory, and return the file descriptor that workers inherit."""
    values = {"settings": settings.to_json(), "secrets": asdict(secrets)}
    return sealed_memory("edgekit-settings", io.BytesIO(json.dumps(values).encode()))


def read_handover(descriptor: int) -> tuple[Settings, Secrets]:
    """Read, in a worker, the settings and secrets that `hand_over` has written."""
    values = json.loads(os.pread(descriptor, 4 * MAX_BYTES, 0))
    secrets = Secrets(tuple(values["secrets"]["tokens"]), values["secrets"]["redis"])
    return Settings.from_json(values["settings"]), secrets


def sealed_memory(name: str, source: IO[bytes]) -> int:
    """Copy `source` to memory and return a descriptor of the copy. Closing it frees the memory.

    Raises OSError if there is not enough memory.
    """
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
    """Return the path at which another process of the same user can open a descriptor, while it is open here."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"
