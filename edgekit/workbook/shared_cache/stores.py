"""Stores for the objects of a shared cache: a folder or an object store."""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from edgekit.core.errors import ConfigError
from edgekit.runner.files import make_folder, remove_quietly, sync_folder

if TYPE_CHECKING:
    import obstore

FailureKind = Literal["unreachable", "refused", "full", "read-only", "damaged"]


class StoreError(Exception):
    """An operation on a store failed.

    `kind` says how it failed. The message never contains credentials.
    """

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind


@dataclass(frozen=True)
class StoredObject:
    """An object in a listing. `age_s` is in seconds."""

    path: str
    size_bytes: int
    age_s: float


class Store(Protocol):
    """Objects by path, such as `cas/0a1b…`. They are only created and removed, never changed."""

    url: str

    def read(self, path: str) -> Iterator[bytes] | None:
        """Return the bytes of an object in chunks, or None if there is no such object."""

    def create(self, path: str, content: Path | bytes) -> bool:
        """Create an object in one step. Returns False, and leaves the object as it is, if it exists."""

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose path starts with `prefix`, such as `keys/` or `keys/0a1b`."""

    def remove(self, path: str) -> None:
        """Remove an object. Nothing happens if it does not exist."""


CHUNK_BYTES = 1 << 20
PARTIAL_PREFIX = ".tmp-"
"""Prefix of a file that is being written. `edgekit cache prune` removes files that killed writers left."""
NO_LINK_ERRORS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class FolderStore:
    """A store in a folder, see `Store`."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder, self.url = folder, url or str(folder)

    def read(self, path: str) -> Iterator[bytes] | None:
        """See `Store.read`."""
        try:
            stream = open(self.folder / path, "rb")  # noqa: SIM115 - closed after the last chunk
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _store_error(error) from None
        return _file_chunks(stream.fileno(), stream)

    def create(self, path: str, content: Path | bytes) -> bool:
        """See `Store.create`."""
        final = self.folder / path
        if final.exists():
            return False
        partial = final.with_name(f"{PARTIAL_PREFIX}{os.getpid()}-{secrets.token_hex(4)}")
        try:
            make_folder(final.parent)
            try:
                _write(partial, content, os.O_EXCL)
                return _link(partial, final)
            finally:
                remove_quietly(partial)
        except OSError as error:
            raise _store_error(error) from None

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """See `Store.list`."""
        folder, _, name_prefix = prefix.rpartition("/")
        try:
            with os.scandir(self.folder / folder) as entries:
                for entry in entries:
                    if entry.name.startswith(name_prefix) and entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        yield StoredObject(
                            f"{folder}/{entry.name}", status.st_size, max(time.time() - status.st_mtime, 0.0)
                        )
        except FileNotFoundError:
            return
        except OSError as error:
            raise _store_error(error) from None

    def remove(self, path: str) -> None:
        """See `Store.remove`."""
        try:
            (self.folder / path).unlink(missing_ok=True)
        except OSError as error:
            raise _store_error(error) from None


def _file_chunks(handle: int, stream: object) -> Iterator[bytes]:
    """Yield the chunks of a file. `stream` is passed so that it is not closed before the last chunk."""
    while True:
        try:
            chunk = os.read(handle, CHUNK_BYTES)
        except OSError as error:
            raise _store_error(error) from None
        if not chunk:
            return
        yield chunk


def _write(path: Path, content: Path | bytes, flags: int) -> None:
    """Write a file with the permissions of the umask, because other users are to read it."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o666)
    with os.fdopen(handle, "wb") as stream:
        if isinstance(content, bytes):
            stream.write(content)
        else:
            with open(content, "rb") as source:
                while piece := source.read(CHUNK_BYTES):
                    stream.write(piece)
        stream.flush()
        os.fsync(stream.fileno())


def _link(partial: Path, final: Path) -> bool:
    """Give a complete file its name in one step.

    On a file system without hard links, the content is written to a new file with that name. A reader may then see an
    incomplete file, but notices it, because the digest does not match.
    """
    try:
        os.link(partial, final)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINK_ERRORS:
            raise
        try:
            _write(final, partial, os.O_EXCL)
        except FileExistsError:
            return False
        except OSError:
            with suppress(OSError):
                final.unlink(missing_ok=True)
            raise
    sync_folder(final.parent)
    return True


def _store_error(error: OSError) -> StoreError:
    kinds: dict[int | None, FailureKind] = {
        errno.ENOSPC: "full",
        errno.EDQUOT: "full",
        errno.EFBIG: "full",
        errno.EROFS: "read-only",
        errno.EACCES: "read-only",
        errno.EPERM: "read-only",
    }
    return StoreError(kinds.get(error.errno, "unreachable"), (error.strerror or str(error)).lower())


CONNECT_LIMIT_S = 5
STALL_LIMIT_S = 20
"""Longest time in which no byte arrives. `transfer.run_all` limits the total time."""
RETRIES = 2
CAUSES = (
    (r"169\.254\.|metadata", "there are no credentials in the environment"),
    (r"connection refused", "connection refused"),
    (r"dns error|failed to lookup", "its name cannot be resolved"),
    (r"timed ?out", "no answer in time"),
    (r"certificate", "its certificate is not trusted"),
    (r"BadScheme", "it is not https, and AWS_ALLOW_HTTP is not set"),
    (r"account must be specified", "AZURE_STORAGE_ACCOUNT_NAME is not set"),
    (r"connection (reset|closed)|incomplete|unexpected eof|error decoding response body", "the connection was lost"),
    (r"error trying to connect|error sending request", "no connection could be made"),
)
"""Patterns in an error's text, and the cause to report. The text itself is not shown, as it may hold a signed URL."""


class ObjectStore:
    """A store in an object store, see `Store`. Creating it makes no request yet."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            from obstore.store import from_url
        except ImportError:
            raise ConfigError(f"cache {url}: needs obstore, of the extra cache: pip install obstore") from None
        try:
            self._store: obstore.store.ObjectStore = from_url(
                url,
                client_options={
                    "connect_timeout": timedelta(seconds=CONNECT_LIMIT_S),
                    "read_timeout": timedelta(seconds=STALL_LIMIT_S),
                    "timeout": timedelta(hours=1),
                    "allow_http": _allows_http(),
                },
                retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=STALL_LIMIT_S)},
            )
        except Exception as error:  # obstore has no exception class for a bad URL or variable
            raise ConfigError(f"cache {url}: cannot be used: {_error_cause(error)}") from None

    def read(self, path: str) -> Iterator[bytes] | None:
        """See `Store.read`."""
        import obstore

        try:
            result = obstore.get(self._store, path)
        except FileNotFoundError:
            return None
        except Exception as error:
            _raise_store_error(error)
        return _stream_chunks(result)

    def create(self, path: str, content: Path | bytes) -> bool:
        """See `Store.create`. The object is held in memory and sent in one request, so that it appears in one step."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            obstore.put(self._store, path, content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except FileNotFoundError:
            raise StoreError("refused", "there is no such bucket") from None
        except Exception as error:
            _raise_store_error(error)
        return True

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """See `Store.list`."""
        import obstore

        folder, _, name_prefix = prefix.rpartition("/")
        now = datetime.now(timezone.utc)
        try:
            for item in (member for chunk in obstore.list(self._store, folder or None) for member in chunk):
                if item["path"].startswith(prefix if folder else name_prefix):
                    age_s = (now - item["last_modified"]).total_seconds()
                    yield StoredObject(item["path"], item["size"], max(age_s, 0.0))
        except Exception as error:
            _raise_store_error(error)

    def remove(self, path: str) -> None:
        """See `Store.remove`."""
        import obstore

        try:
            obstore.delete(self._store, path)
        except FileNotFoundError:
            return
        except Exception as error:
            _raise_store_error(error)


def _allows_http() -> bool:
    """Whether the environment allows a store without encryption. obstore itself ignores the variable here."""
    names = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP")
    return any(os.environ.get(name, "").lower() in ("1", "true", "yes") for name in names)


def _stream_chunks(result: Any) -> Iterator[bytes]:
    try:
        for chunk in result.stream(min_chunk_size=CHUNK_BYTES):
            yield bytes(chunk)
    except Exception as error:
        _raise_store_error(error)


def _raise_store_error(error: Exception) -> NoReturn:
    """Raise the StoreError for an error of obstore, which has one class for nearly everything."""
    from obstore import exceptions

    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):  # an error of the local file
        raise error
    if isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)):
        raise StoreError("refused", "it refused access; give credentials in the environment") from None
    raise StoreError("unreachable", _error_cause(error)) from None


def _error_cause(error: Exception) -> str:
    text = str(error)
    for pattern, cause in CAUSES:
        if re.search(pattern, text, re.IGNORECASE):
            return cause
    status = re.search(r"status(?: code)?:? (\d{3})|HTTP (\d{3})|(\d{3}) [A-Z][a-z]+", text)
    return f"it answered {next(filter(None, status.groups()))}" if status else type(error).__name__
